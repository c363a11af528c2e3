/** Local steps: gradients against differences, and a run that learns. */
import assert from "node:assert/strict";
import { it } from "node:test";

import { dimension, Key, localUpdate, loss, networkOf } from "../desketch.mjs";

/** Numbers in [-1/2, 1/2) that follow from a seed. */
const numbers = (seed, n) => Float32Array.from(Key.fromSeed(seed).stream(0).words(n), (word) => word / 2 ** 32 - 0.5);

/** Three classes, told apart by the signs of two directions. */
function examples(n, inputs) {
  const x = numbers(1, n * inputs);
  const y = Uint8Array.from({ length: n }, (_, i) => {
    const row = x.subarray(i * inputs, (i + 1) * inputs);
    return row[0] > 0.1 ? 0 : row[1] > 0 ? 1 : 2;
  });
  return { x, y };
}

it("the gradient is the slope of the loss, coordinate by coordinate", () => {
  for (const model of ["softmax", "mlp:5", "mlp-tanh:4-3"]) {
    const network = networkOf(model, 6, 3);
    const w = numbers(2, dimension(network)).map((v) => 2 * v);
    const data = examples(9, 6);
    const index = [0, 3, 3, 8];
    const gradient = new Float64Array(w.length);
    loss(network, w, data, index, gradient);
    for (let i = 0; i < w.length; i++) {
      const at = (h) => loss(network, w.with(i, w[i] + h), data, index).loss;
      assert.ok(Math.abs((at(0.004) - at(-0.004)) / 0.008 - gradient[i]) < 2e-3, `${model} ${i}`);
    }
  }
});

it("local steps learn, repeat themselves, and depend on their key", () => {
  const network = networkOf("mlp:16", 6, 3);
  const data = examples(300, 6);
  const w = numbers(4, dimension(network));
  const work = { steps: 400, eta: 0.5, batch: 32 };
  const { delta } = localUpdate(network, w, data, work, Key.fromSeed(5));
  const before = loss(network, w, data, [...data.y.keys()]);
  const after = loss(network, w.map((v, i) => v + delta[i]), data, [...data.y.keys()]);
  assert.ok(after.loss < before.loss / 2 && after.correct > 270, `${after.loss} ${after.correct}`);
  assert.deepEqual(localUpdate(network, w, data, work, Key.fromSeed(5)).delta, delta);
  assert.notDeepEqual(localUpdate(network, w, data, work, Key.fromSeed(6)).delta, delta);
});

it("models it cannot train are refused", () => {
  for (const model of ["cnn", "mlp:", "mlp:0", "mlp:5-", "gpt:2x64"]) assert.throws(() => networkOf(model, 6, 3), RangeError);
});
