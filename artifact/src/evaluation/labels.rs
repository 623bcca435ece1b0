//! Figures of labels and scores.

use serde::{Deserialize, Serialize};

use super::Interval;

/// What the figures of labels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelMetric {
    /// The share of predictions, in %, that are the label.
    Accuracy,
    /// The mean of the F1 of each class, in %.
    MacroF1,
    /// The F1 of named entities, in %, as the library seqeval counts them.
    EntityF1,
    /// The words that are missing, wrong or too many next to those that were said, in %. Less is better.
    WordErrorRate,
    /// The same of characters.
    CharacterErrorRate,
    /// The rank correlation by Spearman of scores, or of cosines of two embeddings, and the labels.
    Spearman,
    /// The normalized discounted cumulative gain of the first 10 documents of each query.
    Ndcg10,
    /// The mean over the queries of one over the place of the first relevant document, among the first 10.
    Mrr10,
}

impl LabelMetric {
    fn title(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::MacroF1 => "F1, mean of classes",
            Self::EntityF1 => "F1 of entities",
            Self::WordErrorRate => "word error rate",
            Self::CharacterErrorRate => "character error rate",
            Self::Spearman => "Spearman",
            Self::Ndcg10 => "NDCG@10",
            Self::Mrr10 => "MRR@10",
        }
    }

    /// Whether it is in %.
    fn is_percent(self) -> bool {
        matches!(self, Self::Accuracy | Self::MacroF1 | Self::EntityF1 | Self::WordErrorRate | Self::CharacterErrorRate)
    }
}

/// A figure of predictions and labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelFigure {
    /// What it is.
    pub metric: LabelMetric,
    /// That of the artifact.
    pub artifact: f64,
    /// That of the model in float32.
    pub reference: f64,
    /// The 95 % interval of the artifact's figure, where that is a share.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<Interval>,
    /// How many labels it is of; of a ranking, how many queries that have a relevant document.
    pub count: u64,
}

impl LabelFigure {
    /// What a table has: the figure, the artifact's, its interval, the reference's, the count.
    pub(super) fn cells(&self) -> [String; 5] {
        let number =
            |value: f64| if self.metric.is_percent() { format!("{value:.2} %") } else { format!("{value:.4}") };
        [
            self.metric.title().to_owned(),
            number(self.artifact),
            self.interval.map_or_else(String::new, |interval| interval.to_string()),
            number(self.reference),
            self.count.to_string(),
        ]
    }
}

/// How close single scores are, such as those of regressions and rerankers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// How many.
    pub count: u64,
    /// The mean of the absolute differences.
    pub mean_difference: f64,
    /// The largest absolute difference.
    pub largest_difference: f64,
    /// The standard deviation of the reference's scores, which the differences are next to.
    pub deviation: f64,
    /// The rank correlation by Spearman of both sides; absent where all scores of a side are equal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spearman: Option<f64>,
}
