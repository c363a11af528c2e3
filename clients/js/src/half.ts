/** Numbers of 16 bits, and the tiny ones of 8: the upper byte of one of 16 (frame spec v2, "Extra numbers"). */

const LARGEST = 65504;
const LARGEST_TINY = 57344;

export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const e = (bits >>> 10) & 31;
  const fraction = bits & 0x3ff;
  if (e === 31) return fraction ? NaN : sign * Infinity;
  return sign * (e ? (1024 + fraction) * 2 ** (e - 25) : fraction * 2 ** -24);
}

/** The nearest number of 16 bits, ties to even, of |x| < 65520. */
export function toHalf(x: number): number {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(x);
  const e = magnitude < 2 ** -14 ? -14 : exponent(magnitude);
  const steps = roundEven(magnitude * 2 ** (10 - e)); // 1024 and more for normal numbers
  return sign | (((e + 14) << 10) + steps);
}

/** The same of any finite x, held within range. */
export const heldHalf = (x: number): number => toHalf(held(x, LARGEST));

/** The nearest tiny number to x rounded to 16 bits, ties to even, held within range. */
export function toTiny(x: number): number {
  const half = toHalf(held(x, LARGEST_TINY));
  return (half + 0x7f + ((half >> 8) & 1)) >> 8;
}

export const fromTiny = (byte: number): number => fromHalf(byte << 8);

const held = (x: number, most: number): number => Math.min(Math.max(x, -most), most);

/** ⌊log₂ x⌋ of a positive float32. */
export function exponent(x: number): number {
  let e = Math.floor(Math.log2(x));
  while (2 ** e > x) e--;
  while (2 ** (e + 1) <= x) e++;
  return e;
}

/** The nearest whole number, ties to even. */
export function roundEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
}
