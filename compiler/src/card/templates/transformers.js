import { env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "./";
const run = await pipeline("{{ pipeline }}", ".", { dtype: "fp32" });
console.log(await run({{ arguments }}));
