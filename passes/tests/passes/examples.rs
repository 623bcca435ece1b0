use std::sync::Arc;

use planish_ir::{DType, Graph, text, verify};
use planish_passes::quantize::{
    Activation, Plan, PlannedInput, PlannedWeight, Quantization, WeightForm, WeightMethod, WeightPlan,
    WeightQuantization,
};
use planish_passes::{Half, HalfPrecision, Options, PASSES, Padding};

/// The graph of a pass's example.
fn graph(statements: &str) -> Graph {
    let lines: Vec<&str> = statements.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let graph = text::parse(&format!("graph \"example\" {{\n{}\n}}", lines.join("\n")), &text::no_files);
    let mut graph = graph.unwrap_or_else(|e| panic!("{e}\n{statements}"));
    planish_onnx::interface::state(&mut graph);
    verify(&graph).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    graph
}

/// A quantization of `%x`.
fn quantization() -> Quantization {
    let activation =
        Activation::Static { codes: DType::U8, scale: 0.25, zero_point: 128, split: vec![1], smooth: vec![] };
    let input = PlannedInput { value: "x".to_owned(), layers: vec!["y".to_owned()], layer_loss: None, activation };
    Quantization { plan: Plan { inputs: vec![input], ..Plan::default() }, ..Quantization::default() }
}

/// A quantization of `@w` alone.
fn weight_quantization() -> WeightQuantization {
    let form = WeightForm::Blocks { codes: DType::I4, block: None, method: WeightMethod::Mse, reason: None };
    let weight = PlannedWeight { weight: "w".to_owned(), used_by: vec!["y".to_owned()], elements: 2, form };
    WeightQuantization { plan: WeightPlan { weights: vec![weight] }, ..WeightQuantization::default() }
}

#[test]
fn every_pass_does_what_it_documents() {
    for pass in PASSES {
        let example = &pass.example;
        let mut rewritten = graph(example.before);
        // Only the passes of logits, of padding, of precision and of quantization look at them.
        let padding = Padding { vocabulary: Some(4), features: Some(4), ..Padding::default() };
        let precision = Some(HalfPrecision::new(Half::F16).into());
        let quantization = Some(Arc::new(quantization()));
        let weight_quantization = Some(Arc::new(weight_quantization()));
        let options = Options {
            fusion: example.fusion,
            precision,
            quantization,
            weight_quantization,
            padding,
            last_logits: true,
            ..Options::new(example.target, 20)
        };
        pass.apply(&mut rewritten, &options).unwrap_or_else(|e| panic!("{}: {e}", pass.name));
        verify(&rewritten).unwrap_or_else(|e| panic!("{}: {e}", pass.name));
        assert!(!example.after.trim().is_empty(), "`{}` gives\n{rewritten}", pass.name);
        assert_eq!(rewritten.to_string(), graph(example.after).to_string(), "the example of `{}`", pass.name);
    }
}

#[test]
fn every_pass_is_documented() {
    let mut names: Vec<&str> = PASSES.iter().map(|pass| pass.name).collect();
    for pass in PASSES {
        assert!(pass.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", pass.name);
        assert!(!pass.numerics.is_empty(), "{}", pass.name);
        // Sentences, the first of which fits a line of a list.
        assert!(
            pass.summary.starts_with(|c: char| c.is_ascii_uppercase()) && pass.summary.ends_with('.'),
            "{}",
            pass.name
        );
        assert!((20..150).contains(&pass.gist().len()), "{}: {}", pass.name, pass.gist());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PASSES.len(), "names of passes are unique");
}
