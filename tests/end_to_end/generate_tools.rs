//! Tools that `planish generate` tells a model of, and the calls that the model writes.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::chat::typed;
use crate::generate::{generate, whole_json};
use crate::support::{Draft, planish_compile, scratch, word, write_tokenizer};

const CALL: &str = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}";

/// Says who speaks and how often, and whether there are tools.
const TEMPLATE: &str = "{% for tool in tools or [] %}w3 {% endfor %}{% for m in messages %}{{ {'system': 'w9', 'user': 'w7', \
                        'assistant': 'w8', 'tool': 'w11'}[m.role] }} {% if m.tool_calls %}w12 {% endif %}{% endfor %}";

/// A decoder whose answer is these tokens of its vocabulary, with its tools in a file. Tokens above the first two are special.
fn answering(folder: &Path, answer: &[&str], template: &str) -> (PathBuf, PathBuf) {
    let model = Draft::of("gpt2").write(folder.join("model"));
    write_tokenizer(&model, 137);
    let path = model.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let ids: Vec<i64> = (20..).take(answer.len()).collect();
    let text = |id: i64| match ids.iter().position(|own| *own == id) {
        Some(at) => answer[at].to_owned(),
        None => word(id),
    };
    tokenizer["model"]["vocab"] = (0..137).map(|id| (text(id), json!(id))).collect::<Map<_, _>>().into();
    for (id, text) in ids.iter().zip(answer).filter(|(_, text)| text.starts_with("[TOOL") || text.starts_with("<|")) {
        let flags = json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true});
        tokenizer["added_tokens"].as_array_mut().unwrap().push(flags);
    }
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    std::fs::write(model.join("chat_template.jinja"), template).unwrap();
    let out = folder.join("out");
    planish_compile(&model, &out, &[]).succeeds();
    // Each token once, in their order: what has been said forbids what came before the last token.
    let all: Vec<i64> = (0..137).filter(|id| !ids.contains(id)).collect();
    let wrong: Vec<Vec<i64>> =
        ids.iter().flat_map(|a| ids.iter().filter(move |b| **b != a + 1).map(move |b| vec![*a, *b])).collect();
    let settings = json!({"suppress_tokens": all, "begin_suppress_tokens": &ids[1..], "bad_words_ids": wrong,
                          "max_new_tokens": ids.len()});
    std::fs::write(out.join("generation_config.json"), settings.to_string()).unwrap();
    let tools = folder.join("tools.json");
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    std::fs::write(&tools, json!([tool("weather"), tool("now")]).to_string()).unwrap();
    (out, tools)
}

#[test]
fn calls_are_json_beside_the_text() {
    let folder = scratch();
    let hermes = format!("<tool_call>{CALL}</tool_call>");
    let template = format!("{TEMPLATE}{{# <tool_call> #}}");
    let (out, tools) = answering(folder.path(), &["Wait.", &hermes], &template);
    let tools = tools.to_str().unwrap();
    let call: Value = serde_json::from_str(CALL).unwrap();
    let document = whole_json(&out, &["--chat", "--prompt", "w5", "--tools", tools]);
    assert_eq!((&document["ids"], &document["text"]), (&json!([20, 21]), &json!("Wait.")));
    assert_eq!(document["tool_calls"], json!([call]));
    // Two tools and the user are three words.
    assert_eq!(document["speed"]["prompt_tokens"], 3);
    let shown = generate(&out, &["--chat", "--prompt", "w5", "--tools", tools]).exits(0, &[]);
    assert_eq!(shown.stdout, format!("Wait.\n{call}\n"));
    // Without tools all is text.
    let plain = whole_json(&out, &["--chat", "--prompt", "w5"]);
    assert_eq!((&plain["text"], plain.get("tool_calls")), (&json!(format!("Wait. {hermes}")), None));

    // Lines have calls too, and lists of them where there are several continuations.
    let line = "{\"prompt\": \"w5\"}\n{\"ids\": [5]}\n";
    let lines = |more: &[&str]| {
        let done = typed(&out, &[&["--prompts", "-", "--chat", "--tools", tools], more].concat(), line.as_bytes());
        done.exits(0, &[]).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let found = lines(&[]);
    assert_eq!((&found[0]["text"], &found[0]["tool_calls"]), (&json!("Wait."), &json!([call])));
    assert_eq!((found[1].get("text"), &found[1]["tool_calls"]), (None, &json!([])));
    let several = lines(&["--temperature", "1", "--set", "num_return_sequences=2"]);
    assert_eq!(several[0]["tool_calls"], json!([[call], [call]]));

    // Results go on after the calls that they are of.
    let input = "w5\n{\"role\": \"tool\", \"content\": \"sunny\"}\n[{\"role\": \"tool\", \"content\": \"a\"}, {\"role\": \"tool\", \"content\": \"b\"}]\n{\"a\": 1}\n";
    let done = typed(&out, &["--chat", "--json", "--tools", tools], input.as_bytes()).succeeds();
    let answers: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tokens: Vec<u64> = answers.iter().map(|answer| answer["speed"]["prompt_tokens"].as_u64().unwrap()).collect();
    // Each turn adds the call of two words and its results; what is no result is a message of the user.
    assert_eq!(tokens, [3, 6, 10, 13]);
    assert!(answers.iter().all(|answer| answer["tool_calls"] == json!([call])), "{answers:?}");
    let shown = typed(&out, &["--chat", "--tools", tools], b"w5\n").succeeds();
    assert_eq!(shown.stdout, format!("Wait.\n{call}\n"));
}

#[test]
fn marks_of_calls_may_be_special_tokens() {
    let call: Value = serde_json::from_str(CALL).unwrap();
    let list = format!("[{CALL}]");
    let llama = CALL.replace("arguments", "parameters");
    for answer in [["[TOOL_CALLS]", list.as_str()], ["<|python_tag|>", llama.as_str()]] {
        let folder = scratch();
        // The template has no mark, and the tokenizer does.
        let (out, tools) = answering(folder.path(), &answer, TEMPLATE);
        let document = whole_json(&out, &["--chat", "--prompt", "w5", "--tools", tools.to_str().unwrap()]);
        assert_eq!((&document["text"], &document["tool_calls"]), (&json!(""), &json!([call])), "{answer:?}");
    }
}

#[test]
fn tools_that_cannot_be_told_of_are_refused() {
    let folder = scratch();
    let (out, tools) = answering(folder.path(), &["Wait.", "now"], TEMPLATE);
    let tools = tools.to_str().unwrap();
    generate(&out, &["--chat", "--prompt", "w5", "--tools", tools])
        .exits(1, &["neither the chat template nor the tokenizer has `<tool_call>`", "leave out --tools"]);
    generate(&out, &["--prompt", "w5", "--tools", tools]).exits(2, &["--tools is for the chat template; add --chat"]);
    generate(&out, &["--ids", "5", "--tools", tools]).exits(2, &["cannot be used with"]);
    generate(&out, &["--chat", "--prompt", "w5", "--tools", "nowhere.json"]).exits(1, &["nowhere.json"]);
    std::fs::write(out.join("chat_template.jinja"), "w5 <tool_call>").unwrap();
    generate(&out, &["--chat", "--prompt", "w5", "--tools", tools]).exits(1, &["does not use `tools`"]);
}
