/** R in ℝ^{b×d}, drawn from a public key: what every family offers. */

import { CountSketch, type CountSketchOptions } from "./countsketch.ts";
import type { Key } from "./key.ts";
import { Srht, type SrhtOptions } from "./srht.ts";

export interface Sketch {
  readonly d: number;
  readonly b: number;
  /** R g. */
  sketch(g: Float32Array): Float32Array;
  /** Rᵀ s, the same bits on every replica. */
  desketch(s: Float32Array): Float32Array;
}

export type Family = "srht" | "countsketch";
export type FamilyOptions = SrhtOptions & CountSketchOptions;

/** The operator of this family, d, b, options and key. */
export function draw(family: string, d: number, b: number, key: Key, options: FamilyOptions = {}): Sketch {
  const whole = Number.isInteger(b) && Number.isInteger(d);
  if (!whole || b < 1 || b > d || d > 2 ** 31) throw new RangeError(`1 <= b <= d <= 2^31, not b = ${b}, d = ${d}`);
  if (family === "srht") return new Srht(d, b, key, only(options, family, ["block", "transform"]));
  if (family === "countsketch") return new CountSketch(d, b, key, only(options, family, ["layout"]));
  throw new RangeError(`this client draws srht and countsketch, not ${family}`);
}

function only(options: FamilyOptions, family: string, known: string[]): FamilyOptions {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new RangeError(`${family} has the options ${known.join(", ")}, not ${name}`);
  }
  return options;
}
