//! Comparing what two runs of a model give.

mod cases;
mod compare;
mod padded;
mod parts;
mod report;

use planish_eval::Tensor;
use planish_ir::DType;
use planish_models::Loaded;
use planish_runtimes::{RuntimeError, Session};
use serde::{Deserialize, Serialize};

use crate::manifest::Vocabulary;

pub use cases::{Case, cases};
pub(crate) use cases::{continued, first_tokens};
pub use compare::{compare, per_token};
pub use parts::{Pair, verify_parts};
pub use report::{CaseReport, Figures, OutputReport, Report};

/// How far a candidate may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerances {
    /// The largest error, relative to the largest magnitude of the reference (at least 1).
    pub max_relative: f64,
    /// The least cosine of the angle between the two outputs.
    pub cosine: f64,
    /// The least share of rows along the last dimension whose largest element is at the same
    /// place, or as large but for twice the largest error.
    pub top1: f64,
}

impl Tolerances {
    /// For graphs that compute in float32: only the order of summation may differ.
    pub const F32: Self = Self { max_relative: 1e-5, cosine: 0.999_99, top1: 1.0 };

    /// For weights and results of 11 bits, rounded anew in each layer.
    pub const F16: Self = Self { max_relative: 2e-2, cosine: 0.999, top1: 1.0 };

    /// For weights and results of 8 bits.
    pub const BF16: Self = Self { max_relative: 1e-1, cosine: 0.999, top1: 1.0 };

    /// What the shortest type allows that a model or an artifact of it computes in; `precision` is that of
    /// the artifact by its name in a manifest.
    #[must_use]
    pub fn of(model: &Loaded, precision: &str) -> Self {
        let values = model.parts.iter().flat_map(|part| part.graph.values());
        let types = values.fold([false; 2], |[half, brain], (_, value)| {
            [half || value.ty.dtype() == Some(DType::F16), brain || value.ty.dtype() == Some(DType::Bf16)]
        });
        match (types, precision) {
            ([_, true], _) | (_, "bf16") => Self::BF16,
            ([true, _], _) | (_, "fp16") => Self::F16,
            _ => Self::F32,
        }
    }
}

/// Runs both on every case and compares their outputs; `vocabulary` is the candidate's, where it gives
/// logits for all its rows.
///
/// # Errors
/// When either fails to run.
pub fn verify(
    reference: &mut dyn Session,
    candidate: &mut dyn Session,
    cases: &[Case],
    vocabulary: Option<&Vocabulary>,
    tolerances: Tolerances,
) -> Result<Report, RuntimeError> {
    let per_token = per_token(reference);
    let run = |case: &Case| {
        let ([inputs, expected], [_, actual]) = (case.run(reference)?, case.run(candidate)?);
        let outputs = compare(&expected, &actual, &inputs, &per_token, vocabulary, tolerances);
        Ok(CaseReport { label: case.label.clone(), outputs })
    };
    let cases = cases.iter().map(run).collect::<Result<Vec<_>, RuntimeError>>()?;
    Ok(Report { tolerances, cases })
}

/// Inputs in the form in which a session takes them: floating-point numbers in the type of its input.
pub(crate) fn named<'a>(session: &dyn Session, inputs: &'a [(String, Tensor)]) -> Vec<(&'a str, Tensor)> {
    let fitted = |name: &str, tensor: &Tensor| {
        let port = session.inputs().iter().find(|port| port.name == name);
        let other =
            port.filter(|port| port.dtype != tensor.dtype() && port.dtype.is_float() && tensor.dtype().is_float());
        let cast = other.and_then(|port| Tensor::from_f64(port.dtype, tensor.shape().to_vec(), &tensor.to_f64()));
        cast.unwrap_or_else(|| tensor.clone())
    };
    inputs.iter().map(|(name, tensor)| (name.as_str(), fitted(name, tensor))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use planish_ir::ops::{Attention, Binary, BinaryKind};
    use planish_ir::{BuildError, Op, Step};
    use planish_models::{Checkpoint, LoadOptions, load};
    use planish_runtimes::ort::OnnxRuntime;
    use planish_runtimes::{Model, Reference, Runtime, SessionOptions};

    use super::*;
    use crate::inputs::{Values, specs};

    /// A candidate that takes the cache for zeros is right until it continues from one.
    #[test]
    fn a_model_with_a_cache_also_continues_from_it() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/goldens/gpt2");
        let options = LoadOptions { task: None, strict: true };
        let model = load(&Checkpoint::open(&folder).unwrap(), options).unwrap();
        let mut broken = model.parts[0].graph.clone();
        let forgetful = broken.rewrite(|graph, node| {
            let like = graph.node(node).outputs[0];
            let Op::Attention(attention) = graph.node(node).op.clone() else { return Ok::<_, BuildError>(Step::Keep) };
            let past = attention.past_value.unwrap();
            let zeros = graph.emit(Binary { kind: BinaryKind::Sub, a: past, b: past }, like)?;
            let attention = Attention { past_value: Some(zeros), ..attention };
            Ok(Step::Replace(graph.emit_part(attention, like)?))
        });
        assert_eq!(forgetful.unwrap(), 2);
        let session = |graph| Reference.load(Model::Graph(graph), &SessionOptions::default()).unwrap();
        let (mut reference, mut broken) = (session(&model.parts[0].graph), session(&broken));
        let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..137, pad: None })]);
        let cases = cases(&specs(reference.inputs(), &ids).unwrap(), model.max_positions, 1).unwrap();
        let labels: Vec<&str> = cases.iter().map(|case| case.label.as_str()).collect();
        let continued = ["2 x 7, padded, 6 of them cached", "3 x 9, padded, 5 of them cached"];
        assert_eq!(labels[labels.len() - 2..], continued);
        assert!(labels.contains(&"1 x 64"));
        let mut again = session(&model.parts[0].graph);
        assert!(verify(reference.as_mut(), again.as_mut(), &cases, None, Tolerances::F32).unwrap().passed());
        let report = verify(reference.as_mut(), broken.as_mut(), &cases, None, Tolerances::F32).unwrap();
        assert!(!report.passed() && report.misses().iter().all(|miss| miss.contains("cached: ")), "{report}");
        let shifted = cases.iter().find(|case| case.before.is_some()).unwrap();
        let [inputs, outputs] = shifted.run(reference.as_mut()).unwrap();
        let shape = |tensors: &[(String, Tensor)], name: &str| {
            tensors.iter().find(|(n, _)| n == name).unwrap().1.shape().to_vec()
        };
        assert_eq!(shape(&inputs, "input_ids"), [2, 1]);
        assert_eq!(shape(&inputs, "attention_mask"), [2, 7]);
        assert_eq!(shape(&inputs, "past_key_values.1.value"), [2, 4, 6, 12]);
        assert_eq!(shape(&outputs, "present.1.value"), [2, 4, 7, 12]);
    }

    #[test]
    fn two_sessions_are_compared_on_every_case() {
        let load = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx").join(name);
            OnnxRuntime::new(None).load(Model::Onnx(&path), &SessionOptions::default()).unwrap()
        };
        let mut reference = load("embed.onnx");
        let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..8, pad: Some(0) })]);
        let cases = cases(&specs(reference.inputs(), &ids).unwrap(), Some(16), 1).unwrap();
        let mut verified = |candidate: &str| {
            verify(reference.as_mut(), load(candidate).as_mut(), &cases, None, Tolerances::F32).unwrap()
        };
        let same = verified("embed.onnx");
        assert!(same.passed() && same.cases.len() == cases.len(), "{same}");
        let off = verified("embed_off.onnx");
        assert!(!off.passed() && off.misses().iter().all(|miss| miss.contains(": y: ")), "{off}");
    }
}
