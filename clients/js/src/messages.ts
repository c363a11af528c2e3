/** Orders and replies of a session as bytes, in full and in short (session spec v2). */

import { concat, crc16, Reader, uint32 } from "./bytes.ts";
import { Refused } from "./errors.ts";
import { check, type Expected, open, pack, unpack } from "./frame.ts";
import { Key } from "./key.ts";

const SESSION = Key.fromSeed(new TextEncoder().encode("desketch session v2"));
const TRAIN = 1;
const AGREEMENT = 2;
const CHECKPOINT = 4;
const BROADCASTS = 8;
const TOKEN = 0x80;
const LONGEST_AGREEMENT = 2 ** 24;
const HALF = 16; // bytes of a digest

export const STATES = { trained: 0, current: 1, behind: 2, unknown: 3, failed: 4 } as const;
export type StateName = keyof typeof STATES;

export interface Order {
  run: number;
  d: number;
  round: number;
  train: boolean;
  since: number;
  upto: number;
  half: Uint8Array;
  agreement?: Uint8Array;
  checkpoint?: Uint8Array;
  broadcasts: { t: number; frame: Uint8Array }[];
}

export interface Status {
  state: StateName;
  client: number;
  version: number;
  half: Uint8Array;
  seconds: number;
  token?: Uint8Array;
  reason: string;
}

function part(run: number, d: number, round: number, kind: string): Expected {
  return { run, d, round, kind, b: 1, family: "none", codec: "opaque", key: SESSION };
}

/** An order in full. */
export function readOrder(bytes: Uint8Array): Order {
  const frames = [];
  for (let at = 0; at < bytes.length; at += frames[frames.length - 1].length) frames.push(take(bytes.subarray(at)));
  const [first, ...rest] = frames;
  if (first === undefined) throw new Refused("frame length", "frame length: an empty message");
  const { run, d, round } = first.header;
  frames.forEach(({ header }, i) => check(header, part(run, d, round, i === 0 ? "broadcast" : "checkpoint")));
  const reader = new Reader(first.payload);
  const flags = reader.byte("order");
  const [since, upto] = [reader.uint32("order"), reader.uint32("order")];
  const half = reader.take(HALF, "order");
  if (reader.left > 0 || flags > 15) throw new Refused("order", "order: an unknown flag, or bytes too many");
  if (since > upto || upto >= round) throw new Refused("order", `order: since ${since}, upto ${upto}, round ${round}`);
  const next = (flag: number): Uint8Array | undefined => {
    if (!(flags & flag)) return undefined;
    const found = rest.shift();
    if (found === undefined) throw new Refused("order", "order: a part that is announced is missing");
    return found.payload;
  };
  const agreement = next(AGREEMENT);
  if (agreement && agreement.length > LONGEST_AGREEMENT) throw new Refused("agreement", `agreement: got ${agreement.length} bytes`);
  const checkpoint = next(CHECKPOINT);
  const broadcasts = readBroadcasts(next(BROADCASTS), since, upto);
  if (rest.length > 0) throw new Refused("order", "order: a part that is not announced");
  return {
    run, d, round, train: (flags & TRAIN) !== 0, since, upto, half, broadcasts,
    ...(agreement && { agreement }), ...(checkpoint && { checkpoint }),
  };
}

function take(bytes: Uint8Array): ReturnType<typeof unpack> {
  const frame = unpack(bytes);
  open(bytes.subarray(0, frame.length), { ...frame.header, key: SESSION });
  if (frame.header.weight !== 1) throw new Refused("weight", `weight: got ${frame.header.weight}, expected 1`);
  return frame;
}

function readBroadcasts(payload: Uint8Array | undefined, since: number, upto: number): Order["broadcasts"] {
  const out = [];
  const reader = new Reader(payload ?? new Uint8Array(0));
  for (let t = since; reader.left > 0; ) {
    const step = reader.varint("broadcasts");
    t += step;
    if (step === 0 || t > upto) throw new Refused("broadcasts", `broadcasts: round ${t} is not after the last, up to ${upto}`);
    out.push({ t, frame: reader.take(reader.varint("broadcasts"), "broadcasts") });
  }
  if (payload !== undefined && out.length === 0) throw new Refused("broadcasts", "broadcasts: announced, but there are none");
  return out;
}

/** A reply in full to this order. */
export function writeReply(order: Pick<Order, "run" | "d" | "round">, status: Status, update: Uint8Array = new Uint8Array(0)): Uint8Array {
  return concat(statusFrame(order, status), update);
}

function statusFrame({ run, d, round }: Pick<Order, "run" | "d" | "round">, status: Status): Uint8Array {
  const seconds = new Uint8Array(new Float32Array([status.seconds]).buffer);
  const reason = new TextEncoder().encode(status.reason).subarray(0, 1000);
  const state = STATES[status.state] | (status.token ? TOKEN : 0);
  const payload = concat(
    [state], uint32(status.client), uint32(status.version >>> 0), status.half, seconds, status.token ?? [], reason,
  );
  return pack(part(run, d, round, "update"), 1, payload);
}

/** The order frame that a short order's check is over: no broadcasts are announced in it. */
function orderFrame(order: Order): Uint8Array {
  const payload = concat([order.train ? TRAIN : 0], uint32(order.since), uint32(order.upto), order.half);
  return pack(part(order.run, order.d, order.round, "broadcast"), 1, payload);
}

const crcBytes = (bytes: Uint8Array): number[] => [crc16(bytes) & 255, crc16(bytes) >> 8];

/** A short order, for a replica of this version; what its check must be follows from the replica's half digest. */
export function readShortOrder(bytes: Uint8Array, version: number): { round: number; train: boolean; broadcast?: Uint8Array } {
  if (bytes.length < 4) throw new Refused("frame length", "frame length: a short order has at least 4 bytes");
  const broadcast = bytes.subarray(4);
  const follows = (bytes[0] & 2) !== 0;
  if (bytes[0] >> 2 !== 0x60 >> 2 || follows !== broadcast.length > 0) throw new Refused("flag", `flag: got ${bytes[0]}`);
  const off = (bytes[1] - ((version + 1) & 255) + 384) % 256;
  const round = Math.max(version + 1 + off - 128, bytes[1]); // the nearest that ends in the byte
  return { round, train: (bytes[0] & 1) !== 0, ...(follows && { broadcast }) };
}

/** Does the check of a short order hold for what this client knows? */
export function shortOrderHolds(bytes: Uint8Array, order: Order): boolean {
  const right = crcBytes(concat(orderFrame(order), bytes.subarray(4)));
  return bytes[2] === right[0] && bytes[3] === right[1];
}

/** A short reply: trained with its update, or up to date. */
export function writeShortReply(order: Pick<Order, "run" | "d" | "round">, status: Status, update?: Uint8Array): Uint8Array {
  const after = update === undefined ? new Uint8Array(0) : concat([secondsCode(status.seconds)], update);
  const right = crcBytes(concat(statusFrame(order, { ...status, seconds: 0 }), after));
  return concat([update === undefined ? 0x71 : 0x70, order.round % 256, ...right], after);
}

/** "Say it in full." */
export const cannotFollow = (round: number): Uint8Array => Uint8Array.of(0x73, round & 255);

/** Seconds as one byte: 0 is none, code c is 10⁻⁴ 2^((c - 1)/8). */
export function secondsCode(seconds: number): number {
  return seconds < 1e-4 ? 0 : Math.min(255, Math.round(1 + 8 * Math.log2(seconds / 1e-4)));
}
