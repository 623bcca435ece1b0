//! `planish evaluate --label` of encoder-decoders that write down what recordings say: errors in words and characters of what
//! `planish transcribe` writes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{planish, planish_compile, repository, scratch, text};
use crate::transcribe::write_noise;

const NAMES: [&str; 2] = ["long.wav", "short.wav"];

/// The recordings, and a model compiled with options.
fn made(folder: &Path, model: &Path, options: &[&str]) {
    write_noise(&folder.join(NAMES[0]), 5 * 16_000);
    write_noise(&folder.join(NAMES[1]), 15_000);
    planish_compile(model, &folder.join("out"), &[&["--target", "ort"], options].concat()).succeeds();
}

/// The same with a Whisper with random weights.
fn prepared(folder: &Path, options: &[&str]) {
    made(folder, &repository().join("fixtures/speech"), options);
}

/// A Moonshine with random weights, whose tokens are those of the Whisper.
fn moonshine(folder: &Path) -> PathBuf {
    let (own, model) = (repository().join("fixtures/hearing/moonshine"), folder.join("moonshine"));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(own.join(file), model.join(file)).unwrap();
    }
    fs::copy(repository().join("fixtures/speech/tokenizer.json"), model.join("tokenizer.json")).unwrap();
    let settings = json!({"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": false,
        "return_attention_mask": true, "sampling_rate": 16000});
    fs::write(model.join("preprocessor_config.json"), settings.to_string()).unwrap();
    model
}

/// What an artifact writes.
fn transcripts(out: &Path, folder: &Path) -> [String; 2] {
    let [long, short] = NAMES.map(|name| folder.join(name));
    let done = planish(["transcribe", text(out), text(&long), text(&short), "--json"]).exits(0, &[]);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    [0, 1].map(|at| found["recordings"][at]["text"].as_str().unwrap().to_owned())
}

/// A list of the recordings with what is said in them.
fn list(folder: &Path, said: [&str; 2]) -> String {
    let record = |(name, said): (&str, &str)| json!({"file": name, "said": said}).to_string() + "\n";
    let path = folder.join("list.jsonl");
    fs::write(&path, NAMES.into_iter().zip(said).map(record).collect::<String>()).unwrap();
    text(&path).to_owned()
}

/// The figures of words and characters: artifact, reference, count.
fn figures(report: &str) -> [[f64; 3]; 2] {
    let report: Value = serde_json::from_str(report).unwrap();
    assert_eq!((&report["samples"], &report["read"]["unit"]), (&2.into(), &"recordings".into()), "{report}");
    [(0, "word-error-rate"), (1, "character-error-rate")].map(|(at, metric)| {
        let figure = &report["labels"][at];
        assert_eq!(figure["metric"], metric, "{report}");
        ["artifact", "reference", "count"].map(|key| figure[key].as_f64().unwrap())
    })
}

#[test]
fn errors_are_those_of_what_transcribe_writes() {
    for (is_whisper, options) in [(true, &[][..]), (true, &["--int8"]), (false, &[])] {
        let folder = scratch();
        let folder = folder.path();
        match is_whisper {
            true => prepared(folder, options),
            false => made(folder, &moonshine(folder), options),
        }
        let out = folder.join("out");
        let [long, short] = transcripts(&out, folder);
        // A word too many in the first text, and a character too few in a word of the second one.
        let (shorter, last) = long.rsplit_once(' ').unwrap();
        let (first, rest) = short.split_once(' ').unwrap();
        let other = format!("{first}x {rest}");
        let data = list(folder, [shorter, &other]);
        let evaluate = ["evaluate", text(&out), "--data", &data, "--field", "file", "--label", "said"];
        let [words, characters] = figures(&planish([&evaluate[..], &["--json"]].concat()).exits(0, &[]).stdout);
        let count = shorter.split_whitespace().count() + other.split_whitespace().count();
        assert_eq!(words[2], count as f64);
        assert!((words[0] - 200.0 / count as f64).abs() < 1e-9, "{words:?} of {count}");
        let count = shorter.chars().count() + other.chars().count();
        let wrong = last.chars().count() + 2;
        assert_eq!(characters[2], count as f64);
        assert!((characters[0] - 100.0 * wrong as f64 / count as f64).abs() < 1e-9, "{characters:?} of {count}");
        // The source in float32 writes the same as the artifact in float32, and something else than the one in codes.
        let is_same = options.is_empty();
        assert_eq!(words[0] == words[1], is_same, "{words:?}");
        assert_eq!(characters[0] == characters[1], is_same, "{characters:?}");

        let require = |limits: &str, code: i32, says: &[&str]| {
            planish([&evaluate[..], &["--require", limits]].concat()).exits(code, says)
        };
        let limit = format!("wer={:.6},cer={:.6}", words[0] + 1e-3, characters[0] + 1e-3);
        let done = require(&limit, 0, &[]);
        assert!(
            done.stdout.contains("| word error rate ") && !done.stdout.contains("relative error"),
            "{}",
            done.stdout
        );
        require("wer=0,cer=0", 3, &["wer is", "at most 0 required", "cer is"]);
    }
}

#[test]
fn errors_of_texts_by_hand() {
    let folder = scratch();
    let folder = folder.path();
    prepared(folder, &[]);
    let out = folder.join("out");
    // No word and no character of these is in the transcripts, so that each word of these is an error or more.
    let data = list(folder, ["\u{e9}\u{e9} \u{e9}", "\u{e9}"]);
    let evaluate = ["evaluate", text(&out), "--data", &data, "--field", "file", "--label", "said", "--json"];
    let [words, characters] = figures(&planish(evaluate).exits(0, &[]).stdout);
    let written = transcripts(&out, folder);
    let count = written.iter().map(|text| text.split_whitespace().count()).sum::<usize>();
    assert_eq!(words, [100.0 * count as f64 / 3.0, 100.0 * count as f64 / 3.0, 3.0]);
    // The space of the first text is in its transcript too.
    let count = written.iter().map(|text| text.chars().count()).sum::<usize>() - 1;
    assert_eq!(characters, [100.0 * count as f64 / 5.0, 100.0 * count as f64 / 5.0, 5.0]);
    // A recording that a shard has draws as it does in one run.
    let whole = planish(evaluate).exits(0, &[]).stdout;
    let files = ["1/3", "2/3", "3/3"].map(|shard| {
        let file = folder.join(format!("shard-{}.json", &shard[..1]));
        planish([&evaluate[..], &["--shard", shard, "-o", text(&file)]].concat()).exits(0, &[]);
        file
    });
    let merged = planish(["evaluate", "--json", "--merge"].into_iter().chain(files.iter().map(|file| text(file))));
    assert_eq!(merged.exits(0, &[]).stdout, whole);
}

#[test]
fn what_has_no_errors_of_texts_is_refused() {
    let folder = scratch();
    let folder = folder.path();
    prepared(folder, &[]);
    let out = folder.join("out");
    let data = list(folder, ["a", "b"]);
    let run = |more: &[&str], code: i32, says: &[&str]| {
        let words = ["evaluate", text(&out), "--data", &data, "--field", "file"];
        planish([&words, more].concat()).exits(code, says)
    };
    run(&["--label", "said", "--require", "cos=0.9"], 2, &["no `cos`", "it has wer, cer"]);
    run(&["--label", "said", "--shard", "1/2", "--batch", "2"], 1, &["--batch 2 writes down recordings side by side"]);
    run(&["--label", "said", "--window", "8"], 1, &["--window and --stride are for language models"]);
    let by_folder = ["evaluate", text(&out), "--data", text(folder), "--label", "said"];
    planish(by_folder).exits(1, &["--label is for files of records", "has recordings"]);

    fs::write(folder.join(NAMES[1]), "no sound").unwrap();
    run(&["--label", "said"], 1, &["short.wav: this is no recording", "--skip-bad leaves such recordings out"]);
    let done = run(&["--label", "said", "--skip-bad", "--batch", "2", "--json"], 0, &[]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["samples"], &report["read"]["bad"]), (&1.into(), &1.into()), "{report}");
    fs::write(folder.join(NAMES[0]), "no sound").unwrap();
    run(&["--label", "said", "--skip-bad"], 1, &["no recording of", "all of the 2 are bad"]);

    prepared(folder, &["--force"]);
    fs::remove_file(out.join("tokenizer.json")).unwrap();
    run(&["--label", "said"], 1, &["out has no tokenizer.json", "copy it there"]);
}
