/** Short frames: a message inside a session, without what both ends know (frame spec v2, "Short frames"). */

import { concat, crc16, crc32, uint32 } from "./bytes.ts";
import { type Random } from "./codecs.ts";
import { Refused } from "./errors.ts";
import { type Expected, head, type Numbers, payloadOf, payloadSize, readPayload, readWeight, weightBytes } from "./frame.ts";

const FLAG = 0x50;
const LONG_CHECK = 8;
const WEIGHT = 4;
const LONG_FROM = 4096; // bytes of payload from which the check has four bytes

/** A short frame of these numbers; the weight travels only if it is not the agreed one. */
export function encodeShort(
  values: Float32Array, expected: Expected, weight: number, agreed: number, random: Random, extra: number[] = [],
): Uint8Array {
  return packShort(expected, weight, agreed, payloadOf({ values, extra }, expected, random));
}

/** A short frame of this payload. */
export function packShort(expected: Expected, weight: number, agreed: number, payload: Uint8Array): Uint8Array {
  const weighed = Math.fround(weight) === Math.fround(agreed) ? [] : weightBytes(weight);
  const long = payload.length >= LONG_FROM ? LONG_CHECK : 0;
  const flag = FLAG | long | (weighed.length > 0 ? WEIGHT | (weighed.length - 1) : 0);
  return concat([flag, expected.round % 256, ...check(expected, weight, payload)], weighed, payload);
}

/** The numbers and the weight of a short frame that must be what is expected. */
export function decodeShort(bytes: Uint8Array, expected: Expected, agreed: number): { weight: number } & Numbers {
  if (bytes.length < 2) throw new Refused("frame length", `frame length: ${bytes.length} bytes do not hold a frame`);
  const flag = bytes[0];
  const sent = (flag & WEIGHT) !== 0;
  if (flag >> 4 !== FLAG >> 4 || (!sent && flag & 3)) throw new Refused("flag", `flag: got ${flag}; this is no short frame`);
  if (bytes[1] !== expected.round % 256) {
    throw new Refused("round", `round: got one that ends in ${bytes[1]}, expected ${expected.round}`);
  }
  const long = (flag & LONG_CHECK) !== 0;
  const at = long ? 6 : 4;
  const length = sent ? (flag & 3) + 1 : 0;
  if (bytes.length < at + length) throw cutShort(sent ? "weight" : "frame length");
  const weight = sent ? readWeight(bytes.subarray(at, at + length)) : agreed;
  const payload = bytes.subarray(at + length);
  const size = payloadSize(expected);
  if (payload.length !== size) throw new Refused("payload length", `payload length: got ${payload.length} bytes, expected ${size}`);
  if (long !== payload.length >= LONG_FROM) throw new Refused("flag", "flag: a check of another size");
  if (sent && weight === Math.fround(agreed)) throw new Refused("weight", "weight: sent though it is the agreed one");
  const right = check(expected, weight, payload);
  if (right.some((byte, i) => bytes[2 + i] !== byte)) {
    throw new Refused("check", "check: damaged on the way, or of another run, key, round, d, b, codec, kind or weight");
  }
  return { weight, ...readPayload(payload, expected) };
}

const cutShort = (field: string): Refused => new Refused(field, `${field}: cut short`);

/** The check of the full frame that would say the same. */
function check(expected: Expected, weight: number, payload: Uint8Array): number[] {
  const full = concat(head(expected, weight, payload.length), payload);
  if (payload.length >= LONG_FROM) return uint32(crc32(full));
  const crc = crc16(full);
  return [crc & 255, crc >> 8];
}
