/** The vectors of the specification, and their encodings. */
import { readFileSync } from "node:fs";

/** JSON whose integers may be larger than a double holds: those become BigInts. */
export function read(name) {
  const text = readFileSync(new URL(`../../../tests/vectors/${name}.json`, import.meta.url), "utf8");
  const quoted = text.replace(/([[\s,:])(-?\d{16,})(?=[,\]\s}])/g, '$1"#$2"');
  return JSON.parse(quoted, (_, v) => (typeof v === "string" && /^#-?\d+$/.test(v) ? BigInt(v.slice(1)) : v));
}

export const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
export const hex = (array) =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("hex");
export const floats = (text) => new Float32Array(bytes(text).buffer);

/** The numbers in [0, 1) that a sender with this rounding key draws, where a codec needs no more than two: the salt, and how a scale is rounded. */
export function drawsOf(codec, rounding) {
  const salts = codec === "sign1" ? 4096 : 64;
  const [salt, up] = [0, 2].map((i) => rounding[i] | (rounding[i + 1] << 8));
  const drawn = [(salt % salts) / salts, up / 65536];
  return () => drawn.shift();
}
