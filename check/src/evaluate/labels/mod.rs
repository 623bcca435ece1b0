//! Labels: how right a model is, before and after it was compiled.

mod metrics;
mod transcripts;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::evaluation::{Interval, LabelFigure, LabelMetric, Scores};
use planish_data::{Label, RowInfo};
use planish_files::Kind;
use planish_models::Task;
use serde_json::Value;

use self::metrics::{accuracy, entity_f1, macro_f1, ndcg, reciprocal_rank, spearman};
pub(super) use self::transcripts::{Rates, Transcripts};
use super::metrics::top;

/// A figure of a ranking, by the relevance of its documents and their scores.
type Measure = fn(&[f64], &[f64]) -> Option<f64>;

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
#[derive(Clone, Debug, Default)]
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

/// Predictions and labels that were seen. The reference's are first, then the artifact's.
#[derive(Default)]
pub(super) struct Labelled {
    classes: Classes,
    is_asked: bool,
    /// Of a model that writes down what is said.
    pub(super) transcripts: Option<Transcripts>,
    /// The labels of texts, and what was predicted.
    labels: Vec<usize>,
    predicted: [Vec<usize>; 2],
    /// The same for the words of each text.
    sentences: Vec<[Vec<usize>; 3]>,
    /// Scores, their labels where these are asked for, and which query each is of.
    scores: [Vec<f64>; 2],
    truth: Vec<f64>,
    queries: Vec<usize>,
    known_queries: BTreeMap<String, usize>,
    /// Whether scores are what the model gives, and not cosines of embeddings.
    is_of_model: bool,
}

impl Labelled {
    /// For a model whose classes have names; `is_asked` says that there are labels.
    pub(super) fn new(classes: Classes, is_asked: bool) -> Self {
        Self { classes, is_asked, ..Self::default() }
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
    pub(super) fn add_row(&mut self, row: Option<&RowInfo>, wanted: &[f32], given: &[f32]) -> Result<()> {
        let label = row.and_then(|row| row.label.as_ref());
        if let ([wanted], [given]) = (wanted, given) {
            self.is_of_model = true;
            return self.add_score(row, label, [f64::from(*wanted), f64::from(*given)]);
        }
        let Some(label) = label else { return Ok(()) };
        if let Some(class) = self.classes.of(label, wanted.len())? {
            self.labels.push(class);
            self.predicted[0].push(top(wanted));
            self.predicted[1].push(top(given));
        }
        Ok(())
    }

    /// Adds a score of both sides.
    pub(super) fn add_score(&mut self, row: Option<&RowInfo>, label: Option<&Label>, scores: [f64; 2]) -> Result<()> {
        if self.is_asked {
            self.truth.push(score(label.context("a text has no label")?)?);
            let query = row.and_then(|row| row.query.clone()).unwrap_or_default();
            let next = self.known_queries.len();
            self.queries.push(*self.known_queries.entry(query).or_insert(next));
        }
        self.scores.iter_mut().zip(scores).for_each(|(all, score)| all.push(score));
        Ok(())
    }

    /// Adds the logits of the tokens of a row, of which the first one of each word counts.
    pub(super) fn add_words(&mut self, row: &RowInfo, tokens: &[[Vec<f32>; 2]]) -> Result<()> {
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
        self.sentences.push(sentence);
        Ok(())
    }

    /// The figures of labels, and of scores.
    pub(super) fn report(&self) -> (Vec<LabelFigure>, Option<Scores>) {
        let mut figures = Vec::new();
        let words = |at: usize| self.sentences.iter().flat_map(|sentence| sentence[at].clone()).collect::<Vec<_>>();
        let (labels, predicted) = match self.sentences.is_empty() {
            true => (self.labels.clone(), self.predicted.clone()),
            false => (words(0), [words(1), words(2)]),
        };
        let count = labels.len() as u64;
        if count > 0 {
            let [reference, artifact] = [&predicted[0], &predicted[1]].map(|of| 100.0 * accuracy(&labels, of));
            let interval = Some(Interval::of_share(artifact, count));
            figures.push(LabelFigure { metric: LabelMetric::Accuracy, artifact, reference, interval, count });
            let [entities, of_artifact] = [1, 2].map(|side| self.entities(side));
            let (metric, reference, artifact) = match (entities, of_artifact) {
                (Some(reference), Some(artifact)) => (LabelMetric::EntityF1, reference, artifact),
                _ => {
                    let [reference, artifact] = [&predicted[0], &predicted[1]].map(|of| macro_f1(&labels, of));
                    (LabelMetric::MacroF1, reference, artifact)
                }
            };
            let [artifact, reference] = [artifact, reference].map(|f1| 100.0 * f1);
            figures.push(LabelFigure { metric, artifact, reference, interval: None, count });
        }
        figures.extend(self.transcripts.iter().flat_map(|transcripts| transcripts.rates.figures()));
        self.add_scores(&mut figures);
        (figures, self.scores())
    }

    /// The F1 of the entities of a side, where the names of the classes are tags of entities.
    fn entities(&self, side: usize) -> Option<f64> {
        let is_tag = |name: &String| {
            name == "O" || name.split_once('-').is_some_and(|(mark, _)| matches!(mark, "B" | "I" | "E" | "S"))
        };
        if self.sentences.is_empty() || self.classes.0.is_empty() || !self.classes.0.keys().all(is_tag) {
            return None;
        }
        let names = |classes: &[usize]| classes.iter().map(|class| self.classes.name(*class)).collect::<Vec<String>>();
        let named: Vec<[Vec<String>; 2]> =
            self.sentences.iter().map(|sentence| [names(&sentence[0]), names(&sentence[side])]).collect();
        let borrowed: Vec<[Vec<&str>; 2]> = named
            .iter()
            .map(|[labels, predictions]| [labels, predictions].map(|of| of.iter().map(String::as_str).collect()))
            .collect();
        entity_f1(&borrowed)
    }

    fn add_scores(&self, figures: &mut Vec<LabelFigure>) {
        if self.truth.is_empty() {
            return;
        }
        let queries = self.known_queries.len();
        // Where a query has one document, as a rule, there are no rankings.
        if self.truth.len() < 2 * queries || queries == 1 && self.known_queries.contains_key("") {
            let [reference, artifact] = [&self.scores[0], &self.scores[1]].map(|of| spearman(&self.truth, of));
            if let (Some(reference), Some(artifact)) = (reference, artifact) {
                let (metric, count) = (LabelMetric::Spearman, self.truth.len() as u64);
                figures.push(LabelFigure { metric, artifact, reference, interval: None, count });
            }
            return;
        }
        let mut rankings: Vec<[Vec<f64>; 3]> = vec![Default::default(); queries];
        for (at, query) in self.queries.iter().enumerate() {
            let ranking = &mut rankings[*query];
            ranking[0].push(self.truth[at]);
            ranking[1].push(self.scores[0][at]);
            ranking[2].push(self.scores[1][at]);
        }
        let of: [(LabelMetric, Measure); 2] = [(LabelMetric::Ndcg10, ndcg), (LabelMetric::Mrr10, reciprocal_rank)];
        for (metric, measure) in of {
            let all = |side: usize| rankings.iter().filter_map(|of| measure(&of[0], &of[side])).collect::<Vec<f64>>();
            let [reference, artifact] = [all(1), all(2)];
            let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
            if !artifact.is_empty() {
                let (reference, count) = (mean(&reference), artifact.len() as u64);
                figures.push(LabelFigure { metric, artifact: mean(&artifact), reference, interval: None, count });
            }
        }
    }

    fn scores(&self) -> Option<Scores> {
        let [reference, artifact] = &self.scores;
        if !self.is_of_model || reference.is_empty() {
            return None;
        }
        let count = reference.len() as f64;
        let differences: Vec<f64> = reference.iter().zip(artifact).map(|(a, b)| (a - b).abs()).collect();
        let mean = reference.iter().sum::<f64>() / count;
        Some(Scores {
            count: reference.len() as u64,
            mean_difference: differences.iter().sum::<f64>() / count,
            largest_difference: differences.iter().copied().fold(0.0, f64::max),
            deviation: (reference.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / count).sqrt(),
            spearman: spearman(reference, artifact),
        })
    }
}
