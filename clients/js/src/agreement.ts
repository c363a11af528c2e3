/** From a run's agreement to the replica it describes (session spec v2); what this client cannot do is refused. */

import { CODECS } from "./codecs.ts";
import { Refused } from "./errors.ts";
import { Key } from "./key.ts";
import { type Eta, ServerOptimizer } from "./optimizers.ts";
import { Replica } from "./replica.ts";
import type { FamilyOptions } from "./sketch.ts";
import type { Network } from "./train.ts";

/** The public facts of a run, as its JSON has them. */
export interface Agreement {
  seed: number;
  shapes: number[][];
  wire: { family: string; b: number; codec: string; codec_down: string; options: FamilyOptions };
  optimizer: string;
  eta_global: Eta;
  beta: number | null;
  client_momentum: number;
  known_weights: boolean;
}

/** A replica of this run, its w still zero. */
export function replicaOf(agreement: Agreement, run: number): Replica {
  const { seed, shapes, wire, optimizer, eta_global, client_momentum } = agreement;
  if (!Number.isSafeInteger(seed)) throw new Refused("seed", "seed: this client reads whole numbers below 2^53");
  const d = shapes.reduce((sum, shape) => sum + shape.reduce((n, m) => n * m, 1), 0);
  const beta = agreement.beta ?? (client_momentum > 0 ? 0 : eta_global === "auto" ? 0.5 : 0.9);
  const tiny = Number(client_momentum > 0 && eta_global === "auto");
  const { family, options, b, codec, codec_down: down } = wire;
  const bits = (bitsOf(codec) + bitsOf(down)) / 2;
  return new Replica(
    new Float32Array(d),
    { run, key: Key.fromSeed(seed), family, options, d, b, down, tiny, bits },
    new ServerOptimizer(optimizer, eta_global, beta),
  );
}

/** Bits a number of a codec, at most 1. */
function bitsOf(codec: string): number {
  if (CODECS[codec] === undefined) throw new Refused("codec", `codec: got ${codec}, this client has ${Object.keys(CODECS).join(", ")}`);
  return Math.min(1, CODECS[codec].bits);
}

/** The network whose layers have these shapes: a matrix and a bias each. */
export function networkOfShapes(shapes: number[][], activation: Network["activation"]): Network {
  const widths = [shapes[0]?.[1] ?? 0];
  for (let i = 0; i < shapes.length; i += 2) {
    const [matrix, bias] = [shapes[i], shapes[i + 1]];
    if (matrix?.length !== 2 || bias?.length !== 1 || matrix[1] !== widths[i / 2] || bias[0] !== matrix[0]) {
      throw new Refused("shapes", "shapes: this client trains networks of plain layers, a matrix and a bias each");
    }
    widths.push(matrix[0]);
  }
  return { widths, activation };
}
