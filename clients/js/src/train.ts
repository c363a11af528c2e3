/**
 * Local work: K steps of gradient descent on a client's own examples, for softmax regression and multilayer networks.
 *
 * u⁰ = w, uᵏ = uᵏ⁻¹ - η ∇f(uᵏ⁻¹), Δ = uᴷ - w; f is the mean cross-entropy of a batch.  w is laid out layer by layer: the matrix (outputs × inputs,
 * row by row), then the bias.  Softmax regression is a network without hidden layers.
 */

import type { Key } from "./key.ts";

export interface Network {
  /** Inputs, hidden widths, classes. */
  widths: number[];
  activation: "relu" | "tanh";
}

/** n examples: x has n × widths[0] numbers, y the class of each. */
export interface Examples {
  x: Float32Array;
  y: Uint8Array;
}

export interface LocalWork {
  steps: number;
  eta: number;
  /** Examples of one step; all of them if undefined. */
  batch?: number;
}

/** The number of parameters. */
export function dimension({ widths }: Network): number {
  return widths.slice(1).reduce((d, width, i) => d + width * (widths[i] + 1), 0);
}

/** Network of a model's name: `softmax`, `mlp:64`, `mlp:64-32`, `mlp-tanh:64`. */
export function networkOf(model: string, inputs: number, classes: number): Network {
  if (model === "softmax") return { widths: [inputs, classes], activation: "relu" };
  const [, tanh, hidden] = /^mlp(-tanh)?:(\d+(?:-\d+)*)$/.exec(model) ?? [];
  const widths = hidden?.split("-").map(Number);
  if (widths === undefined || widths.includes(0)) {
    throw new RangeError(`this client trains softmax, mlp:H and mlp-tanh:H, not ${JSON.stringify(model)}`);
  }
  return { widths: [inputs, ...widths, classes], activation: tanh ? "tanh" : "relu" };
}

/** Mean loss of the examples of `index` and how many are classified right; adds the gradient of the loss to `gradient`. */
export function loss(
  network: Network,
  w: Float32Array,
  { x, y }: Examples,
  index: ArrayLike<number>,
  gradient?: Float64Array,
): { loss: number; correct: number } {
  const layers = network.widths.map((width) => new Float64Array(width));
  let sum = 0;
  let correct = 0;
  for (let n = 0; n < index.length; n++) {
    const inputs = network.widths[0];
    layers[0].set(x.subarray(index[n] * inputs, (index[n] + 1) * inputs));
    forward(network, w, layers);
    const scores = layers[layers.length - 1];
    const label = y[index[n]];
    const top = Math.max(...scores);
    if (scores[label] === top) correct++;
    let total = 0;
    for (let k = 0; k < scores.length; k++) total += Math.exp(scores[k] - top);
    sum += Math.log(total) + top - scores[label];
    if (gradient === undefined) continue;
    const error = scores.map((s, k) => (Math.exp(s - top) / total - (k === label ? 1 : 0)) / index.length);
    backward(network, w, layers, error, gradient);
  }
  return { loss: sum / index.length, correct };
}

/** Fill every layer from the one before it. */
function forward({ widths, activation }: Network, w: Float32Array, layers: Float64Array[]): void {
  for (let l = 1, at = 0; l < widths.length; l++) {
    const [from, to] = [layers[l - 1], layers[l]];
    const bias = at + from.length * to.length;
    const last = l === widths.length - 1;
    for (let j = 0; j < to.length; j++, at += from.length) {
      let sum = w[bias + j];
      for (let i = 0; i < from.length; i++) sum += w[at + i] * from[i];
      to[j] = last ? sum : activation === "relu" ? Math.max(sum, 0) : Math.tanh(sum);
    }
    at = bias + to.length;
  }
}

/** Add the gradient of one example, from the derivative by its scores down to the first layer. */
function backward(network: Network, w: Float32Array, layers: Float64Array[], error: Float64Array, out: Float64Array): void {
  const { widths, activation } = network;
  let end = w.length;
  for (let l = widths.length - 1; l >= 1; l--) {
    const from = layers[l - 1];
    const bias = end - widths[l];
    const start = bias - from.length * widths[l];
    const below = new Float64Array(from.length);
    for (let j = 0, at = start; j < error.length; j++, at += from.length) {
      out[bias + j] += error[j];
      for (let i = 0; i < from.length; i++) {
        out[at + i] += error[j] * from[i];
        below[i] += error[j] * w[at + i];
      }
    }
    for (let i = 0; i < below.length; i++) {
      below[i] *= activation === "relu" ? Number(from[i] > 0) : 1 - from[i] ** 2;
    }
    error = below;
    end = start;
  }
}

/** Δ of one round, and the mean loss over its steps; the order of examples follows from the key. */
export function localUpdate(
  network: Network,
  w: Float32Array,
  examples: Examples,
  work: LocalWork,
  key: Key,
): { delta: Float32Array; loss: number } {
  const n = examples.y.length;
  const size = Math.min(work.batch ?? n, n);
  const order = work.batch === undefined ? Uint32Array.from({ length: n }, (_, i) => i) : shuffles(key, n, work.steps * size);
  const u = w.slice();
  let total = 0;
  for (let k = 0; k < work.steps; k++) {
    const index = work.batch === undefined ? order : order.subarray(k * size, (k + 1) * size);
    const gradient = new Float64Array(w.length);
    total += loss(network, u, examples, index, gradient).loss;
    for (let i = 0; i < u.length; i++) u[i] -= work.eta * gradient[i];
  }
  return { delta: u.map((value, i) => value - w[i]), loss: total / work.steps };
}

/** `length` numbers of [0, n): one shuffle of all of them after the other. */
function shuffles(key: Key, n: number, length: number): Uint32Array {
  const epochs = Math.ceil(length / n);
  const out = new Uint32Array(epochs * n);
  for (let epoch = 0; epoch < epochs; epoch++) {
    const words = key.stream(epoch).words(n);
    const part = out.subarray(epoch * n, (epoch + 1) * n);
    for (let i = 0; i < n; i++) {
      const j = Math.floor((words[i] / 2 ** 32) * (i + 1));
      part[i] = part[j];
      part[j] = i;
    }
  }
  return out.subarray(0, length);
}
