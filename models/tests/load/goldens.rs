//! The goldens load, give the graph that is expected, and compute what the transformers library does.

use std::fs;
use std::path::Path;

use planish_eval::{Tensor, evaluate};
use planish_ir::{DType, Origin};
use planish_models::Task;
use safetensors::tensor::{Dtype, SafeTensors};

use crate::support::{STRICT, golden, load_path};

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

#[test]
fn they_compute_what_transformers_computes() {
    for &(name, _) in GOLDENS {
        let model = load_path(&golden(name), STRICT).unwrap();
        let bytes = fs::read(golden(name).join("io.safetensors")).unwrap();
        let io = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |key: &str| {
            let view = io.tensor(key).unwrap();
            let dtype = if view.dtype() == Dtype::I64 { DType::I64 } else { DType::F32 };
            Tensor::from_bytes(dtype, view.shape().to_vec(), view.data()).unwrap()
        };
        let inputs: Vec<(&str, Tensor)> =
            model.parts[0].id_ranges.iter().map(|r| (r.input.as_str(), tensor(&format!("in.{}", r.input)))).collect();
        let outputs = evaluate(&model.parts[0].graph, &inputs).unwrap();

        let mut expected: Vec<&str> = io.names().into_iter().filter_map(|n| n.strip_prefix("out.")).collect();
        let mut given: Vec<&str> = outputs.iter().map(|(n, _)| n.as_str()).collect();
        expected.sort_unstable();
        given.sort_unstable();
        assert_eq!(given, expected, "{name}");
        for (output, value) in &outputs {
            let want = tensor(&format!("out.{output}"));
            assert_eq!(value.shape(), want.shape(), "{name} {output}");
            let error = value.to_f64().iter().zip(want.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
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
