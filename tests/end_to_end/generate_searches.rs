//! Searches of `planish generate` beside those of the transformers library: sampled beams, several continuations, penalties.

use serde_json::{Value, json};

use crate::generate::{artifact, generate, ids, json as document, list, stored, with_tokenizer};
use crate::support::{golden, scratch};

/// Cases of tools/searches.py.
fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sampling/searches.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn searches_find_what_the_transformers_library_finds() {
    let (cases, mut compared) = (cases(), 0);
    for name in ["gpt2", "qwen2", "t5", "bart"] {
        let (_folder, out) = artifact(&golden(name), &[]);
        // The end tokens of a case are the only ones.
        let path = out.join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["eos_token_id"] = Value::Null;
        std::fs::write(path, config.to_string()).unwrap();
        let prompt = list(&stored(name, "in.prompt"));
        for case in cases.iter().filter(|case| case["golden"] == name) {
            std::fs::write(out.join("generation_config.json"), case["settings"].to_string()).unwrap();
            let seed = case["seed"].to_string();
            let seed = if case["settings"]["do_sample"] == true { &["--seed", seed.as_str()][..] } else { &[] };
            let found = ids(&out, &[&["--ids", prompt.as_str()], seed].concat());
            let one = case["ids"].as_array().unwrap().len() == 1;
            assert_eq!(found, if one { case["ids"][0].clone() } else { case["ids"].clone() }, "{case}");
            compared += 1;
        }
    }
    assert_eq!(compared, cases.len());
}

/// Each continuation draws what it would draw alone with its own seed, and the prompts are read once.
#[test]
fn continuations_are_those_of_their_seeds() {
    for (name, cache) in
        [("gpt2", "copy"), ("t5", "copy"), ("lfm2", "copy"), ("phi3-longrope", "copy"), ("lfm2", "in-place")]
    {
        let prompt = stored(name, "in.prompt");
        let (_folder, out) = artifact(&golden(name), &["--target", "ort", "--recipe", &format!("cache={cache}")]);
        let common = ["--max-new-tokens", "8", "--temperature", "3", "--set=ignore_eos"];
        let run = |prompts: &[&[i64]], more: &[&str]| {
            let prompts: Vec<String> = prompts.iter().map(|ids| list(ids)).collect();
            let prompts = prompts.iter().flat_map(|ids| ["--ids", ids.as_str()]).collect::<Vec<_>>();
            ids(&out, &[&common, &prompts[..], more].concat())
        };
        let both = run(&[&prompt, &prompt[2..]], &["--set", "num_return_sequences=3", "--seed", "5"]);
        let alone = |ids: &[i64], seed: u64| run(&[ids], &["--seed", &seed.to_string()]);
        let expected: Vec<Value> = (0..6).map(|n| alone(if n < 3 { &prompt } else { &prompt[2..] }, 5 + n)).collect();
        assert_eq!(both, json!(expected), "{name} {cache}");
        assert_eq!(
            both,
            run(&[&prompt, &prompt[2..]], &["--set", "num_return_sequences=3,use_cache=false", "--seed", "5"])
        );
    }
}

#[test]
fn texts_of_several_continuations_are_lines() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let common = ["--prompt", "w7 w134", "--max-new-tokens", "4", "--set", "ignore_eos,num_return_sequences=3"];
    let sampled = [&common[..], &["--temperature", "3"]].concat();
    let all = document(&out, &sampled);
    let texts: Vec<&str> = all["text"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!((texts.len(), all["ids"].as_array().unwrap().len()), (3, 3));
    assert_eq!(generate(&out, &sampled).exits(0, &[]).stdout, texts.join("\n") + "\n");
    let beams = document(&out, &[&common[..], &["--beams", "3"]].concat());
    assert_eq!(
        beams["ids"][0],
        document(&out, &["--prompt", "w7 w134", "--max-new-tokens", "4", "--set=ignore_eos", "--beams", "3"])["ids"]
    );
    generate(&out, &common).exits(1, &["`num_return_sequences` is 3, and greedy search has one", "--beams 3"]);
    generate(&out, &[&common[..], &["--beams", "2"]].concat()).exits(1, &["3 and there are 2 beams", "--beams 3"]);
    generate(&out, &["--chat", "--temperature", "1", "--set", "num_return_sequences=2"])
        .exits(1, &["a conversation goes on from one answer", "`num_return_sequences` is 2"]);
}

/// A beam whose text has the string ends there, as one with an end token does.
#[test]
fn strings_end_beams() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let common =
        ["--prompt", "w7 w134 w56", "--max-new-tokens", "10", "--set=ignore_eos,length_penalty=0", "--beams", "4"];
    let whole = document(&out, &common);
    let words: Vec<&str> = whole["text"].as_str().unwrap().split_whitespace().collect();
    // Each word is a token: to end with a word is to end with its id, but for its being in the text.
    let word = words[1];
    let stopped = document(&out, &[&common[..], &["--stop", word]].concat());
    let end = "--set=length_penalty=0";
    let id = word[1..].to_owned();
    let settings = json!({"eos_token_id": id.parse::<i64>().unwrap()});
    std::fs::write(out.join("generation_config.json"), settings.to_string()).unwrap();
    let ended = document(&out, &["--prompt", "w7 w134 w56", "--max-new-tokens", "10", "--beams", "4", end]);
    assert_eq!(stopped["ids"], ended["ids"]);
    assert!(stopped["ids"].as_array().unwrap().len() < 10 && !stopped["text"].as_str().unwrap().contains(word));
}
