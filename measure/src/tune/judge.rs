//! What a form costs that rounds other numbers than the default form.

use anyhow::Result;
use planish_artifact::evaluation::{Evaluation, Figure, Requirements};
use planish_check::evaluate::EvaluationObserver;
use planish_check::gate::Gate;
use planish_data::described;

/// What a form may lose of the cosine, as a multiple of what the default form loses.
const MOST: f64 = 1.1;

/// A loss of the cosine that is as good as none: sums of float32 in another order.
const NOTHING: f64 = 1e-6;

/// All that an evaluation depends on besides the forms.
pub(super) fn identity(gate: &Gate) -> Result<String> {
    let limits = gate.max_loss().map(ToString::to_string);
    Ok(serde_json::to_string(&(described(gate.data())?, gate.holds_out(), gate.field(), limits))?)
}

/// Why a form is not accurate enough, if it is not: it misses limits that were asked for, or without those, loses more than the default
/// form.
pub(super) fn refusal(limits: Option<&Requirements>, own: &Evaluation, default: &Evaluation) -> Option<String> {
    if let Some(limits) = limits {
        let misses = limits.misses(own).unwrap_or_else(|error| vec![error.to_string()]);
        return (!misses.is_empty()).then(|| misses.join(", "));
    }
    let (Some(own), Some(default)) = (own.figure(Figure::Cosine), default.figure(Figure::Cosine)) else {
        return Some("the data gives no cosine to judge it by".to_owned());
    };
    let is_enough = 1.0 - own <= (1.0 - default).max(0.0) * MOST + NOTHING;
    (!is_enough).then(|| format!("less accurate: cos is {own:.6}, and that of the default form {default:.6}"))
}

/// Says nothing: a search has a line of its own.
pub(super) struct Silent;

impl EvaluationObserver for Silent {
    fn warning(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn progress(&self, _: usize, _: usize) {}
}

#[cfg(test)]
mod tests {
    use planish_artifact::evaluation::OutputFigures;
    use planish_artifact::manifest::File;

    use super::*;

    fn evaluation(cosine: Option<f64>) -> Evaluation {
        let output = |cosine| OutputFigures {
            part: "model".to_owned(),
            output: "y".to_owned(),
            is_cache: false,
            relative_error: 0.0,
            cosine,
        };
        Evaluation {
            data: File { name: "data".to_owned(), bytes: 1, blake3: None },
            split: planish_artifact::split::Split::All,
            samples: 2,
            tokens: None,
            read: None,
            runtime: "onnxruntime".to_owned(),
            embeddings: None,
            predictions: None,
            perplexity: None,
            labels: Vec::new(),
            scores: None,
            outputs: cosine.map(output).into_iter().collect(),
        }
    }

    #[test]
    fn a_form_loses_no_more_than_the_default_one_or_meets_the_limits() {
        let refused = |own: f64, default: f64| refusal(None, &evaluation(Some(own)), &evaluation(Some(default)));
        assert_eq!(refused(0.999, 0.999), None);
        assert_eq!(refused(0.9989, 0.999), None);
        assert_eq!(refused(1.0, 0.999), None);
        assert_eq!(refused(0.999_999_5, 1.0), None);
        let why = refused(0.998, 0.999).unwrap();
        assert_eq!(why, "less accurate: cos is 0.998000, and that of the default form 0.999000");
        let limits = Requirements::of(Figure::Cosine, 0.99);
        let within = |own: f64| refusal(Some(&limits), &evaluation(Some(own)), &evaluation(Some(0.999)));
        assert_eq!(within(0.991), None);
        assert!(within(0.98).unwrap().contains("cos is 0.98"));
        assert!(refusal(None, &evaluation(None), &evaluation(Some(1.0))).unwrap().contains("no cosine"));
    }
}
