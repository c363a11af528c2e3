/** One party of a run: trains on its own examples, sends sketches of what changed, follows the broadcasts. */

import type { Random } from "./codecs.ts";
import { ClientMomentum } from "./client_momentum.ts";
import { Refused } from "./errors.ts";
import { encode } from "./frame.ts";
import type { Key } from "./key.ts";
import { dot, norm } from "./optimizers.ts";
import { headerOf, type Replica } from "./replica.ts";
import { encodeShort } from "./short.ts";
import { dimension, type Examples, localUpdate, type LocalWork, type Network } from "./train.ts";

export interface ClientSettings {
  network: Network;
  examples: Examples;
  work: LocalWork;
  /** Codec of updates. */
  up: string;
  /** β of the running mean of its updates, the run's `client_momentum`; 0, the default, is none. */
  beta?: number;
  /** Whose streams order the examples; never the run's public key. */
  own: Key;
  /** Its weight in the mean; the number of examples if undefined. */
  weight?: number;
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
    const { network, examples } = settings;
    const d = dimension(network);
    if (d !== replica.wire.d) throw new Refused("d", `d: the model has ${d} parameters, the run ${replica.wire.d}`);
    const [inputs] = network.widths;
    const classes = network.widths[network.widths.length - 1];
    const n = examples.y.length;
    if (n === 0 || examples.x.length !== n * inputs || examples.y.some((y) => y >= classes)) {
      throw new RangeError(`examples must have ${inputs} numbers each and one of ${classes} classes`);
    }
  }

  /** The frame, full or short, of this client's update of round t = version + 1. */
  update(short = false): Uint8Array {
    const { replica, settings } = this;
    if (replica.broken !== undefined) throw new Refused("replica", `replica: ${replica.broken}; nothing is sent`);
    const t = replica.version + 1;
    const own = settings.own.foldIn("round", t);
    const { delta, loss } = localUpdate(settings.network, replica.w, settings.examples, settings.work, own);
    if (!delta.every(Number.isFinite)) {
      throw new Refused("update", `update: local steps of round ${t} gave numbers that are not finite; nothing is sent`);
    }
    this.loss = loss;
    this.trained = t;
    const header = { ...headerOf(replica.wire, t), kind: "update", codec: settings.up };
    const extra = replica.wire.extra ? [this.alongLastStep(delta)] : [];
    const sketch = replica.sketchAt(t).sketch(this.memory?.mean(t, delta) ?? delta);
    const weight = settings.weight ?? settings.examples.y.length;
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
