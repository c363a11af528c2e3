/** Public keys: 16 bytes from a seed, and a child for every step of a path (sketch spec v1, "Keys"). */

import { Stream } from "./philox.ts";
import { sha256 } from "./sha256.ts";

export type Step = number | bigint | string;

const UTF8 = new TextEncoder();
const DOMAIN = UTF8.encode("desketch key v1\0");
const FINGERPRINT = UTF8.encode("fingerprint");

export class Key {
  constructor(readonly bits: Uint8Array) {
    if (bits.length !== 16) throw new RangeError(`a key has 16 bytes, not ${bits.length}`);
  }

  static fromSeed(seed: number | bigint | Uint8Array): Key {
    const given = seed instanceof Uint8Array ? tagged("b", seed) : step(integer(seed));
    return new Key(digest(new Uint8Array(0), given));
  }

  static fromHex(text: string): Key {
    if (!/^[0-9a-f]{32}$/i.test(text)) throw new RangeError(`a key is 32 hex digits, not ${JSON.stringify(text)}`);
    return new Key(Uint8Array.from({ length: 16 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16)));
  }

  foldIn(...path: Step[]): Key {
    return path.reduce<Key>((key, x) => new Key(digest(key.bits, step(x))), this);
  }

  /** The four bytes by which a frame names its key. */
  get fingerprint(): number {
    const hash = sha256(DOMAIN, Uint8Array.of(16), this.bits, FINGERPRINT);
    return new DataView(hash.buffer).getUint32(0, true);
  }

  stream(number: number): Stream {
    return new Stream(this.bits, number);
  }
}

function digest(parent: Uint8Array, given: Uint8Array): Uint8Array {
  return sha256(DOMAIN, Uint8Array.of(parent.length), parent, given).slice(0, 16);
}

function step(x: Step): Uint8Array {
  if (typeof x !== "string") return tagged("i", twosComplement(integer(x)));
  if (/\p{Surrogate}/u.test(x)) throw new RangeError("a step of a path is Unicode text, without lone surrogates");
  return tagged("s", UTF8.encode(x));
}

function tagged(tag: string, body: Uint8Array): Uint8Array {
  const out = new Uint8Array(9 + body.length);
  out[0] = tag.charCodeAt(0);
  new DataView(out.buffer).setBigUint64(1, BigInt(body.length), true);
  out.set(body, 9);
  return out;
}

function integer(x: number | bigint): bigint {
  if (typeof x === "number" && !Number.isSafeInteger(x)) throw new RangeError(`${x} is no exact integer; give a BigInt`);
  return BigInt(x);
}

/** Little-endian, ⌊L/8⌋ + 1 bytes where L is the number of bits of |x|. */
function twosComplement(x: bigint): Uint8Array {
  const magnitude = x < 0n ? -x : x;
  const length = magnitude === 0n ? 0 : magnitude.toString(2).length;
  const out = new Uint8Array(Math.floor(length / 8) + 1);
  let rest = BigInt.asUintN(8 * out.length, x);
  for (let i = 0; i < out.length; i++, rest >>= 8n) out[i] = Number(rest & 255n);
  return out;
}
