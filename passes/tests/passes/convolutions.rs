//! Convolutions on codes.

use std::collections::BTreeMap;

use planish_eval::{Tensor, evaluate};
use planish_ir::text::{no_files, parse};
use planish_ir::{DType, Graph, Op, verify};
use planish_passes::calibration::{InputStatistics, RowId, TokenRows};
use planish_passes::observe::OBSERVE_INPUTS;
use planish_passes::quantize::{Activation, Plan, Quantization, Settings, feature_maps};
use planish_passes::{ONNX, ORT, Options, Pipeline, TRT, Target};

/// A stem with a pool, a block with a residual, and a depthwise convolution whose activation is limited on both sides.
const NETWORK: &str = "graph \"network\" {
    input %x: f32[b, 4, 8, 8]
    weight @stem = uniform(1) : f32[8, 4, 3, 3]
    weight @bias = uniform(2) : f32[8]
    weight @inner = uniform(3) : f32[8, 8, 1, 1]
    weight @last = uniform(4) : f32[8, 1, 3, 3]
    weight @zero = dense([0.0]) : f32[]
    weight @six = dense([6.0]) : f32[]
    %s = conv(%x, @stem, bias: @bias) {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1, sizes = [8, 8]} : f32[b, 8, 8, 8]
    %a = relu(%s) : f32[b, 8, 8, 8]
    %p = foreign([%a], []) {domain = \"ai.onnx\", op = \"MaxPool\", version = 12, settings = [kernel_shape = ints([2, 2]), strides = ints([2, 2])], captures = [], results = [f32[b, 8, 4, 4]]} : f32[b, 8, 4, 4]
    %i = conv(%p, @inner) {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1, sizes = [4, 4]} : f32[b, 8, 4, 4]
    %r = add(%i, %p) : f32[b, 8, 4, 4]
    %d = conv(%r, @last) {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 8, sizes = [4, 4]} : f32[b, 8, 4, 4]
    %low = max(%d, @zero) : f32[b, 8, 4, 4]
    %y = min(%low, @six) : f32[b, 8, 4, 4]
    output y = %y
}";

fn images() -> Vec<(&'static str, Tensor)> {
    let elements: Vec<f32> = (0..3 * 4 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect();
    vec![("x", Tensor::new(vec![3, 4, 8, 8], elements).unwrap())]
}

fn results(graph: &Graph) -> Vec<f64> {
    evaluate(graph, &images()).unwrap()[0].1.to_f64()
}

/// The statistics that calibration would measure.
fn statistics(graph: &Graph) -> BTreeMap<String, InputStatistics> {
    let mut observed = graph.clone();
    OBSERVE_INPUTS.apply(&mut observed, &Options::new(&ONNX, 20)).unwrap();
    let mut statistics = BTreeMap::new();
    for (name, tensor) in evaluate(&observed, &images()).unwrap() {
        let Some(name) = name.strip_prefix("observed/tensor/") else { continue };
        let columns = *tensor.shape().last().unwrap();
        let elements: Vec<f32> = tensor.to_f64().into_iter().map(|x| x as f32).collect();
        let count = elements.len() / columns;
        let ids: Vec<Option<RowId>> = (0..count as u64).map(|token| Some(RowId { sample: 0, token })).collect();
        let mut of = InputStatistics::new(columns);
        of.add(TokenRows { elements: &elements, columns, ids: &ids }).unwrap();
        statistics.insert(name.to_owned(), of);
    }
    statistics
}

fn planned(graph: &Graph, target: &Target) -> Plan {
    let statistics = statistics(graph);
    let mut plan = Plan::new(graph, &Settings::int8(target), Some(&statistics)).unwrap();
    plan.check(graph, &Settings::int8(target)).unwrap();
    plan.measure(graph, &statistics).unwrap();
    plan
}

fn lowered(graph: &Graph, target: &'static Target, plan: Plan) -> Graph {
    let quantization = Quantization { plan, ..Quantization::default() };
    let options = Options { quantization: Some(quantization.into()), ..Options::new(target, 20) };
    let mut lowered = graph.clone();
    Pipeline::new(options).run(&mut lowered, &mut |_, _| {}).unwrap();
    verify(&lowered).unwrap();
    lowered
}

fn count(graph: &Graph, op: &str) -> usize {
    let is = |of: &Op| match of {
        Op::Foreign(foreign) => foreign.op.0 == op,
        of => of.mnemonic() == op,
    };
    graph.nodes().filter(|(_, node)| is(&node.op)).count()
}

#[test]
fn what_convolutions_take_and_give_is_planned() {
    let graph = parse(NETWORK, &no_files).unwrap();
    let names: Vec<&str> = feature_maps(&graph).into_iter().map(|map| graph.value(map).name.as_str()).collect();
    assert_eq!(names, ["x", "a", "p", "i", "r", "y"]);
    let plan = planned(&graph, &ORT);
    let of = |name: &str| plan.maps.iter().find(|map| map.value == name).unwrap();
    assert_eq!(of("p").activation, of("a").activation, "a pool gives elements of what it takes");
    assert_eq!((of("p").layers.as_slice(), of("a").layers.len()), (&["i".to_owned()][..], 0));
    assert!(plan.maps.iter().all(|map| map.activation.codes() == Some(DType::U8)), "{plan:?}");
    let losses: Vec<bool> = plan.maps.iter().map(|map| map.layer_loss.is_some_and(|loss| loss < 1e-3)).collect();
    assert_eq!(losses, [true, false, true, false, true, false], "{plan:?}");
    assert!(planned(&graph, &TRT).maps.iter().all(|map| map.activation.codes() == Some(DType::I8)));
}

#[test]
fn activations_are_limits_of_codes() {
    let graph = parse(NETWORK, &no_files).unwrap();
    let expected = results(&graph);
    for (target, activations) in [(&ORT, 0), (&ONNX, 0), (&TRT, 2)] {
        let lowered = lowered(&graph, target, planned(&graph, target));
        assert_eq!(count(&lowered, "conv"), 3);
        assert_eq!(count(&lowered, "relu") + count(&lowered, "max"), activations, "{target}: {lowered}");
        assert_eq!(count(&lowered, "min"), 0, "no code stands for more than the elements have");
        let given = results(&lowered);
        let (mut error, mut all) = (0.0, 0.0);
        for (a, b) in expected.iter().zip(&given) {
            (error, all) = (error + (a - b).powi(2), all + a * a);
        }
        assert!(error < 2e-3 * all && error > 0.0, "{target}: {error} of {all}");
    }
}

#[test]
fn a_convolution_that_is_kept_takes_and_gives_floats() {
    let graph = parse(NETWORK, &no_files).unwrap();
    let mut plan = planned(&graph, &ORT);
    let at = plan.maps.iter().position(|map| map.value == "p").unwrap();
    plan.maps[at].activation = Activation::Float { reason: "asked for".to_owned() };
    let lowered = lowered(&graph, &ORT, plan);
    // The input, what the stem gives, what the last convolution takes and gives.
    assert_eq!(count(&lowered, "QuantizeLinear"), 4, "{lowered}");
    let floats =
        |weight: &str| lowered.weights().any(|(_, value, of)| value.name == weight && of.dtype() == DType::F32);
    assert_eq!([floats("stem"), floats("inner"), floats("last")], [false, true, false]);
}

#[test]
fn without_a_calibration_weights_alone_are_codes() {
    let graph = parse(NETWORK, &no_files).unwrap();
    let mut plan = Plan::new(&graph, &Settings::int8(&ORT), None).unwrap();
    let forms: Vec<(&str, bool)> =
        plan.weights.iter().map(|planned| (planned.weight.as_str(), planned.form.codes().is_some())).collect();
    assert_eq!(forms, [("stem", true), ("inner", false), ("last", false)], "the other ones have few elements");
    plan.check(&graph, &Settings::int8(&ORT)).unwrap();
    let lowered = lowered(&graph, &ORT, plan);
    assert_eq!((count(&lowered, "DequantizeLinear"), count(&lowered, "QuantizeLinear")), (1, 0));
    let error = results(&graph).iter().zip(results(&lowered)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error > 0.0 && error < 0.1, "{error}");
}

#[test]
fn plans_of_feature_maps_are_checked() {
    let graph = parse(NETWORK, &no_files).unwrap();
    let mut plan = planned(&graph, &ORT);
    let error = plan.check(&graph, &Settings::int8(&TRT)).unwrap_err().to_string();
    assert!(error.contains("codes of u8, and this target and these options take i8"), "{error}");
    let error = plan.check(&graph, &Settings::fp8()).unwrap_err().to_string();
    assert!(error.contains("`x`: this target and these options have no convolutions of codes"), "{error}");
    let first = plan.maps[0].clone();
    plan.maps[0].activation = Activation::Dynamic { split: Vec::new(), limit: None, smooth: Vec::new() };
    let error = plan.check(&graph, &Settings::int8(&ORT)).unwrap_err().to_string();
    assert!(error.contains("a feature map has a fixed scale"), "{error}");
    plan.maps[0] = first.clone();
    plan.maps.push(first);
    assert!(plan.check(&graph, &Settings::int8(&ORT)).unwrap_err().to_string().contains("`x` twice"));
    plan.maps.last_mut().unwrap().value = "z".to_owned();
    assert!(plan.check(&graph, &Settings::int8(&ORT)).unwrap_err().to_string().contains("no feature map"));
}
