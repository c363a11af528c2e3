/** Short frames and sessions: what comes back, and what is refused. */
import assert from "node:assert/strict";
import { it } from "node:test";

import { crc16, decodeShort, encodeShort, Key, loadCheckpoint, Refused, Replica, ServerOptimizer, Session } from "../desketch.mjs";
import { hex } from "./vectors.mjs";

const key = Key.fromSeed(3).foldIn("round", 300);
const header = { run: 9, round: 300, family: "srht", d: 500, b: 11, codec: "f32", kind: "update", key };
const values = Float32Array.from({ length: 11 }, (_, i) => i - 5);
const never = () => assert.fail("no randomness is needed");
const refusal = (field) => (error) => error instanceof Refused && error.field === field;

it("CRC-16 of the digits 1 to 9", () => assert.equal(crc16(new TextEncoder().encode("123456789")), 0x29b1));

it("a short frame says what the full one does, and a weight only where it must", () => {
  for (const [weight, agreed, extra] of [[1, 1, 0], [72, 72, 0], [72, 1, 2], [0.1, 1, 4]]) {
    const frame = encodeShort(values, header, weight, agreed, never);
    assert.equal(frame.length, 2 + extra + 44);
    const back = decodeShort(frame, header, agreed);
    assert.equal(back.weight, Math.fround(weight));
    assert.equal(hex(back.values), hex(values));
  }
});

it("a short frame of anything else is refused, and so is every changed bit", () => {
  const frame = encodeShort(values, header, 1, 1, never);
  for (const change of [{ run: 8 }, { d: 501 }, { family: "ams" }, { kind: "broadcast" }, { key: Key.fromSeed(4) }, { round: 301 }]) {
    assert.throws(() => decodeShort(frame, { ...header, ...change }, 1), refusal("check"));
  }
  assert.throws(() => decodeShort(frame, header, 72), refusal("check"));
  for (let bit = 0; bit < 8 * frame.length; bit++) {
    const changed = frame.slice();
    changed[bit >> 3] ^= 1 << (bit & 7);
    assert.throws(() => decodeShort(changed, header, 1), Refused);
  }
  for (let n = 0; n < frame.length; n++) assert.throws(() => decodeShort(frame.subarray(0, n), header, 1), Refused);
});

it("a long payload has a check of four bytes", () => {
  const long = { ...header, d: 5000, b: 1024 };
  const frame = encodeShort(new Float32Array(1024), long, 1, 1, never);
  assert.equal(frame.length, 4 + 4096);
  assert.equal(decodeShort(frame, long, 1).values.length, 1024);
});

it("the first thing that is wrong with a short frame is named", () => {
  const frame = encodeShort(values, header, 1, 1, never);
  const weighed = (...weight) => Uint8Array.of(...frame.subarray(0, 2), ...weight, ...frame.subarray(2));
  const cases = [
    ["frame length", frame.subarray(0, 1)],
    ["payload length", frame.subarray(0, 2)],
    ["payload length", frame.subarray(0, frame.length - 1)],
    ["payload length", weighed(0x42, 0x90, 0, 0, 0)],
    ["weight", weighed(0x42, 0)],
    ["weight", weighed(0xbf)],
    ["weight", weighed(0x3f, 0x80)], // the agreed one
    ["check", weighed(0x42, 0x90)],
  ];
  for (const [field, bytes] of cases) assert.throws(() => decodeShort(bytes, header, 1), refusal(field));
  const long = { ...header, d: 5000, b: 1024 };
  assert.throws(() => decodeShort(new Uint8Array(3), long, 1), refusal("frame length"));
});

/** A checkpoint as a server would write it, with changes. */
function checkpoint({ w = new Float32Array(100).fill(0.5), name = "sgd", auto = null, version = 3 } = {}) {
  const state = { version, w: { $tensor: "w" }, optimizer: { name, t: 3, eta: 0.5, unit: 0, auto, tensors: {} } };
  const entry = { dtype: "F32", shape: [w.length], data_offsets: [0, w.byteLength] };
  const text = new TextEncoder().encode(JSON.stringify({ __metadata__: { state: JSON.stringify(state) }, w: entry }));
  const out = new Uint8Array(8 + text.length + w.byteLength);
  new DataView(out.buffer).setBigUint64(0, BigInt(text.length), true);
  out.set(text, 8);
  out.set(new Uint8Array(w.buffer), 8 + text.length);
  return out;
}

const replica = () => {
  const wire = { run: 1, key, family: "srht", d: 100, b: 10, down: "sign1" };
  return new Replica(new Float32Array(100), wire, new ServerOptimizer("sgd", 0.5, 0));
};

it("a checkpoint replaces a replica, also a broken one", () => {
  const R = replica();
  R.broken = "by a test";
  loadCheckpoint(R, checkpoint());
  assert.deepEqual([R.version, R.w[99], R.broken, R.optimizer.t], [3, 0.5, undefined, 3]);
});

it("a checkpoint of another model, with NaN in it, or garbage leaves the replica as it was", () => {
  const bad = [
    checkpoint({ w: new Float32Array(99) }),
    checkpoint({ w: new Float32Array(100).fill(NaN) }),
    checkpoint({ w: new Float32Array(100).fill(2e30) }),
    checkpoint({ name: "adam" }),
    checkpoint({ auto: { eta: 1, bound: null } }),
    checkpoint({ version: -1 }),
    checkpoint().subarray(0, 200),
    new Uint8Array(0),
    new Uint8Array(50).fill(255),
    Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 0, 123, 125),
  ];
  for (const blob of bad) {
    const R = replica();
    const before = R.digest();
    assert.throws(() => loadCheckpoint(R, blob), refusal("checkpoint"));
    assert.deepEqual([R.version, R.digest()], [0, before]);
  }
});

it("garbage in place of an order is refused, and a short order of an unknown run is answered so", () => {
  const session = new Session({ client: 0, token: new Uint8Array(16), join: never, now: () => 0 });
  for (const bytes of [Uint8Array.of(0xde), new Uint8Array(40).fill(0xde)]) assert.throws(() => session.answer(bytes), Refused);
  assert.deepEqual([...session.answer(Uint8Array.of(0x61, 7, 1, 2))], [0x73, 7]);
});
