//! Labels: how right a model is, before and after it was compiled.

mod metrics;
mod seen;
mod transcripts;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_data::{Label, RowInfo};
use planish_files::Kind;
use planish_models::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) use self::seen::{Labelled, Truth};
pub(super) use self::transcripts::Transcripts;
use super::metrics::top;

/// The configuration of a folder; `None` where it has no config.json.
fn configuration(folder: &Path) -> Result<Option<Value>> {
    let path = folder.join("config.json");
    let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).with_context(|| format!("{} is not JSON", path.display()))
}

/// Whether a text may have several labels, each by the sigmoid of its own logit, as `problem_type` of the folder's config.json
/// says.
///
/// # Errors
/// When labels are asked for, which are one for each text here.
pub(super) fn may_have_several(folder: &Path, has_labels: bool) -> Result<bool> {
    const SEVERAL: &str = "multi_label_classification";
    let several = configuration(folder)?.is_some_and(|config| config["problem_type"] == SEVERAL);
    if several && has_labels {
        bail!(
            "--label is for one label of each text, but `problem_type` in {} is {SEVERAL}; leave --label out: without it, the \
             labels of the artifact, those whose sigmoid is above 0.5, are compared with those of the reference",
            folder.join("config.json").display()
        );
    }
    Ok(several)
}

/// The classes of a model, by their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Classes(BTreeMap<String, usize>);

impl Classes {
    /// Those that `id2label` of the folder's config.json names; none where there is no such file.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let Some(config) = configuration(folder)? else { return Ok(Self::default()) };
        let named = config.get("id2label").and_then(Value::as_object).into_iter().flatten();
        Ok(Self(named.filter_map(|(id, name)| Some((name.as_str()?.to_owned(), id.parse().ok()?))).collect()))
    }

    /// Whether a class has a name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The class of a label, of so many; `None` for a number below 0, which stands for no label.
    fn of(&self, label: &Label, count: usize) -> Result<Option<usize>> {
        let number = match label {
            Label::Name(name) => match self.0.get(name) {
                Some(class) => Some(*class as f64),
                None => name.trim().parse::<f64>().ok(),
            },
            Label::Number(number) => Some(*number),
            Label::Words(_) => None,
        };
        match number {
            Some(number) if number < 0.0 => Ok(None),
            Some(number) if number.fract() == 0.0 && number < count as f64 => Ok(Some(number as usize)),
            _ => {
                let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
                let named = if names.is_empty() { String::new() } else { format!(", or {}", names.join(", ")) };
                let label = match label {
                    Label::Name(name) => format!("`{name}`"),
                    Label::Number(number) => number.to_string(),
                    Label::Words(_) => "a list".to_owned(),
                };
                bail!("the label {label} is no class of the model, which are 0 to {}{named}", count.saturating_sub(1))
            }
        }
    }

    /// The name of a class.
    fn name(&self, class: usize) -> String {
        self.0.iter().find(|(_, own)| **own == class).map_or_else(|| class.to_string(), |(name, _)| name.clone())
    }
}

/// The number that a label of a score is.
fn score(label: &Label) -> Result<f64> {
    let number = match label {
        Label::Number(number) => Some(*number),
        Label::Name(name) => name.trim().parse().ok(),
        Label::Words(_) => None,
    };
    let number = number.filter(|number: &f64| number.is_finite());
    number.with_context(|| match label {
        Label::Name(name) => format!("the label `{name}` is not a number, and the model gives scores"),
        _ => "a label is not a number, and the model gives scores".to_owned(),
    })
}

/// How predictions are held against labels.
#[derive(Default)]
pub(super) struct Labels {
    pub(super) classes: Classes,
    /// Whether there are labels.
    is_asked: bool,
    /// What makes texts of the tokens of frames, of a model that writes down what is said.
    pub(super) transcripts: Option<Transcripts>,
}

impl Labels {
    /// For a model whose classes have names; `is_asked` says that there are labels.
    pub(super) fn new(classes: Classes, is_asked: bool) -> Self {
        Self { classes, is_asked, transcripts: None }
    }

    /// Whether a task has figures of labels.
    ///
    /// # Errors
    /// When it has none.
    pub(super) fn check(task: Option<Task>, is_single: bool) -> Result<()> {
        let has = matches!(
            task,
            None | Some(
                Task::FeatureExtraction
                    | Task::SentenceSimilarity
                    | Task::TextClassification
                    | Task::TokenClassification
                    | Task::ImageClassification
                    | Task::AudioClassification
                    | Task::AutomaticSpeechRecognition
            )
        );
        if !has || !is_single {
            bail!(
                "--label is for classification, for embeddings of pairs of texts, for scores, and for transcripts by models of one \
                 part; leave it out"
            );
        }
        Ok(())
    }

    /// Adds the logits of a row, [labels]: a score, or one for each class.
    pub(super) fn add_row(
        &self,
        seen: &mut Labelled,
        row: Option<&RowInfo>,
        wanted: &[f32],
        given: &[f32],
    ) -> Result<()> {
        if let ([wanted], [given]) = (wanted, given) {
            seen.is_of_model = true;
            let truth = if self.is_asked { Some(Self::truth(row)?) } else { None };
            seen.add_score(truth, [f64::from(*wanted), f64::from(*given)]);
            return Ok(());
        }
        let Some(label) = row.and_then(|row| row.label.as_ref()) else { return Ok(()) };
        if let Some(class) = self.classes.of(label, wanted.len())? {
            seen.labels.push(class);
            seen.predicted[0].push(top(wanted));
            seen.predicted[1].push(top(given));
        }
        Ok(())
    }

    /// What the label of a row says of its score.
    ///
    /// # Errors
    /// When it has none, or one that is no number.
    pub(super) fn truth(row: Option<&RowInfo>) -> Result<Truth> {
        let label = row.and_then(|row| row.label.as_ref()).context("a text has no label")?;
        Ok(Truth { score: score(label)?, query: row.and_then(|row| row.query.clone()).unwrap_or_default() })
    }

    /// Adds the logits of the tokens of a row, of which the first one of each word counts.
    pub(super) fn add_words(&self, seen: &mut Labelled, row: &RowInfo, tokens: &[[Vec<f32>; 2]]) -> Result<()> {
        let Some(label) = &row.label else { return Ok(()) };
        let Label::Words(labels) = label else {
            bail!(
                "the model has a label for each token: --field names the list of words, and --label the list of labels"
            );
        };
        let mut sentence: [Vec<usize>; 3] = Default::default();
        for (word, [wanted, given]) in row.words.iter().zip(tokens) {
            let Some(label) = word.and_then(|word| labels.get(word)) else { continue };
            if let Some(class) = self.classes.of(label, wanted.len())? {
                sentence[0].push(class);
                sentence[1].push(top(wanted));
                sentence[2].push(top(given));
            }
        }
        seen.sentences.push(sentence);
        Ok(())
    }
}
