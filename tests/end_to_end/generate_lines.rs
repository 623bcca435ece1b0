//! `planish generate --prompts`: lines of JSON in and out.

use std::path::Path;

use serde_json::{Value, json};

use crate::chat::{conversing, typed};
use crate::generate::{generate, json as document, with_tokenizer};
use crate::support::scratch;

/// The lines that a file of prompts gives.
fn run(out: &Path, lines: &[Value], more: &[&str]) -> Vec<Value> {
    let file = out.join("prompts.jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, text).unwrap();
    let done = generate(out, &[&["--prompts", file.to_str().unwrap()], more].concat()).exits(0, &[]);
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_line_gives_what_its_prompt_gives_alone() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let common = ["--set=ignore_eos", "--temperature", "3", "--max-new-tokens", "6", "--seed", "9"];
    let lines = [
        json!({"prompt": "w7 w134 w56", "id": "first"}),
        json!({"prompt": "w5", "max_new_tokens": 3, "seed": 40}),
        json!({"ids": [5, 6, 7, 8], "id": 3}),
        json!({"prompt": "w9 w9", "max_new_tokens": 9}),
    ];
    let of = |prompt: &[&str], tokens: &str, seed: &str| {
        [&["--max-new-tokens", tokens, "--seed", seed][..], prompt]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let alone = [
        of(&["--prompt", "w7 w134 w56"], "6", "9"),
        of(&["--prompt", "w5"], "3", "40"),
        of(&["--ids", "5,6,7,8"], "6", "11"),
        of(&["--prompt", "w9 w9"], "9", "12"),
    ];
    for batch in ["batch=1", "batch=3", "batch=8", "use_cache=false"] {
        let found = run(&out, &lines, &[&common[..], &["--set", batch]].concat());
        assert_eq!(found.len(), 4);
        for (line, alone) in found.iter().zip(&alone) {
            let arguments: Vec<&str> = ["--set=ignore_eos", "--temperature", "3"]
                .into_iter()
                .chain(alone.iter().map(String::as_str))
                .collect();
            let whole = document(&out, &arguments);
            assert_eq!((&line["ids"], line.get("text")), (&whole["ids"], whole.get("text")), "{batch}: {line}");
            assert_eq!(line["new_tokens"], whole["ids"].as_array().unwrap().len());
            assert_eq!(line["stop"], "max_new_tokens");
        }
        assert_eq!((&found[0]["id"], found[1].get("id"), &found[2]["id"]), (&json!("first"), None, &json!(3)));
        // The beginning of a text is a token too.
        assert_eq!(found.iter().map(|line| line["prompt_tokens"].as_u64().unwrap()).collect::<Vec<_>>(), [4, 2, 4, 3]);
    }
}

#[test]
fn each_line_says_why_it_stopped() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let greedy = document(&out, &["--prompt", "w7 w134", "--max-new-tokens", "8", "--set=ignore_eos"]);
    let ids = greedy["ids"].as_array().unwrap();
    let word = format!("w{}", ids[2]);
    let long: Vec<i64> = vec![5; 62];
    let lines = [
        json!({"prompt": "w7 w134", "stop": word}),
        json!({"prompt": "w7 w134", "stop": ["nowhere"], "max_new_tokens": 2}),
        json!({"ids": long}),
    ];
    let stops = |found: &[Value]| found.iter().map(|line| line["stop"].clone()).collect::<Vec<_>>();
    let found = run(&out, &lines, &["--max-new-tokens", "8", "--set=ignore_eos"]);
    assert_eq!(stops(&found), ["stop_string", "max_new_tokens", "context"]);
    assert!(!found[0]["text"].as_str().unwrap().contains(&word));
    let ends = json!({"eos_token_id": ids[0]});
    std::fs::write(out.join("generation_config.json"), ends.to_string()).unwrap();
    assert_eq!(stops(&run(&out, &lines[1..2], &[])), ["end_token"]);
    // Several continuations are lists.
    let found = run(&out, &lines[..1], &["--beams", "3", "--set", "num_return_sequences=2", "--max-new-tokens", "2"]);
    assert_eq!(found[0]["ids"].as_array().unwrap().len(), 2);
    assert_eq!(found[0]["stop"].as_array().unwrap().len(), 2);
    // Lines that read ahead are batches of one.
    let ahead = run(&out, &lines[1..], &["--set", "prompt_lookup_num_tokens=3", "--max-new-tokens", "4"]);
    assert_eq!(ahead.len(), 2);
}

#[test]
fn lines_may_be_conversations_and_come_from_standard_input() {
    let folder = scratch();
    let out = conversing(folder.path());
    let more = ["--max-new-tokens", "4", "--set=ignore_eos"];
    let of_text = document(&out, &[&more[..], &["--prompt", "w9 w3 w7 w5 w8"]].concat());
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let lines = [json!({"messages": [message("system", "w3"), message("user", "w5")]})];
    assert_eq!(run(&out, &lines, &more)[0]["ids"], of_text["ids"]);
    let prompts = [json!({"prompt": "w5"}), lines[0].clone()];
    let found = run(&out, &prompts, &[&more[..], &["--chat", "--system", "w3"]].concat());
    assert!(found.iter().all(|line| line["ids"] == of_text["ids"]), "{found:?}");
    let text: String = prompts.iter().map(|line| format!("\n{line}\n")).collect();
    let done = typed(&out, &[&more[..], &["--prompts", "-", "--chat", "--system", "w3"]].concat(), text.as_bytes());
    assert_eq!(done.exits(0, &["2 prompts, 8 tokens in "]).stdout.lines().count(), 2);
}

#[test]
fn what_is_wrong_with_a_line_is_said_before_anything_is_loaded() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let file = out.join("in.jsonl");
    let refused = |text: &str, more: &[&str], parts: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let more = [&["--prompts", file.to_str().unwrap(), "--runtime-option", "ort-lib=nowhere.so"], more].concat();
        let done = generate(&out, &more).exits(1, parts);
        assert_eq!(done.stdout, "");
    };
    let good = "{\"prompt\": \"w5\"}\n";
    refused(&format!("{good}\n{{\"prompt\": 5}}"), &[], &["in.jsonl, line 3: `prompt` is not a string"]);
    refused(
        &format!("{good}{{\"ids\": [500]}}"),
        &[],
        &["in.jsonl, line 2: the prompt's id 500 is not in the vocabulary"],
    );
    refused(&format!("{good}{{\"ids\": []}}"), &[], &["line 2: a prompt has no tokens"]);
    refused(
        &format!("{good}{{\"ids\": [5], \"stop\": \"a\"}}"),
        &[],
        &["line 2: `stop` is for texts, and this prompt is token ids; leave `stop` out"],
    );
    refused(&format!("{good}{{\"prompt\": \"w5\", \"top_p\": 1}}"), &[], &["line 2: there is no key `top_p`"]);
    refused(good, &["--chat"], &["line 1: ", "has no chat template"]);
    refused("\n \n", &[], &["in.jsonl has no prompts"]);
    std::fs::write(out.join("tools.json"), "[{\"name\": \"a\"}]").unwrap();
    let tools = out.join("tools.json");
    refused(good, &["--tools", tools.to_str().unwrap()], &["--tools is for the chat template", "add --chat"]);
    generate(&out, &["--prompts", "nowhere.jsonl"]).exits(1, &["nowhere.jsonl"]);
    generate(&out, &["--prompts", "a", "--prompt", "b"]).exits(2, &["cannot be used with"]);
    generate(&out, &["--prompt", "w5", "--set", "batch=2"]).exits(2, &["--set batch is for --prompts"]);
}
