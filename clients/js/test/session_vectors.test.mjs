/** Session spec v2 against tests/vectors/session.json: every message of a short run, byte for byte, and short frames. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Client, decode, decodeShort, encodeShort, Key, open, packShort, Refused, replicaOf, Session } from "../desketch.mjs";
import { bytes, drawsOf, floats, hex, read } from "./vectors.mjs";

const VECTORS = read("session");
const SAID = [...VECTORS.rounds.map(({ messages }) => messages), VECTORS.last];

/** A client that gives the updates of the vectors, with the rounding keys of Python's clients. */
function sessionOf(number) {
  const { token, weight, makes_w0 } = VECTORS.clients[number];
  const join = (agreement, run) => {
    const replica = replicaOf(agreement, run);
    if (makes_w0) replica.w.set(floats(VECTORS.w0));
    const { codec } = agreement.wire;
    let draws;
    const update = (_, t) => {
      draws = drawsOf(codec, replica.wire.key.foldIn("rounding", number, t).bits);
      return { delta: floats(VECTORS.updates[number][t - 1]), weight, loss: 0 };
    };
    const participant = { d: replica.wire.d, update };
    return { client: new Client(replica, { participant, up: codec, knownWeight: agreement.known_weights, random: () => draws() }), unborn: !makes_w0 };
  };
  return new Session({ client: number, token: bytes(token), join, now: () => 0 });
}

describe("a client answers the orders of the vectors byte for byte", () => {
  for (const number of [0, 1]) {
    it(`client ${number}`, () => {
      const mine = SAID.map((messages) => messages.filter(({ client }) => client === number));
      const session = sessionOf(number);
      mine.forEach((messages, i) => {
        for (const { order, reply } of messages) assert.equal(hex(session.answer(bytes(order))), reply, `round ${i + 1}`);
        const { digest } = VECTORS.rounds[i - 1] ?? {};
        if (digest && messages.length > 0) assert.equal(session.client.replica.digest(), digest);
      });
      assert.equal(session.client.replica.version, VECTORS.rounds.length);
      assert.equal(session.trouble, undefined);
    });
  }
});

it("the same order again gets the same bytes, and a server that starts over is followed", () => {
  const [first] = SAID[0];
  const session = sessionOf(0);
  const reply = hex(session.answer(bytes(first.order)));
  assert.equal(hex(session.answer(bytes(first.order))), reply);
  session.client.replica.version = 7;
  assert.equal(hex(session.answer(bytes(first.order))), reply);
  assert.equal(session.client.replica.version, 0);
});

it("an agreement whose seed JavaScript cannot hold is refused, not followed with another key", () => {
  const agreement = JSON.parse(VECTORS.agreement);
  assert.equal(replicaOf({ ...agreement, seed: 2 ** 53 - 1 }, 1).version, 0);
  assert.throws(() => replicaOf({ ...agreement, seed: 2 ** 53 + 2 }, 1), Refused);
});

describe("short frames beside full ones that say the same", () => {
  for (const { name, header, agreed, short, full } of VECTORS.frames) {
    it(name, () => {
      const expected = { ...header, key: Key.fromHex(header.key) };
      const { weight, payload } = open(bytes(full), expected);
      assert.equal(weight, Math.fround(header.weight));
      assert.equal(hex(packShort(expected, weight, agreed, payload)), short);
      const both = [() => decodeShort(bytes(short), expected, agreed), () => decode(bytes(full), expected)].map(outcome);
      assert.deepEqual(both[0], both[1]);
    });
  }
});

/** What decoding gives: the payloads of the vectors are any bytes, and not all are numbers. */
function outcome(decoded) {
  try {
    return decoded();
  } catch (error) {
    return error.field;
  }
}
