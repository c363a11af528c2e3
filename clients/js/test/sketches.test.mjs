/** Sketch spec v1 against tests/vectors/sketches.json. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";

import { buckets, draw, hadamard, Key, sha256, signBits, subset } from "../desketch.mjs";
import { bytes, floats, hex, read } from "./vectors.mjs";

const vectors = read("sketches");
const DRAWN = vectors.sketches.filter(
  ({ family, options }) => ["srht", "countsketch"].includes(family) && options.transform === undefined,
);

it("SHA-256 is Node's own at every length up to three blocks", () => {
  for (let n = 0; n < 200; n++) {
    const message = Uint8Array.from({ length: n }, (_, i) => 7 * i + n);
    assert.equal(hex(sha256(message)), createHash("sha256").update(message).digest("hex"));
  }
});

it("keys", () => {
  for (const { seed, path, key, fingerprint } of vectors.keys) {
    const drawn = Key.fromSeed(seed.bytes === undefined ? seed : bytes(seed.bytes)).foldIn(...path);
    assert.equal(hex(drawn.bits), key);
    assert.equal(drawn.fingerprint.toString(16).padStart(8, "0"), fingerprint);
  }
});

it("keys refuse what is no integer and no text", () => {
  for (const step of [0.5, 2 ** 53, NaN, "\ud800"]) assert.throws(() => Key.fromSeed(0).foldIn(step), RangeError);
});

it("words", () => {
  for (const { key, stream, start, words } of vectors.words) {
    const drawn = Key.fromHex(key).stream(stream).words(words.length, start);
    assert.deepEqual([...drawn].map((w) => w.toString(16).padStart(8, "0")), words);
  }
});

it("signs", () => {
  for (const { key, table, x, sign } of vectors.signs) {
    const bits = signBits(Key.fromHex(key), table, Math.max(...x) + 1);
    assert.deepEqual(x.map((i) => 1 - 2 * ((bits[i >>> 5] >>> (i & 31)) & 1)), sign);
  }
});

it("buckets", () => {
  for (const { key, table, m, x, bucket } of vectors.buckets) {
    const drawn = buckets(Key.fromHex(key), table, Math.max(...x) + 1, m);
    assert.deepEqual(x.map((i) => drawn[i]), bucket);
  }
});

it("subsets", () => {
  for (const { key, n, b, rows } of vectors.subsets) assert.deepEqual([...subset(Key.fromHex(key), n, b)], rows);
});

describe("sketches", () => {
  assert.equal(DRAWN.length, 11);
  for (const { family, d, b, options, key, f4 } of DRAWN) {
    it(`${family} ${d} ${b} ${JSON.stringify(options)}`, () => {
      const R = draw(family, d, b, Key.fromHex(key), options);
      const g = Float32Array.from({ length: d }, (_, i) => ((5 * i) % 17) - 8);
      const s = Float32Array.from({ length: b }, (_, k) => (k % 2 ? -1 : 1) / (k + 3));
      assert.deepEqual(R.sketch(g), floats(f4.sketch));
      const all = R.desketch(s);
      const kept = [...all.keys()].filter((i) => d <= 200 || i % Math.floor(d / 62) === 0 || i === d - 1);
      assert.equal(hex(Float32Array.from(kept, (i) => all[i])), f4.desketch);
    });
  }
});

it("desketch is the transpose of sketch", () => {
  for (const [family, d, b] of [["srht", 3000, 100], ["srht", 20000, 9000], ["countsketch", 3000, 100]]) {
    const R = draw(family, d, b, Key.fromSeed(3));
    const g = Float32Array.from({ length: d }, (_, i) => Math.sin(i * i));
    const s = Float32Array.from({ length: b }, (_, k) => Math.cos(k * k));
    const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
    const [left, right] = [dot(R.sketch(g), s), dot(g, R.desketch(s))];
    assert.ok(Math.abs(left - right) < 1e-4 * Math.hypot(...s) * Math.hypot(...R.desketch(s)), `${left} ${right}`);
  }
});

it("the transform rounds where plain butterflies round", () => {
  for (let n = 1; n <= 2 ** 16; n *= 2) {
    const x = Float32Array.from({ length: n }, (_, i) => Math.sin(i + 1) * 10 ** (i % 7));
    const plain = x.slice();
    for (let h = 1; h < n; h *= 2) {
      for (let i = 0; i < n; i++) {
        if (i & h) continue;
        [plain[i], plain[i + h]] = [plain[i] + plain[i + h], plain[i] - plain[i + h]];
      }
    }
    hadamard(x);
    assert.equal(hex(x), hex(plain));
  }
});

it("draw refuses what it cannot draw", () => {
  const key = Key.fromSeed(0);
  for (const [family, d, b, options] of [
    ["gaussian", 8, 2, {}],
    ["srht", 8, 9, {}],
    ["srht", 8, 0, {}],
    ["srht", 8.5, 2, {}],
    ["srht", 8, 2, { block: 3 }],
    ["srht", 8, 2, { block: 0 }],
    ["srht", 8, 2, { transform: "fourier" }],
    ["srht", 8, 2, { layout: "block" }],
    ["countsketch", 8, 2, { layout: "other" }],
    ["countsketch", 8, 2, { nnz: 2 }],
  ]) {
    assert.throws(() => draw(family, d, b, key, options), RangeError);
  }
});
