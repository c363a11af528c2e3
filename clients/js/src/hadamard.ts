/**
 * Sylvester's Hadamard transform in place, in float32: butterflies (p, q) → (p + q, p - q) at distance 1, 2, 4, ...
 *
 * Every sum is rounded where the spec rounds it; three distances share one pass over memory (radix 8), and the passes
 * that fit go over pieces that stay in the cache.
 */

const PIECE = 16384; // numbers: 64 KiB, which the second cache level holds many times
const { fround } = Math;

/** The transform of x[at .. at + n), n a power of two. */
export function hadamard(x: Float32Array, at = 0, n = x.length): void {
  const piece = Math.min(n, PIECE);
  for (let from = at; from < at + n; from += piece) passes(x, from, piece, 1, piece);
  passes(x, at, n, piece, n);
}

/** The butterflies at distances from `distance` to below `end`: eightfold passes, then one fourfold or twofold. */
function passes(x: Float32Array, at: number, n: number, distance: number, end: number): void {
  let h = distance;
  for (; 8 * h <= end; h *= 8) {
    for (let block = at; block < at + n; block += 8 * h) {
      for (let i = block; i < block + h; i++) {
        const a0 = x[i], a1 = x[i + h], a2 = x[i + 2 * h], a3 = x[i + 3 * h];
        const a4 = x[i + 4 * h], a5 = x[i + 5 * h], a6 = x[i + 6 * h], a7 = x[i + 7 * h];
        const b0 = fround(a0 + a1), b1 = fround(a0 - a1), b2 = fround(a2 + a3), b3 = fround(a2 - a3);
        const b4 = fround(a4 + a5), b5 = fround(a4 - a5), b6 = fround(a6 + a7), b7 = fround(a6 - a7);
        const c0 = fround(b0 + b2), c1 = fround(b1 + b3), c2 = fround(b0 - b2), c3 = fround(b1 - b3);
        const c4 = fround(b4 + b6), c5 = fround(b5 + b7), c6 = fround(b4 - b6), c7 = fround(b5 - b7);
        x[i] = c0 + c4;
        x[i + h] = c1 + c5;
        x[i + 2 * h] = c2 + c6;
        x[i + 3 * h] = c3 + c7;
        x[i + 4 * h] = c0 - c4;
        x[i + 5 * h] = c1 - c5;
        x[i + 6 * h] = c2 - c6;
        x[i + 7 * h] = c3 - c7;
      }
    }
  }
  if (4 * h <= end) {
    for (let block = at; block < at + n; block += 4 * h) {
      for (let i = block; i < block + h; i++) {
        const a = x[i], b = x[i + h], c = x[i + 2 * h], d = x[i + 3 * h];
        const p = fround(a + b), q = fround(a - b), r = fround(c + d), s = fround(c - d);
        x[i] = p + r;
        x[i + h] = q + s;
        x[i + 2 * h] = p - r;
        x[i + 3 * h] = q - s;
      }
    }
  } else if (2 * h <= end) {
    for (let block = at; block < at + n; block += 2 * h) {
      for (let i = block; i < block + h; i++) {
        const p = x[i], q = x[i + h];
        x[i] = p + q;
        x[i + h] = p - q;
      }
    }
  }
}
