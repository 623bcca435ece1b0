//! Decoders in INT8 choose the tokens that the model chooses, where that is a clear choice.

use std::path::Path;

use planish::source::SourceModel;
use planish_eval::{Tensor, evaluate};
use planish_models::LoadOptions;
use serde_json::json;

use crate::calibrate::integers;
use crate::generate::{artifact, ids, list, stored};
use crate::support::{golden, scratch, text};

/// How much larger than the second one the largest logit must be for the choice to be clear, relative to the largest
/// magnitude.
const MARGIN: f64 = 5e-2;

/// Whether the model's choice of the token after each position from `first` on is a clear one.
fn clear(name: &str, text: &[i64], first: usize) -> Vec<bool> {
    let model = SourceModel::open(&golden(name)).unwrap().load(LoadOptions::default()).unwrap();
    let graph = &model.parts[0].graph;
    let row = |ids: Vec<i64>| Tensor::new(vec![1, text.len()], ids).unwrap();
    let input = |value: &_| {
        let name = graph.value(*value).name.as_str();
        let size = |axis: usize| usize::try_from(graph.ty(*value).shape[axis].as_constant().unwrap()).unwrap();
        let tensor = match name {
            "input_ids" => row(text.to_vec()),
            "attention_mask" => row(vec![1; text.len()]),
            "position_ids" => row((0..).take(text.len()).collect()),
            _ => Tensor::new(vec![1, size(1), 0, size(3)], Vec::<f32>::new()).unwrap(),
        };
        (name, tensor)
    };
    let outputs = evaluate(graph, &graph.inputs().iter().map(input).collect::<Vec<_>>()).unwrap();
    let logits = &outputs.iter().find(|(name, _)| name == "logits").unwrap().1;
    let is_clear = |logits: &[f64]| {
        let mut sorted = logits.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [.., second, largest] = sorted[..] else { panic!("fewer than two tokens") };
        largest - second > MARGIN * logits.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
    };
    logits.to_f64().chunks(logits.shape()[2]).skip(first).map(is_clear).collect()
}

/// Continues a text greedily, with the cache; where a choice is not clear, the model's own is taken and the text continued
/// from there.
#[track_caller]
fn chooses_as_the_model(name: &str, vocabulary: u64, least: usize) {
    let folder = scratch();
    let data = integers(&[("input_ids", vocabulary)], folder.path());
    let (text_ids, prompt) = (stored(name, "out.greedy"), stored(name, "in.prompt").len());
    let clear = clear(name, &text_ids[..text_ids.len() - 1], prompt - 1);
    assert_eq!(clear.len(), text_ids.len() - prompt);
    assert!(clear.iter().filter(|clear| **clear).count() >= least, "{name}: {clear:?}");
    for more in [&["--int8"][..], &["--int8", "--calibrate", text(&data)]] {
        let (_folder, out) = artifact(&golden(name), more);
        let mut at = prompt;
        while at < text_ids.len() {
            at = agreement(&out, &text_ids, at);
            assert!(at == text_ids.len() || !clear[at - prompt], "{name} {more:?}: token {at} is another one");
            at += 1;
        }
    }
}

/// Where a continuation of the text before `at` first differs from it.
fn agreement(artifact: &Path, text: &[i64], at: usize) -> usize {
    let (prompt, count) = (list(&text[..at]), (text.len() - at).to_string());
    let generated = ids(artifact, &["--ids", &prompt, "--max-new-tokens", &count, "--set=ignore_eos"]);
    let same = generated.as_array().unwrap().iter().zip(&text[at..]).take_while(|(got, want)| **got == json!(want));
    at + same.count()
}

#[test]
fn greedy_ids_are_those_of_the_model() {
    chooses_as_the_model("gpt2", 137, 10);
    chooses_as_the_model("llama", 139, 5);
}
