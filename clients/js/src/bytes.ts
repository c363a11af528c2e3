/** Bytes in and out: a cursor that never reads past the end, varints with one form each, CRC-32. */

import { Refused } from "./errors.ts";

const VARINT_BYTES = 7;
const MOST = 2 ** 48;

/** A cursor over received bytes; a refusal names the field that was being read. */
export class Reader {
  at = 0;
  private readonly view: DataView;

  constructor(readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  get left(): number {
    return this.bytes.length - this.at;
  }

  take(n: number, field: string): Uint8Array {
    if (n > this.left) throw new Refused(field, `${field}: needs ${n} bytes, ${this.left} are left`);
    this.at += n;
    return this.bytes.subarray(this.at - n, this.at);
  }

  byte(field: string): number {
    return this.take(1, field)[0];
  }

  uint32(field: string): number {
    this.take(4, field);
    return this.view.getUint32(this.at - 4, true);
  }

  /** LEB128 in its shortest form, of a number below 2^48. */
  varint(field: string): number {
    let value = 0;
    for (let i = 0; i < VARINT_BYTES; i++) {
      const byte = this.byte(field);
      value += (byte & 0x7f) * 2 ** (7 * i);
      if (byte >= 0x80) continue;
      if (byte === 0 && i > 0) throw new Refused(field, `${field}: a number that is not in its shortest form`);
      if (value >= MOST) throw new Refused(field, `${field}: ${value} is not below 2^48`);
      return value;
    }
    throw new Refused(field, `${field}: a number of more than ${VARINT_BYTES} bytes`);
  }
}

/** A number as a varint. */
export function varint(value: number): number[] {
  if (!Number.isInteger(value) || value < 0 || value >= MOST) {
    throw new RangeError(`a whole number below 2^48 is needed, not ${value}`);
  }
  const out = [];
  for (; value >= 0x80; value = Math.floor(value / 0x80)) out.push((value % 0x80) | 0x80);
  return [...out, value];
}

export function uint32(value: number): number[] {
  return [value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24];
}

export function concat(...parts: ArrayLike<number>[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let c = byte;
  for (let k = 0; k < 8; k++) c = (c >>> 1) ^ (c & 1 ? 0xedb88320 : 0);
  return c;
});

/** CRC-32 of IEEE 802.3, as in zlib. */
export function crc32(bytes: Uint8Array): number {
  let c = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) c = (c >>> 8) ^ CRC_TABLE[(c ^ bytes[i]) & 255];
  return ~c >>> 0;
}

/** CRC-16 with polynomial 0x1021 from 0xFFFF, nothing reflected or inverted. */
export function crc16(bytes: Uint8Array): number {
  let c = 0xffff;
  for (const byte of bytes) {
    c ^= byte << 8;
    for (let k = 0; k < 8; k++) c = c & 0x8000 ? ((c << 1) ^ 0x1021) & 0xffff : c << 1;
  }
  return c;
}
