//! Layers with a state of a fixed size give the same before and after they are lowered.

use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::{DType, Graph, Weight, text};
use planish_passes::{CUDA, ONNX, Options, PASSES, Target};

use crate::support::outputs;

fn graph(statements: &str) -> Graph {
    text::parse(&format!("graph \"states\" {{\n{statements}\n}}"), &text::no_files).unwrap()
}

fn lowered(graph: &Graph, target: &'static Target) -> Graph {
    let mut after = graph.clone();
    let pass = PASSES.iter().find(|pass| pass.name == "lower-states").unwrap();
    pass.apply(&mut after, &Options::new(target, 20)).unwrap();
    let kinds: Vec<&str> = after.nodes().map(|(_, node)| node.op.mnemonic()).collect();
    assert!(!kinds.iter().any(|kind| ["causal_conv", "linear_attention"].contains(kind)), "{kinds:?}");
    after
}

/// Pseudo-random inputs of these shapes, times a factor.
fn inputs(shapes: &[(&str, &[usize], f64)]) -> BTreeMap<String, Tensor> {
    let input = |(seed, (name, shape, factor)): (u64, &(&str, &[usize], f64))| {
        let noise = Tensor::from_weight(&Weight::uniform(DType::F32, shape.to_vec(), seed).unwrap()).unwrap();
        let numbers: Vec<f64> = noise.to_f64().into_iter().map(|x| x * factor).collect();
        ((*name).to_owned(), Tensor::from_f64(DType::F32, shape.to_vec(), &numbers).unwrap())
    };
    (0..).zip(shapes).map(input).collect()
}

fn same(before: &Graph, target: &'static Target, inputs: &BTreeMap<String, Tensor>) {
    let (expected, actual) = (outputs(before, inputs).unwrap(), outputs(&lowered(before, target), inputs).unwrap());
    for ((name, expected), (_, actual)) in expected.iter().zip(&actual) {
        assert_eq!(actual.shape(), expected.shape(), "{name}");
        let errors = expected.to_f64().into_iter().zip(actual.to_f64()).map(|(a, b)| (a - b).abs());
        let worst = errors.fold(0.0, |worst: f64, error| if error.is_nan() { f64::NAN } else { worst.max(error) });
        assert!(worst < 1e-5, "{name}: {worst:e}");
    }
}

#[test]
fn convolutions_are_the_same() {
    let graph = graph(
        "input %x: f32[b, s, 4]
         input %p: f32[b, 2, 4]
         weight @w = uniform(1) : f32[4, 1, 3]
         weight @b = uniform(2) : f32[4]
         %y, %n = causal_conv(%x, @w, bias: @b, state: %p) {silu = true} : f32[b, s, 4], f32[b, 2, 4]
         output y = %y
         output n = %n",
    );
    for tokens in [1, 2, 7] {
        same(&graph, &ONNX, &inputs(&[("x", &[2, tokens, 4], 1.0), ("p", &[2, 2, 4], 1.0)]));
    }
}

/// Decays between distant tokens are too small for float32, and those of all tokens before too large for sums of float32 to
/// tell neighbours apart.
#[test]
fn products_of_queries_and_keys_are_the_recurrence() {
    let graph = graph(
        "input %q: f32[b, s, 6]
         input %k: f32[b, s, 6]
         input %v: f32[b, s, 20]
         input %g: f32[b, s, 4]
         input %p: f32[b, 4, 3, 5]
         %d = abs(%g) : f32[b, s, 4]
         %e = neg(%d) : f32[b, s, 4]
         %y, %n = linear_attention(%q, %k, %v, decay: %e, state: %p) {heads = 4, key_heads = 2, scale = 0.5} : f32[b, s, 20], f32[b, 4, 3, 5]
         output y = %y
         output n = %n",
    );
    for tokens in [1, 2, 33] {
        for factor in [0.1, 3.0, 3e4] {
            let shape = |last: usize| [2, tokens, last];
            same(
                &graph,
                &CUDA,
                &inputs(&[
                    ("q", &shape(6), 1.0),
                    ("k", &shape(6), 1.0),
                    ("v", &shape(20), 1.0),
                    ("g", &shape(4), factor),
                    ("p", &[2, 4, 3, 5], 1.0),
                ]),
            );
        }
    }
}
