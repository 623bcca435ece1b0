//! Operators with graphs of their own, which these tests write in the text form: a reader parses it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use planish_eval::{EvalError, Interpreter, Limits, Reader, Tensor, evaluate};
use planish_ir::ops::{Foreign, InnerOperators, Results, Setting, Settings, Text};
use planish_ir::{Graph, Origin, TensorType, text};
use proptest::prelude::*;

use crate::{numbers, random, tensor};
use planish_ir::DType;

/// Graphs in the text form, with a size `S` that is the last dimension of the first input that has one.
struct Texts;

impl Reader for Texts {
    fn body(
        &self,
        _: &Foreign,
        body: &Arc<[u8]>,
        inputs: &[TensorType],
        captured: &[TensorType],
    ) -> Result<Arc<Graph>, String> {
        let size = inputs.iter().chain(captured).find_map(|ty| ty.shape.last()?.as_constant()).unwrap_or(0);
        let text = String::from_utf8_lossy(body).replace("SS", &(2 * size).to_string()).replace('S', &size.to_string());
        let graph = text::parse(&format!("graph \"body\" {{\n{text}\n}}"), &text::no_files);
        graph.map(Arc::new).map_err(|e| e.to_string())
    }

    fn operator(&self, op: &Foreign, operands: &[Option<&Tensor>]) -> Result<Graph, String> {
        let ty = operands[0].ok_or("no operand")?.ty();
        match op.op.0.as_str() {
            "Twice" => {
                let text = format!("graph \"twice\" {{\ninput %i0: {ty}\n%y = add(%i0, %i0) : {ty}\noutput y = %y\n}}");
                text::parse(&text, &text::no_files).map_err(|e| e.to_string())
            }
            "Itself" => {
                let text = format!(
                    "graph \"itself\" {{\ninput %i0: {ty}\n%y = foreign([%i0], []) {{domain = \"ai.onnx\", \
                     op = \"Itself\", version = 18, captures = [], results = [{ty}]}} : {ty}\noutput y = %y\n}}"
                );
                text::parse(&text, &text::no_files).map_err(|e| e.to_string())
            }
            other => Err(format!("no form of {other}")),
        }
    }
}

struct Call<'a> {
    op: &'a str,
    version: usize,
    settings: &'a [(&'a str, Setting)],
    operands: &'a [Option<&'a Tensor>],
    captured: &'a [&'a Tensor],
    /// The types of the results, e.g. `f32[a, b]`.
    results: &'a [&'a str],
}

impl Call<'_> {
    fn graph(&self) -> (Graph, Vec<(String, Tensor)>) {
        let mut graph = Graph::new("test");
        let mut given = Vec::new();
        let mut add = |name: String, t: &Tensor| {
            given.push((name.clone(), t.clone()));
            graph.add_input(&name, t.ty(), Origin::Unknown)
        };
        let inputs: Vec<_> =
            self.operands.iter().enumerate().map(|(i, t)| t.map(|t| add(format!("x{i}"), t))).collect();
        let captured: Vec<_> = self.captured.iter().enumerate().map(|(i, t)| add(format!("c{i}"), t)).collect();
        let captures = (0..captured.len()).map(|i| Text(format!("c{i}"))).collect();
        let results = format!("[{}]", self.results.join(", "));
        let foreign = Foreign {
            inputs,
            captured,
            domain: Text(Foreign::STANDARD.to_owned()),
            op: Text(self.op.to_owned()),
            version: self.version,
            settings: Settings(self.settings.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect()),
            captures,
            inner: InnerOperators::default(),
            results: planish_ir::ops::Attribute::parse(Some(&results)).map(|r: Results| r).unwrap(),
        };
        for (i, result) in graph.emit(foreign, "r", Origin::Unknown).unwrap().into_iter().enumerate() {
            graph.add_output(&format!("o{i}"), result);
        }
        (graph, given)
    }

    fn try_run(&self, limits: Limits) -> Result<Vec<Tensor>, EvalError> {
        let (graph, given) = self.graph();
        let given: Vec<(&str, Tensor)> = given.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
        let interpreter = Interpreter { reader: Some(&Texts), limits, ..Interpreter::default() };
        Ok(interpreter.run(&graph, &given)?.into_iter().map(|(_, t)| t).collect())
    }

    #[track_caller]
    fn run(&self) -> Vec<Tensor> {
        self.try_run(Limits::default()).unwrap()
    }

    fn fails(&self) -> String {
        self.try_run(Limits::default()).unwrap_err().to_string()
    }
}

fn body(text: &str) -> Setting {
    Setting::Graph(text.as_bytes().to_vec().into())
}

fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    numbers(DType::F32, shape, values)
}

fn number(value: i64) -> Tensor {
    tensor(&[], vec![value])
}

fn truth(value: bool) -> Tensor {
    tensor(&[], vec![value])
}

#[test]
fn a_condition_takes_one_branch() {
    let x = f32s(&[2], &[1.0, -2.0]);
    let branches = [
        ("then_branch", body("input %c0: f32[S]\n output y = %c0")),
        ("else_branch", body("input %c0: f32[S]\n %y = concat([%c0, %c0]) {axis = 0} : f32[SS]\n output y = %y")),
    ];
    let run = |condition: &Tensor| {
        let call = Call {
            op: "If",
            version: 13,
            settings: &branches,
            operands: &[Some(condition)],
            captured: &[&x],
            results: &["f32[n]"],
        };
        call.try_run(Limits::default()).map(|mut results| results.remove(0)).map_err(|e| e.to_string())
    };
    assert_eq!(run(&truth(true)).unwrap(), x);
    assert_eq!(run(&truth(false)).unwrap(), f32s(&[4], &[1.0, -2.0, 1.0, -2.0]));
    assert_eq!(run(&tensor(&[1], vec![true])).unwrap(), x);
    let error = run(&tensor(&[2], vec![true, true])).unwrap_err();
    assert!(error.contains("a condition is bool[2], expected one bool"), "{error}");
}

/// The state `s` doubles its length each round; `r` is the state before, its sum goes out.
const GROWS: &str = "
    input %i: i64[]
    input %c: bool[]
    input %s: f32[S]
    %t = concat([%s, %s]) {axis = 0} : f32[SS]
    %sum = reduce_sum(%t) {axes = [0], keep = false} : f32[]
    output c = %c
    output t = %t
    output sum = %sum";

fn looped(text: &str, limit: Option<i64>, condition: Option<bool>, limits: Limits) -> Result<Vec<Tensor>, String> {
    let (limit, condition) = (limit.map(number), condition.map(truth));
    let call = Call {
        op: "Loop",
        version: 13,
        settings: &[("body", body(text))],
        operands: &[limit.as_ref(), condition.as_ref(), Some(&f32s(&[2], &[1.0, 2.0]))],
        captured: &[],
        results: &["f32[n]", "f32[rounds]"],
    };
    call.try_run(limits).map_err(|e| e.to_string())
}

#[test]
fn what_a_loop_passes_on_may_change_its_shape() {
    let results = looped(GROWS, Some(3), Some(true), Limits::default()).unwrap();
    assert_eq!(results[0].shape(), [16]);
    assert_eq!(results[1], f32s(&[3], &[6.0, 12.0, 24.0]));
}

#[test]
fn loops_without_a_round() {
    for (limit, condition) in [(Some(0), None), (Some(-2), Some(true)), (Some(3), Some(false)), (None, Some(false))] {
        let results = looped(GROWS, limit, condition, Limits::default()).unwrap();
        assert_eq!(results, [f32s(&[2], &[1.0, 2.0]), f32s(&[0], &[])]);
    }
}

/// Without a limit, the condition that a round gives ends the loop.
#[test]
fn a_condition_ends_a_loop() {
    let text = "
        input %i: i64[]
        input %c: bool[]
        input %s: f32[2]
        weight @one = dense([1.0]) : f32[]
        weight @last = dense([2]) : i64[]
        %t = add(%s, @one) : f32[2]
        %more = less(%i, @last) : bool[]
        %f = cast(%i) {to = f32} : f32[]
        output c = %more
        output t = %t
        output f = %f";
    for limit in [None, Some(9)] {
        let results = looped(text, limit, None, Limits::default()).unwrap();
        assert_eq!(results, [f32s(&[2], &[4.0, 5.0]), f32s(&[3], &[0.0, 1.0, 2.0])]);
    }
    assert_eq!(looped(text, Some(2), None, Limits::default()).unwrap()[1], f32s(&[2], &[0.0, 1.0]));
}

fn memory(bytes: u64) -> Limits {
    Limits { memory: Some(bytes), ..Limits::default() }
}

/// An endless loop that gives nothing ends where the rounds do.
#[test]
fn rounds_are_bounded() {
    let text = "
        input %i: i64[]
        input %c: bool[]
        input %s: f32[2]
        %f = cast(%i) {to = f32} : f32[]
        output c = %c
        output s = %s
        output f = %f";
    let rounds = |rounds| Limits { rounds: Some(rounds), ..Limits::default() };
    assert_eq!(looped(text, Some(7), None, rounds(7)).unwrap()[1].shape(), [7]);
    let error = looped(text, None, None, rounds(6)).unwrap_err();
    assert!(error.ends_with("`Loop`: the loops of the run take more than 6 rounds"), "{error}");
}

/// Few rounds of much work are bounded by time, those of loops in loops with them.
#[test]
fn loops_are_bounded_by_time() {
    let endless = "
        input %i: i64[]
        input %c: bool[]
        input %s: f32[S]
        %f = reduce_sum(%s) {axes = [0], keep = false} : f32[]
        output c = %c
        output s = %s
        output f = %f";
    let limits = |time| Limits { loop_time: Some(time), ..Limits::default() };
    let start = Instant::now();
    let error = looped(endless, None, None, limits(Duration::from_millis(200))).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(error.contains("`Loop`: in its `body`: at `f` "), "{error}");
    assert!(error.contains("the loops of the run take more than 0.2 s: they are in round "), "{error}");
    assert_eq!(looped(endless, Some(7), None, limits(Duration::from_secs(600))).unwrap()[1].shape(), [7]);
}

/// An endless loop ends where what it gives is beyond the limit of memory, or where the machine has no more.
#[test]
fn what_rounds_give_is_bounded_by_memory() {
    let error = looped(GROWS, None, Some(true), memory(1 << 16)).unwrap_err();
    assert!(error.starts_with("at `r` (unknown origin): `Loop`: in its `body`: at `t` "), "{error}");
    assert!(error.ends_with("and may use 65536"), "{error}");
    let gathers = "
        input %i: i64[]
        input %c: bool[]
        input %s: f32[2]
        %sum = reduce_sum(%s) {axes = [0], keep = false} : f32[]
        output c = %c
        output s = %s
        output sum = %sum";
    let error = looped(gathers, None, None, memory(1000)).unwrap_err();
    assert!(error.ends_with("a result of f32[] takes 4 bytes; the run uses 1000 and may use 1000"), "{error}");
}

#[test]
fn rounds_that_do_not_fit_each_other() {
    let grows =
        GROWS.replace("%sum = reduce_sum(%t) {axes = [0], keep = false} : f32[]", "%sum = add(%t, %t) : f32[SS]");
    let call = Call {
        op: "Loop",
        version: 13,
        settings: &[("body", body(&grows))],
        operands: &[Some(&number(2)), None, Some(&f32s(&[2], &[1.0, 2.0]))],
        captured: &[],
        results: &["f32[n]", "f32[rounds, m]"],
    };
    let error = call.fails();
    assert!(error.contains("round 1 gives f32[8], rounds before it f32[4]"), "{error}");
    let integer = "
        input %i: i64[]
        input %c: bool[]
        input %s: f32[2]
        output c = %c
        output i = %i
        output s = %s";
    let error = looped(integer, Some(1), None, Limits::default()).unwrap_err();
    assert!(error.contains("a round passes on i64[] as value 0, expected f32"), "{error}");
}

#[test]
fn without_a_reader_bodies_are_not_computed() {
    let call = Call {
        op: "If",
        version: 13,
        settings: &[("then_branch", body("nothing")), ("else_branch", body("nothing"))],
        operands: &[Some(&truth(true))],
        captured: &[],
        results: &["f32[]"],
    };
    let (graph, given) = call.graph();
    let given: Vec<(&str, Tensor)> = given.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
    let error = evaluate(&graph, &given).unwrap_err();
    assert!(error.is_unsupported());
    let error = error.to_string();
    assert!(error.contains("`If`: the reference interpreter does not compute this operator of ai.onnx"), "{error}");
    let error = call.fails();
    assert!(error.contains("`If`: its `then_branch`: "), "{error}");
}

/// What the interpreter has no kernel for is read again, once.
#[test]
fn operators_are_read_again() {
    let x = f32s(&[2], &[1.0, 2.0]);
    let operands = [Some(&x)];
    let call = |op| Call { op, version: 18, settings: &[], operands: &operands, captured: &[], results: &["f32[n]"] };
    assert_eq!(call("Twice").run(), [f32s(&[2], &[2.0, 4.0])]);
    let is_unsupported = |op| call(op).try_run(Limits::default()).unwrap_err().is_unsupported();
    assert!(is_unsupported("Itself"), "there is no kernel");
    assert!(!is_unsupported("Other"), "the operator is none of its operands");
    let error = call("Itself").fails();
    assert!(
        error.ends_with("`Itself`: the reference interpreter does not compute this operator of ai.onnx"),
        "{error}"
    );
    let error = call("Other").fails();
    assert!(error.ends_with("`Other`: no form of Other"), "{error}");
}

/// The state adds up pieces; what goes out is the state times the other piece.
const SUMS: &str = "
    input %s: f32[3]
    input %a: f32[3]
    input %b: f32[3]
    %t = add(%s, %a) : f32[3]
    %u = mul(%t, %b) : f32[3]
    output t = %t
    output u = %u";

/// The element along an axis, without it.
fn piece(x: &Tensor, axis: usize, index: usize) -> Vec<f64> {
    let [rows, columns] = [x.shape()[0], x.shape()[1]];
    let values = x.to_f64();
    match axis {
        0 => values[index * columns..(index + 1) * columns].to_vec(),
        _ => (0..rows).map(|row| values[row * columns + index]).collect(),
    }
}

proptest! {
    /// A scan is its rounds written out.
    #[test]
    fn a_scan_is_its_rounds(
        rounds in 0usize..5,
        axes in proptest::array::uniform3(0usize..2),
        backward in proptest::array::uniform3(any::<bool>()),
        seed in 0u64..1000,
    ) {
        let shape = |axis| if axis == 0 { [rounds, 3] } else { [3, rounds] };
        let s = random(DType::F32, &[3], seed);
        let (a, b) = (random(DType::F32, &shape(axes[0]), seed + 1), random(DType::F32, &shape(axes[1]), seed + 2));
        let ints = |values: &[usize]| Setting::Ints(values.iter().map(|v| i64::try_from(*v).unwrap()).collect());
        let directions: Vec<usize> = backward.iter().map(|b| usize::from(*b)).collect();
        let call = Call {
            op: "Scan",
            version: 11,
            settings: &[
                ("body", body(SUMS)),
                ("num_scan_inputs", Setting::Int(2)),
                ("scan_input_axes", ints(&axes[..2])),
                ("scan_input_directions", ints(&directions[..2])),
                ("scan_output_axes", ints(&axes[2..])),
                ("scan_output_directions", ints(&directions[2..])),
            ],
            operands: &[Some(&s), Some(&a), Some(&b)],
            captured: &[],
            results: &["f32[3]", "f32[n, m]"],
        };
        let results = call.run();
        let mut state = s.to_f64();
        let mut rows = Vec::new();
        for round in 0..rounds {
            let at = |i: usize| if backward[i] { rounds - 1 - round } else { round };
            let (x, y) = (piece(&a, axes[0], at(0)), piece(&b, axes[1], at(1)));
            state = state.iter().zip(x).map(|(s, x)| f64::from((s + x) as f32)).collect();
            rows.push(state.iter().zip(y).map(|(s, y)| f64::from((s * y) as f32)).collect::<Vec<f64>>());
        }
        prop_assert_eq!(results[0].to_f64(), state);
        prop_assert_eq!(results[1].shape(), shape(axes[2]));
        for (round, row) in rows.into_iter().enumerate() {
            let at = if backward[2] { rounds - 1 - round } else { round };
            prop_assert_eq!(piece(&results[1], axes[2], at), row);
        }
    }
}

/// The scan of opset 8 takes each row of the batch as long as it is.
#[test]
fn scans_of_rows() {
    let text = "
        input %s: f32[]
        input %a: f32[]
        %t = add(%s, %a) : f32[]
        output t = %t
        output u = %t";
    let (lengths, s) = (tensor(&[2], vec![3i64, 1]), f32s(&[2], &[10.0, 20.0]));
    let a = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let call = |lengths, directions: &[i64]| {
        Call {
            op: "Scan",
            version: 8,
            settings: &[
                ("body", body(text)),
                ("num_scan_inputs", Setting::Int(1)),
                ("directions", Setting::Ints(directions.to_vec())),
            ],
            operands: &[lengths, Some(&s), Some(&a)],
            captured: &[],
            results: &["f32[n]", "f32[n, m]"],
        }
        .run()
    };
    assert_eq!(call(None, &[0]), [f32s(&[2], &[16.0, 35.0]), f32s(&[2, 3], &[11.0, 13.0, 16.0, 24.0, 29.0, 35.0])]);
    let cut = call(Some(&lengths), &[1]);
    assert_eq!(cut, [f32s(&[2], &[16.0, 24.0]), f32s(&[2, 3], &[13.0, 15.0, 16.0, 24.0, 0.0, 0.0])]);
}

#[test]
fn scans_of_pieces_that_do_not_fit() {
    let (s, a, b) = (f32s(&[3], &[0.0; 3]), f32s(&[2, 3], &[0.0; 6]), f32s(&[3, 3], &[0.0; 9]));
    let settings = [("body", body(SUMS)), ("num_scan_inputs", Setting::Int(2))];
    let call = |settings: &[(&str, Setting)]| {
        let results = ["f32[3]", "f32[n, m]"];
        let operands = [Some(&s), Some(&a), Some(&b)];
        Call { op: "Scan", version: 11, settings, operands: &operands, captured: &[], results: &results }.fails()
    };
    assert!(call(&settings).contains("into different numbers of pieces: [2, 3]"));
    assert!(call(&settings[..1]).contains("its `num_scan_inputs` is not among its operands"));
    let axes = [&settings[..], &[("scan_input_axes", Setting::Ints(vec![0]))]].concat();
    assert!(call(&axes).contains("its `scan_input_axes` are 1 numbers, expected 2"));
}
