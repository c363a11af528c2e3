/** Frames: one message as bytes, in its full form (frame spec v2). */

import { concat, crc32, Reader, uint32, varint } from "./bytes.ts";
import { type Codec, CODECS, type Random } from "./codecs.ts";
import { Refused } from "./errors.ts";
import { fromHalf, fromTiny, heldHalf, toTiny } from "./half.ts";
import type { Key } from "./key.ts";
import { sha256 } from "./sha256.ts";

const MAGIC = 0xde;
const VERSION = 2;
const CODEC_CODES: Record<string, number> = {
  f32: 0, f16: 1, int8: 2, int4: 3, sign1: 4, trellis1: 5, trellis2: 6, trellis3: 7, opaque: 15,
};
const FAMILY_CODES: Record<string, number> = {
  none: 0, gaussian: 1, srht: 2, ams: 3, countsketch: 4, sparse1: 5, sparse2: 6, uniform: 7,
};
const KINDS = ["update", "broadcast", "checkpoint", "peer"];

/** What a frame says of itself. */
export interface Header {
  run: number;
  round: number;
  family: string;
  d: number;
  b: number;
  codec: string;
  kind: string;
  weight: number;
  fingerprint: number;
}

/** What a receiver expects: everything but the weight, and the key itself. */
export type Expected = Omit<Header, "weight" | "fingerprint"> & {
  key: Key;
  /** How many numbers of one byte follow the codec's; none if undefined. */
  tiny?: number;
  /** How many of two bytes follow those; none if undefined. */
  extra?: number;
};

/** What a frame carries beside its weight. */
export interface Numbers {
  values: Float32Array;
  /** The tiny ones first. */
  extra: number[];
}

export interface Frame {
  header: Header;
  payload: Uint8Array;
  /** What the checksum is of. */
  body: Uint8Array;
  checksum: number;
  /** Bytes of the whole frame. */
  length: number;
}

/** The id of the run of this name. */
export function runId(name: string | Uint8Array): number {
  const bytes = typeof name === "string" ? new TextEncoder().encode(name) : name;
  const hash = sha256(new TextEncoder().encode("desketch run v1\0"), bytes);
  return new DataView(hash.buffer).getUint32(0, true);
}

/** A frame of this payload. */
export function pack(expected: Expected, weight: number, payload: Uint8Array): Uint8Array {
  const body = concat(head(expected, weight, payload.length), payload);
  return concat(body, uint32(crc32(body)));
}

/** A frame's bytes from the magic to the payload length. */
export function head(expected: Expected, weight: number, length: number): number[] {
  const { run, round, family, d, b, codec, kind, key } = expected;
  const weighed = weightBytes(weight);
  return [
    MAGIC,
    (VERSION << 4) | code(CODEC_CODES, codec),
    (code(FAMILY_CODES, family) << 4) | (KINDS.indexOf(kind) << 2) | (weighed.length - 1),
    ...uint32(run), ...uint32(key.fingerprint), ...varint(round), ...varint(d), ...varint(b), ...weighed,
    ...varint(length),
  ];
}

/** The frame at the beginning of these bytes; what follows it is left alone, and nothing is expected of it yet. */
export function unpack(bytes: Uint8Array): Frame {
  const reader = new Reader(bytes);
  const [magic, second, third] = reader.take(3, "frame length");
  if (magic !== MAGIC) throw new Refused("magic", `magic: got ${magic}, expected ${MAGIC}; this is no frame`);
  if (second >> 4 !== VERSION) throw new Refused("version", `version: got ${second >> 4}, this side reads ${VERSION}`);
  const codec = named(CODEC_CODES, second & 15, "codec");
  const family = named(FAMILY_CODES, third >> 4, "family");
  const kind = KINDS[(third >> 2) & 3];
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

/** The payload of one frame that must be what is expected, and its weight. */
export function open(bytes: Uint8Array, expected: Expected): { weight: number; payload: Uint8Array } {
  const { header, payload, body, checksum, length } = unpack(bytes);
  if (length !== bytes.length) throw new Refused("payload length", `payload length: ${bytes.length - length} bytes too many`);
  if (crc32(body) !== checksum) throw new Refused("checksum", "checksum: the frame was damaged on the way");
  check(header, expected);
  return { weight: header.weight, payload };
}

/** The numbers of one frame that must be what is expected, and its weight. */
export function decode(bytes: Uint8Array, expected: Expected): { weight: number } & Numbers {
  const { weight, payload } = open(bytes, expected);
  const size = payloadSize(expected);
  if (payload.length !== size) {
    const what = `${expected.codec} of ${expected.b} numbers takes ${size}`;
    throw new Refused("payload length", `payload length: got ${payload.length} bytes, ${what}`);
  }
  return { weight, ...readPayload(payload, expected) };
}

/** A frame of these numbers. */
export function encode(values: Float32Array, expected: Expected, weight: number, random: Random, extra: number[] = []): Uint8Array {
  return pack(expected, weight, payloadOf({ values, extra }, expected, random));
}

/** The codec's bytes, then the extra numbers: the tiny ones, and float16. */
export function payloadOf({ values, extra }: Numbers, expected: Expected, random: Random): Uint8Array {
  if (values.length !== expected.b) throw new RangeError(`${values.length} numbers for b = ${expected.b}`);
  const { tiny = 0, extra: halves = 0 } = expected;
  if (extra.length !== tiny + halves) throw new RangeError(`${extra.length} extra numbers, ${tiny + halves} are agreed`);
  if (!values.every(Number.isFinite) || !extra.every(Number.isFinite)) throw new RangeError("numbers that are not finite are never sent");
  const beside = extra.flatMap((x, i) => (i < tiny ? [toTiny(x)] : [heldHalf(x) & 255, heldHalf(x) >> 8]));
  return concat(codecOf(expected).encode(values, expected, random), beside);
}

export function payloadSize(expected: Expected): number {
  return codecOf(expected).size(expected.b) + (expected.tiny ?? 0) + 2 * (expected.extra ?? 0);
}

/** The numbers of a payload of the right size. */
export function readPayload(payload: Uint8Array, expected: Expected): Numbers {
  const codec = codecOf(expected);
  const size = codec.size(expected.b);
  const values = codec.decode(payload.subarray(0, size), expected);
  return { values, extra: readBeside(payload.subarray(size), expected) };
}

function readBeside(bytes: Uint8Array, { tiny = 0, extra = 0 }: Expected): number[] {
  const halves = Array.from({ length: extra }, (_, i) => fromHalf(bytes[tiny + 2 * i] | (bytes[tiny + 2 * i + 1] << 8)));
  const numbers = [...Array.from(bytes.subarray(0, tiny), fromTiny), ...halves];
  if (!numbers.every(Number.isFinite)) throw new Refused("extra", "extra: a number beside the payload is not finite");
  return numbers;
}

function codecOf({ codec }: Expected): Codec {
  if (CODECS[codec] === undefined) throw new RangeError(`no codec ${codec}; there are ${Object.keys(CODECS).join(", ")}`);
  return CODECS[codec];
}

/** Refuse a header that is not the expected one, naming the first field that differs. */
export function check(header: Header, expected: Expected): void {
  for (const field of ["run", "round", "kind", "codec", "family", "d", "b"] as const) {
    if (header[field] !== expected[field]) {
      throw new Refused(field, `${field}: got ${header[field]}, expected ${expected[field]}`);
    }
  }
  if (header.fingerprint !== expected.key.fingerprint) throw new Refused("key", "key: made with another public key");
}

/** Big-endian float32 without its trailing zero bytes. */
export function weightBytes(weight: number): number[] {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, weight);
  const rounded = view.getFloat32(0);
  if (!(rounded > 0 && rounded < Infinity)) throw new RangeError(`a weight is positive and finite, not ${weight}`);
  const out = [...new Uint8Array(view.buffer)];
  while (out.length > 1 && out[out.length - 1] === 0) out.pop();
  return out;
}

export function readWeight(bytes: Uint8Array): number {
  const view = new DataView(new ArrayBuffer(4));
  bytes.forEach((byte, i) => view.setUint8(i, byte));
  const weight = view.getFloat32(0);
  if (!(weight > 0 && weight < Infinity) || bytes[bytes.length - 1] === 0) {
    throw new Refused("weight", `weight: got ${weight} in ${bytes.length} bytes, expected a positive finite one in the fewest bytes`);
  }
  return weight;
}

function code(codes: Record<string, number>, name: string): number {
  if (codes[name] === undefined) throw new RangeError(`${name} is none of ${Object.keys(codes).join(", ")}`);
  return codes[name];
}

function named(codes: Record<string, number>, number: number, field: string): string {
  const name = Object.keys(codes).find((key) => codes[key] === number);
  if (name === undefined) throw new Refused(field, `${field}: unknown code ${number}`);
  return name;
}
