//! The forms of linear attention in ONNX give what the interpreter gives token by token.

use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::{DType, Graph, Weight, text};
use planish_onnx::{ExportOptions, OPSETS, Placement, export};
use planish_passes::{ONNX, Options, Pipeline};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, Session};
use planish_testing::evaluation::outputs;
use planish_testing::scratch;

use crate::support::{ONE_THREAD, onnx_runtime};

/// Two heads of keys of 3 numbers, and four heads of values of 5.
const HEADS: [usize; 2] = [2, 4];
const SIZES: [usize; 2] = [3, 5];

/// What an operator has besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
struct Has {
    decay: bool,
    /// Whether each element of a key has a decay.
    each: bool,
    beta: bool,
    state: bool,
}

impl Has {
    /// The inputs and their last sizes.
    fn inputs(self) -> Vec<(&'static str, usize)> {
        let ([groups, heads], [key, value]) = (HEADS, SIZES);
        let mut all = vec![("q", groups * key), ("k", groups * key), ("v", heads * value)];
        all.extend(self.decay.then_some(("d", if self.each { heads * key } else { heads })));
        all.extend(self.beta.then_some(("t", heads)));
        all
    }

    fn graph(self) -> Graph {
        let ([groups, heads], [key, value]) = (HEADS, SIZES);
        let state = format!("f32[b, {heads}, {key}, {value}]");
        let mut lines: Vec<String> =
            self.inputs().iter().map(|(name, size)| format!("input %{name}: f32[b, s, {size}]")).collect();
        if self.state {
            lines.push(format!("input %p: {state}"));
        }
        let given = [(self.decay, ", decay: %d"), (self.beta, ", beta: %t"), (self.state, ", state: %p")];
        let given: String = given.iter().filter(|(has, _)| *has).map(|(_, text)| *text).collect();
        lines.push(format!(
            "%y, %n = linear_attention(%q, %k, %v{given}) {{heads = {heads}, key_heads = {groups}, scale = 0.5}} : \
             f32[b, s, {}], {state}\noutput y = %y\noutput n = %n",
            heads * value
        ));
        text::parse(&format!("graph \"states\" {{\n{}\n}}", lines.join("\n")), &text::no_files).unwrap()
    }
}

/// Numbers from -1 to 1.
fn noise(shape: Vec<usize>, seed: u64) -> Vec<f64> {
    Tensor::from_weight(&Weight::uniform(DType::F32, shape, seed).unwrap()).unwrap().to_f64()
}

/// Inputs of two rows. Queries and keys have length 1, decays are up to `decay`, and shares from 0 to 1. With `alike` all keys
/// of a head are the same one and shares are almost 1: powers of their products are huge.
fn inputs(has: Has, tokens: usize, decay: f64, alike: bool) -> BTreeMap<String, Tensor> {
    let mut all = BTreeMap::new();
    for (seed, (name, last)) in (0..).zip(has.inputs()) {
        let shape = vec![2, tokens, last];
        let mut numbers = noise(shape.clone(), seed);
        match name {
            "q" | "k" => {
                if name == "k" && alike {
                    let first: Vec<f64> = numbers.iter().take(last).copied().collect();
                    numbers.iter_mut().zip(first.iter().cycle()).for_each(|(x, first)| *x = *first);
                }
                for head in numbers.chunks_mut(SIZES[0]) {
                    let length = head.iter().map(|x| x * x).sum::<f64>().sqrt();
                    head.iter_mut().for_each(|x| *x /= length);
                }
            }
            "d" => numbers.iter_mut().for_each(|x| *x = -decay * x.abs()),
            "t" => numbers.iter_mut().for_each(|x| *x = if alike { 0.999 } else { x.abs() }),
            _ => {}
        }
        all.insert(name.to_owned(), Tensor::from_f64(DType::F32, shape, &numbers).unwrap());
    }
    if has.state {
        let shape = vec![2, HEADS[1], SIZES[0], SIZES[1]];
        let numbers = noise(shape.clone(), 9);
        all.insert("p".to_owned(), Tensor::from_f64(DType::F32, shape, &numbers).unwrap());
    }
    all
}

/// Compiles an operator for target `onnx` and loads it on two runtimes.
fn sessions(graph: &Graph, opset: u32) -> Vec<Box<dyn Session>> {
    let mut legal = graph.clone();
    Pipeline::new(Options::new(&ONNX, opset)).run(&mut legal, &mut |_, _| {}).unwrap();
    let folder = scratch();
    let options = ExportOptions {
        opset,
        placement: Placement::Copy,
        external_above: u64::MAX,
        data_suffix: "_data",
        metadata: &[],
        progress: &|_| {},
    };
    export(&legal, "model", folder.path(), &options).unwrap();
    let file = folder.path().join("model.onnx");
    let on = |runtime: &dyn Runtime| runtime.load(Model::onnx(&file), ONE_THREAD).unwrap();
    vec![on(&onnx_runtime()), on(&ReferenceRuntime::default())]
}

/// The largest difference, in parts of the largest number.
fn error(expected: &Tensor, actual: &Tensor) -> f64 {
    assert_eq!(actual.shape(), expected.shape());
    let largest = expected.to_f64().iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let pairs = expected.to_f64().into_iter().zip(actual.to_f64());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |worst: f64, x| if x.is_nan() { x } else { worst.max(x) });
    if largest == 0.0 { worst } else { worst / largest }
}

/// `fewest` is the least number of tokens.
fn compare(has: Has, opset: u32, fewest: usize) {
    let graph = has.graph();
    let mut sessions = sessions(&graph, opset);
    for tokens in [0, 1, 2, 31, 32, 33, 100].into_iter().filter(|tokens| *tokens >= fewest) {
        for (decay, alike) in [(0.1, false), (3.0, false), (3e4, false), (1e-5, true)] {
            let inputs = inputs(has, tokens, decay, alike);
            let expected = outputs(&graph, &inputs).unwrap();
            let given: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
            for session in &mut sessions {
                let actual = session.run(&given).unwrap();
                for ((name, expected), (_, actual)) in expected.iter().zip(&actual) {
                    let error = error(expected, actual);
                    assert!(error < 4e-6, "{name} of {has:?}, {tokens} tokens, decays to {decay}: {error:e}");
                }
            }
        }
    }
}

const PLAIN: Has = Has { decay: false, each: false, beta: false, state: true };

#[test]
fn chunks_of_tokens_are_the_recurrence() {
    for opset in [*OPSETS.start(), *OPSETS.end()] {
        compare(Has { decay: true, beta: true, ..PLAIN }, opset, 0);
    }
    compare(PLAIN, 20, 0);
    compare(Has { decay: true, ..PLAIN }, 20, 0);
    compare(Has { beta: true, ..PLAIN }, 20, 0);
    compare(Has { decay: true, beta: true, state: false, ..PLAIN }, 20, 0);
}

/// ONNX Runtime ends the process at a Scan over no token, which models here never have.
#[test]
fn a_scan_over_the_tokens_is_the_recurrence() {
    compare(Has { decay: true, each: true, ..PLAIN }, 20, 1);
    compare(Has { decay: true, each: true, beta: true, ..PLAIN }, 20, 1);
}
