//! Kernels on the emulated device against the reference interpreter, one operator in a graph.

mod attention;
mod elements;
mod memory;
mod norms;

use std::sync::Arc;

use planish_eval::{Tensor, evaluate};
use planish_ir::{Bindings, DType, Graph, text};

use super::emulator::{self, Emulator};
use super::program::{Style, Target};
use super::session::GraphSession;
use crate::Session;

/// A graph of statements.
fn graph(statements: &str) -> Graph {
    text::parse(&format!("graph \"test\" {{\n{statements}\n}}"), &text::no_files).unwrap()
}

/// A session of a graph on the emulated device.
fn session(graph: &Graph, style: Style) -> GraphSession {
    let device = Arc::new(Emulator::new(emulator::compiler().unwrap()));
    let target = Target::new(style, 4);
    GraphSession::load("cuda-emulator", graph.name.clone(), graph.clone(), device, target, false).unwrap()
}

/// Random elements for the inputs of a graph, with sizes for its symbols: floats about 1, small integers, booleans.
fn inputs(graph: &Graph, sizes: &[(&str, i64)], seed: u64) -> Vec<(String, Tensor)> {
    let bindings: Bindings =
        sizes.iter().map(|(name, size)| (planish_ir::Dim::symbol(name).as_symbol().unwrap().clone(), *size)).collect();
    let one = |(at, input): (usize, &planish_ir::ValueId)| {
        let ty = graph.ty(*input);
        let shape = ty.shape.evaluate(&bindings).unwrap();
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at as u64 + 1);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let numbers: Vec<f64> = (0..shape.iter().product::<usize>())
            .map(|_| match ty.dtype {
                DType::Bool => f64::from(u8::from(next() < 0.7)),
                dtype if dtype.is_integer() => (next() * 7.0).floor(),
                _ => next() * 4.0 - 2.0,
            })
            .collect();
        (graph.value(*input).name.clone(), Tensor::from_f64(ty.dtype, shape, &numbers).unwrap())
    };
    graph.inputs().iter().enumerate().map(one).collect()
}

/// How far results may be from those of the interpreter, relative to the largest element or 1.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        _ => 3e-5,
    }
}

/// Runs a graph in both styles, and compares all outputs with those of the interpreter.
fn check_with(graph: &Graph, inputs: &[(String, Tensor)]) {
    let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let expected = evaluate(graph, &named).unwrap();
    for style in [Style::Fused, Style::Unfused] {
        let given = session(graph, style).run(&named).unwrap();
        assert_eq!(given.len(), expected.len());
        for ((name, given), (_, expected)) in given.iter().zip(&expected) {
            let at = || format!("`{name}` in style {style:?} of\n{graph}");
            assert_eq!((given.dtype(), given.shape()), (expected.dtype(), expected.shape()), "{}", at());
            let (given, wanted) = (given.to_f64(), expected.to_f64());
            let largest = wanted.iter().filter(|x| x.is_finite()).fold(1.0, |most: f64, x| most.max(x.abs()));
            let limit = largest * if expected.dtype().is_float() { tolerance(expected.dtype()) } else { 0.0 };
            for (index, (given, wanted)) in given.iter().zip(&wanted).enumerate() {
                let same = (given.is_nan() && wanted.is_nan()) || given == wanted || (given - wanted).abs() <= limit;
                assert!(same, "element {index} is {given}, and should be {wanted}, of {}", at());
            }
        }
    }
}

/// As [`check_with`], with random inputs.
fn check(statements: &str, sizes: &[(&str, i64)], seed: u64) {
    let graph = graph(statements);
    check_with(&graph, &inputs(&graph, sizes, seed));
}
