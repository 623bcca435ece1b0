//! `planish transcribe` on the model of fixtures/speech, whose transcription by the transformers library is stored, and on a CTC
//! model, of which fixtures/sounds/predicted.json has what the pipeline of the library makes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::sounds::{compiled, predicted};
use crate::support::{planish, planish_compile, repository, scratch, text};

/// Half seconds of noise, loud and quiet by turns, as fixtures/speech/make.py has them.
pub(crate) fn write_noise(path: &Path, samples: usize) {
    let mut state = 1_u32;
    let mut data = Vec::new();
    for n in 0..samples {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
        let sample = i16::try_from((state >> 16) & 0x3FFF).unwrap() - 8192;
        // Python rounds quotients down.
        let sample = if n / 8000 % 2 == 0 { sample } else { sample.div_euclid(64) };
        data.extend(sample.to_le_bytes());
    }
    let size = u32::try_from(data.len()).unwrap();
    let mut wav = Vec::new();
    wav.extend(b"RIFF");
    wav.extend((36 + size).to_le_bytes());
    wav.extend(b"WAVEfmt ");
    wav.extend(16_u32.to_le_bytes());
    wav.extend([1_u16, 1].iter().flat_map(|number| number.to_le_bytes()));
    wav.extend([16_000_u32, 32_000].iter().flat_map(|number| number.to_le_bytes()));
    wav.extend([2_u16, 16].iter().flat_map(|number| number.to_le_bytes()));
    wav.extend(b"data");
    wav.extend(size.to_le_bytes());
    wav.extend(data);
    fs::write(path, wav).unwrap();
}

fn expected() -> Value {
    let path = repository().join("fixtures/speech/expected.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The options of what is asked for.
fn asked(expected: &Value) -> Vec<String> {
    let mut words = vec!["--temperature".to_owned(), "0".to_owned()];
    for (key, value) in expected["asked"].as_object().unwrap() {
        words.extend([format!("--{key}"), value.as_str().unwrap().to_owned()]);
    }
    for key in ["logprob_threshold", "no_speech_threshold", "compression_ratio_threshold"] {
        let value = expected["thresholds"].get(key).map_or("none".to_owned(), Value::to_string);
        words.extend(["--set".to_owned(), format!("{key}={value}")]);
    }
    words.extend(["--set".to_owned(), format!("condition_on_prev_tokens={}", expected["condition_on_prev_tokens"])]);
    words
}

/// The tokens and times of segments, in milliseconds.
fn segments(of: &Value) -> Vec<(Value, i64, i64)> {
    let time = |segment: &Value, key: &str| (segment[key].as_f64().unwrap() * 1000.0).round() as i64;
    let segments = of["segments"].as_array().unwrap();
    segments.iter().map(|segment| (segment["tokens"].clone(), time(segment, "start"), time(segment, "end"))).collect()
}

#[test]
fn windows_are_those_of_the_transformers_library() {
    let folder = scratch();
    let (out, recording) = (folder.path().join("out"), folder.path().join("noise.wav"));
    planish_compile(&repository().join("fixtures/speech"), &out, &["--target", "ort", "--verify"]).succeeds();
    write_noise(&recording, 5 * 16_000);
    let expected = expected();
    let options = asked(&expected);
    let words = |more: &[&str]| {
        let all = ["transcribe", text(&out), text(&recording)].into_iter().map(str::to_owned);
        all.chain(options.clone()).chain(more.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    let done = planish(words(&["--json"])).exits(0, &[]);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(segments(&found["recordings"][0]), segments(&expected));
    assert_eq!(found["recordings"][0]["language"], "haw");
    assert_eq!(found["audio_seconds"], 5.0);

    // A recording that is shorter than a frame.
    let short = folder.path().join("short.wav");
    write_noise(&short, 100);
    let done = planish(["transcribe", text(&out), text(&short), "--json", "--language", "en"]).exits(0, &[]);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(found["recordings"][0]["seconds"], 0.00625);
    assert_eq!(found["recordings"][0]["segments"], serde_json::json!([]));

    // Lines on standard output say which recording they are of.
    let other = folder.path().join("other.wav");
    fs::copy(&recording, &other).unwrap();
    let lines = planish(words(&[text(&other), "--format", "json"])).exits(0, &[]);
    let lines: Vec<Value> = lines.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, second) = lines.split_at(lines.len() / 2);
    for (lines, path) in [(first, &recording), (second, &other)] {
        assert!(lines.iter().all(|line| line["file"] == text(path)), "{lines:?}");
        assert_eq!(segments(&serde_json::json!({ "segments": lines })), segments(&expected));
    }

    // Two recordings side by side are what they are alone.
    let copy = folder.path().join("copy.wav");
    fs::copy(&recording, &copy).unwrap();
    let subtitles = folder.path().join("subtitles");
    planish(words(&[text(&copy), "--batch", "2", "-o", text(&subtitles), "--format", "txt,srt,vtt,json"]))
        .exits(0, &["s of sound in", "times real time"]);
    for name in ["noise", "copy"] {
        let read = |ending: &str| fs::read_to_string(subtitles.join(format!("{name}.{ending}"))).unwrap();
        let json: Value = serde_json::from_str(&read("json")).unwrap();
        assert_eq!(segments(&json), segments(&expected), "{name}");
        for (ending, beginning) in [("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n\n00:00:0")] {
            assert!(read(ending).starts_with(beginning), "{name}.{ending}: {}", read(ending));
        }
        assert!(read("txt").lines().count() > 1, "{name}.txt: {}", read("txt"));
    }
    assert_eq!(fs::read_dir(&subtitles).unwrap().count(), 8);
}

#[test]
fn windows_of_a_recording_run_side_by_side() {
    let folder = scratch();
    let (out, recording) = (folder.path().join("out"), folder.path().join("noise.wav"));
    planish_compile(&repository().join("fixtures/speech"), &out, &["--target", "ort"]).succeeds();
    write_noise(&recording, 5 * 16_000);
    let found = |more: &[&str]| -> Value {
        let words = ["transcribe", text(&out), text(&recording), "--temperature", "0", "--json"];
        serde_json::from_str(&planish([&words, more].concat()).exits(0, &[]).stdout).unwrap()
    };
    let cut = ["--set", "cut_at_silence", "--set", "no_speech_threshold=none"];
    let alone = found(&cut);
    let segments = alone["recordings"][0]["segments"].as_array().unwrap();
    // The model reads windows of 1 s, and a piece has half of one at least.
    assert!((5..=10).contains(&segments.iter().map(|segment| segment["seek"].as_i64()).collect::<BTreeSet<_>>().len()));
    assert!(segments.iter().map(|segment| segment["id"].as_u64().unwrap()).eq(0..segments.len() as u64));
    assert!(segments.iter().map(|segment| segment["seek"].as_i64().unwrap()).is_sorted());
    assert_eq!((&alone["audio_seconds"], &alone["recordings"][0]["seconds"]), (&5.0.into(), &5.0.into()));
    for batch in ["3", "8"] {
        let together = found(&[&cut[..], &["--batch", batch]].concat());
        let together_segments = together["recordings"][0]["segments"].as_array().unwrap();
        assert_eq!(together_segments.len(), segments.len(), "--batch {batch}");
        for (one, other) in together_segments.iter().zip(segments) {
            for key in ["id", "seek", "start", "end", "text", "tokens", "temperature"] {
                assert_eq!(one[key], other[key], "--batch {batch}: {key}");
            }
            // Sums of another order.
            let apart = one["avg_logprob"].as_f64().unwrap() - other["avg_logprob"].as_f64().unwrap();
            assert!(apart.abs() < 1e-4, "--batch {batch}: {one} and {other}");
        }
        assert_eq!(together["recordings"][0]["language"], alone["recordings"][0]["language"]);
    }
    // A recording of one window is not cut.
    let short = folder.path().join("short.wav");
    write_noise(&short, 15_000);
    let of_short = |more: &[&str]| {
        let words = ["transcribe", text(&out), text(&short), "--temperature", "0", "--format", "json"];
        planish([&words, more].concat()).exits(0, &[]).stdout
    };
    assert_eq!(of_short(&cut[..2]), of_short(&[]));
    let words =
        ["transcribe", text(&out), text(&recording), "--set", "cut_at_silence", "--set", "condition_on_prev_tokens"];
    planish(words).exits(1, &["condition_on_prev_tokens", "cut_at_silence", "take one of both"]);
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = scratch();
    let (out, recording) = (folder.path().join("out"), folder.path().join("noise.wav"));
    planish_compile(&repository().join("fixtures/speech"), &out, &["--target", "ort"]).succeeds();
    write_noise(&recording, 1600);
    let refused = |more: &[&str], code: i32, says: &[&str]| {
        let words = ["transcribe", text(&out)].into_iter().chain(more.iter().copied());
        planish(words).exits(code, says);
    };
    let recording = text(&recording);
    refused(&[recording, "--language", "klingon"], 1, &["klingon", "no language of Whisper"]);
    refused(&[recording, "--language", "spanish"], 1, &["<|es|>", "the model knows de, en, fr, haw"]);
    refused(&[recording, "--format", "srt,vtt"], 2, &["standard output takes one", "-o"]);
    refused(&[recording, recording, "--format", "vtt"], 2, &["--format vtt is for one recording", "-o"]);
    refused(&[recording, recording, "-o", text(&folder.path().join("texts"))], 2, &["would both be written"]);
    refused(&["-", "-"], 2, &["- is given more than once", "give it once"]);
    refused(&[recording, "--set", "logprob_threshold=low"], 2, &["logprob_threshold"]);
    let (none, texts) = (folder.path().join("none.wav"), folder.path().join("one"));
    refused(&[recording, text(&none), "-o", text(&texts)], 1, &["none.wav"]);
    assert_eq!(fs::read_dir(&texts).unwrap().count(), 0, "the first recording is not written down");

    let path = out.join("generation_config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        config.replace("\"no_timestamps_token_id\": 51", "\"no_timestamps_token_id\": 9223372036854775807"),
    )
    .unwrap();
    refused(&[recording], 1, &["`no_timestamps_token_id` of", "has the id 9223372036854775807"]);
    fs::write(&path, config).unwrap();
    let path = out.join("preprocessor_config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("Whisper", "AST")).unwrap();
    refused(&[recording], 1, &["`feature_extractor_type` is of another model"]);
}

#[test]
fn windows_of_ctc_are_those_of_the_pipeline_of_transformers() {
    let folder = scratch();
    let (_, out) = compiled("hubert", folder.path());
    let expected = &predicted()["windows"];
    let sounds = repository().join("fixtures/sounds/files");
    let (plain, short) = (sounds.join("plain.wav"), sounds.join("short.wav"));
    let length = format!("chunk_length_s={}", expected["seconds"]);
    let recordings = ["transcribe", text(&out), text(&plain), text(&short), "--set", &length];
    let subtitles = folder.path().join("subtitles");
    for batch in ["1", "3"] {
        let done = planish([&recordings[..], &["--batch", batch, "--json"]].concat()).exits(0, &[]);
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        for (at, name) in ["plain.wav", "short.wav"].into_iter().enumerate() {
            let (found, expected) = (&found["recordings"][at], &expected[name]);
            assert_eq!(found["text"], expected["text"], "{name}");
            let segments = found["segments"].as_array().unwrap();
            let words: Vec<&Value> = segments.iter().flat_map(|segment| segment["words"].as_array().unwrap()).collect();
            let expected = expected["words"].as_array().unwrap();
            assert_eq!(words.len(), expected.len(), "{name}");
            for (word, expected) in words.into_iter().zip(expected) {
                assert_eq!(word["word"], expected[0], "{name}");
                for (key, at) in [("start", 1), ("end", 2)] {
                    let (own, other) = (word[key].as_f64().unwrap(), expected[at].as_f64().unwrap());
                    assert!((own - other).abs() < 6e-4, "{name}: {word} {expected}");
                }
            }
        }
    }
    planish([&recordings[..], &["-o", text(&subtitles), "--format", "srt,txt"]].concat()).exits(0, &["s of sound in"]);
    let said = fs::read_to_string(subtitles.join("short.txt")).unwrap();
    assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" "), expected["short.wav"]["text"]);

    let tiny = folder.path().join("tiny.wav");
    write_noise(&tiny, 5);
    for command in [vec!["transcribe", text(&out), text(&tiny)], vec!["predict", text(&out), "--data", text(&tiny)]] {
        planish(command).exits(1, &["tiny.wav", "too short", "5 samples"]);
    }
    for option in [["--language", "de"], ["--task", "translate"], ["--temperature", "0"], ["--set", "num_beams=1"]] {
        planish([&recordings[..4], &option].concat()).exits(1, &[option[0], "is a CTC model"]);
    }
}
