//! Weights and activations that overflow half precision.

use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;

use crate::precision::manifest;
use crate::support::{Draft, Stored, golden, planish_compile, scratch, tensors, text, write_tensors};

/// The elements of a float32 tensor, scaled.
fn scale(stored: &mut Stored, by: f32) {
    assert_eq!(stored.dtype, Dtype::F32);
    for bytes in stored.bytes.as_chunks_mut().0 {
        *bytes = (f32::from_le_bytes(*bytes) * by).to_le_bytes();
    }
}

/// A weight that overflows float16 stays, and is named.
#[test]
fn weights_that_overflow_stay_in_float32() {
    let folder = scratch();
    let mut draft = Draft::of("bert");
    // Layer normalization of the sum takes the factor out again.
    let embeddings = draft.tensors.iter_mut().filter(|(name, _)| name.ends_with("_embeddings.weight"));
    embeddings.for_each(|(_, stored)| scale(stored, 4e6));
    let model = draft.write(folder.path().join("model"));
    let out = folder.path().join("out");
    let done = planish_compile(&model, &out, &["--target", "onnx", "--fp16", "--verify"]).exits(0, &[]);
    for name in ["word_embeddings", "position_embeddings", "token_type_embeddings"] {
        let line = done.stdout.lines().find(|line| line.contains("float32:") && line.contains(name));
        assert!(line.is_some_and(|line| line.contains("overflow")), "{name}: {}", done.stdout);
    }
}

/// Weights of a golden changed by factors that cancel, so that activations between them overflow float16; the
/// inputs of the golden beside it.
fn with_outliers(name: &str, factors: &[(&str, f32)], folder: &Path) -> [PathBuf; 2] {
    let mut draft = Draft::of(name);
    for (part, factor) in factors {
        let named = draft.tensors.iter_mut().filter(|(name, _)| name.contains(part));
        named.for_each(|(_, stored)| scale(stored, *factor));
    }
    let inputs = tensors(&golden(name).join("io.safetensors")).into_iter();
    let taken = ["input_ids", "attention_mask", "token_type_ids", "decoder_input_ids"];
    let inputs = inputs.filter_map(|(name, t)| Some((name.strip_prefix("in.")?.to_owned(), t)));
    let data = folder.join("data.safetensors");
    write_tensors(&data, &inputs.filter(|(name, _)| taken.contains(&name.as_str())).collect());
    [draft.write(folder.join("model")), data]
}

/// What overflows in half precision fails the gate as it is, and holds where data says what to keep.
fn outliers_hold(name: &str, factors: &[(&str, f32)], kept: &[&str]) {
    let folder = scratch();
    let [model, data] = with_outliers(name, factors, folder.path());
    let compile = |more: &[&str]| {
        let arguments = [&["--target", "onnx", "--fp16", "--verify"], more].concat();
        planish_compile(&model, &folder.path().join("out"), &arguments)
    };
    compile(&[]).exits(3, &["not finite"]);
    let done = compile(&["--calibrate", text(&data)]).exits(0, &[]);
    assert_eq!(manifest(&folder.path().join("out"))["calibration"]["data"]["name"], "data.safetensors");
    for name in kept {
        let line = done.stdout.lines().find(|line| line.contains("float32: ") && line.contains(name));
        assert!(line.is_some_and(|line| line.contains(" reaches ")), "{name}: {}", done.stdout);
    }
}

#[test]
fn values_that_overflow_float16_are_kept_by_calibration() {
    let factors = [("self.value", 1e5), ("attention.output.dense.weight", 1e-5)];
    outliers_hold("bert", &factors, &["layer.0.attention.self.value", "layer.1.attention.self.value"]);
}

/// What ONNX Runtime hides, which computes float16 in float32 where nothing is moved in between.
#[test]
fn values_that_overflow_between_fused_operators_are_seen() {
    let factors = [("intermediate.dense", 8e4), ("0.output.dense.weight", 1e-2), ("1.output.dense.weight", 1e-2)];
    outliers_hold("bert", &factors, &["layer.0.intermediate.dense", "layer.1.intermediate.dense"]);
}

/// As the feed-forward layers of large T5s do.
#[test]
fn wide_layers_of_t5_are_kept_by_calibration() {
    let factors = [("DenseReluDense.wi.", 5e4), ("DenseReluDense.wo.", 2e-5)];
    outliers_hold(
        "t5",
        &factors,
        &["encoder.block.0.layer.1.DenseReluDense.wi", "decoder.block.1.layer.2.DenseReluDense.wi"],
    );
}
