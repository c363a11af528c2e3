/** Replica spec v1 against tests/vectors/replica.json. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { CODECS, encode, encodeShort, headerOf, Key, Refused, Replica, round16, ServerOptimizer } from "../desketch.mjs";
import { bytes, floats, hex, read } from "./vectors.mjs";

const CASES = read("replica");

const replicaOf = ({ server_optimizer, eta_global, beta, w0, key, codec, ...wire }) =>
  new Replica(floats(w0), { ...wire, down: codec, bits: Math.min(1, CODECS[codec].bits), key: Key.fromHex(key) }, new ServerOptimizer(server_optimizer, eta_global, beta));

/** A number as C writes it in %a. */
function fromHexFloat(text) {
  const [, whole, fraction, exponent] = /^0x([01])\.([0-9a-f]*)p([+-]\d+)$/.exec(text);
  return (Number(whole) + parseInt(fraction || "0", 16) / 16 ** fraction.length) * 2 ** Number(exponent);
}

describe("a replica holds the same bits after every round", () => {
  for (const given of CASES) {
    it(`${given.server_optimizer}, eta ${given.eta_global}, ${given.family}, ${given.codec}, ${given.tiny} tiny`, () => {
      const replica = replicaOf(given);
      given.rounds.forEach(({ broadcast, w, eta, digest }, i) => {
        replica.apply(i + 1, broadcast === null ? undefined : bytes(broadcast));
        assert.equal(replica.optimizer.eta, fromHexFloat(eta));
        assert.equal(hex(replica.w), w);
        assert.equal(replica.digest(), digest);
        assert.equal(replica.version, i + 1);
      });
    });
  }
});

it("a frame of another round, run or key leaves the replica as it was", () => {
  const replica = replicaOf(CASES[6]);
  const before = replica.digest();
  const frame = bytes(CASES[6].rounds[0].broadcast);
  for (let i = 0; i < frame.length; i++) {
    const changed = frame.slice();
    changed[i] ^= 1;
    assert.throws(() => replica.apply(1, changed), Refused);
  }
  assert.throws(() => replicaOf({ ...CASES[6], run: 78 }).apply(1, frame), Refused);
  assert.throws(() => replica.apply(2, frame), Refused);
  assert.equal(replica.digest(), before);
  replica.apply(1, frame);
  assert.equal(replica.digest(), CASES[6].rounds[0].digest);
});

it("a short frame is told from a full one whatever its first byte is", () => {
  const given = { ...CASES[6], codec: "f32" };
  const first = new Set();
  for (let i = 0; first.size < 256; i++) {
    const [short, full] = [replicaOf(given), replicaOf(given)];
    const values = new Float32Array(20).fill(i);
    const frame = encodeShort(values, headerOf(short.wire, 1), 1, 1, Math.random);
    first.add(frame[0]);
    short.apply(1, frame);
    full.apply(1, encode(values, headerOf(full.wire, 1), 1, Math.random));
    assert.equal(short.digest(), full.digest());
  }
});

it("a broadcast that takes w out of range breaks the replica for good", () => {
  for (const given of CASES.filter(({ codec, eta_global }) => codec === "f32" || eta_global === "auto")) {
    const replica = replicaOf({ ...given, codec: "f32", eta_global: 1e6, server_optimizer: "sgd" });
    const huge = encode(new Float32Array(20).fill(1e32), headerOf(replica.wire, 1), 1, Math.random, given.tiny ? [0] : []);
    assert.throws(() => replica.apply(1, huge), (error) => error instanceof Refused && error.field === "replica");
    assert.equal(replica.version, 0);
    assert.throws(() => replica.apply(1, bytes(given.rounds[0].broadcast)), /beyond/);
  }
});

it("round16 keeps 16 significant bits, ties to even", () => {
  assert.equal(round16(65536 + 1), 65536);
  assert.equal(round16(65536 + 3), 65540);
  assert.equal(round16(-(65536 + 3)), -65540);
  assert.equal(round16(65537 * 2 ** -1060), 65536 * 2 ** -1060);
  assert.equal(round16(131071), 131072);
  for (const x of [0, 1, -0.5, 65535, Infinity]) assert.equal(round16(x), x);
  assert.ok(Number.isNaN(round16(NaN)));
});
