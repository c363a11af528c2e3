/**
 * The page: this tab as a client of a run, over MQTT-WebSocket.
 *
 * The link's fragment is the key by which the local server and the broker know the tab.  The server deals the tab its examples; what
 * leaves it is what every client sends.  A tab that comes back begins with a checkpoint: it keeps nothing.
 */

import { type Agreement, replicaOf } from "../src/agreement.ts";
import { Client } from "../src/client.ts";
import { Refused } from "../src/errors.ts";
import { Key } from "../src/key.ts";
import { Learner } from "../src/learner.ts";
import { Party } from "../src/party.ts";
import { type Joined, Session } from "../src/session.ts";
import { sha256 } from "../src/sha256.ts";
import { networkOf } from "../src/train.ts";
import { show, type State } from "./view.ts";

/** What the local server tells the tab. */
interface Facts {
  client: number;
  clients: number;
  rounds: number;
  broker: { url: string; name: string; user: string; root: string; keepalive: number };
  model: string;
  inputs: number;
  classes: number;
  weight: number;
  work: { steps: number; eta: number; batch: number };
  /** Float32 numbers and classes, in base64. */
  x: string;
  y: string;
}

const state: State & { digests: Record<number, string> } = {
  phase: "connecting", message: "", round: 0, rounds: 0, d: 0, losses: [], sent: 0, received: 0, updates: 0, digest: "", equal: undefined, note: "",
  digests: {}, // of every version this tab was at when the server confirmed it, for whoever looks
};
Object.assign(globalThis, { desketch: state });

const bytesOf = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const random = (): number => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;

async function facts(key: string): Promise<Facts> {
  const answer = await fetch("client", { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  if (answer.status === 403) throw new Refused("key", "this link's key is not that of the run; open the link as it was printed");
  if (!answer.ok) throw new Error(`the local server answers ${answer.status}`);
  return (await answer.json()) as Facts;
}

function sessionOf(given: Facts, secret: Uint8Array): Session {
  const examples = { x: new Float32Array(bytesOf(given.x).buffer), y: bytesOf(given.y) };
  const network = networkOf(given.model, given.inputs, given.classes);
  const participant = new Learner({ network, examples, work: given.work, weight: given.weight, own: Key.fromSeed(secret.slice(16)) });
  const join = (agreement: Record<string, unknown>, run: number): Joined => {
    const made = agreement as unknown as Agreement;
    const client = new Client(replicaOf(made, run), {
      participant, up: made.wire.codec, knownWeight: made.known_weights, beta: made.client_momentum, random,
    });
    return { client, unborn: true }; // w0 comes in a checkpoint
  };
  return new Session({ client: given.client, token: secret.slice(0, 16), join, now: () => performance.now() / 1000 });
}

/** Take over what the last answer did. */
function note(session: Session, traffic: { sent: number; received: number }): void {
  Object.assign(state, traffic);
  const { client, equal } = session;
  if (client === undefined || client.replica.broken !== undefined) return;
  const { replica, loss, trained } = client;
  state.d = replica.wire.d;
  if (trained > 0 && trained !== state.losses[state.losses.length - 1]?.round) {
    state.losses.push({ round: trained, loss });
    state.updates += 1;
  }
  if (equal === undefined) return;
  Object.assign(state, { round: replica.version, digest: replica.digest(), equal });
  if (equal) state.digests[replica.version] = state.digest;
}

async function main(): Promise<void> {
  const key = location.hash.slice(1);
  const given = await facts(key);
  const secret = sha256(new TextEncoder().encode(`desketch tab v1\0${key}`));
  const session = sessionOf(given, secret);
  state.rounds = given.rounds;
  state.note = `This tab is client ${given.client} of the clients 0 to ${given.clients - 1}. Its ${bytesOf(given.y).length} examples were dealt to this tab by the command that serves the page, and stay here; a message holds a sketch of what the local steps changed.`;
  const { root, ...broker } = given.broker;
  const party: Party = new Party({
    ...broker, root, client: given.client, password: key,
    answer: (order) => session.answer(order),
    onChange(what) {
      state.phase = what === "lost" ? "away" : what === "connected" ? "waiting" : "training";
      note(session, party.traffic);
      if (session.trouble !== undefined) party.leave(); // it is in the reply too
      show(state);
    },
  });
  addEventListener("pagehide", () => party.leave());
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
  await party.run();
  if (session.trouble !== undefined) throw new Refused("session", session.trouble);
  state.phase = "done";
}

show(state);
addEventListener("hashchange", () => location.reload());
main().catch((error: Error) => Object.assign(state, { phase: "stopped", message: error.message })).finally(() => show(state));
