/** Q = B D₄ P₃ B D₃ P₂ B D₂ P₁ B D₁, the rotation under `sign1` and the trellis codes (frame spec v2, "The rotation Q"). */

import type { Key } from "./key.ts";

const BLOCKS = [64, 16, 4];
const { fround } = Math;

export class Rotation {
  private readonly words: Uint32Array;
  private readonly steps: { a: number; c: number }[];

  constructor(
    readonly b: number,
    key: Key,
    kind: string,
    salt: number,
  ) {
    this.words = key.foldIn("rotation", kind).stream(salt).words(8 + Math.ceil((4 * b) / 32));
    this.steps = [0, 2, 4].map((i) => ({ a: coprime(this.words[i] % b, b), c: this.words[i + 1] % b }));
  }

  /** Q v. */
  apply(v: Float32Array): Float32Array {
    let x: Float32Array = v.slice();
    for (let pass = 0; pass < 4; pass++) {
      if (pass > 0) x = this.permuted(x, pass - 1);
      this.flip(x, pass);
      blocks(x);
    }
    return x;
  }

  /** Qᵀ v. */
  transpose(v: Float32Array): Float32Array {
    let x: Float32Array = v.slice();
    for (let pass = 3; pass >= 0; pass--) {
      blocks(x);
      this.flip(x, pass);
      if (pass > 0) x = this.restored(x, pass - 1);
    }
    return x;
  }

  private permuted(x: Float32Array, step: number): Float32Array {
    const out = new Float32Array(this.b);
    this.walk(step, (j, source) => (out[j] = x[source]));
    return out;
  }

  private restored(x: Float32Array, step: number): Float32Array {
    const out = new Float32Array(this.b);
    this.walk(step, (j, source) => (out[source] = x[j]));
    return out;
  }

  /** visit(j, (a j + c) mod b) for all j. */
  private walk(step: number, visit: (j: number, source: number) => void): void {
    const { a, c } = this.steps[step];
    for (let j = 0, source = c; j < this.b; j++) {
      visit(j, source);
      source += a;
      if (source >= this.b) source -= this.b;
    }
  }

  private flip(x: Float32Array, pass: number): void {
    for (let i = 0; i < this.b; i++) {
      const bit = pass * this.b + i;
      if ((this.words[8 + Math.floor(bit / 32)] >>> (bit % 32)) & 1) x[i] = -x[i];
    }
  }
}

/** The first number from a on that is prime to b. */
function coprime(a: number, b: number): number {
  while (gcd(a, b) !== 1) a++;
  return a;
}

function gcd(x: number, y: number): number {
  while (y > 0) [x, y] = [y, x % y];
  return x;
}

/** B: Hadamard matrices of size 64, then 16, then 4 over what is left, each divided by the root of its size. */
function blocks(x: Float32Array): void {
  let from = 0;
  for (const h of BLOCKS) {
    for (; from + h <= x.length; from += h) {
      for (let i = from; i < from + h; i++) x[i] /= Math.sqrt(h);
      for (let distance = 1; distance < h; distance *= 2) {
        for (let i = from; i < from + h; i++) {
          if ((i - from) & distance) continue;
          const p = x[i];
          const q = x[i + distance];
          x[i] = fround(p + q);
          x[i + distance] = fround(p - q);
        }
      }
    }
  }
}
