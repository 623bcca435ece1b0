//! Models of several parts: verified, run and measured part by part, and run as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::support::{Done, Stored, artifact, golden, planish, planish_compile, scratch, tensors, text, write_tensors};

type Tensors = BTreeMap<String, Stored>;

const PARTS: [&str; 3] = ["encoder_model", "decoder_model", "decoder_with_past_model"];

/// The inputs of the whole model, with the first `tokens` of the decoder.
fn inputs(name: &str, tokens: usize) -> Tensors {
    let mut all = tensors(&golden(name).join("io.safetensors"));
    let names = ["input_ids", "attention_mask", "decoder_input_ids"];
    let mut inputs: Tensors =
        names.into_iter().map(|name| (name.to_owned(), all.remove(&format!("in.{name}")).unwrap())).collect();
    let decoder = inputs.get_mut("decoder_input_ids").unwrap();
    *decoder = columns(decoder, 0, tokens);
    inputs
}

/// Some columns of a matrix of identifiers.
fn columns(ids: &Stored, from: usize, to: usize) -> Stored {
    let &[rows, width] = ids.shape.as_slice() else { panic!("a matrix") };
    let bytes =
        (0..rows).flat_map(|row| &ids.bytes[(row * width + from) * 8..(row * width + to) * 8]).copied().collect();
    Stored { dtype: Dtype::I64, shape: vec![rows, to - from], bytes }
}

fn numbers(stored: &Stored) -> Vec<f32> {
    stored.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[track_caller]
fn assert_close(got: &[f32], want: &[f32]) {
    let largest = want.iter().fold(1f32, |largest, v| largest.max(v.abs()));
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() <= 1e-5 * largest), "{got:?} is not {want:?}");
}

/// `planish run` on inputs from a file beside the artifact, which is in a folder of its own.
fn run(out: &Path, inputs: &Tensors, more: &[&str]) -> (Done, PathBuf) {
    let [from, to] = ["inputs.safetensors", "outputs.safetensors"].map(|name| out.parent().unwrap().join(name));
    write_tensors(&from, inputs);
    (planish([&["run", text(out), "--inputs", text(&from), "--outputs", text(&to)], more].concat()), to)
}

fn run_tensors(out: &Path, inputs: &Tensors, more: &[&str]) -> Tensors {
    let (done, outputs) = run(out, inputs, more);
    done.succeeds();
    tensors(&outputs)
}

#[test]
fn the_whole_model_gives_what_transformers_gives() {
    for name in ["t5", "bart"] {
        let (_folder, out) = artifact(name);
        let outputs = run_tensors(&out, &inputs(name, 5), &[]);
        let want = tensors(&golden(name).join("io.safetensors"));
        for output in ["logits", "encoder_last_hidden_state"] {
            let want = &want[&format!("out.{output}")];
            assert_eq!(outputs[output].shape, want.shape);
            assert_close(&numbers(&outputs[output]), &numbers(want));
        }
        assert_eq!(outputs["present.1.decoder.value"].shape[2], 5);
        assert_eq!(outputs["present.0.encoder.key"].shape[2], 9);
        assert_eq!(outputs.len(), 2 + 2 * 4, "{:?}", outputs.keys());
    }
}

#[test]
fn a_part_alone_continues_from_what_the_others_gave() {
    for name in ["t5", "bart"] {
        let (_folder, out) = artifact(name);
        let (all, before) = (inputs(name, 5), run_tensors(&out, &inputs(name, 4), &[]));
        let mut next: Tensors = before
            .into_iter()
            .filter_map(|(output, tensor)| {
                Some((format!("past_key_values.{}", output.strip_prefix("present.")?), tensor))
            })
            .collect();
        next.insert("input_ids".to_owned(), columns(&all["decoder_input_ids"], 4, 5));
        next.insert("encoder_attention_mask".to_owned(), columns(&all["attention_mask"], 0, 9));
        let outputs = run_tensors(&out, &next, &["--part", "decoder_with_past_model"]);
        let want = &tensors(&golden(name).join("io.safetensors"))["out.logits"];
        let (rows, scores) = (want.shape[0], want.shape[2]);
        let last: Vec<f32> =
            (0..rows).flat_map(|row| numbers(want)[(row * 5 + 4) * scores..][..scores].to_vec()).collect();
        assert_eq!(outputs["logits"].shape, [rows, 1, scores]);
        assert_close(&numbers(&outputs["logits"]), &last);

        let mut encoder = all;
        encoder.remove("decoder_input_ids");
        let outputs = run_tensors(&out, &encoder, &["--part", "encoder_model"]);
        assert!(outputs.keys().eq(["last_hidden_state"]), "an encoder alone names what it gives as its file does");
    }
}

#[test]
fn inputs_of_several_parts_are_checked_by_their_names() {
    let (_folder, out) = artifact("bart");
    let refused = |inputs: &Tensors, more: &[&str], parts: &[&str]| drop(run(&out, inputs, more).0.exits(1, parts));
    let mut missing = inputs("bart", 5);
    let decoder = missing.remove("decoder_input_ids").unwrap();
    let advice = "decoder_input_ids: i64[batch_size, decoder_sequence_length]; --part runs";
    refused(&missing, &[], &["`decoder_input_ids` is missing", advice]);
    missing.insert("labels".to_owned(), decoder);
    refused(&missing, &[], &["no input `labels`", advice]);
    let names = PARTS.join(", ");
    refused(&inputs("bart", 5), &["--part", "decoder"], &["no part `decoder`", &names]);
    refused(&inputs("bart", 5), &["--part", "encoder_model"], &["no input `decoder_input_ids`"]);

    let ids = |shape: [usize; 2], id: i64| Stored {
        dtype: Dtype::I64,
        shape: shape.to_vec(),
        bytes: (0..shape[0] * shape[1]).flat_map(|_| id.to_le_bytes()).collect(),
    };
    let with = |decoder: Stored| {
        let mut inputs = inputs("bart", 5);
        inputs.insert("decoder_input_ids".to_owned(), decoder);
        inputs
    };
    refused(&with(ids([2, 5], 127)), &[], &["`decoder_input_ids` is 127 at [0, 0]", "0 to 126"]);
    refused(&with(ids([3, 5], 1)), &[], &["`batch_size` is", "in `decoder_input_ids`"]);
    refused(&with(ids([2, 41], 1)), &[], &["`decoder_input_ids` has the shape [2, 41]", "at most 40 tokens"]);
}

#[test]
fn a_model_of_one_part_has_none_to_name() {
    let (_folder, out) = artifact("bert");
    let (done, _) = run(&out, &Tensors::new(), &["--part", "encoder_model"]);
    done.exits(1, &["no part `encoder_model`: it has one model only; leave out --part"]);
}

#[test]
fn a_cache_counts_as_tokens_of_the_row() {
    let (_folder, out) = artifact("bart");
    let before = run_tensors(
        &out,
        &{
            let mut inputs = inputs("bart", 5);
            let long = Stored { dtype: Dtype::I64, shape: vec![2, 40], bytes: vec![0; 2 * 40 * 8] };
            inputs.insert("decoder_input_ids".to_owned(), long);
            inputs
        },
        &[],
    );
    let mut next: Tensors = before
        .into_iter()
        .filter_map(|(output, tensor)| Some((format!("past_key_values.{}", output.strip_prefix("present.")?), tensor)))
        .collect();
    next.insert("input_ids".to_owned(), columns(&inputs("bart", 5)["decoder_input_ids"], 4, 5));
    next.insert("encoder_attention_mask".to_owned(), inputs("bart", 5).remove("attention_mask").unwrap());
    let (done, _) = run(&out, &next, &["--part", "decoder_with_past_model"]);
    done.exits(1, &["`past_decoder_sequence_length` and `decoder_sequence_length` are 41", "at most 40 tokens"]);
}

#[test]
fn models_of_several_parts_are_verified_part_by_part() {
    let folder = scratch();
    let out = folder.path().join("out");
    for name in ["t5", "bart"] {
        planish_compile(&golden(name), &out, &["--verify"]).succeeds();
        let reference = golden(name);
        let verify = ["verify", text(&out), "--reference", text(&reference), "--seed", "3", "--json"];
        let report: Value = serde_json::from_str(&planish(verify).succeeds().stdout).unwrap();
        let cases = report["cases"].as_array().unwrap();
        for part in ["encoder_model", "decoder_model", "decoder_with_past_model"] {
            let of_part = |case: &&Value| case["label"].as_str().unwrap().starts_with(&format!("{part}, "));
            assert!(cases.iter().filter(of_part).count() >= 3, "{report}");
        }
    }
}

/// Each part is compared with its own reference: an error of the last one is not hidden by the others.
#[test]
fn a_changed_weight_of_the_last_part_exits_3() {
    let (_folder, out) = artifact("bart");
    let path = out.join("decoder_with_past_model.onnx");
    let mut bytes = fs::read(&path).unwrap();
    let weight = &tensors(&golden("bart").join("model.safetensors"))["model.decoder.layernorm_embedding.weight"];
    let at = bytes.windows(64).position(|window| *window == weight.bytes[..64]).expect("it is there as stored");
    bytes[at..at + 4].copy_from_slice(&5f32.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let reference = golden("bart");
    let done = planish(["verify", text(&out), "--reference", text(&reference)]);
    let done = done.exits(3, &["decoder_with_past_model, 1 x 1: logits: max relative error"]);
    assert!(!done.stderr.contains("  decoder_model") && !done.stderr.contains("encoder_model"), "{}", done.stderr);
}

#[test]
fn a_part_that_is_missing_is_named() {
    let (_folder, out) = artifact("t5");
    fs::remove_file(out.join("decoder_model.onnx")).unwrap();
    let reference = golden("t5");
    let parts = ["decoder_model.onnx", "compile the model again"];
    planish(["verify", text(&out), "--reference", text(&reference)]).exits(1, &parts);
    planish(["bench", text(&out), "--reference", text(&reference)]).exits(1, &parts);
    run(&out, &inputs("t5", 5), &[]).0.exits(1, &parts);
}
