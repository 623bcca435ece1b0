//! The report of an evaluation.

use std::fmt;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::{Deserialize, Serialize};

use super::{Coverage, Figure, LabelFigure, LabelMetric, Pooling, Scores};
use crate::manifest::File;
use crate::split::Split;

/// How close an artifact is to its model in float32 on a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The data set.
    pub data: File,
    /// Which samples of it were taken.
    #[serde(skip_serializing_if = "Split::is_all", default)]
    pub split: Split,
    /// How many samples of it were run.
    pub samples: usize,
    /// The real tokens of these samples, padding left out; absent where the model takes no tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    /// How much of the texts was run, and what was left out; absent where the data is tensors.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<Coverage>,
    /// The runtime of the artifact.
    pub runtime: String,
    /// Embeddings of the samples; absent where the model gives none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub embeddings: Option<Embeddings>,
    /// Labels or tokens; absent where the model predicts none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predictions: Option<Predictions>,
    /// The perplexity; absent for all but language models.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub perplexity: Option<Perplexity>,
    /// Figures of labels; none where the data has none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub labels: Vec<LabelFigure>,
    /// How close single scores are; absent where the model gives none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scores: Option<Scores>,
    /// One for each output of each part; none of encoder-decoders that transcribe recordings.
    pub outputs: Vec<OutputFigures>,
}

/// How close embeddings are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embeddings {
    /// How they are made of the embeddings of tokens.
    pub pooling: Pooling,
    /// The mean over the samples of the cosine of a sample's two embeddings.
    pub mean_cosine: f64,
    /// The 95% interval of this mean; absent below 2 samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_cosine_ci95: Option<[f64; 2]>,
    /// The least of these cosines.
    pub least_cosine: f64,
    /// The share of samples, in %, whose nearest other sample is the same; absent below 3 samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbours_kept: Option<f64>,
    /// Its 95% interval, in %.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbours_kept_ci95: Option<[f64; 2]>,
    /// How many samples there are.
    #[serde(default)]
    pub count: u64,
}

/// How close predictions are: of labels for each sample or token, or of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predictions {
    /// How many were made.
    pub count: u64,
    /// The share, in %, with the same label or token on top.
    pub top1_agreement: f64,
    /// Its 95% interval, in %.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub top1_agreement_ci95: Option<[f64; 2]>,
    /// The mean divergence of the artifact's distribution from the reference's, in nats.
    pub mean_divergence: f64,
    /// The mean cosine of the logits of a prediction.
    pub mean_cosine: f64,
    /// The 95% interval of this mean; absent below 2 predictions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_cosine_ci95: Option<[f64; 2]>,
    /// The least of these cosines.
    pub least_cosine: f64,
}

/// How well texts are predicted, token by token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// The most tokens of one run.
    pub window: usize,
    /// How many tokens further the next window of a text begins.
    pub stride: usize,
    /// How many tokens were predicted: all but the first of each text.
    pub tokens: u64,
    /// The exponential of the mean loss of the reference.
    pub reference: f64,
    /// That of the artifact.
    pub artifact: f64,
    /// The second over the first.
    pub ratio: f64,
    /// Its 95% interval; absent below 2 tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio_ci95: Option<[f64; 2]>,
}

/// How close an output is, over all its elements that belong to real tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFigures {
    /// The part of the model.
    pub part: String,
    /// The output's name.
    pub output: String,
    /// Whether it is what a cache keeps for the next step.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_cache: bool,
    /// The Euclidean norm of the error over the norm of the reference.
    pub relative_error: f64,
    /// The cosine of the angle between the two.
    pub cosine: f64,
}

impl Evaluation {
    /// A figure, if the model has it; shares are in %.
    #[must_use]
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        let (embeddings, predictions) = (self.embeddings.as_ref(), self.predictions.as_ref());
        let outputs = || self.outputs.iter();
        match figure {
            Figure::Cosine => embeddings
                .map(|of| of.mean_cosine)
                .or(predictions.map(|of| of.mean_cosine))
                .or(outputs().map(|of| of.cosine).reduce(f64::min)),
            Figure::LeastCosine => embeddings.map(|of| of.least_cosine).or(predictions.map(|of| of.least_cosine)),
            Figure::Neighbours => embeddings.and_then(|of| of.neighbours_kept),
            Figure::Top1 => predictions.map(|of| of.top1_agreement),
            Figure::Divergence => predictions.map(|of| of.mean_divergence),
            Figure::Perplexity => self.perplexity.map(|of| of.ratio),
            Figure::Error => outputs().map(|of| of.relative_error).reduce(f64::max),
            Figure::Ranks => self.scores.and_then(|of| of.spearman),
            Figure::Accuracy => self.label(&[LabelMetric::Accuracy]),
            Figure::F1 => self.label(&[LabelMetric::EntityF1, LabelMetric::MacroF1]),
            Figure::Spearman => self.label(&[LabelMetric::Spearman]),
            Figure::Ndcg => self.label(&[LabelMetric::Ndcg10]),
            Figure::Mrr => self.label(&[LabelMetric::Mrr10]),
            Figure::WordErrors => self.label(&[LabelMetric::WordErrorRate]),
            Figure::CharacterErrors => self.label(&[LabelMetric::CharacterErrorRate]),
        }
    }

    /// The artifact's figure of labels that is one of these.
    fn label(&self, metrics: &[LabelMetric]) -> Option<f64> {
        self.labels.iter().find(|of| metrics.contains(&of.metric)).map(|of| of.artifact)
    }

    /// The 95% interval of a figure, and how many samples or predictions it is of; `None` where either is not known.
    #[must_use]
    pub fn certainty(&self, figure: Figure) -> Option<([f64; 2], u64)> {
        let (embeddings, predictions) = (self.embeddings.as_ref(), self.predictions.as_ref());
        let label = |metrics: &[LabelMetric]| {
            let found = self.labels.iter().find(|of| metrics.contains(&of.metric))?;
            Some((found.interval?.ends(), found.count))
        };
        match figure {
            Figure::Cosine => match (embeddings, predictions) {
                (Some(of), _) => of.mean_cosine_ci95.map(|ends| (ends, of.count)),
                (None, Some(of)) => of.mean_cosine_ci95.map(|ends| (ends, of.count)),
                (None, None) => None,
            },
            Figure::Neighbours => embeddings.and_then(|of| Some((of.neighbours_kept_ci95?, of.count))),
            Figure::Top1 => predictions.and_then(|of| Some((of.top1_agreement_ci95?, of.count))),
            Figure::Perplexity => self.perplexity.and_then(|of| Some((of.ratio_ci95?, of.tokens))),
            Figure::Accuracy => label(&[LabelMetric::Accuracy]),
            Figure::F1 => label(&[LabelMetric::EntityF1, LabelMetric::MacroF1]),
            Figure::LeastCosine | Figure::Divergence | Figure::Error | Figure::Ranks => None,
            Figure::Spearman | Figure::Ndcg | Figure::Mrr | Figure::WordErrors | Figure::CharacterErrors => None,
        }
    }

    /// The outputs to show: of the keys and values of a part the one with the largest error stands for all.
    fn rows(&self) -> Vec<(String, &OutputFigures)> {
        let mut rows: Vec<(String, &OutputFigures)> = Vec::new();
        for of in &self.outputs {
            let alike = |other: &&OutputFigures| other.part == of.part && other.is_cache;
            let worst = self.outputs.iter().filter(alike).max_by(|a, b| a.relative_error.total_cmp(&b.relative_error));
            match worst {
                Some(worst) if of.is_cache => {
                    let count = self.outputs.iter().filter(alike).count();
                    if worst.output == of.output {
                        rows.push((format!("{}, worst of {count}", of.output), of));
                    }
                }
                _ => rows.push((of.output.clone(), of)),
            }
        }
        rows
    }
}

/// A 95% interval after its figure.
fn interval(ends: Option<[f64; 2]>, digits: usize, unit: &str) -> String {
    ends.map_or_else(String::new, |[low, high]| format!(" (95% {low:.digits$} to {high:.digits$}{unit})"))
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.tokens.map_or_else(String::new, |tokens| format!(", {tokens} tokens"));
        let digest =
            self.data.blake3.as_ref().map_or_else(String::new, |d| format!(" (BLAKE3 {})", &d[..d.len().min(16)]));
        writeln!(
            f,
            "{} {} of {}{}{digest}{tokens}; the artifact ran on `{}`",
            self.samples,
            if self.samples == 1 { "sample" } else { "samples" },
            self.data.name,
            self.split,
            self.runtime
        )?;
        if let Some(read) = &self.read {
            writeln!(f, "{read}")?;
        }
        writeln!(f, "reference: the model in float32 on ONNX Runtime")?;
        if let Some(of) = &self.embeddings {
            let pooling = match of.pooling {
                Pooling::Mean => "mean over tokens",
                Pooling::Cls => "first token",
                Pooling::Max => "largest over tokens",
                Pooling::Model => "by the model",
            };
            writeln!(
                f,
                "embeddings ({pooling}): cosine {:.6} in the mean, {:.6} at least",
                of.mean_cosine, of.least_cosine
            )?;
            if let Some(kept) = of.neighbours_kept {
                let interval = interval(of.neighbours_kept_ci95, 1, " %");
                writeln!(f, "nearest neighbours kept: {kept:.1} %{interval} of {} samples", of.count)?;
            }
        }
        if let Some(of) = &self.perplexity {
            writeln!(
                f,
                "perplexity: {:.4}, reference {:.4}, ratio {:.5}{} ({} tokens; windows of {}, stride {})",
                of.artifact,
                of.reference,
                of.ratio,
                interval(of.ratio_ci95, 5, ""),
                of.tokens,
                of.window,
                of.stride
            )?;
        }
        if let Some(of) = &self.predictions {
            writeln!(
                f,
                "predictions: {} of them, top-1 agreement {:.2} %{}, mean divergence {:.3e} nats, cosine of logits {:.6} in \
                 the mean, {:.6} at least",
                of.count,
                of.top1_agreement,
                interval(of.top1_agreement_ci95, 2, " %"),
                of.mean_divergence,
                of.mean_cosine,
                of.least_cosine
            )?;
        }
        if let Some(of) = &self.scores {
            let ranks = of.spearman.map_or_else(String::new, |of| format!(", Spearman of both {of:.6}"));
            writeln!(
                f,
                "scores: {} of them, difference {:.3e} in the mean and {:.3e} at most, next to a standard deviation of \
                 {:.3e}{ranks}",
                of.count, of.mean_difference, of.largest_difference, of.deviation
            )?;
        }
        if !self.labels.is_empty() {
            let mut table = Table::new();
            table.load_style(ASCII_MARKDOWN);
            table.set_header(["labels", "artifact", "95 %", "reference", "of"]);
            table.add_rows(self.labels.iter().map(LabelFigure::cells));
            write!(f, "{table}")?;
            if self.outputs.is_empty() {
                return Ok(());
            }
            writeln!(f)?;
        }
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(["part", "output", "relative error", "cosine"]);
        for (name, of) in self.rows() {
            table.add_row([of.part.clone(), name, format!("{:.3e}", of.relative_error), format!("{:.6}", of.cosine)]);
        }
        write!(f, "{table}")
    }
}
