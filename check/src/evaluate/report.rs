//! The report of an evaluation, of what was seen.

use planish_artifact::evaluation::{Coverage, Embeddings, Evaluation, Interval, Perplexity, Pooling, Predictions};
use planish_artifact::manifest::File;
use planish_artifact::split::Split;
use serde::{Deserialize, Serialize};

use super::labels::Classes;
use super::metrics::neighbours_kept;
use super::seen::Seen;
use super::windows::Windows;

/// What a report has beside what was seen: the same for all shards of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Basis {
    pub(super) data: File,
    #[serde(skip_serializing_if = "Split::is_all", default)]
    pub(super) split: Split,
    pub(super) samples: usize,
    pub(super) tokens: Option<u64>,
    pub(super) read: Option<Coverage>,
    pub(super) runtime: String,
    /// What runs the artifact there, with its version.
    pub(super) product: String,
    pub(super) pooling: Pooling,
    pub(super) windows: Option<Windows>,
    pub(super) classes: Classes,
}

impl Basis {
    /// The report.
    pub(super) fn report(self, seen: &Seen) -> Evaluation {
        let (embeddings, predictions) = (self.embeddings(seen), predictions(seen));
        let perplexity = self.windows.filter(|_| seen.losses.count > 0).map(|windows| perplexity(windows, seen));
        let (labels, scores) = seen.labelled.report(&self.classes);
        Evaluation {
            data: self.data,
            split: self.split,
            samples: self.samples,
            tokens: self.tokens,
            read: self.read,
            runtime: self.runtime,
            embeddings,
            predictions,
            perplexity,
            labels,
            scores,
            outputs: seen.output_figures(),
        }
    }

    fn embeddings(&self, seen: &Seen) -> Option<Embeddings> {
        let count = seen.cosines.count;
        if count == 0 {
            return None;
        }
        let kept = neighbours_kept(&seen.embeddings[0], &seen.embeddings[1], seen.features);
        let kept = kept.map(|kept| 100.0 * kept as f64 / count as f64);
        Some(Embeddings {
            pooling: self.pooling,
            mean_cosine: seen.cosines.mean(),
            mean_cosine_ci95: seen.cosines.ci95(),
            least_cosine: seen.cosines.least.unwrap_or(f64::NAN),
            neighbours_kept: kept,
            neighbours_kept_ci95: kept.map(|kept| Interval::of_share(kept, count).ends()),
            count,
        })
    }
}

fn predictions(seen: &Seen) -> Option<Predictions> {
    let count = seen.predictions.count;
    let same = 100.0 * seen.same as f64 / count as f64;
    (count > 0).then(|| Predictions {
        count,
        top1_agreement: same,
        top1_agreement_ci95: Some(Interval::of_share(same, count).ends()),
        mean_divergence: seen.divergence / count as f64,
        mean_cosine: seen.predictions.mean(),
        mean_cosine_ci95: seen.predictions.ci95(),
        least_cosine: seen.predictions.least.unwrap_or(f64::NAN),
    })
}

fn perplexity(Windows { length, stride }: Windows, seen: &Seen) -> Perplexity {
    let (reference, more) = (seen.losses.mean(), seen.more.mean());
    Perplexity {
        window: length,
        stride,
        tokens: seen.losses.count,
        reference: reference.exp(),
        artifact: (reference + more).exp(),
        ratio: more.exp(),
        ratio_ci95: seen.more.ci95().map(|ends| ends.map(f64::exp)),
    }
}
