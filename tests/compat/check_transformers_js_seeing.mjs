// Loads artifacts of models that see in Transformers.js, and compares logits and ids of greedy search with those of goldens.
//
//     node check_transformers_js_seeing.mjs MODULES MODEL=GOLDEN...
//
// MODULES is a folder with the package @huggingface/transformers in node_modules. MODEL is an artifact, and GOLDEN the checkpoint that it
// was compiled from, with io.safetensors. Exits 1 when logits differ by more than 1e-4 of the largest, or ids differ.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, ...pairs] = process.argv.slice(2);
const entry = createRequire(resolve(modules, "package.json")).resolve("@huggingface/transformers");
const { AutoModelForImageTextToText, Tensor, env } = await import(pathToFileURL(entry));
env.allowRemoteModels = false;

/** The tensors of a file of safetensors, by their names. */
function tensors(file) {
  const bytes = readFileSync(file);
  const end = 8 + Number(bytes.readBigUInt64LE());
  const { __metadata__, ...named } = JSON.parse(bytes.subarray(8, end).toString());
  const entries = Object.entries(named);
  return Object.fromEntries(entries.map(([name, { dtype, shape, data_offsets: [from, to] }]) => {
    const data = new Uint8Array(bytes.subarray(end + from, end + to)).buffer;
    return [name, dtype === "I64" ? new Tensor("int64", new BigInt64Array(data), shape) : new Tensor("float32", new Float32Array(data), shape)];
  }));
}

let failed = false;
for (const pair of pairs) {
  const [artifact, golden] = pair.split("=").map((path) => resolve(path));
  env.localModelPath = `${dirname(artifact)}/`;
  const io = tensors(join(golden, "io.safetensors"));
  const model = await AutoModelForImageTextToText.from_pretrained(basename(artifact), { dtype: "fp32", subfolder: "" });
  const inputs = (ids) => ({
    input_ids: ids, pixel_values: io["in.pixel_values"],
    attention_mask: new Tensor("int64", new BigInt64Array(ids.data.length).fill(1n), ids.dims),
  });
  const { logits } = await model(inputs(io["in.input_ids"]));
  const wanted = io["out.logits"].data;
  const largest = wanted.reduce((most, number) => Math.max(most, Math.abs(number)), 1);
  const worst = wanted.reduce((most, number, at) => Math.max(most, Math.abs(number - logits.data[at])), 0) / largest;
  const count = io["in.prompt"].data.length;
  const greedy = [...io["out.greedy"].data].map(Number);
  // The golden goes on after the token that ends a text.
  const end = greedy.indexOf(2, count);
  const ids = end < 0 ? greedy : greedy.slice(0, end + 1);
  const made = await model.generate({ ...inputs(io["in.prompt"]), max_new_tokens: greedy.length - count, do_sample: false });
  const same = [...made.data].map(Number).join() === ids.join();
  // Written so that a NaN fails.
  const passed = worst <= 1e-4 && same;
  failed ||= !passed;
  console.log(`Transformers.js: ${basename(artifact)}, ${model.constructor.name}: logits differ by ${worst.toExponential(1)}, ids ${same ? "the same" : "differ"}${passed ? "" : ": FAILED"}`);
}
process.exit(failed ? 1 : 0);
