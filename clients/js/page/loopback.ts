/** The page on a server inside the tab: what tests look at; nothing leaves the tab. */

import { Client } from "../src/client.ts";
import { decode, encode, runId } from "../src/frame.ts";
import { Key } from "../src/key.ts";
import { ServerOptimizer } from "../src/optimizers.ts";
import { headerOf, Replica } from "../src/replica.ts";
import { dimension, networkOf } from "../src/train.ts";
import { show, type State } from "./view.ts";

const network = networkOf("mlp:32", 64, 10);
const d = dimension(network);
const wire = { run: runId("loopback"), key: Key.fromSeed(7), family: "srht", d, b: Math.ceil(d / 30), down: "sign1" };
const rounds = 60;
const numbers = (seed: number, n: number) => Float32Array.from(Key.fromSeed(seed).stream(0).words(n), (w) => w / 2 ** 32 - 0.5);

function examples(seed: number) {
  const centres = numbers(99, 640);
  const noise = numbers(seed, 300 * 64);
  const y = Uint8Array.from({ length: 300 }, (_, i) => i % 10);
  return { x: noise.map((v, i) => 2 * v + centres[64 * y[Math.floor(i / 64)] + (i % 64)]), y };
}
const replica = () => new Replica(numbers(1, d).map((v) => v / 4), wire, new ServerOptimizer("momentum", "auto", 0.5));
const client = (seed: number) => new Client(replica(), { network, examples: examples(seed), work: { steps: 20, eta: 0.1, batch: 32 }, up: "sign1", own: Key.fromSeed(seed), random: Math.random });
const [mine, other] = [client(11), client(12)];
const state: State = { phase: "training", message: "", round: 0, rounds, d, losses: [], sent: 0, received: 0, updates: 0, digest: "", expected: "" };
const spoil = new URLSearchParams(location.search).get("spoil");
function round(t: number): void {
  try {
    const frames = [mine.update(), other.update()];
    state.sent += frames[0].length;
    const mean = new Float32Array(wire.b);
    for (const f of frames) decode(f, { ...headerOf(wire, t), kind: "update" }).values.forEach((v, k) => (mean[k] += v / 2));
    const frame = encode(mean, headerOf(wire, t), 1, Math.random);
    other.replica.apply(t, frame);
    if (spoil && t === 12) frame[30] ^= 255;
    mine.replica.apply(t, frame);
    Object.assign(state, { round: t, received: state.received + frame.length, updates: t, digest: mine.replica.digest(), expected: other.replica.digest(), phase: t === rounds ? "done" : "training" });
    state.losses.push({ round: t, loss: mine.loss });
    show(state);
    if (t < rounds) setTimeout(round, 0, t + 1);
  } catch (error) {
    Object.assign(state, { phase: "stopped", message: String((error as Error).message) });
    show(state);
  }
}
show(state);
setTimeout(round, 0, 1);
