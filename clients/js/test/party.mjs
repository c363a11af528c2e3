/** One client in a process of its own: its settings on the first line of standard input, then an order a line, in hex. */
import { createInterface } from "node:readline";

import { Client, Key, Learner, networkOfShapes, replicaOf, Session } from "../desketch.mjs";
import { bytes, floats, hex } from "./vectors.mjs";

let session;
for await (const line of createInterface({ input: process.stdin })) {
  if (session === undefined) {
    const { client, x, y, work } = JSON.parse(line);
    const join = (agreement, run) => ({
      client: new Client(replicaOf(agreement, run), {
        participant: new Learner({ network: networkOfShapes(agreement.shapes, "relu"), examples: { x: floats(x), y: bytes(y) }, work, own: Key.fromSeed(client) }),
        up: agreement.wire.codec, knownWeight: agreement.known_weights, beta: agreement.client_momentum, random: Math.random,
      }),
      unborn: true,
    });
    session = new Session({ client, token: new Uint8Array(16).fill(client + 1), join, now: () => performance.now() / 1000 });
    continue;
  }
  const reply = session.answer(bytes(line));
  const { replica, loss } = session.client ?? {};
  process.stdout.write(JSON.stringify({ reply: hex(reply), digest: replica?.digest(), version: replica?.version, loss, trouble: session.trouble }) + "\n");
}
