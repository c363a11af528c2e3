/** A replica: w, moved by the decoded broadcasts, equal on every party bit for bit (replica spec v1). */

import { CODECS } from "./codecs.ts";
import { Refused } from "./errors.ts";
import { decode, type Expected } from "./frame.ts";
import type { Key } from "./key.ts";
import { norm, ServerOptimizer } from "./optimizers.ts";
import { sha256 } from "./sha256.ts";
import { decodeShort, isShort } from "./short.ts";
import { draw, type FamilyOptions, type Sketch } from "./sketch.ts";

const LARGEST_KEPT = 1e30;

/** What all messages of a run have in common. */
export interface Wire {
  run: number;
  key: Key;
  family: string;
  options?: FamilyOptions;
  d: number;
  b: number;
  /** Codec of broadcasts. */
  down: string;
  /** Tiny numbers of every message: 1 where clients send running means to an automatic step. */
  tiny?: number;
  /** Bits a number, in the mean of both ways, at most 1; 1 if undefined. */
  bits?: number;
}

/** What a broadcast of round t must say. */
export function headerOf({ run, family, d, b, key, down, tiny = 0 }: Wire, t: number): Expected {
  return { run, round: t, family, d, b, codec: down, kind: "broadcast", key: key.foldIn("round", t), tiny };
}

export class Replica {
  readonly w: Float32Array;
  version = 0;
  /** Why nothing may be computed from this replica any more. */
  broken: string | undefined;
  private drawn: { t: number; R: Sketch } | undefined;

  constructor(
    w0: Float32Array,
    readonly wire: Wire,
    readonly optimizer: ServerOptimizer,
  ) {
    if (w0.length !== wire.d) throw new RangeError(`w0 has ${w0.length} numbers, the run has d = ${wire.d}`);
    if (CODECS[wire.down] === undefined) throw new RangeError(`no codec ${wire.down}`);
    this.w = w0.slice();
  }

  /** Apply round t's broadcast, a full or a short frame; undefined is a round without an update. */
  apply(t: number, broadcast: Uint8Array | undefined): void {
    if (this.broken !== undefined) throw new Refused("replica", `replica: ${this.broken}`);
    if (t !== this.version + 1) {
      throw new Refused("round", `round: this replica has version ${this.version}, got round ${t}; ask to catch up`);
    }
    if (broadcast !== undefined) {
      const expected = headerOf(this.wire, t);
      const short = isShort(broadcast, expected);
      const { values, extra } = short ? decodeShort(broadcast, expected, 1) : decode(broadcast, expected);
      const u = this.sketchAt(t).desketch(values);
      const along = extra.length > 0 ? { along: extra[0] } : {};
      this.optimizer.apply(this.w, { u, norm: norm(values), b: this.wire.b, bits: this.wire.bits ?? 1, ...along });
      this.checkNumbers(t);
    }
    this.version = t;
  }

  /** R_t, the same for every party; drawn once for a round's update and broadcast. */
  sketchAt(t: number): Sketch {
    const { family, d, b, key, options } = this.wire;
    if (this.drawn?.t !== t) this.drawn = { t, R: draw(family, d, b, key.foldIn("round", t), options) };
    return this.drawn.R;
  }

  /** SHA-256 of w, in hex. */
  digest(): string {
    const hash = sha256(new Uint8Array(this.w.buffer, this.w.byteOffset, this.w.byteLength));
    return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** Every number this replica keeps is finite, with room to average and square it. */
  private checkNumbers(t: number): void {
    const kept = { w: this.w, ...this.optimizer.vectors, eta: [this.optimizer.eta], floor: [this.optimizer.floor] };
    for (const [name, numbers] of Object.entries(kept)) {
      const bad = numbers.find((x: number) => !(Math.abs(x) <= LARGEST_KEPT));
      if (bad === undefined) continue;
      this.broken = `round ${t} took ${name} to ${bad}, beyond ${LARGEST_KEPT}`;
      throw new Refused("replica", `replica: ${this.broken}`);
    }
  }
}
