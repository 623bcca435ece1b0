//! Padding before a prompt never changes what a decoder says of it, also when it goes on from the
//! cache.

use planish_eval::Tensor;
use planish_passes::Target;
use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Dimension, Model, Runtime, Session, SessionOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{Draft, compiled, options, scratch};

/// Logits differ by rounding only: products of other sizes add up in another order.
const TOLERANCE: f64 = 1e-5;

/// The logits of a prompt's last token and of one more, the prompt being the last row of a batch
/// and behind `padding` padded positions.
fn logits(session: &mut dyn Session, prompt: &[i64], next: i64, rows: usize, padding: usize) -> [Vec<f64>; 2] {
    let width = padding + prompt.len();
    let matrix = |last: Vec<i64>, filler: i64| {
        let width = last.len();
        let mut elements = vec![filler; (rows - 1) * width];
        elements.extend(last);
        Tensor::new(vec![rows, width], elements).unwrap()
    };
    let mask: Vec<i64> = (0..=width).map(|at| i64::from(at >= padding)).collect();
    let positions: Vec<i64> = (0..=width).map(|at| i64::try_from(at.saturating_sub(padding)).unwrap()).collect();
    let past: Vec<(String, Tensor)> = session
        .inputs()
        .iter()
        .filter(|port| port.name.starts_with("past_key_values."))
        .map(|port| {
            let [_, Dimension::Fixed(heads), _, Dimension::Fixed(size)] = port.dims[..] else { panic!("{port:?}") };
            (port.name.clone(), Tensor::new(vec![rows, heads, 0, size], Vec::<f32>::new()).unwrap())
        })
        .collect();
    let mut run = |ids: Tensor, mask: &[i64], positions: &[i64], past: &[(String, Tensor)]| {
        let (mask, positions) = (matrix(mask.to_vec(), 1), matrix(positions.to_vec(), 0));
        let tokens = [("input_ids", ids), ("attention_mask", mask), ("position_ids", positions)];
        let past = past.iter().map(|(name, tensor)| (name.as_str(), tensor.clone()));
        session.run(&tokens.into_iter().chain(past).collect::<Vec<_>>()).unwrap()
    };
    let last = |outputs: &[(String, Tensor)]| {
        let logits = &outputs.iter().find(|(name, _)| name == "logits").unwrap().1;
        let numbers = logits.to_f64();
        numbers[numbers.len() - logits.shape()[2]..].to_vec()
    };
    let ids = matrix([&vec![7; padding][..], prompt].concat(), 3);
    let first = run(ids, &mask[..width], &positions[..width], &past);
    let present = first.iter().filter_map(|(name, tensor)| {
        Some((format!("past_key_values.{}", name.strip_prefix("present.")?), tensor.clone()))
    });
    let present: Vec<(String, Tensor)> = present.collect();
    let second = run(matrix(vec![next], 3), &mask, &positions[width..], &present);
    [last(&first), last(&second)]
}

fn assert_padding_is_no_matter(draft: &Draft) {
    let folder = scratch();
    let model = draft.write(folder.path().join("model"));
    for target in Target::all() {
        let compiled = compiled(&model, &folder.path().join(target.name()), &options(target));
        let file = compiled.draft.folder().join("model.onnx");
        let options = SessionOptions { threads: 1, spin: false, ..SessionOptions::compiled() };
        let session = OnnxRuntime::new(None).load(Model::Onnx(&file), &options).unwrap();
        let session = std::cell::RefCell::new(session);
        let cases = (prop::collection::vec(0i64..130, 1..12), 0i64..130, 1usize..4, 1usize..9);
        let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
        let result = TestRunner::new(config).run(&cases, |(prompt, next, rows, padding)| {
            let mut session = session.borrow_mut();
            let alone = logits(session.as_mut(), &prompt, next, 1, 0);
            let padded = logits(session.as_mut(), &prompt, next, rows, padding);
            for (alone, padded) in alone.iter().zip(&padded) {
                let largest = alone.iter().fold(1.0, |largest: f64, v| largest.max(v.abs()));
                let close = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * largest;
                prop_assert!(alone.iter().zip(padded).all(close), "{alone:?} is not {padded:?}");
            }
            Ok(())
        });
        result.unwrap_or_else(|e| panic!("{target}: {e}"));
    }
}

#[test]
fn of_gpt2() {
    assert_padding_is_no_matter(&Draft::of("gpt2"));
}

#[test]
fn of_llama() {
    assert_padding_is_no_matter(&Draft::of("llama"));
}

#[test]
fn of_mistral_with_a_window() {
    let mut draft = Draft::of("mistral");
    draft.config["sliding_window"] = 4.into();
    assert_padding_is_no_matter(&draft);
}
