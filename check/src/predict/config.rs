//! What config.json of an artifact says of predictions: the names of labels, and what makes scores of logits.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use serde_json::Value;

/// Where cross-encoders of the sentence-transformers library keep the class that makes scores of logits, that which counts
/// first (`CrossEncoder.get_default_activation_fn`). The first key is of config_sentence_transformers.json, the others are of
/// config.json.
const ACTIVATIONS: [&str; 3] =
    ["/activation_fn", "/sentence_transformers/activation_fn", "/sbert_ce_default_activation_function"];

/// What makes scores of the logits of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Sigmoid,
    Softmax,
    Identity,
}

/// The settings of a model.
pub(super) struct Config {
    path: String,
    settings: Value,
    /// What the sentence-transformers library says of the model.
    sentence: Value,
    sentence_path: String,
}

impl Config {
    /// Those of the folder's config.json and config_sentence_transformers.json; none where there is no such file.
    ///
    /// # Errors
    /// When a file cannot be read or is not JSON.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let [(path, settings), (sentence_path, sentence)] =
            [file(folder, "config.json")?, file(folder, "config_sentence_transformers.json")?];
        Ok(Self { path, settings, sentence, sentence_path })
    }

    /// The names of so many classes: those of `id2label`, or `LABEL_0` and so on for classes that have none.
    pub(super) fn labels(&self, count: usize) -> Rc<[String]> {
        let name = |class: usize| {
            let named = self.settings.get("id2label").and_then(|names| names.get(class.to_string()));
            named.and_then(Value::as_str).map_or_else(|| usual(class), str::to_owned)
        };
        (0..count).map(name).collect()
    }

    /// The same; where two classes have the same name, all have `LABEL_0` and so on, so that each has a name of its own.
    pub(super) fn own_labels(&self, count: usize) -> Rc<[String]> {
        let names = self.labels(count);
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < count { (0..count).map(usual).collect() } else { names }
    }

    /// The number of labels, as a compiled checkpoint has it; `None` where nothing says it.
    pub(super) fn label_count(&self) -> Option<usize> {
        let named = self.settings.get("id2label").and_then(Value::as_object).map(serde_json::Map::len);
        let counted = || ["num_labels", "_num_labels"].into_iter().find_map(|key| self.settings.get(key)?.as_u64());
        named.or_else(|| usize::try_from(counted()?).ok())
    }

    /// The most pairs of object and label that a detector without a class for no object gives: 100 of the first ones, and
    /// otherwise as many as objects, which is nothing here.
    pub(super) fn most_objects(&self) -> Option<usize> {
        let kind = self.settings.get("model_type").and_then(Value::as_str)?;
        ["conditional_detr", "deformable_detr"].contains(&kind).then_some(100)
    }

    /// Whether several labels of a text may be true.
    pub(super) fn is_multi_label(&self) -> bool {
        self.problem_type() == Some("multi_label_classification")
    }

    /// The type of the model.
    pub(super) fn model_type(&self) -> Option<&str> {
        self.settings.get("model_type").and_then(Value::as_str)
    }

    fn problem_type(&self) -> Option<&str> {
        self.settings.get("problem_type").and_then(Value::as_str)
    }

    /// What makes scores of the logits of so many labels: what a cross-encoder names, or else what `problem_type` asks for
    /// (`TextClassificationPipeline` of the transformers library), or else a sigmoid of one and a softmax of several.
    ///
    /// # Errors
    /// When a cross-encoder names another function.
    pub(super) fn activation(&self, labels: usize) -> Result<Activation> {
        let files = [(&self.sentence_path, &self.sentence), (&self.path, &self.settings), (&self.path, &self.settings)];
        for (key, (path, settings)) in ACTIVATIONS.into_iter().zip(files) {
            let class = match settings.pointer(key) {
                None => continue,
                // Null stands for the usual function where it is under the key in the middle, which hides the oldest one.
                Some(Value::Null) if key == ACTIVATIONS[1] => break,
                Some(Value::Null) => continue,
                Some(class) => class,
            };
            let name = class.as_str().map(|class| class.trim_end_matches("()").rsplit('.').next().unwrap_or_default());
            return match name {
                Some("Sigmoid") => Ok(Activation::Sigmoid),
                Some("Identity") => Ok(Activation::Identity),
                _ => bail!(
                    "{path}: `{}` is {class}, and planish makes scores by Sigmoid or Identity, such as \
                     \"torch.nn.modules.linear.Identity\"; set one of them",
                    key.trim_start_matches('/').replace('/', "."),
                ),
            };
        }
        Ok(match self.problem_type() {
            Some("regression") => Activation::Identity,
            Some("multi_label_classification") => Activation::Sigmoid,
            _ if labels == 1 => Activation::Sigmoid,
            _ => Activation::Softmax,
        })
    }
}

/// The name of a class without one.
fn usual(class: usize) -> String {
    format!("LABEL_{class}")
}

/// A file of a folder, with its path; nothing in it where it is not there.
fn file(folder: &Path, name: &str) -> Result<(String, Value)> {
    let path = folder.join(name);
    let text = planish_files::read_if_there(&path, &Kind::SETTINGS)?;
    let path = path.display().to_string();
    let settings = match text {
        Some(text) => serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))?,
        None => Value::Null,
    };
    Ok((path, settings))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(settings: Value) -> Config {
        let [path, sentence_path] = ["config.json", "config_sentence_transformers.json"].map(str::to_owned);
        Config { path, settings, sentence: Value::Null, sentence_path }
    }

    #[test]
    fn classes_have_names() {
        let named = config(json!({"id2label": {"0": "no", "1": "yes"}}));
        assert_eq!((&*named.labels(2), named.label_count()), (&["no".to_owned(), "yes".to_owned()][..], Some(2)));
        assert_eq!(named.own_labels(3)[2], "LABEL_2");
        let same = config(json!({"id2label": {"0": "O", "1": "a", "2": "a"}}));
        assert_eq!((same.own_labels(3)[0].as_str(), same.labels(3).join(",").as_str()), ("LABEL_0", "O,a,a"));
        assert_eq!(config(Value::Null).label_count(), None);
        assert!(config(json!({"problem_type": "multi_label_classification"})).is_multi_label());
    }

    #[test]
    fn logits_have_an_activation() {
        let read = |settings, labels| config(settings).activation(labels).map_err(|error| error.to_string());
        assert_eq!((read(json!({}), 1), read(json!({}), 2)), (Ok(Activation::Sigmoid), Ok(Activation::Softmax)));
        let regression = || json!({"problem_type": "regression"});
        assert_eq!(
            (read(regression(), 1), read(regression(), 3)),
            (Ok(Activation::Identity), Ok(Activation::Identity))
        );
        assert_eq!(read(json!({"problem_type": "multi_label_classification"}), 3), Ok(Activation::Sigmoid));
        let newer = json!({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
                           "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"});
        assert_eq!((read(newer.clone(), 1), read(newer, 3)), (Ok(Activation::Identity), Ok(Activation::Identity)));
        let older = json!({"sbert_ce_default_activation_function": "torch.nn.Identity()"});
        assert_eq!(read(older, 1), Ok(Activation::Identity));
        let hidden = json!({"sentence_transformers": {"activation_fn": null},
                            "sbert_ce_default_activation_function": "torch.nn.Identity()"});
        assert_eq!(read(hidden, 1), Ok(Activation::Sigmoid));
        for class in [json!("torch.nn.Tanh"), json!(1)] {
            let error = read(json!({"sentence_transformers": {"activation_fn": class}}), 1).unwrap_err();
            assert!(error.contains(&format!("`sentence_transformers.activation_fn` is {class}")), "{error}");
        }
    }

    #[test]
    fn the_file_of_sentence_transformers_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let identity = r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}"#;
        write("config.json", identity);
        let read = || Config::read(folder.path()).unwrap().activation(1).unwrap();
        write("config_sentence_transformers.json", r#"{"activation_fn": null}"#);
        assert_eq!(read(), Activation::Identity);
        let sigmoid = r#"{"activation_fn": "torch.nn.modules.activation.Sigmoid"}"#;
        write("config_sentence_transformers.json", sigmoid);
        assert_eq!(read(), Activation::Sigmoid);
    }
}
