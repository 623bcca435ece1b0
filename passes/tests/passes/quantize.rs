//! Quantization as a whole: what splitting and threads leave as it is.

use std::collections::BTreeMap;

use planish_eval::{Tensor, evaluate};
use planish_ir::text::{no_files, parse};
use planish_ir::{DType, Graph, verify};
use planish_passes::calibration::ExpertUse;
use planish_passes::quantize::{
    Activation, Bits, Plan, PlannedInput, QUANTIZE, QUANTIZE_WEIGHTS, Quantization, WeightPlan, WeightQuantization,
    WeightSettings,
};
use planish_passes::{ONNX, ORT, Options, Pipeline, TRT};
use planish_testing::evaluation::outputs;
use proptest::prelude::*;

/// A layer that takes a value, of weights of codes whose scales are powers of two.
fn layer(statement: &str, x: &str) -> Graph {
    let text = format!(
        "graph \"g\" {{
        input %x: f32[n, 3]
        weight @w = dequantize([dense([1, -2, 3, 40, 127, -128]) : i8[2, 3], dense([0.5, 0.25]) : f32[2]], 0) : f32[2, 3]
        {statement}
        %y = linear({x}, @w) : f32[n, 2]
        output y = %y
        }}"
    );
    parse(&text, &no_files).unwrap()
}

proptest! {
    /// A scale at which nothing is rounded: with as many columns as the elements need, the codes give the same result as
    /// no codes, bit for bit.
    #[test]
    fn splitting_never_changes_the_function(
        copies in [1usize..4, 1usize..4, 1usize..4],
        shares in prop::collection::vec(-1f64..=1.0, 9),
    ) {
        let scale = 1.0 / 64.0;
        let unit = |(i, share): (usize, &f64)| (share * 127.0 * copies[i % 3] as f64).trunc() * scale;
        let elements: Vec<f64> = shares.iter().enumerate().map(unit).collect();
        let split: Vec<usize> = (0..3).flat_map(|column| vec![column; copies[column] - 1]).collect();
        let split = if split.is_empty() { String::new() } else { format!(", split = {split:?}") };
        let statement = format!("%q = fake_quantize(%x) {{to = i8, scale = {scale}{split}}} : f32[n, 3]");
        let quantized = layer(&statement, "%q");
        let inputs = [("x".to_owned(), Tensor::from_f64(DType::F32, vec![3, 3], &elements).unwrap())].into();
        let expected = outputs(&layer("", "%x"), &inputs).unwrap();
        prop_assert_eq!(&outputs(&quantized, &inputs).unwrap(), &expected);
        for target in [&ORT, &ONNX, &TRT] {
            let mut lowered = quantized.clone();
            Pipeline::new(Options::new(target, 20)).run(&mut lowered, &mut |_, _| {}).unwrap();
            verify(&lowered).unwrap();
            prop_assert_eq!(&outputs(&lowered, &inputs).unwrap(), &expected, "{}\n{}", target, lowered);
        }
    }
}

#[test]
fn the_same_codes_on_any_number_of_threads() {
    let layers: String = (0..6)
        .map(|i| {
            format!(
                "weight @w{i} = uniform({i}) : f32[96, 64]\n%y{i} = linear(%x, @w{i}) : f32[n, 96]\noutput y{i} = %y{i}\n"
            )
        })
        .collect();
    let graph = parse(&format!("graph \"g\" {{\ninput %x: f32[n, 64]\n{layers}}}"), &no_files).unwrap();
    let activation =
        Activation::Static { codes: DType::I8, scale: 0.01, zero_point: 0, split: vec![3], smooth: vec![1.5; 64] };
    let plan = Plan {
        inputs: vec![PlannedInput { value: "x".to_owned(), layers: Vec::new(), layer_loss: None, activation }],
        ..Plan::default()
    };
    let quantized = |threads: usize| {
        let quantization = Quantization { plan: plan.clone(), ..Quantization::default() };
        let options = Options { quantization: Some(quantization.into()), ..Options::new(&ONNX, 20) };
        let mut graph = graph.clone();
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            assert_eq!((QUANTIZE.run)(&mut graph, &options).unwrap().changed, 6);
            let bytes: Vec<Vec<u8>> = graph.weights().map(|(_, _, weight)| weight.read().unwrap()).collect();
            (graph.to_string(), bytes)
        })
    };
    let one = quantized(1);
    assert!(one.1.len() > 6);
    assert!([2, 3, 8].into_iter().all(|threads| quantized(threads) == one));
}

/// Two experts with a block of 16 columns each, and tokens whose columns differ in size.
const EXPERTS: &str = "graph \"experts\" {
    input %x: f32[2, 16]
    input %i: i64[2, 1]
    input %s: f32[2, 1]
    weight @g = GATE
    weight @d = DOWN
    %y = experts(%x, %i, %s, @g, @d) {activation = none} : f32[2, 16]
    output y = %y
}";

#[test]
fn columns_of_experts_weigh_as_the_tokens_that_took_them() {
    let numbers = |f: &dyn Fn(usize) -> f64| -> String {
        let all: Vec<String> = (0..512).map(|i| format!("{:?}", f(i))).collect();
        format!("dense([{}]) : f32[2, 16, 16]", all.join(", "))
    };
    let gate = numbers(&|i| ((i * 37 % 101) as f64 - 50.0) / 50.0);
    let down = numbers(&|i| if i % 17 == 0 || i == 256 { 1.0 } else { 0.0 });
    let graph = parse(&EXPERTS.replace("GATE", &gate).replace("DOWN", &down), &no_files).unwrap();
    // The first token takes the second expert, and its fourth column counts most; the second token takes the first one.
    let token = |large: usize| (0..16).map(move |i| if i == large { 30.0f32 } else { 0.5 });
    let x: Vec<f32> = token(3).chain(token(11)).collect();
    let inputs = [
        ("x", Tensor::new(vec![2, 16], x.clone()).unwrap()),
        ("i", Tensor::new(vec![2, 1], vec![1i64, 0]).unwrap()),
        ("s", Tensor::new(vec![2, 1], vec![1f32; 2]).unwrap()),
    ];
    let results = |graph: &Graph| evaluate(graph, &inputs).unwrap()[0].1.to_f64();
    let expected = results(&graph);
    let error = |of_experts: BTreeMap<String, Vec<f32>>| {
        let settings = WeightSettings { block: Some(16), ..WeightSettings::new(Bits::Four) };
        let plan = WeightPlan::new(&graph, &settings, &ORT);
        let quantization = WeightQuantization { plan, of_experts, ..WeightQuantization::default() };
        let options = Options { weight_quantization: Some(quantization.into()), ..Options::new(&ORT, 20) };
        let mut after = graph.clone();
        QUANTIZE_WEIGHTS.apply(&mut after, &options).unwrap();
        results(&after).iter().zip(&expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>()
    };
    let mut tokens = ExpertUse::new(2, 16);
    tokens.add(&x[..16], [1].into_iter()).unwrap();
    tokens.add(&x[16..], [0].into_iter()).unwrap();
    let (alone, weighted) = (error(BTreeMap::new()), error([("y".to_owned(), tokens.importance())].into()));
    assert!(weighted < 0.5 * alone, "{weighted} {alone}");
    // What the other expert was given does not help.
    let swapped: Vec<f32> = tokens.importance().rchunks(16).flatten().copied().collect();
    assert!(error([("y".to_owned(), swapped)].into()) > weighted);
}

/// Rows with one scale each are looked up without an operator for blocks.
#[test]
fn tables_without_blocks_have_a_scale_for_each_row() {
    let text = r#"graph "g" {
      input %ids: i64[n, s]
      weight @t = dense([NUMBERS]) : f32[16, 16]
      %e = embedding(@t, %ids) : f32[n, s, 16]
      %y = linear(%e, @t) : f32[n, s, 16]
      output logits = %y
    }"#;
    let numbers: Vec<String> = (0..256).map(|i| format!("{:?}", f64::from(i % 13) - 6.0)).collect();
    let mut graph = parse(&text.replace("NUMBERS", &numbers.join(", ")), &no_files).unwrap();
    planish_onnx::interface::state(&mut graph);
    let looked_up = |table_blocks: bool| {
        let settings = WeightSettings { table_blocks, ..WeightSettings::new(Bits::Four) };
        let plan = WeightPlan::new(&graph, &settings, &ORT);
        let quantization = WeightQuantization { plan, ..WeightQuantization::default() };
        let options = Options { weight_quantization: Some(quantization.into()), ..Options::new(&ORT, 20) };
        let mut after = graph.clone();
        Pipeline::new(options).run(&mut after, &mut |_, _| {}).unwrap();
        after.to_string().contains("GatherBlockQuantized")
    };
    assert!(looked_up(true) && !looked_up(false));
}
