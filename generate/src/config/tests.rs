//! What generation_config.json and what is given in its place come to.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::*;

fn artifact(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    folder
}

fn read(text: &str) -> Result<GenerationConfig> {
    GenerationConfig::read(artifact(&[(FILE, text)]).path())
}

#[test]
fn the_generation_config_comes_first_and_tokens_may_be_in_the_other() {
    let model = (MODEL, r#"{"eos_token_id": 7, "num_beams": 4, "decoder_start_token_id": 3, "hidden_size": 8}"#);
    let both = |text: &str| artifact(&[(FILE, text), model]);
    let tokens = |folder: &TempDir| {
        let config = GenerationConfig::read(folder.path()).unwrap();
        assert_eq!(config.unknown, [""; 0]);
        (config.end_tokens, config.decoder_start_token, config.num_beams.get())
    };
    assert_eq!(tokens(&artifact(&[])), (vec![], None, 1));
    assert_eq!(tokens(&artifact(&[model])), (vec![7], Some(3), 4));
    assert_eq!(tokens(&both(r#"{"eos_token_id": null}"#)), (vec![7], Some(3), 1));
    let own = both(r#"{"eos_token_id": [1, 2], "decoder_start_token_id": 0, "num_beams": 2, "max_time": 5}"#);
    assert!(GenerationConfig::read(own.path()).is_err());
    let config = GenerationConfig::read_tokens(own.path()).unwrap();
    assert_eq!((config.end_tokens, config.decoder_start_token, config.num_beams.get()), (vec![1, 2], Some(0), 1));
}

#[test]
fn settings_of_drawing_are_those_of_the_file() {
    let config = read(r#"{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}"#).unwrap();
    let options = config.options(3).unwrap();
    let (top_k, min_p) = (NonZeroUsize::new(50), 0.0);
    let sampling = Sampling { temperature: 0.6, top_k, top_p: 0.9, min_p };
    assert_eq!((options.search, options.length, options.seed), (Search::Sample(sampling), Length::Total(4096), 3));
    assert_eq!(read(r#"{"top_k": 0}"#).unwrap().top_k, None);
    assert_eq!(read(r#"{"top_k": 20.0}"#).unwrap().top_k, NonZeroUsize::new(20));
    assert!(read(r#"{"top_k": 20.5}"#).is_err() && read(r#"{"top_k": -1.0}"#).is_err());
    // Without draws none of it matters.
    assert_eq!(read(r#"{"temperature": 0.0}"#).unwrap().options(0).unwrap().search, Search::Greedy);
    let error = |text: &str| read(text).unwrap().options(0).unwrap_err().to_string();
    assert!(error(r#"{"do_sample": true, "temperature": -1}"#).contains("`temperature` is -1"));
    let cold = read(r#"{"do_sample": true, "temperature": 0.0}"#).unwrap();
    assert_eq!(cold.options(0).unwrap().search, Search::Greedy);
    assert!(error(r#"{"do_sample": true, "min_p": 2}"#).contains("`min_p` is 2"));
    assert!(error(r#"{"num_return_sequences": 2}"#).contains("`num_return_sequences` is 2, and greedy search"));
    assert!(error(r#"{"num_return_sequences": 3, "num_beams": 2}"#).contains("3 and there are 2 beams"));
    assert!(error(r#"{"num_return_sequences": 1025, "do_sample": true}"#).contains("1025, more than 1024"));
    assert!(error(r#"{"num_beams": 4294967296}"#).contains("`num_beams` is 4294967296, more than 1024"));
}

#[test]
fn settings_of_beams_and_processors_are_those_of_the_file() {
    let text = r#"{"num_beams": 4, "length_penalty": 2, "early_stopping": true, "max_new_tokens": 9,
        "max_length": 5, "bad_words_ids": [[8], [1, 2]], "forced_eos_token_id": 0, "renormalize_logits": true,
        "no_repeat_ngram_size": 3, "min_length": 4, "repetition_penalty": 1.5, "suppress_tokens": [6],
        "begin_suppress_tokens": [5, 6], "forced_bos_token_id": 2, "min_new_tokens": 1, "frequency_penalty": 0.5,
        "presence_penalty": -2, "encoder_repetition_penalty": 2, "encoder_no_repeat_ngram_size": 5,
        "num_return_sequences": 3}"#;
    let options = read(text).unwrap().options(0).unwrap();
    let width = NonZeroUsize::new(4).unwrap();
    let beams = Beams { width, length_penalty: 2.0, early_stopping: EarlyStopping::WhenFull, sampling: None };
    assert_eq!((options.search, options.length), (Search::Beams(beams), Length::New(9.try_into().unwrap())));
    let processors = Processors {
        encoder_repetition_penalty: 2.0,
        repetition_penalty: 1.5,
        frequency_penalty: 0.5,
        presence_penalty: -2.0,
        no_repeat_ngram_size: NonZeroUsize::new(3),
        encoder_no_repeat_ngram_size: NonZeroUsize::new(5),
        bad_words: vec![vec![8], vec![1, 2]],
        min_length: 0,
        min_new_tokens: 1,
        forced_bos: Some(2),
        forced_eos: vec![0],
        suppress: vec![6],
        begin_suppress: vec![5, 6],
        renormalize: true,
    };
    assert_eq!((options.processors, options.continuations), (processors, NonZeroUsize::new(3).unwrap()));
    let shortest = |text: &str| {
        let processors = read(text).unwrap().processors;
        (processors.min_length, processors.min_new_tokens)
    };
    assert_eq!(shortest(r#"{"min_length": 4}"#), (4, 0));
    assert_eq!(shortest(r#"{"min_length": 4, "min_new_tokens": null}"#), (4, 0));
    assert_eq!(shortest(r#"{"min_length": 4, "min_new_tokens": 0}"#), (0, 0));
}

#[test]
fn a_length_overrides_the_one_of_the_file_that_would_count() {
    let folder = artifact(&[(FILE, r#"{"max_new_tokens": 9, "min_new_tokens": 2}"#)]);
    let read = |settings: Value| {
        let config = GenerationConfig::read_with(folder.path(), settings.as_object().unwrap().clone()).unwrap();
        let Processors { min_length, min_new_tokens, .. } = config.processors;
        (config.options(0).unwrap().length, min_length, min_new_tokens)
    };
    let new = |tokens: usize| Length::New(tokens.try_into().unwrap());
    assert_eq!(read(json!({"min_p": 0})), (new(9), 0, 2));
    assert_eq!(read(json!({"max_length": 5})), (Length::Total(5), 0, 2));
    assert_eq!(read(json!({"min_length": 5})), (new(9), 5, 0));
    assert_eq!(read(json!({"min_length": 5, "min_new_tokens": 3})), (new(9), 0, 3));
}

#[test]
fn strings_that_stop_are_one_or_several() {
    assert_eq!(read(r#"{"stop_strings": "x"}"#).unwrap().stop_strings, ["x"]);
    assert_eq!(read(r#"{"stop_strings": ["x", "y\n"]}"#).unwrap().stop_strings, ["x", "y\n"]);
}

#[test]
fn beams_of_a_file_that_samples_are_drawn() {
    let search = |text: &str| match read(text).unwrap().options(7).unwrap().search {
        Search::Beams(beams) => beams.sampling,
        other => panic!("{other:?}"),
    };
    let drawn = search(r#"{"do_sample": true, "num_beams": 2, "temperature": 0.5, "top_k": 9}"#);
    let sampling = Sampling { temperature: 0.5, top_k: NonZeroUsize::new(9), top_p: 1.0, min_p: 0.0 };
    assert_eq!(drawn, Some(sampling));
    assert_eq!(search(r#"{"do_sample": true, "num_beams": 2, "temperature": 0}"#), None);
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    let refused = |text: &str, parts: &[&str]| {
        let error = format!("{:#}", read(text).unwrap_err());
        parts.iter().chain(&[FILE]).for_each(|part| assert!(error.contains(part), "{error}"));
    };
    refused(r#"{"penalty_alpha": 0.6}"#, &["penalty_alpha", "0.6", "--set generation_config=false"]);
    refused(r#"{"num_beam_groups": 2}"#, &["num_beam_groups"]);
    refused(r#"{"diversity_penalty": 1.0}"#, &["diversity_penalty"]);
    for strings in [r#"["x", ""]"#, r#""""#, "[1]", "7"] {
        refused(&format!(r#"{{"stop_strings": {strings}}}"#), &["stop_strings", "none of them empty"]);
    }
    refused(r#"{"eos_token_id": "</s>"}"#, &["eos_token_id", "an id or a list"]);
    refused(r#"{"eos_token_id": [1.5]}"#, &["eos_token_id"]);
    refused(r#"{"num_beams": 0}"#, &["num_beams", "above 0"]);
    for penalty in ["0", "-1", "1e-300", "1e39"] {
        for key in ["repetition_penalty", "encoder_repetition_penalty"] {
            refused(&format!(r#"{{"{key}": {penalty}}}"#), &[key, "float32"]);
        }
    }
    for key in ["frequency_penalty", "presence_penalty"] {
        refused(&format!(r#"{{"{key}": 2.5}}"#), &[key, "from -2 to 2"]);
    }
    refused(r#"{"num_return_sequences": 0}"#, &["num_return_sequences", "above 0"]);
    refused(r#"{"early_stopping": "soon"}"#, &["early_stopping", "never"]);
    refused("{", &["JSON"]);
    refused("[]", &["JSON"]);
}

#[test]
fn what_changes_nothing_is_taken_and_what_is_not_known_is_named() {
    let off = r#"{"typical_p": 1.0, "guidance_scale": 1, "num_return_sequences": 1, "num_beam_groups": 1,
        "diversity_penalty": 0.0, "sequence_bias": {}, "encoder_no_repeat_ngram_size": 0, "stop_strings": null, "use_cache": true,
        "transformers_version": "5.23.0", "watermarking_config": null, "chat_format": null}"#;
    assert_eq!(read(off).unwrap().unknown, [""; 0]);
    assert_eq!(read(r#"{"chat_format": "chatml"}"#).unwrap().unknown, ["chat_format"]);
}
