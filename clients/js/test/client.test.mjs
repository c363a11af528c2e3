/** A whole federation in one process: clients, and a server of five lines. */
import assert from "node:assert/strict";
import { it } from "node:test";

import { Client, decode, dimension, encode, headerOf, Key, Learner, localUpdate, networkOf, pack, Refused, Replica, runId, ServerOptimizer } from "../desketch.mjs";

const network = networkOf("mlp:8", 6, 3);
const d = dimension(network);
const wire = { run: runId("test"), key: Key.fromSeed(7), family: "srht", d, b: 24, down: "sign1" };
const numbers = (seed, n) => Float32Array.from(Key.fromSeed(seed).stream(0).words(n), (word) => word / 2 ** 32 - 0.5);

function examples(seed) {
  const x = numbers(seed, 200 * 6);
  const y = Uint8Array.from({ length: 200 }, (_, i) => (x[6 * i] > 0.1 ? 0 : x[6 * i + 1] > 0 ? 1 : 2));
  return { x, y };
}

const replica = () => new Replica(numbers(1, d), wire, new ServerOptimizer("momentum", "auto", 0.5));

function client(seed, changes = {}) {
  const learner = { network, examples: examples(seed), work: { steps: 10, eta: 0.3, batch: 32 }, own: Key.fromSeed(seed), ...changes };
  return new Client(replica(), { participant: new Learner(learner), up: "sign1", random: draws(seed) });
}

function draws(seed) {
  const words = Key.fromSeed(seed).stream(9).words(4096);
  let i = 0;
  return () => words[i++ % words.length] / 2 ** 32;
}

function broadcast(t, frames) {
  const header = headerOf(wire, t);
  const mean = new Float32Array(wire.b);
  for (const frame of frames) {
    decode(frame, { ...header, kind: "update" }).values.forEach((v, k) => (mean[k] += v / frames.length));
  }
  return encode(mean, header, 1, draws(t));
}

it("three clients learn, and their replicas stay equal", () => {
  const clients = [client(11), client(12), client(13)];
  const losses = [];
  for (let t = 1; t <= 60; t++) {
    const frame = broadcast(t, clients.map((c) => c.update()));
    for (const { replica } of clients) replica.apply(t, frame);
    assert.equal(new Set(clients.map(({ replica }) => replica.digest())).size, 1);
    losses.push(clients[0].loss);
  }
  assert.ok(losses.at(-1) < 0.6 * losses[0], `${losses[0]} ${losses.at(-1)}`);
});

it("nothing is sent from a broken replica, nor from local steps that run away", () => {
  const broken = client(11);
  broken.replica.broken = "a test says so";
  assert.throws(() => broken.update(), Refused);
  const wild = client(11, { work: { steps: 200, eta: 1e30, batch: 32 } });
  assert.throws(() => wild.update(), (error) => error instanceof Refused && error.field === "update");
});

it("a model of another size and examples of another shape are refused", () => {
  assert.throws(() => client(11, { network: networkOf("mlp:9", 6, 3) }), Refused);
  const { x, y } = examples(1);
  assert.throws(() => client(11, { examples: { x: x.subarray(1), y } }), RangeError);
  assert.throws(() => client(11, { examples: { x, y: y.with(0, 3) } }), RangeError);
});

it("a client with momentum sends the mean of its updates, and the raw one along the last step", () => {
  const momentum = { ...wire, tiny: 1, down: "f32" };
  const made = () => new Replica(numbers(1, d), momentum, new ServerOptimizer("momentum", "auto", 0));
  const local = { network, examples: examples(5), work: { steps: 3, eta: 0.3 }, own: Key.fromSeed(5) };
  const settings = { participant: new Learner(local), up: "f32", random: draws(5) };
  const [mean, plain] = [new Client(made(), { ...settings, beta: 0.5 }), new Client(made(), settings)];
  const sums = { m: new Float32Array(d), n: 0, t: 0 };
  for (const t of [1, 2, 5]) {
    for (const { replica } of [mean, plain]) replica.version = t - 1;
    const header = { ...headerOf(momentum, t), kind: "update", codec: "f32" };
    const sent = decode(mean.update(), header);
    const { delta } = localUpdate(network, plain.replica.w, local.examples, local.work, Key.fromSeed(5));
    const fade = 0.5 ** (t - sums.t);
    sums.m = sums.m.map((x, i) => x * fade + delta[i]);
    Object.assign(sums, { n: sums.n * fade + 1, t });
    const expected = mean.replica.sketchAt(t).sketch(sums.m.map((x) => x / sums.n));
    sent.values.forEach((value, k) => assert.ok(Math.abs(value - expected[k]) < 1e-4, `${t}: ${value} ${expected[k]}`));
    const s = plain.replica.optimizer.vectors.s;
    const along = s ? (Math.sqrt(d / wire.b) * s.reduce((sum, x, i) => sum + x * delta[i], 0)) / Math.hypot(...s) : 0;
    assert.ok(Math.abs(sent.extra[0] - along) <= 0.126 * Math.abs(along), `${t}: ${sent.extra} ${along}`);
    const frame = encode(sent.values, headerOf(momentum, t), 1, draws(t), sent.extra);
    for (const { replica } of [mean, plain]) replica.apply(t, frame);
  }
  assert.ok(plain.replica.optimizer.vectors.s.some((x) => x !== 0));
});

it("an extra number that is not finite is refused, a large one is held", () => {
  const header = { ...headerOf({ ...wire, tiny: 1, down: "f32" }, 1), extra: 1 };
  const values = new Float32Array(wire.b);
  const back = (extra) => decode(encode(values, header, 1, draws(1), extra), header).extra;
  assert.deepEqual(back([-1e9, -1e9]), [-57344, -65504]);
  for (const extra of [[NaN, 0], [0, NaN]]) assert.throws(() => encode(values, header, 1, draws(1), extra), RangeError);
  for (const [byte, at] of [[0x7c, 0], [0xfd, 0], [0x7c, 2], [0xfc, 2]]) {
    const infinite = pack(header, 1, new Uint8Array(4 * wire.b + 3).fill(byte, 4 * wire.b + at, 4 * wire.b + at + 1));
    assert.throws(() => decode(infinite, header), (error) => error instanceof Refused && error.field === "extra");
  }
});

it("a tiny number has three significant bits, and its ties go to the even byte", () => {
  const header = { ...headerOf({ ...wire, tiny: 1, down: "f32" }, 1) };
  const values = new Float32Array(wire.b);
  const back = (x) => decode(encode(values, header, 1, draws(1), [x]), header).extra[0];
  const nearest = [
    [1, 1], [1.12, 1], [1.125, 1], [1.126, 1.25], [1.375, 1.5], [-1.375, -1.5], [1.9, 2], [57343, 57344], [3e-6, 0], [1e-5, 2 ** -16],
    [1.125 + 2 ** -12, 1], // to 16 bits first, which makes it a tie
  ];
  for (const [x, y] of nearest) assert.equal(back(x), y, `${x}`);
});
