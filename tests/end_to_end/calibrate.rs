//! Calibration: what observers see against what the interpreter computes, and through the binary the data
//! sets, tables and messages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish::calibrate::{CalibrateOn, CalibrateOptions, Calibration, CalibrationObserver, calibrate};
use planish::source::SourceModel;
use planish_eval::{Tensor, evaluate};
use planish_models::LoadOptions;
use planish_passes::{CalibrationTable, ORT, Options, Pipeline, Range};
use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::support::{
    Done, Draft, FEW_SAMPLES, Stored, golden, numbered, planish, planish_compile, repository, scratch, tensors, text,
    write_tensors, write_tokenizer,
};

pub(crate) struct Silent;

impl CalibrationObserver for Silent {
    fn warning(&self, text: &str) {
        // Tests calibrate on few samples, of which an expert may see none.
        assert!(text.contains(FEW_SAMPLES) || text.contains("no token of the data took"), "{text}");
    }
    fn progress(&self, _: usize, _: usize) {}
}

/// The inputs of a golden that are stored, as a data set.
pub(crate) fn stored_inputs(name: &str, names: &[&str], folder: &Path) -> PathBuf {
    let mut all = tensors(&golden(name).join("io.safetensors"));
    let inputs = names.iter().map(|input| ((*input).to_owned(), all.remove(&format!("in.{input}")).unwrap())).collect();
    let path = folder.join(format!("{name}.safetensors"));
    write_tensors(&path, &inputs);
    path
}

/// Numbers that repeat after a long while.
pub(crate) fn numbers() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1u64), |x| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
        .map(|x| x >> 33)
}

/// Rows of integers for each of some inputs, below its limit.
pub(crate) fn integers(inputs: &[(&str, u64)], folder: &Path) -> PathBuf {
    let shape = vec![32, 12];
    let input = |(at, (input, end)): (usize, &(&str, u64))| {
        let row = numbers().skip(at).map(|x| x % end).take(shape.iter().product());
        let bytes = row.flat_map(u64::to_le_bytes).collect();
        ((*input).to_owned(), Stored { dtype: Dtype::I64, shape: shape.clone(), bytes })
    };
    let path = folder.join("integers.safetensors");
    write_tensors(&path, &inputs.iter().enumerate().map(input).collect());
    path
}

fn calibrated(name: &str, data: &Path, on: CalibrateOn) -> CalibrationTable {
    let model = SourceModel::open(&golden(name)).unwrap();
    let options = CalibrateOptions { on, strict: true, ..CalibrateOptions::default() };
    calibrate(&model, data, &options, &Silent).unwrap().table().clone()
}

#[track_caller]
fn assert_close(what: &str, got: Range, want: Range) {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * want.magnitude().max(1.0);
    assert!(near(got.min, want.min) && near(got.max, want.max), "{what}: {got:?} is not {want:?}");
}

#[track_caller]
pub(crate) fn assert_same(got: &CalibrationTable, want: &CalibrationTable) {
    assert_eq!(got.samples(), want.samples());
    let names = |table: &CalibrationTable| -> Vec<(String, Vec<String>)> {
        table.parts().map(|(part, values)| (part.to_owned(), values.keys().cloned().collect())).collect()
    };
    assert_eq!(names(got), names(want));
    for (part, values) in want.parts() {
        values.iter().for_each(|(value, range)| assert_close(value, got.range(part, value).unwrap(), *range));
    }
}

/// The range of each float of the first part, as the interpreter computes them.
fn interpreted(name: &str, inputs: &[(String, Tensor)]) -> BTreeMap<String, Range> {
    let model = SourceModel::open(&golden(name)).unwrap().load(LoadOptions::default()).unwrap();
    let mut graph = model.parts[0].graph.clone();
    Pipeline::new(Options::new(&ORT, 20)).raise(&mut graph, &mut Vec::new(), &mut |_, _| {}).unwrap();
    let floats: Vec<_> = graph
        .values()
        .filter(|(id, value)| value.ty.tensor().dtype.is_float() && graph.weight(*id).is_none())
        .map(|(id, value)| (id, format!("all/{}", value.name)))
        .collect();
    floats.iter().for_each(|(id, output)| graph.add_output(output, *id));
    let mut inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let batch = inputs[0].1.shape()[0];
    for &input in graph.inputs() {
        let (name, ty) = (graph.value(input).name.as_str(), graph.ty(input));
        if let ([_, heads, _, size], true) = (&ty.shape[..], name.starts_with("past_key_values.")) {
            let [heads, size] = [heads, size].map(|dim| usize::try_from(dim.as_constant().unwrap()).unwrap());
            inputs.push((name, Tensor::zeros(ty.dtype, vec![batch, heads, 0, size]).unwrap()));
        }
    }
    let outputs = evaluate(&graph, &inputs).unwrap();
    let range =
        |tensor: &Tensor| tensor.to_f64().into_iter().fold(Range::EMPTY, |r, v| r.merge(Range { min: v, max: v }));
    let named = outputs.iter().filter_map(|(name, t)| Some((name.strip_prefix("all/")?.to_owned(), range(t))));
    named.filter(|(_, range)| !range.is_empty()).collect()
}

#[test]
fn ranges_are_those_that_the_interpreter_computes() {
    let folder = scratch();
    let models: [(&str, &[&str]); 3] = [
        ("bert", &["input_ids", "attention_mask", "token_type_ids"]),
        ("gpt2", &["input_ids", "attention_mask", "position_ids"]),
        ("vit", &["pixel_values"]),
    ];
    for (name, inputs) in models {
        let data = stored_inputs(name, inputs, folder.path());
        let given: Vec<(String, Tensor)> = numbered(&golden(name).join("io.safetensors"), "in.");
        let given: Vec<_> = given.into_iter().filter(|(input, _)| inputs.contains(&input.as_str())).collect();
        let expected = interpreted(name, &given);
        let table = calibrated(name, &data, CalibrateOn::default());
        assert_eq!(table.samples(), given[0].1.shape()[0]);
        let (scores, own): (Vec<_>, Vec<_>) =
            table.part("model").unwrap().iter().partition(|(value, _)| value.ends_with("/scores"));
        assert_eq!(scores.len(), 2, "an attention a layer");
        assert_eq!(own.iter().map(|(value, _)| *value).collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        own.iter().for_each(|(value, range)| assert_close(value, **range, expected[*value]));
        assert_same(&table, &calibrated(name, &data, CalibrateOn::Interpreter));
        assert_eq!(table, calibrated(name, &data, CalibrateOn::default()), "the same data, the same table");
    }
}

#[test]
fn each_part_of_an_encoder_decoder_is_observed() {
    let folder = scratch();
    for name in ["t5", "bart"] {
        let data = stored_inputs(name, &["input_ids", "attention_mask", "decoder_input_ids"], folder.path());
        let table = calibrated(name, &data, CalibrateOn::default());
        let parts: Vec<&str> = table.parts().map(|(part, _)| part).collect();
        assert_eq!(parts, ["decoder_model", "decoder_with_past_model", "encoder_model"]);
        assert_same(&table, &calibrated(name, &data, CalibrateOn::Interpreter));
        assert!(table.range("decoder_with_past_model", "past_key_values.0.decoder.key").is_some());
    }
}

/// `planish calibrate MODEL --data DATA`, with more arguments; the table goes beside the data.
pub(crate) fn planish_calibrate(model: &Path, data: &Path, more: &[&str]) -> (Done, PathBuf) {
    let table = data.with_extension("table.json");
    let fixed = ["calibrate", text(model), "--data", text(data), "-o", text(&table)];
    (planish(fixed.into_iter().chain(more.iter().copied())), table)
}

/// A golden with a tokenizer whose tokens are words.
pub(crate) fn with_tokenizer(name: &str, tokens: i64, folder: &Path) -> PathBuf {
    let model = Draft::of(name).write(folder.join(name));
    write_tokenizer(&model, tokens);
    model
}

#[test]
fn texts_are_what_their_token_ids_are() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("lines.txt"), "w5 w7 w9\n\n  \nw3\nw11 w100\n").unwrap();
    let lines = ["w5 w7 w9", " ", "w3", "w11 w100"].map(|text| format!("{{\"body\": \"{text}\", \"n\": 1}}\n"));
    fs::write(path("lines.jsonl"), lines.concat()).unwrap();
    for (name, left, tokens) in [("bert", false, 131), ("gpt2", true, 137)] {
        let model = with_tokenizer(name, tokens, folder.path());
        let rows: [&[i64]; 3] = [&[1, 5, 7, 9], &[1, 3], &[1, 11, 100]];
        let padded = |row: &&[i64], ones: bool| -> Vec<i64> {
            let ids = row.iter().map(|id| if ones { 1 } else { *id });
            let padding = vec![0; 4 - row.len()];
            if left { padding.into_iter().chain(ids).collect() } else { ids.chain(padding).collect() }
        };
        let column = |ones: bool| crate::support::Stored {
            dtype: safetensors::tensor::Dtype::I64,
            shape: vec![3, 4],
            bytes: rows.iter().flat_map(|row| padded(row, ones)).flat_map(i64::to_le_bytes).collect(),
        };
        let ids = path("ids.safetensors");
        write_tensors(
            &ids,
            &BTreeMap::from([("input_ids".to_owned(), column(false)), ("attention_mask".to_owned(), column(true))]),
        );
        let table = |data: &Path, more: &[&str]| {
            let (done, table) = planish_calibrate(&model, data, more);
            done.exits(0, &[]);
            Calibration::read(&table).unwrap()
        };
        let expected = table(&ids, &[]);
        let of_lines = table(&path("lines.txt"), &[]);
        assert_eq!(of_lines.table(), expected.table(), "{name}");
        assert_eq!(table(&path("lines.jsonl"), &["--field", "body"]).table(), expected.table());
        assert_eq!((of_lines.samples, of_lines.data.name.as_str()), (3, "lines.txt"));
        assert_eq!(table(&path("lines.txt"), &["--samples", "2"]).samples, 2);
        let alone = table(&path("lines.txt"), &["--batch", "1"]);
        assert_eq!(alone.table().samples(), 3, "batches of one have no padding");
    }
}

#[test]
fn few_samples_are_a_warning() {
    let folder = scratch();
    let model = with_tokenizer("bert", 131, folder.path());
    let warned = |done: &Done, samples: &str| {
        let warning = format!("warning: the calibration has {samples}{FEW_SAMPLES}");
        assert_eq!(done.stderr.matches(&warning).count(), 1, "{samples}: {}", done.stderr);
    };
    let written = |lines: usize| {
        let data = folder.path().join(format!("{lines}.txt"));
        fs::write(&data, "w5 w7 w9\n".repeat(lines)).unwrap();
        data
    };
    let (one, three, enough) = (written(1), written(3), written(16));
    let (done, table) = planish_calibrate(&model, &three, &[]);
    warned(&done.exits(0, &[]), "3 samples");
    let (done, _) = planish_calibrate(&model, &enough, &[]);
    assert!(!done.exits(0, &[]).stderr.contains(FEW_SAMPLES));
    // A shard has a part of the data, and the table of all shards is what counts.
    let (done, _) = planish_calibrate(&model, &enough, &["--shard", "1/2", "--batch", "1"]);
    assert!(!done.exits(0, &[]).stderr.contains(FEW_SAMPLES));

    let out = folder.path().join("out");
    let compile = |more: &[&str]| planish_compile(&model, &out, &[&["--force"], more].concat()).exits(0, &[]);
    for data in [&three, &table] {
        warned(&compile(&["--int8", "--calibrate", text(data)]), "3 samples");
    }
    warned(&compile(&["--int4", "--recipe", "weight-method=gptq", "--calibrate", text(&one)]), "1 sample");
    warned(&compile(&["--int8", "--recipe", "weight-method=gptq", "--calibrate", text(&three)]), "3 samples");
}

#[test]
fn an_encoder_decoder_reads_each_text_on_both_sides() {
    let folder = scratch();
    let model = with_tokenizer("t5", 127, folder.path());
    let data = folder.path().join("lines.txt");
    fs::write(&data, "w5 w7 w9\nw3\n").unwrap();
    let (done, table) = planish_calibrate(&model, &data, &[]);
    done.exits(0, &[]);
    assert_eq!(Calibration::read(&table).unwrap().table().parts().count(), 3);
}

#[test]
fn minilm_is_calibrated_with_sentences() {
    let folder = scratch();
    let minilm = repository().join(".deps/minilm");
    let data = folder.path().join("sentences.txt");
    fs::copy(repository().join("fixtures/data/sentences.txt"), &data).unwrap();
    let (done, table) = planish_calibrate(&minilm, &data, &["--samples", "20"]);
    let summary = done.succeeds().stdout;
    assert!(summary.contains("20 samples of sentences.txt") && summary.contains("beyond float16"), "{summary}");
    let first = fs::read(&table).unwrap();
    let (done, table) = planish_calibrate(&minilm, &data, &["--samples", "20", "--json"]);
    let printed: Value = serde_json::from_str(&done.succeeds().stdout).unwrap();
    assert_eq!(fs::read(&table).unwrap(), first, "the same data, the same bytes");
    let written: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(printed["calibration"], written);
    let sentence = &written["parts"]["model"];
    assert!(sentence.as_object().unwrap().len() > 80, "{sentence}");

    let calibration = Calibration::read(&table).unwrap();
    calibration.check(&SourceModel::open(&minilm).unwrap(), LoadOptions::default()).unwrap();
    let other = |model: SourceModel, task| format!("{:#}", calibration.check(&model, task).unwrap_err());
    let message = other(SourceModel::open(&golden("bert")).unwrap(), LoadOptions::default());
    assert!(message.contains("the table was made for minilm, whose config.json differs from bert"), "{message}");
    let mut renamed = written.clone();
    let parts = renamed["parts"]["model"].as_object_mut().unwrap();
    parts.insert("nothing".to_owned(), serde_json::json!({"min": 0.0, "max": 1.0}));
    fs::write(&table, renamed.to_string()).unwrap();
    let renamed = Calibration::read(&table).unwrap();
    let message =
        format!("{:#}", renamed.check(&SourceModel::open(&minilm).unwrap(), LoadOptions::default()).unwrap_err());
    assert!(message.contains("the table has `nothing` of model, which the model does not have"), "{message}");
}

#[test]
fn a_value_that_is_not_a_number_is_named() {
    let folder = scratch();
    let data = stored_inputs("vit", &["pixel_values"], folder.path());
    let mut pixels = tensors(&data);
    let bytes = &mut pixels.get_mut("pixel_values").unwrap().bytes;
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    write_tensors(&data, &pixels);
    let (done, _) = planish_calibrate(&golden("vit"), &data, &[]);
    done.exits(1, &["samples 1 to 2", "the input `pixel_values` of model", "contains NaN"]);
    let out = folder.path().join("out");
    let by_gptq = ["--int4", "--recipe", "weight-method=gptq", "--calibrate", text(&data)];
    planish_compile(&golden("vit"), &out, &by_gptq).exits(1, &["has an element that is NaN on this data"]);
    assert!(!out.exists());

    let mut broken = Draft::of("vit");
    let (name, weight) =
        broken.tensors.iter_mut().find(|(name, _)| name.ends_with("0.layernorm_after.weight")).unwrap();
    weight.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let layer = name.strip_prefix("vit.").and_then(|name| name.strip_suffix(".weight")).unwrap().to_owned();
    let model = broken.write(folder.path().join("model"));
    let data = stored_inputs("vit", &["pixel_values"], folder.path());
    let (done, table) = planish_calibrate(&model, &data, &[]);
    done.exits(1, &[&layer, "is NaN as the model computes it"]);
    assert!(!table.exists());
}

#[test]
fn what_cannot_be_run_says_why() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let fails = |model: &Path, data: &Path, more: &[&str], parts: &[&str]| {
        let (done, table) = planish_calibrate(model, data, more);
        done.exits(1, parts);
        assert!(!table.exists());
    };
    let lines = path("lines.txt");
    fs::write(&lines, "w5 w7\n").unwrap();
    let bert = with_tokenizer("bert", 131, folder.path());
    fails(&golden("bert"), &lines, &[], &["has no tokenizer.json", ".npz or .safetensors"]);
    fails(&golden("vit"), &lines, &[], &["vit has no preprocessor_config.json", "or give `pixel_values`"]);
    fails(&bert, &path("nowhere.txt"), &[], &["cannot read", "nowhere.txt"]);
    fails(&bert, &lines, &["--field", "text"], &["--field is for .jsonl, .csv and .parquet files"]);
    fails(&bert, &lines, &["--max-length", "33"], &["--max-length 33 is more than the 32 tokens of the model"]);
    fails(&bert, &lines, &["--max-length", "1"], &["1 tokens leave no room for a text beside the 1 special"]);
    write_tokenizer(&bert, 140);
    fs::write(&lines, "w5 w139\n").unwrap();
    fails(
        &bert,
        &lines,
        &[],
        &["samples 1 to 1", "the tokenizer does not fit the model", "the token id 139 in sample 1", "has 131 tokens"],
    );
    let ids = stored_inputs("bert", &["attention_mask"], folder.path());
    fails(&bert, &ids, &[], &["the input `input_ids` is missing"]);
    fails(&golden("gpt2"), &ids, &["--runtime", "reference"], &["the inputs `input_ids`, `position_ids` are missing"]);
    let done = planish_calibrate(&bert, &lines, &["--runtime-option", "ort-lib=/nowhere"]).0;
    done.exits(4, &["the runtime `ort` is unavailable"]);
    let t5 = stored_inputs("t5", &["input_ids", "attention_mask"], folder.path());
    fails(&golden("t5"), &t5, &[], &["the input `decoder_input_ids` is missing"]);
}

#[test]
fn compile_takes_ranges_for_half_precision() {
    let folder = scratch();
    let out = folder.path().join("out");
    let bert = with_tokenizer("bert", 131, folder.path());
    let data = folder.path().join("lines.txt");
    fs::write(&data, "w5 w7 w9\nw3\n").unwrap();
    let (done, table) = planish_calibrate(&bert, &data, &[]);
    done.exits(0, &[]);
    let compile = |ranges: &Path, more: &[&str]| {
        let fixed = ["compile", text(&bert), "-o", text(&out), "--calibrate", text(ranges)];
        planish(fixed.into_iter().chain(more.iter().copied()))
    };
    compile(&table, &[]).exits(
        2,
        &["--calibrate", "gives data to --int8, --fp8, --recipe weight-method=gptq and awq, --fp16 and --bf16"],
    );
    compile(&table, &["--fp16"]).exits(2, &["target ort, which only stores weights in half precision"]);
    assert!(!out.exists());

    let half = ["--target", "onnx", "--fp16", "--recipe", "max-abs=0.5"];
    let model = |ranges: &Path| {
        compile(ranges, &half).exits(0, &[]);
        fs::read(out.join("model.onnx")).unwrap()
    };
    let of_table = model(&table);
    assert_eq!(of_table, model(&data), "data shows what a table of it holds");
    planish(["compile", text(&bert), "-o", text(&out), "--target", "onnx", "--fp16"]).exits(0, &[]);
    assert_ne!(of_table, fs::read(out.join("model.onnx")).unwrap(), "what exceeds the limit stays in float32");

    let vit = stored_inputs("vit", &["pixel_values"], folder.path());
    let (done, other) = planish_calibrate(&golden("vit"), &vit, &[]);
    done.exits(0, &[]);
    compile(&other, &half).exits(1, &["does not fit", "the table was made for vit"]);
    fs::write(&other, "{}").unwrap();
    compile(&other, &half).exits(1, &["is not a calibration table of this version"]);
}

/// What computes in float16 is widened before ONNX Runtime runs it.
#[test]
fn half_graphs_are_calibrated() {
    let folder = scratch();
    let data = stored_inputs("bert", &["input_ids", "attention_mask", "token_type_ids"], folder.path());
    let model = repository().join("fixtures/graphs/optimum-bert-half/model.onnx");
    let (done, _) = planish_calibrate(&model, &data, &[]);
    done.exits(0, &[]);
}
