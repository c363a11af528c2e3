/**
 * Client momentum: a client sends the running mean m/n of its updates Δ (frame spec v2, "Extra numbers").
 *
 * m ← β^gap m + Δ and n ← β^gap n + 1, gap the rounds since its last update.  Whoever has lost the sums starts again.
 */
export class ClientMomentum {
  private m: Float32Array | undefined;
  private n = 0;
  private t = 0;

  constructor(private readonly beta: number) {
    if (!(beta > 0 && beta < 1)) throw new RangeError(`beta of a running mean lies between 0 and 1, not at ${beta}`);
  }

  /** Take in the update of round t and return the mean to be sent. */
  mean(t: number, delta: Float32Array): Float32Array {
    const old = this.m;
    const fade = this.beta ** (t - this.t);
    const fresh = old === undefined || this.t >= t; // nothing kept, or of a run that went another way
    this.m = fresh ? delta.slice() : old.map((x, i) => x * fade + delta[i]);
    this.n = fresh ? 1 : this.n * fade + 1;
    this.t = t;
    return this.m.map((x) => x / this.n);
  }
}
