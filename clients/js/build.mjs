/**
 * Bundle src/ into desketch.mjs, the one file that tests and other programs load, and the page into the one file that the
 * Python package serves.
 */
import { readFile, writeFile } from "node:fs/promises";

import { build } from "esbuild";

const shared = { bundle: true, format: "esm", target: "es2022", charset: "utf8" };
const BANNER = "Built from clients/js by `make js`; do not edit.";
const PAGE = "../../src/desketch/integrations/mqtt/page.html";

await build({ ...shared, entryPoints: ["src/index.ts"], outfile: "desketch.mjs", banner: { js: `// ${BANNER}` } });

const app = await build({ ...shared, entryPoints: ["page/app.ts"], write: false, minify: true });
const script = app.outputFiles[0].text.trim().replaceAll("</", "<\\/");
const page = await readFile("page/index.html", "utf8");
await writeFile(PAGE, page.replace("<html", () => `<!-- ${BANNER} -->\n<html`).replace("/* page */", () => script));
