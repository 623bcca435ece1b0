use std::collections::BTreeMap;

use planish_data::inputs::{Values, inferred, interface_of, session_specs, specs};
use planish_ir::ops::{Attention, Binary, BinaryKind};
use planish_ir::{BuildError, Op, Step};
use planish_models::{Checkpoint, LoadOptions, load};
use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Model, Port, Runtime, RuntimeValue, SessionOptions};

use super::*;

fn pair(reference: Box<dyn Session>, candidate: Box<dyn Session>, specs: &[InputSpec]) -> Pair {
    let (name, specs, interface) = ("model".to_owned(), specs.to_vec(), PartInterface::clone(&interface_of(specs)));
    Pair {
        name,
        interface,
        specs,
        reference: Reference::interpreter(reference),
        candidate,
        merged: None,
        logits: LogitsForm::default(),
    }
}

/// A candidate that takes the cache for zeros is right until it continues from one.
#[test]
fn a_model_with_a_cache_also_continues_from_it() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/goldens/gpt2");
    let options = LoadOptions { task: None, strict: true, ..LoadOptions::default() };
    let model = load(&Checkpoint::open(&folder).unwrap(), options).unwrap();
    let mut broken = model.parts[0].graph.clone();
    let forgetful = broken.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let Op::Attention(attention) = graph.node(node).op.clone() else { return Ok::<_, BuildError>(Step::Keep) };
        let past = attention.past_value.unwrap();
        let zeros = graph.emit(Binary { kind: BinaryKind::Sub, a: past, b: past }, like)?;
        let attention = Attention { past_value: Some(zeros), ..attention };
        Ok(Step::Replace(graph.emit_part(attention, like)?))
    });
    assert_eq!(forgetful.unwrap(), 2);
    let session = on_interpreter;
    let mut reference = session(&model.parts[0].graph);
    let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..137, pad: None })]);
    let specs = session_specs(reference.as_ref(), &ids).unwrap();
    let plans = plans(&specs, model.max_positions);
    let labels: Vec<String> = plans.iter().map(Plan::label).collect();
    let continued = ["2 x 7, padded, 6 of them cached", "3 x 9, padded, 5 of them cached"];
    assert_eq!(labels[labels.len() - 2..], continued);
    assert!(labels.contains(&"1 x 64".to_owned()));
    let graph = &model.parts[0].graph;
    let verified = |candidate: &Graph| {
        let mut pair = pair(session(graph), session(candidate), &specs);
        verify(&mut pair, graph, model.max_positions, 1, Tolerances::F32).unwrap()
    };
    assert!(verified(graph).passed());
    let report = verified(&broken);
    assert!(!report.passed() && report.misses().iter().all(|miss| miss.contains("cached: ")), "{report}");
    let shifted = plans.iter().map(|plan| plan.case(&specs, 1).unwrap()).find(|case| case.before.is_some()).unwrap();
    let [inputs, outputs] = shifted.run(reference.as_mut()).unwrap();
    let shape =
        |tensors: &[(String, Tensor)], name: &str| tensors.iter().find(|(n, _)| n == name).unwrap().1.shape().to_vec();
    assert_eq!(shape(&inputs, "input_ids"), [2, 1]);
    assert_eq!(shape(&inputs, "attention_mask"), [2, 7]);
    assert_eq!(shape(&inputs, "past_key_values.1.value"), [2, 4, 6, 12]);
    assert_eq!(shape(&outputs, "present.1.value"), [2, 4, 7, 12]);
}

#[test]
fn two_sessions_are_compared_on_every_case() {
    let load = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/onnx").join(name);
        OnnxRuntime::new(None).load(Model::onnx(&path), SessionOptions::default()).unwrap()
    };
    let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..8, pad: Some(0) })]);
    let specs = session_specs(load("embed.onnx").as_ref(), &ids).unwrap();
    let verified = |candidate: &str| {
        let mut pair = pair(load("embed.onnx"), load(candidate), &specs);
        verify(&mut pair, &Graph::new("embed"), Some(16), 1, Tolerances::F32).unwrap()
    };
    let same = verified("embed.onnx");
    assert!(same.passed() && same.cases.len() == plans(&specs, Some(16)).len(), "{same}");
    let off = verified("embed_off.onnx");
    assert!(!off.passed() && off.misses().iter().all(|miss| miss.contains(": y: ")), "{off}");
}

/// Positions from a table of 20 rows, which nothing but a run tells.
const TABLE: &str = r#"graph "table" {
  input %x: f32[batch_size, sequence_length]
  weight @t = uniform(1) : f32[20]
  %i = iota() {dtype = i64, length = sequence_length} : i64[sequence_length]
  %p = gather(@t, %i) {axis = 0} : f32[sequence_length]
  %y = add(%x, %p) : f32[batch_size, sequence_length]
  output y = %y
}"#;

fn of_text(text: &str) -> Graph {
    planish_ir::text::parse(text, &planish_ir::text::no_files).unwrap()
}

fn on_interpreter(graph: &Graph) -> Box<dyn Session> {
    planish_runtimes::ReferenceRuntime::default().load(Model::Graph(graph), SessionOptions::default()).unwrap()
}

#[test]
fn what_the_reference_cannot_run_is_shorter() {
    let graph = of_text(TABLE);
    let session = || on_interpreter(&graph);
    let specs = session_specs(session().as_ref(), &BTreeMap::new()).unwrap();
    let report = verify(&mut pair(session(), session(), &specs), &graph, None, 0, Tolerances::F32).unwrap();
    assert!(report.passed());
    let labels: Vec<&str> = report.cases.iter().map(|case| case.label.as_str()).collect();
    assert_eq!(labels, ["1 x 1", "2 x 1", "1 x 8", "3 x 8, padded", "2 x 18, padded", "1 x 16"]);
    let [odd, long] = &report.skipped[..] else { panic!("{report}") };
    assert_eq!((odd.label.as_str(), odd.instead.as_deref()), ("2 x 37, padded", Some("2 x 18, padded")));
    assert_eq!((long.label.as_str(), long.instead.as_deref()), ("1 x 512", Some("1 x 16")));
    assert!(long.reason.contains("out of range"), "{long}");
    assert!(report.to_string().contains("1 x 512 was not run, 1 x 16 instead: "), "{report}");
}

#[test]
fn what_only_the_candidate_cannot_run_misses() {
    let (graph, candidate) = (of_text(&TABLE.replace("f32[20]", "f32[512]")), of_text(TABLE));
    let specs = session_specs(on_interpreter(&graph).as_ref(), &BTreeMap::new()).unwrap();
    let mut pair = pair(on_interpreter(&graph), on_interpreter(&candidate), &specs);
    let report = verify(&mut pair, &graph, None, 0, Tolerances::F32).unwrap();
    assert!(!report.passed() && report.skipped.is_empty() && report.cases.len() == 6, "{report}");
    let misses = report.misses();
    assert!(misses.iter().any(|miss| miss.starts_with("1 x 512: y: reference could not run")), "{misses:?}");
}

/// A session that fails in a way of its own.
struct Fails {
    inputs: Vec<Port>,
    unsupported: bool,
}

impl Session for Fails {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &[]
    }

    fn run(&mut self, _: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let model = "m".to_owned();
        Err(match self.unsupported {
            true => RuntimeError::Unsupported { runtime: "first", model, reason: "no kernel".to_owned() },
            false => {
                RuntimeError::Failed { runtime: "second", action: "run", model, reason: "a size is wrong".to_owned() }
            }
        })
    }

    fn run_values(&mut self, _: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        unreachable!("verification runs on tensors")
    }

    fn bind(&mut self, _: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        unreachable!("verification runs on tensors")
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        unreachable!("verification runs on tensors")
    }
}

#[test]
fn where_another_reference_fails_too_both_errors_are_said() {
    let graph = of_text(TABLE);
    let inputs = on_interpreter(&graph).inputs().to_vec();
    let session = |unsupported| -> Box<dyn Session> { Box::new(Fails { inputs: inputs.clone(), unsupported }) };
    let specs = specs(&inputs, &BTreeMap::new(), inferred(&inputs, &[])).unwrap();
    let mut pair = pair(session(true), on_interpreter(&graph), &specs);
    pair.reference = Reference::first_of(session(true), ReferenceKind::SourceOnOnnxRuntime, session(false));
    let error = verify(&mut pair, &graph, None, 0, Tolerances::F32).unwrap_err().to_string();
    let both = "first could not run m: no kernel; the source on ONNX Runtime without optimization: second could not \
                run m: a size is wrong";
    assert!(error.contains(both), "{error}");
}

#[test]
fn cases_keep_within_a_gigabyte() {
    let text = r#"graph "wide" {
      input %x: f32[batch_size, sequence_length]
      %e = reshape(%x) {shape = [batch_size, sequence_length, 1]} : f32[batch_size, sequence_length, 1]
      %w = expand(%e) {shape = [batch_size, sequence_length, 1000000]} : f32[batch_size, sequence_length, 1000000]
      %s = slice(%w) {axis = 2, start = 0, end = 1} : f32[batch_size, sequence_length, 1]
      output y = %s
    }"#;
    let graph = of_text(text);
    let specs = session_specs(on_interpreter(&graph).as_ref(), &BTreeMap::new()).unwrap();
    let mut pair = pair(on_interpreter(&graph), on_interpreter(&graph), &specs);
    let plan = plans(&specs, None).pop().unwrap();
    let Ok(Outcome::Refused(reason)) = pair.run(plan, &graph, 0) else { panic!("it was run") };
    let (bytes, most) = ("would take 4096008192 bytes in the reference interpreter", "may take 268435456");
    assert!(reason.contains(bytes) && reason.ends_with(most), "{reason}");
}

#[test]
fn without_any_case_nothing_is_verified() {
    let graph = of_text(&TABLE.replace("f32[20]", "f32[0]").replace("uniform(1)", "dense([])"));
    let specs = session_specs(on_interpreter(&graph).as_ref(), &BTreeMap::new()).unwrap();
    let mut pair = pair(on_interpreter(&graph), on_interpreter(&graph), &specs);
    let error = verify(&mut pair, &graph, None, 0, Tolerances::F32).unwrap_err().to_string();
    assert!(error.starts_with("nothing can be verified") && error.contains("1 x 1 was not run: "), "{error}");
}
