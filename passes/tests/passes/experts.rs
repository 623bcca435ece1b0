//! Mixtures of experts give the same before and after they are lowered.

use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::{Graph, text, verify};
use planish_passes::{ExpertsForm, ONNX, Options, PASSES, Pipeline};

use crate::support::outputs;

const FORMS: [ExpertsForm; 3] = [ExpertsForm::Grouped, ExpertsForm::Gathered, ExpertsForm::All];

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

/// Everything that a mixture may have, of five experts, of which a token takes three.
const WHOLE: &str = "graph \"experts\" {
    input %x: f32[b, s, 4]
    input %i: i32[b, s, 3]
    input %s: f32[b, s, 3]
    weight @g = uniform(1) : f32[5, 6, 4]
    weight @u = uniform(2) : f32[5, 6, 4]
    weight @d = uniform(3) : f32[5, 2, 6]
    weight @gb = uniform(4) : f32[5, 6]
    weight @ub = uniform(5) : f32[5, 6]
    weight @db = uniform(6) : f32[5, 2]
    %y = experts(%x, %i, %s, @g, @d, up: @u, gate_bias: @gb, up_bias: @ub, down_bias: @db) {activation = silu, alpha = 1.5, limit = 0.75, shift = 1.0} : f32[b, s, 2]
    output y = %y
}";

fn lowered(graph: &Graph, form: ExpertsForm) -> Graph {
    let mut after = graph.clone();
    let pass = PASSES.iter().find(|pass| pass.name == "lower-experts").unwrap();
    pass.apply(&mut after, &Options { experts: form, ..Options::new(&ONNX, 20) }).unwrap();
    verify(&after).unwrap();
    after
}

#[test]
fn an_expert_that_no_token_takes_adds_nothing_although_it_overflows() {
    let before = text::parse(OVERFLOWS, &text::no_files).unwrap();
    let column = |numbers: Vec<f32>| Tensor::new(vec![2, 1], numbers).unwrap();
    let inputs = BTreeMap::from([
        ("x".to_owned(), column(vec![1.0, -3.0])),
        ("i".to_owned(), Tensor::new(vec![2, 1], vec![0i64, 0]).unwrap()),
        ("s".to_owned(), column(vec![0.5, 1.0])),
    ]);
    let expected = vec![("y".to_owned(), column(vec![1.0, -6.0]))];
    assert_eq!(outputs(&before, &inputs).unwrap(), expected);
    for form in FORMS {
        assert_eq!(outputs(&lowered(&before, form), &inputs).unwrap(), expected, "{form:?}");
    }
}

/// One token, which takes fewer experts than there are; as many tokens as leave out one expert; tokens that take an expert twice;
/// no token at all.
#[test]
fn every_form_gives_what_the_operator_does() {
    let before = text::parse(WHOLE, &text::no_files).unwrap();
    for (shape, indices) in [
        ([1, 1], vec![4, 0, 2]),
        ([2, 2], vec![0, 1, 3, 1, 0, 4, 4, 3, 1, 0, 3, 4]),
        ([1, 3], vec![2, 2, 2, 0, 2, 0, 1, 1, 3]),
        ([0, 3], vec![]),
    ] {
        let tokens = shape[0] * shape[1];
        let numbers = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
        let of = |last: usize| [&shape[..], &[last]].concat();
        let inputs = BTreeMap::from([
            ("x".to_owned(), Tensor::new(of(4), numbers(tokens * 4, 0.7)).unwrap()),
            ("i".to_owned(), Tensor::new(of(3), indices.clone()).unwrap()),
            ("s".to_owned(), Tensor::new(of(3), numbers(tokens * 3, 1.3)).unwrap()),
        ]);
        let expected = outputs(&before, &inputs).unwrap();
        for form in FORMS {
            let found = outputs(&lowered(&before, form), &inputs).unwrap();
            let pairs = found[0].1.to_f64().into_iter().zip(expected[0].1.to_f64());
            assert_eq!(found[0].1.shape(), expected[0].1.shape(), "{form:?}");
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-6), "{form:?}: {:?}", pairs.collect::<Vec<_>>());
        }
    }
}

/// The weights of an expert are weights of their own, in the type that they are stored in, so that a layer takes them as those of
/// any other layer.
#[test]
fn layers_of_experts_have_weights_of_their_own() {
    let stored = WHOLE.replace("uniform(1) : f32", "cast(uniform(1) : bf16[5, 6, 4]) : f32");
    let mut graph = text::parse(&stored, &text::no_files).unwrap();
    Pipeline::new(Options::new(&ONNX, 20)).run(&mut graph, &mut |_, _| {}).unwrap();
    let shapes: Vec<Vec<usize>> = graph.weights().map(|(_, _, weight)| weight.shape().to_vec()).collect();
    let count = |of: [usize; 2]| shapes.iter().filter(|shape| **shape == of).count();
    assert_eq!((count([6, 4]) + count([4, 6]), count([2, 6]) + count([6, 2])), (10, 5));
    assert!(!shapes.iter().any(|shape| shape.len() == 3), "{shapes:?}");
}
