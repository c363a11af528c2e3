/**
 * Server optimisers: from the de-sketched update u and |y| to a step of w, the same bits on every replica (replica spec v1).
 *
 * Every product, sum, quotient and root is rounded to float32 where it is made: in a typed array, or by `fround`.
 */

export type Eta = number | "auto";

/** u = Rᵀ y, the norm of y, b, and the bits a number; `along` is the extra number of a message where clients send running means. */
export interface Update {
  u: Float32Array;
  norm: number;
  b: number;
  bits: number;
  along?: number;
}

const { fround, sqrt } = Math;
const BETA2 = 0.99;
const TAU = 1e-3;
const LEAST_FLOOR = 1e-30;
const KAPPA = 0.25;
/** How far below 0 rho is held, with one bit a number, where clients tell it of their raw updates. */
const PAST = 0.2;
const LONGEST_START = 16;
const REACH = 0.25;

/** x to 16 significant bits, ties to even. */
export function round16(x: number): number {
  if (!Number.isFinite(x) || x === 0) return x;
  let unit = 2 ** (Math.floor(Math.log2(Math.abs(x))) - 15);
  while (Math.abs(x) / unit >= 2 ** 16) unit *= 2;
  while (Math.abs(x) / unit < 2 ** 15) unit /= 2;
  const steps = x / unit;
  const floor = Math.floor(steps);
  const rest = steps - floor;
  return (rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor) * unit;
}

export function norm(x: Float32Array): number {
  return sqrt(dot(x, x));
}

export function dot(x: Float32Array, y: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}

const share = (beta: number, t: number): number => fround(round16(1 - beta ** t));

/** c × x, one product each. */
function times(x: Float32Array, c: number): Float32Array {
  const factor = fround(c);
  return x.map((v) => v * factor);
}

/** x × a + y × b, in place. */
function mix(x: Float32Array, a: number, y: Float32Array, b: number): Float32Array {
  const keep = fround(a);
  const take = fround(b);
  for (let i = 0; i < x.length; i++) x[i] = fround(x[i] * keep) + fround(y[i] * take);
  return x;
}

/** What the automatic step remembers. */
class AutoStep {
  eta = 0;
  bound = Infinity;

  /** Learn from an update and the step before it; return the update, bounded. */
  observe(w: Float32Array, update: Update, s: Float32Array | undefined): Float32Array {
    if (this.eta === 0) this.start(norm(w), update);
    else if (s !== undefined) this.learn(update, s);
    return update.norm > this.bound ? times(update.u, round16(this.bound / update.norm)) : update.u;
  }

  private start(length: number, { u, norm: y, b }: Update): void {
    if (y === 0) return;
    this.eta = round16(Math.min(Math.max(length / y, 1), LONGEST_START) * sqrt(b / u.length));
    this.bound = REACH * length || Infinity;
  }

  private learn({ u, norm: y, b, bits, along }: Update, s: Float32Array): void {
    if (y === 0) return;
    const d = u.length;
    const length = norm(s);
    let rho = length === 0 ? 0 : (sqrt(d / b) * dot(u, s)) / (y * length);
    let [g, past] = [1 / (1 + d / b ** 2), 0];
    if (along !== undefined) [rho, g, past] = [along / y, 1, PAST * bits];
    this.eta = round16(this.eta * Math.exp(KAPPA * g * (Math.min(Math.max(rho, -2), 1) + past)));
  }
}

type Direction = (u: Float32Array, optimizer: ServerOptimizer) => Float32Array;

const DIRECTIONS: Record<string, Direction> = {
  sgd: (u) => u,
  momentum: (u, o) => divided(o.mean(u), share(o.beta, o.t)),
  nesterov: (u, o) => divided(mix(o.mean(u).slice(), o.beta, u, 1 - o.beta), share(o.beta, o.t + 1)),
  adam: (u, o) => o.scaled(u, (v) => v),
  amsgrad: (u, o) =>
    o.scaled(u, (v) => {
      const top = o.vectors.top;
      return (o.vectors.top = top === undefined ? v : v.map((x, i) => Math.max(x, top[i])));
    }),
};

const divided = (x: Float32Array, by: number): Float32Array => x.map((v) => v / by);

export class ServerOptimizer {
  t = 0;
  eta: number;
  unit = 0;
  floor = 0;
  vectors: Record<string, Float32Array> = {};
  readonly auto: AutoStep | undefined;

  constructor(
    readonly name: string,
    eta: Eta,
    readonly beta: number,
  ) {
    if (DIRECTIONS[name] === undefined) {
      throw new RangeError(`unknown server optimiser ${name}; there are ${Object.keys(DIRECTIONS).join(", ")}`);
    }
    if (!(beta >= 0 && beta < 1)) throw new RangeError(`beta lies in [0, 1), not at ${beta}`);
    if (eta !== "auto" && !(eta > 0 && eta < Infinity)) throw new RangeError(`eta is "auto" or above 0, not ${eta}`);
    this.auto = eta === "auto" ? new AutoStep() : undefined;
    this.eta = eta === "auto" ? 0 : eta;
  }

  /** Move w by one step, in place. */
  apply(w: Float32Array, update: Update): void {
    this.t += 1;
    const u = this.auto?.observe(w, update, this.vectors.s) ?? update.u;
    const p = DIRECTIONS[this.name](u, this);
    if (this.auto) {
      if (this.unit === 0) this.unit = lengthRatio(u, p);
      this.eta = this.auto.eta * this.unit;
    }
    const s = times(p, this.eta);
    if (this.auto) this.vectors.s = s;
    for (let i = 0; i < w.length; i++) w[i] += s[i];
  }

  /** The last step s, from what is kept, where a checkpoint leaves it out. */
  deriveStep(): void {
    const { m, v, top } = this.vectors;
    if (this.auto === undefined || this.vectors.s !== undefined || m === undefined) return;
    const p = divided(m, share(this.beta, this.t));
    const under = top ?? (v && divided(v, share(BETA2, this.t)));
    this.vectors.s = times(under === undefined ? p : this.over(p, under), this.eta);
  }

  /** The running mean m, without its bias correction. */
  mean(u: Float32Array): Float32Array {
    if (this.beta === 0) return u;
    return (this.vectors.m = mix(this.vectors.m ?? new Float32Array(u.length), this.beta, u, 1 - this.beta));
  }

  /** The direction of adam; `second` turns v^ into what stands under the root. */
  scaled(u: Float32Array, second: (v: Float32Array) => Float32Array): Float32Array {
    const m = divided(this.mean(u), share(this.beta, this.t));
    if (this.vectors.v === undefined) {
      this.vectors.v = new Float32Array(u.length);
      this.floor = fround(Math.max(round16((TAU * norm(u)) / sqrt(u.length)), LEAST_FLOOR));
    }
    const squares = u.map((x) => x * x);
    const v = mix(this.vectors.v, BETA2, squares, 1 - BETA2);
    const under = second(divided(v, share(BETA2, this.t)));
    return this.over(m, under);
  }

  private over(m: Float32Array, under: Float32Array): Float32Array {
    return m.map((x, i) => x / fround(fround(sqrt(under[i])) + this.floor));
  }
}

function lengthRatio(u: Float32Array, p: Float32Array): number {
  const length = norm(p);
  return length === 0 ? 0 : round16(norm(u) / length);
}
