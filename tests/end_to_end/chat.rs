//! What `planish generate` does with texts: streaming, strings that stop, standard input, system messages, conversations.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::generate::{generate, whole_json as document, with_tokenizer};
use crate::support::{Done, Draft, command, planish_compile, scratch, write_tokenizer};

/// Each message by its role, and what the model says next. Special tokens are the template's.
const TEMPLATE: &str = "<s>{% for m in messages %} {{ {'system': 'w9', 'user': 'w7', 'assistant': 'w8'}[m.role] }} {{ m.content }}\
                        {% endfor %} w8";

/// A decoder with a tokenizer of words and a chat template.
pub(crate) fn conversing(folder: &Path) -> PathBuf {
    let out = with_tokenizer(folder);
    std::fs::write(out.join("chat_template.jinja"), TEMPLATE).unwrap();
    out
}

/// Runs `planish generate` with a text on standard input.
pub(crate) fn typed(artifact: &Path, more: &[&str], input: &[u8]) -> Done {
    let arguments = [&["generate", artifact.to_str().unwrap(), "--threads", "1"], more].concat();
    let mut child =
        command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().into()
}

/// The words of a text.
fn words(text: &Value) -> Vec<&str> {
    text.as_str().unwrap().split(' ').filter(|word| !word.is_empty()).collect()
}

#[test]
fn a_text_ends_before_a_string_that_stops_it() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let common =
        ["--prompt", "w7 w134 w56", "--max-new-tokens", "24", "--set=ignore_eos", "--temperature", "3", "--top-k", "0"];
    let whole = document(&out, &common);
    let all = words(&whole["text"]);
    // Words of two tokens, the space between them included.
    let pair = format!("{} {}", all[9], all[10]);
    let stopped = document(&out, &[&common[..], &["--stop", "nowhere", "--stop", &pair]].concat());
    let text = whole["text"].as_str().unwrap();
    assert_eq!(stopped["text"], text[..text.find(&pair).unwrap()]);
    let (ids, of_all) = (stopped["ids"].as_array().unwrap(), whole["ids"].as_array().unwrap());
    assert!(ids.len() < of_all.len() && of_all.starts_with(ids), "no more tokens are computed");
    // What is streamed is the same, and ends with a line.
    let shown = generate(&out, &[&common[..], &["--stop", &pair]].concat()).exits(0, &[]);
    assert_eq!(shown.stdout, format!("{}\n", stopped["text"].as_str().unwrap()));
    let shown = generate(&out, &common).exits(0, &[]);
    assert_eq!(shown.stdout, format!("{text}\n"));
    // Each prompt of a batch stops for itself.
    let two = document(&out, &[&common[..], &["--prompt", "w5", "--stop", &pair]].concat());
    assert_eq!(two["text"][0], stopped["text"]);
    assert!(two["ids"][1].as_array().unwrap().len() > ids.len());
    // The settings of the artifact have such strings too, and arguments replace them.
    std::fs::write(out.join("generation_config.json"), json!({"stop_strings": [pair]}).to_string()).unwrap();
    assert_eq!(document(&out, &common)["text"], stopped["text"]);
    assert_eq!(document(&out, &[&common[..], &["--stop", "nowhere"]].concat())["text"], whole["text"]);
    generate(&out, &["--ids", "5"]).exits(1, &["could end with a string of stop_strings"]);
    generate(&out, &["--prompt", "w5", "--stop", ""]).exits(2, &["--stop", "empty"]);
    generate(&out, &["--ids", "5", "--stop", "a"]).exits(2, &["cannot be used with"]);
}

/// A character of two tokens is never written in half.
#[test]
fn bytes_of_characters_are_streamed_whole() {
    let folder = scratch();
    let model = Draft::of("gpt2").write(folder.path().join("model"));
    write_tokenizer(&model, 137);
    let path = model.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // Tokens are bytes: even ids begin a character of two bytes, odd ones end it.
    let vocabulary = (0..137).map(|id| (if id == 1 { "<s>".to_owned() } else { format!("w{id}") }, json!(id)));
    let pairs = |id: i64| if id % 2 == 0 { "<0xC3>" } else { "<0xA9>" };
    tokenizer["model"] =
        json!({"type": "WordLevel", "vocab": serde_json::Map::from_iter(vocabulary), "unk_token": "w0"});
    let replaced: Vec<Value> = (2..137)
        .rev()
        .map(|id| json!({"type": "Replace", "pattern": {"String": format!("w{id}")}, "content": pairs(id)}))
        .collect();
    let bytes = vec![json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    let decoders = [replaced, bytes].concat();
    tokenizer["decoder"] = json!({"type": "Sequence", "decoders": decoders});
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).succeeds();
    for seed in 0..4 {
        let seed = seed.to_string();
        let common =
            ["--prompt", "w7", "--max-new-tokens", "30", "--set=ignore_eos", "--temperature", "9", "--seed", &seed];
        let text = document(&out, &common)["text"].as_str().unwrap().to_owned();
        // The harness refuses output that is not UTF-8.
        assert_eq!(generate(&out, &common).exits(0, &[]).stdout, text + "\n");
    }
}

#[test]
fn a_prompt_comes_from_standard_input() {
    let folder = scratch();
    let out = conversing(folder.path());
    let more = ["--max-new-tokens", "5", "--set=ignore_eos", "--prompt"];
    let ids = |done: Done| serde_json::from_str::<Value>(&done.succeeds().stdout).unwrap()["ids"].take();
    let given = document(&out, &[&more[..], &["w7 w134\nw56"]].concat())["ids"].take();
    for input in ["w7 w134\nw56", "w7 w134\nw56\n", "w7 w134\nw56\r\n"] {
        assert_eq!(ids(typed(&out, &[&["--json"], &more[..], &["-"]].concat(), input.as_bytes())), given);
    }
    let chat = document(&out, &[&more[..], &["w5", "--chat"]].concat())["ids"].take();
    assert_eq!(ids(typed(&out, &[&["--json"], &more[..], &["-", "--chat"]].concat(), b"w5\n")), chat);
    typed(&out, &[&more[..], &["-"]].concat(), b"w7 \xff").exits(1, &["standard input is not UTF-8"]);
    typed(&out, &[&more[..], &["-"]].concat(), &[b' '; (4 << 20) + 1]).exits(1, &["longer than 4 MB"]);
    typed(&out, &[&more[..], &["-", "--prompt", "-"]].concat(), b"w7").exits(2, &["give it once"]);
}

/// A turn gives what one prompt with all of the conversation gives, and reads only what is new.
#[test]
fn a_conversation_goes_on_from_what_was_said() {
    let folder = scratch();
    let out = conversing(folder.path());
    for cache in ["copy", "none"] {
        let settings = ["--max-new-tokens", "6", "--set=ignore_eos"];
        let caching = if cache == "none" { &["--set=use_cache=false"][..] } else { &[] };
        let chat = [&settings[..], caching, &["--chat", "--json", "--system", "w11 w12"]].concat();
        let done = typed(&out, &chat, b"w5 w6\n\nw20\nw21 w22").succeeds();
        let answers: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 3, "an empty line is no message");
        let mut text = "w9 w11 w12".to_owned();
        let mut read = 0;
        for (message, answer) in ["w5 w6", "w20", "w21 w22"].iter().zip(&answers) {
            text += &format!(" w7 {message} w8");
            let whole = document(&out, &[&settings[..], &["--prompt", &text]].concat());
            assert_eq!(answer["ids"], whole["ids"], "{cache}: {text}");
            text += &format!(" {}", answer["text"].as_str().unwrap());
            let speed = &answer["speed"];
            let count = |key: &str| speed[key].as_u64().unwrap();
            assert_eq!(speed["prompt_tokens"], whole["speed"]["prompt_tokens"]);
            // Of the last answer all but its last token was read.
            let kept = if cache == "none" { 0 } else { read };
            assert_eq!(count("cached_tokens"), kept, "{cache}: {text}");
            read = count("prompt_tokens") + 5;
        }
        assert_eq!(answers[0]["speed"]["cached_tokens"], 0);
        assert!(answers[0]["speed"]["loading_s"].is_number() && answers[1]["speed"]["loading_s"].is_null());
    }
    // As text: an answer a line, and nothing else where nobody types.
    let more = ["--max-new-tokens", "2", "--set=ignore_eos", "--chat"];
    let done = typed(&out, &more, b"w5\nw6\n").succeeds();
    assert_eq!(done.stdout.lines().count(), 2);
    assert_eq!(typed(&out, &more, b"").succeeds().stdout, "");
}

/// The model takes 64 tokens.
#[test]
fn a_conversation_that_gets_too_long_loses_its_beginning() {
    let folder = scratch();
    let out = conversing(folder.path());
    let long = vec!["w5"; 24].join(" ") + "\n";
    let more = ["--max-new-tokens", "8", "--set=ignore_eos", "--chat", "--json"];
    let done = typed(&out, &more, long.repeat(3).as_bytes()).exits(0, &["note: the 2 oldest messages are left out"]);
    let tokens = |line: &str| serde_json::from_str::<Value>(line).unwrap()["speed"]["prompt_tokens"].as_u64().unwrap();
    assert!(done.stdout.lines().map(tokens).all(|tokens| tokens <= 64 - 8), "{}", done.stdout);
    let done = typed(&out, &more, vec!["w5"; 70].join(" ").as_bytes());
    done.exits(1, &["73 tokens", "takes 64", "shorten"]);
}

#[test]
fn conversations_that_cannot_be_are_refused() {
    let folder = scratch();
    let out = conversing(folder.path());
    generate(&out, &[]).exits(2, &["--prompt", "--ids", "--chat"]);
    generate(&out, &["--prompt", "w5", "--system", "w6"]).exits(2, &["--chat"]);
    generate(&out, &["--chat", "--set", "num_beams=2"]).exits(1, &["2 beams", "--greedy"]);
    std::fs::write(out.join("chat_template.jinja"), "{{ raise_exception('no ' ~ messages[0].role) }}").unwrap();
    typed(&out, &["--chat", "--system", "w6"], b"w5\n").exits(1, &["no system"]);
    std::fs::remove_file(out.join("chat_template.jinja")).unwrap();
    generate(&out, &["--chat"]).exits(1, &["has no chat template"]);
}

/// A conversation with an answer without end.
fn endless(out: &Path) -> Child {
    let out = out.to_str().unwrap();
    let arguments =
        ["--default-signal=INT", env!("CARGO_BIN_EXE_planish"), "generate", out, "--chat", "--threads", "1"];
    let mut command = std::process::Command::new("env");
    command.args(arguments).args(["--set", "ignore_eos,use_cache=false", "--max-new-tokens", "1000000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn an_interrupt_stops_the_answer_and_another_one_the_command() {
    let folder = scratch();
    let mut draft = Draft::of("llama");
    draft.config["max_position_embeddings"] = json!(1_000_000);
    let model = draft.write(folder.path().join("model"));
    write_tokenizer(&model, 137);
    std::fs::write(model.join("chat_template.jinja"), TEMPLATE).unwrap();
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).succeeds();
    let mut child = endless(&out);
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for message in ["w5\n", "w6\n"] {
        input.write_all(message.as_bytes()).unwrap();
        // The answer has begun.
        let begun = output.fill_buf().unwrap().len();
        assert!(begun > 0);
        interrupt(&child);
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the answer ended");
        assert!(child.try_wait().unwrap().is_none(), "the command goes on");
    }
    // Between answers it ends the command.
    thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A line of `w` words calls a tool, and its result goes on.
#[test]
fn states_of_a_fixed_size_stay_from_turn_to_turn() {
    for name in ["lfm2", "mamba", "qwen3-5"] {
        let folder = scratch();
        let model = Draft::of(name).write(folder.path().join("model"));
        write_tokenizer(&model, 139);
        std::fs::write(model.join("chat_template.jinja"), TEMPLATE).unwrap();
        let out = folder.path().join("out");
        planish_compile(&model, &out, &["--target", "ort"]).succeeds();
        let settings = ["--max-new-tokens", "6", "--set=ignore_eos"];
        let done = typed(&out, &[&settings[..], &["--chat", "--json"]].concat(), b"w5 w6\nw20\nw21 w22").succeeds();
        let answers: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut text = String::new();
        // What the next turn begins with is all of what was read, if the text of an answer gives its tokens: <s> is not in it.
        let (mut kept, mut expected, mut same) = (Vec::new(), Vec::new(), false);
        for (message, answer) in ["w5 w6", "w20", "w21 w22"].iter().zip(&answers) {
            text += &format!(" w7 {message} w8");
            let whole = document(&out, &[&settings[..], &["--prompt", &text]].concat());
            assert_eq!(answer["ids"], whole["ids"], "{name}: {text}");
            text += &format!(" {}", answer["text"].as_str().unwrap());
            kept.push(answer["speed"]["cached_tokens"].as_u64().unwrap() > 0);
            expected.push(same);
            same = answer["ids"].as_array().unwrap().iter().all(|id| *id != 1);
        }
        assert_eq!(kept, expected, "{name}: {answers:?}");
        assert!(kept.contains(&true), "{name}: a turn goes on from states");
    }
}
