//! Predictions and labels that were seen, and their figures.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use planish_artifact::evaluation::{Interval, LabelFigure, LabelMetric, Scores};
use planish_data::Label;
use serde::{Deserialize, Serialize};

use super::Classes;
use super::metrics::{accuracy, entity_f1, macro_f1, ndcg, reciprocal_rank, spearman};
use super::transcripts::Rates;

/// A figure of a ranking, by the relevance of its documents and their scores.
type Measure = fn(&[f64], &[f64]) -> Option<f64>;

/// Predictions and labels that were seen. The reference's are first, then the artifact's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::evaluate) struct Labelled {
    /// Errors of what a model writes down of recordings.
    pub(super) rates: Rates,
    /// The labels of texts, and what was predicted.
    pub(super) labels: Vec<usize>,
    pub(super) predicted: [Vec<usize>; 2],
    /// The same for the words of each text.
    pub(super) sentences: Vec<[Vec<usize>; 3]>,
    /// Scores, their labels where these are asked for, and which query each is of.
    scores: [Vec<f64>; 2],
    truth: Vec<f64>,
    of_query: Vec<usize>,
    /// The queries in the order in which they were seen first.
    queries: Vec<String>,
    /// The places of the queries, which is empty in what was read from a file.
    #[serde(skip)]
    places: HashMap<String, usize>,
    /// Whether scores are what the model gives, and not cosines of embeddings.
    pub(super) is_of_model: bool,
}

/// What is true of a score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::evaluate) struct Truth {
    pub(in crate::evaluate) score: f64,
    /// The query that a document was ranked for; empty where there is none.
    pub(in crate::evaluate) query: String,
}

impl Labelled {
    /// Adds a score of both sides.
    pub(in crate::evaluate) fn add_score(&mut self, truth: Option<Truth>, scores: [f64; 2]) {
        if let Some(Truth { score, query }) = truth {
            self.truth.push(score);
            let place = self.place(query);
            self.of_query.push(place);
        }
        self.scores.iter_mut().zip(scores).for_each(|(all, score)| all.push(score));
    }

    /// Adds what the reference and the artifact made of a recording.
    ///
    /// # Errors
    /// When its label is no text.
    pub(in crate::evaluate) fn add_texts(&mut self, label: Option<&Label>, texts: [&str; 2]) -> Result<()> {
        self.rates.add(label, texts)
    }

    /// The place of a query among those that were seen.
    fn place(&mut self, query: String) -> usize {
        let next = self.queries.len();
        let place = *self.places.entry(query.clone()).or_insert(next);
        if place == next {
            self.queries.push(query);
        }
        place
    }

    /// Adds what was seen of the batch that follows.
    pub(in crate::evaluate) fn fold(&mut self, next: Self) {
        self.rates.fold(&next.rates);
        self.labels.extend(next.labels);
        self.predicted.iter_mut().zip(next.predicted).for_each(|(own, its)| own.extend(its));
        self.sentences.extend(next.sentences);
        self.scores.iter_mut().zip(next.scores).for_each(|(own, its)| own.extend(its));
        self.truth.extend(next.truth);
        let places: Vec<usize> = next.queries.into_iter().map(|query| self.place(query)).collect();
        self.of_query.extend(next.of_query.into_iter().map(|query| places[query]));
        self.is_of_model |= next.is_of_model;
    }

    /// Checks that there are as many numbers of each kind as belong together, of a file that may be damaged.
    ///
    /// # Errors
    /// What is not so.
    pub(in crate::evaluate) fn check_lengths(&self) -> Result<()> {
        let (labels, scores) = (self.labels.len(), self.scores[0].len());
        ensure!(
            self.predicted.iter().all(|of| of.len() == labels),
            "predictions are not as many as the {labels} labels"
        );
        let are_truths = self.truth.len() == self.of_query.len() && [0, scores].contains(&self.truth.len());
        ensure!(self.scores[1].len() == scores && are_truths, "labels are not as many as the {scores} scores");
        let has_query = |place: &usize| *place < self.queries.len();
        ensure!(self.of_query.iter().all(has_query), "a score is of a query that is not there");
        let is_even = |[labels, wanted, given]: &[Vec<usize>; 3]| [wanted.len(), given.len()] == [labels.len(); 2];
        ensure!(self.sentences.iter().all(is_even), "predictions of words are not as many as their labels");
        Ok(())
    }

    /// The figures of labels, and of scores.
    pub(in crate::evaluate) fn report(&self, classes: &Classes) -> (Vec<LabelFigure>, Option<Scores>) {
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
            let [entities, of_artifact] = [1, 2].map(|side| self.entities(classes, side));
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
        figures.extend(self.rates.figures());
        self.add_scores(&mut figures);
        (figures, self.scores())
    }

    /// The F1 of the entities of a side, where the names of the classes are tags of entities.
    fn entities(&self, classes: &Classes, side: usize) -> Option<f64> {
        let is_tag = |name: &String| {
            name == "O" || name.split_once('-').is_some_and(|(mark, _)| matches!(mark, "B" | "I" | "E" | "S"))
        };
        if self.sentences.is_empty() || classes.0.is_empty() || !classes.0.keys().all(is_tag) {
            return None;
        }
        let names = |of: &[usize]| of.iter().map(|class| classes.name(*class)).collect::<Vec<String>>();
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
        let queries = self.queries.len();
        // Where a query has one document, as a rule, there are no rankings.
        if self.truth.len() < 2 * queries || queries == 1 && self.queries[0].is_empty() {
            let [reference, artifact] = [&self.scores[0], &self.scores[1]].map(|of| spearman(&self.truth, of));
            if let (Some(reference), Some(artifact)) = (reference, artifact) {
                let (metric, count) = (LabelMetric::Spearman, self.truth.len() as u64);
                figures.push(LabelFigure { metric, artifact, reference, interval: None, count });
            }
            return;
        }
        let mut rankings: Vec<[Vec<f64>; 3]> = vec![Default::default(); queries];
        for (at, query) in self.of_query.iter().enumerate() {
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
