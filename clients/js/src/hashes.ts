/** Signs, buckets and samples: the hash functions that R is made of (sketch spec v1, "Hashes"). */

import type { Key } from "./key.ts";
import { mulhi } from "./philox.ts";

const ROLES = 4; // streams a table owns
const SEED = 0;
const BUCKET = 1;
const SIGN = 2;
const SAMPLE = 3;

/** 1 if x has an odd number of ones. */
export function parity(x: number): number {
  x ^= x >>> 16;
  x ^= x >>> 8;
  x ^= x >>> 4;
  return (0x6996 >>> (x & 15)) & 1;
}

/** Product in GF(2³²) = GF(2)[z]/(z³² + z⁷ + z³ + z² + 1). */
function times(x: number, y: number): number {
  let product = 0;
  for (let k = 31; k >= 0; k--) {
    product = (product << 1) ^ (product >>> 31 ? 0x8d : 0);
    if ((y >>> k) & 1) product ^= x;
  }
  return product;
}

/**
 * The signs of [0, n) as bits, 32 a word, low bit first; 1 means minus.
 *
 * ⟨s₂, x³⟩ is a quadratic form. With x = h + l, h a multiple of 32 and l < 32, x³ = h³ + (h² l + h l²) + l³, and the middle is
 * bilinear, since squaring is additive: for fixed h it is ⟨B_k, h⟩ summed over the ones k of l. So a word is a constant,
 * five linear forms in l and the word of h = 0.
 */
export function signBits(key: Key, table: number, n: number): Uint32Array {
  const [s0, s1, s2] = key.stream(ROLES * table + SEED).words(3);
  const out = key.stream(ROLES * table + SIGN).words(Math.ceil(n / 32)).slice();
  const quadratic = (x: number): number => parity(s2 & times(times(x, x), x));
  const bilinear = (x: number, y: number): number => parity(s2 & (times(times(x, x), y) ^ times(times(y, y), x)));
  const powers = Array.from({ length: 32 }, (_, k) => (1 << k) >>> 0);
  const bits = Math.max(5, 32 - Math.clz32(n - 1)); // no number below n has more
  const low = powers.slice(0, bits);
  const forms = low.map((p) => low.reduce((form, q) => form | (bilinear(p, q) ? q : 0), 0)); // B_k as a mask of h
  const columns = [0xaaaaaaaa, 0xcccccccc, 0xf0f0f0f0, 0xff00ff00, 0xffff0000]; // bit l is bit k of l
  let first = 0;
  for (let l = 0; l < 32; l++) first |= ((s0 & 1) ^ parity(s1 & l) ^ quadratic(l)) << l;
  const own = low.map(quadratic);
  for (let word = 0; word < out.length; word++) {
    const h = 32 * word;
    let constant = parity(s1 & h);
    for (let k = 5, rest = h; k < bits; k++) {
      if (!((h >>> k) & 1)) continue;
      rest &= ~powers[k]; // q(h) = Σ q(e_k) + Σ over pairs of the bilinear form
      constant ^= own[k] ^ parity(forms[k] & rest);
    }
    let mask = first ^ -constant;
    for (let k = 0; k < 5; k++) if (parity(forms[k] & h)) mask ^= columns[k];
    out[word] ^= mask;
  }
  return out;
}

/** bucket(x, m) for x in [0, n). */
export function buckets(key: Key, table: number, n: number, m: number): Uint32Array {
  const seed = key.stream(ROLES * table + SEED).words(68, 0);
  const offset = (k: number): number => {
    const v = BigInt(seed[4 + 2 * k]) + (BigInt(seed[5 + 2 * k]) << 32n);
    return Number((v * BigInt(m)) >> 64n);
  };
  const linear = new Float64Array(n); // a₀ + Σ over the ones k of x of a_{k+1}, modulo m
  linear[0] = offset(0);
  for (let k = 0, half = 1; half < n; k++, half *= 2) {
    const a = offset(k + 1);
    for (let x = half; x < Math.min(2 * half, n); x++) linear[x] = (linear[x - half] + a) % m;
  }
  const stream = key.stream(ROLES * table + BUCKET);
  const group = new Uint32Array(64);
  const out = new Uint32Array(n);
  for (let x = 0; x < n; x++) {
    if (x % 64 === 0) stream.group(x / 64, group);
    out[x] = (linear[x] + mulhi(group[x % 64], m)) % m;
  }
  return out;
}

/** b of the numbers [0, n), ascending. */
export function subset(key: Key, n: number, b: number): Uint32Array {
  const wanted = Math.min(b, n - b);
  const chosen = new Uint8Array(n);
  const stream = key.stream(SAMPLE);
  const group = new Uint32Array(64);
  const short = 2 ** 32 % n;
  for (let found = 0, i = 0; found < wanted; i++) {
    if (i % 64 === 0) stream.group(i / 64, group);
    const w = group[i % 64];
    if (Math.imul(w, n) >>> 0 < short) continue;
    const value = mulhi(w, n);
    found += 1 - chosen[value];
    chosen[value] = 1;
  }
  const member = wanted === b ? 1 : 0;
  const out = new Uint32Array(b);
  for (let x = 0, at = 0; at < b; x++) if (chosen[x] === member) out[at++] = x;
  return out;
}
