/** A client's side of a session: orders in, replies out, one reply an order (session spec v2). */

import { loadCheckpoint } from "./checkpoint.ts";
import type { Client } from "./client.ts";
import { Refused } from "./errors.ts";
import { runId } from "./frame.ts";
import {
  cannotFollow, type Order, readOrder, readShortOrder, shortOrderHolds, type StateName, type Status, writeReply, writeShortReply,
} from "./messages.ts";

const FULL = 0xde;
const NOTHING = new Uint8Array(16);

/** A party that a run's agreement makes; `unborn` if it cannot build w0, so that only a checkpoint helps. */
export interface Joined {
  client: Client;
  unborn: boolean;
}

export interface SessionSettings {
  /** This client's number. */
  client: number;
  /** 16 random bytes that this client keeps. */
  token: Uint8Array;
  /** Build the client of a run from its agreement, or refuse. */
  join: (agreement: Record<string, unknown>, run: number) => Joined;
  /** A clock, in seconds. */
  now: () => number;
}

export class Session {
  private joined: (Joined & { run: number; d: number; again: () => Joined }) | undefined;
  private last: { round: number; half: string; update: Uint8Array; seconds: number } | undefined;

  /** Why the last reply says that this client failed, or why nothing can be computed from its replica any more. */
  trouble: string | undefined;
  /** Whether w was the server's at the last order; undefined before the first that could tell. */
  equal: boolean | undefined;

  constructor(private readonly settings: SessionSettings) {}

  get client(): Client | undefined {
    return this.joined?.client;
  }

  /** The reply to one order. */
  answer(bytes: Uint8Array): Uint8Array {
    return bytes[0] === FULL ? this.full(readOrder(bytes)) : this.short(bytes);
  }

  private full(order: Order): Uint8Array {
    const reply = (state: StateName, reason = "", update?: Uint8Array, seconds = 0): Uint8Array => {
      const token = order.agreement ? { token: this.settings.token } : {};
      return writeReply(order, { ...this.status(state, reason, seconds), ...token }, update);
    };
    this.trouble = undefined;
    try {
      if (this.joined?.run !== order.run) {
        if (order.agreement === undefined || !this.begin(order, order.agreement)) return reply("unknown");
      }
      if (!this.follow(order)) return reply("behind");
      if (!order.train) return reply("current");
      const { update, seconds } = this.train(order.round);
      return reply("trained", "", update, seconds);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof RangeError)) throw error;
      this.trouble = error.message;
      return reply("failed", error.message);
    }
  }

  /** Join the run of an order; false, and all is as it was, where the agreement beside it is another run's. */
  private begin(order: Order, agreement: Uint8Array): boolean {
    if (runId(agreement) !== order.run) return this.foreign("run");
    const facts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(agreement));
    const again = (): Joined => this.settings.join(facts, order.run);
    const joined = again();
    if (joined.client.replica.wire.d !== order.d) return this.foreign("d");
    this.joined = { ...joined, run: order.run, d: order.d, again };
    this.last = undefined;
    return true;
  }

  private foreign(field: string): false {
    this.trouble = `${field}: the agreement is of another run than the order`;
    return false;
  }

  /** Bring the replica to the order's version; false if this client cannot get there. */
  private follow(order: Order): boolean {
    const joined = this.joined!;
    if (joined.client.replica.version > order.upto) {
      Object.assign(joined, joined.again()); // the server started over, so does the client
      this.last = undefined;
    }
    const { replica } = joined.client;
    if (order.checkpoint !== undefined) {
      loadCheckpoint(replica, order.checkpoint, order.upto);
      joined.unborn = false;
    } else if (!joined.unborn && order.since <= replica.version) {
      for (const { t, frame } of order.broadcasts) {
        if (t <= replica.version) continue;
        replica.version = t - 1; // rounds between two broadcasts had no update
        replica.apply(t, frame);
      }
      replica.version = order.upto;
    }
    if (joined.unborn || replica.version !== order.upto) return false;
    this.equal = hex(order.half) === hex(this.half());
    joined.unborn = !this.equal; // only the whole state helps
    return this.equal;
  }

  private short(bytes: Uint8Array): Uint8Array {
    const joined = this.joined;
    if (joined === undefined || joined.unborn) return cannotFollow(bytes[1] ?? 0);
    const { replica } = joined.client;
    const { round, train, broadcast } = readShortOrder(bytes, replica.version);
    const upto = round - 1;
    try {
      if (broadcast !== undefined && replica.version === upto - 1) replica.apply(upto, broadcast);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.trouble = replica.broken;
      return cannotFollow(round); // in full the server can be told what is wrong
    }
    const broadcasts = broadcast === undefined ? [] : [{ t: upto, frame: broadcast }];
    const order = { run: joined.run, d: joined.d, round, train, since: upto - broadcasts.length, upto, half: this.half(), broadcasts };
    if (replica.version !== upto || !shortOrderHolds(bytes, order)) return cannotFollow(round);
    this.equal = true;
    if (!train) return writeShortReply(order, this.status("current"));
    try {
      const { update, seconds } = this.train(round);
      return writeShortReply(order, this.status("trained", "", seconds), update);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof RangeError)) throw error;
      this.trouble = error.message;
      return writeReply(order, this.status("failed", error.message));
    }
  }

  /** The update of this round; the same round at the same w gives the same bytes again. */
  private train(round: number): { update: Uint8Array; seconds: number } {
    const half = hex(this.half());
    if (this.last?.round !== round || this.last.half !== half) {
      const start = this.settings.now();
      const update = this.joined!.client.update(true);
      this.last = { round, half, update, seconds: this.settings.now() - start };
    }
    return this.last;
  }

  private status(state: StateName, reason = "", seconds = 0): Status {
    const known = this.joined !== undefined && !this.joined.unborn;
    const version = known ? this.joined!.client.replica.version : -1;
    return { state, client: this.settings.client, version, half: known ? this.half() : NOTHING, seconds, reason };
  }

  private half(): Uint8Array {
    const digest = this.joined!.client.replica.digest();
    return Uint8Array.from({ length: 16 }, (_, i) => parseInt(digest.slice(2 * i, 2 * i + 2), 16));
  }
}

const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
