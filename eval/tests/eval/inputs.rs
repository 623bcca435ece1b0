use planish_eval::{EvalError, Tensor, bind, evaluate};
use planish_ir::{DType, Graph, Symbol};

use crate::{graph, numbers, tensor};

fn two_inputs() -> Graph {
    graph(
        "input %ids: i64[batch, past + seq]
         input %mask: bool[batch, seq]
         input %past: f32[past, 2]
         output ids = %ids",
    )
}

fn ids(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::I64, shape.to_vec()).unwrap()
}

fn mask(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::Bool, shape.to_vec()).unwrap()
}

fn past(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::F32, shape.to_vec()).unwrap()
}

fn error(inputs: &[(&str, Tensor)]) -> String {
    bind(&two_inputs(), inputs).expect_err("the inputs do not fit").to_string()
}

const EXPECTED: &str = "`ids`: i64[batch, past + seq], `mask`: bool[batch, seq], `past`: f32[past, 2]";

#[test]
fn symbols_take_the_sizes_of_the_inputs() {
    let inputs = [("past", past(&[3, 2])), ("ids", ids(&[2, 7])), ("mask", mask(&[2, 4]))];
    let bindings = bind(&two_inputs(), &inputs).unwrap();
    let expected = [("batch", 2), ("past", 3), ("seq", 4)].map(|(name, size)| (Symbol::new(name), size));
    assert!(bindings.into_iter().eq(expected));
}

#[test]
fn a_multiple_is_divided() {
    let graph = graph("input %x: f32[4*places, 2]\n output x = %x");
    let places =
        |rows: usize| bind(&graph, &[("x", past(&[rows, 2]))]).map(|bindings| bindings[&Symbol::new("places")]);
    assert_eq!(places(12).unwrap(), 3);
    assert!(places(6).unwrap_err().to_string().contains("places"));
}

#[test]
fn a_size_of_zero_is_a_size() {
    let inputs = [("past", past(&[0, 2])), ("ids", ids(&[1, 4])), ("mask", mask(&[1, 4]))];
    assert!(bind(&two_inputs(), &inputs).is_ok());
}

#[test]
fn names_that_do_not_fit() {
    let missing = error(&[("ids", ids(&[1, 1])), ("mask", mask(&[1, 1]))]);
    assert_eq!(missing, format!("input `past` is missing; the graph takes {EXPECTED}"));
    let unknown = error(&[("id", ids(&[1, 1]))]);
    assert_eq!(unknown, format!("the graph has no input `id`; it takes {EXPECTED}"));
    assert_eq!(error(&[("ids", ids(&[1, 1])), ("ids", ids(&[1, 1]))]), "input `ids` is given twice");
    let none = evaluate(&graph(""), &[("x", ids(&[1]))]).unwrap_err().to_string();
    assert_eq!(none, "the graph has no input `x`; it takes no inputs");
}

#[test]
fn types_that_do_not_fit() {
    let with_past = |past| error(&[("ids", ids(&[2, 7])), ("mask", mask(&[2, 4])), ("past", past)]);
    assert_eq!(
        with_past(numbers(DType::F16, &[3, 2], &[0.0; 6])),
        format!("input `past` is f16[3, 2], expected f32[past, 2]; the graph takes {EXPECTED}")
    );
    assert_eq!(
        with_past(past(&[3])),
        format!("input `past` is f32[3], expected f32[past, 2]; the graph takes {EXPECTED}")
    );
    assert_eq!(
        with_past(past(&[3, 5])),
        format!(
            "input `past` is f32[3, 5], expected f32[past, 2] (dimension 1, `2`, is 2); the graph takes {EXPECTED}"
        )
    );
    assert_eq!(
        with_past(past(&[2, 2])),
        format!(
            "input `ids` is i64[2, 7], expected i64[batch, past + seq] (dimension 1, `past + seq`, is 6); \
             the graph takes {EXPECTED}"
        )
    );
}

#[test]
fn a_symbol_has_one_value() {
    let disagree = error(&[("ids", ids(&[2, 7])), ("mask", mask(&[3, 4])), ("past", past(&[3, 2]))]);
    assert_eq!(disagree, "`batch` is 2 by input `ids` and 3 by input `mask`");
    let square = graph("input %x: f32[n, n]\noutput y = %x");
    let error = evaluate(&square, &[("x", tensor(&[1, 2], vec![0f32; 2]))]).unwrap_err();
    assert!(matches!(error, EvalError::Symbol { first: 1, second: 2, .. }), "{error}");
}

#[test]
fn a_symbol_that_no_input_gives() {
    let graph =
        planish_ir::text::parse("graph \"t\" {\ninput %x: f32[2*n + 1]\noutput y = %x\n}", &planish_ir::text::no_files);
    let error = evaluate(&graph.unwrap(), &[("x", tensor(&[3], vec![0f32; 3]))]).unwrap_err().to_string();
    assert!(error.contains("symbol `n` of dimension `2*n + 1` has no value"), "{error}");
}
