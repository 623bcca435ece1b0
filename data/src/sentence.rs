//! Settings of the sentence-transformers library beside a model: how texts are read before the model embeds them.
//!
//! modules.json lists the modules of a model with their folders. The class `Transformer` of that library reads
//! sentence_bert_config.json, `Pooling` reads its config.json, and `SentenceTransformer` and `CrossEncoder` read
//! config_sentence_transformers.json. What the first file does not say of the length of texts, tokenizer_config.json says.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use planish_models::{ModuleEntry, TRANSFORMER_SETTINGS, module_entries, pooling_config};
use serde_json::{Map, Value};

/// Prompts, and what is done with embeddings.
const CONFIG: &str = "config_sentence_transformers.json";

/// How the tokenizer cuts texts (`PreTrainedTokenizerBase` of the transformers library).
const TOKENIZER: &str = "tokenizer_config.json";

/// The least `model_max_length` that stands for no limit: that library writes 1e30 where there is none.
const UNLIMITED: f64 = 1e9;

/// What the files beside a model say; the defaults of that library where there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentenceSettings {
    /// How many tokens a text is cut to, special ones included: `max_seq_length`, or else `model_max_length` of the tokenizer.
    pub max_length: Option<usize>,
    /// Whether a text that is cut loses its beginning: `truncation_side` of the tokenizer is `left`.
    pub cuts_left: bool,
    /// Whether texts are put into lower case before the tokenizer reads them.
    pub lower_case: bool,
    /// The texts that are put in front of texts, by their names.
    pub prompts: Vec<(String, String)>,
    /// The name of the prompt that is used where none is asked for.
    pub default_prompt: Option<String>,
    /// Whether the pooling takes the tokens of the prompt.
    pub pools_prompt: bool,
    /// How many of the first features of an embedding are kept.
    pub truncate_dim: Option<usize>,
    /// Whether embeddings are scaled to length 1 at the end.
    pub normalizes: bool,
    /// Whether the model is a table of vectors of tokens, whose texts have no special tokens and any length (the class
    /// `StaticEmbedding`).
    pub is_static: bool,
    /// The classes of other modules than the transformer, its pooling and that scaling, such as `Dense`.
    pub other_modules: Vec<String>,
}

impl Default for SentenceSettings {
    fn default() -> Self {
        Self {
            max_length: None,
            cuts_left: false,
            lower_case: false,
            prompts: Vec::new(),
            default_prompt: None,
            pools_prompt: true,
            truncate_dim: None,
            normalizes: false,
            is_static: false,
            other_modules: Vec::new(),
        }
    }
}

impl SentenceSettings {
    /// Reads the settings in the folder of an artifact or checkpoint.
    ///
    /// # Errors
    /// When a file cannot be read, or has a value of another kind.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut settings = Self::default();
        if let Some(file) = File::open(folder, CONFIG)? {
            settings.prompts = file.prompts()?;
            settings.default_prompt = file.text("default_prompt_name")?;
            settings.truncate_dim = file.count("truncate_dim")?;
            if let Some(name) = &settings.default_prompt
                && settings.named(name).is_none()
            {
                bail!("{}: `default_prompt_name` is `{name}`, and the prompts are {}", file.path, settings.names());
            }
        }
        let modules = module_entries(folder)?;
        settings.normalizes = modules.iter().any(|entry| entry.class == "Normalize");
        settings.is_static = modules.iter().any(ModuleEntry::is_static);
        let is_other =
            |entry: &&ModuleEntry| !entry.is_model() && entry.class != "Pooling" && entry.class != "Normalize";
        settings.other_modules = modules.iter().filter(is_other).map(|entry| entry.class.clone()).collect();
        let transformer = modules.iter().find(|entry| entry.is_model()).map_or("", |entry| entry.path.as_str());
        let open = |name: &str| match File::open(folder, Path::new(transformer).join(name))? {
            None if !transformer.is_empty() => File::open(folder, name),
            file => Ok(file),
        };
        for name in TRANSFORMER_SETTINGS {
            if let Some(file) = open(name)? {
                settings.max_length = file.count("max_seq_length")?;
                settings.lower_case = file.switch("do_lower_case")?.unwrap_or(false);
                break;
            }
        }
        // The class `StaticEmbedding` reads tokenizer.json alone.
        if let Some(file) = open(TOKENIZER)?.filter(|_| !settings.is_static) {
            let longest = file.limit("model_max_length")?;
            settings.max_length = settings.max_length.or(longest);
            settings.cuts_left = match file.text("truncation_side")?.as_deref() {
                None | Some("right") => false,
                Some("left") => true,
                Some(_) => bail!(file.wrong("truncation_side", "\"left\" or \"right\"")),
            };
        }
        if let Some(file) = File::open(folder, pooling_config(folder)?.strip_prefix(folder)?)? {
            settings.pools_prompt = file.switch("include_prompt")?.unwrap_or(true);
        }
        Ok(settings)
    }

    /// The prompt that is put in front of texts: the one of a name, else the default one, else none.
    ///
    /// # Errors
    /// [`PromptError`] when there is none of that name, and when the pooling leaves out a prompt.
    pub fn prompt(&self, name: Option<&str>) -> Result<&str, PromptError> {
        let prompt = match name.or(self.default_prompt.as_deref()) {
            None => return Ok(""),
            Some(name) => self.named(name).ok_or_else(|| PromptError::Unknown {
                name: name.to_owned(),
                known: if self.prompts.is_empty() { "no prompts".to_owned() } else { self.names() },
            })?,
        };
        if !prompt.is_empty() && !self.pools_prompt {
            return Err(PromptError::LeftOut);
        }
        Ok(prompt)
    }

    fn named(&self, name: &str) -> Option<&str> {
        self.prompts.iter().find(|(own, _)| own == name).map(|(_, prompt)| prompt.as_str())
    }

    fn names(&self) -> String {
        self.prompts.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

/// A prompt cannot be put in front of texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// No prompt has the name.
    #[error("there is no prompt `{name}`: {CONFIG} of the artifact has {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The pooling leaves out the tokens of prompts.
    #[error(
        "`include_prompt` of the pooling is false, so the tokens of a prompt have no part in an embedding, and the graph pools \
         all tokens; take a model that pools its prompt"
    )]
    LeftOut,
}

/// A file of settings, which is a JSON object.
struct File {
    path: String,
    members: Map<String, Value>,
}

impl File {
    /// A file in a folder, where it is there.
    fn open(folder: &Path, name: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = folder.join(name);
        let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { return Ok(None) };
        let path = path.display().to_string();
        let members = serde_json::from_str(&text).with_context(|| format!("{path} is not a JSON object"))?;
        Ok(Some(Self { path, members }))
    }

    /// A member that is there and not null.
    fn member(&self, key: &str) -> Option<&Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: &str) -> String {
        format!("{}: `{key}` is not {expected}", self.path)
    }

    fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.member(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        count.map(Some).with_context(|| self.wrong(key, "a number above 0"))
    }

    /// A number that may be so large that it stands for no limit.
    fn limit(&self, key: &str) -> Result<Option<usize>> {
        if self.member(key).and_then(Value::as_f64).is_some_and(|limit| limit >= UNLIMITED) {
            return Ok(None);
        }
        self.count(key)
    }

    fn switch(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.member(key) else { return Ok(None) };
        value.as_bool().map(Some).with_context(|| self.wrong(key, "true or false"))
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        let Some(value) = self.member(key) else { return Ok(None) };
        value.as_str().map(|text| Some(text.to_owned())).with_context(|| self.wrong(key, "a string"))
    }

    fn prompts(&self) -> Result<Vec<(String, String)>> {
        let Some(value) = self.member("prompts") else { return Ok(Vec::new()) };
        let expected = || self.wrong("prompts", "an object whose members are strings");
        let members = value.as_object().with_context(expected)?;
        let prompt = |(name, text): (&String, &Value)| {
            Ok((name.clone(), text.as_str().map(str::to_owned).with_context(expected)?))
        };
        members.iter().map(prompt).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<SentenceSettings, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        SentenceSettings::read(folder.path()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn each_file_says_its_part() {
        assert_eq!(read(&[]).unwrap(), SentenceSettings::default());
        let modules = r#"[{"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"},
                          {"type": "sentence_transformers.models.Pooling", "path": "./9_Pooling"},
                          {"type": "sentence_transformers.models.Dense", "path": "2_Dense"},
                          {"type": "sentence_transformers.models.Normalize", "path": "3_Normalize"}]"#;
        let settings = read(&[
            ("modules.json", modules),
            ("0_Transformer/sentence_bert_config.json", r#"{"max_seq_length": 128, "do_lower_case": true}"#),
            ("9_Pooling/config.json", r#"{"include_prompt": false}"#),
            (
                "config_sentence_transformers.json",
                r#"{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query",
                    "truncate_dim": 64}"#,
            ),
        ])
        .unwrap();
        assert_eq!((settings.max_length, settings.lower_case, settings.pools_prompt), (Some(128), true, false));
        assert_eq!(settings.truncate_dim, Some(64));
        assert_eq!((settings.normalizes, settings.other_modules.join(",")), (true, "Dense".to_owned()));
        assert_eq!(settings.prompt(None), Err(PromptError::LeftOut));
        assert_eq!(settings.prompt(Some("document")), Ok(""), "no prompt is left out");
        let older = read(&[("sentence_xlm-roberta_config.json", r#"{"max_seq_length": null, "do_lower_case": true}"#)]);
        assert!(older.is_ok_and(|older| older.lower_case && older.max_length.is_none()));
    }

    #[test]
    fn the_tokenizer_says_what_the_transformer_does_not() {
        let found = |transformer: &str, tokenizer: &str| {
            let files = [("sentence_bert_config.json", transformer), ("tokenizer_config.json", tokenizer)];
            read(&files).map(|settings| (settings.max_length, settings.cuts_left)).unwrap()
        };
        assert_eq!(found("{}", r#"{"model_max_length": 256, "truncation_side": "left"}"#), (Some(256), true));
        assert_eq!(found(r#"{"max_seq_length": 128}"#, r#"{"model_max_length": 256}"#), (Some(128), false));
        assert_eq!(found("{}", r#"{"model_max_length": 1000000000000000019884624838656}"#), (None, false));
        let files = [
            ("modules.json", r#"[{"type": "sentence_transformers.models.StaticEmbedding", "path": "."}]"#),
            ("tokenizer_config.json", r#"{"model_max_length": 256}"#),
        ];
        assert_eq!(read(&files).unwrap().max_length, None);
    }

    #[test]
    fn a_prompt_has_a_name() {
        let settings = SentenceSettings {
            prompts: vec![("query".to_owned(), "query: ".to_owned()), ("passage".to_owned(), "p: ".to_owned())],
            ..SentenceSettings::default()
        };
        assert_eq!((settings.prompt(None), settings.prompt(Some("query"))), (Ok(""), Ok("query: ")));
        let error = settings.prompt(Some("doc")).unwrap_err().to_string();
        assert!(error.contains("no prompt `doc`") && error.ends_with("has `query`, `passage`"), "{error}");
        let none = SentenceSettings::default().prompt(Some("doc")).unwrap_err().to_string();
        assert!(none.ends_with("has no prompts"), "{none}");
    }

    #[test]
    fn wrong_values_are_named() {
        for (name, text, message) in [
            ("sentence_bert_config.json", r#"{"max_seq_length": 0}"#, "`max_seq_length` is not a number above 0"),
            ("sentence_bert_config.json", r#"{"do_lower_case": 1}"#, "`do_lower_case` is not true or false"),
            ("config_sentence_transformers.json", "[]", "is not a JSON object"),
            ("config_sentence_transformers.json", r#"{"prompts": {"a": 1}}"#, "`prompts` is not an object whose"),
            ("config_sentence_transformers.json", r#"{"default_prompt_name": "a"}"#, "`default_prompt_name` is `a`"),
            ("modules.json", r#"[{"type": "x"}]"#, "entry 0 has no texts `type` and `path`"),
            ("modules.json", r#"[{"type": "x.Pooling", "path": "../y"}]"#, "is not a folder beside this file"),
            ("tokenizer_config.json", r#"{"truncation_side": "up"}"#, "`truncation_side` is not \"left\" or"),
            ("tokenizer_config.json", r#"{"model_max_length": 0}"#, "`model_max_length` is not a number above 0"),
        ] {
            let error = read(&[(name, text)]).unwrap_err();
            assert!(error.contains(message) && error.contains(name), "{error}");
        }
    }
}
