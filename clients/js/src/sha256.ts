/** SHA-256 (FIPS 180-4), synchronous: the browser's own is a promise, and a key is needed in the middle of a sum. */

/** The first 32 bits of the fractional parts of the k-th roots of the first n primes, computed and not typed in. */
function primeRoots(n: number, root: (p: number) => number): Uint32Array {
  const out = new Uint32Array(n);
  for (let p = 2, found = 0; found < n; p++) {
    let prime = true;
    for (let q = 2; q * q <= p; q++) if (p % q === 0) prime = false;
    if (prime) out[found++] = (root(p) % 1) * 2 ** 32;
  }
  return out;
}

const K = primeRoots(64, Math.cbrt);
const START = primeRoots(8, Math.sqrt);

const rotate = (x: number, n: number): number => (x >>> n) | (x << (32 - n));

/** A running hash: `update` any number of times, then `digest` once. */
export class Sha256 {
  private readonly state = START.slice();
  private readonly block = new Uint8Array(64);
  private readonly schedule = new Uint32Array(64);
  private filled = 0;
  private length = 0;

  update(bytes: Uint8Array): this {
    this.length += bytes.length;
    let from = 0;
    while (from < bytes.length) {
      const n = Math.min(64 - this.filled, bytes.length - from);
      this.block.set(bytes.subarray(from, from + n), this.filled);
      this.filled += n;
      from += n;
      if (this.filled === 64) this.compress();
    }
    return this;
  }

  digest(): Uint8Array {
    const bits = this.length * 8;
    const end = new Uint8Array(((this.filled < 56 ? 56 : 120) - this.filled) + 8);
    end[0] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(end.length - 4, bits >>> 0);
    this.update(end);
    const out = new DataView(new ArrayBuffer(32));
    this.state.forEach((word, i) => out.setUint32(4 * i, word));
    return new Uint8Array(out.buffer);
  }

  private compress(): void {
    const w = this.schedule;
    const block = this.block;
    for (let i = 0; i < 16; i++) {
      const at = 4 * i;
      w[i] = (block[at] << 24) | (block[at + 1] << 16) | (block[at + 2] << 8) | block[at + 3];
    }
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
      const s1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    const s = this.state;
    let a = s[0] | 0, b = s[1] | 0, c = s[2] | 0, d = s[3] | 0;
    let e = s[4] | 0, f = s[5] | 0, g = s[6] | 0, h = s[7] | 0;
    for (let i = 0; i < 64; i++) {
      const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0;
      d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    s[0] += a; s[1] += b; s[2] += c; s[3] += d;
    s[4] += e; s[5] += f; s[6] += g; s[7] += h;
    this.filled = 0;
  }
}

/** The hash of these bytes, one after the other. */
export function sha256(...parts: Uint8Array[]): Uint8Array {
  const hash = new Sha256();
  for (const part of parts) hash.update(part);
  return hash.digest();
}
