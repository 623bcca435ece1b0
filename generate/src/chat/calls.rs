//! Tools that a model may call, and the calls that it writes.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_data::tokenizer::TextTokenizer;
use planish_files::Kind;
use serde_json::{Deserializer, Value, json};

/// Tools that a chat template describes to the model: schemas of functions, as they stand in their file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools(pub(super) Vec<Value>);

impl Tools {
    /// Reads a JSON list of schemas, each `{"type": "function", "function": {"name": ..}}` or the function alone.
    ///
    /// # Errors
    /// When the file cannot be read, or is no such list.
    pub fn read(path: &Path) -> Result<Self> {
        let text = planish_files::read_text(path, &Kind::TOOLS)?;
        let name = path.display();
        let tools: Value = serde_json::from_str(&text).with_context(|| format!("{name} is not a JSON document"))?;
        let Value::Array(tools) = tools else { bail!("{name} is not a JSON list of tools") };
        if tools.is_empty() {
            bail!("{name} has no tools");
        }
        for (number, tool) in tools.iter().enumerate() {
            if [&tool["function"]["name"], &tool["name"]].iter().all(|name| name.as_str().is_none_or(str::is_empty)) {
                bail!(
                    "tool {} of {name} has no name; write {{\"type\": \"function\", \"function\": {{\"name\": \"NAME\", \
                     \"description\": \"TEXT\", \"parameters\": SCHEMA}}}}",
                    number + 1
                );
            }
        }
        Ok(Self(tools))
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// What it is called with, by the names of its parameters.
    pub arguments: Value,
}

impl Call {
    /// As JSON.
    #[must_use]
    pub fn document(&self) -> Value {
        json!({"name": self.name, "arguments": self.arguments})
    }

    /// What a model writes as an object; its arguments are called so, or parameters.
    fn of(mut value: Value) -> Option<Self> {
        let object = value.as_object_mut()?;
        let arguments = object.remove("arguments").or_else(|| object.remove("parameters"))?;
        Some(Self { name: object.get("name")?.as_str()?.to_owned(), arguments })
    }
}

/// How a family of models writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// Hermes and Qwen: each call is an object with name and arguments between `<tool_call>` and `</tool_call>`.
    Hermes,
    /// Llama 3.1 and later: all of the text is objects with name and parameters, perhaps after `<|python_tag|>`.
    Llama,
    /// Mistral: after `[TOOL_CALLS]` a list of objects with name and arguments or, in later versions, a name, `[ARGS]` and the arguments.
    Mistral,
}

const MISTRAL: &str = "[TOOL_CALLS]";
const HERMES: (&str, &str) = ("<tool_call>", "</tool_call>");
const LLAMA: &str = "<|python_tag|>";

impl CallForm {
    /// The one whose marks a template has or, where it has none of them, the tokens of a tokenizer.
    pub(crate) fn of(template: &str, tokenizer: &TextTokenizer) -> Option<Self> {
        let forms = [(MISTRAL, Self::Mistral), (HERMES.0, Self::Hermes), (LLAMA, Self::Llama)];
        let first = |has: &dyn Fn(&str) -> bool| forms.iter().find(|(mark, _)| has(mark)).map(|(_, form)| *form);
        let of_template = first(&|mark| template.contains(mark));
        // Templates of Llama 3.2 show the object alone.
        let shown = || template.contains("\"parameters\"").then_some(Self::Llama);
        of_template.or_else(shown).or_else(|| first(&|mark| tokenizer.id(mark).is_some()))
    }

    /// What a text with its special tokens says beside calls, and the calls; `None` where it has none. What looks like a call and is
    /// not one stays in the text.
    pub(crate) fn parse(self, text: &str) -> Option<(String, Vec<Call>)> {
        let (said, calls) = match self {
            Self::Hermes => hermes(text),
            Self::Llama => llama(text)?,
            Self::Mistral => mistral(text)?,
        };
        (!calls.is_empty()).then_some((said, calls))
    }
}

fn hermes(text: &str) -> (String, Vec<Call>) {
    let (mut said, mut calls, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, after)) = rest.split_once(HERMES.0) {
        said += before;
        // The last one may be cut off, or have no end.
        let (inside, next) = after.split_once(HERMES.1).unwrap_or((after, ""));
        let object = Deserializer::from_str(inside).into_iter().next().and_then(Result::ok);
        match object.and_then(Call::of) {
            Some(call) => calls.push(call),
            None => said += &rest[before.len()..rest.len() - next.len()],
        }
        rest = next;
    }
    (said + rest, calls)
}

fn llama(text: &str) -> Option<(String, Vec<Call>)> {
    let (said, objects) = text.split_once(LLAMA).unwrap_or(("", text));
    let (mut rest, mut calls) = (objects.trim_start(), Vec::new());
    while rest.starts_with('{') {
        let mut objects = Deserializer::from_str(rest).into_iter();
        calls.push(Call::of(objects.next()?.ok()?)?);
        rest = rest[objects.byte_offset()..].trim_start_matches([';', ',']).trim_start();
    }
    Some((said.to_owned() + rest, calls))
}

fn mistral(text: &str) -> Option<(String, Vec<Call>)> {
    let mut parts = text.split(MISTRAL);
    let (mut said, mut calls) = (parts.next()?.to_owned(), Vec::new());
    for part in parts {
        let part = part.trim_start();
        let (name, json) = part.split_at(part.find(['[', '{'])?);
        // Between the name and its arguments may be the mark of an id.
        let json = if name.is_empty() { json } else { &json[json.find('{')?..] };
        let mut values = Deserializer::from_str(json).into_iter::<Value>();
        match values.next()?.ok()? {
            Value::Array(list) if name.is_empty() => {
                calls.extend(list.into_iter().map(Call::of).collect::<Option<Vec<_>>>()?)
            }
            arguments @ Value::Object(_) if !name.is_empty() => {
                calls.push(Call { name: name.trim().to_owned(), arguments });
            }
            _ => return None,
        }
        said += &json[values.byte_offset()..];
    }
    Some((said, calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(form: CallForm, text: &str) -> Option<(String, Vec<Value>)> {
        form.parse(text).map(|(said, calls)| (said, calls.iter().map(Call::document).collect()))
    }

    fn call(name: &str, arguments: Value) -> Value {
        json!({"name": name, "arguments": arguments})
    }

    #[test]
    fn calls_of_hermes_stand_between_tags() {
        let read = |text: &str| parsed(CallForm::Hermes, text);
        let two = "Let me see.\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": [1, {\"y\": \"<\"}]}}\n</tool_call>\n\
                   <tool_call>{\"arguments\": {}, \"name\": \"b\"}</tool_call><|im_end|>";
        let calls = vec![call("a", json!({"x": [1, {"y": "<"}]})), call("b", json!({}))];
        assert_eq!(read(two), Some(("Let me see.\n\n<|im_end|>".to_owned(), calls)));
        assert_eq!(read("<tool_call>{\"name\": \"a\", \"arguments\": {}}").unwrap().1, [call("a", json!({}))]);
        // What is no call stays.
        assert_eq!(read("<tool_call>{\"name\": \"a\"</tool_call>"), None);
        assert_eq!(read("<tool_call>\n<function=a></function></tool_call>"), None);
        let mixed = "<tool_call>x</tool_call><tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>";
        assert_eq!(read(mixed), Some(("<tool_call>x</tool_call>".to_owned(), vec![call("a", json!({}))])));
        assert_eq!(read("none"), None);
    }

    #[test]
    fn calls_of_llama_are_all_of_the_text() {
        let read = |text: &str| parsed(CallForm::Llama, text);
        let one = "{\"name\": \"a\", \"parameters\": {\"x\": 1}}";
        let calls = |count: usize| vec![call("a", json!({"x": 1})); count];
        assert_eq!(read(one), Some((String::new(), calls(1))));
        assert_eq!(read(&format!("<|python_tag|>{one}<|eom_id|>")), Some(("<|eom_id|>".to_owned(), calls(1))));
        assert_eq!(read(&format!("\n{one}; {one}\n")), Some((String::new(), calls(2))));
        assert_eq!(read(&format!("I call {one}")), None);
        assert_eq!(read("<|python_tag|>print(1)"), None);
        assert_eq!(read("{\"name\": \"a\", \"parameters\": {\"x\""), None);
        assert_eq!(read("{\"city\": \"Rome\"}"), None);
    }

    #[test]
    fn calls_of_mistral_follow_their_mark() {
        let read = |text: &str| parsed(CallForm::Mistral, text);
        let list = "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": 1}, \"id\": \"123456789\"}, \
                    {\"name\": \"b\", \"arguments\": {}}]</s>";
        let calls = vec![call("a", json!({"x": 1})), call("b", json!({}))];
        assert_eq!(read(list), Some(("</s>".to_owned(), calls.clone())));
        let later = "Now.[TOOL_CALLS]a[ARGS]{\"x\": 1}[TOOL_CALLS]b[CALL_ID]123456789[ARGS]{}";
        assert_eq!(read(later), Some(("Now.".to_owned(), calls)));
        assert_eq!(read("[TOOL_CALLS]a{\"x\": 1}").unwrap().1, [call("a", json!({"x": 1}))]);
        for text in
            ["[{\"name\": \"a\", \"arguments\": {}}]", "[TOOL_CALLS]", "[TOOL_CALLS][1]", "[TOOL_CALLS]a[ARGS]x"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn files_that_are_no_tools_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Tools::read(&path)
        };
        let alone = json!([{"name": "a"}]);
        assert_eq!(read(&alone.to_string()).unwrap().0, *alone.as_array().unwrap());
        let wrapped = json!([{"type": "function", "function": {"name": "a"}}, {"name": "b"}]);
        assert_eq!(read(&wrapped.to_string()).unwrap().0.len(), 2);
        let error = |text: &str| format!("{:#}", read(text).unwrap_err());
        assert!(error("{}").contains("tools.json is not a JSON list of tools"));
        assert!(error("[").contains("is not a JSON document"));
        assert!(error("[]").contains("has no tools"));
        for tools in ["[{\"name\": \"a\"}, 7]", "[{\"name\": \"a\"}, {\"function\": {\"name\": \"\"}}]"] {
            assert!(error(tools).contains("tool 2 of "), "{}", error(tools));
        }
        assert!(Tools::read(&folder.path().join("none")).is_err());
    }
}
