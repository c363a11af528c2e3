/** Time of one SRHT of d = 407,050 both ways: `npm run bench`. CPU milliseconds, the median of 41 after 40 to warm up. */
import { draw, Key } from "../desketch.mjs";

const d = 407050;
const g = Float32Array.from({ length: d }, (_, i) => Math.sin(i * i));

function median(run) {
  const times = [];
  for (let i = 0; i < 81; i++) {
    const before = process.cpuUsage();
    run(i);
    const { user, system } = process.cpuUsage(before);
    times.push((user + system) / 1000);
  }
  return times.slice(40).sort((x, y) => x - y)[20];
}

const rows = [13569, 1696].map((b) => {
  const key = Key.fromSeed(2023);
  const R = draw("srht", d, b, key);
  const s = R.sketch(g);
  return {
    d,
    b,
    draw_ms: median((t) => draw("srht", d, b, key.foldIn("round", t))),
    sketch_ms: median(() => R.sketch(g)),
    desketch_ms: median(() => R.desketch(s)),
  };
});
console.log(JSON.stringify({ node: process.version, rows }));
