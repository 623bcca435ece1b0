// Holds embeddings that Transformers.js makes with an artifact against those that planish made with it.
//
//     node check_transformers_js.mjs MODULES ARTIFACT TEXTS VECTORS
//
// MODULES is a folder with the package @huggingface/transformers in node_modules, TEXTS has a text on each line, and VECTORS is what
// `planish embed` wrote of them as .jsonl. The pipeline feature-extraction pools and normalizes by itself. Exits 1 when a number differs
// by more than 1e-5.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, artifact, texts, vectors] = process.argv.slice(2);
const entry = createRequire(resolve(modules, "package.json")).resolve("@huggingface/transformers");
const { env, pipeline } = await import(pathToFileURL(entry));
env.allowRemoteModels = false;
env.localModelPath = `${dirname(resolve(artifact))}/`;

const lines = readFileSync(texts, "utf8").trimEnd().split("\n");
const wanted = readFileSync(vectors, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line).embedding);
const embed = await pipeline("feature-extraction", basename(artifact), { dtype: "fp32", subfolder: "" });
let largest = wanted.length === lines.length ? 0 : Infinity;
for (let at = 0; at < lines.length; at += 16) {
  const given = await embed(lines.slice(at, at + 16), { pooling: "mean", normalize: true });
  given.tolist().forEach((row, i) => row.forEach((number, j) => {
    const difference = Math.abs(number - wanted[at + i][j]);
    // Written so that a NaN fails.
    largest = difference <= largest ? largest : difference;
  }));
}
const passed = largest <= 1e-5;
console.log(`Transformers.js: ${lines.length} texts, largest difference ${largest.toExponential(1)}${passed ? "" : ": FAILED"}`);
process.exit(passed ? 0 : 1);
