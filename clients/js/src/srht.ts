/**
 * SRHT: b rows of a signed Hadamard transform (sketch spec v1, `srht` with `transform = "hadamard"`).
 *
 * Row hi × segment + lo of H is row hi of the small H of size/segment times row lo of the H of one segment. So neither
 * direction holds more than one segment: each is transformed in place and its b numbers are taken (or put) with the
 * signs of the small H.
 */

import { hadamard } from "./hadamard.ts";
import { parity, signBits, subset } from "./hashes.ts";
import type { Key } from "./key.ts";

export interface SrhtOptions {
  block?: number;
  transform?: "hadamard";
}

/** Coordinates [from, until) of one transform, its rows [begin, end), and the signs (-1)^⟨hi, c⟩ of segment c. */
interface Segment {
  from: number;
  until: number;
  begin: number;
  end: number;
  signs: Float32Array;
}

const LEAST_SEGMENT = 2 ** 13;

export class Srht {
  private readonly segment: number;
  private readonly size: number;
  private readonly scale: number;
  private readonly signs: Uint32Array;
  private readonly lo: Uint32Array;
  private readonly hi: Uint32Array;
  private readonly first: number[]; // rows first[T] to first[T + 1] - 1 are those of transform T
  private readonly buffer: Float32Array;

  constructor(
    readonly d: number,
    readonly b: number,
    key: Key,
    { block, transform = "hadamard" }: SrhtOptions = {},
  ) {
    if (transform !== "hadamard") {
      throw new RangeError(`this client has no transform "${transform}": its bits depend on the platform`);
    }
    if (block !== undefined && powerOfTwo(block) !== block) throw new RangeError(`block is a power of two, not ${block}`);
    const blocked = block !== undefined && block < d;
    this.size = blocked ? block : powerOfTwo(d);
    this.segment = blocked ? block : Math.min(this.size, Math.max(LEAST_SEGMENT, powerOfTwo(b)));
    const transforms = Math.ceil(d / this.size);
    const count = this.size / this.segment;
    const rows = subset(key, transforms * this.size, b);
    this.lo = rows.map((r) => Math.floor((r % this.size) / count));
    this.hi = rows.map((r) => r % count);
    this.first = [0];
    for (let k = 0, T = 1; T <= transforms; T++) {
      while (k < b && rows[k] < T * this.size) k++;
      this.first.push(k);
    }
    this.signs = signBits(key, 0, d);
    this.scale = Math.fround(Math.sqrt(transforms / b));
    this.buffer = new Float32Array(this.segment);
  }

  sketch(g: Float32Array): Float32Array {
    const { buffer } = this;
    const sums = new Float64Array(this.b);
    for (const segment of this.segments()) {
      const n = segment.until - segment.from;
      this.signed(g, segment.from, buffer, 0, n);
      buffer.fill(0, n);
      hadamard(buffer);
      this.take(sums, segment);
    }
    const out = Float32Array.from(sums);
    for (let k = 0; k < out.length; k++) out[k] *= this.scale;
    return out;
  }

  desketch(s: Float32Array): Float32Array {
    const { buffer, scale } = this;
    const x = s.map((v) => v * scale);
    const out = new Float32Array(this.d);
    for (const segment of this.segments()) {
      buffer.fill(0);
      this.put(x, segment);
      hadamard(buffer);
      this.signed(buffer, 0, out, segment.from, segment.until - segment.from, segment.from);
    }
    return out;
  }

  /** The segments that have coordinates below d. */
  private segments(): Segment[] {
    const count = this.size / this.segment;
    const out = [];
    for (let from = 0; from < this.d; from += this.segment) {
      const T = Math.floor(from / this.size);
      const c = (from % this.size) / this.segment;
      const signs = Float32Array.from({ length: count }, (_, h) => 1 - 2 * parity(h & c));
      const until = Math.min(from + this.segment, this.d);
      out.push({ from, until, begin: this.first[T], end: this.first[T + 1], signs });
    }
    return out;
  }

  /** sums += the rows of one transformed segment. */
  private take(sums: Float64Array, { begin, end, signs }: Segment): void {
    const { lo, hi, buffer } = this;
    for (let k = begin; k < end; k++) sums[k] += signs[hi[k]] * buffer[lo[k]];
  }

  /** Add the numbers x to the rows of one segment, in the order of k. */
  private put(x: Float32Array, { begin, end, signs }: Segment): void {
    const { lo, hi, buffer } = this;
    for (let k = begin; k < end; k++) buffer[lo[k]] += signs[hi[k]] * x[k];
  }

  /** to[put + i] = sign(i) from[take + i] for n coordinates; sign number 0 belongs to coordinate `origin`. */
  private signed(from: Float32Array, take: number, to: Float32Array, put: number, n: number, origin = take): void {
    const { signs } = this;
    const source = bitsOf(from); // flipping a bit is cheaper than a branch nobody can predict
    const target = bitsOf(to);
    for (let i = 0; i < n; i++) {
      const x = origin + i;
      target[put + i] = source[take + i] ^ ((signs[x >>> 5] >>> (x & 31)) << 31);
    }
  }
}

const bitsOf = (x: Float32Array): Int32Array => new Int32Array(x.buffer, x.byteOffset, x.length);

/** The least power of two ≥ n. */
function powerOfTwo(n: number): number {
  let p = 1;
  while (p < n) p *= 2;
  return p;
}
