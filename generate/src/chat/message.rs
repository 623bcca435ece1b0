//! Messages of a conversation.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use super::Call;

/// A message of a conversation, as templates get it: an object with the role of who says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(pub(super) Map<String, Value>);

impl Message {
    /// Of what tells the model how to answer.
    #[must_use]
    pub fn system(content: &str) -> Self {
        Self::of("system", content)
    }

    /// Of the user.
    #[must_use]
    pub fn user(content: &str) -> Self {
        Self::of("user", content)
    }

    /// Of the model.
    #[must_use]
    pub fn assistant(content: &str) -> Self {
        Self::of("assistant", content)
    }

    /// Of the model that calls tools. Its calls have ids of nine characters, as templates of Mistral ask for; `number` is that of the
    /// first among all calls of the conversation.
    pub(crate) fn calling(content: &str, calls: &[Call], number: usize) -> Self {
        let mut message = Self::assistant(content);
        let one = |(at, call): (usize, &Call)| {
            let Call { name, arguments } = call;
            json!({"type": "function", "id": call_id(number + at), "function": {"name": name, "arguments": arguments}})
        };
        if !calls.is_empty() {
            message.0.insert("tool_calls".to_owned(), calls.iter().enumerate().map(one).collect());
        }
        message
    }

    /// A message as JSON has it: an object with a `role`.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(value: &Value) -> Result<Self> {
        match value.as_object() {
            Some(message) if message.get("role").and_then(Value::as_str).is_some_and(|role| !role.is_empty()) => {
                Ok(Self(message.clone()))
            }
            _ => bail!("a message is an object with a `role`, such as {{\"role\": \"user\", \"content\": \"text\"}}"),
        }
    }

    /// Messages whose contents are lists, as templates of models that see take them. If none has a place of an image, the last one of a
    /// user begins with so many.
    ///
    /// # Errors
    /// When a part of a list is neither a text nor a place of an image.
    pub(crate) fn with_images(messages: &[Self], images: usize) -> Result<Vec<Self>> {
        let mut all = messages.to_vec();
        for message in &mut all {
            if let Some(content) = message.0.get_mut("content")
                && let Some(text) = content.as_str()
            {
                *content = json!([{"type": "text", "text": text}]);
            }
        }
        let parts = |message: &Self| message.0.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
        let known = |part: &Value| part["type"] == "text" || part["type"] == "image";
        if let Some(part) = all.iter().flat_map(parts).find(|part| !known(part)) {
            bail!(
                "a part of a message has the `type` {}, and models that see take \"text\" and \"image\"; write a place of an image as \
                 {{\"type\": \"image\"}}, and its file in \"images\" of the line, or with --image",
                part["type"]
            );
        }
        let has_place = all.iter().flat_map(parts).any(|part| part["type"] == "image");
        let last = all.iter_mut().rev().find(|message| message.role() == "user");
        if let Some(message) = last.filter(|_| !has_place) {
            let places = std::iter::repeat_n(json!({"type": "image"}), images);
            let content = places.chain(parts(message)).collect();
            message.0.insert("content".to_owned(), content);
        }
        Ok(all)
    }

    fn of(role: &str, content: &str) -> Self {
        let members = [("role", role), ("content", content)];
        Self(members.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect())
    }

    /// Who says it.
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// How many tools it calls.
    pub(crate) fn calls(&self) -> usize {
        self.0.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Says which call a tool's result is of, where it does not say that itself.
    pub(crate) fn name_call(&mut self, number: usize) {
        self.0.entry("tool_call_id").or_insert_with(|| call_id(number).into());
    }
}

fn call_id(number: usize) -> String {
    format!("call{number:05}")
}
