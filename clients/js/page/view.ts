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
  /** How often it had been opened before. */
  visits: number;
  digest: string;
  /** Whether the server's is the same at this version; undefined before it has said so. */
  equal: boolean | undefined;
  /** Where this tab's examples come from. */
  note: string;
}

const PHASES = { connecting: "connecting", waiting: "connected, waiting for the server", training: "training", away: "connection lost, trying again", done: "the run is over", stopped: "" };
const get = (id: string): HTMLElement => document.getElementById(id)!;

export function show(state: State): void {
  const { phase, round, rounds } = state;
  const stopped = phase === "stopped";
  const where = round > 0 ? `round ${round} of ${rounds}` : "";
  get("title").textContent = stopped ? "This tab has stopped" : "This tab is a client";
  get("status").textContent = [PHASES[phase], where].filter(Boolean).join(" · ");
  get("trouble").hidden = !stopped;
  get("why").textContent = state.message;
  get("replica").hidden = stopped && state.digest === "";
  get("curve").hidden = stopped && state.losses.length === 0;
  get("traffic").hidden = stopped && state.sent === 0;
  showDigest(state);
  showCurve(state);
  showBytes(state);
  get("absences").textContent = absences(state);
  get("note").textContent = state.note;
}

function showDigest({ digest, equal, round }: State): void {
  if (digest === "") return;
  const verdict = get("verdict");
  verdict.textContent = equal === undefined ? "waiting for the server's digest" : equal ? "✓ your replica equals the server's" : "✗ differs from the server's";
  verdict.className = equal === undefined ? "" : equal ? "good" : "bad";
  get("digest").textContent = `SHA-256 of w after round ${round}: ${digest.slice(0, 32)}…`;
}

/** Runs of rounds without a gap between them. */
function pieces(points: State["losses"]): State["losses"][] {
  const out: State["losses"][] = [];
  for (const point of points) {
    const last = out[out.length - 1];
    if (last !== undefined && point.round === last[last.length - 1].round + 1) last.push(point);
    else out.push([point]);
  }
  return out;
}

/** Where the curve has gaps, and what happened there. */
function absences({ losses, visits }: State): string {
  const parts = pieces(losses);
  const gaps = parts.slice(1).map(([next], i) => {
    const before = parts[i];
    const [from, to] = [before[before.length - 1].round + 1, next.round - 1];
    return from === to ? `${from}` : `${from} to ${to}`;
  });
  const times = visits === 1 ? "once" : `${visits} times`;
  const reopened = visits === 0 ? "" : `This tab was closed or reloaded ${times}; a checkpoint brought the model back, and its bytes are counted below. `;
  return `${reopened}${gaps.length === 0 ? "" : `Not trained here: round${gaps.length === 1 && !gaps[0].includes(" ") ? "" : "s"} ${gaps.join(", ")}.`}`;
}

const HEIGHT = 200;

function showCurve({ losses, rounds }: State): void {
  const chart = get("loss");
  const width = Math.max(chart.clientWidth, 240); // text keeps its size on every screen
  chart.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  chart.innerHTML = curve(losses, rounds, width);
}

/** Inner markup of the chart; all of it numbers made here. */
function curve(points: State["losses"], rounds: number, width: number): string {
  if (points.length === 0) return `<text x="${width / 2}" y="${HEIGHT / 2}" text-anchor="middle">no round yet</text>`;
  const [left, right, top, bottom] = [38, width - 6, 18, HEIGHT - 28];
  const most = Math.max(...points.map(({ loss }) => loss), 1e-9);
  const x = (round: number): string => (left + ((right - left) * round) / Math.max(rounds, 1)).toFixed(1);
  const y = (loss: number): string => (bottom - ((bottom - top) * loss) / most).toFixed(1);
  const lines = pieces(points).map((piece) => {
    const path = piece.map(({ round, loss }) => `${x(round)},${y(loss)}`).join(" ");
    return `<polyline class="curve" points="${piece.length === 1 ? `${path} ${path}` : path}"/>`;
  });
  const ticks = [0, most / 2, most].map(
    (v) => `<line class="axis" x1="${left}" x2="${right}" y1="${y(v)}" y2="${y(v)}"/><text x="${left - 6}" y="${Number(y(v)) + 4}" text-anchor="end">${v.toFixed(2)}</text>`,
  );
  const ends = [0, rounds].map((r) => `<text x="${x(r)}" y="${bottom + 20}" text-anchor="${r === 0 ? "start" : "end"}">${r === 0 ? "0" : `round ${r}`}</text>`);
  const { round, loss } = points[points.length - 1];
  const last = `<text x="${right}" y="${top - 6}" text-anchor="end">round ${round}: ${loss.toFixed(3)}</text>`;
  return `${ticks.join("")}${ends.join("")}${last}${lines.join("")}`;
}

function showBytes({ sent, received, updates, d }: State): void {
  const whole = 8 * d * updates; // FedAvg: w down, w up, float32
  const rows: [string, number, boolean][] = [["sent", sent, true], ["received", received, true]];
  if (updates > 0) rows.push(["FedAvg", whole, false]);
  const most = Math.max(...rows.map(([, n]) => n), 1);
  get("bytes").innerHTML = rows
    .map(([name, n, mine]) => `<dt>${name}</dt><dd><div class="bar ${mine ? "mine" : ""}" style="width:${((100 * n) / most).toFixed(2)}%"></div></dd><dd class="number">${bytes(n)}</dd>`)
    .join("");
  const ratio = whole / Math.max(sent + received, 1);
  const rounds = updates === 1 ? "the one round" : `the ${updates} rounds`;
  get("ratio").textContent = updates === 0 ? "" : `FedAvg sends all ${d.toLocaleString("en")} parameters as float32, both ways: ${bytes(whole)} in ${rounds} trained here, ${ratio.toFixed(ratio < 10 ? 1 : 0)} times as much.`;
}

/** A number of bytes for people. */
export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(2)} MB`;
}
