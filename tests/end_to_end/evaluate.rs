//! Evaluation: figures against what the interpreter computes, text by text, and through the binary gates and messages.

use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::evaluation::{Evaluation, Figure};
use planish::evaluate::{EvaluateOptions, EvaluationObserver, Reference, evaluate_compiled};
use planish::source::SourceModel;
use planish_eval::{Tensor, evaluate};
use planish_ir::{DType, Graph};
use planish_models::LoadOptions;
use planish_passes::ONNX;

use crate::support::{
    Done, Draft, artifact, compiled, golden, numbered, options, planish, planish_compile, scratch, tensors, text,
    write_tensors, write_tokenizer,
};

pub(crate) const LINES: &str = "w5 w7 w9 w20 w4\nw3 w8\nw11 w100 w50 w60\nw3 w90 w12 w13 w14 w15 w16\n";

/// The ids of [`LINES`], each after the token that texts begin with.
pub(crate) const IDS: [&[i64]; 4] =
    [&[1, 5, 7, 9, 20, 4], &[1, 3, 8], &[1, 11, 100, 50, 60], &[1, 3, 90, 12, 13, 14, 15, 16]];

/// A golden with a tokenizer whose tokens are words, compiled, with data beside it.
fn prepared(name: &str, tokens: i64, more: &[&str], folder: &Path) -> (PathBuf, PathBuf) {
    let model = Draft::of(name).write(folder.join(name));
    write_tokenizer(&model, tokens);
    let out = folder.join("out");
    planish_compile(&model, &out, more).exits(0, &[]);
    let data = folder.join("lines.txt");
    fs::write(&data, LINES).unwrap();
    (out, data)
}

pub(crate) fn run(artifact: &Path, data: &Path, more: &[&str]) -> Done {
    let fixed = ["evaluate", text(artifact), "--data", text(data)];
    planish(fixed.into_iter().chain(more.iter().copied()))
}

pub(crate) fn evaluated(artifact: &Path, data: &Path, more: &[&str]) -> Evaluation {
    let done = run(artifact, data, &[more, &["--json"]].concat()).exits(0, &[]);
    serde_json::from_str(&done.stdout).unwrap()
}

/// What a graph of one part gives for a text of so many ids, without padding or cache.
pub(crate) fn interpreted(graph: &Graph, ids: &[i64], output: &str) -> Vec<Vec<f64>> {
    interpreted_pair(graph, ids, ids.len(), output)
}

/// The same for a pair of texts, the first one of so many ids.
pub(crate) fn interpreted_pair(graph: &Graph, ids: &[i64], first: usize, output: &str) -> Vec<Vec<f64>> {
    let count = ids.len();
    let row = |numbers: Vec<i64>| Tensor::new(vec![1, count], numbers).unwrap();
    let input = |value: &planish_ir::ValueId| {
        let (name, ty) = (graph.value(*value).name.as_str(), graph.ty(*value));
        let tensor = match name {
            "input_ids" => row(ids.to_vec()),
            "attention_mask" => row(vec![1; count]),
            "token_type_ids" => row((0..count).map(|at| i64::from(at >= first)).collect()),
            "position_ids" => row((0..count).map(|at| i64::try_from(at).unwrap()).collect()),
            _ => {
                let size = |axis: usize| usize::try_from(ty.shape[axis].as_constant().unwrap()).unwrap();
                Tensor::zeros(DType::F32, vec![1, size(1), 0, size(3)]).unwrap()
            }
        };
        (name, tensor)
    };
    let inputs: Vec<(&str, Tensor)> = graph.inputs().iter().map(input).collect();
    let outputs = evaluate(graph, &inputs).unwrap();
    let (_, tensor) = outputs.iter().find(|(name, _)| name == output).unwrap();
    tensor.to_f64().chunks(*tensor.shape().last().unwrap()).map(<[f64]>::to_vec).collect()
}

pub(crate) fn graph(model: &Path) -> Graph {
    let loaded = SourceModel::open(model).unwrap().load(LoadOptions::default()).unwrap();
    loaded.parts[0].graph.clone()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[track_caller]
pub(crate) fn assert_near(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got} is not {want}");
}

#[test]
fn embeddings_are_as_far_off_as_the_interpreter_says() {
    let folder = scratch();
    let (out, data) = prepared("bert", 131, &["--target", "onnx", "--bf16"], folder.path());
    let report = evaluated(&out, &data, &[]);
    let (exact, rounded) = (graph(&golden("bert")), graph(&out.join("model.onnx")));
    let (mut cosines, mut error, mut norm) = (Vec::new(), 0.0, 0.0);
    for ids in IDS {
        let [wanted, given] = [&exact, &rounded].map(|graph| interpreted(graph, ids, "last_hidden_state"));
        for (wanted, given) in wanted.iter().flatten().zip(given.iter().flatten()) {
            error += (wanted - given) * (wanted - given);
            norm += wanted * wanted;
        }
        let mean = |rows: &[Vec<f64>]| -> Vec<f64> {
            (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64).collect()
        };
        let (wanted, given) = (mean(&wanted), mean(&given));
        cosines.push(dot(&wanted, &given) / (dot(&wanted, &wanted) * dot(&given, &given)).sqrt());
    }
    let embeddings = report.embeddings.unwrap();
    let mean = cosines.iter().sum::<f64>() / 4.0;
    let least = cosines.iter().copied().reduce(f64::min).unwrap();
    assert!(mean < 1.0 - 1e-7, "bfloat16 shows: {mean}");
    assert_near(1.0 - embeddings.mean_cosine, 1.0 - mean, 0.05);
    assert_near(1.0 - embeddings.least_cosine, 1.0 - least, 0.05);
    let output = report.outputs.iter().find(|of| of.output == "last_hidden_state").unwrap();
    assert_near(output.relative_error, f64::sqrt(error / norm), 0.05);
    assert_eq!((report.samples, report.tokens), (4, Some(22)));
    assert_eq!((report.data.name.as_str(), report.data.bytes), ("lines.txt", LINES.len() as u64));
    assert_eq!(report.data.blake3.unwrap().len(), 64);
}

#[test]
fn a_gate_ends_with_three_where_it_is_missed() {
    let folder = scratch();
    let (out, data) = prepared("bert", 131, &[], folder.path());
    let done = run(&out, &data, &["--require", "cos=0.999,neighbours=100,error=1e-4"]).exits(0, &[]);
    assert!(done.stdout.contains("4 samples of lines.txt") && done.stdout.contains(" 22 tokens"), "{}", done.stdout);
    assert!(done.stdout.contains("embeddings (mean over tokens): cosine 1.000000"), "{}", done.stdout);
    assert!(done.stdout.contains("nearest neighbours kept: 100.0 %"), "{}", done.stdout);
    assert!(done.stdout.ends_with("cos=0.999,neighbours=100,error=0.0001 reached\n"), "{}", done.stdout);
    let missed = run(&out, &data, &["--require", "cos=0.5,error=-1"]);
    missed.exits(3, &["verification failed", "error is ", "at most -1 required"]);
    run(&out, &data, &["--require", "kl=1"])
        .exits(2, &["this evaluation has no `kl`; it has cos, least-cos, neighbours, error"]);
    run(&out, &data, &["--require", "cosine=1"]).exits(2, &["there is no figure `cosine`"]);
    run(&out, &data, &["--window", "4"]).exits(1, &["--window and --stride are for language models"]);
    run(&out, &folder.path().join("nowhere.txt"), &[]).exits(1, &["cannot read", "nowhere.txt"]);
    run(&out, &data, &["--runtime-option", "ort-lib=/nowhere"]).exits(4, &["the runtime `ort` is unavailable"]);
}

#[test]
fn verification_takes_data_too() {
    let folder = scratch();
    let (out, data) = prepared("bert", 131, &[], folder.path());
    let verify = |more: &[&str]| planish([&["verify", text(&out), "--data", text(&data)], more].concat());
    let done = verify(&[]).exits(0, &[]);
    assert!(
        done.stdout.contains("verified against") && done.stdout.contains("4 samples of lines.txt"),
        "{}",
        done.stdout
    );
    verify(&["--require", "cos=0.5,error=-1"]).exits(3, &["verification failed", "error is ", "at most -1 required"]);
    verify(&["--require", "kl=1"]).exits(2, &["this evaluation has no `kl`"]);
    let variants = folder.path().join("variants");
    let more = ["--package", "transformers-js", "--variants", "fp32,fp16"];
    planish_compile(&folder.path().join("bert"), &variants, &more).exits(0, &[]);
    planish(["verify", text(&variants), "--data", text(&data), "--require", "error=-1"])
        .exits(3, &["variant fp32: verification failed", "variant fp16: verification failed"]);
    // A bad line is named.
    let bad = folder.path().join("bad.jsonl");
    fs::write(&bad, "{\"text\": \"a\"}\n{\"txt\": 1}\n").unwrap();
    planish(["verify", text(&out), "--data", text(&bad)]).exits(1, &["bad.jsonl", "line 2"]);
    planish(["bench", text(&out), "--data", text(&bad), "--set", "peaks=false,time=0", "--seq", "4"])
        .exits(1, &["could not be evaluated on the data", "line 2"]);
}

/// The perplexity of texts in windows, and how many tokens were predicted, by the interpreter.
fn perplexity(graph: &Graph, texts: &[&[i64]], length: usize, stride: usize) -> (f64, u64) {
    let (mut loss, mut count) = (0.0, 0);
    for ids in texts {
        let (mut start, mut next) = (0, 1);
        while next < ids.len() {
            let window = &ids[start..ids.len().min(start + length)];
            let logits = interpreted(graph, window, "logits");
            while next < start + window.len() {
                let row = &logits[next - 1 - start];
                let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
                loss -= row[usize::try_from(ids[next]).unwrap()] - sum.ln();
                (count, next) = (count + 1, next + 1);
            }
            start += stride;
        }
    }
    ((loss / count as f64).exp(), count)
}

#[test]
fn perplexity_is_that_of_the_interpreter() {
    let folder = scratch();
    let (out, data) = prepared("gpt2", 137, &[], folder.path());
    let exact = graph(&golden("gpt2"));
    for (length, stride, batch) in [(64, 32, "4"), (4, 2, "4"), (4, 2, "1"), (3, 2, "2")] {
        let [window, step] = [length, stride].map(|n: usize| n.to_string());
        let more = ["--window", &window, "--stride", &step, "--batch", batch];
        // The golden takes 64 tokens or less, and the texts are shorter than that.
        let more = if length == 64 { &more[4..] } else { &more[..] };
        let report = evaluated(&out, &data, &[&["--lines"], more].concat());
        let found = report.perplexity.unwrap();
        let (expected, count) = perplexity(&exact, &IDS, length, stride);
        assert_near(found.reference, expected, 1e-4);
        assert_near(found.ratio, 1.0, 1e-4);
        assert_eq!((found.tokens, count), (18, 18), "each token but the first of a text");
        let predictions = report.predictions.unwrap();
        assert_eq!((predictions.count, predictions.top1_agreement), (18, 100.0));
        assert!(predictions.mean_divergence < 1e-6);
        assert!(report.outputs.iter().any(|of| of.output == "present.0.key" && of.relative_error < 1e-4));
    }
    run(&out, &data, &["--window", "4", "--stride", "5"]).exits(1, &["--stride 5 is more than the window of 4 tokens"]);
    run(&out, &data, &["--window", "1"]).exits(1, &["a window has at least 2 tokens"]);
    run(&out, &data, &["--require", "perplexity=1.01,top1=99.9"]).exits(0, &[]);
}

/// The read part of a report: texts, characters, and left out by a run, by --tokens, by --samples, by the split.
fn read(report: &Evaluation) -> (u64, u64, [(u64, u64); 4]) {
    let read = report.read.unwrap();
    let left = [read.cut, read.behind_tokens, read.behind_samples, read.of_split];
    (read.texts, read.characters, left.map(|left| (left.texts, left.characters)))
}

#[test]
fn windows_of_a_language_model_run_through_a_whole_document() {
    let folder = scratch();
    let (out, data) = prepared("gpt2", 137, &[], folder.path());
    // More tokens than the 64 that the golden takes at once.
    let document = LINES.repeat(5);
    fs::write(&data, &document).unwrap();
    let words = IDS.iter().flat_map(|ids| &ids[1..]).copied();
    let ids: Vec<i64> = [1].into_iter().chain(words.collect::<Vec<_>>().repeat(5)).collect();
    let exact = graph(&golden("gpt2"));
    let all = document.chars().count() as u64;
    for (more, length, stride) in [
        (&[][..], 64, 32),
        (&["--window", "6", "--stride", "4"], 6, 4),
        (&["--documents", "--max-length", "91"], 64, 32),
    ] {
        let report = evaluated(&out, &data, more);
        let found = report.perplexity.unwrap();
        let (expected, count) = perplexity(&exact, &[&ids], length, stride);
        assert_near(found.reference, expected, 1e-4);
        assert_eq!((found.tokens, count, report.tokens), (90, 90, Some(91)));
        assert_eq!((report.samples, read(&report)), (1, (1, all, [(0, 0); 4])));
    }
    // The same lines as texts of their own are another thing.
    let report = evaluated(&out, &data, &["--lines"]);
    assert_eq!((report.perplexity.unwrap().tokens, report.samples), (90, 20));
    assert_eq!(read(&report), (20, all - 20, [(0, 0); 4]));
    let done = run(&out, &data, &["--tokens", "19"]).exits(0, &[]);
    let (kept, left) = (LINES.chars().count() - 1, document.chars().count() - LINES.chars().count() + 1);
    let lines = [
        format!("read: 1 document, {kept} of {all} characters\n"),
        format!("left out: {left} characters of 1 text after the last token (--tokens)\n"),
    ];
    lines.iter().for_each(|line| assert!(done.stdout.contains(line), "{}", done.stdout));
    // A cut by the user is told apart.
    let report = evaluated(&out, &data, &["--max-length", "19"]);
    assert_eq!(read(&report), (1, kept as u64, [(1, left as u64), (0, 0), (0, 0), (0, 0)]));
    let report = evaluated(&out, &data, &["--held-out", "--samples", "2"]);
    assert_eq!((report.samples, report.perplexity.unwrap().tokens), (2, 5 + 2));
    let (_, _, left) = read(&report);
    assert_eq!((left[2].0, left[3].0), (10, 8), "{left:?}");
}

#[test]
fn a_report_says_what_of_texts_was_read() {
    let folder = scratch();
    let (out, data) = prepared("bert", 131, &[], folder.path());
    let characters = LINES.chars().filter(|c| *c != '\n').count() as u64;
    assert_eq!(read(&evaluated(&out, &data, &[])), (4, characters, [(0, 0); 4]));
    // Of three lines a part is after the token that begins a text and three of its words.
    let report = evaluated(&out, &data, &["--max-length", "4"]);
    let cut = [" w20 w4", " w60", " w13 w14 w15 w16"].map(|text| text.len() as u64).iter().sum::<u64>();
    assert_eq!(read(&report), (4, characters - cut, [(3, cut), (0, 0), (0, 0), (0, 0)]));
    let report = evaluated(&out, &data, &["--samples", "2"]);
    let after = LINES.lines().skip(2).map(str::len).sum::<usize>() as u64;
    assert_eq!(read(&report), (2, characters - after, [(0, 0), (0, 0), (2, after), (0, 0)]));
    // Each part of a document is a sample.
    let report = evaluated(&out, &data, &["--documents", "--max-length", "4"]);
    let all = LINES.len() as u64;
    assert_eq!((report.samples, read(&report)), (6, (1, all, [(0, 0); 4])));
    assert_eq!(report.tokens, Some(18 + 6));
    let report = evaluated(&out, &data, &["--documents", "--max-length", "4", "--samples", "2"]);
    let (texts, characters, left) = read(&report);
    assert_eq!((texts, characters + left[2].1, left[2].0), (1, all, 1));
    run(&out, &data, &["--documents", "--lines"]).exits(2, &["cannot be used with"]);
    run(&out, &data, &["--documents", "--held-out"]).exits(2, &["cannot be used with"]);
}

/// The inputs of a golden that are stored, as a data set.
fn stored_inputs(name: &str, folder: &Path) -> PathBuf {
    let all = tensors(&golden(name).join("io.safetensors"));
    let first = |name: &str| name.strip_prefix("in.").map(str::to_owned);
    let inputs = all.into_iter().filter_map(|(name, tensor)| Some((first(&name)?, tensor))).collect();
    let path = folder.join(format!("{name}.safetensors"));
    write_tensors(&path, &inputs);
    path
}

#[test]
fn classifiers_and_answers_are_compared_by_their_labels() {
    for (name, count, outputs) in [
        ("bert-classify", None, &["logits"][..]),
        ("vit", None, &["logits"]),
        ("distilbert-qa", None, &["start_logits", "end_logits"]),
        ("bert-mlm", Some("attention_mask"), &["logits"]),
    ] {
        let (folder, out) = artifact(name);
        let data = stored_inputs(name, folder.path());
        let inputs = numbered(&golden(name).join("io.safetensors"), "in.");
        let rows = inputs[0].1.shape()[0] * outputs.len();
        let ones = |input: &str| inputs.iter().find(|(name, _)| name == input).unwrap().1.to_f64().iter().sum::<f64>();
        let report = evaluated(&out, &data, &["--reference", text(&golden(name))]);
        let predictions = report.predictions.unwrap();
        assert_eq!(predictions.count as f64, count.map_or(rows as f64, ones), "{name}");
        assert!(predictions.top1_agreement > 99.0 && predictions.least_cosine > 0.9999, "{name}: {predictions:?}");
        assert_eq!(report.outputs.iter().map(|of| of.output.as_str()).collect::<Vec<_>>(), outputs);
        assert!(report.embeddings.is_none() && report.perplexity.is_none());
    }
}

#[test]
fn an_encoder_decoder_is_run_with_its_own_cache() {
    let folder = scratch();
    let (out, data) = prepared("t5", 127, &[], folder.path());
    let report = evaluated(&out, &data, &[]);
    let parts = ["encoder_model", "decoder_model", "decoder_with_past_model"];
    for part in parts {
        let of = |output: &str| report.outputs.iter().any(|of| of.part == part && of.output == output);
        assert!(of(if part == parts[0] { "last_hidden_state" } else { "logits" }), "{part}");
    }
    assert!(report.outputs.iter().all(|of| of.relative_error < 1e-4), "{report}");
    // The start token and the tokens of each text.
    let tokens: usize = IDS.iter().map(|ids| ids.len() + 1).sum();
    assert_eq!(report.predictions.unwrap().count, tokens as u64);
}

struct Quiet;

impl EvaluationObserver for Quiet {
    fn warning(&self, text: &str) {
        panic!("{text}");
    }
    fn note(&self, text: &str) {
        panic!("{text}");
    }
    fn progress(&self, _: usize, _: usize) {}
}

#[test]
fn an_artifact_in_the_making_is_evaluated_before_it_is_published() {
    let folder = scratch();
    let model = SourceModel::open(&golden("bert")).unwrap();
    let made = compiled(&golden("bert"), &folder.path().join("out"), &options(&ONNX));
    let data = stored_inputs("bert", folder.path());
    let options = EvaluateOptions { threads: 1, ..EvaluateOptions::default() };
    let mut reference = Reference::of_several();
    let report =
        evaluate_compiled(&made.artifact, (&model, &made.source), &mut reference, &data, &options, &Quiet).unwrap();
    assert!(report.figure(Figure::Cosine).unwrap() > 0.999_999);
    assert_eq!(report.figure(Figure::Top1), None);
}

#[test]
fn an_artifact_that_gives_no_numbers_fails_verification() {
    let folder = scratch();
    let (out, data) = prepared("bert", 131, &["--target", "onnx"], folder.path());
    let file = out.join("model.onnx");
    let mut bytes = fs::read(&file).unwrap();
    // The weights of a norm become NaN, at the same size.
    let weight = tensors(&golden("bert").join("model.safetensors"));
    let (_, norm) = weight.iter().find(|(name, _)| name.ends_with("embeddings.LayerNorm.bias")).unwrap();
    let at = bytes.windows(norm.bytes.len()).position(|window| window == norm.bytes).unwrap();
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let done = run(&out, &data, &[]);
    done.exits(3, &["samples 1 to 4", "the output `last_hidden_state`", "a number of it is not finite"]);
}

/// An artifact that was made of another one, or of a quantized checkpoint, is evaluated against the original.
#[test]
fn what_was_compiled_from_something_else_is_compared_with_the_reference_that_is_named() {
    let folder = scratch();
    let (out, data) = prepared("bert", 120, &[], folder.path());
    let (model, again) = (folder.path().join("bert"), folder.path().join("again"));
    planish_compile(&out.join("model.onnx"), &again, &["--int4"]).exits(0, &[]);
    let done = run(&again, &data, &["--reference", text(&model), "--json"]);
    let done = done.exits(0, &["was not compiled from", "is compared with it because --reference names it"]);
    let evaluation: Evaluation = serde_json::from_str(&done.stdout).unwrap();
    // What it was compiled from has the same weights, so the figures are those of its own source.
    let own = evaluated(&again, &data, &["--reference", text(&out.join("model.onnx"))]);
    let cosine = |of: &Evaluation| of.figure(Figure::Cosine).unwrap();
    assert!((cosine(&evaluation) - cosine(&own)).abs() < 1e-6 && cosine(&own) < 0.999_99, "{evaluation:?}");
    // A model that takes other inputs is no reference.
    let other = golden("vit");
    run(&again, &data, &["--reference", text(&other)]).exits(1, &["none that is named takes the same inputs either"]);
}
