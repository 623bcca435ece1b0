//! A target that is defined outside the crate: what passes ask about it decides what they do.

use planish_ir::text::{no_files, parse};
use planish_passes::{Kernels, Note, ONNX, Options, PassError, Pipeline, Target};
use planish_testing::evaluation::{inputs, outputs};

/// It has no kernel for softmax, and its linear layers are fastest at multiples of 4.
static TOY: Target = Target {
    name: "toy",
    summary: "a target of a test",
    kernels: Kernels {
        missing: |signature, opset| match signature.row.mnemonic {
            "softmax" => Some("softmax is not there".to_owned()),
            _ => (ONNX.kernels.missing)(signature, opset),
        },
        domains: &["toy"],
        ..Target::BASE.kernels
    },
    most_scores: Some(3000),
    substitutes_kernels: false,
    alignment: |_| 4,
    ..Target::BASE
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

/// Attention whose sizes are fixed and whose scores take more than the target has memory for.
#[test]
fn attention_in_chunks_gives_the_same() {
    let ordinary = "attention(%q, %q, %q, bias: %b) {heads = 2, scale = 0.5} : f32[2, 20, 8]";
    let statements = [
        format!("input %q: f32[2, 20, 8]\ninput %b: f32[2, 20, 20]\n%y = {ordinary}\noutput y = %y"),
        "input %q: f32[1, 13, 8]
         input %k: f32[1, 13, 4]
         input %b: f32[1, 13, 30]
         input %pk: f32[1, 1, 17, 4]
         input %pv: f32[1, 1, 17, 4]
         %y, %keys, %values = attention(%q, %k, %k, bias: %b, past_key: %pk, past_value: %pv) {heads = 2, kv_heads = 1, scale = 0.5, causal = true, window = 9, present = true} : f32[1, 13, 8], f32[1, 1, 30, 4], f32[1, 1, 30, 4]
         output y = %y
         output keys = %keys
         output values = %values"
            .to_owned(),
    ];
    for statements in statements {
        let graph = parse(&format!("graph \"g\" {{\n{statements}\n}}"), &no_files).unwrap();
        let mut chunked = graph.clone();
        let options = Options::new(&TOY, 20);
        let outcome = (planish_passes::legalize::CHUNK_ATTENTION.run)(&mut chunked, &options).unwrap();
        assert_eq!(outcome.changed, 1);
        assert!(matches!(&outcome.notes[..], [Note::Attention { choice, .. }] if choice.starts_with("chunks of ")));
        let inputs = inputs(&graph, 3);
        let (whole, parts) = (outputs(&graph, &inputs).unwrap(), outputs(&chunked, &inputs).unwrap());
        for ((name, whole), (_, part)) in whole.iter().zip(&parts) {
            let near = whole.to_f64().iter().zip(part.to_f64()).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(near && whole.shape() == part.shape(), "{name} of\n{chunked}");
        }
    }
}
