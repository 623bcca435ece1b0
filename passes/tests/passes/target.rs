//! A target that is defined outside the crate: what passes ask about it decides what they do.

use planish_ir::text::{no_files, parse};
use planish_passes::{
    AttentionForm, CastAttention, Kernels, ONNX, Observation, Options, PassError, Pipeline, Target, TokenOrder,
};

/// It has no kernel for softmax, and its linear layers are fastest at multiples of 4.
static TOY: Target = Target {
    name: "toy",
    summary: "a target of a test",
    kernels: Kernels {
        missing: |signature, opset| match signature.mnemonic {
            "softmax" => Some("softmax is not there".to_owned()),
            _ => (ONNX.kernels.missing)(signature, opset),
        },
        domains: &["toy"],
        foreign: |_, _| None,
        value: |_, _| None,
    },
    order: TokenOrder::BatchMajor,
    attention: AttentionForm::Products,
    fuses: false,
    quantized: planish_passes::QuantizedForm::Pairs,
    most_scores: None,
    skips_masks: false,
    attention_between_casts: CastAttention::Products,
    selects_parts: false,
    absorbs_biases: false,
    substitutes_kernels: false,
    observation: Observation::Interleaved,
    computes_in_float32: false,
    vocabulary_multiple: None,
    alignment: |_| 4,
};

fn lowered(statements: &str) -> Result<String, PassError> {
    let mut graph = parse(&format!("graph \"g\" {{\n{statements}\n}}"), &no_files).unwrap();
    Pipeline::new(Options::new(&TOY, 20)).run(&mut graph, &mut |_, _| {})?;
    Ok(graph.to_string())
}

#[test]
fn a_target_of_ones_own_is_asked_for_its_properties() {
    let text = lowered(
        "input %x: f32[n, 4]
        weight @w = uniform(1) : f32[6, 4]
        %y = linear(%x, @w) : f32[n, 6]
        output y = %y",
    );
    assert!(text.as_ref().is_ok_and(|text| text.contains("f32[n, 8]")), "{text:?}");
    let message = lowered("input %x: f32[n]\n%y = softmax(%x) : f32[n]\noutput y = %y").unwrap_err();
    let lines = "target `toy` cannot run 1 of the graph's operators at opset 20:\n  `softmax` at `y`";
    assert!(message.to_string().starts_with(lines), "{message}");
    assert!(message.to_string().ends_with("softmax is not there"), "{message}");
}
