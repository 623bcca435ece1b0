// Runs the variants of models in Transformers.js, in Node and in browsers, and compares with what planish made with the same variants.

// The largest difference of a number, by the variant. Products of integers round their inputs anew in each layer, so one code more or less in
// one runtime is seen in the vector, and sums of products saturate on some processors.
const LIMITS = { fp32: 1e-5, fp16: 1e-4, q8: 2e-2, q4: 2e-2, q4f16: 2e-2 };

/** The largest difference between two lists of lists of numbers; infinite where they differ in form or a number is none. */
function difference(given, wanted) {
  if (given.length !== wanted.length) return Infinity;
  let largest = 0;
  given.forEach((row, i) => {
    if (row.length !== wanted[i].length) largest = Infinity;
    row.forEach((number, j) => {
      const by = Math.abs(number - wanted[i][j]);
      // Written so that a NaN counts.
      largest = by <= largest ? largest : Number.isNaN(by) ? Infinity : by;
    });
  });
  return largest;
}

const ordered = (scores) => Object.keys(scores).sort().map((label) => scores[label]);

/** What a pipeline gives of each text, for people and for comparisons, and what planish made in the same form. */
const TASKS = {
  "feature-extraction": async (run, { texts }, wanted) => {
    const given = (await run(texts, { pooling: "mean", normalize: true })).tolist();
    return { given, by: difference(given, wanted) };
  },
  "text-classification": async (run, { texts }, wanted) => {
    const given = (await run(texts, { top_k: null })).map((scores) => Object.fromEntries(scores.map(({ label, score }) => [label, score])));
    return { given, by: difference(given.map(ordered), wanted.map(ordered)) };
  },
  "text-generation": async (run, { texts, new_tokens }, wanted) => {
    const given = [];
    for (const text of texts) {
      const [{ generated_text }] = await run(text, { max_new_tokens: new_tokens, do_sample: false, return_full_text: false });
      given.push(generated_text.trim());
    }
    return { given, same: given.join("\n") === wanted.join("\n") };
  },
  "text2text-generation": async (run, { texts, new_tokens }, wanted) => {
    const given = [];
    for (const text of texts) given.push((await run(text, { max_new_tokens: new_tokens, do_sample: false }))[0].generated_text.trim());
    return { given, same: given.join("\n") === wanted.join("\n") };
  },
};

/**
 * Runs all tasks with all variants, and yields for each `{task, model, variant, texts, given, wanted, passed, said}`.
 * `options` are those of pipelines, such as the device.
 */
export async function* checks(pipeline, tasks, options = {}) {
  for (const [task, asked] of Object.entries(tasks)) {
    for (const [variant, wanted] of Object.entries(asked.variants)) {
      const check = { task, model: asked.model, variant, texts: asked.texts, wanted };
      try {
        const run = await pipeline(task, asked.model, { dtype: variant, ...options });
        const { given, by, same } = await TASKS[task](run, asked, wanted);
        await run.dispose();
        const passed = same ?? by <= LIMITS[variant];
        const said = same === undefined ? `differs by ${by.toExponential(1)}, at most ${LIMITS[variant]}` : same ? "the same text" : "another text";
        yield { ...check, given, passed, said };
      } catch (error) {
        yield { ...check, given: null, passed: false, said: `${error}`.split("\n")[0] };
      }
    }
  }
}
