/** Words: the streams of Philox4x32-10 that every random choice is read from (sketch spec v1, "Words"). */

/** The upper 32 bits of the 64-bit product of two words. */
export function mulhi(a: number, b: number): number {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const low = Math.imul(a0, b0) >>> 16;
  const left = a1 * b0 + low; // below 2³²
  const right = a0 * b1 + (left & 0xffff);
  return (Math.imul(a1, b1) + (left >>> 16) + (right >>> 16)) >>> 0;
}

/** One stream of a key; word 64 q + 16 j + l is output j of block 16 q + l. */
export class Stream {
  private readonly k: Uint32Array;

  constructor(
    key: Uint8Array,
    private readonly stream: number,
  ) {
    const view = new DataView(key.buffer, key.byteOffset, 16);
    this.k = Uint32Array.from([0, 1, 2, 3], (i) => view.getUint32(4 * i, true));
  }

  /** Words 64 q to 64 q + 63, written from out[at] on. */
  group(q: number, out: Uint32Array, at = 0): void {
    for (let l = 0; l < 16; l++) {
      let c0 = (16 * q + l) >>> 0;
      let c1 = this.stream;
      let c2 = this.k[2];
      let c3 = this.k[3];
      let k0 = this.k[0];
      let k1 = this.k[1];
      for (let round = 0; round < 10; round++) {
        const pHigh = mulhi(0xd2511f53, c0);
        const pLow = Math.imul(0xd2511f53, c0);
        const qHigh = mulhi(0xcd9e8d57, c2);
        const qLow = Math.imul(0xcd9e8d57, c2);
        c0 = qHigh ^ c1 ^ k0;
        c1 = qLow;
        c2 = pHigh ^ c3 ^ k1;
        c3 = pLow;
        k0 = (k0 + 0x9e3779b9) | 0;
        k1 = (k1 + 0xbb67ae85) | 0;
      }
      out[at + l] = c0;
      out[at + 16 + l] = c1;
      out[at + 32 + l] = c2;
      out[at + 48 + l] = c3;
    }
  }

  /** n words from word `start` on. */
  words(n: number, start = 0): Uint32Array {
    const first = Math.floor(start / 64);
    const groups = Math.ceil((start + n) / 64) - first;
    const out = new Uint32Array(64 * groups);
    for (let q = 0; q < groups; q++) this.group(first + q, out, 64 * q);
    return out.subarray(start - 64 * first, start - 64 * first + n);
  }
}
