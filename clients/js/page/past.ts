/**
 * What a tab remembers of a run when it is reloaded, or closed and opened again: its curve and its bytes.
 *
 * Its replica is not kept: a checkpoint brings that. The browser's own storage holds one run, the newest, for one origin.
 */

export interface Past {
  losses: { round: number; loss: number }[];
  sent: number;
  received: number;
  updates: number;
  /** How often this tab had been opened before. */
  visits: number;
}

const NAME = "desketch";
const NOTHING: Past = { losses: [], sent: 0, received: 0, updates: 0, visits: 0 };
const PAUSE = 1000; // milliseconds between two writes

export class Memory {
  private written = -Infinity;

  /** `run` tells runs apart: what is remembered of another is forgotten. */
  constructor(private readonly run: string) {}

  /** What is remembered; nothing where the browser stores nothing, or something else stands there. */
  read(): Past {
    try {
      const { run, ...past } = JSON.parse(localStorage.getItem(NAME) ?? "{}") as Past & { run: string };
      const right = run === this.run && [past.sent, past.received, past.updates, past.visits].every(Number.isFinite);
      return right && past.losses.every(({ round, loss }) => round > 0 && Number.isFinite(loss)) ? past : NOTHING;
    } catch {
      return NOTHING;
    }
  }

  /** Remember; not more than once a second unless it is `urgent`. */
  write(past: Past, urgent = false): void {
    const now = performance.now();
    if (!urgent && now - this.written < PAUSE) return;
    this.written = now;
    const { losses, sent, received, updates, visits } = past;
    try {
      localStorage.setItem(NAME, JSON.stringify({ run: this.run, losses, sent, received, updates, visits }));
    } catch {
      // a browser that stores nothing: then a reload begins at zero, as before
    }
  }

  forget(): void {
    try {
      localStorage.removeItem(NAME);
    } catch {
      // nothing was stored
    }
  }
}
