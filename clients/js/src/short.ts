/** Short frames: a message inside a session, without what both ends know (frame spec v2, "Short frames"). */

import { concat, crc16, crc32, uint32 } from "./bytes.ts";
import { type Random } from "./codecs.ts";
import { Refused } from "./errors.ts";
import { type Expected, head, type Numbers, payloadOf, payloadSize, readPayload, readWeight, weightBytes } from "./frame.ts";

const LONGEST_CHECK = 4;
const LONGEST_WEIGHT = 4;
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
  return concat(check(expected, weight, payload), weighed, payload);
}

/** Whether these bytes are rather a short frame than a full one: a full one has 20 bytes more than its payload, or more. */
export function isShort(bytes: Uint8Array, expected: Expected): boolean {
  return bytes.length <= payloadSize(expected) + LONGEST_CHECK + LONGEST_WEIGHT;
}

/** The numbers and the weight of a short frame that must be what is expected. */
export function decodeShort(bytes: Uint8Array, expected: Expected, agreed: number): { weight: number } & Numbers {
  const size = payloadSize(expected);
  const at = size >= LONG_FROM ? LONGEST_CHECK : 2;
  if (bytes.length < at) throw new Refused("frame length", `frame length: ${bytes.length} bytes do not hold a check of ${at}`);
  const own = bytes.length - at - size; // what is neither check nor payload is a weight
  if (own < 0 || own > LONGEST_WEIGHT) {
    throw new Refused("payload length", `payload length: got ${bytes.length - at} bytes, expected ${size} and a weight of 0 to 4`);
  }
  const weight = own > 0 ? readWeight(bytes.subarray(at, at + own)) : Math.fround(agreed);
  if (own > 0 && weight === Math.fround(agreed)) throw new Refused("weight", "weight: sent though it is the agreed one");
  const payload = bytes.subarray(at + own);
  if (check(expected, weight, payload).some((byte, i) => bytes[i] !== byte)) {
    throw new Refused("check", "check: damaged on the way, or of another run, key, round, d, b, codec, kind or weight");
  }
  return { weight, ...readPayload(payload, expected) };
}

/** The check of the full frame that would say the same. */
function check(expected: Expected, weight: number, payload: Uint8Array): number[] {
  const full = concat(head(expected, weight, payload.length), payload);
  if (payload.length >= LONG_FROM) return uint32(crc32(full));
  const crc = crc16(full);
  return [crc & 255, crc >> 8];
}
