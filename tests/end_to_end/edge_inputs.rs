//! Inputs at the edge: no rows, no tokens, one token, rows that are masked out as a whole.

use planish_eval::{Tensor, evaluate};
use planish_runtimes::{Model, Runtime};
use safetensors::tensor::Dtype;

use crate::support::{
    ONE_THREAD, ONNX_TARGETS, Stored, compiled, golden, onnx_runtime, options, planish, planish_compile, scratch, text,
    write_tensors,
};

const GOLDENS: &[&str] = &["bert", "bert-mlm", "bert-classify", "roberta-mlm", "distilbert-qa"];

/// Runs every golden on both targets with [rows, tokens] inputs of ones, the mask of `masked`
/// rows zero, and compares with the interpreter.
fn agree(rows: usize, tokens: usize, masked: usize) {
    for name in GOLDENS {
        for target in ONNX_TARGETS {
            let folder = scratch();
            let compiled = compiled(&golden(name), &folder.path().join("out"), &options(target));
            let file = compiled.draft.folder().join("model.onnx");
            let mut session = onnx_runtime().load(Model::onnx(&file), ONE_THREAD).unwrap();
            let input = |name: &str| {
                let hidden = if name == "attention_mask" { masked * tokens } else { 0 };
                let ids = (0..rows * tokens).map(|at| i64::from(at >= hidden)).collect::<Vec<_>>();
                Tensor::new(vec![rows, tokens], ids).unwrap()
            };
            let graph = &compiled.source.parts[0].graph;
            let names = graph.inputs().iter().map(|v| graph.value(*v).name.as_str());
            let inputs: Vec<(&str, Tensor)> = names.map(|name| (name, input(name))).collect();
            let (actual, expected) = (session.run(&inputs).unwrap(), evaluate(graph, &inputs).unwrap());
            for ((output, actual), (_, expected)) in actual.iter().zip(&expected) {
                assert_eq!(actual.shape(), expected.shape(), "{name} on {target}: {output}");
                let pairs = actual.to_f64().into_iter().zip(expected.to_f64());
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |m, e| if e > m || e.is_nan() { e } else { m });
                assert!(worst <= 1e-5, "{name} on {target}: {output} is off by {worst:e}");
            }
        }
    }
}

#[test]
fn no_rows() {
    agree(0, 5, 0);
}

/// Refused before ONNX Runtime gets them, which would crash on some of them.
#[test]
fn no_tokens() {
    let ids = |columns: usize| Stored { dtype: Dtype::I64, shape: vec![1, columns], bytes: vec![0; columns * 8] };
    for (name, inputs) in [
        ("bert", &["input_ids", "attention_mask", "token_type_ids"][..]),
        ("gpt2", &["input_ids", "attention_mask", "position_ids"]),
        ("t5", &["input_ids", "attention_mask"]),
        ("bart", &["input_ids", "attention_mask"]),
        ("marian", &["input_ids", "attention_mask"]),
    ] {
        let folder = scratch();
        let (out, path) = (folder.path().join("out"), folder.path().join("inputs.safetensors"));
        planish_compile(&golden(name), &out, &["--target", "ort"]).succeeds();
        let refused = |columns: usize, decoder: Option<usize>, part: &str| {
            let mut tensors = inputs.iter().map(|input| ((*input).to_owned(), ids(columns))).collect();
            let decoder = decoder.map(|columns| ("decoder_input_ids".to_owned(), ids(columns)));
            Extend::extend::<Option<_>>(&mut tensors, decoder);
            write_tensors(&path, &tensors);
            planish(["run", text(&out), "--inputs", text(&path)]).exits(1, &[part, "at least one token"]);
        };
        if matches!(name, "bert" | "gpt2") {
            refused(0, None, "has the shape [1, 0]: `sequence_length` is 0");
        } else {
            refused(0, Some(1), "has the shape [1, 0]: `encoder_sequence_length` is 0");
            refused(1, Some(0), "`decoder_input_ids` has the shape [1, 0]: `decoder_sequence_length` is 0");
        }
    }
}

#[test]
fn one_token() {
    agree(1, 1, 0);
}

#[test]
fn a_row_that_is_masked_out() {
    agree(3, 4, 1);
}

/// Loaders that ask ONNX Runtime itself get an error; strided products of no rows would end their process.
#[test]
fn no_tokens_at_the_runtime() {
    for (name, file) in [("bert", "model.onnx"), ("bart", "encoder_model.onnx"), ("t5", "encoder_model.onnx")] {
        let folder = scratch();
        let out = folder.path().join("out");
        planish_compile(&golden(name), &out, &["--target", "ort"]).succeeds();
        let model = out.join(file);
        let mut session = onnx_runtime().load(Model::onnx(&model), ONE_THREAD).unwrap();
        let ids = |rows: usize| Tensor::new(vec![rows, 0], Vec::<i64>::new()).unwrap();
        let names: Vec<String> = session.inputs().iter().map(|port| port.name.clone()).collect();
        let inputs: Vec<(&str, Tensor)> = names.iter().map(|name| (name.as_str(), ids(1))).collect();
        let error = session.run(&inputs).unwrap_err().to_string();
        assert!(error.contains("cannot be reshaped"), "{name}: {error}");
    }
}
