/** One party of a run: sends sketches of what its own training changes, follows the broadcasts. */

import type { Random } from "./codecs.ts";
import { ClientMomentum } from "./client_momentum.ts";
import { Refused } from "./errors.ts";
import { encode } from "./frame.ts";
import { dot, norm } from "./optimizers.ts";
import { headerOf, type Replica } from "./replica.ts";
import { encodeShort } from "./short.ts";

/** Whoever trains: from w and the round to Δ, its weight in the mean, and the loss on the way. */
export interface Participant {
  /** The number of parameters. */
  readonly d: number;
  update(w: Float32Array, t: number): { delta: Float32Array; weight: number; loss: number };
}

export interface ClientSettings {
  participant: Participant;
  /** Codec of updates. */
  up: string;
  /** β of the running mean of its updates, the run's `client_momentum`; 0, the default, is none. */
  beta?: number;
  /** Whether the server knows the weight of this client, so that it need not travel. */
  knownWeight?: boolean;
  /** For rounding and salts: the platform's own randomness. */
  random: Random;
}

export class Client {
  /** Mean loss of the local steps of the last update. */
  loss = NaN;
  /** Its round; 0 before the first. */
  trained = 0;

  private readonly memory: ClientMomentum | undefined;

  constructor(
    readonly replica: Replica,
    private readonly settings: ClientSettings,
  ) {
    if (settings.beta) this.memory = new ClientMomentum(settings.beta);
    const { d } = settings.participant;
    if (d !== replica.wire.d) throw new Refused("d", `d: the model has ${d} parameters, the run ${replica.wire.d}`);
  }

  /** The frame, full or short, of this client's update of round t = version + 1. */
  update(short = false): Uint8Array {
    const { replica, settings } = this;
    if (replica.broken !== undefined) throw new Refused("replica", `replica: ${replica.broken}; nothing is sent`);
    const t = replica.version + 1;
    const { delta, weight, loss } = settings.participant.update(replica.w, t);
    if (!delta.every(Number.isFinite)) {
      throw new Refused("update", `update: local steps of round ${t} gave numbers that are not finite; nothing is sent`);
    }
    this.loss = loss;
    this.trained = t;
    const header = { ...headerOf(replica.wire, t), kind: "update", codec: settings.up };
    const extra = replica.wire.tiny ? [this.alongLastStep(delta)] : [];
    const sketch = replica.sketchAt(t).sketch(this.memory?.mean(t, delta) ?? delta);
    if (!short) return encode(sketch, header, weight, settings.random, extra);
    return encodeShort(sketch, header, weight, settings.knownWeight ? weight : 1, settings.random, extra);
  }

  /** √(d/b) ⟨Δ, s⟩/|s| of the replica's last step s; 0 before the first. */
  private alongLastStep(delta: Float32Array): number {
    const { optimizer, wire } = this.replica;
    const s = optimizer.vectors.s;
    const length = s === undefined ? 0 : norm(s);
    return length === 0 ? 0 : (Math.sqrt(wire.d / wire.b) * dot(delta, s)) / length;
  }
}
