//! Chat templates: what a message looks like to a model that was trained on conversations.

mod calls;
mod jinja;
mod message;
mod python;
#[cfg(test)]
mod tests;
mod tracking;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use jiff::Zoned;
use jiff::civil::DateTime;
use minijinja::value::Serde;
use minijinja::{Environment, Error, Value as Variable, context};
use planish_files::Kind;
use serde_json::Value;

pub(crate) use calls::CallForm;
pub use calls::{Call, Tools};
use jinja::{Limited, NAME, environment};
pub use message::Message;
use planish_data::tokenizer::TextTokenizer;
use planish_data::tokenizer::guard::{Bounds, one_line, watched};

/// The file that is a template itself.
const TEMPLATE_FILE: &str = NAME;

/// The files whose key `chat_template` may hold one, that which counts first.
const CONFIG_FILES: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];

/// The keys of tokenizer_config.json under which objects name further tokens.
const NAMED_TOKENS: [&str; 2] = ["extra_special_tokens", "model_specific_special_tokens"];

/// The most bytes of a template; published ones have some ten thousand.
const MOST_TEMPLATE_BYTES: usize = 256 << 10;

/// The most bytes that a template makes of a message.
const MOST_TEXT_BYTES: usize = 4 << 20;

/// A template that is meant to end does so within milliseconds.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), memory: 256 << 20 };

/// An artifact's chat template.
pub struct Chat {
    environment: Arc<Environment<'static>>,
    /// Special tokens by the names that templates know them by.
    tokens: BTreeMap<String, String>,
    /// What the model may call.
    tools: Option<Tools>,
    /// The template itself.
    template: String,
}

impl Chat {
    /// Reads the template of an artifact: chat_template.jinja, or else `chat_template` of
    /// chat_template.json or of tokenizer_config.json, of several that named `default`, or with tools that named `tool_use` if
    /// there is one, as in the transformers library.
    ///
    /// # Errors
    /// When there is none, or it cannot be read or is not a template; and with tools when it does not use them.
    pub fn open(artifact: &Path, tools: Option<Tools>) -> Result<Self> {
        Self::open_at(artifact, tools, || Zoned::now().datetime())
    }

    /// The same with another clock, in local time.
    fn open_at(artifact: &Path, tools: Option<Tools>, clock: fn() -> DateTime) -> Result<Self> {
        let configs = CONFIG_FILES.map(|file| document(&artifact.join(file)));
        let [chat, tokenizer] = configs;
        let (chat, tokenizer) = (chat?, tokenizer?);
        let template = match planish_files::read_if_there(&artifact.join(TEMPLATE_FILE), &Kind::TEMPLATE)? {
            Some(text) => Some(text),
            None => {
                let of = |document| template_of(document, tools.is_some()).transpose();
                [&chat, &tokenizer].into_iter().find_map(of).transpose()?
            }
        };
        let Some(template) = template else {
            bail!(
                "{} has no chat template ({TEMPLATE_FILE}, or `chat_template` in {}); leave out --chat",
                artifact.display(),
                CONFIG_FILES.join(" or ")
            );
        };
        if template.len() > MOST_TEMPLATE_BYTES {
            bail!("the chat template of {} is longer than {} kB", artifact.display(), MOST_TEMPLATE_BYTES >> 10);
        }
        let text = template.clone();
        let parse = move || {
            let environment = environment(&text, clock).map_err(|error| told(&error))?;
            let variables = environment.get_template(NAME).map_err(|error| told(&error))?.undeclared_variables(false);
            // Templates of Llama set the variable where there is none, or another one is in its place.
            let uses_tools = variables.contains("tools") || text.contains("set tools");
            Ok((environment, uses_tools))
        };
        let (environment, uses_tools) = watched("reading the chat template", BOUNDS, parse)
            .with_context(|| format!("the chat template of {} is invalid", artifact.display()))?;
        if tools.is_some() && !uses_tools {
            bail!("the chat template of {} does not use `tools`; leave out --tools", artifact.display());
        }
        Ok(Self { environment: Arc::new(environment), tokens: special_tokens(&tokenizer), tools, template })
    }

    /// How the model writes calls; `None` where there are no tools.
    ///
    /// # Errors
    /// When neither the template nor the tokenizer has the marks of a form that is known.
    pub(crate) fn call_form(&self, tokenizer: &TextTokenizer) -> Result<Option<CallForm>> {
        if self.tools.is_none() {
            return Ok(None);
        }
        let form = CallForm::of(&self.template, tokenizer).context(
            "neither the chat template nor the tokenizer has `<tool_call>`, `[TOOL_CALLS]`, `<|python_tag|>` or `\"parameters\"`, \
             so it is not known how the model writes calls; leave out --tools",
        )?;
        Ok(Some(form))
    }

    /// The text of a conversation that begins with this message of the user, as [`conversation`](Self::conversation) gives it.
    ///
    /// # Errors
    /// As that.
    pub fn prompt(&self, message: &str) -> Result<String> {
        self.conversation(&[Message::user(message)])
    }

    /// The text of a conversation up to where the model answers. It has all special tokens.
    ///
    /// # Errors
    /// When the template fails, refuses a message, or takes more time or memory than any should.
    pub fn conversation(&self, messages: &[Message]) -> Result<String> {
        let (environment, tokens, messages) = (Arc::clone(&self.environment), self.tokens.clone(), messages.to_vec());
        let tools = self.tools.clone();
        watched("the chat template", BOUNDS, move || {
            let message = |message: &Message| Variable::from(Serde(&message.0));
            let variables = context! {
                messages => messages.iter().map(message).collect::<Vec<_>>(),
                tools => tools.map_or(Variable::from(()), |tools| Variable::from(Serde(&tools.0))),
                documents => Variable::from(()),
                add_generation_prompt => true,
                ..Variable::from_pairs(tokens),
            };
            let mut text = Limited::new(MOST_TEXT_BYTES);
            let rendered =
                environment.get_template(NAME).and_then(|t| t.render_captured_to(variables, &mut text).map(drop));
            rendered.map_err(|error| told(&error))?;
            Ok(String::from_utf8(text.text)?)
        })
    }
}

/// An error of a template with its causes, on one line: templates word their own.
fn told(error: &Error) -> anyhow::Error {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    anyhow!(one_line(&told))
}

/// The special tokens that a tokenizer_config.json has, as the transformers library hands them to templates: all keys
/// that end in `_token`, and those of the objects that name more.
fn special_tokens(config: &Value) -> BTreeMap<String, String> {
    let own = config.as_object().into_iter().flatten().filter(|(key, _)| key.ends_with("_token"));
    let named = NAMED_TOKENS.into_iter().filter_map(|key| config[key].as_object()).flatten();
    let text = |token: &Value| token.as_str().or(token["content"].as_str()).map(str::to_owned);
    own.chain(named).filter_map(|(key, token)| Some((key.clone(), text(token)?))).collect()
}

/// The `chat_template` of a document: a template, or one of a list or an object of named ones.
fn template_of(document: &Value, has_tools: bool) -> Result<Option<String>> {
    let named: Vec<(&str, &Value)> = match &document["chat_template"] {
        Value::Array(named) => named.iter().map(|one| (one["name"].as_str().unwrap_or(""), &one["template"])).collect(),
        Value::Object(named) => named.iter().map(|(name, template)| (name.as_str(), template)).collect(),
        template => vec![("default", template)],
    };
    let of = |wanted: &str| named.iter().find(|(name, _)| *name == wanted).map(|(_, template)| *template);
    let default = of("tool_use").filter(|_| has_tools).or_else(|| of("default"));
    match default.map(|template| template.as_str()) {
        Some(template) => Ok(template.map(str::to_owned)),
        None => {
            let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
            bail!("none of the chat templates is named `default`: there are {}", one_line(&names.join(", ")))
        }
    }
}

/// A JSON document; null where there is no file.
fn document(path: &Path) -> Result<Value> {
    let Some(text) = planish_files::read_if_there(path, &Kind::SETTINGS)? else { return Ok(Value::Null) };
    serde_json::from_str(&text).with_context(|| format!("{} is not a JSON document", path.display()))
}
