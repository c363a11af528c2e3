/** Answer questions, one JSON object a line, from standard input: what tests/clients asks to compare this client with Python. */
import { createInterface } from "node:readline";

import { decode, decodeShort, draw, encode, encodeShort, Key, localUpdate, networkOf, Refused } from "../desketch.mjs";
import { bytes, drawsOf, floats, hex } from "./vectors.mjs";

const unsigned = (values) => hex(values.map((v) => v + 0)); // the sign of a zero is not specified

const ANSWERS = {
  decode({ header, frame, agreed }) {
    const expected = { ...header, key: Key.fromHex(header.key) };
    try {
      const { weight, values, extra } = agreed === null ? decode(bytes(frame), expected) : decodeShort(bytes(frame), expected, agreed);
      return { weight: hex(Float32Array.of(weight)), values: unsigned(values), extra: unsigned(Float32Array.from(extra)) };
    } catch (error) {
      if (error instanceof Refused) return { refused: error.field };
      throw error;
    }
  },

  /** `rounding` is the key that Python's encoder rounds by. */
  encode({ header, values, weight, agreed, rounding, extra }) {
    const expected = { ...header, key: Key.fromHex(header.key) };
    const random = drawsOf(header.codec, bytes(rounding));
    if (agreed === null) return { frame: hex(encode(floats(values), expected, weight, random, extra)) };
    return { frame: hex(encodeShort(floats(values), expected, weight, agreed, random, extra)) };
  },

  train({ model, inputs, classes, w, x, y, work }) {
    const examples = { x: floats(x), y: bytes(y) };
    const { delta } = localUpdate(networkOf(model, inputs, classes), floats(w), examples, work, Key.fromSeed(0));
    return { values: hex(delta) };
  },

  key: ({ seed, path }) => ({ key: hex(Key.fromSeed(seed).foldIn(...path).bits) }),

  desketch({ family, d, b, key, options, s }) {
    return { values: unsigned(draw(family, d, b, Key.fromHex(key), options).desketch(floats(s))) };
  },

  sketch({ family, d, b, key, options, g }) {
    return { values: unsigned(draw(family, d, b, Key.fromHex(key), options).sketch(floats(g))) };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { ask, ...question } = JSON.parse(line);
  process.stdout.write(JSON.stringify(ANSWERS[ask](question)) + "\n");
}
