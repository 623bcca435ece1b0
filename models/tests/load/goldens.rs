//! The goldens load, give the graph that is expected, and compute what the transformers library does.

use std::fs;
use std::path::Path;

use planish_eval::{Tensor, evaluate};
use planish_ir::{DType, Origin, ValueId};
use planish_models::Task;
use safetensors::tensor::{Dtype, SafeTensors};

use crate::support::{STRICT, golden, goldens, load_path};

const GOLDENS: &[(&str, Task)] = &[
    ("bert", Task::FeatureExtraction),
    ("bert-mlm", Task::FillMask),
    ("bert-classify", Task::TextClassification),
    ("roberta-mlm", Task::FillMask),
    ("distilbert-qa", Task::QuestionAnswering),
];

#[test]
fn they_load_strictly_for_the_task_that_their_class_names() {
    for &(name, task) in GOLDENS {
        let model = load_path(&golden(name), STRICT).unwrap();
        assert_eq!(model.task, Some(task), "{name}");
        assert_eq!(model.parts[0].graph.name, name);
        assert_eq!((model.vocab_size, model.max_positions), (Some(131), Some(32)), "{name}");
        let inputs: Vec<&str> = model.parts[0].id_ranges.iter().map(|r| r.input.as_str()).collect();
        let values: Vec<&str> =
            model.parts[0].graph.inputs().iter().map(|v| model.parts[0].graph.value(*v).name.as_str()).collect();
        assert_eq!(inputs, values, "{name}");
        let third = if name.starts_with("bert") { Some(2) } else { None };
        let ends: Vec<i64> = model.parts[0].id_ranges.iter().map(|r| r.end).collect();
        assert_eq!(ends, [131, 2].into_iter().chain(third).collect::<Vec<i64>>(), "{name}");
    }
}

/// A tensor of a golden's reference.
fn reference(io: &SafeTensors<'_>, key: &str) -> Option<Tensor> {
    let view = io.tensor(key).ok()?;
    let dtype = if view.dtype() == Dtype::I64 { DType::I64 } else { DType::F32 };
    Some(Tensor::from_bytes(dtype, view.shape().to_vec(), view.data()).unwrap())
}

/// Keys or values, [batch, heads, positions, size], at the last positions, if a reference has only these: the transformers
/// library keeps those of a window.
fn latest(cache: &Tensor, shape: &[usize]) -> Tensor {
    let (&[batch, heads, positions, size], &[_, _, kept, _]) = (cache.shape(), shape) else { return cache.clone() };
    if kept >= positions {
        return cache.clone();
    }
    let rows = cache.as_f32().unwrap().chunks(positions * size);
    let last = rows.flat_map(|row| &row[(positions - kept) * size..]).copied().collect::<Vec<f32>>();
    Tensor::new(vec![batch, heads, kept, size], last).unwrap()
}

/// Models of one graph from an empty cache; a cache and several graphs are compared end to end.
#[test]
fn they_compute_what_transformers_computes() {
    for name in goldens() {
        let model = load_path(&golden(&name), STRICT).unwrap_or_else(|error| panic!("{name}: {error}"));
        let [part] = model.parts.as_slice() else { continue };
        let bytes = fs::read(golden(&name).join("io.safetensors")).unwrap();
        let io = SafeTensors::deserialize(&bytes).unwrap();
        let mask = reference(&io, "in.attention_mask");
        let input = |value: &ValueId| {
            let (own, ty) = (part.graph.value(*value).name.as_str(), part.graph.ty(*value));
            // Keys and values of no token, and states before the first one.
            let empty = || {
                let rows = mask.as_ref().unwrap().shape()[0];
                let sizes = ty.shape[1..].iter().map(|dim| dim.as_constant().unwrap_or(0).try_into().unwrap());
                Tensor::zeros(DType::F32, [rows].into_iter().chain(sizes).collect()).unwrap()
            };
            (own, reference(&io, &format!("in.{own}")).unwrap_or_else(empty))
        };
        let inputs: Vec<(&str, Tensor)> = part.graph.inputs().iter().map(input).collect();
        let outputs = evaluate(&part.graph, &inputs).unwrap();

        let is_output = |n: &&str| !n.starts_with("step.") && !["greedy", "beam4"].contains(n);
        let all = io.names().into_iter().filter_map(|n| n.strip_prefix("out.")).filter(is_output);
        let (mut expected, mut given): (Vec<&str>, Vec<&str>) =
            (all.collect(), outputs.iter().map(|(n, _)| n.as_str()).collect());
        expected.sort_unstable();
        given.sort_unstable();
        // Not every reference has what a pooler gives.
        assert!(expected.iter().all(|output| given.contains(output)), "{name}: {given:?}");
        for output in expected {
            let value = &outputs.iter().find(|(own, _)| own == output).unwrap().1;
            let want = reference(&io, &format!("out.{output}")).unwrap();
            let value = &latest(value, want.shape());
            assert_eq!(value.shape(), want.shape(), "{name} {output}");
            // What padding gives is not compared: [batch, positions, ..], or [batch, heads, positions, ..] of a cache.
            let axis = if output.starts_with("present.") { 2 } else { 1 };
            let is_of = |mask: &&Tensor| mask.shape().len() == 2 && want.shape().get(axis) == Some(&mask.shape()[1]);
            let mask = mask.as_ref().filter(is_of);
            let (rows, size) = (want.shape()[0], want.shape().iter().skip(axis + 1).product::<usize>().max(1));
            let per_row = want.shape().iter().skip(1).product::<usize>().max(1);
            let kept = |at: &usize| {
                mask.is_none_or(|mask| {
                    let width = mask.shape()[1];
                    mask.as_i64().unwrap()[at / per_row % rows * width + at / size % width] != 0
                })
            };
            let errors = value.to_f64().into_iter().zip(want.to_f64()).enumerate();
            let error = errors.filter(|(at, _)| kept(at)).map(|(_, (a, b))| (a - b).abs()).fold(0.0, f64::max);
            // Relative to the largest value, at least 1.
            let error = error / want.to_f64().into_iter().map(f64::abs).fold(1.0, f64::max);
            assert!(error < 1e-5, "{name} {output}: largest error {error}");
        }
    }
}

#[test]
fn the_graph_of_bert_is_the_stored_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/load/bert.ir");
    let text = load_path(&golden("bert"), STRICT).unwrap().parts[0].graph.to_string();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap();
    assert_eq!(text, stored, "run with BLESS=1 to accept the new text");
}

#[test]
fn values_know_where_they_come_from() {
    let graph = load_path(&golden("bert-mlm"), STRICT).unwrap().parts.remove(0).graph;
    let origin = |name: &str| graph.values().find(|(_, v)| v.name == name).unwrap().1.origin.clone();
    assert_eq!(
        origin("encoder.layer.1.output.dense.weight"),
        Origin::Tensor { file: "model.safetensors".into(), name: "bert.encoder.layer.1.output.dense.weight".into() }
    );
    assert_eq!(origin("encoder.layer.0.attention"), Origin::Module("encoder.layer.0.attention".into()));
}

#[test]
fn a_tied_decoder_is_the_embedding() {
    let graph = load_path(&golden("bert-mlm"), STRICT).unwrap().parts.remove(0).graph;
    let id = |name: &str| graph.values().find(|(_, v)| v.name == name).unwrap().0;
    let decoder = graph.producer(id("cls.predictions.decoder")).unwrap();
    assert!(decoder.op.operands().contains(&id("embeddings.word_embeddings.weight")));
    assert!(graph.weights().all(|(_, value, _)| value.name != "cls.predictions.decoder.weight"));
}
