//! Chat templates: what a message looks like to a model that was trained on conversations.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, context};
use serde_json::Value;

/// The file that is a template as it stands.
const TEMPLATE_FILE: &str = "chat_template.jinja";

/// The files whose key `chat_template` may hold one, that which counts first.
const CONFIG_FILES: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];

/// Steps of a template at most: far more than one needs that ends.
const FUEL: u64 = 1_000_000;

/// An artifact's chat template.
pub struct Chat {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

impl Chat {
    /// Reads the template of an artifact: chat_template.jinja, or else `chat_template` of
    /// chat_template.json or of tokenizer_config.json, of several that named `default`.
    ///
    /// # Errors
    /// When there is none, or it cannot be read or is no template.
    pub fn open(artifact: &Path) -> Result<Self> {
        let configs = CONFIG_FILES.map(|file| document(&artifact.join(file)));
        let [chat, tokenizer] = configs;
        let (chat, tokenizer) = (chat?, tokenizer?);
        let template = match read(&artifact.join(TEMPLATE_FILE))? {
            Some(text) => Some(text),
            None => [&chat, &tokenizer].into_iter().find_map(template_of),
        };
        let Some(template) = template else {
            bail!(
                "{} has no chat template ({TEMPLATE_FILE}, or `chat_template` in {}); leave out --chat",
                artifact.display(),
                CONFIG_FILES.join(" or ")
            );
        };
        let token = |key: &str| {
            let token = &tokenizer[key];
            token.as_str().or(token["content"].as_str()).unwrap_or_default().to_owned()
        };
        let environment =
            environment(template).with_context(|| format!("the chat template of {} is invalid", artifact.display()))?;
        Ok(Self { environment, bos_token: token("bos_token"), eos_token: token("eos_token") })
    }

    /// The text of a conversation that begins with this message of the user, up to where the model
    /// answers. It has all special tokens.
    ///
    /// # Errors
    /// When the template fails, or refuses the message.
    pub fn prompt(&self, message: &str) -> Result<String> {
        let variables = context! {
            messages => [context! { role => "user", content => message }],
            add_generation_prompt => true,
            bos_token => &self.bos_token,
            eos_token => &self.eos_token,
        };
        let rendered = self.environment.get_template(TEMPLATE_FILE).and_then(|template| template.render(variables));
        rendered.context("the chat template failed")
    }
}

/// Jinja as the transformers library sets it up for templates.
fn environment(template: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // Templates call methods of Python's strings and maps.
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(minijinja::ErrorKind::InvalidOperation, message))
    });
    environment.add_template_owned(TEMPLATE_FILE, template)?;
    Ok(environment)
}

/// The `chat_template` of a document: a template, or a list of named ones.
fn template_of(document: &Value) -> Option<String> {
    let found = match &document["chat_template"] {
        Value::Array(named) => &named.iter().find(|one| one["name"] == "default")?["template"],
        template => template,
    };
    found.as_str().map(str::to_owned)
}

/// The text of a file, if there is one.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A JSON document; null where there is no file.
fn document(path: &Path) -> Result<Value> {
    let Some(text) = read(path)? else { return Ok(Value::Null) };
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON document", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        Chat::open(folder.path())
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
        assert!(error(&[("tokenizer_config.json", "{".to_owned())]).contains("no JSON"));
        let fails = |template: &str| {
            let chat = open(&[(TEMPLATE_FILE, template.to_owned())]).unwrap();
            format!("{:#}", chat.prompt("hello").unwrap_err())
        };
        assert!(fails("{{ raise_exception('no users') }}").contains("no users"));
        let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
        assert!(fails(endless).contains("fuel"));
    }
}
