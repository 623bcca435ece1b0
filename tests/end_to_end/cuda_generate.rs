//! Generation on the kernels of target `cuda`: the best tokens are found where the scores are. The ids are those of the
//! interpreter.

use planish::artifact::Artifact;
use planish::backend::{RuntimeSettings, runtime_named};
use planish::generate::{LanguageModel, Loading, Scores, load};
use serde_json::Value;

use crate::support::{Draft, golden, planish, planish_compile, scratch, text};

/// Decoders and an encoder-decoder, with the table that scores tokens.
const MODELS: [(&str, &str); 3] =
    [("gpt2", "transformer.wte.weight"), ("llama", "lm_head.weight"), ("t5", "shared.weight")];

/// What is searched for: by the best of each row, and by all scores where processors may change them.
const SEARCHES: [&[&str]; 7] = [
    &[],
    &["--set", "num_beams=3"],
    &["--set", "num_beams=7,length_penalty=0.5"],
    &["--temperature", "1.5", "--top-k", "5", "--seed", "3"],
    &["--temperature", "1.5", "--seed", "3"],
    &["--set", "num_beams=3,repetition_penalty=1.5"],
    &["--set", "repetition_penalty=1.5"],
];

fn ids(artifact: &std::path::Path, runtime: &str, search: &[&str]) -> Value {
    let of =
        ["--ids", "5,9,7", "--ids", "4", "--max-new-tokens", "10", "--set=ignore_eos", "--json", "--runtime", runtime];
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
        let logits = format!("logits={padded}");
        let more = ["--target", "cuda", half, "--recipe", "io=half", "--recipe", &logits];
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

/// The same model with steps that are replayed, and with steps that are planned for their lengths.
struct Both([Box<dyn LanguageModel>; 2]);

impl Both {
    fn of(artifact: &Artifact) -> Self {
        let loading = Loading { threads: 0, caching: true, prompt_chunk: None, decoder_start_token: None };
        Self([true, false].map(|cuda_graph| {
            let mut settings = RuntimeSettings::default();
            settings.engines.cuda_graph = cuda_graph;
            let runtime = (runtime_named("cuda-emulator").unwrap())(&settings);
            load(artifact, runtime.as_ref(), loading).unwrap()
        }))
    }

    /// Does the same with both; the best token of each row, which is one.
    fn each(&mut self, name: &str, run: impl Fn(&mut dyn LanguageModel) -> Scores) -> Vec<i64> {
        let [given, wanted] = self.0.each_mut().map(|model| run(model.as_mut()));
        assert_eq!(given.rows(), wanted.rows());
        let best = |row: usize| {
            let [given, wanted] = [&given, &wanted].map(|scores| scores.row(row).unwrap());
            let close = given.iter().zip(wanted).all(|(x, y)| (x - y).abs() <= 1e-4 * y.abs().max(1.0));
            assert!(close, "{name}, row {row}: {given:?}, and not {wanted:?}");
            let order = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
            assert_eq!(order(given), order(wanted), "{name}, row {row}");
            i64::try_from(order(wanted)).unwrap()
        };
        (0..given.rows()).map(best).collect()
    }
}

/// Decoders with learned and with rotary positions, with frequencies that change at a length, with windows, and an
/// encoder-decoder, whose text is long enough that its cache grows.
const DECODERS: [(&str, usize); 7] =
    [("gpt2", 55), ("llama", 55), ("qwen3", 20), ("phi3-longrope", 20), ("gemma2", 20), ("mistral", 55), ("t5", 150)];

#[test]
fn replayed_steps_give_what_planned_ones_do() {
    let folder = scratch();
    for (name, tokens) in DECODERS {
        let out = folder.path().join(name);
        planish_compile(&golden(name), &out, &["--target", "cuda"]).succeeds();
        let explained = planish(["inspect", text(&out), "--show", "attention"]).exits(0, &[]).stdout;
        assert!(explained.contains("lengths    one program for"), "{name}: {explained}");
        let mut both = Both::of(&Artifact::open(&out).unwrap());
        let mut best = both.each(name, |model| model.start(&[vec![1, 2, 3]]).unwrap());
        for _ in 0..tokens {
            best = both.each(name, |model| model.step(&[0], &best).unwrap());
        }
        // Rows of other rows, as beams are, then the same ones.
        both.each(name, |model| model.start(&[vec![1, 2, 3], vec![7]]).unwrap());
        let beams =
            [&[0, 0, 1][..], &[2, 1, 0], &[0, 1, 2], &[0, 1, 2], &[0, 1, 2], &[1, 1, 2], &[0, 1, 2], &[0, 1, 2]];
        for rows in beams {
            both.each(name, |model| model.step(rows, &[4, 5, 6]).unwrap());
        }
        if name == "t5" {
            continue;
        }
        // Tokens that are read ahead, of which some are forgotten.
        both.each(name, |model| model.start(&[vec![1, 2]]).unwrap());
        for _ in 0..5 {
            let read = both.each(name, |model| model.read(&[3, 4, 5]).unwrap()).len();
            if read == 3 {
                both.0.iter_mut().for_each(|model| model.forget(2).unwrap());
            }
        }
    }
}

#[test]
fn kernels_can_be_started_one_by_one() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("gpt2"), &out, &["--target", "cuda"]).succeeds();
    let [replayed, started] =
        [&[][..], &["--runtime-option=cuda-graph=false"]].map(|options: &[&str]| ids(&out, "cuda-emulator", options));
    assert_eq!(replayed, started);
    let verified = planish(["verify", text(&out), "--replay", "--runtime", "cuda-emulator", "--max-length", "9"]);
    verified.exits(0, &[]);
}
