/**
 * The page: this tab as a client of a run, over MQTT-WebSocket.
 *
 * The link's fragment is the key by which the local server and the broker know the tab.  The server deals the tab its examples; what
 * leaves it is what every client sends.  A tab that comes back begins with a checkpoint; its curve and its bytes it has kept.
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
import { Memory } from "./past.ts";
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
  phase: "connecting", message: "", round: 0, rounds: 0, d: 0, losses: [], sent: 0, received: 0, updates: 0, visits: 0, digest: "", equal: undefined,
  note: "",
  digests: {}, // of every version this tab was at when the server confirmed it, for whoever looks
};
Object.assign(globalThis, { desketch: state });

const bytesOf = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const random = (): number => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;

async function facts(key: string): Promise<Facts> {
  const answer = await fetch("client", { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  if (answer.status === 403) throw new Refused("key", "This link's key is not that of the run. Open the link as the command printed it, with all that follows the #.");
  if (!answer.ok) throw new Error(`The command that serves this page answers ${answer.status}.`);
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

type Traffic = Party["traffic"];

/** Take over what the last answer did. */
function note(session: Session, before: Traffic, traffic: Traffic): void {
  state.sent = before.sent + traffic.sent;
  state.received = before.received + traffic.received;
  const { client, equal } = session;
  if (client === undefined || client.replica.broken !== undefined) return;
  const { replica, loss, trained } = client;
  state.d = replica.wire.d;
  if (trained > 0 && trained !== state.losses[state.losses.length - 1]?.round) {
    state.losses = [...state.losses.filter(({ round }) => round < trained), { round: trained, loss }]; // a server may start over
    state.updates += 1;
  }
  if (equal === undefined) return;
  Object.assign(state, { round: replica.version, digest: replica.digest(), equal });
  if (equal) state.digests[replica.version] = state.digest;
}

const hexOf = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function introduction({ client, clients, y }: Facts): string {
  const examples = bytesOf(y).length.toLocaleString("en");
  return `This tab is client ${client} of ${clients} (their numbers begin at 0). The command that serves this page dealt it ${examples} examples, which stay here: a message holds a sketch of what the local steps changed.`;
}

/** What a step gives, its refusal in words for people. */
function readable<T>(step: () => T): T {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    throw new Refused(error.field, `The server sent something that is no message of a run: ${error.message}.`);
  }
}

async function main(): Promise<void> {
  const key = location.hash.slice(1);
  const given = await facts(key);
  const secret = sha256(new TextEncoder().encode(`desketch tab v1\0${key}`));
  const session = sessionOf(given, secret);
  const memory = new Memory(hexOf(sha256(secret)));
  const past = memory.read();
  Object.assign(state, past, { rounds: given.rounds, note: introduction(given) });
  const { root, ...broker } = given.broker;
  const party: Party = new Party({
    ...broker, root, client: given.client, password: key,
    answer: (order) => readable(() => session.answer(order)),
    onChange(what) {
      state.phase = what === "lost" ? "away" : what === "connected" ? "waiting" : "training";
      note(session, past, party.traffic);
      memory.write({ ...state, visits: past.visits + 1 });
      if (session.trouble !== undefined) party.leave(); // it is in the reply too
      show(state);
    },
  });
  let closing = false;
  addEventListener("pagehide", () => {
    closing = true;
    party.leave();
    if (state.phase !== "done") memory.write({ ...state, visits: past.visits + 1 }, true);
  });
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
  await party.run();
  if (closing) return;
  note(session, past, party.traffic);
  if (session.trouble !== undefined) throw new Error(`The server sent what this tab cannot use: ${session.trouble}.`);
  state.phase = "done";
  memory.forget(); // the page is served for as long as the run
}

show(state);
addEventListener("resize", () => show(state));
addEventListener("hashchange", () => location.reload());
main().catch((error: Error) => Object.assign(state, { phase: "stopped", message: error.message })).finally(() => show(state));
