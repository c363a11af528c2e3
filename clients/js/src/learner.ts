/** The participant of this package: a network, its examples, and K local steps a round. */

import type { Participant } from "./client.ts";
import type { Key } from "./key.ts";
import { dimension, type Examples, localUpdate, type LocalWork, type Network } from "./train.ts";

export interface LearnerSettings {
  network: Network;
  examples: Examples;
  work: LocalWork;
  /** Whose streams order the examples; never the run's public key. */
  own: Key;
  /** Its weight in the mean; the number of examples if undefined. */
  weight?: number;
}

export class Learner implements Participant {
  readonly d: number;

  constructor(private readonly settings: LearnerSettings) {
    const { network, examples } = settings;
    const [inputs] = network.widths;
    const classes = network.widths[network.widths.length - 1];
    const n = examples.y.length;
    if (n === 0 || examples.x.length !== n * inputs || examples.y.some((y) => y >= classes)) {
      throw new RangeError(`examples must have ${inputs} numbers each and one of ${classes} classes`);
    }
    this.d = dimension(network);
  }

  update(w: Float32Array, t: number): { delta: Float32Array; weight: number; loss: number } {
    const { network, examples, work, own, weight = examples.y.length } = this.settings;
    return { ...localUpdate(network, w, examples, work, own.foldIn("round", t)), weight };
  }
}
