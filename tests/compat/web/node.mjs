// Runs the checks of check.js in Node.
//
//     node node.mjs MODULES FOLDER
//
// MODULES is a folder with the package @huggingface/transformers in node_modules, and FOLDER is what prepare.py wrote. Exits 1 when a result is
// another than planish's.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { checks } from "./check.js";

const [modules, folder] = process.argv.slice(2);
const entry = createRequire(resolve(modules, "package.json")).resolve("@huggingface/transformers");
const { env, pipeline } = await import(pathToFileURL(entry));
env.allowRemoteModels = false;
env.localModelPath = `${resolve(folder)}/models/`;

let failed = 0;
for await (const { task, model, variant, passed, said, given, wanted } of checks(pipeline, JSON.parse(readFileSync(`${folder}/wanted.json`, "utf8")))) {
  console.log(`Transformers.js: ${task}, ${model}, ${variant}: ${said}${passed ? "" : ": FAILED"}`);
  if (!passed && typeof wanted[0] === "string") console.log(given, wanted);
  failed += passed ? 0 : 1;
}
process.exit(failed ? 1 : 0);
