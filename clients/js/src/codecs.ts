/**
 * Codecs: b numbers as a payload and back (frame spec v2, "Payloads").
 *
 * A decoder refuses what no encoder writes. Random choices of an encoder come from `random`, numbers in [0, 1), and do
 * not concern the receiver.
 */

import { uint32 } from "./bytes.ts";
import { Refused } from "./errors.ts";
import { exponent, fromHalf, toHalf } from "./half.ts";
import type { Key } from "./key.ts";
import { Rotation } from "./rotation.ts";
import { nearest, vectors } from "./trellis.ts";

export type Random = () => number;

/** What a payload may depend on beside its bytes. */
export interface Context {
  b: number;
  key: Key;
  kind: string;
}

export interface Codec {
  /** Bits a number, without scales. */
  readonly bits: number;
  /** Bytes of a payload of b numbers. */
  size(b: number): number;
  encode(values: Float32Array, context: Context, random: Random): Uint8Array;
  decode(payload: Uint8Array, context: Context): Float32Array;
}

const BLOCK = 256; // numbers that share a scale
const SALTS = 2 ** 12;
const LAST_FINITE = 0x7f800000 / SALTS - 1;
const FLOAT32_MAX = (2 - 2 ** -23) * 2 ** 127;
const TRELLIS_SALTS = 2 ** 6;
const ROOTS = [0, 1, 2, 3].map((quarters) => Math.fround(2 ** (quarters / 4)));
const LAST_QUARTER = 4 * (126 + 128) - 1; // the last below 2^128

const word = new DataView(new ArrayBuffer(4));
const floatOf = (bits: number): number => (word.setUint32(0, bits), word.getFloat32(0));
const bitsOf = (value: number): number => (word.setFloat32(0, value), word.getUint32(0));
const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const largest = (values: Float32Array): number => values.reduce((m, v) => Math.max(m, Math.abs(v)), 0);

function refuse(field: "scale" | "payload", what: string): never {
  throw new Refused(field, `${field}: ${what}`);
}

const f32: Codec = {
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
  },
};

const f16: Codec = {
  bits: 16,
  size: (b) => 1 + 2 * b,
  encode(values) {
    const max = largest(values);
    const e = max === 0 ? -15 : Math.min(127, Math.max(-128, exponent(max) - 14));
    const out = new Uint8Array(1 + 2 * values.length);
    out[0] = e + 128;
    values.forEach((v, i) => {
      let half = toHalf(v / 2 ** e);
      if (Math.abs(fromHalf(half)) * 2 ** e >= 2 ** 128) half--; // towards zero where rounding would leave float32
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
  },
};

/** `int8` and `int4`: a bfloat16 scale for every 256 numbers, then the integers. */
function integers(bits: 4 | 8): Codec {
  const top = 2 ** (bits - 1) - 1;
  const scaleBytes = (b: number): number => 2 * Math.ceil(b / BLOCK);
  const size = (b: number): number => scaleBytes(b) + Math.ceil((b * bits) / 8);
  return {
    bits,
    size,
    encode(values, { b }, random) {
      const out = new Uint8Array(size(b));
      for (let from = 0; from < b; from += BLOCK) {
        const block = values.subarray(from, from + BLOCK);
        const scale = scaleAbove(largest(block) / top, top);
        viewOf(out).setUint16((2 * from) / BLOCK, bitsOf(scale) >>> 16, true);
        block.forEach((v, i) => put(out, from + i, scale === 0 ? 0 : atRandom(v / scale, random)));
      }
      function put(bytes: Uint8Array, i: number, value: number): void {
        const q = Math.max(-top, Math.min(top, value));
        if (bits === 8) bytes[scaleBytes(b) + i] = q;
        else bytes[scaleBytes(b) + (i >> 1)] |= (q & 15) << (4 * (i & 1));
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
        const q = bits === 8 ? view.getInt8(data + i) : ((payload[data + (i >> 1)] >> (4 * (i & 1))) << 28) >> 28;
        if (q < -top) refuse("payload", `the integer ${q}, below -${top}`);
        out[i] = q * scales[Math.floor(i / BLOCK)];
      }
      return out;
    },
  };
}

/** The least bfloat16 that is at least x, or the one below it if `top` times it would leave float32. */
function scaleAbove(x: number, top: number): number {
  let bits = bitsOf(x) & 0xffff0000;
  if (floatOf(bits) < x) bits += 0x10000;
  if (floatOf(bits) > FLOAT32_MAX / top) bits -= 0x10000;
  return floatOf(bits >>> 0);
}

/** x rounded up or down, with mean x. */
function atRandom(x: number, random: Random): number {
  const floor = Math.floor(x);
  return random() < x - floor ? floor + 1 : floor;
}

const sign1: Codec = {
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
    rotated.forEach((v, i) => (out[4 + (i >> 3)] |= (v < 0 ? 1 : 0) << (i & 7)));
    return out;
  },
  decode(payload, { b, key, kind }) {
    const bits = viewOf(payload).getUint32(0, true);
    const scale = floatOf(bits);
    if (bits >>> 31 || !Number.isFinite(scale)) refuse("scale", "a scale that is negative or not finite");
    refusePadding(payload, b);
    const signs = Float32Array.from({ length: b }, (_, i) => 1 - 2 * ((payload[4 + (i >> 3)] >> (i & 7)) & 1));
    return turnedBack(signs, { b, key, kind }, bits % SALTS, scale);
  },
};

/** Q v. */
function turned(values: Float32Array, { b, key, kind }: Context, salt: number): Float32Array {
  const out = new Rotation(b, key, kind, salt).apply(values);
  if (!out.every(Number.isFinite)) throw new RangeError("numbers too large for this codec: their rotation leaves float32");
  return out;
}

/** Qᵀ c times the scale. */
function turnedBack(codes: Float32Array, { b, key, kind }: Context, salt: number, scale: number): Float32Array {
  const out = new Rotation(b, key, kind, salt).transpose(codes);
  for (let i = 0; i < b; i++) out[i] *= scale;
  if (!out.every(Number.isFinite)) refuse("scale", "a scale that takes a number out of float32");
  return out;
}

/** Refuse a payload with a one behind its last bits. */
function refusePadding(payload: Uint8Array, bits: number): void {
  if (bits % 8 && payload[payload.length - 1] >> (bits % 8)) refuse("payload", "padding that is not zero");
}

/** Of the finite float32 numbers whose 12 lowest bits are the salt the one whose bits are nearest to those of x > 0. */
function salted(x: number, salt: number): number {
  const steps = Math.max(0, Math.floor((bitsOf(x) - salt + SALTS / 2) / SALTS));
  return Math.min(steps, LAST_FINITE) * SALTS + salt;
}

/** `trellis1` to `trellis3`: a salt of 6 bits and a scale of 10, then a bit for every `per` numbers. */
function trellis(per: number): Codec {
  const count = (b: number): number => Math.ceil(b / per);
  const size = (b: number): number => 2 + Math.ceil(count(b) / 8);
  return {
    bits: 1 / per,
    size,
    encode(values, context, random) {
      const salt = Math.floor(random() * TRELLIS_SALTS);
      const rotated = turned(values, context, salt);
      const bits = nearest(rotated, per);
      const code = quarters(scaleOnto(rotated, vectors(bits, context.b, per)), random);
      const out = new Uint8Array(size(context.b));
      if (code === 0) return out; // nothing, or too little for a scale
      viewOf(out).setUint16(0, code * TRELLIS_SALTS + salt, true);
      out.set(bits, 2);
      return out;
    },
    decode(payload, context) {
      const head = viewOf(payload).getUint16(0, true);
      const code = Math.floor(head / TRELLIS_SALTS);
      if (code > LAST_QUARTER) refuse("scale", "a scale that is not finite");
      refusePadding(payload, count(context.b));
      return turnedBack(vectors(payload.subarray(2), context.b, per), context, head % TRELLIS_SALTS, quarterScale(code));
    },
  };
}

/** |s|²/⟨s, c⟩, which makes c unbiased; 0 where c does not point along s. */
function scaleOnto(s: Float32Array, c: Float32Array): number {
  let squares = 0;
  let along = 0;
  s.forEach((v, i) => {
    squares += v * v;
    along += v * c[i];
  });
  return along > 0 ? squares / along : 0;
}

/** The scale of a code: nothing, then quarters of an octave from 2^-126 on. */
function quarterScale(code: number): number {
  return code === 0 ? 0 : ROOTS[code % 4] * 2 ** (Math.floor(code / 4) - 126);
}

/** The code of the scale below or above x >= 0, at random with the mean x. */
function quarters(x: number, random: Random): number {
  let below = Math.max(0, Math.min(LAST_QUARTER - 1, Math.floor(4 * (Math.log2(x) + 126))));
  while (below > 0 && quarterScale(below) > x) below--; // the logarithm is rounded, and so are the roots
  while (below < LAST_QUARTER - 1 && quarterScale(below + 1) <= x) below++;
  const [low, high] = [quarterScale(below), quarterScale(below + 1)];
  return random() < (x - low) / (high - low) ? below + 1 : below;
}

/** Codecs by name; a frame's codec `opaque` has none. */
export const CODECS: Record<string, Codec> = {
  f32, f16, int8: integers(8), int4: integers(4), sign1, trellis1: trellis(1), trellis2: trellis(2), trellis3: trellis(3),
};
