//! Recurrent layers, against what ONNX Runtime computes, and against each other.

mod stored;

use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::Setting;
use proptest::prelude::*;
use proptest::sample::select;

use self::stored::{real, stored, text, texts};
use crate::foreign::{open, try_run};
use crate::{assert_close, numbers, random, tensor};

/// The results of a layer: all states, the last one, and of an LSTM the last cell.
fn layer(op: &str, settings: &[(&str, Setting)], operands: &[Option<&Tensor>]) -> Result<Vec<Tensor>, String> {
    let last = open(DType::F32, 3);
    let types = [open(DType::F32, 4), last.clone(), last];
    try_run(op, settings, operands, &types[..if op == "LSTM" { 3 } else { 2 }])
}

#[test]
fn layers_are_what_onnx_runtime_computes() {
    for stored in stored() {
        let (directions, rows) = (stored.directions, stored.w.len() / stored.directions / 2);
        let f32s = |shape: &[usize], values: &[f64]| numbers(DType::F32, shape, values);
        let state = |values: &[f64]| f32s(&[directions, 2, 2], values);
        let operands = [
            Some(f32s(&[3, 2, 2], stored.x)),
            Some(f32s(&[directions, rows, 2], stored.w)),
            Some(f32s(&[directions, rows, 2], stored.r)),
            stored.bias.map(|b| f32s(&[directions, 2 * rows], b)),
            stored.lengths.map(|l| tensor(&[2], l.to_vec())),
            stored.state.map(state),
            stored.cell.map(state),
            stored.peepholes.map(|p| f32s(&[directions, 6], p)),
        ];
        let operands: Vec<Option<&Tensor>> = operands.iter().map(Option::as_ref).collect();
        let results = layer(stored.op, &stored.settings, &operands).unwrap();
        assert_eq!(results.len(), stored.results.len());
        assert_eq!(results[0].shape(), [3, directions, 2, 2]);
        for (result, expected) in results.iter().zip(stored.results) {
            assert_close(result, expected, 1e-5);
        }
    }
}

/// The operands of a layer of random elements: x, w, r, b, lengths, initial states.
struct Operands {
    all: Vec<Tensor>,
    sizes: [usize; 4],
}

impl Operands {
    fn random(op: &str, directions: usize, sizes: [usize; 4], lengths: &[i32], seed: u64) -> Self {
        let [steps, batch, features, hidden] = sizes;
        let rows = hidden * gates(op);
        let random = |shape: &[usize], salt| random(DType::F32, shape, seed + salt);
        let mut all = vec![
            random(&[steps, batch, features], 0),
            random(&[directions, rows, features], 1),
            random(&[directions, rows, hidden], 2),
            random(&[directions, 2 * rows], 3),
            tensor(&[batch], lengths.to_vec()),
            random(&[directions, batch, hidden], 4),
        ];
        if op == "LSTM" {
            all.push(random(&[directions, batch, hidden], 5));
            all.push(random(&[directions, 3 * hidden], 6));
        }
        Self { all, sizes }
    }

    fn run(&self, op: &str, settings: &[(&str, Setting)]) -> Vec<Tensor> {
        layer(op, settings, &self.all.iter().map(Some).collect::<Vec<_>>()).unwrap()
    }
}

fn gates(op: &str) -> usize {
    match op {
        "RNN" => 1,
        "GRU" => 3,
        _ => 4,
    }
}

/// A tensor with its dimensions in another order.
fn transposed(x: &Tensor, order: &[usize]) -> Tensor {
    let shape: Vec<usize> = order.iter().map(|&a| x.shape()[a]).collect();
    let values = x.to_f64();
    let element = |mut position: usize| {
        let mut index = vec![0; shape.len()];
        for a in (0..shape.len()).rev() {
            index[order[a]] = position % shape[a];
            position /= shape[a];
        }
        values[index.iter().zip(x.shape()).fold(0, |at, (i, size)| at * size + i)]
    };
    numbers(x.dtype(), &shape, &(0..values.len()).map(element).collect::<Vec<f64>>())
}

/// The elements whose index along an axis is in a range.
fn part(x: &Tensor, axis: usize, range: std::ops::Range<usize>) -> Tensor {
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let size = x.shape()[axis];
    let kept = |i: &usize| range.contains(&(i / inner % size));
    let mut shape = x.shape().to_vec();
    shape[axis] = range.len();
    let values = x.to_f64();
    numbers(x.dtype(), &shape, &(0..values.len()).filter(kept).map(|i| values[i]).collect::<Vec<f64>>())
}

prop_compose! {
    fn sizes()(steps in 1usize..5, batch in 1usize..4, features in 1usize..4, hidden in 1usize..4)(
        lengths in proptest::collection::vec(0i32..=i32::try_from(steps).unwrap(), batch),
        sizes in Just([steps, batch, features, hidden]),
    ) -> ([usize; 4], Vec<i32>) {
        (sizes, lengths)
    }
}

proptest! {
    /// Both directions are the one and the other; operands that say a batch comes first say the same.
    #[test]
    fn directions_and_layouts(
        op in select(vec!["RNN", "GRU", "LSTM"]), (sizes, lengths) in sizes(), seed in 0u64..1000, flag in 0i64..2,
    ) {
        let both = Operands::random(op, 2, sizes, &lengths, seed);
        let direction = |name: &str| ("direction", text(name));
        let flags = [("linear_before_reset", Setting::Int(flag)), ("input_forget", Setting::Int(flag))];
        let with = |more: &[(&'static str, Setting)]| [&flags[..], more].concat();
        let results = both.run(op, &with(&[direction("bidirectional")]));
        for (at, name) in ["forward", "reverse"].into_iter().enumerate() {
            // Operands but x and the lengths are there for each direction.
            let own = |(i, t): (usize, &Tensor)| if i == 0 || i == 4 { t.clone() } else { part(t, 0, at..at + 1) };
            let one = Operands { all: both.all.iter().enumerate().map(own).collect(), sizes };
            let found = one.run(op, &with(&[direction(name)]));
            prop_assert_eq!(&found[0], &part(&results[0], 1, at..at + 1));
            for (found, all) in found.iter().zip(&results).skip(1) {
                prop_assert_eq!(found, &part(all, 0, at..at + 1));
            }
        }
        let first = |(i, t): (usize, &Tensor)| match i {
            0 | 5 | 6 => transposed(t, &[1, 0, 2]),
            _ => t.clone(),
        };
        let turned = Operands { all: both.all.iter().enumerate().map(first).collect(), sizes };
        let found = turned.run(op, &with(&[direction("bidirectional"), ("layout", Setting::Int(1))]));
        prop_assert_eq!(&found[0], &transposed(&results[0], &[2, 0, 1, 3]));
        for (found, all) in found.iter().zip(&results).skip(1) {
            prop_assert_eq!(found, &transposed(all, &[1, 0, 2]));
        }
    }

    /// A row of some length is what it is by itself, cut to that length; after it there is zero.
    #[test]
    fn rows_end_where_their_lengths_say(
        op in select(vec!["RNN", "GRU", "LSTM"]), (sizes, lengths) in sizes(), seed in 0u64..1000, backward in any::<bool>(),
    ) {
        let all = Operands::random(op, 1, sizes, &lengths, seed);
        let settings = [("direction", text(if backward { "reverse" } else { "forward" }))];
        let results = all.run(op, &settings);
        for (row, &length) in lengths.iter().enumerate() {
            let length = usize::try_from(length).unwrap();
            let own = |(i, t): (usize, &Tensor)| match i {
                0 => part(&part(t, 1, row..row + 1), 0, 0..length),
                4 => tensor(&[1], vec![i32::try_from(length).unwrap()]),
                5 | 6 => part(t, 1, row..row + 1),
                _ => t.clone(),
            };
            let one = Operands { all: all.all.iter().enumerate().map(own).collect(), sizes: all.sizes };
            let found = one.run(op, &settings);
            let in_row = part(&results[0], 2, row..row + 1);
            prop_assert_eq!(&part(&in_row, 0, 0..length), &found[0]);
            prop_assert!(part(&in_row, 0, length..all.sizes[0]).to_f64().iter().all(|v| *v == 0.0));
            for (found, all) in found.iter().zip(&results).skip(1) {
                prop_assert_eq!(found, &part(all, 1, row..row + 1));
            }
        }
    }
}

#[test]
fn layers_that_do_not_fit() {
    let operands = Operands::random("LSTM", 1, [2, 1, 3, 2], &[2], 1);
    let fails = |settings: &[(&str, Setting)], change: usize, to: Tensor| {
        let mut all = operands.all.clone();
        all[change] = to;
        layer("LSTM", settings, &all.iter().map(Some).collect::<Vec<_>>()).unwrap_err()
    };
    let f32s = |shape: &[usize]| random(DType::F32, shape, 1);
    let x = || f32s(&[2, 1, 3]);
    for (settings, change, to, why) in [
        (vec![], 0, f32s(&[2, 1]), "expected three dimensions"),
        (vec![], 0, f32s(&[2, 1, 4]), "its W is f32[1, 8, 3], expected the shape [1, 8, 4]"),
        (vec![], 2, f32s(&[1, 7, 2]), "its R is f32[1, 7, 2], expected the shape [1, 8, 2]"),
        (vec![], 3, f32s(&[1, 8]), "its B is f32[1, 8], expected the shape [1, 16]"),
        (vec![], 4, tensor(&[1], vec![3i32]), "its sequence_lens are not 1 lengths of at most 2 steps"),
        (vec![], 4, tensor(&[1], vec![-1i32]), "its sequence_lens are not 1 lengths of at most 2 steps"),
        (vec![], 5, f32s(&[1, 2, 2]), "its initial_h is f32[1, 2, 2], expected the shape [1, 1, 2]"),
        (vec![], 7, f32s(&[1, 4]), "its P is f32[1, 4], expected the shape [1, 6]"),
        (
            vec![("direction", text("bidirectional"))],
            0,
            x(),
            "its direction is `bidirectional`, and its weights are of 1",
        ),
        (vec![("activations", texts(&["Tanh"]))], 0, x(), "it has 1 activations, expected 3"),
        (vec![("activations", texts(&["Tanh", "Cosine", "Tanh"]))], 0, x(), "its activation `Cosine` is not known"),
    ] {
        let error = fails(&settings, change, to);
        assert!(error.contains(why), "{error}");
    }
    // A limit of 0 bounds nothing.
    let zero = layer("LSTM", &[("clip", real(0.0))], &operands.all.iter().map(Some).collect::<Vec<_>>());
    assert_eq!(zero.unwrap(), operands.run("LSTM", &[]));
}
