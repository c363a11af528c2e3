/**
 * A trellis code: V numbers a bit, those that a public table has for the last ten bits (frame spec v2, "The whole numbers
 * of a trellis code").
 *
 * Everything is in whole numbers, so the search finds the bits that Python finds.
 */

import { roundEven } from "./half.ts";
import { Key } from "./key.ts";

const MEMORY = 10; // bits of a state, the newest on top
const STATES = 1 << MEMORY;
const HALF = STATES / 2;
const CIRCLE = 2048; // bits that go in a circle of their own, at most
const AHEAD = 40; // steps on either side of the seam from which a search knows where to cross it
const UNITS: Record<number, number> = { 1: 43, 2: 52, 3: 61 };
const LARGEST = 1023;
const FAR = 2 ** 28; // more than any path can cost beside another

const tables = new Map<number, Int32Array[]>();

/** The table of a rate, column by column: number v of row r is table[v][r]. */
function table(V: number): Int32Array[] {
  let found = tables.get(V);
  if (found === undefined) {
    const words = Key.fromSeed(0).foldIn("trellis", V).stream(0).words(STATES * V);
    const column = (v: number): Int32Array => Int32Array.from({ length: STATES }, (_, r) => odd(words[V * r + v]));
    found = Array.from({ length: V }, (_, v) => column(v));
    tables.set(V, found);
  }
  return found;
}

/** From a word to an odd number, nearly Gaussian over all words: its four bytes are added. */
function odd(word: number): number {
  const sum = (word & 255) + ((word >>> 8) & 255) + ((word >>> 16) & 255) + (word >>> 24);
  return 2 * (sum >> 3) - 127;
}

/** The b whole numbers that packed bits stand for, low bit of a byte first. */
export function vectors(bits: Uint8Array, b: number, V: number): Float32Array {
  const T = Math.ceil(b / V);
  const out = new Float32Array(T * V);
  for (let start = 0; start < T; start += CIRCLE) {
    const n = Math.min(CIRCLE, T - start);
    const bit = (i: number): number => (bits[(start + i) >> 3] >> ((start + i) & 7)) & 1;
    statesOf(n, bit).forEach((state, i) => table(V).forEach((column, v) => (out[V * (start + i) + v] = column[state])));
  }
  return out.subarray(0, b);
}

/** The states of a circle of n bits. */
function statesOf(n: number, bit: (i: number) => number): Uint16Array {
  const states = new Uint16Array(n);
  let state = 0;
  for (let i = -MEMORY; i < n; i++) {
    state = (state >> 1) | (bit(around(i, n)) << (MEMORY - 1));
    if (i >= 0) states[i] = state;
  }
  return states;
}

const around = (i: number, n: number): number => ((i % n) + n) % n;

/** Packed bits of the vector nearest to x but for its length. */
export function nearest(x: Float32Array, V: number): Uint8Array {
  const T = Math.ceil(x.length / V);
  const goals = goalsOf(x, T, V);
  const bits = new Uint8Array(Math.ceil(T / 8));
  for (let start = 0; start < T; start += CIRCLE) {
    const circle = goals.subarray(V * start, V * Math.min(start + CIRCLE, T));
    const found = circle.length < V * MEMORY ? bestWord(circle, V) : closedPath(circle, V);
    found.forEach((bit, i) => (bits[(start + i) >> 3] |= bit << ((start + i) & 7)));
  }
  return bits;
}

/** The numbers on the table's scale, V for each of T bits. */
function goalsOf(x: Float32Array, T: number, V: number): Int32Array {
  const goals = new Int32Array(T * V);
  const rms = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length);
  if (rms === 0) return goals;
  x.forEach((v, i) => (goals[i] = Math.max(-LARGEST, Math.min(LARGEST, roundEven((v * UNITS[V]) / rms)))));
  return goals;
}

/** The bits of a circle: where the best path crosses the seam first, then the best one that closes there. */
function closedPath(goals: Int32Array, V: number): number[] {
  const near = new Int32Array(2 * AHEAD * V).map((_, i) => goals[around(i - AHEAD * V, goals.length)]);
  const seam = bestPath(near, V)[AHEAD - 1];
  return Array.from(bestPath(goals, V, seam), (state) => state >> (MEMORY - 1));
}

/** Viterbi: the states of the path of least Σ |row of state - goal|², from `seam` to `seam` if given. */
function bestPath(goals: Int32Array, V: number, seam?: number): Uint16Array {
  const T = goals.length / V;
  const second = new Uint8Array(T * HALF); // which of the states 2 j, 2 j + 1 leads on to j and j + 512
  const prices = new Int32Array(STATES);
  let cost = new Int32Array(STATES); // even 2048 steps of the largest goals stay within 31 bits
  let next = new Int32Array(STATES);
  if (seam !== undefined) cost.fill(FAR)[seam] = 0;
  for (let t = 0; t < T; t++) {
    price(prices, goals.subarray(V * t, V * t + V));
    for (let j = 0; j < HALF; j++) {
      const other = (cost[2 * j + 1] - cost[2 * j]) >>> 31; // 1 if the second costs less; a branch would be slow
      const least = cost[2 * j + other];
      second[t * HALF + j] = other;
      next[j] = least + prices[j];
      next[j + HALF] = least + prices[j + HALF];
    }
    [cost, next] = [next, cost];
  }
  return walkBack(second, seam ?? cost.indexOf(Math.min(...cost)));
}

/** What every state costs at one step: |row|² - 2 ⟨row, goal⟩. */
function price(prices: Int32Array, goal: Int32Array): void {
  prices.fill(0);
  table(goal.length).forEach((column, v) => {
    const twice = 2 * goal[v];
    for (let s = 0; s < STATES; s++) prices[s] += column[s] * (column[s] - twice);
  });
}

/** The states of a path, from its last one. */
function walkBack(second: Uint8Array, last: number): Uint16Array {
  const states = new Uint16Array(second.length / HALF);
  let state = last;
  for (let t = states.length - 1; t >= 0; t--) {
    states[t] = state;
    const j = state % HALF;
    state = 2 * j + second[t * HALF + j];
  }
  return states;
}

/** A circle of fewer bits than a state has: the first of all its words whose vector is nearest. */
function bestWord(goals: Int32Array, V: number): number[] {
  const n = goals.length / V;
  const prices = Array.from({ length: n }, (_, i) => {
    const out = new Int32Array(STATES);
    price(out, goals.subarray(V * i, V * i + V));
    return out;
  });
  const costOf = (word: number): number =>
    statesOf(n, (i) => (word >> i) & 1).reduce((sum, state, i) => sum + prices[i][state], 0);
  let best = 0;
  let least = costOf(0);
  for (let word = 1; word < 1 << n; word++) {
    const cost = costOf(word);
    if (cost < least) [best, least] = [word, cost];
  }
  return Array.from({ length: n }, (_, i) => (best >> i) & 1);
}
