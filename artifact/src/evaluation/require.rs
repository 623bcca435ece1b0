//! What an evaluation has to reach.

use std::fmt;
use std::str::FromStr;

use super::report::Evaluation;

/// A figure that can be required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The mean cosine of embeddings, or of the rows of logits; for other models the least cosine of an output.
    Cosine,
    /// The least cosine of an embedding, or of a row of logits.
    LeastCosine,
    /// The share of texts, in %, whose nearest other text stays the same.
    Neighbours,
    /// The share of predictions, in %, with the same label or token on top.
    Top1,
    /// The mean divergence of the artifact's predictions from the reference's, in nats.
    Divergence,
    /// The perplexity of the artifact over that of the reference.
    Perplexity,
    /// The largest relative error of an output.
    Error,
    /// The rank correlation of single scores of the artifact and the reference.
    Ranks,
    /// The share, in %, of the artifact's predictions that are the label.
    Accuracy,
    /// The artifact's F1, in %: that of entities, or the mean of the classes.
    F1,
    /// The rank correlation of the artifact's scores, or cosines of pairs, and the labels.
    Spearman,
    /// The artifact's normalized discounted cumulative gain at 10.
    Ndcg,
    /// The artifact's mean reciprocal rank at 10.
    Mrr,
    /// The word error rate of the artifact's transcripts, in %.
    WordErrors,
    /// Their character error rate, in %.
    CharacterErrors,
}

impl Figure {
    /// Every figure.
    pub const ALL: [Self; 15] = [
        Self::Cosine,
        Self::LeastCosine,
        Self::Neighbours,
        Self::Top1,
        Self::Divergence,
        Self::Perplexity,
        Self::Error,
        Self::Ranks,
        Self::Accuracy,
        Self::F1,
        Self::Spearman,
        Self::Ndcg,
        Self::Mrr,
        Self::WordErrors,
        Self::CharacterErrors,
    ];

    /// Its name in a requirement.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cos",
            Self::LeastCosine => "least-cos",
            Self::Neighbours => "neighbours",
            Self::Top1 => "top1",
            Self::Divergence => "kl",
            Self::Perplexity => "perplexity",
            Self::Error => "error",
            Self::Ranks => "ranks",
            Self::Accuracy => "accuracy",
            Self::F1 => "f1",
            Self::Spearman => "spearman",
            Self::Ndcg => "ndcg",
            Self::Mrr => "mrr",
            Self::WordErrors => "wer",
            Self::CharacterErrors => "cer",
        }
    }

    /// Refuses limits that every artifact reaches or none: shares are in percent, and a cosine is at most 1.
    fn check(self, limit: f64) -> Result<(), LimitError> {
        let name = self.name();
        match self {
            Self::Cosine | Self::LeastCosine | Self::Ranks | Self::Spearman | Self::Ndcg | Self::Mrr if limit > 1.0 => {
                Err(LimitError::MoreThanOne(name))
            }
            Self::Neighbours | Self::Top1 | Self::Accuracy | Self::F1 if !(1.0..=100.0).contains(&limit) => {
                Err(LimitError::NotPercent(name))
            }
            _ => Ok(()),
        }
    }

    /// Whether larger is better.
    fn is_least(self) -> bool {
        let is_most = matches!(self, Self::Divergence | Self::Perplexity | Self::Error);
        !is_most && !matches!(self, Self::WordErrors | Self::CharacterErrors)
    }
}

/// Limits of figures. Its text is `NAME=VALUE,...`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requirements(Vec<(Figure, f64)>);

/// A limit is for a figure that an evaluation does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this evaluation has no `{}`; it has {}; set limits for these", .figure.name(), .there.join(", "))]
pub struct NoFigure {
    /// The figure.
    pub figure: Figure,
    /// The names of those that it has.
    pub there: Vec<&'static str>,
}

impl Requirements {
    /// One limit.
    #[must_use]
    pub fn of(figure: Figure, limit: f64) -> Self {
        Self(vec![(figure, limit)])
    }

    /// Checks that there is a figure for each limit.
    ///
    /// # Errors
    /// [`NoFigure`] of the first without one.
    pub fn check(&self, has: impl Fn(Figure) -> bool) -> Result<(), NoFigure> {
        match self.0.iter().find(|(figure, _)| !has(*figure)) {
            Some((figure, _)) => {
                let there = Figure::ALL.into_iter().filter(|figure| has(*figure)).map(Figure::name).collect();
                Err(NoFigure { figure: *figure, there })
            }
            None => Ok(()),
        }
    }

    /// What of an evaluation does not reach its limit, in words.
    ///
    /// # Errors
    /// [`NoFigure`] where the evaluation has no figure for a limit.
    pub fn misses(&self, evaluation: &Evaluation) -> Result<Vec<String>, NoFigure> {
        self.check(|figure| evaluation.figure(figure).is_some())?;
        let mut misses = Vec::new();
        for (figure, limit) in &self.0 {
            let Some(value) = evaluation.figure(*figure) else { continue };
            let name = figure.name();
            let (reached, bound) = match figure.is_least() {
                true => (value >= *limit, "at least"),
                false => (value <= *limit, "at most"),
            };
            if !reached {
                misses.push(format!("{name} is {value:.6}, {bound} {limit} required"));
            }
        }
        Ok(misses)
    }

    /// How far the figures of an evaluation are from their limits: the sum of what they miss them by, relative to the limits; 0
    /// where they reach all of them.
    #[must_use]
    pub fn excess(&self, evaluation: &Evaluation) -> f64 {
        let one = |(figure, limit): &(Figure, f64)| {
            let Some(value) = evaluation.figure(*figure).filter(|value| !value.is_nan()) else { return f64::INFINITY };
            let missed = if figure.is_least() { limit - value } else { value - limit };
            missed.max(0.0) / if *limit == 0.0 { 1.0 } else { limit.abs() }
        };
        self.0.iter().map(one).sum()
    }

    /// The figures of two evaluations that limits are set for, in words.
    #[must_use]
    pub fn change(&self, before: &Evaluation, after: &Evaluation) -> String {
        let change = |figure: Figure| {
            let [before, after] = [before, after].map(|evaluation| evaluation.figure(figure));
            Some(format!("{} {:.6} -> {:.6}", figure.name(), before?, after?))
        };
        self.0.iter().filter_map(|(figure, _)| change(*figure)).collect::<Vec<_>>().join(", ")
    }
}

/// A text is not a list of limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A part is not of the form of a limit.
    #[error("`{0}`: expected NAME=VALUE, such as cos=0.999")]
    Form(String),
    /// There is no figure of this name.
    #[error("there is no figure `{0}`; there are {all}", all = Figure::ALL.map(Figure::name).join(", "))]
    Figure(String),
    /// What follows the name is no number.
    #[error("`{0}`: expected a number after the =")]
    Number(String),
    /// A cosine or a correlation of more than 1.
    #[error("`{0}` is at most 1, such as {0}=0.999")]
    MoreThanOne(&'static str),
    /// A share that is not in percent.
    #[error("`{0}` is in percent, such as {0}=93")]
    NotPercent(&'static str),
    /// A figure that has a limit already.
    #[error("`{0}` stands twice")]
    Twice(String),
}

impl FromStr for Requirements {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let mut limits: Vec<(Figure, f64)> = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| LimitError::Form(part.to_owned()))?;
            let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name.trim());
            let figure = figure.ok_or_else(|| LimitError::Figure(name.to_owned()))?;
            let value = value.trim().parse().ok().filter(|value: &f64| value.is_finite());
            let value = value.ok_or_else(|| LimitError::Number(part.to_owned()))?;
            figure.check(value)?;
            if limits.iter().any(|(other, _)| *other == figure) {
                return Err(LimitError::Twice(name.to_owned()));
            }
            limits.push((figure, value));
        }
        Ok(Self(limits))
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(figure, limit)| format!("{}={limit}", figure.name())).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_figures_once_each() {
        let limits: Requirements = "cos=0.998, neighbours=93,perplexity=1.01".parse().unwrap();
        let expected = [(Figure::Cosine, 0.998), (Figure::Neighbours, 93.0), (Figure::Perplexity, 1.01)];
        assert_eq!(limits, Requirements(expected.to_vec()));
        assert_eq!(limits.to_string().parse(), Ok(limits));
        let error = |text: &str| text.parse::<Requirements>().unwrap_err().to_string();
        assert_eq!(error("cos"), "`cos`: expected NAME=VALUE, such as cos=0.999");
        assert_eq!(error("cos=1.5"), "`cos` is at most 1, such as cos=0.999");
        assert_eq!(error("neighbours=0.93"), "`neighbours` is in percent, such as neighbours=93");
        assert_eq!(error("cos=high"), "`cos=high`: expected a number after the =");
        assert_eq!(error("cos=nan"), "`cos=nan`: expected a number after the =");
        assert_eq!(error("kl=1,kl=2"), "`kl` stands twice");
        assert_eq!(error("accuracy=0.9"), "`accuracy` is in percent, such as accuracy=93");
        assert_eq!(error("ndcg=50"), "`ndcg` is at most 1, such as ndcg=0.999");
        assert!(error("f2=1").starts_with("there is no figure `f2`; there are cos, least-cos, neighbours, top1, kl"));
    }
}
