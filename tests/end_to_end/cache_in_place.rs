//! Decoders whose attention appends to the cache in place.

use planish_eval::Tensor;
use planish_ir::DType;
use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Model, Runtime, RuntimeValue, Session, SessionOptions};
use serde_json::{Value, json};

use crate::generate::{DECODERS, artifact, ids, list, stored};
use crate::support::{Draft, golden, planish_compile, scratch};

const IN_PLACE: &[&str] = &["--recipe", "cache=in-place"];

/// The goldens whose heads do not have a multiple of 8 features.
const REFUSED: [&str; 4] = ["gpt2", "opt", "opt-350m-like", "phi3-longrope"];

fn decoders() -> impl Iterator<Item = &'static str> {
    DECODERS.into_iter().filter(|name| !REFUSED.contains(name))
}

/// Prompts of several lengths are padded on the left; rows that end leave the batch.
#[test]
fn the_ids_are_those_of_a_cache_that_is_copied() {
    for name in decoders() {
        let (_folder, out) = artifact(&golden(name), IN_PLACE);
        let (_other, copying) = artifact(&golden(name), &[]);
        let prompt = stored(name, "in.prompt");
        let greedy = stored(name, "out.greedy");
        // The golden was generated without the cache where frequencies change with each token.
        if name != "llama-dynamic" {
            let more = ["--ids", &list(&prompt), "--set=ignore_eos", "--max-new-tokens"];
            let count = (greedy.len() - prompt.len()).to_string();
            let new = &greedy[prompt.len()..];
            assert_eq!(ids(&out, &[&more[..], &[&count]].concat()), json!(new), "{name}");
        }
        let prompts = [list(&prompt[..3]), list(&prompt), list(&prompt[4..6])];
        let prompts: Vec<&str> = prompts.iter().flat_map(|prompt| ["--ids", prompt]).collect();
        for search in [&[][..], &["--set=ignore_eos"], &["--set", "num_beams=3"]] {
            let more = [&["--max-new-tokens", "24"][..], search, &prompts].concat();
            assert_eq!(ids(&out, &more), ids(&copying, &more), "{name} {search:?}");
        }
    }
}

/// GPT-2 with heads that the operator takes: queries, keys and values are parts of one product.
#[test]
fn the_ids_of_gpt2_are_those_of_a_cache_that_is_copied() {
    let folder = scratch();
    let mut draft = Draft::of("gpt2");
    draft.config["n_head"] = json!(2);
    let model = draft.write(folder.path().join("model"));
    let (_folder, out) = artifact(&model, &["--recipe", "cache=in-place", "--verify"]);
    let (_other, copying) = artifact(&model, &[]);
    for more in [&["--ids", "5,6,7,8,9"][..], &["--ids", "5,6,7,8,9", "--ids", "3,4", "--ids", "11"]] {
        let more = [&["--max-new-tokens", "40", "--set=ignore_eos"], more].concat();
        assert_eq!(ids(&out, &more), ids(&copying, &more));
    }
}

/// Verification continues from caches, of one row and of several, by one token and by more.
#[test]
fn the_artifact_is_verified() {
    for name in decoders() {
        let (_folder, out) = artifact(&golden(name), &["--recipe", "cache=in-place", "--verify"]);
        let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("planish.json")).unwrap()).unwrap();
        assert_eq!(manifest["cache_in_place"], json!(true), "{name}");
        let cases = manifest["verification"]["cases"]
            .as_array()
            .or_else(|| manifest["verification"]["parts"].as_array()?.first()?["cases"].as_array());
        let labels: Vec<&str> = cases.unwrap().iter().map(|case| case["label"].as_str().unwrap()).collect();
        assert!(labels.contains(&"2 x 7, padded, 6 of them cached"), "{labels:?}");
        assert!(labels.contains(&"3 x 9, padded, 5 of them cached"), "{labels:?}");
    }
}

/// The inputs of one row of new tokens, but those of the cache.
fn inputs(tokens: &[i64], before: usize) -> [(&'static str, RuntimeValue); 3] {
    let row = |elements: Vec<i64>| RuntimeValue::from(Tensor::new(vec![1, elements.len()], elements).unwrap());
    let all = before + tokens.len();
    let positions = (before..all).map(|at| i64::try_from(at).unwrap()).collect();
    [("input_ids", row(tokens.to_vec())), ("attention_mask", row(vec![1; all])), ("position_ids", row(positions))]
}

/// Runs new tokens after a past that stays where it is.
fn step(
    session: &mut dyn Session,
    tokens: &[i64],
    past: &[(String, RuntimeValue)],
    before: usize,
) -> Vec<(String, RuntimeValue)> {
    let own = inputs(tokens, before);
    let cache = past
        .iter()
        .filter_map(|(name, value)| Some((format!("past_key_values.{}", name.strip_prefix("present.")?), value)));
    let given: Vec<(String, &RuntimeValue)> =
        own.iter().map(|(name, value)| ((*name).to_owned(), value)).chain(cache).collect();
    let given: Vec<(&str, &RuntimeValue)> = given.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    session.run_values(&given).unwrap()
}

fn logits(outputs: &[(String, RuntimeValue)]) -> Tensor {
    outputs.iter().find(|(name, _)| name == "logits").unwrap().1.to_tensor().unwrap()
}

/// Two texts may continue from one past: what the first wrote after it is not what the second reads.
#[test]
fn a_past_is_continued_more_than_once() {
    let (_folder, out) = artifact(&golden("llama"), IN_PLACE);
    let model = out.join("model.onnx");
    let mut session = OnnxRuntime::new(None).load(Model::onnx(&model), SessionOptions { threads: 1 }).unwrap();
    let session = &mut *session;
    let empty = |port: &planish_runtimes::Port| {
        let name = port.name.strip_prefix("past_key_values.")?;
        let size = |axis: usize| usize::try_from(port.ty.shape[axis].as_constant().unwrap()).unwrap();
        let none = Tensor::zeros(DType::F32, vec![1, size(1), 0, size(3)]).unwrap();
        Some((format!("present.{name}"), none.into()))
    };
    let empty: Vec<(String, RuntimeValue)> = session.inputs().iter().filter_map(empty).collect();
    let past = step(session, &[5, 6, 7], &empty, 0);
    let kept = past[1].1.to_tensor().unwrap();
    let one = step(session, &[8], &past, 3);
    let other = step(session, &[9], &past, 3);
    let expected = |last| logits(&step(session, &[last], &past, 3));
    assert_eq!([8, 9].map(expected), [logits(&one), logits(&other)]);
    assert_ne!(logits(&one), logits(&other));
    assert_eq!(past[1].1.to_tensor().unwrap(), kept);
    // Both go on from what they have.
    let [a, b] = [&one, &other].map(|past| logits(&step(session, &[3, 4], past, 4)));
    let again = step(session, &[5, 6, 7, 9, 3, 4], &empty, 0);
    let last = again.iter().find(|(name, _)| name == "logits").unwrap().1.to_tensor().unwrap().to_f64();
    let difference = |x: &Tensor| {
        let x = x.to_f64();
        x.iter().zip(&last[last.len() - x.len()..]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(difference(&b) < 1e-5 && difference(&a) > 1e-3, "{} {}", difference(&b), difference(&a));
}

#[test]
fn what_cannot_append_in_place_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("gpt2"), &out, IN_PLACE)
        .exits(1, &["a head has 12 features; the operator takes a multiple of 8", "--recipe cache=copy"]);
    planish_compile(&golden("t5"), &out, IN_PLACE)
        .exits(1, &["--recipe cache=in-place is for decoders", "--recipe cache=copy"]);
    planish_compile(&golden("bert"), &out, IN_PLACE)
        .exits(1, &["--recipe cache=in-place is for decoders", "--recipe cache=copy"]);
    for (more, reason) in
        [(&["--target", "onnx"][..], "is for target ort"), (&["--no-fusion"], "leave out --no-fusion")]
    {
        planish_compile(&golden("llama"), &out, &[IN_PLACE, more].concat()).exits(2, &[reason]);
    }
    assert!(!out.exists());
}

/// A graph that appends in place does so when it is compiled once more.
#[test]
fn a_graph_that_appends_in_place_keeps_its_form() {
    let (_folder, out) = artifact(&golden("llama"), IN_PLACE);
    let (_other, again) = artifact(&out.join("model.onnx"), &["--task", "text-generation", "--verify"]);
    let manifest: Value = serde_json::from_slice(&std::fs::read(again.join("planish.json")).unwrap()).unwrap();
    assert_eq!(manifest["cache_in_place"], json!(true));
    let prompts = ["--ids", "5,6,7", "--ids", "8", "--max-new-tokens", "8", "--set=ignore_eos"];
    assert_eq!(ids(&again, &prompts), ids(&out, &prompts));
}
