//! Observers against the interpreter on the same inputs: each value made an output of the graph.

use std::collections::BTreeMap;

use planish_eval::{Tensor, evaluate};
use planish_ir::{Graph, text};
use planish_passes::observe::{OBSERVE, Observed, observed};
use planish_passes::{ONNX, ORT, Options, Pipeline};

use planish_testing::evaluation::inputs;

/// What a graph's observers say of each value.
fn observations(graph: &Graph, inputs: &BTreeMap<String, Tensor>) -> BTreeMap<String, [f64; 3]> {
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let mut found: BTreeMap<String, [f64; 3]> = BTreeMap::new();
    for (output, tensor) in evaluate(graph, &inputs).unwrap() {
        let Some((kind, value)) = observed(&output) else { continue };
        assert_eq!(tensor.shape(), [0; 0], "{output}");
        let place = Observed::ALL.iter().position(|k| *k == kind).unwrap();
        found.entry(value.to_owned()).or_default()[place] = tensor.to_f64()[0];
    }
    found
}

/// The least, the largest and whether one is not a number, of each float that is not a weight.
fn expected(graph: &Graph, inputs: &BTreeMap<String, Tensor>) -> BTreeMap<String, [f64; 3]> {
    let mut all = graph.clone();
    let float = graph.values().filter(|(id, value)| value.ty.tensor().dtype.is_float() && graph.weight(*id).is_none());
    for (id, value) in float {
        all.add_output(&format!("all/{}", value.name), id);
    }
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let outputs = evaluate(&all, &inputs).unwrap();
    let statistics = |tensor: &Tensor| {
        let numbers = tensor.to_f64();
        let nan = if numbers.iter().any(|v| v.is_nan()) { 1.0 } else { 0.0 };
        let (min, max) = numbers.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(*v), m.max(*v)));
        [min, max, if numbers.is_empty() { f64::NEG_INFINITY } else { nan }]
    };
    outputs.iter().filter_map(|(name, t)| Some((name.strip_prefix("all/")?.to_owned(), statistics(t)))).collect()
}

fn graph() -> Graph {
    let text = include_str!("../../../tests/filetests/observe/attention.ir");
    let before = text.split("; ---").next().unwrap();
    text::parse(before.split_once('\n').unwrap().1, &text::no_files).unwrap()
}

fn observing(graph: &Graph, lowered: bool) -> Graph {
    let mut after = graph.clone();
    let options = Options::new(&ORT, 20);
    let mut pipeline = Pipeline::new(options.clone());
    pipeline.verify = true;
    let mut stages = Vec::new();
    pipeline.raise(&mut after, &mut stages, &mut |_, _| {}).unwrap();
    (OBSERVE.run)(&mut after, &options).unwrap();
    if lowered {
        pipeline.lower(&mut after, &mut stages, &mut |_, _| {}).unwrap();
    }
    after
}

#[test]
fn observers_say_what_the_interpreter_sees() {
    let graph = graph();
    for seed in [0b1, 0b1_0110_1101] {
        let inputs = inputs(&graph, seed);
        let expected = expected(&graph, &inputs);
        let mut raised = observations(&observing(&graph, false), &inputs);
        let lowered = observations(&observing(&graph, true), &inputs);
        assert_eq!(raised.keys().collect::<Vec<_>>(), lowered.keys().collect::<Vec<_>>());
        for (value, numbers) in &raised {
            for (a, b) in numbers.iter().zip(&lowered[value]) {
                assert!(a == b || (a - b).abs() < 1e-5, "{value}: {numbers:?} and {:?}", lowered[value]);
            }
        }
        let scores = raised.remove("y/scores").unwrap();
        assert!(scores[0] < scores[1] && scores[2] == 0.0, "{scores:?}");
        assert_eq!(raised, expected);
    }
}

#[test]
fn what_is_not_a_number_is_seen_and_nothing_is_an_empty_range() {
    let mut graph = graph();
    assert_eq!((OBSERVE.run)(&mut graph, &Options::new(&ONNX, 20)).unwrap().changed, 8);
    let floats = |shape: &[usize], data: Vec<f32>| Tensor::new(shape.to_vec(), data).unwrap();
    let inputs = BTreeMap::from([
        ("x".to_owned(), floats(&[1, 1, 4], vec![1.0, 2.0, f32::NAN, 4.0])),
        ("m".to_owned(), Tensor::new(vec![1, 1], vec![true]).unwrap()),
        ("pk".to_owned(), floats(&[1, 1, 0, 2], Vec::new())),
        ("pv".to_owned(), floats(&[1, 1, 0, 2], Vec::new())),
    ]);
    let found = observations(&graph, &inputs);
    assert_eq!(found["pk"], [f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY]);
    for value in ["x", "n", "y", "y/scores"] {
        assert_eq!(found[value][2], 1.0, "{value}");
    }
}

#[test]
fn scores_are_the_products_that_the_softmax_takes() {
    let count = |graph: &Graph| graph.nodes().filter(|(_, node)| node.op.mnemonic() == "matmul").count();
    let graph = graph();
    let mut plain = graph.clone();
    Pipeline::new(Options::new(&ORT, 20)).run(&mut plain, &mut |_, _| {}).unwrap();
    assert_eq!(count(&observing(&graph, true)), count(&plain), "they are not computed twice");
}
