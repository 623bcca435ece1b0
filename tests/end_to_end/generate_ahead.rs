//! `planish generate --set prompt_lookup_num_tokens=N` and `--set prefill_chunk_size=N`: other runs of the model, and the same ids.

use std::fs;

use serde_json::{Value, json};

use crate::generate::{artifact, generate, ids, json, list, stored};
use crate::support::{Draft, golden, planish_compile, scratch};

/// Decoders that differ in what keys depend on: positions, windows, and frequencies that change with the length.
const DECODERS: [&str; 7] = ["gpt2", "opt", "llama", "mistral", "gemma2", "llama-dynamic", "phi3-longrope"];

/// Each with the options of the forms of its cache.
fn forms() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let copying = DECODERS.into_iter().map(|name| (name, &[][..]));
    copying.chain(["llama", "mistral", "gemma2"].map(|name| (name, &["--recipe", "cache=in-place"][..])))
}

#[test]
fn reading_ahead_changes_no_greedy_text() {
    for (name, cache) in forms() {
        let (_folder, out) = artifact(&golden(name), cache);
        let prompt = stored(name, "in.prompt");
        let twice = list(&[&prompt[..], &prompt].concat());
        let common = ["--ids", &twice, "--max-new-tokens", "24", "--greedy"];
        for more in [&["--set=ignore_eos"][..], &["--set=ignore_eos", "--set=repetition_penalty=1.5"], &[]] {
            let common = [&common[..], more].concat();
            let plain = ids(&out, &common);
            let (mut candidates, mut fewer) = (0, false);
            for lookup in [
                &["--set", "prompt_lookup_num_tokens=1"][..],
                &["--set", "prompt_lookup_num_tokens=6,max_matching_ngram_size=1"],
            ] {
                let document = json(&out, &[&common[..], lookup].concat());
                let context = format!("{name} {cache:?} {more:?} {lookup:?}");
                assert_eq!(document["ids"], plain, "{context}");
                let count = |key: &str| document["prompt_lookup"][key].as_u64().unwrap();
                let tokens = plain.as_array().unwrap().len() as u64;
                assert!(count("accepted") <= count("candidates"), "{context}: {document}");
                // A text may end with a token that was read ahead: then no other token is of the run that read it.
                assert!([tokens, tokens + 1].contains(&(count("runs") + count("accepted"))), "{context}: {document}");
                candidates += count("candidates");
                fewer |= count("runs") < tokens;
            }
            if !more.contains(&"--set=ignore_eos") {
                continue;
            }
            // Frequencies that change with each token let a run read one token only.
            assert_eq!(candidates > 0, name != "llama-dynamic", "{name} {cache:?} {more:?}");
            let repeats = more.len() == 1 && !["llama-dynamic", "phi3-longrope"].contains(&name);
            assert!(fewer || !repeats, "{name} {cache:?}: nothing that was read ahead was kept");
        }
    }
}

/// Without a cache, and with the room for one token or none to read ahead.
#[test]
fn reading_ahead_needs_no_cache_and_ends_where_the_text_does() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let lookup = ["--set", "prompt_lookup_num_tokens=8"];
    for count in ["1", "2", "3", "20"] {
        let common = ["--ids", "5,6,5,6,5,6", "--set=ignore_eos", "--greedy", "--max-new-tokens", count];
        let plain = ids(&out, &common);
        assert_eq!(ids(&out, &[&common[..], &lookup].concat()), plain);
        assert_eq!(ids(&out, &[&common[..], &lookup, &["--set=use_cache=false"]].concat()), plain);
    }
    // As long as the model takes.
    let common = ["--ids", &list(&[7; 50]), "--set=ignore_eos", "--greedy", "--max-new-tokens", "100"];
    let longest = |more: &[&str]| generate(&out, &[&common[..], more].concat()).exits(0, &["stopped after 14 tokens"]);
    assert_eq!(longest(&lookup).stdout, longest(&[]).stdout);
    let summary = longest(&lookup).stderr;
    assert!(summary.contains(" tokens a run, ") && summary.contains(" tokens read ahead were kept"), "{summary}");
}

/// Rows that are padding alone in the first chunks, in one of them in part, and in none.
#[test]
fn prompts_in_chunks_are_continued_as_they_are_at_once() {
    for (name, cache) in forms() {
        let (_folder, out) = artifact(&golden(name), cache);
        let long: Vec<i64> = stored(name, "in.prompt").into_iter().cycle().take(23).collect();
        let prompts = [list(&long[..1]), list(&long), list(&long[3..12])];
        let prompts: Vec<&str> = prompts.iter().flat_map(|prompt| ["--ids", prompt]).collect();
        for search in [&["--greedy"][..], &["--set", "num_beams=3"]] {
            let common = [&["--max-new-tokens", "8", "--set=ignore_eos"][..], search, &prompts].concat();
            let whole = ids(&out, &common);
            for chunk in ["1", "4", "22", "23", "100"] {
                let chunked = ids(&out, &[&common[..], &["--set", &format!("prefill_chunk_size={chunk}")]].concat());
                assert_eq!(chunked, whole, "{name} {cache:?} {search:?}, chunks of {chunk}");
            }
        }
    }
}

/// A prompt that is longer than the usual chunk, one of several and alone.
#[test]
fn long_prompts_are_read_in_chunks() {
    let folder = scratch();
    let mut draft = Draft::of("llama");
    draft.config["max_position_embeddings"] = json!(2048);
    let model = draft.write(folder.path().join("model"));
    let long = list(&(0..600).map(|at| at * at % 131 + 3).collect::<Vec<_>>());
    for cache in [&[][..], &["--recipe", "cache=in-place"]] {
        let (_folder, out) = artifact(&model, cache);
        for others in [&[][..], &["--ids", "5,6,7"]] {
            let common = [&["--ids", &long, "--max-new-tokens", "4", "--set=ignore_eos"][..], others].concat();
            let whole = ids(&out, &[&common[..], &["--set", "prefill_chunk_size=600"]].concat());
            assert_eq!(ids(&out, &common), whole, "{cache:?} {others:?}");
        }
    }
}

#[test]
fn chunks_and_reading_ahead_go_together() {
    let (_folder, out) = artifact(&golden("llama"), &["--recipe", "cache=in-place"]);
    let common = ["--ids", "5,6,7,5,6,7,5", "--max-new-tokens", "20", "--set=ignore_eos", "--greedy"];
    let both = ["--set", "prefill_chunk_size=3,prompt_lookup_num_tokens=4"];
    assert_eq!(ids(&out, &[&common[..], &both].concat()), ids(&out, &common));
}

/// Nothing is loaded: no library is where it is looked for.
#[test]
fn what_cannot_read_ahead_is_refused() {
    let nowhere = ["--ids", "5,6", "--set", "prompt_lookup_num_tokens=4", "--runtime-option", "ort-lib=nowhere.so"];
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let refused = |more: &[&str], code: i32, parts: &[&str]| {
        generate(&out, &[&nowhere[..], more].concat()).exits(code, parts);
    };
    refused(&["--ids", "7"], 1, &["--set prompt_lookup_num_tokens takes one prompt, and there are 2"]);
    refused(&["--set", "num_beams=2"], 2, &["prompt_lookup_num_tokens is for greedy search", "num_beams"]);
    refused(&["--temperature", "2"], 2, &["prompt_lookup_num_tokens is for greedy search"]);
    generate(&out, &["--ids", "5", "--set", "max_matching_ngram_size=2"])
        .exits(2, &["no effect without prompt_lookup_num_tokens"]);
    for (settings, asked) in [("{\"do_sample\": true}", "sampled tokens"), ("{\"num_beams\": 2}", "beams")] {
        fs::write(out.join("generation_config.json"), settings).unwrap();
        generate(&out, &nowhere).exits(1, &["generation_config.json asks for", asked, "add --greedy"]);
    }
    generate(&out, &["--ids", "5", "--set", "prompt_lookup_num_tokens=0"])
        .exits(2, &["expected a whole number from 1"]);
    generate(&out, &["--ids", "5", "--set", "prefill_chunk_size=0"]).exits(2, &["expected a whole number from 1"]);
    generate(&out, &["--ids", "5", "--set", "prefill_chunk_size=4,use_cache=false"])
        .exits(2, &["use_cache=false leaves it out"]);
    let (_folder, last) = artifact(&golden("gpt2"), &["--recipe", "logits=last"]);
    generate(&last, &nowhere).exits(1, &["gives those of the last token only", "without --recipe logits=last"]);
    let (_folder, t5) = artifact(&golden("t5"), &[]);
    generate(&t5, &nowhere).exits(1, &["--set prompt_lookup_num_tokens is for decoders"]);
    generate(&t5, &["--ids", "5", "--set", "prefill_chunk_size=4"])
        .exits(1, &["--set prefill_chunk_size is for decoders"]);
}

/// The settings of the transformers library for a lookup change no text, so they are not refused.
#[test]
fn settings_of_a_lookup_have_no_effect() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let plain = ids(&out, &["--ids", "5,6", "--max-new-tokens", "4"]);
    std::fs::write(out.join("generation_config.json"), json!({"prompt_lookup_num_tokens": 10}).to_string()).unwrap();
    let document: Value = json(&out, &["--ids", "5,6", "--max-new-tokens", "4"]);
    assert_eq!(document, json!({"ids": plain}));
}

/// A graph does not say whether keys depend on the length of the text, so its prompts are read in one run.
#[test]
fn prompts_of_graphs_are_read_whole() {
    let (folder, mut draft) = (scratch(), Draft::of("llama-dynamic"));
    draft.config["rope_parameters"]["factor"] = 100.0.into();
    let model = draft.write(folder.path().join("model"));
    let (_folder, out) = artifact(&model, &[]);
    let again = folder.path().join("again");
    planish_compile(&out.join("model.onnx"), &again, &[]).exits(0, &[]);
    let prompt = list(&(0..600).map(|at| 3 + at * 7 % 120).collect::<Vec<i64>>());
    let common = ["--ids", &prompt, "--max-new-tokens", "12", "--greedy", "--set=ignore_eos"];
    let whole = ids(&out, &common);
    assert_eq!(ids(&again, &common), whole);
    // Here the keys do depend on the length, and who asks for chunks gets other ones.
    assert_ne!(ids(&again, &[&common[..], &["--set", "prefill_chunk_size=8"]].concat()), whole);
}
