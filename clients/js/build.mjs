/** Bundle src/ into desketch.mjs, the one file that tests and other programs load. */
import { build } from "esbuild";

await build({
  entryPoints: ["src/index.ts"],
  outfile: "desketch.mjs",
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  banner: { js: "// Built from src/ by `npm run build`; do not edit." },
});
