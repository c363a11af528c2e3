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
