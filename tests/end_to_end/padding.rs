//! Padding never changes what a model says of a prompt: before that of a decoder, after that of an
//! encoder-decoder, also when it goes on from the cache.

use std::cell::RefCell;
use std::path::Path;

use planish_eval::Tensor;
use planish_runtimes::{Model, Runtime, Session};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::generate::{DECODERS, ENCODER_DECODERS};
use crate::support::{CPU_TARGETS, Draft, ONE_THREAD, compiled, golden, onnx_runtime, options, scratch};

/// Logits differ by rounding only: products of other sizes add up in another order.
const TOLERANCE: f64 = 1e-5;

/// ONNX operators of attention and rotation are there in the second.
const OPSETS: [u32; 2] = [20, 24];

type Named = Vec<(String, Tensor)>;

/// The logits of two tokens of a case: one that a prompt gives, and one from the cache.
type Logits = fn(&mut [Box<dyn Session>], &Case) -> [Vec<f64>; 2];

fn named<const N: usize>(tensors: [(&str, Tensor); N]) -> Named {
    tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

/// Runs a model on those of some tensors that it takes.
fn run(session: &mut dyn Session, known: &Named) -> Named {
    let names: Vec<String> = session.inputs().iter().map(|port| port.name.clone()).collect();
    let of = |name: &str| known.iter().find(|(other, _)| other == name).unwrap().1.clone();
    session.run(&names.iter().map(|name| (name.as_str(), of(name))).collect::<Vec<_>>()).unwrap()
}

/// The outputs that are a cache, as the next step takes them.
fn cache(outputs: &Named) -> Named {
    let past = |name: &str| Some(format!("past_key_values.{}", name.strip_prefix("present.")?));
    outputs.iter().filter_map(|(name, tensor)| Some((past(name)?, tensor.clone()))).collect()
}

/// The logits of the last token of the last row.
fn last(outputs: &Named) -> Vec<f64> {
    let logits = &outputs.iter().find(|(name, _)| name == "logits").unwrap().1;
    let numbers = logits.to_f64();
    numbers[numbers.len() - logits.shape()[2]..].to_vec()
}

/// Rows of which the last is given and the others are of one number.
fn matrix(rows: usize, last: Vec<i64>, filler: i64) -> Tensor {
    let width = last.len();
    let mut elements = vec![filler; (rows - 1) * width];
    elements.extend(last);
    Tensor::new(vec![rows, width], elements).unwrap()
}

/// A prompt, one more token, and what is around the prompt: it is the last row of a batch, and padded.
#[derive(Clone, Debug)]
struct Case {
    prompt: Vec<i64>,
    next: i64,
    rows: usize,
    padding: usize,
}

impl Case {
    fn alone(&self) -> Self {
        Self { rows: 1, padding: 0, ..self.clone() }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    (prop::collection::vec(0i64..127, 1..12), 0i64..127, 1usize..4, 1usize..9)
        .prop_map(|(prompt, next, rows, padding)| Case { prompt, next, rows, padding })
}

/// The logits of a prompt's last token and of one more, after padding.
fn of_decoder(sessions: &mut [Box<dyn Session>], case: &Case) -> [Vec<f64>; 2] {
    let [session] = sessions else { panic!("a decoder is one model") };
    let Case { rows, padding, .. } = *case;
    let width = padding + case.prompt.len();
    let mask: Vec<i64> = (0..=width).map(|at| i64::from(at >= padding)).collect();
    let positions: Vec<i64> = (0..=width).map(|at| i64::try_from(at.saturating_sub(padding)).unwrap()).collect();
    let tokens = |ids: Vec<i64>, mask: &[i64], positions: &[i64]| {
        named([
            ("input_ids", matrix(rows, ids, 3)),
            ("attention_mask", matrix(rows, mask.to_vec(), 1)),
            ("position_ids", matrix(rows, positions.to_vec(), 0)),
        ])
    };
    let mut prompt = tokens([&vec![7; padding][..], &case.prompt].concat(), &mask[..width], &positions[..width]);
    for port in session.inputs().iter().filter(|port| port.name.starts_with("past_key_values.")) {
        let [heads, size] = [1, 3].map(|axis| usize::try_from(port.ty.shape[axis].as_constant().unwrap()).unwrap());
        prompt.push((port.name.clone(), Tensor::new(vec![rows, heads, 0, size], Vec::<f32>::new()).unwrap()));
    }
    let first = run(session.as_mut(), &prompt);
    let mut step = tokens(vec![case.next], &mask, &positions[width..]);
    step.extend(cache(&first));
    [last(&first), last(&run(session.as_mut(), &step))]
}

/// The logits of a text's last token and of one more, the prompt being before padding.
fn of_encoder_decoder(sessions: &mut [Box<dyn Session>], case: &Case) -> [Vec<f64>; 2] {
    let [encoder, decoder, with_past] = sessions else { panic!("an encoder-decoder is three models") };
    let Case { rows, padding, .. } = *case;
    let padded = |ids: Vec<i64>, with: i64| [ids, vec![with; padding]].concat();
    let mask = matrix(rows, padded(vec![1; case.prompt.len()], 0), 1);
    let prompt = [("input_ids", matrix(rows, padded(case.prompt.clone(), 7), 3)), ("attention_mask", mask.clone())];
    let encoded = run(encoder.as_mut(), &named(prompt)).swap_remove(0).1;
    let text = matrix(rows, vec![2, 9, 4], 3);
    let beginning = [("input_ids", text), ("encoder_attention_mask", mask.clone()), ("encoder_hidden_states", encoded)];
    let first = run(decoder.as_mut(), &named(beginning));
    let mut step = named([("input_ids", matrix(rows, vec![case.next], 3)), ("encoder_attention_mask", mask)]);
    step.extend(cache(&first));
    [last(&first), last(&run(with_past.as_mut(), &step))]
}

/// Compares prompts alone with the same among others and padded, on all targets.
fn assert_padding_is_no_matter(model: &Path, opset: u32, logits: Logits, count: u32) {
    let folder = scratch();
    for target in CPU_TARGETS {
        let mut options = options(target);
        options.passes.opset = opset;
        let compiled = compiled(model, &folder.path().join(target.name), &options);
        let load = |part: &planish_models::Part| {
            let file = compiled.draft.folder().join(format!("{}.onnx", part.name));
            onnx_runtime().load(Model::onnx(&file), ONE_THREAD).unwrap()
        };
        let sessions = RefCell::new(compiled.source.parts.iter().map(load).collect::<Vec<_>>());
        let config = Config { cases: count, failure_persistence: None, ..Config::default() };
        let result = TestRunner::new(config).run(&cases(), |case| {
            let sessions = &mut sessions.borrow_mut()[..];
            let (alone, padded) = (logits(sessions, &case.alone()), logits(sessions, &case));
            for (alone, padded) in alone.iter().zip(&padded) {
                let largest = alone.iter().fold(1.0, |largest: f64, v| largest.max(v.abs()));
                let close = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * largest;
                prop_assert!(alone.iter().zip(padded).all(close), "{alone:?} is not {padded:?}");
            }
            Ok(())
        });
        result.unwrap_or_else(|e| panic!("{} on {target}, opset {opset}: {e}", model.display()));
    }
}

#[test]
fn of_all_decoders() {
    for name in DECODERS {
        OPSETS.iter().for_each(|&opset| assert_padding_is_no_matter(&golden(name), opset, of_decoder, 6));
    }
}

#[test]
fn of_all_encoder_decoders() {
    for name in ENCODER_DECODERS {
        OPSETS.iter().for_each(|&opset| assert_padding_is_no_matter(&golden(name), opset, of_encoder_decoder, 6));
    }
}

#[test]
fn of_mistral_with_a_window() {
    let folder = scratch();
    let mut draft = Draft::of("mistral");
    draft.config["sliding_window"] = 4.into();
    let model = draft.write(folder.path().join("model"));
    OPSETS.iter().for_each(|&opset| assert_padding_is_no_matter(&model, opset, of_decoder, 48));
}
