/** CountSketch: coordinate i goes with its sign to one of b rows (sketch spec v1, sparse1 with nnz = 1). */

import { buckets, signBits } from "./hashes.ts";
import type { Key } from "./key.ts";

export interface CountSketchOptions {
  layout?: "block" | "textbook";
}

const RUN = 64; // coordinates that share one offset in the block layout

export class CountSketch {
  private readonly signs: Uint32Array;
  private readonly offsets: Uint32Array;
  private readonly run: number;

  constructor(
    readonly d: number,
    readonly b: number,
    key: Key,
    { layout = "block" }: CountSketchOptions = {},
  ) {
    if (layout !== "block" && layout !== "textbook") throw new RangeError(`layout is block or textbook, not ${layout}`);
    this.run = layout === "block" && b >= RUN ? RUN : 1;
    this.signs = signBits(key, 0, d);
    this.offsets = buckets(key, 0, Math.ceil(d / this.run), b);
  }

  sketch(g: Float32Array): Float32Array {
    const sums = new Float64Array(this.b);
    this.walk((i, row, minus) => {
      sums[row] += minus ? -g[i] : g[i];
    });
    return Float32Array.from(sums);
  }

  desketch(s: Float32Array): Float32Array {
    const out = new Float32Array(this.d);
    this.walk((i, row, minus) => {
      out[i] = minus ? -s[row] : s[row];
    });
    return out;
  }

  /** visit(i, row, minus) for every coordinate i. */
  private walk(visit: (i: number, row: number, minus: number) => void): void {
    const { d, b, run, signs, offsets } = this;
    for (let first = 0, j = 0; first < d; first += run, j++) {
      let row = offsets[j];
      for (let i = first; i < Math.min(first + run, d); i++) {
        visit(i, row, (signs[i >>> 5] >>> (i & 31)) & 1);
        if (++row === b) row = 0;
      }
    }
  }
}
