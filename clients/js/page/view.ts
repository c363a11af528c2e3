/** What the page shows of a run: one function from the state to the document. */

export interface State {
  phase: "connecting" | "waiting" | "training" | "away" | "done" | "stopped";
  /** Why it stopped, or what it waits for. */
  message: string;
  round: number;
  rounds: number;
  d: number;
  /** Loss of the local steps, by round. */
  losses: { round: number; loss: number }[];
  sent: number;
  received: number;
  /** Rounds this tab took part in. */
  updates: number;
  digest: string;
  /** Whether the server's is the same at this version; undefined before it has said so. */
  equal: boolean | undefined;
  /** Where this tab's examples come from. */
  note: string;
}

const PHASES = { connecting: "connecting", waiting: "connected, waiting for the server", training: "training", away: "connection lost, trying again", done: "the run is over", stopped: "stopped" };
const get = (id: string): HTMLElement => document.getElementById(id)!;

export function show(state: State): void {
  const { phase, round, rounds, message } = state;
  const where = round > 0 ? ` · round ${round} of ${rounds}` : "";
  get("status").textContent = `${PHASES[phase]}${where}${message ? ` · ${message}` : ""}`;
  get("status").className = phase === "stopped" ? "bad" : "";
  showDigest(state);
  get("loss").innerHTML = curve(state.losses, rounds);
  showBytes(state);
  get("note").textContent = state.note;
}

function showDigest({ digest, equal, round }: State): void {
  if (digest === "") return;
  const verdict = get("verdict");
  verdict.textContent = equal === undefined ? "waiting for the server's digest" : equal ? "✓ your replica equals the server's" : "✗ differs from the server's";
  verdict.className = equal === undefined ? "" : equal ? "good" : "bad";
  get("digest").textContent = `SHA-256 of w after round ${round}: ${digest.slice(0, 32)}…`;
}

/** Inner markup of the chart; all of it numbers made here. */
function curve(points: State["losses"], rounds: number): string {
  if (points.length === 0) return `<text x="180" y="100" text-anchor="middle">no round yet</text>`;
  const [left, right, top, bottom] = [38, 354, 18, 172];
  const most = Math.max(...points.map(({ loss }) => loss), 1e-9);
  const x = (round: number): string => (left + ((right - left) * round) / Math.max(rounds, 1)).toFixed(1);
  const y = (loss: number): string => (bottom - ((bottom - top) * loss) / most).toFixed(1);
  const path = points.map(({ round, loss }) => `${x(round)},${y(loss)}`).join(" ");
  const ticks = [0, most / 2, most].map(
    (v) => `<line class="axis" x1="${left}" x2="${right}" y1="${y(v)}" y2="${y(v)}"/><text x="${left - 6}" y="${Number(y(v)) + 4}" text-anchor="end">${v.toFixed(2)}</text>`,
  );
  const ends = [0, rounds].map((r) => `<text x="${x(r)}" y="${bottom + 20}" text-anchor="${r === 0 ? "start" : "end"}">${r}</text>`);
  const last = points[points.length - 1];
  const now = `<text x="${right}" y="${top - 6}" text-anchor="end">now ${last.loss.toFixed(3)}</text>`;
  return `${ticks.join("")}${ends.join("")}${now}<polyline class="curve" points="${path}"/>`;
}

function showBytes({ sent, received, updates, d }: State): void {
  const whole = 8 * d * updates; // FedAvg: w down, w up, float32
  const rows: [string, number, boolean][] = [["sent", sent, true], ["received", received, true], ["FedAvg", whole, false]];
  const most = Math.max(...rows.map(([, n]) => n), 1);
  get("bytes").innerHTML = rows
    .map(([name, n, mine]) => `<dt>${name}</dt><dd><div class="bar ${mine ? "mine" : ""}" style="width:${((100 * n) / most).toFixed(2)}%"></div></dd><dd class="number">${bytes(n)}</dd>`)
    .join("");
  const ratio = whole / Math.max(sent + received, 1);
  get("ratio").textContent = updates === 0 ? "" : `FedAvg would have moved ${bytes(whole)}: ${ratio.toFixed(ratio < 10 ? 1 : 0)} times as much.`;
}

/** A number of bytes for people. */
export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(2)} MB`;
}
