//! Calibration and evaluation of encoder-decoders on recordings and pictures: the decoder reads the text that it writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish::calibrate::Calibration;
use planish::source::SourceModel;
use planish_eval::{Tensor, evaluate};
use planish_models::LoadOptions;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::calibrate::{assert_same, planish_calibrate};
use crate::support::{Draft, Stored, planish, planish_compile, repository, scratch, text, write_tensors};
use crate::transcribe::write_noise;

/// Recordings of several lengths, in a folder.
fn recordings(folder: &Path, samples: &[usize]) -> PathBuf {
    let data = folder.join("recordings");
    fs::create_dir(&data).unwrap();
    for (at, count) in samples.iter().enumerate() {
        write_noise(&data.join(format!("{at}.wav")), *count);
    }
    data
}

/// The files of a model of samples, with the settings of its feature extractor.
fn moonshine(folder: &Path) -> PathBuf {
    let (from, to) = (repository().join("fixtures/hearing/moonshine"), folder.join("moonshine"));
    fs::create_dir(&to).unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let settings = json!({
        "feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": false, "feature_size": 1,
        "padding_side": "right", "padding_value": 0.0, "return_attention_mask": true, "sampling_rate": 16000,
    });
    fs::write(to.join("preprocessor_config.json"), settings.to_string()).unwrap();
    to
}

/// The golden of TrOCR, with the settings of its image processor.
fn captioner(folder: &Path) -> PathBuf {
    let model = Draft::of("trocr").write(folder.join("trocr"));
    let settings = r#"{"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}"#;
    fs::write(model.join("preprocessor_config.json"), settings).unwrap();
    model
}

/// So many pictures, in a folder.
fn pictures(folder: &Path, count: usize) -> PathBuf {
    let (data, names) = (folder.join("pictures"), ["large.png", "tall.png"]);
    fs::create_dir(&data).unwrap();
    for at in 0..count {
        let picture = repository().join("fixtures/pictures/files").join(names[at % names.len()]);
        fs::copy(picture, data.join(format!("{at}.png"))).unwrap();
    }
    data
}

/// The ids that the decoder of a model continues one with, each the likeliest after those before, as the interpreter computes it.
fn greedy(model: &Path, inputs: &[(&str, Tensor)], start: i64, count: usize) -> Vec<i64> {
    let model = SourceModel::open(model).unwrap().load(LoadOptions::default()).unwrap();
    let [encoder, decoder] = [0, 1].map(|at| &model.parts[at].graph);
    let states =
        evaluate(encoder, inputs).unwrap().into_iter().find(|(name, _)| name == "last_hidden_state").unwrap().1;
    let mut ids = vec![start];
    while ids.len() < count {
        let text = Tensor::new(vec![1, ids.len()], ids.clone()).unwrap();
        let mut given = vec![("input_ids", text), ("encoder_hidden_states", states.clone())];
        let takes = |name: &str| decoder.inputs().iter().any(|input| decoder.value(*input).name == name);
        if takes("encoder_attention_mask") {
            given.push(("encoder_attention_mask", inputs[1].1.clone()));
        }
        let logits = evaluate(decoder, &given).unwrap().into_iter().find(|(name, _)| name == "logits").unwrap().1;
        let last = logits.as_f32().unwrap().chunks(logits.shape()[2]).last().unwrap();
        let best = last.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        ids.push(i64::try_from(best).unwrap());
    }
    ids
}

#[test]
fn the_text_of_a_recording_is_what_the_decoder_writes() {
    let folder = scratch();
    let (model, data) = (moonshine(folder.path()), recordings(folder.path(), &[9000]));
    let bytes = fs::read(data.join("0.wav")).unwrap();
    let samples: Vec<f32> =
        bytes[44..].as_chunks().0.iter().map(|two| f32::from(i16::from_le_bytes(*two)) / 32768.0).collect();
    let count = samples.len();
    let inputs = [
        ("input_values", Tensor::new(vec![1, count], samples.clone()).unwrap()),
        ("attention_mask", Tensor::new(vec![1, count], vec![1_i64; count]).unwrap()),
    ];
    // The text ends by itself, and the id of padding is after its end.
    let mut ids = greedy(&model, &inputs, 1, 24);
    let end = ids.iter().position(|id| *id == 2).unwrap();
    assert!(end > 4, "a text of several tokens: {ids:?}");
    ids.truncate(end);
    ids.push(3);
    let width = ids.len();
    let stored = |dtype, width, bytes| Stored { dtype, shape: vec![1, width], bytes };
    let tensors = BTreeMap::from([
        (
            "input_values".to_owned(),
            stored(Dtype::F32, count, samples.into_iter().flat_map(f32::to_le_bytes).collect()),
        ),
        (
            "attention_mask".to_owned(),
            stored(Dtype::I64, count, vec![1_i64; count].into_iter().flat_map(i64::to_le_bytes).collect()),
        ),
        (
            "decoder_input_ids".to_owned(),
            stored(Dtype::I64, width, ids.into_iter().flat_map(i64::to_le_bytes).collect()),
        ),
    ]);
    let given = folder.path().join("given.safetensors");
    write_tensors(&given, &tensors);
    let table = |data: &Path| {
        let (done, table) = planish_calibrate(&model, data, &[]);
        done.exits(0, &[]);
        Calibration::read(&table).unwrap().table().clone()
    };
    assert_same(&table(&data), &table(&given));
}

#[test]
fn tables_of_written_texts_are_the_same_for_any_shards_and_threads() {
    let folder = scratch();
    let model = repository().join("fixtures/speech");
    let data = recordings(folder.path(), &[16000, 9000, 32000, 4000, 12000]);
    let table = |model: &Path, data: &Path, more: &[&str]| {
        let (done, table) = planish_calibrate(model, data, &[&["--batch", "2"], more].concat());
        (done.exits(0, &[]).stdout, fs::read(table).unwrap())
    };
    let (summary, whole) = table(&model, &data, &[]);
    // Each text has 24 tokens, of which each decoder takes half.
    let rest = "decoder_with_past_model: 13 inputs of linear layers with 432 columns, 60 tokens";
    assert!(summary.contains(rest), "{summary}");
    let parts = ["1/2", "2/2"].map(|shard| {
        let part = folder.path().join(shard.replace('/', "-")).with_extension("json");
        fs::write(&part, table(&model, &data, &["--shard", shard]).1).unwrap();
        part
    });
    let merged = folder.path().join("merged.json");
    planish(["calibrate", "--merge", text(&parts[0]), text(&parts[1]), "-o", text(&merged)]).exits(0, &[]);
    assert!(fs::read(&merged).unwrap() == whole, "the shards make another table");

    let (model, data) = (captioner(folder.path()), pictures(folder.path(), 4));
    let one = table(&model, &data, &["--threads", "1"]).1;
    assert!(table(&model, &data, &["--threads", "3"]).1 == one, "other threads, another table");
}

/// The report of an evaluation, whose decoder wrote texts of 24 tokens at most.
fn evaluated(out: &Path, data: &Path) -> Value {
    let done = planish(["evaluate", text(out), "--data", text(data), "--json"]).exits(0, &[]);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn recordings_quantize_and_evaluate_a_whisper() {
    let folder = scratch();
    let data = recordings(folder.path(), &[16000, 9000, 32000, 4000, 12000, 20000]);
    let (model, out) = (repository().join("fixtures/speech"), folder.path().join("out"));
    planish_compile(&model, &out, &[]).exits(0, &[]);
    let exact = evaluated(&out, &data);
    assert_eq!(
        (&exact["predictions"]["top1_agreement"], &exact["predictions"]["count"]),
        (&json!(100.0), &json!(144)),
        "{exact}"
    );
    planish_compile(&model, &out, &["--force", "--int8", "--calibrate", text(&data)]).exits(0, &["6 samples"]);
    let report = evaluated(&out, &data);
    let cosine = report["predictions"]["mean_cosine"].as_f64().unwrap();
    assert!(cosine > 0.995 && cosine < 1.0, "{report}");
}

#[test]
fn pictures_quantize_a_captioner_that_is_evaluated_on_what_was_held_out() {
    let folder = scratch();
    let (model, data, out) = (captioner(folder.path()), pictures(folder.path(), 6), folder.path().join("out"));
    let more = ["--int8", "--calibrate", text(&data), "--verify"];
    let done = planish_compile(&model, &out, &more).exits(0, &[]);
    for part in ["decoder_with_past_model: 13 of 13 inputs of linear layers quantized", "evaluated on 1 sample"] {
        assert!(done.stdout.contains(part), "{}", done.stdout);
    }
}

#[test]
fn a_text_needs_its_first_token() {
    let folder = scratch();
    let mut draft = Draft::of("trocr");
    draft.config["decoder"].as_object_mut().unwrap().remove("decoder_start_token_id");
    draft.config.as_object_mut().unwrap().remove("decoder_start_token_id");
    let model = draft.write(folder.path().join("trocr"));
    let other = scratch();
    let from = captioner(other.path());
    fs::copy(from.join("preprocessor_config.json"), model.join("preprocessor_config.json")).unwrap();
    let (done, table) = planish_calibrate(&model, &pictures(folder.path(), 1), &[]);
    done.exits(1, &["has no `decoder_start_token_id`, which a text begins with"]);
    assert!(!table.exists());
}
