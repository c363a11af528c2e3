/** Frame spec v2 against tests/vectors/wire.json. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { CODECS, crc32, decode, encode, Key, pack, Refused, Rotation, runId, sha256, unpack } from "../desketch.mjs";
import { bytes, drawsOf, hex, read } from "./vectors.mjs";

const CASES = read("wire").map(({ header, frame, ...rest }) => ({
  header: { ...header, key: Key.fromHex(header.key) },
  frame: bytes(frame),
  ...rest,
}));
const VALUES = Float32Array.from(CASES[0].values);
const never = () => assert.fail("no randomness is needed");

/** Numbers in [0, 1) that follow from a seed, for tests alone. */
function random(seed) {
  const words = Key.fromSeed(seed).stream(0).words(1 << 16);
  let i = 0;
  return () => words[i++] / 2 ** 32;
}

/** These numbers, one after the other. */
const draws = (...numbers) => () => numbers.shift();

const TRELLIS = ["trellis1", "trellis2", "trellis3"];
const ROTATED = ["sign1", ...TRELLIS];

/** The sign of a zero is not specified. */
const unsigned = (values) => values.map((v) => v + 0);

const refusal = (field) => (error) => error instanceof Refused && error.field === field;

describe("vectors", () => {
  for (const { header, frame, decoded, payload } of CASES) {
    it(`${header.codec} ${header.family} decodes to the numbers of the vector`, () => {
      const parsed = unpack(frame);
      assert.equal(parsed.length, frame.length);
      assert.equal(parsed.header.weight, header.weight);
      if (payload !== undefined) assert.equal(hex(parsed.payload), payload);
      else assert.deepEqual(unsigned(decode(frame, header).values), unsigned(Float32Array.from(decoded)));
    });

    it(`${header.codec} ${header.family} has one encoding`, () => {
      assert.equal(hex(pack(header, header.weight, unpack(frame).payload)), hex(frame));
    });
  }
});

it("f32, f16, sign1 and the trellis codes encode to the frames of the vectors, given what the sender draws", () => {
  for (const { header, frame, rounding } of CASES.filter(({ header: { codec } }) => !["int8", "int4", "opaque"].includes(codec))) {
    const drawn = ROTATED.includes(header.codec) ? drawsOf(header.codec, bytes(rounding)) : never;
    assert.equal(hex(encode(VALUES, header, header.weight, drawn)), hex(frame));
  }
});

it("integers are rounded up or down, and right on average", () => {
  for (const codec of ["int8", "int4"]) {
    const header = { ...CASES[0].header, codec };
    const draws = random(5);
    const scale = codec === "int8" ? 3.5 / 127 : 3.5 / 7;
    const mean = new Float64Array(VALUES.length);
    for (let i = 0; i < 2000; i++) {
      const { values } = decode(encode(VALUES, header, 1, draws), header);
      values.forEach((v, k) => {
        assert.ok(Math.abs(v - VALUES[k]) <= 1.01 * scale);
        mean[k] += v / 2000;
      });
    }
    mean.forEach((m, k) => assert.ok(Math.abs(m - VALUES[k]) < (5 * 0.51 * scale) / Math.sqrt(2000)));
  }
});

it("what is encoded decodes again, at every edge of float32", () => {
  const edges = [3.4028234663852886e38, -3.4e38, 1.2e-38, -1e-45, 0, 1, -65504, 3.3895313892515355e38];
  for (const codec of Object.keys(CODECS)) {
    for (const edge of edges) {
      const x = ROTATED.includes(codec) ? edge / 2 ** 8 : edge; // a rotated number may be larger than all it came from
      for (const b of [1, 3, 8, 257]) {
        const header = { ...CASES[0].header, codec, b };
        const values = Float32Array.from({ length: b }, (_, i) => (i % 3 ? x : -x / 3));
        const { weight, values: back } = decode(encode(values, header, 0.1, random(b)), header);
        assert.equal(weight, Math.fround(0.1));
        assert.ok(back.every(Number.isFinite));
        if (codec === "f32") assert.equal(hex(back), hex(values));
      }
    }
  }
});

/** Nearly Gaussian numbers. */
function gaussian(b, seed) {
  const words = Key.fromSeed(seed).stream(0).words(12 * b);
  return Float32Array.from({ length: b }, (_, i) => words.subarray(12 * i, 12 * i + 12).reduce((sum, word) => sum + word / 2 ** 32, -6));
}

it("a trellis code keeps its share of the energy, and its projection is the vector's own length", () => {
  [0.72, 0.46, 0.34].forEach((share, i) => {
    const header = { ...CASES[0].header, codec: TRELLIS[i], b: 6149 };
    const values = gaussian(header.b, 3);
    const { values: back } = decode(encode(values, header, 1, random(4)), header);
    const [squares, along, length] = [[values, values], [values, back], [back, back]].map(([x, y]) => x.reduce((sum, v, k) => sum + v * y[k], 0));
    assert.ok(Math.abs(along ** 2 / (squares * length) - share) < 0.02, `${along ** 2 / (squares * length)}`);
    assert.ok(Math.abs(Math.log2(along / squares)) < 0.251); // a step of the scale
  });
});

it("a trellis code finds the bits of Python on several circles too", () => {
  const digests = { trellis1: "f03e0d8e2b578d68", trellis2: "4abe4bbd6dd9c15b", trellis3: "a5cde86ff79dbe11" }; // of Python's payloads
  for (const [codec, digest] of Object.entries(digests)) {
    const header = { ...CASES[0].header, codec, b: 6149 };
    const values = Float32Array.from({ length: header.b }, (_, i) => ((i * i) % 101 - 50) / 8);
    const { payload } = unpack(encode(values, header, 1, draws(7 / 64, 0.5)));
    assert.equal(hex(sha256(payload)).slice(0, 16), digest);
  }
});

it("a trellis payload is refused by name: a scale beyond float32, then padding, then a product", () => {
  for (const [i, codec] of TRELLIS.entries()) {
    const header = { ...CASES[0].header, codec };
    const payload = (code, last) => {
      const out = new Uint8Array(CODECS[codec].size(header.b));
      out.set([(code << 6) & 255, code >> 2]);
      out[out.length - 1] |= last;
      return pack(header, 1, out);
    };
    const padding = 1 << Math.ceil(header.b / (i + 1)) % 8;
    assert.throws(() => decode(payload(1016, padding), header), refusal("scale"));
    assert.throws(() => decode(payload(1015, padding), header), refusal("payload"));
    assert.throws(() => decode(payload(1015, 0), header), refusal("scale"));
    assert.ok(decode(payload(0, 1), header).values.every((v) => v === 0));
    assert.ok(decode(payload(1, 1), header).values.some((v) => v !== 0));
  }
});

it("what is too little for a scale is sent as nothing, mostly", () => {
  for (const codec of TRELLIS) {
    const header = { ...CASES[0].header, codec };
    const payload = (x, up) => unpack(encode(VALUES.map(() => x), header, 1, draws(0.5, up))).payload;
    for (const [x, up] of [[0, 0], [1e-40, 0.01]]) assert.ok(payload(x, up).every((byte) => byte === 0));
    assert.deepEqual([...payload(1e-40, 0).subarray(0, 2)], [32 + 64, 0]);
  }
});

it("the scale of a trellis code is right on average", () => {
  for (const codec of TRELLIS) {
    const header = { ...CASES[0].header, codec, b: 200 };
    const values = gaussian(header.b, 6);
    const along = (up) => decode(encode(values, header, 1, draws(0.5, up)), header).values.reduce((sum, v, k) => sum + v * values[k], 0);
    const squares = values.reduce((sum, v) => sum + v * v, 0);
    let mean = 0;
    for (let i = 0; i < 64; i++) mean += along((i + 0.5) / 64) / 64;
    assert.ok(Math.abs(mean / squares - 1) < 0.003, `${mean / squares}`);
  }
});

it("Q is a rotation, and its transpose is its inverse", () => {
  for (const b of [1, 2, 5, 11, 84, 1696]) {
    const Q = new Rotation(b, Key.fromSeed(1), "update", 77);
    const v = Float32Array.from({ length: b }, (_, i) => Math.sin(i + 1));
    const back = Q.transpose(Q.apply(v));
    assert.ok(back.every((x, i) => Math.abs(x - v[i]) < 1e-5));
  }
});

it("the first field that is wrong is named", () => {
  const { header, frame } = CASES[0];
  const wrong = { run: 1, round: 8, kind: "peer", codec: "f16", family: "ams", d: 51001, b: 12, key: Key.fromSeed(1) };
  const fields = Object.keys(wrong);
  fields.forEach((field, i) => {
    const all = Object.fromEntries(fields.slice(i).map((name) => [name, wrong[name]]));
    assert.throws(() => decode(frame, { ...header, ...all }), refusal(field));
  });
});

it("every changed bit is refused, and so is every cut and every byte too many", () => {
  for (const { header, frame } of CASES.filter(({ header }) => header.codec !== "opaque")) {
    for (let bit = 0; bit < 8 * frame.length; bit++) {
      const changed = frame.slice();
      changed[bit >> 3] ^= 1 << (bit & 7);
      assert.throws(() => decode(changed, header), Refused);
    }
    for (let n = 0; n < frame.length; n++) assert.throws(() => decode(frame.subarray(0, n), header), Refused);
    assert.throws(() => decode(Uint8Array.of(...frame, 0), header), refusal("payload length"));
  }
});

it("never sends what is not finite, nor a weight that is none", () => {
  const { header } = CASES[0];
  for (const x of [NaN, Infinity]) assert.throws(() => encode(VALUES.with(0, x), header, 1, never), RangeError);
  for (const weight of [0, -1, NaN, Infinity, 1e-60]) assert.throws(() => encode(VALUES, header, weight, never), RangeError);
});

it("run ids and checksums", () => {
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
  assert.ok(Number.isInteger(runId("größe")));
});
