//! Mixtures of experts give the same before and after they are lowered.

use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::text;
use planish_passes::{ONNX, Options, PASSES};

use crate::support::outputs;

/// The second expert overflows. No token takes it.
const OVERFLOWS: &str = "graph \"experts\" {
    input %x: f32[n, 1]
    input %i: i64[n, 1]
    input %s: f32[n, 1]
    weight @g = dense([1.0, 3e38]) : f32[2, 1, 1]
    weight @d = dense([2.0, 3e38]) : f32[2, 1, 1]
    %y = experts(%x, %i, %s, @g, @d) {activation = none} : f32[n, 1]
    output y = %y
}";

#[test]
fn an_expert_that_no_token_takes_adds_nothing_although_it_overflows() {
    let before = text::parse(OVERFLOWS, &text::no_files).unwrap();
    let mut after = before.clone();
    let pass = PASSES.iter().find(|pass| pass.name == "lower-experts").unwrap();
    pass.apply(&mut after, &Options::new(&ONNX, 20)).unwrap();
    let column = |numbers: Vec<f32>| Tensor::new(vec![2, 1], numbers).unwrap();
    let inputs = BTreeMap::from([
        ("x".to_owned(), column(vec![1.0, -3.0])),
        ("i".to_owned(), Tensor::new(vec![2, 1], vec![0i64, 0]).unwrap()),
        ("s".to_owned(), column(vec![0.5, 1.0])),
    ]);
    let expected = vec![("y".to_owned(), column(vec![1.0, -6.0]))];
    assert_eq!(outputs(&before, &inputs).unwrap(), expected);
    assert_eq!(outputs(&after, &inputs).unwrap(), expected);
}
