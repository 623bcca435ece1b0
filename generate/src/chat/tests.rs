//! What templates make of messages, and which are refused.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::*;

/// Templates and what transformers makes of messages with them, by tools/chat_templates.py.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/chat")
}

/// When the expected texts were made.
fn then() -> DateTime {
    DateTime::constant(2026, 2, 3, 4, 5, 6, 0)
}

/// In the manner of real ones: whitespace that blocks take away, namespaces, Python's methods.
const TEMPLATE: &str = "{{ bos_token }}
{%- set ns = namespace(turns=0) %}
{% for message in messages %}
    {% if message['role'] not in ['user', 'assistant'] %}
        {{ raise_exception('only users and assistants speak') }}
    {% endif %}
    {% set ns.turns = ns.turns + 1 %}
<|{{ message['role'] }}|> {{ message['content'].strip() }}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{{ ns.turns }}{% endif %}";

fn open(files: &[(&str, String)]) -> Result<Chat> {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    Chat::open(folder.path(), None)
}

#[test]
fn a_message_is_put_into_the_template_unescaped() {
    let tokens = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}});
    let chat = open(&[(TEMPLATE_FILE, TEMPLATE.to_owned()), ("tokenizer_config.json", tokens.to_string())]);
    assert_eq!(chat.unwrap().prompt(" 1 < 2 & \"so\" ").unwrap(), "<s><|user|> 1 < 2 & \"so\"</s>\n<|assistant|>1");
}

#[test]
fn templates_are_found_in_their_order() {
    let file = |text: &str| (TEMPLATE_FILE, text.to_owned());
    let chat = |text: &str| ("chat_template.json", json!({"chat_template": text}).to_string());
    let named = json!([{"name": "rag", "template": "rag"}, {"name": "default", "template": "named"}]);
    let tokenizer = ("tokenizer_config.json", json!({"chat_template": named}).to_string());
    let says = |files: &[(&str, String)]| open(files).unwrap().prompt("").unwrap();
    assert_eq!(says(&[file("file"), chat("chat"), tokenizer.clone()]), "file");
    assert_eq!(says(&[chat("chat"), tokenizer.clone()]), "chat");
    assert_eq!(says(&[tokenizer]), "named");
}

#[test]
fn what_is_no_template_is_refused() {
    let error = |files: &[(&str, String)]| format!("{:#}", open(files).err().unwrap());
    assert!(error(&[]).contains("no chat template"));
    assert!(error(&[(TEMPLATE_FILE, "{% if %}".to_owned())]).contains("invalid"));
    assert!(error(&[("tokenizer_config.json", "{".to_owned())]).contains("not a JSON document"));
    assert!(fails("{{ raise_exception('no users') }}").contains("no users"));
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    assert!(fails(endless).contains("fuel"));
}

#[test]
fn texts_are_those_of_the_transformers_library() {
    let expected = document(&fixtures().join("expected.json")).unwrap();
    assert_eq!(expected["now"], json!(then().to_string()));
    let messages = expected["messages"].as_array().unwrap();
    let (mut compared, mut differences) = (0, Vec::new());
    for (name, texts) in expected["texts"].as_object().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(fixtures().join("tokenizer_config.json"), folder.path().join("tokenizer_config.json")).unwrap();
        fs::copy(fixtures().join(format!("templates/{name}.jinja")), folder.path().join(TEMPLATE_FILE)).unwrap();
        let chat = match Chat::open_at(folder.path(), None, then) {
            Ok(chat) => chat,
            Err(error) => {
                differences.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        for (message, expected) in messages.iter().zip(texts.as_array().unwrap()) {
            compared += 1;
            let text = chat.prompt(message.as_str().unwrap()).map_err(|error| format!("{error:#}"));
            match (text, expected.as_str(), expected["error"].as_str()) {
                (Ok(text), Some(expected), _) if text == expected => {}
                // How an error is worded is each library's own, but for what the template says.
                (Err(error), None, Some(expected)) if name != "raises" || error.contains(expected) => {}
                (text, ..) => differences.push(format!("{name}: {text:#?}\nexpected {expected:#?}")),
            }
        }
    }
    assert_eq!((differences.join("\n\n"), compared), (String::new(), 27 * 5));
}

/// Schemas and calls are written with their keys in their order.
#[test]
fn texts_with_tools_are_those_of_the_transformers_library() {
    let expected = &document(&fixtures().join("expected.json")).unwrap()["with_tools"];
    let tools = Tools(expected["tools"].as_array().unwrap().clone());
    let messages: Vec<Message> =
        expected["messages"].as_array().unwrap().iter().map(|message| Message::parse(message).unwrap()).collect();
    let mut differences = Vec::new();
    let all = expected["texts"].as_object().unwrap();
    assert_eq!(all.len(), 9);
    for (name, texts) in all {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(fixtures().join("tokenizer_config.json"), folder.path().join("tokenizer_config.json")).unwrap();
        fs::copy(fixtures().join(format!("templates/{name}.jinja")), folder.path().join(TEMPLATE_FILE)).unwrap();
        let chat = Chat::open_at(folder.path(), Some(tools.clone()), then);
        if name == "phi4" {
            // Its tools are in messages.
            assert!(chat.err().unwrap().to_string().contains("does not use `tools`"));
            continue;
        }
        let chat = chat.unwrap();
        for (part, expected) in [&messages[1..2], &messages].into_iter().zip(texts.as_array().unwrap()) {
            match (chat.conversation(part), expected.as_str()) {
                (Ok(text), Some(expected)) if text == expected => {}
                (Err(_), None) => {}
                (text, _) => differences.push(format!("{name}: {text:#?}\nexpected {expected:#?}")),
            }
        }
    }
    assert_eq!(differences.join("\n\n"), "");
}

/// What a conversation makes of calls and their results is what a template of Mistral asks for.
#[test]
fn calls_and_results_have_ids() {
    let calls = [Call { name: "a".to_owned(), arguments: json!({"x": 1}) }];
    let mut result = Message::parse(&json!({"role": "tool", "content": "2"})).unwrap();
    result.name_call(3);
    let template = fs::read_to_string(fixtures().join("templates/mistral-tools.jinja")).unwrap();
    let end = ("tokenizer_config.json", json!({"eos_token": "</s>"}).to_string());
    let chat = open(&[(TEMPLATE_FILE, template), end]);
    let text = chat.unwrap().conversation(&[Message::calling("", &calls, 3), result]).unwrap();
    let call = "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": 1}, \"id\": \"call00003\"}]";
    assert_eq!(text, format!("{call}</s>[TOOL_RESULTS] {{\"content\": 2, \"call_id\": \"call00003\"}}[/TOOL_RESULTS]"));
}

#[test]
fn parts_of_messages_are_texts_and_images() {
    let of = |content: Value| Message::parse(&json!({"role": "user", "content": content})).unwrap();
    let text = json!({"type": "text", "text": "a"});
    let listed = Message::with_images(&[of(json!("a"))], 2).unwrap();
    assert_eq!(listed, [of(json!([{"type": "image"}, {"type": "image"}, text]))]);
    let placed = [of(json!([text, {"type": "image"}]))];
    assert_eq!(Message::with_images(&placed, 1).unwrap(), placed);
    for part in
        [json!({"type": "image_url", "image_url": {"url": "a.png"}}), json!({"type": "video"}), json!({}), json!("a")]
    {
        let error = Message::with_images(&[of(json!([text, part]))], 1).unwrap_err().to_string();
        assert!(error.contains(&format!("`type` {}", part["type"])) && error.contains("\"images\""), "{error}");
    }
}

#[test]
fn tools_take_the_template_that_is_for_them() {
    let tools = || Some(Tools(vec![json!({"name": "a"})]));
    let text = |template: Value, tools: Option<Tools>| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer_config.json"), json!({"chat_template": template}).to_string()).unwrap();
        Chat::open(folder.path(), tools)?.prompt("")
    };
    let named = json!([{"name": "default", "template": "x{{ tools }}"}, {"name": "tool_use", "template": "{{ tools[0].name }}"}]);
    assert_eq!(text(named.clone(), tools()).unwrap(), "a");
    assert_eq!(text(named, None).unwrap(), "xNone");
    assert_eq!(text(json!("{{ tools | length }}"), tools()).unwrap(), "1");
    let error = text(json!("{{ messages | length }}"), tools()).unwrap_err().to_string();
    assert!(error.contains("does not use `tools`; leave out --tools"), "{error}");
}

/// The error of a template that is read and rendered: one line, and not a long one.
fn fails(template: &str) -> String {
    outcome(template).unwrap_err()
}

/// How many bytes a template makes, or its error.
fn outcome(template: &str) -> Result<usize, String> {
    let chat = open(&[(TEMPLATE_FILE, template.to_owned())]);
    let made = chat.and_then(|chat| Ok(chat.prompt("hello")?.len())).map_err(|error| format!("{error:#}"));
    made.inspect_err(|error| assert!(!error.contains('\n') && error.len() < 1000, "{error}"))
}

#[test]
fn templates_that_ask_for_too_much_are_refused() {
    let in_rounds = |rounds: usize, start: &str, step: &str| {
        format!(
            "{{% set ns = namespace(x={start}) %}}{{% for i in range({rounds}) %}}{{% set ns.x = {step} %}}{{% endfor %}}\
             {{{{ ns.x }}}}"
        )
    };
    let cases: &[(String, &str)] = &[
        ("{{ '%1000000000d' | format(1) }}".into(), "too wide"),
        ("{{ '%-010000000000s' | format(1) }}".into(), "too wide"),
        ("{{ '%(a)1000000000s' | format(a=1) }}".into(), "too wide"),
        ("{{ '%.1000000000f' | format(1.5) }}".into(), "too wide"),
        ("{{ '{:>10000000000}'.format(1) }}".into(), "too wide"),
        ("{{ '{0:.10000000000f}'.format(1.5) }}".into(), "too wide"),
        ("{{ '%*d' | format(1000000000, 1) }}".into(), "format"),
        ("{{ 'x' * 10**9 }}".into(), "too large"),
        ("{{ 'x' * 10**8 }}".into(), "longer than 4 MB"),
        ("{{ [1] * 10**12 }}".into(), "too large"),
        ("{{ 'a\nb' | indent(10**9) }}".into(), "an indent of 1000000000"),
        ("{{ [1] | tojson(indent=10**9) }}".into(), "an indent of 1000000000"),
        ("{% for i in range(10**9) %}{% endfor %}".into(), "too many elements"),
        ("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}".into(), "fuel"),
        (format!("{{% for a in range(50000) %}}{}{{% endfor %}}", "long ".repeat(20)), "4 MB"),
        ("{{ 'x' | center(10**9) }}{{ 'x'.ljust(10**9) }}".into(), "center"),
        ("{{ 'x'.ljust(10**9) }}".into(), "ljust"),
        ("{{ 10**1000 }}".into(), ""),
        ("{{ strftime_now('%1000000000d') }}".into(), "strftime_now"),
        ("{{ raise_exception('line\n' * 1000) }}".into(), "line line"),
        (in_rounds(60, "'xx'", "ns.x ~ ns.x"), "too much memory"),
        (in_rounds(60, "'xx'", "ns.x | replace('x', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')"), "memory"),
        (in_rounds(60, "[1, 2]", "[ns.x, ns.x]"), "MB"),
        (in_rounds(2000, "[1]", "[ns.x]"), "in each other"),
        (in_rounds(50000, "[1]", "[ns.x]"), ""),
        ("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".into(), "recursion"),
        ("{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}".into(), "recursion"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(50000), ")".repeat(50000)), "recursion"),
        (format!("{{{{ {}1{} }}}}", "[".repeat(50000), "]".repeat(50000)), "recursion"),
        (format!("{}x{}", "{% if true %}".repeat(5000), "{% endif %}".repeat(5000)), "recursion"),
        ("x".repeat(300 << 10), "longer than 256 kB"),
    ];
    let mut differences = Vec::new();
    for (template, part) in cases {
        let made = outcome(template);
        if !made.as_ref().is_err_and(|error| error.contains(part)) {
            differences.push(format!("{}: {made:?}", template.chars().take(80).collect::<String>()));
        }
    }
    assert_eq!(differences.join("\n"), "");
}

/// What is deep but small is made, or refused if it exceeds a limit of the library, in any case without a crash.
#[test]
fn long_expressions_do_not_exhaust_the_stack() {
    let length = |template: String| outcome(&template);
    assert_eq!(length(format!("{{{{ 1{} }}}}", " - 1".repeat(60000))), Ok("-59999".len()));
    assert_eq!(length(format!("{{{{ 'a'{} }}}}", "|upper".repeat(40000))), Ok(1));
    assert_eq!(length(format!("{{{{ {}1 }}}}", "not ".repeat(50000))), Ok("True".len()));
    assert!(length(format!("{{{{ a{} }}}}", ".a".repeat(100_000))).unwrap_err().contains("undefined"));
}

#[test]
fn documents_nested_too_deep_are_refused() {
    let error = open(&[("tokenizer_config.json", "[".repeat(100_000))]).err().unwrap();
    assert!(format!("{error:#}").contains("recursion limit"), "{error:#}");
}

#[test]
fn templates_without_a_default_are_named() {
    let named = json!([{"name": "rag", "template": "x"}, {"name": "tool_use", "template": "x"}]);
    let error = open(&[("tokenizer_config.json", json!({"chat_template": named}).to_string())]).err().unwrap();
    assert_eq!(error.to_string(), "none of the chat templates is named `default`: there are rag, tool_use");
    let chat = open(&[("tokenizer_config.json", json!({"chat_template": {"default": "x"}}).to_string())]);
    assert_eq!(chat.unwrap().prompt("").unwrap(), "x");
}
