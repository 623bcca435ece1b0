use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content.to_string()).unwrap();
    }
    folder
}

fn timed(text: &str, frames: Range<usize>) -> Timed {
    Timed { text: text.to_owned(), frames }
}

/// What a decoder of a folder cannot be opened for.
fn refusal(folder: &Path, language: Option<&str>) -> String {
    format!("{:#}", CtcDecoder::open(folder, language).err().unwrap())
}

#[test]
fn repeats_are_one_and_blanks_are_none() {
    let vocabulary = json!({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "A": 5, "B": 6});
    let folder = folder(&[("vocab.json", vocabulary)]);
    let decoder = CtcDecoder::open(folder.path(), None).unwrap();
    let decoded = decoder.decode(&[4, 0, 5, 5, 0, 5, 6, 4, 4, 0, 6, 99, 0]).unwrap();
    assert_eq!(decoded.text, "AAB B<unk>");
    assert_eq!(decoded.words, [timed("AAB", 2..7), timed("B<unk>", 10..12)]);
    let characters: Vec<&str> = decoded.characters.iter().map(|character| character.text.as_str()).collect();
    assert_eq!(characters, [" ", "A", "A", "B", " ", "B", "<unk>"]);
    assert_eq!(decoded.characters[1].frames, 2..4);
    assert_eq!(decoder.decode(&[]).unwrap(), Decoded::default());
}

#[test]
fn files_beside_the_vocabulary_say_what_tokens_are() {
    let folder = folder(&[
        ("vocab.json", json!({"a": 0, "b": 1, "_": 2, "[PAD]": 3})),
        ("special_tokens_map.json", json!({"pad_token": {"content": "[PAD]"}, "unk_token": "?"})),
        ("tokenizer_config.json", json!({"word_delimiter_token": "_", "do_lower_case": true, "bos_token": "X"})),
        ("added_tokens.json", json!({"C": 4})),
    ]);
    let decoder = CtcDecoder::open(folder.path(), None).unwrap();
    // Missing special tokens come after all others: X, </s> and ?.
    assert_eq!(decoder.decode(&[3, 0, 2, 1, 4, 5, 6, 7, 8]).unwrap().text, "a bcx</s>?");
}

#[test]
fn a_language_is_chosen() {
    let vocabulary = json!({"eng": {"<pad>": 0, "a": 1}, "fra": {"<pad>": 0, "é": 1}});
    let folder = folder(&[("vocab.json", vocabulary)]);
    let decoded = |language| CtcDecoder::open(folder.path(), Some(language)).unwrap().decode(&[1]).unwrap().text;
    assert_eq!([decoded("eng"), decoded("fra")], ["a", "é"]);
    assert!(refusal(folder.path(), Some("deu")).contains("no language deu: there are eng, fra"));
    assert!(refusal(folder.path(), None).contains("`target_lang`"));
    fs::write(folder.path().join("tokenizer_config.json"), json!({"target_lang": "fra"}).to_string()).unwrap();
    assert_eq!(CtcDecoder::open(folder.path(), None).unwrap().decode(&[1, 1]).unwrap().text, "é");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let empty = folder(&[]);
    assert!(refusal(empty.path(), None).contains("neither vocab.json nor tokenizer.json"));
    let plain = folder(&[("vocab.json", json!({"a": 0}))]);
    assert!(refusal(plain.path(), Some("eng")).contains("not of several languages"));
    let wrong = folder(&[("vocab.json", json!({"a": "b"}))]);
    assert!(refusal(wrong.path(), None).contains("the id of `a`"));
    let phonemes = json!({"tokenizer_class": "Wav2Vec2PhonemeCTCTokenizer"});
    let phonemes = folder(&[("vocab.json", json!({"a": 0})), ("tokenizer_config.json", phonemes)]);
    assert!(refusal(phonemes.path(), None).contains("phonemes are not supported"));
}

#[test]
fn the_first_of_the_likeliest_tokens_counts() {
    assert_eq!(likeliest_tokens(&[0.0, 2.0, 2.0, 9.0, 5.0, 1.0, 1.0, 9.0], 4, 3), [1, 0]);
}

#[test]
fn texts_and_frames_are_those_of_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/ctc/cases.json");
    let cases: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 8);
    for (number, case) in cases.iter().enumerate() {
        let files: Vec<(&str, Value)> =
            case["files"].as_object().unwrap().iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
        let folder = folder(&files);
        let decoder = CtcDecoder::open(folder.path(), None).unwrap();
        for text in case["texts"].as_array().unwrap() {
            let ids: Vec<i64> = text["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
            let decoded = decoder.decode(&ids).unwrap();
            let spans = |parts: &[Timed]| -> Value {
                parts.iter().map(|part| json!([part.text, part.frames.start, part.frames.end])).collect()
            };
            let found = json!([decoded.text, spans(&decoded.characters), spans(&decoded.words)]);
            assert_eq!(found, json!([text["text"], text["characters"], text["words"]]), "{number}: {ids:?}");
        }
    }
}

#[test]
fn frames_are_as_long_as_the_strides_of_all_convolutions() {
    let base = json!({"conv_stride": [5, 2, 2, 2, 2, 2, 2], "add_adapter": false});
    let seconds = |files: &[(&str, Value)]| frame_seconds(folder(files).path()).unwrap();
    assert_eq!(seconds(&[("config.json", base.clone())]), Some(0.02));
    assert_eq!(
        seconds(&[("config.json", base), ("preprocessor_config.json", json!({"sampling_rate": 8000}))]),
        Some(0.04)
    );
    let adapted = json!({"conv_stride": [320], "add_adapter": true, "num_adapter_layers": 2});
    assert_eq!(seconds(&[("config.json", adapted)]), Some(0.08));
    assert_eq!(seconds(&[("config.json", json!({"hidden_size": 3}))]), None);
}

#[test]
fn the_first_frame_needs_the_kernels_of_all_convolutions() {
    let fewest = |config: Value| fewest_samples(folder(&[("config.json", config)]).path()).unwrap();
    let base = json!({"conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_stride": [5, 2, 2, 2, 2, 2, 2]});
    assert_eq!(fewest(base), Some(400));
    assert_eq!(fewest(json!({"conv_kernel": [10, 3], "conv_stride": [5, 2]})), Some(20));
    assert_eq!(fewest(json!({"conv_stride": [5, 2]})), None);
}
