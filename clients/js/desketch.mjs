// Built from clients/js by `make js`; do not edit.

// src/errors.ts
var Refused = class extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
    this.name = "Refused";
  }
  field;
};

// src/sha256.ts
function primeRoots(n, root) {
  const out = new Uint32Array(n);
  for (let p = 2, found = 0; found < n; p++) {
    let prime = true;
    for (let q = 2; q * q <= p; q++) if (p % q === 0) prime = false;
    if (prime) out[found++] = root(p) % 1 * 2 ** 32;
  }
  return out;
}
var K = primeRoots(64, Math.cbrt);
var START = primeRoots(8, Math.sqrt);
var rotate = (x, n) => x >>> n | x << 32 - n;
var Sha256 = class {
  state = START.slice();
  block = new Uint8Array(64);
  schedule = new Uint32Array(64);
  filled = 0;
  length = 0;
  update(bytes) {
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
  digest() {
    const bits = this.length * 8;
    const end = new Uint8Array((this.filled < 56 ? 56 : 120) - this.filled + 8);
    end[0] = 128;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(end.length - 4, bits >>> 0);
    this.update(end);
    const out = new DataView(new ArrayBuffer(32));
    this.state.forEach((word2, i) => out.setUint32(4 * i, word2));
    return new Uint8Array(out.buffer);
  }
  compress() {
    const w = this.schedule;
    const block = this.block;
    for (let i = 0; i < 16; i++) {
      const at = 4 * i;
      w[i] = block[at] << 24 | block[at + 1] << 16 | block[at + 2] << 8 | block[at + 3];
    }
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = rotate(x, 7) ^ rotate(x, 18) ^ x >>> 3;
      const s1 = rotate(y, 17) ^ rotate(y, 19) ^ y >>> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    const s = this.state;
    let a = s[0] | 0, b = s[1] | 0, c = s[2] | 0, d = s[3] | 0;
    let e = s[4] | 0, f = s[5] | 0, g = s[6] | 0, h = s[7] | 0;
    for (let i = 0; i < 64; i++) {
      const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const t1 = h + s1 + (e & f ^ ~e & g) + K[i] + w[i] | 0;
      const t2 = s0 + (a & b ^ a & c ^ b & c) | 0;
      h = g;
      g = f;
      f = e;
      e = d + t1 | 0;
      d = c;
      c = b;
      b = a;
      a = t1 + t2 | 0;
    }
    s[0] += a;
    s[1] += b;
    s[2] += c;
    s[3] += d;
    s[4] += e;
    s[5] += f;
    s[6] += g;
    s[7] += h;
    this.filled = 0;
  }
};
function sha256(...parts) {
  const hash = new Sha256();
  for (const part2 of parts) hash.update(part2);
  return hash.digest();
}

// src/philox.ts
function mulhi(a, b) {
  const a0 = a & 65535;
  const a1 = a >>> 16;
  const b0 = b & 65535;
  const b1 = b >>> 16;
  const low = Math.imul(a0, b0) >>> 16;
  const left = a1 * b0 + low;
  const right = a0 * b1 + (left & 65535);
  return Math.imul(a1, b1) + (left >>> 16) + (right >>> 16) >>> 0;
}
var Stream = class {
  constructor(key, stream) {
    this.stream = stream;
    const view = new DataView(key.buffer, key.byteOffset, 16);
    this.k = Uint32Array.from([0, 1, 2, 3], (i) => view.getUint32(4 * i, true));
  }
  stream;
  k;
  /** Words 64 q to 64 q + 63, written from out[at] on. */
  group(q, out, at = 0) {
    for (let l = 0; l < 16; l++) {
      let c0 = 16 * q + l >>> 0;
      let c1 = this.stream;
      let c2 = this.k[2];
      let c3 = this.k[3];
      let k0 = this.k[0];
      let k1 = this.k[1];
      for (let round = 0; round < 10; round++) {
        const pHigh = mulhi(3528531795, c0);
        const pLow = Math.imul(3528531795, c0);
        const qHigh = mulhi(3449720151, c2);
        const qLow = Math.imul(3449720151, c2);
        c0 = qHigh ^ c1 ^ k0;
        c1 = qLow;
        c2 = pHigh ^ c3 ^ k1;
        c3 = pLow;
        k0 = k0 + 2654435769 | 0;
        k1 = k1 + 3144134277 | 0;
      }
      out[at + l] = c0;
      out[at + 16 + l] = c1;
      out[at + 32 + l] = c2;
      out[at + 48 + l] = c3;
    }
  }
  /** n words from word `start` on. */
  words(n, start = 0) {
    const first = Math.floor(start / 64);
    const groups = Math.ceil((start + n) / 64) - first;
    const out = new Uint32Array(64 * groups);
    for (let q = 0; q < groups; q++) this.group(first + q, out, 64 * q);
    return out.subarray(start - 64 * first, start - 64 * first + n);
  }
};

// src/key.ts
var UTF8 = new TextEncoder();
var DOMAIN = UTF8.encode("desketch key v1\0");
var FINGERPRINT = UTF8.encode("fingerprint");
var Key = class _Key {
  constructor(bits) {
    this.bits = bits;
    if (bits.length !== 16) throw new RangeError(`a key has 16 bytes, not ${bits.length}`);
  }
  bits;
  static fromSeed(seed) {
    const given = seed instanceof Uint8Array ? tagged("b", seed) : step(integer(seed));
    return new _Key(digest(new Uint8Array(0), given));
  }
  static fromHex(text2) {
    if (!/^[0-9a-f]{32}$/i.test(text2)) throw new RangeError(`a key is 32 hex digits, not ${JSON.stringify(text2)}`);
    return new _Key(Uint8Array.from({ length: 16 }, (_, i) => parseInt(text2.slice(2 * i, 2 * i + 2), 16)));
  }
  foldIn(...path) {
    return path.reduce((key, x) => new _Key(digest(key.bits, step(x))), this);
  }
  /** The four bytes by which a frame names its key. */
  get fingerprint() {
    const hash = sha256(DOMAIN, Uint8Array.of(16), this.bits, FINGERPRINT);
    return new DataView(hash.buffer).getUint32(0, true);
  }
  stream(number) {
    return new Stream(this.bits, number);
  }
};
function digest(parent, given) {
  return sha256(DOMAIN, Uint8Array.of(parent.length), parent, given).slice(0, 16);
}
function step(x) {
  if (typeof x !== "string") return tagged("i", twosComplement(integer(x)));
  if (/\p{Surrogate}/u.test(x)) throw new RangeError("a step of a path is Unicode text, without lone surrogates");
  return tagged("s", UTF8.encode(x));
}
function tagged(tag, body) {
  const out = new Uint8Array(9 + body.length);
  out[0] = tag.charCodeAt(0);
  new DataView(out.buffer).setBigUint64(1, BigInt(body.length), true);
  out.set(body, 9);
  return out;
}
function integer(x) {
  if (typeof x === "number" && !Number.isSafeInteger(x)) throw new RangeError(`${x} is no exact integer; give a BigInt`);
  return BigInt(x);
}
function twosComplement(x) {
  const magnitude = x < 0n ? -x : x;
  const length = magnitude === 0n ? 0 : magnitude.toString(2).length;
  const out = new Uint8Array(Math.floor(length / 8) + 1);
  let rest = BigInt.asUintN(8 * out.length, x);
  for (let i = 0; i < out.length; i++, rest >>= 8n) out[i] = Number(rest & 255n);
  return out;
}

// src/hashes.ts
var ROLES = 4;
var SEED = 0;
var BUCKET = 1;
var SIGN = 2;
var SAMPLE = 3;
function parity(x) {
  x ^= x >>> 16;
  x ^= x >>> 8;
  x ^= x >>> 4;
  return 27030 >>> (x & 15) & 1;
}
function times(x, y) {
  let product = 0;
  for (let k = 31; k >= 0; k--) {
    product = product << 1 ^ (product >>> 31 ? 141 : 0);
    if (y >>> k & 1) product ^= x;
  }
  return product;
}
function signBits(key, table2, n) {
  const [s0, s1, s2] = key.stream(ROLES * table2 + SEED).words(3);
  const out = key.stream(ROLES * table2 + SIGN).words(Math.ceil(n / 32)).slice();
  const quadratic = (x) => parity(s2 & times(times(x, x), x));
  const bilinear = (x, y) => parity(s2 & (times(times(x, x), y) ^ times(times(y, y), x)));
  const powers = Array.from({ length: 32 }, (_, k) => 1 << k >>> 0);
  const bits = Math.max(5, 32 - Math.clz32(n - 1));
  const low = powers.slice(0, bits);
  const forms = low.map((p) => low.reduce((form, q) => form | (bilinear(p, q) ? q : 0), 0));
  const columns = [2863311530, 3435973836, 4042322160, 4278255360, 4294901760];
  let first = 0;
  for (let l = 0; l < 32; l++) first |= (s0 & 1 ^ parity(s1 & l) ^ quadratic(l)) << l;
  const own = low.map(quadratic);
  for (let word2 = 0; word2 < out.length; word2++) {
    const h = 32 * word2;
    let constant = parity(s1 & h);
    for (let k = 5, rest = h; k < bits; k++) {
      if (!(h >>> k & 1)) continue;
      rest &= ~powers[k];
      constant ^= own[k] ^ parity(forms[k] & rest);
    }
    let mask = first ^ -constant;
    for (let k = 0; k < 5; k++) if (parity(forms[k] & h)) mask ^= columns[k];
    out[word2] ^= mask;
  }
  return out;
}
function buckets(key, table2, n, m) {
  const seed = key.stream(ROLES * table2 + SEED).words(68, 0);
  const offset = (k) => {
    const v = BigInt(seed[4 + 2 * k]) + (BigInt(seed[5 + 2 * k]) << 32n);
    return Number(v * BigInt(m) >> 64n);
  };
  const linear = new Float64Array(n);
  linear[0] = offset(0);
  for (let k = 0, half = 1; half < n; k++, half *= 2) {
    const a = offset(k + 1);
    for (let x = half; x < Math.min(2 * half, n); x++) linear[x] = (linear[x - half] + a) % m;
  }
  const stream = key.stream(ROLES * table2 + BUCKET);
  const group = new Uint32Array(64);
  const out = new Uint32Array(n);
  for (let x = 0; x < n; x++) {
    if (x % 64 === 0) stream.group(x / 64, group);
    out[x] = (linear[x] + mulhi(group[x % 64], m)) % m;
  }
  return out;
}
function subset(key, n, b) {
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

// src/hadamard.ts
var PIECE = 16384;
var { fround } = Math;
function hadamard(x, at = 0, n = x.length) {
  const piece = Math.min(n, PIECE);
  for (let from = at; from < at + n; from += piece) passes(x, from, piece, 1, piece);
  passes(x, at, n, piece, n);
}
function passes(x, at, n, distance, end) {
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

// src/countsketch.ts
var RUN = 64;
var CountSketch = class {
  constructor(d, b, key, { layout = "block" } = {}) {
    this.d = d;
    this.b = b;
    if (layout !== "block" && layout !== "textbook") throw new RangeError(`layout is block or textbook, not ${layout}`);
    this.run = layout === "block" && b >= RUN ? RUN : 1;
    this.signs = signBits(key, 0, d);
    this.offsets = buckets(key, 0, Math.ceil(d / this.run), b);
  }
  d;
  b;
  signs;
  offsets;
  run;
  sketch(g) {
    const sums = new Float64Array(this.b);
    this.walk((i, row, minus) => {
      sums[row] += minus ? -g[i] : g[i];
    });
    return Float32Array.from(sums);
  }
  desketch(s) {
    const out = new Float32Array(this.d);
    this.walk((i, row, minus) => {
      out[i] = minus ? -s[row] : s[row];
    });
    return out;
  }
  /** visit(i, row, minus) for every coordinate i. */
  walk(visit) {
    const { d, b, run, signs, offsets } = this;
    for (let first = 0, j = 0; first < d; first += run, j++) {
      let row = offsets[j];
      for (let i = first; i < Math.min(first + run, d); i++) {
        visit(i, row, signs[i >>> 5] >>> (i & 31) & 1);
        if (++row === b) row = 0;
      }
    }
  }
};

// src/srht.ts
var LEAST_SEGMENT = 2 ** 13;
var Srht = class {
  constructor(d, b, key, { block, transform = "hadamard" } = {}) {
    this.d = d;
    this.b = b;
    if (transform !== "hadamard") {
      throw new RangeError(`this client has no transform "${transform}": its bits depend on the platform`);
    }
    if (block !== void 0 && powerOfTwo(block) !== block) throw new RangeError(`block is a power of two, not ${block}`);
    const blocked = block !== void 0 && block < d;
    this.size = blocked ? block : powerOfTwo(d);
    this.segment = blocked ? block : Math.min(this.size, Math.max(LEAST_SEGMENT, powerOfTwo(b)));
    const transforms = Math.ceil(d / this.size);
    const count = this.size / this.segment;
    const rows = subset(key, transforms * this.size, b);
    this.lo = rows.map((r) => Math.floor(r % this.size / count));
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
  d;
  b;
  segment;
  size;
  scale;
  signs;
  lo;
  hi;
  first;
  // rows first[T] to first[T + 1] - 1 are those of transform T
  buffer;
  sketch(g) {
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
  desketch(s) {
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
  segments() {
    const count = this.size / this.segment;
    const out = [];
    for (let from = 0; from < this.d; from += this.segment) {
      const T = Math.floor(from / this.size);
      const c = from % this.size / this.segment;
      const signs = Float32Array.from({ length: count }, (_, h) => 1 - 2 * parity(h & c));
      const until = Math.min(from + this.segment, this.d);
      out.push({ from, until, begin: this.first[T], end: this.first[T + 1], signs });
    }
    return out;
  }
  /** sums += the rows of one transformed segment. */
  take(sums, { begin, end, signs }) {
    const { lo, hi, buffer } = this;
    for (let k = begin; k < end; k++) sums[k] += signs[hi[k]] * buffer[lo[k]];
  }
  /** Add the numbers x to the rows of one segment, in the order of k. */
  put(x, { begin, end, signs }) {
    const { lo, hi, buffer } = this;
    for (let k = begin; k < end; k++) buffer[lo[k]] += signs[hi[k]] * x[k];
  }
  /** to[put + i] = sign(i) from[take + i] for n coordinates; sign number 0 belongs to coordinate `origin`. */
  signed(from, take2, to, put, n, origin = take2) {
    const { signs } = this;
    const source = bitsOf(from);
    const target = bitsOf(to);
    for (let i = 0; i < n; i++) {
      const x = origin + i;
      target[put + i] = source[take2 + i] ^ signs[x >>> 5] >>> (x & 31) << 31;
    }
  }
};
var bitsOf = (x) => new Int32Array(x.buffer, x.byteOffset, x.length);
function powerOfTwo(n) {
  let p = 1;
  while (p < n) p *= 2;
  return p;
}

// src/sketch.ts
function draw(family, d, b, key, options = {}) {
  const whole = Number.isInteger(b) && Number.isInteger(d);
  if (!whole || b < 1 || b > d || d > 2 ** 31) throw new RangeError(`1 <= b <= d <= 2^31, not b = ${b}, d = ${d}`);
  if (family === "srht") return new Srht(d, b, key, only(options, family, ["block", "transform"]));
  if (family === "countsketch") return new CountSketch(d, b, key, only(options, family, ["layout"]));
  throw new RangeError(`this client draws srht and countsketch, not ${family}`);
}
function only(options, family, known) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new RangeError(`${family} has the options ${known.join(", ")}, not ${name}`);
  }
  return options;
}

// src/bytes.ts
var VARINT_BYTES = 7;
var MOST = 2 ** 48;
var Reader = class {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }
  bytes;
  at = 0;
  view;
  get left() {
    return this.bytes.length - this.at;
  }
  take(n, field) {
    if (n > this.left) throw new Refused(field, `${field}: needs ${n} bytes, ${this.left} are left`);
    this.at += n;
    return this.bytes.subarray(this.at - n, this.at);
  }
  byte(field) {
    return this.take(1, field)[0];
  }
  uint32(field) {
    this.take(4, field);
    return this.view.getUint32(this.at - 4, true);
  }
  /** LEB128 in its shortest form, of a number below 2^48. */
  varint(field) {
    let value = 0;
    for (let i = 0; i < VARINT_BYTES; i++) {
      const byte = this.byte(field);
      value += (byte & 127) * 2 ** (7 * i);
      if (byte >= 128) continue;
      if (byte === 0 && i > 0) throw new Refused(field, `${field}: a number that is not in its shortest form`);
      if (value >= MOST) throw new Refused(field, `${field}: ${value} is not below 2^48`);
      return value;
    }
    throw new Refused(field, `${field}: a number of more than ${VARINT_BYTES} bytes`);
  }
};
function varint(value) {
  if (!Number.isInteger(value) || value < 0 || value >= MOST) {
    throw new RangeError(`a whole number below 2^48 is needed, not ${value}`);
  }
  const out = [];
  for (; value >= 128; value = Math.floor(value / 128)) out.push(value % 128 | 128);
  return [...out, value];
}
function uint32(value) {
  return [value & 255, value >>> 8 & 255, value >>> 16 & 255, value >>> 24];
}
function concat(...parts) {
  const out = new Uint8Array(parts.reduce((n, part2) => n + part2.length, 0));
  let at = 0;
  for (const part2 of parts) {
    out.set(part2, at);
    at += part2.length;
  }
  return out;
}
var CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let c = byte;
  for (let k = 0; k < 8; k++) c = c >>> 1 ^ (c & 1 ? 3988292384 : 0);
  return c;
});
function crc32(bytes) {
  let c = 4294967295;
  for (let i = 0; i < bytes.length; i++) c = c >>> 8 ^ CRC_TABLE[(c ^ bytes[i]) & 255];
  return ~c >>> 0;
}
function crc16(bytes) {
  let c = 65535;
  for (const byte of bytes) {
    c ^= byte << 8;
    for (let k = 0; k < 8; k++) c = c & 32768 ? (c << 1 ^ 4129) & 65535 : c << 1;
  }
  return c;
}

// src/half.ts
var LARGEST = 65504;
var LARGEST_TINY = 57344;
function fromHalf(bits) {
  const sign = bits & 32768 ? -1 : 1;
  const e = bits >>> 10 & 31;
  const fraction = bits & 1023;
  if (e === 31) return fraction ? NaN : sign * Infinity;
  return sign * (e ? (1024 + fraction) * 2 ** (e - 25) : fraction * 2 ** -24);
}
function toHalf(x) {
  const sign = x < 0 || Object.is(x, -0) ? 32768 : 0;
  const magnitude = Math.abs(x);
  const e = magnitude < 2 ** -14 ? -14 : exponent(magnitude);
  const steps = roundEven(magnitude * 2 ** (10 - e));
  return sign | (e + 14 << 10) + steps;
}
var heldHalf = (x) => toHalf(held(x, LARGEST));
function toTiny(x) {
  const half = toHalf(held(x, LARGEST_TINY));
  return half + 127 + (half >> 8 & 1) >> 8;
}
var fromTiny = (byte) => fromHalf(byte << 8);
var held = (x, most) => Math.min(Math.max(x, -most), most);
function exponent(x) {
  let e = Math.floor(Math.log2(x));
  while (2 ** e > x) e--;
  while (2 ** (e + 1) <= x) e++;
  return e;
}
function roundEven(x) {
  const floor = Math.floor(x);
  const rest = x - floor;
  return rest > 0.5 || rest === 0.5 && floor % 2 !== 0 ? floor + 1 : floor;
}

// src/rotation.ts
var BLOCKS = [64, 16, 4];
var { fround: fround2 } = Math;
var Rotation = class {
  constructor(b, key, kind, salt) {
    this.b = b;
    this.words = key.foldIn("rotation", kind).stream(salt).words(8 + Math.ceil(4 * b / 32));
    this.steps = [0, 2, 4].map((i) => ({ a: coprime(this.words[i] % b, b), c: this.words[i + 1] % b }));
  }
  b;
  words;
  steps;
  /** Q v. */
  apply(v) {
    let x = v.slice();
    for (let pass = 0; pass < 4; pass++) {
      if (pass > 0) x = this.permuted(x, pass - 1);
      this.flip(x, pass);
      blocks(x);
    }
    return x;
  }
  /** Qᵀ v. */
  transpose(v) {
    let x = v.slice();
    for (let pass = 3; pass >= 0; pass--) {
      blocks(x);
      this.flip(x, pass);
      if (pass > 0) x = this.restored(x, pass - 1);
    }
    return x;
  }
  permuted(x, step2) {
    const out = new Float32Array(this.b);
    this.walk(step2, (j, source) => out[j] = x[source]);
    return out;
  }
  restored(x, step2) {
    const out = new Float32Array(this.b);
    this.walk(step2, (j, source) => out[source] = x[j]);
    return out;
  }
  /** visit(j, (a j + c) mod b) for all j. */
  walk(step2, visit) {
    const { a, c } = this.steps[step2];
    for (let j = 0, source = c; j < this.b; j++) {
      visit(j, source);
      source += a;
      if (source >= this.b) source -= this.b;
    }
  }
  flip(x, pass) {
    for (let i = 0; i < this.b; i++) {
      const bit = pass * this.b + i;
      if (this.words[8 + Math.floor(bit / 32)] >>> bit % 32 & 1) x[i] = -x[i];
    }
  }
};
function coprime(a, b) {
  while (gcd(a, b) !== 1) a++;
  return a;
}
function gcd(x, y) {
  while (y > 0) [x, y] = [y, x % y];
  return x;
}
function blocks(x) {
  let from = 0;
  for (const h of BLOCKS) {
    for (; from + h <= x.length; from += h) {
      for (let i = from; i < from + h; i++) x[i] /= Math.sqrt(h);
      for (let distance = 1; distance < h; distance *= 2) {
        for (let i = from; i < from + h; i++) {
          if (i - from & distance) continue;
          const p = x[i];
          const q = x[i + distance];
          x[i] = fround2(p + q);
          x[i + distance] = fround2(p - q);
        }
      }
    }
  }
}

// src/trellis.ts
var MEMORY = 10;
var STATES = 1 << MEMORY;
var HALF = STATES / 2;
var CIRCLE = 2048;
var AHEAD = 40;
var UNITS = { 1: 43, 2: 52, 3: 61 };
var LARGEST2 = 1023;
var FAR = 2 ** 28;
var tables = /* @__PURE__ */ new Map();
function table(V) {
  let found = tables.get(V);
  if (found === void 0) {
    const words = Key.fromSeed(0).foldIn("trellis", V).stream(0).words(STATES * V);
    const column = (v) => Int32Array.from({ length: STATES }, (_, r) => odd(words[V * r + v]));
    found = Array.from({ length: V }, (_, v) => column(v));
    tables.set(V, found);
  }
  return found;
}
function odd(word2) {
  const sum = (word2 & 255) + (word2 >>> 8 & 255) + (word2 >>> 16 & 255) + (word2 >>> 24);
  return 2 * (sum >> 3) - 127;
}
function vectors(bits, b, V) {
  const T = Math.ceil(b / V);
  const out = new Float32Array(T * V);
  for (let start = 0; start < T; start += CIRCLE) {
    const n = Math.min(CIRCLE, T - start);
    const bit = (i) => bits[start + i >> 3] >> (start + i & 7) & 1;
    statesOf(n, bit).forEach((state, i) => table(V).forEach((column, v) => out[V * (start + i) + v] = column[state]));
  }
  return out.subarray(0, b);
}
function statesOf(n, bit) {
  const states = new Uint16Array(n);
  let state = 0;
  for (let i = -MEMORY; i < n; i++) {
    state = state >> 1 | bit(around(i, n)) << MEMORY - 1;
    if (i >= 0) states[i] = state;
  }
  return states;
}
var around = (i, n) => (i % n + n) % n;
function nearest(x, V) {
  const T = Math.ceil(x.length / V);
  const goals = goalsOf(x, T, V);
  const bits = new Uint8Array(Math.ceil(T / 8));
  for (let start = 0; start < T; start += CIRCLE) {
    const circle = goals.subarray(V * start, V * Math.min(start + CIRCLE, T));
    const found = circle.length < V * MEMORY ? bestWord(circle, V) : closedPath(circle, V);
    found.forEach((bit, i) => bits[start + i >> 3] |= bit << (start + i & 7));
  }
  return bits;
}
function goalsOf(x, T, V) {
  const goals = new Int32Array(T * V);
  const rms = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length);
  if (rms === 0) return goals;
  x.forEach((v, i) => goals[i] = Math.max(-LARGEST2, Math.min(LARGEST2, roundEven(v * UNITS[V] / rms))));
  return goals;
}
function closedPath(goals, V) {
  const near = new Int32Array(2 * AHEAD * V).map((_, i) => goals[around(i - AHEAD * V, goals.length)]);
  const seam = bestPath(near, V)[AHEAD - 1];
  return Array.from(bestPath(goals, V, seam), (state) => state >> MEMORY - 1);
}
function bestPath(goals, V, seam) {
  const T = goals.length / V;
  const second = new Uint8Array(T * HALF);
  const prices = new Int32Array(STATES);
  let cost = new Int32Array(STATES);
  let next = new Int32Array(STATES);
  if (seam !== void 0) cost.fill(FAR)[seam] = 0;
  for (let t = 0; t < T; t++) {
    price(prices, goals.subarray(V * t, V * t + V));
    for (let j = 0; j < HALF; j++) {
      const other = cost[2 * j + 1] - cost[2 * j] >>> 31;
      const least = cost[2 * j + other];
      second[t * HALF + j] = other;
      next[j] = least + prices[j];
      next[j + HALF] = least + prices[j + HALF];
    }
    [cost, next] = [next, cost];
  }
  return walkBack(second, seam ?? cost.indexOf(Math.min(...cost)));
}
function price(prices, goal) {
  prices.fill(0);
  table(goal.length).forEach((column, v) => {
    const twice = 2 * goal[v];
    for (let s = 0; s < STATES; s++) prices[s] += column[s] * (column[s] - twice);
  });
}
function walkBack(second, last) {
  const states = new Uint16Array(second.length / HALF);
  let state = last;
  for (let t = states.length - 1; t >= 0; t--) {
    states[t] = state;
    const j = state % HALF;
    state = 2 * j + second[t * HALF + j];
  }
  return states;
}
function bestWord(goals, V) {
  const n = goals.length / V;
  const prices = Array.from({ length: n }, (_, i) => {
    const out = new Int32Array(STATES);
    price(out, goals.subarray(V * i, V * i + V));
    return out;
  });
  const costOf = (word2) => statesOf(n, (i) => word2 >> i & 1).reduce((sum, state, i) => sum + prices[i][state], 0);
  let best = 0;
  let least = costOf(0);
  for (let word2 = 1; word2 < 1 << n; word2++) {
    const cost = costOf(word2);
    if (cost < least) [best, least] = [word2, cost];
  }
  return Array.from({ length: n }, (_, i) => best >> i & 1);
}

// src/codecs.ts
var BLOCK = 256;
var SALTS = 2 ** 12;
var LAST_FINITE = 2139095040 / SALTS - 1;
var FLOAT32_MAX = (2 - 2 ** -23) * 2 ** 127;
var TRELLIS_SALTS = 2 ** 6;
var ROOTS = [0, 1, 2, 3].map((quarters2) => Math.fround(2 ** (quarters2 / 4)));
var LAST_QUARTER = 4 * (126 + 128) - 1;
var word = new DataView(new ArrayBuffer(4));
var floatOf = (bits) => (word.setUint32(0, bits), word.getFloat32(0));
var bitsOf2 = (value) => (word.setFloat32(0, value), word.getUint32(0));
var viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
var largest = (values) => values.reduce((m, v) => Math.max(m, Math.abs(v)), 0);
function refuse(field, what) {
  throw new Refused(field, `${field}: ${what}`);
}
var f32 = {
  bits: 32,
  size: (b) => 4 * b,
  encode(values) {
    const out = new Uint8Array(4 * values.length);
    values.forEach((v, i) => viewOf(out).setFloat32(4 * i, v, true));
    return out;
  },
  decode(payload, { b }) {
    const view = viewOf(payload);
    const out = Float32Array.from({ length: b }, (_, i) => view.getFloat32(4 * i, true));
    if (!out.every(Number.isFinite)) refuse("payload", "a number that is not finite");
    return out;
  }
};
var f16 = {
  bits: 16,
  size: (b) => 1 + 2 * b,
  encode(values) {
    const max = largest(values);
    const e = max === 0 ? -15 : Math.min(127, Math.max(-128, exponent(max) - 14));
    const out = new Uint8Array(1 + 2 * values.length);
    out[0] = e + 128;
    values.forEach((v, i) => {
      let half = toHalf(v / 2 ** e);
      if (Math.abs(fromHalf(half)) * 2 ** e >= 2 ** 128) half--;
      viewOf(out).setUint16(1 + 2 * i, half, true);
    });
    return out;
  },
  decode(payload, { b }) {
    const view = viewOf(payload);
    const unit = 2 ** (payload[0] - 128);
    const out = Float32Array.from({ length: b }, (_, i) => fromHalf(view.getUint16(1 + 2 * i, true)) * unit);
    if (!out.every(Number.isFinite)) refuse("payload", "a number that is not finite");
    return out;
  }
};
function integers(bits) {
  const top = 2 ** (bits - 1) - 1;
  const scaleBytes = (b) => 2 * Math.ceil(b / BLOCK);
  const size = (b) => scaleBytes(b) + Math.ceil(b * bits / 8);
  return {
    bits,
    size,
    encode(values, { b }, random) {
      const out = new Uint8Array(size(b));
      for (let from = 0; from < b; from += BLOCK) {
        const block = values.subarray(from, from + BLOCK);
        const scale = scaleAbove(largest(block) / top, top);
        viewOf(out).setUint16(2 * from / BLOCK, bitsOf2(scale) >>> 16, true);
        block.forEach((v, i) => put(out, from + i, scale === 0 ? 0 : atRandom(v / scale, random)));
      }
      function put(bytes, i, value) {
        const q = Math.max(-top, Math.min(top, value));
        if (bits === 8) bytes[scaleBytes(b) + i] = q;
        else bytes[scaleBytes(b) + (i >> 1)] |= (q & 15) << 4 * (i & 1);
      }
      return out;
    },
    decode(payload, { b }) {
      const view = viewOf(payload);
      const data = scaleBytes(b);
      const scales = Float32Array.from({ length: data / 2 }, (_, i) => floatOf(view.getUint16(2 * i, true) << 16));
      if (!scales.every((s) => s <= FLOAT32_MAX / top && (s > 0 || Object.is(s, 0)))) {
        refuse("scale", `a scale that is negative or too large: ${top} times it must be a float32`);
      }
      if (bits === 4 && b % 2 && payload[payload.length - 1] >> 4) refuse("payload", "padding that is not zero");
      const out = new Float32Array(b);
      for (let i = 0; i < b; i++) {
        const q = bits === 8 ? view.getInt8(data + i) : payload[data + (i >> 1)] >> 4 * (i & 1) << 28 >> 28;
        if (q < -top) refuse("payload", `the integer ${q}, below -${top}`);
        out[i] = q * scales[Math.floor(i / BLOCK)];
      }
      return out;
    }
  };
}
function scaleAbove(x, top) {
  let bits = bitsOf2(x) & 4294901760;
  if (floatOf(bits) < x) bits += 65536;
  if (floatOf(bits) > FLOAT32_MAX / top) bits -= 65536;
  return floatOf(bits >>> 0);
}
function atRandom(x, random) {
  const floor = Math.floor(x);
  return random() < x - floor ? floor + 1 : floor;
}
var sign1 = {
  bits: 1,
  size: (b) => 4 + Math.ceil(b / 8),
  encode(values, { b, key, kind }, random) {
    const salt = Math.floor(random() * SALTS);
    const rotated = turned(values, { b, key, kind }, salt);
    let squares = 0;
    let sum = 0;
    for (const v of rotated) {
      squares += v * v;
      sum += Math.abs(v);
    }
    const out = new Uint8Array(4 + Math.ceil(b / 8));
    out.set(uint32(sum === 0 ? 0 : salted(squares / sum, salt)));
    rotated.forEach((v, i) => out[4 + (i >> 3)] |= (v < 0 ? 1 : 0) << (i & 7));
    return out;
  },
  decode(payload, { b, key, kind }) {
    const bits = viewOf(payload).getUint32(0, true);
    const scale = floatOf(bits);
    if (bits >>> 31 || !Number.isFinite(scale)) refuse("scale", "a scale that is negative or not finite");
    refusePadding(payload, b);
    const signs = Float32Array.from({ length: b }, (_, i) => 1 - 2 * (payload[4 + (i >> 3)] >> (i & 7) & 1));
    return turnedBack(signs, { b, key, kind }, bits % SALTS, scale);
  }
};
function turned(values, { b, key, kind }, salt) {
  const out = new Rotation(b, key, kind, salt).apply(values);
  if (!out.every(Number.isFinite)) throw new RangeError("numbers too large for this codec: their rotation leaves float32");
  return out;
}
function turnedBack(codes, { b, key, kind }, salt, scale) {
  const out = new Rotation(b, key, kind, salt).transpose(codes);
  for (let i = 0; i < b; i++) out[i] *= scale;
  if (!out.every(Number.isFinite)) refuse("scale", "a scale that takes a number out of float32");
  return out;
}
function refusePadding(payload, bits) {
  if (bits % 8 && payload[payload.length - 1] >> bits % 8) refuse("payload", "padding that is not zero");
}
function salted(x, salt) {
  const steps = Math.max(0, Math.floor((bitsOf2(x) - salt + SALTS / 2) / SALTS));
  return Math.min(steps, LAST_FINITE) * SALTS + salt;
}
function trellis(per) {
  const count = (b) => Math.ceil(b / per);
  const size = (b) => 2 + Math.ceil(count(b) / 8);
  return {
    bits: 1 / per,
    size,
    encode(values, context, random) {
      const salt = Math.floor(random() * TRELLIS_SALTS);
      const rotated = turned(values, context, salt);
      const bits = nearest(rotated, per);
      const code2 = quarters(scaleOnto(rotated, vectors(bits, context.b, per)), random);
      const out = new Uint8Array(size(context.b));
      if (code2 === 0) return out;
      viewOf(out).setUint16(0, code2 * TRELLIS_SALTS + salt, true);
      out.set(bits, 2);
      return out;
    },
    decode(payload, context) {
      const head2 = viewOf(payload).getUint16(0, true);
      const code2 = Math.floor(head2 / TRELLIS_SALTS);
      if (code2 > LAST_QUARTER) refuse("scale", "a scale that is not finite");
      refusePadding(payload, count(context.b));
      return turnedBack(vectors(payload.subarray(2), context.b, per), context, head2 % TRELLIS_SALTS, quarterScale(code2));
    }
  };
}
function scaleOnto(s, c) {
  let squares = 0;
  let along = 0;
  s.forEach((v, i) => {
    squares += v * v;
    along += v * c[i];
  });
  return along > 0 ? squares / along : 0;
}
function quarterScale(code2) {
  return code2 === 0 ? 0 : ROOTS[code2 % 4] * 2 ** (Math.floor(code2 / 4) - 126);
}
function quarters(x, random) {
  let below = Math.max(0, Math.min(LAST_QUARTER - 1, Math.floor(4 * (Math.log2(x) + 126))));
  while (below > 0 && quarterScale(below) > x) below--;
  while (below < LAST_QUARTER - 1 && quarterScale(below + 1) <= x) below++;
  const [low, high] = [quarterScale(below), quarterScale(below + 1)];
  return random() < (x - low) / (high - low) ? below + 1 : below;
}
var CODECS = {
  f32,
  f16,
  int8: integers(8),
  int4: integers(4),
  sign1,
  trellis1: trellis(1),
  trellis2: trellis(2),
  trellis3: trellis(3)
};

// src/frame.ts
var MAGIC = 222;
var VERSION = 2;
var CODEC_CODES = {
  f32: 0,
  f16: 1,
  int8: 2,
  int4: 3,
  sign1: 4,
  trellis1: 5,
  trellis2: 6,
  trellis3: 7,
  opaque: 15
};
var FAMILY_CODES = {
  none: 0,
  gaussian: 1,
  srht: 2,
  ams: 3,
  countsketch: 4,
  sparse1: 5,
  sparse2: 6,
  uniform: 7
};
var KINDS = ["update", "broadcast", "checkpoint", "peer"];
function runId(name) {
  const bytes = typeof name === "string" ? new TextEncoder().encode(name) : name;
  const hash = sha256(new TextEncoder().encode("desketch run v1\0"), bytes);
  return new DataView(hash.buffer).getUint32(0, true);
}
function pack(expected, weight, payload) {
  const body = concat(head(expected, weight, payload.length), payload);
  return concat(body, uint32(crc32(body)));
}
function head(expected, weight, length) {
  const { run, round, family, d, b, codec, kind, key } = expected;
  const weighed = weightBytes(weight);
  return [
    MAGIC,
    VERSION << 4 | code(CODEC_CODES, codec),
    code(FAMILY_CODES, family) << 4 | KINDS.indexOf(kind) << 2 | weighed.length - 1,
    ...uint32(run),
    ...uint32(key.fingerprint),
    ...varint(round),
    ...varint(d),
    ...varint(b),
    ...weighed,
    ...varint(length)
  ];
}
function unpack(bytes) {
  const reader = new Reader(bytes);
  const [magic, second, third] = reader.take(3, "frame length");
  if (magic !== MAGIC) throw new Refused("magic", `magic: got ${magic}, expected ${MAGIC}; this is no frame`);
  if (second >> 4 !== VERSION) throw new Refused("version", `version: got ${second >> 4}, this side reads ${VERSION}`);
  const codec = named(CODEC_CODES, second & 15, "codec");
  const family = named(FAMILY_CODES, third >> 4, "family");
  const kind = KINDS[third >> 2 & 3];
  const run = reader.uint32("frame length");
  const fingerprint = reader.uint32("frame length");
  const round = reader.varint("round");
  const d = reader.varint("d");
  const b = reader.varint("b");
  if (b < 1 || b > d) throw new Refused("b", `b: got b = ${b}, d = ${d}, expected 1 <= b <= d`);
  const weight = readWeight(reader.take((third & 3) + 1, "weight"));
  const payload = reader.take(reader.varint("payload length"), "payload length");
  const body = bytes.subarray(0, reader.at);
  const checksum = reader.uint32("payload length");
  return { header: { run, round, family, d, b, codec, kind, weight, fingerprint }, payload, body, checksum, length: reader.at };
}
function open(bytes, expected) {
  const { header, payload, body, checksum, length } = unpack(bytes);
  if (length !== bytes.length) throw new Refused("payload length", `payload length: ${bytes.length - length} bytes too many`);
  if (crc32(body) !== checksum) throw new Refused("checksum", "checksum: the frame was damaged on the way");
  check(header, expected);
  return { weight: header.weight, payload };
}
function decode(bytes, expected) {
  const { weight, payload } = open(bytes, expected);
  const size = payloadSize(expected);
  if (payload.length !== size) {
    const what = `${expected.codec} of ${expected.b} numbers takes ${size}`;
    throw new Refused("payload length", `payload length: got ${payload.length} bytes, ${what}`);
  }
  return { weight, ...readPayload(payload, expected) };
}
function encode(values, expected, weight, random, extra = []) {
  return pack(expected, weight, payloadOf({ values, extra }, expected, random));
}
function payloadOf({ values, extra }, expected, random) {
  if (values.length !== expected.b) throw new RangeError(`${values.length} numbers for b = ${expected.b}`);
  const { tiny = 0, extra: halves = 0 } = expected;
  if (extra.length !== tiny + halves) throw new RangeError(`${extra.length} extra numbers, ${tiny + halves} are agreed`);
  if (!values.every(Number.isFinite) || !extra.every(Number.isFinite)) throw new RangeError("numbers that are not finite are never sent");
  const beside = extra.flatMap((x, i) => i < tiny ? [toTiny(x)] : [heldHalf(x) & 255, heldHalf(x) >> 8]);
  return concat(codecOf(expected).encode(values, expected, random), beside);
}
function payloadSize(expected) {
  return codecOf(expected).size(expected.b) + (expected.tiny ?? 0) + 2 * (expected.extra ?? 0);
}
function readPayload(payload, expected) {
  const codec = codecOf(expected);
  const size = codec.size(expected.b);
  const values = codec.decode(payload.subarray(0, size), expected);
  return { values, extra: readBeside(payload.subarray(size), expected) };
}
function readBeside(bytes, { tiny = 0, extra = 0 }) {
  const halves = Array.from({ length: extra }, (_, i) => fromHalf(bytes[tiny + 2 * i] | bytes[tiny + 2 * i + 1] << 8));
  const numbers = [...Array.from(bytes.subarray(0, tiny), fromTiny), ...halves];
  if (!numbers.every(Number.isFinite)) throw new Refused("extra", "extra: a number beside the payload is not finite");
  return numbers;
}
function codecOf({ codec }) {
  if (CODECS[codec] === void 0) throw new RangeError(`no codec ${codec}; there are ${Object.keys(CODECS).join(", ")}`);
  return CODECS[codec];
}
function check(header, expected) {
  for (const field of ["run", "round", "kind", "codec", "family", "d", "b"]) {
    if (header[field] !== expected[field]) {
      throw new Refused(field, `${field}: got ${header[field]}, expected ${expected[field]}`);
    }
  }
  if (header.fingerprint !== expected.key.fingerprint) throw new Refused("key", "key: made with another public key");
}
function weightBytes(weight) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, weight);
  const rounded = view.getFloat32(0);
  if (!(rounded > 0 && rounded < Infinity)) throw new RangeError(`a weight is positive and finite, not ${weight}`);
  const out = [...new Uint8Array(view.buffer)];
  while (out.length > 1 && out[out.length - 1] === 0) out.pop();
  return out;
}
function readWeight(bytes) {
  const view = new DataView(new ArrayBuffer(4));
  bytes.forEach((byte, i) => view.setUint8(i, byte));
  const weight = view.getFloat32(0);
  if (!(weight > 0 && weight < Infinity) || bytes[bytes.length - 1] === 0) {
    throw new Refused("weight", `weight: got ${weight} in ${bytes.length} bytes, expected a positive finite one in the fewest bytes`);
  }
  return weight;
}
function code(codes, name) {
  if (codes[name] === void 0) throw new RangeError(`${name} is none of ${Object.keys(codes).join(", ")}`);
  return codes[name];
}
function named(codes, number, field) {
  const name = Object.keys(codes).find((key) => codes[key] === number);
  if (name === void 0) throw new Refused(field, `${field}: unknown code ${number}`);
  return name;
}

// src/optimizers.ts
var { fround: fround3, sqrt } = Math;
var BETA2 = 0.99;
var TAU = 1e-3;
var LEAST_FLOOR = 1e-30;
var KAPPA = 0.25;
var PAST = 0.2;
var LONGEST_START = 16;
var REACH = 0.25;
function round16(x) {
  if (!Number.isFinite(x) || x === 0) return x;
  let unit = 2 ** (Math.floor(Math.log2(Math.abs(x))) - 15);
  while (Math.abs(x) / unit >= 2 ** 16) unit *= 2;
  while (Math.abs(x) / unit < 2 ** 15) unit /= 2;
  const steps = x / unit;
  const floor = Math.floor(steps);
  const rest = steps - floor;
  return (rest > 0.5 || rest === 0.5 && floor % 2 !== 0 ? floor + 1 : floor) * unit;
}
function norm(x) {
  return sqrt(dot(x, x));
}
function dot(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}
var share = (beta, t) => fround3(round16(1 - beta ** t));
function times2(x, c) {
  const factor = fround3(c);
  return x.map((v) => v * factor);
}
function mix(x, a, y, b) {
  const keep = fround3(a);
  const take2 = fround3(b);
  for (let i = 0; i < x.length; i++) x[i] = fround3(x[i] * keep) + fround3(y[i] * take2);
  return x;
}
var AutoStep = class {
  eta = 0;
  bound = Infinity;
  /** Learn from an update and the step before it; return the update, bounded. */
  observe(w, update, s) {
    if (this.eta === 0) this.start(norm(w), update);
    else if (s !== void 0) this.learn(update, s);
    return update.norm > this.bound ? times2(update.u, round16(this.bound / update.norm)) : update.u;
  }
  start(length, { u, norm: y, b }) {
    if (y === 0) return;
    this.eta = round16(Math.min(Math.max(length / y, 1), LONGEST_START) * sqrt(b / u.length));
    this.bound = REACH * length || Infinity;
  }
  learn({ u, norm: y, b, bits, along }, s) {
    if (y === 0) return;
    const d = u.length;
    const length = norm(s);
    let rho = length === 0 ? 0 : sqrt(d / b) * dot(u, s) / (y * length);
    let [g, past] = [1 / (1 + d / b ** 2), 0];
    if (along !== void 0) [rho, g, past] = [along / y, 1, PAST * bits];
    this.eta = round16(this.eta * Math.exp(KAPPA * g * (Math.min(Math.max(rho, -2), 1) + past)));
  }
};
var DIRECTIONS = {
  sgd: (u) => u,
  momentum: (u, o) => divided(o.mean(u), share(o.beta, o.t)),
  nesterov: (u, o) => divided(mix(o.mean(u).slice(), o.beta, u, 1 - o.beta), share(o.beta, o.t + 1)),
  adam: (u, o) => o.scaled(u, (v) => v),
  amsgrad: (u, o) => o.scaled(u, (v) => {
    const top = o.vectors.top;
    return o.vectors.top = top === void 0 ? v : v.map((x, i) => Math.max(x, top[i]));
  })
};
var divided = (x, by) => x.map((v) => v / by);
var ServerOptimizer = class {
  constructor(name, eta, beta) {
    this.name = name;
    this.beta = beta;
    if (DIRECTIONS[name] === void 0) {
      throw new RangeError(`unknown server optimiser ${name}; there are ${Object.keys(DIRECTIONS).join(", ")}`);
    }
    if (!(beta >= 0 && beta < 1)) throw new RangeError(`beta lies in [0, 1), not at ${beta}`);
    if (eta !== "auto" && !(eta > 0 && eta < Infinity)) throw new RangeError(`eta is "auto" or above 0, not ${eta}`);
    this.auto = eta === "auto" ? new AutoStep() : void 0;
    this.eta = eta === "auto" ? 0 : eta;
  }
  name;
  beta;
  t = 0;
  eta;
  unit = 0;
  floor = 0;
  vectors = {};
  auto;
  /** Move w by one step, in place. */
  apply(w, update) {
    this.t += 1;
    const u = this.auto?.observe(w, update, this.vectors.s) ?? update.u;
    const p = DIRECTIONS[this.name](u, this);
    if (this.auto) {
      if (this.unit === 0) this.unit = lengthRatio(u, p);
      this.eta = this.auto.eta * this.unit;
    }
    const s = times2(p, this.eta);
    if (this.auto) this.vectors.s = s;
    for (let i = 0; i < w.length; i++) w[i] += s[i];
  }
  /** The last step s, from what is kept, where a checkpoint leaves it out. */
  deriveStep() {
    const { m, v, top } = this.vectors;
    if (this.auto === void 0 || this.vectors.s !== void 0 || m === void 0) return;
    const p = divided(m, share(this.beta, this.t));
    const under = top ?? (v && divided(v, share(BETA2, this.t)));
    this.vectors.s = times2(under === void 0 ? p : this.over(p, under), this.eta);
  }
  /** The running mean m, without its bias correction. */
  mean(u) {
    if (this.beta === 0) return u;
    return this.vectors.m = mix(this.vectors.m ?? new Float32Array(u.length), this.beta, u, 1 - this.beta);
  }
  /** The direction of adam; `second` turns v^ into what stands under the root. */
  scaled(u, second) {
    const m = divided(this.mean(u), share(this.beta, this.t));
    if (this.vectors.v === void 0) {
      this.vectors.v = new Float32Array(u.length);
      this.floor = fround3(Math.max(round16(TAU * norm(u) / sqrt(u.length)), LEAST_FLOOR));
    }
    const squares = u.map((x) => x * x);
    const v = mix(this.vectors.v, BETA2, squares, 1 - BETA2);
    const under = second(divided(v, share(BETA2, this.t)));
    return this.over(m, under);
  }
  over(m, under) {
    return m.map((x, i) => x / fround3(fround3(sqrt(under[i])) + this.floor));
  }
};
function lengthRatio(u, p) {
  const length = norm(p);
  return length === 0 ? 0 : round16(norm(u) / length);
}

// src/short.ts
var LONGEST_CHECK = 4;
var LONGEST_WEIGHT = 4;
var LONG_FROM = 4096;
function encodeShort(values, expected, weight, agreed, random, extra = []) {
  return packShort(expected, weight, agreed, payloadOf({ values, extra }, expected, random));
}
function packShort(expected, weight, agreed, payload) {
  const weighed = Math.fround(weight) === Math.fround(agreed) ? [] : weightBytes(weight);
  return concat(check2(expected, weight, payload), weighed, payload);
}
function isShort(bytes, expected) {
  return bytes.length <= payloadSize(expected) + LONGEST_CHECK + LONGEST_WEIGHT;
}
function decodeShort(bytes, expected, agreed) {
  const size = payloadSize(expected);
  const at = size >= LONG_FROM ? LONGEST_CHECK : 2;
  if (bytes.length < at) throw new Refused("frame length", `frame length: ${bytes.length} bytes do not hold a check of ${at}`);
  const own = bytes.length - at - size;
  if (own < 0 || own > LONGEST_WEIGHT) {
    throw new Refused("payload length", `payload length: got ${bytes.length - at} bytes, expected ${size} and a weight of 0 to 4`);
  }
  const weight = own > 0 ? readWeight(bytes.subarray(at, at + own)) : Math.fround(agreed);
  if (own > 0 && weight === Math.fround(agreed)) throw new Refused("weight", "weight: sent though it is the agreed one");
  const payload = bytes.subarray(at + own);
  if (check2(expected, weight, payload).some((byte, i) => bytes[i] !== byte)) {
    throw new Refused("check", "check: damaged on the way, or of another run, key, round, d, b, codec, kind or weight");
  }
  return { weight, ...readPayload(payload, expected) };
}
function check2(expected, weight, payload) {
  const full = concat(head(expected, weight, payload.length), payload);
  if (payload.length >= LONG_FROM) return uint32(crc32(full));
  const crc = crc16(full);
  return [crc & 255, crc >> 8];
}

// src/replica.ts
var LARGEST_KEPT = 1e30;
function headerOf({ run, family, d, b, key, down, tiny = 0 }, t) {
  return { run, round: t, family, d, b, codec: down, kind: "broadcast", key: key.foldIn("round", t), tiny };
}
var Replica = class {
  constructor(w0, wire, optimizer) {
    this.wire = wire;
    this.optimizer = optimizer;
    if (w0.length !== wire.d) throw new RangeError(`w0 has ${w0.length} numbers, the run has d = ${wire.d}`);
    if (CODECS[wire.down] === void 0) throw new RangeError(`no codec ${wire.down}`);
    this.w = w0.slice();
  }
  wire;
  optimizer;
  w;
  version = 0;
  /** Why nothing may be computed from this replica any more. */
  broken;
  drawn;
  /** Apply round t's broadcast, a full or a short frame; undefined is a round without an update. */
  apply(t, broadcast) {
    if (this.broken !== void 0) throw new Refused("replica", `replica: ${this.broken}`);
    if (t !== this.version + 1) {
      throw new Refused("round", `round: this replica has version ${this.version}, got round ${t}; ask to catch up`);
    }
    if (broadcast !== void 0) {
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
  sketchAt(t) {
    const { family, d, b, key, options } = this.wire;
    if (this.drawn?.t !== t) this.drawn = { t, R: draw(family, d, b, key.foldIn("round", t), options) };
    return this.drawn.R;
  }
  /** SHA-256 of w, in hex. */
  digest() {
    const hash = sha256(new Uint8Array(this.w.buffer, this.w.byteOffset, this.w.byteLength));
    return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  /** Every number this replica keeps is finite, with room to average and square it. */
  checkNumbers(t) {
    const kept = { w: this.w, ...this.optimizer.vectors, eta: [this.optimizer.eta], floor: [this.optimizer.floor] };
    for (const [name, numbers] of Object.entries(kept)) {
      const bad = numbers.find((x) => !(Math.abs(x) <= LARGEST_KEPT));
      if (bad === void 0) continue;
      this.broken = `round ${t} took ${name} to ${bad}, beyond ${LARGEST_KEPT}`;
      throw new Refused("replica", `replica: ${this.broken}`);
    }
  }
};

// src/train.ts
function dimension({ widths }) {
  return widths.slice(1).reduce((d, width, i) => d + width * (widths[i] + 1), 0);
}
function networkOf(model, inputs, classes) {
  if (model === "softmax") return { widths: [inputs, classes], activation: "relu" };
  const [, tanh, hidden] = /^mlp(-tanh)?:(\d+(?:-\d+)*)$/.exec(model) ?? [];
  const widths = hidden?.split("-").map(Number);
  if (widths === void 0 || widths.includes(0)) {
    throw new RangeError(`this client trains softmax, mlp:H and mlp-tanh:H, not ${JSON.stringify(model)}`);
  }
  return { widths: [inputs, ...widths, classes], activation: tanh ? "tanh" : "relu" };
}
function loss(network, w, { x, y }, index, gradient) {
  const layers = network.widths.map((width) => new Float64Array(width));
  let sum = 0;
  let correct = 0;
  for (let n = 0; n < index.length; n++) {
    const inputs = network.widths[0];
    layers[0].set(x.subarray(index[n] * inputs, (index[n] + 1) * inputs));
    forward(network, w, layers);
    const scores = layers[layers.length - 1];
    const label = y[index[n]];
    const top = Math.max(...scores);
    if (scores[label] === top) correct++;
    let total = 0;
    for (let k = 0; k < scores.length; k++) total += Math.exp(scores[k] - top);
    sum += Math.log(total) + top - scores[label];
    if (gradient === void 0) continue;
    const error = scores.map((s, k) => (Math.exp(s - top) / total - (k === label ? 1 : 0)) / index.length);
    backward(network, w, layers, error, gradient);
  }
  return { loss: sum / index.length, correct };
}
function forward({ widths, activation }, w, layers) {
  for (let l = 1, at = 0; l < widths.length; l++) {
    const [from, to] = [layers[l - 1], layers[l]];
    const bias = at + from.length * to.length;
    const last = l === widths.length - 1;
    for (let j = 0; j < to.length; j++, at += from.length) {
      let sum = w[bias + j];
      for (let i = 0; i < from.length; i++) sum += w[at + i] * from[i];
      to[j] = last ? sum : activation === "relu" ? Math.max(sum, 0) : Math.tanh(sum);
    }
    at = bias + to.length;
  }
}
function backward(network, w, layers, error, out) {
  const { widths, activation } = network;
  let end = w.length;
  for (let l = widths.length - 1; l >= 1; l--) {
    const from = layers[l - 1];
    const bias = end - widths[l];
    const start = bias - from.length * widths[l];
    const below = new Float64Array(from.length);
    for (let j = 0, at = start; j < error.length; j++, at += from.length) {
      out[bias + j] += error[j];
      for (let i = 0; i < from.length; i++) {
        out[at + i] += error[j] * from[i];
        below[i] += error[j] * w[at + i];
      }
    }
    for (let i = 0; i < below.length; i++) {
      below[i] *= activation === "relu" ? Number(from[i] > 0) : 1 - from[i] ** 2;
    }
    error = below;
    end = start;
  }
}
function localUpdate(network, w, examples, work, key) {
  const n = examples.y.length;
  const size = Math.min(work.batch ?? n, n);
  const order = work.batch === void 0 ? Uint32Array.from({ length: n }, (_, i) => i) : shuffles(key, n, work.steps * size);
  const u = w.slice();
  let total = 0;
  for (let k = 0; k < work.steps; k++) {
    const index = work.batch === void 0 ? order : order.subarray(k * size, (k + 1) * size);
    const gradient = new Float64Array(w.length);
    total += loss(network, u, examples, index, gradient).loss;
    for (let i = 0; i < u.length; i++) u[i] -= work.eta * gradient[i];
  }
  return { delta: u.map((value, i) => value - w[i]), loss: total / work.steps };
}
function shuffles(key, n, length) {
  const epochs = Math.ceil(length / n);
  const out = new Uint32Array(epochs * n);
  for (let epoch = 0; epoch < epochs; epoch++) {
    const words = key.stream(epoch).words(n);
    const part2 = out.subarray(epoch * n, (epoch + 1) * n);
    for (let i = 0; i < n; i++) {
      const j = Math.floor(words[i] / 2 ** 32 * (i + 1));
      part2[i] = part2[j];
      part2[j] = i;
    }
  }
  return out.subarray(0, length);
}

// src/client_momentum.ts
var ClientMomentum = class {
  constructor(beta) {
    this.beta = beta;
    if (!(beta > 0 && beta < 1)) throw new RangeError(`beta of a running mean lies between 0 and 1, not at ${beta}`);
  }
  beta;
  m;
  n = 0;
  t = 0;
  /** Take in the update of round t and return the mean to be sent. */
  mean(t, delta) {
    const old = this.m;
    const fade = this.beta ** (t - this.t);
    const fresh = old === void 0 || this.t >= t;
    this.m = fresh ? delta.slice() : old.map((x, i) => x * fade + delta[i]);
    this.n = fresh ? 1 : this.n * fade + 1;
    this.t = t;
    return this.m.map((x) => x / this.n);
  }
};

// src/client.ts
var Client = class {
  constructor(replica, settings) {
    this.replica = replica;
    this.settings = settings;
    if (settings.beta) this.memory = new ClientMomentum(settings.beta);
    const { d } = settings.participant;
    if (d !== replica.wire.d) throw new Refused("d", `d: the model has ${d} parameters, the run ${replica.wire.d}`);
  }
  replica;
  settings;
  /** Mean loss of the local steps of the last update. */
  loss = NaN;
  /** Its round; 0 before the first. */
  trained = 0;
  memory;
  /** The frame, full or short, of this client's update of round t = version + 1. */
  update(short = false) {
    const { replica, settings } = this;
    if (replica.broken !== void 0) throw new Refused("replica", `replica: ${replica.broken}; nothing is sent`);
    const t = replica.version + 1;
    const { delta, weight, loss: loss2 } = settings.participant.update(replica.w, t);
    if (!delta.every(Number.isFinite)) {
      throw new Refused("update", `update: local steps of round ${t} gave numbers that are not finite; nothing is sent`);
    }
    this.loss = loss2;
    this.trained = t;
    const header = { ...headerOf(replica.wire, t), kind: "update", codec: settings.up };
    const extra = replica.wire.tiny ? [this.alongLastStep(delta)] : [];
    const sketch = replica.sketchAt(t).sketch(this.memory?.mean(t, delta) ?? delta);
    if (!short) return encode(sketch, header, weight, settings.random, extra);
    return encodeShort(sketch, header, weight, settings.knownWeight ? weight : 1, settings.random, extra);
  }
  /** √(d/b) ⟨Δ, s⟩/|s| of the replica's last step s; 0 before the first. */
  alongLastStep(delta) {
    const { optimizer, wire } = this.replica;
    const s = optimizer.vectors.s;
    const length = s === void 0 ? 0 : norm(s);
    return length === 0 ? 0 : Math.sqrt(wire.d / wire.b) * dot(delta, s) / length;
  }
};

// src/learner.ts
var Learner = class {
  constructor(settings) {
    this.settings = settings;
    const { network, examples } = settings;
    const [inputs] = network.widths;
    const classes = network.widths[network.widths.length - 1];
    const n = examples.y.length;
    if (n === 0 || examples.x.length !== n * inputs || examples.y.some((y) => y >= classes)) {
      throw new RangeError(`examples must have ${inputs} numbers each and one of ${classes} classes`);
    }
    this.d = dimension(network);
  }
  settings;
  d;
  update(w, t) {
    const { network, examples, work, own, weight = examples.y.length } = this.settings;
    return { ...localUpdate(network, w, examples, work, own.foldIn("round", t)), weight };
  }
};

// src/checkpoint.ts
function loadCheckpoint(replica, blob, version) {
  const { state, vectors: vectors2 } = read(blob);
  const { optimizer } = replica;
  const given = state.optimizer;
  const w = vectors2.get("w");
  if (w?.length !== replica.wire.d) refuse2(`w has ${w?.length ?? "no"} numbers, the run has d = ${replica.wire.d}`);
  if (given?.name !== optimizer.name) refuse2(`the server optimiser is ${given?.name}, not ${optimizer.name}`);
  if (given.auto === null !== (optimizer.auto === void 0)) refuse2("one of both has an automatic step");
  const kept = {};
  for (const [path, numbers] of vectors2) {
    if (!numbers.every((x) => Math.abs(x) <= 1e30)) refuse2(`${path} holds ${numbers.find((x) => !(Math.abs(x) <= 1e30))}; the server's model has gone astray`, "");
    const name = path.split("/").pop();
    if (path === "w" || name === "floor") continue;
    if (numbers.length !== replica.wire.d) refuse2(`${path} has ${numbers.length} numbers, not ${replica.wire.d}`);
    kept[name] = numbers;
  }
  for (const x of [state.version, given.t]) if (!Number.isSafeInteger(x) || x < 0) refuse2(`${x} is no version`, "");
  if (version !== void 0 && state.version !== version) refuse2(`it has version ${state.version}, not ${version}`, "");
  for (const x of [given.eta, given.unit]) if (!(x >= 0 && x <= 1e30)) refuse2(`${x} is no step`, "");
  replica.w.set(w);
  replica.version = state.version;
  replica.broken = void 0;
  optimizer.t = given.t;
  optimizer.unit = given.unit;
  optimizer.eta = given.eta;
  optimizer.vectors = kept;
  optimizer.floor = Math.max(vectors2.get("optimizer/tensors/floor")?.[0] ?? 0, Math.fround(1e-30));
  if (optimizer.auto) {
    optimizer.auto.eta = given.auto.eta;
    optimizer.auto.bound = given.auto.bound ?? Infinity;
    optimizer.deriveStep();
  }
}
function refuse2(what, so = "; it is of another model or run") {
  throw new Refused("checkpoint", `checkpoint: ${what}${so}`);
}
function read(blob) {
  const view = new DataView(blob.buffer, blob.byteOffset, blob.length);
  const length = blob.length < 8 ? Infinity : Number(view.getBigUint64(0, true));
  if (length > blob.length - 8) refuse2("its header is cut short", "");
  try {
    const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(blob.subarray(8, 8 + length)));
    const data = blob.subarray(8 + length);
    const vectors2 = /* @__PURE__ */ new Map();
    for (const [path, entry] of Object.entries(header)) {
      if (path === "__metadata__") continue;
      const [from, to] = entry.data_offsets;
      const size = entry.shape.reduce((n, m) => n * m, 1);
      if (entry.dtype !== "F32" || to - from !== 4 * size || to > data.length) refuse2(`${path} is no whole vector of float32`, "; it is damaged");
      vectors2.set(path, new Float32Array(data.slice(from, to).buffer));
    }
    return { state: JSON.parse(header.__metadata__.state), vectors: vectors2 };
  } catch (error) {
    if (error instanceof Refused) throw error;
    return refuse2("it cannot be read", "");
  }
}

// src/messages.ts
var SESSION = Key.fromSeed(new TextEncoder().encode("desketch session v2"));
var TRAIN = 1;
var AGREEMENT = 2;
var CHECKPOINT = 4;
var BROADCASTS = 8;
var TOKEN = 128;
var LONGEST_AGREEMENT = 2 ** 24;
var HALF2 = 16;
var STATES2 = { trained: 0, current: 1, behind: 2, unknown: 3, failed: 4 };
function part(run, d, round, kind) {
  return { run, d, round, kind, b: 1, family: "none", codec: "opaque", key: SESSION };
}
function readOrder(bytes) {
  const frames = [];
  for (let at = 0; at < bytes.length; at += frames[frames.length - 1].length) frames.push(take(bytes.subarray(at)));
  const [first, ...rest] = frames;
  if (first === void 0) throw new Refused("frame length", "frame length: an empty message");
  const { run, d, round } = first.header;
  frames.forEach(({ header }, i) => check(header, part(run, d, round, i === 0 ? "broadcast" : "checkpoint")));
  const reader = new Reader(first.payload);
  const flags = reader.byte("order");
  const [since, upto] = [reader.uint32("order"), reader.uint32("order")];
  const half = reader.take(HALF2, "order");
  if (reader.left > 0 || flags > 15) throw new Refused("order", "order: an unknown flag, or bytes too many");
  if (since > upto || upto >= round) throw new Refused("order", `order: since ${since}, upto ${upto}, round ${round}`);
  const next = (flag) => {
    if (!(flags & flag)) return void 0;
    const found = rest.shift();
    if (found === void 0) throw new Refused("order", "order: a part that is announced is missing");
    return found.payload;
  };
  const agreement = next(AGREEMENT);
  if (agreement && agreement.length > LONGEST_AGREEMENT) throw new Refused("agreement", `agreement: got ${agreement.length} bytes`);
  const checkpoint = next(CHECKPOINT);
  const broadcasts = readBroadcasts(next(BROADCASTS), since, upto);
  if (rest.length > 0) throw new Refused("order", "order: a part that is not announced");
  return {
    run,
    d,
    round,
    train: (flags & TRAIN) !== 0,
    since,
    upto,
    half,
    broadcasts,
    ...agreement && { agreement },
    ...checkpoint && { checkpoint }
  };
}
function take(bytes) {
  const frame = unpack(bytes);
  open(bytes.subarray(0, frame.length), { ...frame.header, key: SESSION });
  if (frame.header.weight !== 1) throw new Refused("weight", `weight: got ${frame.header.weight}, expected 1`);
  return frame;
}
function readBroadcasts(payload, since, upto) {
  const out = [];
  const reader = new Reader(payload ?? new Uint8Array(0));
  for (let t = since; reader.left > 0; ) {
    const step2 = reader.varint("broadcasts");
    t += step2;
    if (step2 === 0 || t > upto) throw new Refused("broadcasts", `broadcasts: round ${t} is not after the last, up to ${upto}`);
    out.push({ t, frame: reader.take(reader.varint("broadcasts"), "broadcasts") });
  }
  if (payload !== void 0 && out.length === 0) throw new Refused("broadcasts", "broadcasts: announced, but there are none");
  return out;
}
function writeReply(order, status, update = new Uint8Array(0)) {
  return concat(statusFrame(order, status), update);
}
function statusFrame({ run, d, round }, status) {
  const seconds = new Uint8Array(new Float32Array([status.seconds]).buffer);
  const reason = new TextEncoder().encode(status.reason).subarray(0, 1e3);
  const state = STATES2[status.state] | (status.token ? TOKEN : 0);
  const payload = concat(
    [state],
    uint32(status.client),
    uint32(status.version >>> 0),
    status.half,
    seconds,
    status.token ?? [],
    reason
  );
  return pack(part(run, d, round, "update"), 1, payload);
}
function orderFrame(order) {
  const payload = concat([order.train ? TRAIN : 0], uint32(order.since), uint32(order.upto), order.half);
  return pack(part(order.run, order.d, order.round, "broadcast"), 1, payload);
}
var crcBytes = (bytes) => [crc16(bytes) & 255, crc16(bytes) >> 8];
function readShortOrder(bytes, version) {
  if (bytes.length < 4) throw new Refused("frame length", "frame length: a short order has at least 4 bytes");
  const broadcast = bytes.subarray(4);
  const follows = (bytes[0] & 2) !== 0;
  if (bytes[0] >> 2 !== 96 >> 2 || follows !== broadcast.length > 0) throw new Refused("flag", `flag: got ${bytes[0]}`);
  const off = (bytes[1] - (version + 1 & 255) + 384) % 256;
  const round = Math.max(version + 1 + off - 128, bytes[1]);
  return { round, train: (bytes[0] & 1) !== 0, ...follows && { broadcast } };
}
function shortOrderHolds(bytes, order) {
  const right = crcBytes(concat(orderFrame(order), bytes.subarray(4)));
  return bytes[2] === right[0] && bytes[3] === right[1];
}
function writeShortReply(order, status, update) {
  const after = update === void 0 ? new Uint8Array(0) : concat([secondsCode(status.seconds)], update);
  const right = crcBytes(concat(statusFrame(order, { ...status, seconds: 0 }), after));
  return concat([update === void 0 ? 113 : 112, order.round % 256, ...right], after);
}
var cannotFollow = (round) => Uint8Array.of(115, round & 255);
function secondsCode(seconds) {
  return seconds < 1e-4 ? 0 : Math.min(255, Math.round(1 + 8 * Math.log2(seconds / 1e-4)));
}

// src/mqtt.ts
var CONNECT = 16;
var CONNACK = 32;
var PUBLISH = 48;
var SUBSCRIBE = 130;
var SUBACK = 144;
var PINGREQ = 192;
var DISCONNECT = 224;
var RETAIN = 1;
var FAILURE = 128;
var LONGEST_PACKET = 64 << 20;
var REASONS = {
  132: "another version of MQTT",
  133: "the name is not valid",
  134: "wrong user name or password",
  135: "not authorised",
  136: "the server is not available",
  137: "the server is busy",
  138: "banned",
  142: "another one took its place",
  151: "quota exceeded"
};
var MqttEnd = class extends Error {
  constructor(message, refused = false) {
    super(message);
    this.refused = refused;
    this.name = "MqttEnd";
  }
  refused;
};
var text = (value) => {
  const bytes = new TextEncoder().encode(value);
  return concat([bytes.length >> 8, bytes.length & 255], bytes);
};
function packet(first, ...parts) {
  const body = concat(...parts);
  const length = [];
  let rest = body.length;
  do
    length.push(rest & 127 | (rest > 127 ? 128 : 0));
  while (rest >>= 7);
  return concat([first], length, body);
}
function connectPacket({ name, user, password, will, keepalive }) {
  const flags = 2 | (will === void 0 ? 0 : 36) | (user === void 0 ? 0 : 128) | (password === void 0 ? 0 : 64);
  const optional = [user, password].filter((value) => value !== void 0).map(text);
  const last = will === void 0 ? [] : [[0], text(will), [0, 0]];
  return packet(CONNECT, text("MQTT"), [5, flags, keepalive >> 8, keepalive & 255, 0], text(name), ...last, ...optional);
}
var Mqtt = class _Mqtt {
  constructor(settings) {
    this.settings = settings;
    this.ended = new Promise((resolve) => this.end = resolve);
    this.socket = new WebSocket(settings.url, "mqtt");
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.send(connectPacket(settings));
    this.socket.onmessage = ({ data }) => this.take(new Uint8Array(data));
    this.socket.onclose = () => this.finish(new MqttEnd("the connection to the broker was lost"));
    void this.ended.then(() => clearInterval(this.pings));
  }
  settings;
  /** Bytes of MQTT packets, both ways. */
  sent = 0;
  received = 0;
  /** Settles when the connection has ended, and says why. */
  ended;
  socket;
  end;
  rest = new Uint8Array(0);
  standing;
  pings;
  /** Connect and subscribe; rejects with an `MqttEnd`. */
  static async open(settings) {
    const made = new _Mqtt(settings);
    const stands = new Promise((resolve) => made.standing = resolve);
    const end = await Promise.race([stands, made.ended]);
    if (end instanceof MqttEnd) throw end;
    made.pings = setInterval(() => made.send(packet(PINGREQ)), settings.keepalive * 500);
    return made;
  }
  publish(topic, payload, retain = false) {
    this.send(packet(PUBLISH | (retain ? RETAIN : 0), text(topic), [0], payload));
  }
  /** Leave in good order: the last will is not published. */
  close() {
    this.send(packet(DISCONNECT));
    this.finish(new MqttEnd("closed"));
  }
  finish(reason) {
    this.end(reason);
    this.socket.close();
  }
  send(bytes) {
    if (this.socket.readyState !== 1) return;
    this.sent += bytes.length;
    this.socket.send(bytes);
  }
  /** Cut the stream into packets. */
  take(bytes) {
    this.received += bytes.length;
    this.rest = this.rest.length === 0 ? bytes : concat(this.rest, bytes);
    for (; ; ) {
      let [at, length] = [1, 0];
      for (let more = true; more; at++) {
        if (at >= this.rest.length) return;
        if (at > 4) return this.finish(new MqttEnd("the broker does not speak MQTT: a length of more than 4 bytes", true));
        length += (this.rest[at] & 127) * 128 ** (at - 1);
        more = this.rest[at] > 127;
      }
      if (length > LONGEST_PACKET) return this.finish(new MqttEnd(`the broker sent a packet of ${length} bytes`, true));
      if (this.rest.length < at + length) return;
      const [first, body] = [this.rest[0], this.rest.slice(at, at + length)];
      this.rest = this.rest.subarray(at + length);
      this.handle(first, body);
    }
  }
  handle(first, body) {
    const kind = first & 240;
    if (kind === CONNACK) this.accepted(body[1]);
    else if (kind === SUBACK) this.subscribed(body);
    else if (kind === DISCONNECT) this.finish(refusal("the broker ended the connection", body[0] ?? 0));
    else if (kind === PUBLISH) this.deliver(body);
  }
  accepted(reason) {
    if (reason !== 0) return this.finish(refusal("the broker does not let this client in", reason));
    this.send(packet(SUBSCRIBE, [0, 1, 0], ...this.settings.topics.flatMap((topic) => [text(topic), [0]])));
  }
  subscribed(body) {
    const bad = body.subarray(3 + body[2]).find((reason) => reason >= FAILURE);
    if (bad !== void 0) return this.finish(refusal("the broker refuses a subscription", bad));
    this.standing();
  }
  deliver(body) {
    const end = 2 + (body[0] << 8) + body[1];
    if (end >= body.length || body[end] > 127) return this.finish(new MqttEnd("the broker sent a message that cannot be read", true));
    const topic = new TextDecoder().decode(body.subarray(2, end));
    this.settings.onMessage(topic, body.subarray(end + 1 + body[end]));
  }
};
function refusal(what, reason) {
  const why = REASONS[reason] ?? `reason 0x${reason.toString(16)}`;
  return new MqttEnd(`${what}: ${why}`, reason >= FAILURE && reason !== 136 && reason !== 137 && reason !== 139);
}

// src/party.ts
var STAMP = 4;
var FIRST_PAUSE = 0.5;
var LONGEST_PAUSE = 60;
var Party = class {
  constructor(settings) {
    this.settings = settings;
  }
  settings;
  link;
  past = { sent: 0, received: 0 };
  newest;
  last;
  over = false;
  failed;
  /** Bytes of MQTT packets so far, over all connections. */
  get traffic() {
    const { sent, received } = this.link ?? { sent: 0, received: 0 };
    return { sent: this.past.sent + sent, received: this.past.received + received };
  }
  /** Answer until the run is over; a lost connection is made again, after a pause that doubles. */
  async run() {
    for (let pause = FIRST_PAUSE; !this.over; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const end = await this.connection();
      if (this.failed) throw this.failed;
      if (this.over) return;
      if (end.refused) throw end;
      this.settings.onChange?.("lost");
      await new Promise((resolve) => setTimeout(resolve, 1e3 * pause * (0.5 + Math.random())));
    }
  }
  /** Leave the run for now. */
  leave() {
    this.over = true;
    this.goodbye();
  }
  async connection() {
    const { root, client } = this.settings;
    const settings = { ...this.settings, will: `${root}/${client}/p`, topics: [`${root}/${client}/o`, `${root}/o`] };
    try {
      this.link = await Mqtt.open({ ...settings, onMessage: (_, payload) => this.receive(payload) });
    } catch (error) {
      if (error instanceof MqttEnd) return error;
      throw error;
    }
    this.link.publish(`${root}/${client}/p`, Uint8Array.of(49), true);
    this.settings.onChange?.("connected");
    const end = await this.link.ended;
    this.past = this.traffic;
    this.link = void 0;
    return end;
  }
  receive(payload) {
    if (this.failed || this.over || payload.length < STAMP) return;
    const [stamp, order] = [payload.slice(0, STAMP), payload.slice(STAMP)];
    if (this.newest && !isAfter(stamp, this.newest)) return;
    this.newest = stamp;
    if (order.length === 0) return this.leave();
    try {
      const repeated = this.last && equal(this.last.order, order);
      const reply = repeated ? this.last.reply : this.settings.answer(order);
      this.last = { order, reply };
      this.link?.publish(`${this.settings.root}/${this.settings.client}/r`, reply);
      this.settings.onChange?.("answered");
    } catch (error) {
      this.failed = error;
      if (!(error instanceof Refused)) console.error(error);
      this.goodbye();
    }
  }
  goodbye() {
    this.link?.publish(`${this.settings.root}/${this.settings.client}/p`, new Uint8Array(0), true);
    this.link?.close();
  }
};
var equal = (x, y) => x.length === y.length && x.every((byte, i) => byte === y[i]);
function isAfter(stamp, other) {
  const serial = (s) => s[2] + 256 * s[3];
  const ahead = (serial(stamp) - serial(other) + 65536) % 65536;
  return stamp[0] !== other[0] || stamp[1] !== other[1] || ahead > 0 && ahead < 32768;
}

// src/session.ts
var FULL = 222;
var NOTHING = new Uint8Array(16);
var Session = class {
  constructor(settings) {
    this.settings = settings;
  }
  settings;
  joined;
  last;
  /** Why the last reply says that this client failed, or why nothing can be computed from its replica any more. */
  trouble;
  /** Whether w was the server's at the last order; undefined before the first that could tell. */
  equal;
  get client() {
    return this.joined?.client;
  }
  /** The reply to one order. */
  answer(bytes) {
    return bytes[0] === FULL ? this.full(readOrder(bytes)) : this.short(bytes);
  }
  full(order) {
    const reply = (state, reason = "", update, seconds = 0) => {
      const token = order.agreement ? { token: this.settings.token } : {};
      return writeReply(order, { ...this.status(state, reason, seconds), ...token }, update);
    };
    this.trouble = void 0;
    try {
      if (this.joined?.run !== order.run) {
        if (order.agreement === void 0 || !this.begin(order, order.agreement)) return reply("unknown");
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
  begin(order, agreement) {
    if (runId(agreement) !== order.run) return this.foreign("run");
    const facts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(agreement));
    const again = () => this.settings.join(facts, order.run);
    const joined = again();
    if (joined.client.replica.wire.d !== order.d) return this.foreign("d");
    this.joined = { ...joined, run: order.run, d: order.d, again };
    this.last = void 0;
    return true;
  }
  foreign(field) {
    this.trouble = `${field}: the agreement is of another run than the order`;
    return false;
  }
  /** Bring the replica to the order's version; false if this client cannot get there. */
  follow(order) {
    const joined = this.joined;
    if (joined.client.replica.version > order.upto) {
      Object.assign(joined, joined.again());
      this.last = void 0;
    }
    const { replica } = joined.client;
    if (order.checkpoint !== void 0) {
      loadCheckpoint(replica, order.checkpoint, order.upto);
      joined.unborn = false;
    } else if (!joined.unborn && order.since <= replica.version) {
      for (const { t, frame } of order.broadcasts) {
        if (t <= replica.version) continue;
        replica.version = t - 1;
        replica.apply(t, frame);
      }
      replica.version = order.upto;
    }
    if (joined.unborn || replica.version !== order.upto) return false;
    this.equal = hex(order.half) === hex(this.half());
    joined.unborn = !this.equal;
    return this.equal;
  }
  short(bytes) {
    const joined = this.joined;
    if (joined === void 0 || joined.unborn) return cannotFollow(bytes[1] ?? 0);
    const { replica } = joined.client;
    const { round, train, broadcast } = readShortOrder(bytes, replica.version);
    const upto = round - 1;
    try {
      if (broadcast !== void 0 && replica.version === upto - 1) replica.apply(upto, broadcast);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.trouble = replica.broken;
      return cannotFollow(round);
    }
    const broadcasts = broadcast === void 0 ? [] : [{ t: upto, frame: broadcast }];
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
  train(round) {
    const half = hex(this.half());
    if (this.last?.round !== round || this.last.half !== half) {
      const start = this.settings.now();
      const update = this.joined.client.update(true);
      this.last = { round, half, update, seconds: this.settings.now() - start };
    }
    return this.last;
  }
  status(state, reason = "", seconds = 0) {
    const known = this.joined !== void 0 && !this.joined.unborn;
    const version = known ? this.joined.client.replica.version : -1;
    return { state, client: this.settings.client, version, half: known ? this.half() : NOTHING, seconds, reason };
  }
  half() {
    const digest2 = this.joined.client.replica.digest();
    return Uint8Array.from({ length: 16 }, (_, i) => parseInt(digest2.slice(2 * i, 2 * i + 2), 16));
  }
};
var hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

// src/agreement.ts
function replicaOf(agreement, run) {
  const { seed, shapes, wire, optimizer, eta_global, client_momentum } = agreement;
  if (!Number.isSafeInteger(seed)) throw new Refused("seed", "seed: this client reads whole numbers below 2^53");
  const d = shapes.reduce((sum, shape) => sum + shape.reduce((n, m) => n * m, 1), 0);
  const beta = agreement.beta ?? (client_momentum > 0 ? 0 : eta_global === "auto" ? 0.5 : 0.9);
  const tiny = Number(client_momentum > 0 && eta_global === "auto");
  const { family, options, b, codec, codec_down: down } = wire;
  const bits = (bitsOf3(codec) + bitsOf3(down)) / 2;
  return new Replica(
    new Float32Array(d),
    { run, key: Key.fromSeed(seed), family, options, d, b, down, tiny, bits },
    new ServerOptimizer(optimizer, eta_global, beta)
  );
}
function bitsOf3(codec) {
  if (CODECS[codec] === void 0) throw new Refused("codec", `codec: got ${codec}, this client has ${Object.keys(CODECS).join(", ")}`);
  return Math.min(1, CODECS[codec].bits);
}
function networkOfShapes(shapes, activation) {
  const widths = [shapes[0]?.[1] ?? 0];
  for (let i = 0; i < shapes.length; i += 2) {
    const [matrix, bias] = [shapes[i], shapes[i + 1]];
    if (matrix?.length !== 2 || bias?.length !== 1 || matrix[1] !== widths[i / 2] || bias[0] !== matrix[0]) {
      throw new Refused("shapes", "shapes: this client trains networks of plain layers, a matrix and a bias each");
    }
    widths.push(matrix[0]);
  }
  return { widths, activation };
}
export {
  CODECS,
  Client,
  ClientMomentum,
  Key,
  Learner,
  Mqtt,
  MqttEnd,
  Party,
  Refused,
  Replica,
  Rotation,
  STATES2 as STATES,
  ServerOptimizer,
  Session,
  Sha256,
  Stream,
  buckets,
  cannotFollow,
  check,
  crc16,
  crc32,
  decode,
  decodeShort,
  dimension,
  draw,
  encode,
  encodeShort,
  hadamard,
  headerOf,
  loadCheckpoint,
  localUpdate,
  loss,
  networkOf,
  networkOfShapes,
  open,
  pack,
  packShort,
  readOrder,
  readShortOrder,
  replicaOf,
  round16,
  runId,
  secondsCode,
  sha256,
  shortOrderHolds,
  signBits,
  subset,
  unpack,
  writeReply,
  writeShortReply
};
