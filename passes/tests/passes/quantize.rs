//! Quantization as a whole: what splitting and threads leave as it is.

use planish_eval::Tensor;
use planish_ir::text::{no_files, parse};
use planish_ir::{DType, Graph, verify};
use planish_passes::quantize::{Activation, Plan, PlannedInput, QUANTIZE, Quantization};
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
