//! Prompts as lines of JSON.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use planish_data::tokenizer::document::{nonempty, whole};
use serde_json::{Map, Value};

use super::lines::{Content, Line};
use super::{GenerateOptions, Message};

/// The keys of a line.
const KEYS: &[&str] = &["prompt", "messages", "ids", "images", "id", "max_new_tokens", "seed", "stop"];

/// A line of a file of prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct FileLine {
    /// Its number, from 1 on.
    pub number: usize,
    /// What it is called, where it says that: a string or a number.
    pub id: Option<Value>,
    /// What it asks for.
    pub line: Line,
}

/// Reads the lines of a file of prompts, a JSON object each: `prompt` (a text; with `is_chat` a message of the user after that of the
/// system), `messages` or `ids`, and what it may have of its own: `images`, `id`, `max_new_tokens`, `seed` and `stop`. Blank lines are passed
/// over.
///
/// # Errors
/// When a line is no such object, with the name of the file and the number of the line.
pub fn read_lines(name: &str, text: &str, is_chat: bool, options: &GenerateOptions) -> Result<Vec<FileLine>> {
    // Some editors begin a file with a mark of its encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        read_line(line, is_chat, options)
            .map(|(id, line)| FileLine { number, id, line })
            .with_context(|| format!("{name}, line {number}"))
    };
    lines.map(read).collect()
}

fn read_line(line: &str, is_chat: bool, options: &GenerateOptions) -> Result<(Option<Value>, Line)> {
    let value: Value = serde_json::from_str(line).context("this is not JSON")?;
    let Value::Object(mut object) = value else {
        bail!("this is not a JSON object, such as {{\"prompt\": \"text\"}}");
    };
    let content = content(&mut object, is_chat, options)?;
    let mut take = |key: &str| object.remove(key).filter(|value| !value.is_null());
    let wrong = |key: &str, value: &Value, what: &str| anyhow::anyhow!("`{key}` is {value}, which is not {what}");
    let images = take("images");
    let id = take("id");
    if let Some(id) = id.as_ref().filter(|id| !(id.is_string() || id.is_number())) {
        return Err(wrong("id", id, "a string or a number"));
    }
    let mut read = Line::of(content);
    if let Some(value) = images {
        let files = value.as_array().and_then(|files| files.iter().map(nonempty).collect::<Option<Vec<String>>>());
        let files = files.ok_or_else(|| wrong("images", &value, "a list of files"))?;
        read.images = Some(files.into_iter().map(PathBuf::from).collect());
    }
    if let Some(value) = take("max_new_tokens") {
        let tokens = whole(&value).and_then(NonZeroUsize::new);
        read.max_new_tokens = Some(tokens.ok_or_else(|| wrong("max_new_tokens", &value, "a whole number from 1 on"))?);
    }
    if let Some(value) = take("seed") {
        read.seed = Some(value.as_u64().ok_or_else(|| wrong("seed", &value, "a whole number from 0 on"))?);
    }
    if let Some(value) = take("stop") {
        let strings = match &value {
            Value::Array(strings) => strings.iter().map(nonempty).collect(),
            string => nonempty(string).map(|string| vec![string]),
        };
        read.stop =
            Some(strings.ok_or_else(|| wrong("stop", &value, "a string or a list of strings, none of them empty"))?);
    }
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        bail!(
            "there is no key `{key}`; the keys of a line are {}, and other settings are options of the command, for all lines",
            KEYS.join(", ")
        );
    }
    Ok((id, read))
}

fn content(object: &mut Map<String, Value>, is_chat: bool, options: &GenerateOptions) -> Result<Content> {
    let given: Vec<(&str, Value)> = ["prompt", "messages", "ids"]
        .iter()
        .filter_map(|key| Some((*key, object.remove(*key).filter(|value| !value.is_null())?)))
        .collect();
    if given.is_empty() && object.contains_key("images") && !is_chat {
        return Ok(Content::Text(String::new()));
    }
    let [(key, value)] = &given[..] else {
        bail!("a line has one of `prompt`, `messages` and `ids`, and this one has {}", given.len());
    };
    let wrong = |what: &str| anyhow::anyhow!("`{key}` is not {what}");
    match *key {
        "prompt" => {
            let text = value.as_str().ok_or_else(|| wrong("a string"))?;
            Ok(match is_chat {
                true => Content::Messages([options.beginning(), vec![Message::user(text)]].concat()),
                false => Content::Text(text.to_owned()),
            })
        }
        "messages" => {
            let messages = value.as_array().filter(|messages| !messages.is_empty());
            let messages = messages.ok_or_else(|| wrong("a list of messages"))?;
            let parsed = messages.iter().map(Message::parse).collect::<Result<_>>();
            Ok(Content::Messages(parsed.context("`messages`")?))
        }
        _ => {
            let ids: Option<Vec<i64>> = value.as_array().and_then(|ids| ids.iter().map(Value::as_i64).collect());
            Ok(Content::Ids(ids.ok_or_else(|| wrong("a list of token ids"))?))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::GenerationConfig;

    fn options() -> GenerateOptions {
        GenerateOptions {
            config: GenerationConfig::default(),
            system: Some("Be short.".to_owned()),
            images: Vec::new(),
            tools: None,
            seed: 0,
            caching: true,
            prompt_chunk: None,
            threads: 0,
            runtime: planish_artifact::backend::RuntimeSettings::default(),
        }
    }

    fn read(text: &str, is_chat: bool) -> Result<Vec<FileLine>> {
        read_lines("in.jsonl", text, is_chat, &options())
    }

    #[test]
    fn lines_have_a_prompt_and_settings_of_their_own() {
        let text = "{\"prompt\": \"a\", \"id\": \"x\", \"max_new_tokens\": 3, \"seed\": 7, \"stop\": \"b\"}\r\n\n\
                    {\"ids\": [1, 2], \"id\": 4, \"stop\": [\"c\", \"d\"], \"seed\": null}\n\
                    {\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"n\"}]}";
        let lines = read(text, false).unwrap();
        let whole = Line {
            content: Content::Text("a".to_owned()),
            max_new_tokens: NonZeroUsize::new(3),
            seed: Some(7),
            stop: Some(vec!["b".to_owned()]),
            images: None,
        };
        assert_eq!(lines[0], FileLine { number: 1, id: Some(json!("x")), line: whole });
        let ids = Line { stop: Some(vec!["c".to_owned(), "d".to_owned()]), ..Line::of(Content::Ids(vec![1, 2])) };
        assert_eq!(lines[1], FileLine { number: 3, id: Some(json!(4)), line: ids });
        let message = Message::parse(&json!({"role": "user", "content": "a", "name": "n"})).unwrap();
        assert_eq!(lines[2].line, Line::of(Content::Messages(vec![message])));
        let chat = read("{\"prompt\": \"a\"}", true).unwrap().remove(0).line.content;
        assert_eq!(chat, Content::Messages(vec![Message::system("Be short."), Message::user("a")]));
    }

    #[test]
    fn what_is_wrong_names_the_line_and_the_key() {
        for (line, part) in [
            ("{", "this is not JSON"),
            ("[]", "this is not a JSON object"),
            ("{}", "one of `prompt`, `messages` and `ids`, and this one has 0"),
            ("{\"prompt\": \"a\", \"ids\": [1]}", "and this one has 2"),
            ("{\"prompt\": 1}", "`prompt` is not a string"),
            ("{\"ids\": [1.5]}", "`ids` is not a list of token ids"),
            ("{\"messages\": []}", "`messages` is not a list of messages"),
            ("{\"messages\": [{\"content\": \"a\"}]}", "`messages`: a message is an object with a `role`"),
            ("{\"prompt\": \"a\", \"id\": []}", "`id` is [], which is not a string or a number"),
            ("{\"prompt\": \"a\", \"max_new_tokens\": 0}", "`max_new_tokens` is 0, which is not a whole number from 1"),
            ("{\"prompt\": \"a\", \"seed\": -1}", "`seed` is -1"),
            ("{\"prompt\": \"a\", \"stop\": [\"\"]}", "`stop` is [\"\"]"),
            ("{\"prompt\": \"a\", \"top_k\": 1}", "there is no key `top_k`; the keys of a line are prompt, messages"),
        ] {
            let error = format!("{:#}", read(&format!("{{\"prompt\": \"a\"}}\n\n{line}"), false).unwrap_err());
            assert!(error.starts_with("in.jsonl, line 3: ") && error.contains(part), "{error}");
        }
        // A null says nothing, and a mark of the encoding is no text.
        let lines = read("\u{feff}{\"prompt\": null, \"ids\": [1]}", false).unwrap();
        assert_eq!(lines[0].line.content, Content::Ids(vec![1]));
    }
}
