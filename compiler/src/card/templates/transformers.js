import { env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "./";
const run = await pipeline("{{ pipeline }}", ".", { dtype: "{{ dtype }}" });
console.log(await run({{ arguments }}));
