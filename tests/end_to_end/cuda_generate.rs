//! Generation on the kernels of target `cuda`: the best tokens are found where the scores are. The ids are those of the
//! interpreter.

use planish::artifact::Artifact;
use planish::backend::{RuntimeSettings, runtime_named};
use planish::generate::{Loading, load};
use serde_json::Value;

use crate::support::{Draft, golden, planish, planish_compile, scratch, text};

/// Decoders and an encoder-decoder, with the table that scores tokens.
const MODELS: [(&str, &str); 3] =
    [("gpt2", "transformer.wte.weight"), ("llama", "lm_head.weight"), ("t5", "shared.weight")];

/// What is searched for: by the best of each row, and by all scores where processors may change them.
const SEARCHES: [&[&str]; 7] = [
    &[],
    &["--beams", "3"],
    &["--beams", "7", "--length-penalty", "0.5"],
    &["--temperature", "1.5", "--top-k", "5", "--seed", "3"],
    &["--temperature", "1.5", "--seed", "3"],
    &["--beams", "3", "--repetition-penalty", "1.5"],
    &["--repetition-penalty", "1.5"],
];

fn ids(artifact: &std::path::Path, runtime: &str, search: &[&str]) -> Value {
    let of = ["--ids", "5,9,7", "--ids", "4", "--max-new-tokens", "10", "--ignore-eos", "--json", "--runtime", runtime];
    let done = planish([&["generate", text(artifact)], &of[..], search].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(document["ids"].as_array().unwrap().len(), 2, "{document}");
    document["ids"].clone()
}

/// Every other token has the scores of the one before it, so each best score is there twice.
#[test]
fn equal_scores_keep_the_order_of_the_interpreter() {
    let folder = scratch();
    for (name, table) in MODELS {
        let mut draft = Draft::of(name);
        let stored = draft.tensors.get_mut(table).unwrap();
        let row = stored.bytes.len() / stored.shape[0];
        stored.bytes.chunks_exact_mut(2 * row).for_each(|pair| pair.copy_within(..row, row));
        let model = draft.write(folder.path().join(name));
        let out = folder.path().join(format!("{name}-out"));
        planish_compile(&model, &out, &["--target", "cuda"]).succeeds();
        for search in SEARCHES {
            let [kernels, interpreter] = ["cuda-emulator", "reference"].map(|runtime| ids(&out, runtime, search));
            assert_eq!(kernels, interpreter, "{name} {search:?}");
        }
    }
}

#[test]
fn half_precision_gives_what_its_rows_give() {
    let folder = scratch();
    for (half, padded) in [("--fp16", "sliced"), ("--bf16", "padded")] {
        let out = folder.path().join(half);
        let more = ["--target", "cuda", half, "--keep-io", "half", "--logits", padded];
        planish_compile(&golden("gpt2"), &out, &more).succeeds();
        let artifact = Artifact::open(&out).unwrap();
        let runtime = (runtime_named("cuda-emulator").unwrap())(&RuntimeSettings::default());
        let loading = Loading { threads: 0, caching: true, prompt_chunk: None, decoder_start_token: None };
        let mut model = load(&artifact, runtime.as_ref(), loading).unwrap();
        let mut scores = model.start(&[vec![1, 2, 3], vec![7]]).unwrap();
        for _ in 0..3 {
            let best = scores.best(4).unwrap().expect("the kernels find them");
            for (row, best) in best.iter().enumerate() {
                let all = scores.row(row).unwrap();
                assert_eq!(all.len(), 137);
                let mut order: Vec<usize> = (0..all.len()).collect();
                order.sort_by(|a, b| all[*b].partial_cmp(&all[*a]).unwrap());
                let wanted: Vec<(usize, f32)> = order[..4].iter().map(|at| (*at, all[*at])).collect();
                assert_eq!(best.best, wanted);
                let sum: f64 = all.iter().map(|score| f64::from(*score).exp()).sum();
                assert!((best.log_sum - sum.ln()).abs() < 1e-9, "{} {}", best.log_sum, sum.ln());
            }
            // So many may as well be read.
            assert!(scores.best(100).unwrap().is_none());
            let ids: Vec<i64> = best.iter().map(|best| i64::try_from(best.best[0].0).unwrap()).collect();
            scores = model.step(&[0, 1], &ids).unwrap();
        }
    }
}
