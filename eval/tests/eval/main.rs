//! The interpreter from outside: each operator against values computed by hand or by another
//! formula, invariants on random tensors, and the error for each bad input.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attention;
mod bert;
mod cast;
mod collective;
mod control;
mod conv;
mod einsum;
mod elementwise;
mod experts;
mod foreign;
mod fused;
mod gather;
mod graph;
mod grouped;
mod inputs;
mod linear;
mod movement;
mod normalize;
mod order;
mod quantize;
mod quantized_linear;
mod recurrent;
mod reduce;
mod rotary;
mod small_types;
mod state;
mod states;
mod unary;

use planish_eval::{Data, EvalError, Tensor, evaluate};
use planish_ir::{DType, Graph, Op, Origin, ValueId, Weight, text, verify};

/// A tensor of these elements.
fn tensor(shape: &[usize], data: impl Into<Data>) -> Tensor {
    Tensor::new(shape.to_vec(), data).expect("as many elements as the shape has")
}

/// Numbers as a tensor of a type.
fn numbers(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, shape.to_vec(), values).expect("as many elements as the shape has")
}

/// Pseudo-random numbers in [-1, 1).
fn random(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    Tensor::from_weight(&Weight::uniform(dtype, shape.to_vec(), seed).unwrap()).unwrap()
}

/// The results of an operator applied to tensors.
fn try_apply<O: Into<Op>>(operands: &[&Tensor], op: impl FnOnce(&[ValueId]) -> O) -> Result<Vec<Tensor>, EvalError> {
    let mut graph = Graph::new("test");
    let names: Vec<String> = (0..operands.len()).map(|i| format!("x{i}")).collect();
    let inputs: Vec<ValueId> =
        names.iter().zip(operands).map(|(name, x)| graph.add_input(name, x.ty(), Origin::Unknown)).collect();
    let results = graph.emit(op(&inputs), "y", Origin::Unknown).expect("the operands fit the operator");
    for (i, value) in results.into_iter().enumerate() {
        graph.add_output(&format!("y{i}"), value);
    }
    verify(&graph).expect("a valid graph");
    let inputs: Vec<(&str, Tensor)> =
        names.iter().map(String::as_str).zip(operands.iter().map(|x| (*x).clone())).collect();
    Ok(evaluate(&graph, &inputs)?.into_iter().map(|(_, tensor)| tensor).collect())
}

/// The one result of an operator applied to tensors.
fn apply<O: Into<Op>>(operands: &[&Tensor], op: impl FnOnce(&[ValueId]) -> O) -> Tensor {
    let mut results = try_apply(operands, op).expect("the operator has a value");
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Why an operator applied to tensors has no value.
fn fails<O: Into<Op>>(operands: &[&Tensor], op: impl FnOnce(&[ValueId]) -> O) -> String {
    try_apply(operands, op).expect_err("the operator has no value").to_string()
}

/// The graph of these statements.
fn graph(statements: &str) -> Graph {
    let graph = text::parse(&format!("graph \"test\" {{\n{statements}\n}}"), &text::no_files).expect("a graph");
    verify(&graph).expect("a valid graph");
    graph
}

/// Whether numbers differ by at most `tolerance`, absolute below 1 and relative above.
#[track_caller]
fn assert_close(actual: &Tensor, expected: &[f64], tolerance: f64) {
    let actual = actual.to_f64();
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "element {i}: {a} is not {e}");
    }
}
