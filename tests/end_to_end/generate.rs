//! `planish generate`: ids as the transformers library generates them, and what is refused.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use planish::artifact::Artifact;
use planish::generate::{GenerateOptions, Piece, Prompts, Stop};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate_settings::with_settings;
use crate::support::{Done, Draft, golden, numbered, planish, planish_compile, scratch, word, write_tokenizer};

pub(crate) const DECODERS: [&str; 15] = [
    "gemma",
    "gemma2",
    "gpt-neox",
    "gpt-neox-sequential",
    "gpt2",
    "llama",
    DYNAMIC,
    "llama-yarn",
    "mistral",
    "opt",
    "opt-350m-like",
    "phi3",
    "phi3-longrope",
    "qwen2",
    "qwen3",
];
pub(crate) const ENCODER_DECODERS: [&str; 4] = ["t5", "t5-gated-untied", "bart", "marian"];

/// Its frequencies change with each token, those of keys in a cache do not: without a cache it is
/// another model.
const DYNAMIC: &str = "llama-dynamic";

/// All of them.
fn generators() -> impl Iterator<Item = &'static str> {
    DECODERS.into_iter().chain(ENCODER_DECODERS)
}

/// A model compiled into a folder of its own.
pub(crate) fn artifact(model: &Path, more: &[&str]) -> (TempDir, PathBuf) {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(model, &out, more).succeeds();
    (folder, out)
}

pub(crate) fn generate(artifact: &Path, more: &[&str]) -> Done {
    planish([&["generate", artifact.to_str().unwrap(), "--threads", "1"], more].concat())
}

/// The document that `--json` prints, without the times.
#[track_caller]
pub(crate) fn json(artifact: &Path, more: &[&str]) -> Value {
    let mut document = whole_json(artifact, more);
    let speed = document.as_object_mut().unwrap().remove("speed").unwrap();
    let seconds = |key: &str| speed[key].as_f64().unwrap();
    assert!(seconds("first_token_s") <= seconds("total_s") && seconds("loading_s") > 0.0, "{speed}");
    document
}

/// The document that `--json` prints.
#[track_caller]
pub(crate) fn whole_json(artifact: &Path, more: &[&str]) -> Value {
    let done = generate(artifact, &[&["--json"], more].concat()).succeeds();
    serde_json::from_str(&done.stdout).unwrap()
}

/// `ids` of the document that `--json` prints.
#[track_caller]
pub(crate) fn ids(artifact: &Path, more: &[&str]) -> Value {
    json(artifact, more)["ids"].take()
}

/// Ids of a golden: the prompt, or one that begins with it.
pub(crate) fn stored(name: &str, tensor: &str) -> Vec<i64> {
    let all = numbered(&golden(name).join("io.safetensors"), "");
    let (_, found) = all.iter().find(|(name, _)| name == tensor).unwrap();
    found.as_i64().unwrap().to_vec()
}

/// Ids as an argument.
pub(crate) fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn greedy_and_beams_give_what_the_transformers_library_generates() {
    for name in generators() {
        let prompt = stored(name, "in.prompt");
        // The text of an encoder-decoder begins with its start token, not with the prompt.
        let beginning = if ENCODER_DECODERS.contains(&name) { 1 } else { prompt.len() };
        for target in ["onnx", "ort"] {
            let (_folder, out) = artifact(&golden(name), &["--target", target]);
            let generated = |tensor: &str, more: &[&str]| {
                let want = stored(name, tensor).split_off(beginning);
                let count = want.len().to_string();
                let fixed = ["--ids", &list(&prompt), "--max-new-tokens", &count, "--set=ignore_eos"];
                assert_eq!(ids(&out, &[&fixed, more].concat()), json!(want), "{tensor} of {name} on {target} {more:?}");
            };
            generated("out.greedy", &[]);
            if name != DYNAMIC {
                generated("out.greedy", &["--set=use_cache=false"]);
                generated("out.beam4", &["--set", "num_beams=4,use_cache=false"]);
            }
            generated("out.greedy", &["--set", "num_beams=1"]);
            // All are equally long, so no penalty changes their order.
            for penalty in ["0", "1", "-1"] {
                generated("out.beam4", &["--set", "num_beams=4", &format!("--set=length_penalty={penalty}")]);
            }
        }
    }
}

/// Prompts of several lengths are padded; those that end are dropped from the batch.
#[test]
fn each_prompt_of_a_batch_is_continued_as_it_would_be_alone() {
    for name in generators() {
        let (_folder, out) = artifact(&golden(name), &[]);
        let long = stored(name, "in.prompt");
        let prompts = [list(&long[..3]), list(&long), list(&long[4..6])];
        for search in [&["--set=ignore_eos"][..], &["--set", "num_beams=3"], &["--temperature", "3", "--top-k", "50"]] {
            let common = [&["--max-new-tokens", "20"], search].concat();
            let alone = prompts.iter().enumerate().map(|(number, prompt)| {
                // Prompt n draws with the seed plus n.
                let seed = number.to_string();
                let seed = if search.contains(&"--top-k") { &["--seed", &seed][..] } else { &[] };
                ids(&out, &[&common[..], &["--ids", prompt], seed].concat())
            });
            let together = prompts.iter().flat_map(|prompt| ["--ids", prompt]).collect::<Vec<_>>();
            let together = ids(&out, &[&common, &together[..]].concat());
            assert_eq!(together, Value::from_iter(alone), "{name} {search:?}");
        }
    }
}

/// The original length of longrope is 8: from 9 tokens on all keys have other frequencies.
#[test]
fn a_cache_is_computed_anew_where_the_text_outgrows_the_original_length() {
    let (_folder, out) = artifact(&golden("phi3-longrope"), &[]);
    let common = ["--set=ignore_eos", "--max-new-tokens", "40"];
    // They grow beyond it at different steps; the last is beyond from the start.
    let prompts = [&["1,2,3,4,5,6,7,8"][..], &["9,8,7"], &["5,6", "1,2,3,4,5,6,7,8", "3,1,4,1,5,9,2,6,5,3,5,8,9,7,9"]];
    for prompts in prompts {
        let prompts = prompts.iter().flat_map(|prompt| ["--ids", prompt]).collect::<Vec<_>>();
        for search in [&["--greedy"][..], &["--set", "num_beams=3"]] {
            let ids = |more: &[&str]| ids(&out, &[&common, &prompts[..], search, more].concat());
            assert_eq!(ids(&[]), ids(&["--set=use_cache=false"]), "{prompts:?} {search:?}");
        }
    }
    // What transformers 5.23.0 generates, with its cache and without.
    let expected = [56, 67, 107, 95, 109, 51, 24, 118, 130, 33, 0, 52, 24, 116, 21, 30, 34, 79, 91, 67];
    let more = ["--ids", "1,2,3,4,5,6,7,8", "--set=ignore_eos", "--max-new-tokens", "20"];
    assert_eq!(ids(&out, &more), json!(expected));
}

#[test]
fn a_seed_draws_the_same_tokens() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let draw = |more: &[&str]| {
        let fixed = ["--ids", "5,6,7", "--set=ignore_eos", "--max-new-tokens", "16"];
        ids(&out, &[&fixed, more].concat())
    };
    assert_eq!(draw(&["--temperature", "2"]), draw(&["--temperature", "2", "--seed", "0"]));
    assert_ne!(draw(&["--temperature", "2"]), draw(&["--temperature", "2", "--seed", "1"]));
    // One token to choose from is not a choice.
    assert_eq!(draw(&["--top-k", "1", "--seed", "9"]), draw(&[]));
    assert_eq!(draw(&["--top-p", "0", "--seed", "9"]), draw(&[]));
}

/// A decoder whose greedy continuation of its prompt is known, with `81` an end token.
fn ending() -> (TempDir, PathBuf) {
    let mut draft = Draft::of("gpt2");
    draft.config["eos_token_id"] = json!([2, 81]);
    let folder = scratch();
    let model = draft.write(folder.path().join("model"));
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).succeeds();
    (folder, out)
}

#[test]
fn end_tokens_end_and_stay() {
    let (_folder, out) = ending();
    let prompt = list(&stored("gpt2", "in.prompt"));
    let generated = |more: &[&str]| ids(&out, &[&["--ids", &prompt, "--max-new-tokens", "4"], more].concat());
    assert_eq!(generated(&[]), json!([81]));
    for search in [&[][..], &["--set", "num_beams=2"], &["--top-k", "5"]] {
        let endless = generated(&[&["--set=ignore_eos"], search].concat());
        let ends = |id: &Value| *id == json!(2) || *id == json!(81);
        let endless = endless.as_array().unwrap();
        assert!(endless.len() == 4 && !endless.iter().any(ends), "{search:?}: {endless:?}");
    }
    // Divided by more than its length, a long one is better than one that ends at once.
    assert_eq!(generated(&["--set", "num_beams=2,length_penalty=0"]), json!([81]));
    assert_eq!(generated(&["--set", "num_beams=2,length_penalty=9"]).as_array().unwrap().len(), 4);
}

#[test]
fn the_end_of_the_context_stops_with_a_note() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    // The model has 64 positions.
    let prompt = list(&[5; 60]);
    let stopped = |more: &[&str]| {
        let fixed = ["--ids", &prompt, "--set=ignore_eos", "--max-new-tokens", "9"];
        let done = generate(&out, &[&fixed, more].concat()).exits(0, &["warning: prompt 1: stopped after 4 tokens"]);
        (done.stdout, done.stderr)
    };
    let (shown, note) = stopped(&[]);
    assert_eq!(shown.trim_end().split(',').count(), 4);
    assert!(note.contains("4 tokens in ") && note.contains(" tokens/s, time to first token "), "{note}");
    let (document, note) = stopped(&["--json", "--set", "num_beams=2"]);
    assert_eq!(serde_json::from_str::<Value>(&document).unwrap()["ids"].as_array().unwrap().len(), 4);
    assert_eq!(note.lines().count(), 1, "{note}");
    let prompt = list(&[5; 64]);
    generate(&out, &["--ids", &prompt]).exits(1, &["64 tokens", "takes 64", "shorten"]);
}

#[test]
fn the_text_of_an_encoder_decoder_begins_and_ends_as_configured() {
    let (_folder, out) = artifact(&golden("bart"), &[]);
    let forced = json!({
        "decoder_start_token_id": 2, "eos_token_id": 2, "max_length": 6, "forced_bos_token_id": 7, "forced_eos_token_id": 2,
        "min_length": 6,
    });
    let text = with_settings("bart", &out, &forced, &[]);
    assert_eq!((text.len(), text[0], text[4]), (5, 7, 2));
    for search in [&["--set", "num_beams=3"][..], &["--temperature", "1"], &["--set=use_cache=false"]] {
        let text = with_settings("bart", &out, &forced, search);
        assert_eq!((text.len(), text[0], text.last()), (5, 7, Some(&2)), "{search:?}");
    }
    // The model has 40 positions, the start token takes one.
    let long = ["--ids", &list(&[5; 40]), "--set=ignore_eos", "--max-new-tokens", "50"];
    generate(&out, &long).exits(0, &["stopped after 39 tokens"]);
    generate(&out, &["--ids", &list(&[5; 41])]).exits(1, &["41 tokens", "takes 40"]);
    generate(&out, &["--ids", "127"]).exits(1, &["id 127 is not in the vocabulary"]);

    let without = |document: &str, key: &str, file: &str| {
        let path = out.join(file);
        let mut settings: Value = serde_json::from_str(document).unwrap();
        settings.as_object_mut().unwrap().remove(key);
        std::fs::write(path, settings.to_string()).unwrap();
    };
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    without("{}", "", "generation_config.json");
    generate(&out, &["--ids", "5"]).exits(0, &[]);
    without(&config, "decoder_start_token_id", "config.json");
    generate(&out, &["--ids", "5"]).exits(1, &["decoder_start_token_id", "generation_config.json"]);
    std::fs::write(out.join("generation_config.json"), r#"{"decoder_start_token_id": 127}"#).unwrap();
    generate(&out, &["--ids", "5"]).exits(1, &["decoder_start_token_id", "127", "0 to 126"]);
}

#[test]
fn an_encoder_decoder_needs_its_decoder_with_a_cache() {
    let (_folder, out) = artifact(&golden("t5"), &[]);
    let path = out.join("planish.json");
    let mut manifest: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    manifest["parts"].as_array_mut().unwrap().retain(|part| part["name"] != "decoder_with_past_model");
    std::fs::write(&path, manifest.to_string()).unwrap();
    generate(&out, &["--ids", "5"]).exits(1, &["no decoder_with_past_model", "--set use_cache=false"]);
    generate(&out, &["--ids", "5", "--set=use_cache=false"]).exits(0, &[]);
}

/// A decoder with a tokenizer whose tokens are words.
pub(crate) fn with_tokenizer(folder: &Path) -> PathBuf {
    let model = Draft::of("gpt2").write(folder.join("model"));
    write_tokenizer(&model, 137);
    let out = folder.join("out");
    planish_compile(&model, &out, &[]).succeeds();
    out
}

#[test]
fn text_goes_through_the_tokenizer_of_the_artifact() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let more = ["--max-new-tokens", "5", "--set=ignore_eos"];
    let of_ids = |ids: &Value| {
        let words = ids.as_array().unwrap().iter().filter(|id| **id != 1).map(|id| word(id.as_i64().unwrap()));
        words.collect::<Vec<_>>().join(" ")
    };
    let one = json(&out, &[&more[..], &["--prompt", "w7 w134  w56"]].concat());
    assert_eq!(one["ids"], ids(&out, &[&more[..], &["--ids", "1,7,134,56"]].concat()));
    assert_eq!(one["text"], of_ids(&one["ids"]));
    let shown = generate(&out, &[&more[..], &["--prompt", "w7 w134 w56"]].concat()).exits(0, &["5 tokens in"]);
    assert_eq!(shown.stdout, of_ids(&one["ids"]) + "\n");

    let two = json(&out, &[&more[..], &["--prompt", "w7 w134 w56", "--prompt", "nonsense"]].concat());
    assert_eq!(two["ids"][0], one["ids"]);
    assert_eq!(two["ids"][1], ids(&out, &[&more[..], &["--ids", "1,0"]].concat()));
    assert_eq!(two["text"][1], of_ids(&two["ids"][1]));

    generate(&out, &["--chat", "--prompt", "w134"]).exits(1, &["has no chat template", "--chat"]);
    std::fs::write(out.join("chat_template.jinja"), "<s> w7 {{ messages[0].content }} w56").unwrap();
    let chat = json(&out, &[&more[..], &["--chat", "--prompt", "w134"]].concat());
    assert_eq!(chat, one, "the template alone puts special tokens");

    std::fs::write(out.join("tokenizer.json"), "{}").unwrap();
    generate(&out, &["--prompt", "w7"]).exits(1, &["cannot read", "tokenizer.json"]);
}

/// A program that links the library gets what the command prints.
#[test]
fn the_library_generates_without_the_command() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    std::fs::write(out.join("chat_template.jinja"), "<s> w7 {{ messages[0].content }} w56").unwrap();
    let artifact = Artifact::open(&out).unwrap();
    let mut options = GenerateOptions { threads: 1, ..GenerateOptions::of(&artifact).unwrap() };
    options.config.max_new_tokens = NonZeroUsize::new(5);
    options.config.ignore_end_tokens();
    let prompts = [
        (Prompts::Texts(vec!["w7 w134".to_owned(), "w5".to_owned()]), &["--prompt", "w7 w134", "--prompt", "w5"][..]),
        (
            Prompts::Messages(vec!["w134".to_owned(), "w2".to_owned()]),
            &["--chat", "--prompt", "w134", "--prompt", "w2"],
        ),
        (Prompts::Ids(vec![vec![1, 7], vec![5]]), &["--ids", "1,7", "--ids", "5"]),
    ];
    for draws in [false, true] {
        options.config.do_sample = draws;
        options.config.temperature = 2.0;
        options.seed = 3;
        let draws = if draws { &["--temperature", "2", "--seed", "3"][..] } else { &[] };
        for (prompts, arguments) in &prompts {
            let mut streamed = vec![(Vec::new(), String::new()); 2];
            let mut on_piece = |piece: Piece<'_>| {
                streamed[piece.continuation].0.extend(piece.id);
                streamed[piece.continuation].1 += piece.text;
                Ok(ControlFlow::Continue(()))
            };
            let generated = planish::generate::generate(&artifact, prompts, &options, Some(&mut on_piece)).unwrap();
            // The first token of each prompt is not one of decoding.
            let decoding = (generated.total - generated.prompt).as_secs_f64();
            assert!(generated.tokens() == 10 && generated.tokens_per_second() == Some(8.0 / decoding));
            assert_eq!(generated.prompt_tokens_per_second().is_some(), generated.prompt_tokens > 0);
            assert!(generated.prompt <= generated.first_token && generated.first_token <= generated.total);
            let printed = json(&out, &[&["--max-new-tokens", "5", "--set=ignore_eos"], *arguments, draws].concat());
            for (number, continuation) in generated.continuations.iter().enumerate() {
                assert_eq!(
                    (json!(continuation.ids), continuation.stop),
                    (printed["ids"][number].clone(), Stop::MaxNewTokens)
                );
                assert_eq!(json!(continuation.text), printed["text"][number]);
                let (ids, text) = &streamed[number];
                assert_eq!((ids, text), (&continuation.ids, &continuation.text.clone().unwrap_or_default()));
            }
        }
    }
}
