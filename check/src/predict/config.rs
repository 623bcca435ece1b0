//! What config.json of an artifact says of predictions: the names of labels, and what makes scores of logits.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use serde_json::Value;

/// Where cross-encoders of the sentence-transformers library keep the class that makes a score of a logit, newer versions first.
const ACTIVATIONS: [&str; 2] = ["/sentence_transformers/activation_fn", "/sbert_ce_default_activation_function"];

/// What makes a score of a single logit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Sigmoid,
    Identity,
}

/// The settings of a model.
pub(super) struct Config {
    path: String,
    settings: Value,
}

impl Config {
    /// Those of the folder's config.json; none where there is no such file.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = planish_files::read_if_there(&path, &Kind::SETTINGS)?;
        let path = path.display().to_string();
        let settings = match text {
            Some(text) => serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))?,
            None => Value::Null,
        };
        Ok(Self { path, settings })
    }

    /// The names of so many classes: those of `id2label`, or `LABEL_0` and so on for classes that have none. Where two classes
    /// have the same name, all have the latter.
    pub(super) fn labels(&self, count: usize) -> Rc<[String]> {
        let usual = |class: usize| format!("LABEL_{class}");
        let name = |class: usize| {
            let named = self.settings.get("id2label").and_then(|names| names.get(class.to_string()));
            named.and_then(Value::as_str).map_or_else(|| usual(class), str::to_owned)
        };
        let names: Vec<String> = (0..count).map(name).collect();
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < count { (0..count).map(usual).collect() } else { names.into() }
    }

    /// The number of labels; `None` where no label has a name.
    pub(super) fn label_count(&self) -> Option<usize> {
        self.settings.get("id2label").and_then(Value::as_object).map(serde_json::Map::len)
    }

    /// Whether several labels of a text may be true.
    pub(super) fn is_multi_label(&self) -> bool {
        self.settings.get("problem_type").and_then(Value::as_str) == Some("multi_label_classification")
    }

    /// What makes a score of a single logit: a sigmoid unless the file says otherwise.
    ///
    /// # Errors
    /// When it names another function.
    pub(super) fn activation(&self) -> Result<Activation> {
        let named = ACTIVATIONS.iter().find_map(|key| Some((key, self.settings.pointer(key)?.as_str()?)));
        let Some((key, class)) = named else { return Ok(Activation::Sigmoid) };
        match class.trim_end_matches("()").rsplit('.').next() {
            Some("Sigmoid") => Ok(Activation::Sigmoid),
            Some("Identity") => Ok(Activation::Identity),
            _ => bail!(
                "{}: `{}` is `{class}`, and planish makes scores by Sigmoid or Identity; set one of them",
                self.path,
                key.trim_start_matches('/').replace('/', ".")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(settings: Value) -> Config {
        Config { path: "config.json".to_owned(), settings }
    }

    #[test]
    fn classes_have_names() {
        let named = config(json!({"id2label": {"0": "no", "1": "yes"}}));
        assert_eq!((&*named.labels(2), named.label_count()), (&["no".to_owned(), "yes".to_owned()][..], Some(2)));
        assert_eq!(named.labels(3)[2], "LABEL_2");
        assert_eq!(config(json!({"id2label": {"0": "a", "1": "a"}})).labels(2)[0], "LABEL_0");
        assert_eq!(config(Value::Null).label_count(), None);
        assert!(config(json!({"problem_type": "multi_label_classification"})).is_multi_label());
    }

    #[test]
    fn a_single_logit_has_an_activation() {
        let read = |settings| config(settings).activation().map_err(|error| error.to_string());
        assert_eq!(read(json!({})), Ok(Activation::Sigmoid));
        let newer = json!({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
                           "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"});
        assert_eq!(read(newer), Ok(Activation::Identity));
        let older = json!({"sbert_ce_default_activation_function": "torch.nn.Identity()"});
        assert_eq!(read(older), Ok(Activation::Identity));
        let other = read(json!({"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}})).unwrap_err();
        assert!(other.contains("`sentence_transformers.activation_fn` is `torch.nn.Tanh`"), "{other}");
    }
}
