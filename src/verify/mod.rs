//! Comparing what two runs of a model give.

mod compare;
mod report;

use planish_eval::Tensor;
use planish_runtimes::{RuntimeError, Session};
use serde::{Deserialize, Serialize};

pub use compare::{compare, per_token};
pub use report::{CaseReport, Figures, OutputReport, Report};

use crate::inputs::{CACHE, InputError, InputSpec, has_cache, seeded_inputs};

/// What the names of outputs begin with that are keys and values of all positions.
const PRESENT: &str = "present.";

/// How far a candidate may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerances {
    /// The largest error, relative to the largest magnitude of the reference (at least 1).
    pub max_relative: f64,
    /// The least cosine of the angle between the two outputs.
    pub cosine: f64,
    /// The least share of rows along the last dimension whose largest element is at the same
    /// place.
    pub top1: f64,
}

impl Tolerances {
    /// For graphs that compute in float32: only the order of summation may differ.
    pub const F32: Self = Self { max_relative: 1e-5, cosine: 0.999_99, top1: 1.0 };
}

/// One set of inputs to compare on.
pub struct Case {
    /// What it is, e.g. `2 x 16, padded`.
    pub label: String,
    /// Names and tensors.
    pub inputs: Vec<(String, Tensor)>,
    /// How many tokens are run first; the rest then continues from the keys and values of these.
    pub before: Option<usize>,
}

impl Case {
    /// Runs it; what the last run took and gave.
    fn run(&self, session: &mut dyn Session) -> Result<[Vec<(String, Tensor)>; 2], RuntimeError> {
        let Some(before) = self.before else {
            return Ok([self.inputs.clone(), session.run(&named(&self.inputs))?]);
        };
        let first: Vec<(String, Tensor)> = self
            .inputs
            .iter()
            .map(|(name, tensor)| match name.starts_with(CACHE) {
                true => (name.clone(), tensor.clone()),
                false => (name.clone(), columns(tensor, 0, before)),
            })
            .collect();
        let given = session.run(&named(&first))?;
        let rest = self.inputs.iter().map(|(name, tensor)| {
            let cached = name.strip_prefix(CACHE).map(|rest| format!("{PRESENT}{rest}"));
            let cached = cached.and_then(|cached| given.iter().find(|(output, _)| *output == cached));
            let tensor = match (cached, name.as_str()) {
                (Some((_, present)), _) => present.clone(),
                // The mask covers what is cached too.
                (None, compare::MASK) => tensor.clone(),
                (None, _) => columns(tensor, before, usize::MAX),
            };
            (name.clone(), tensor)
        });
        let rest: Vec<(String, Tensor)> = rest.collect();
        let outputs = session.run(&named(&rest))?;
        Ok([rest, outputs])
    }
}

/// The columns of a matrix from one on, up to another.
fn columns(tensor: &Tensor, from: usize, to: usize) -> Tensor {
    let &[rows, width] = tensor.shape() else { return tensor.clone() };
    let (to, size) = (to.min(width), tensor.dtype().size());
    let bytes = tensor.to_bytes();
    let kept: Vec<u8> =
        (0..rows).flat_map(|row| &bytes[(row * width + from) * size..(row * width + to) * size]).copied().collect();
    Tensor::from_bytes(tensor.dtype(), vec![rows, to - from], &kept).unwrap_or_else(|| tensor.clone())
}

/// The longest sequence of a model with a cache that is compared: such models take sequences whose
/// scores no reference computes in reasonable time.
const LONGEST_OF_CACHED: usize = 512;

/// Cases of several shapes from a seed: one token, a short, an odd and the longest sequence, one
/// row and more, with padding and without; for a model with a cache, some that continue from it.
/// Without a longest sequence, as for models of images, one row and more.
///
/// # Errors
/// When inputs cannot be made for the specs.
pub fn cases(specs: &[InputSpec], longest: Option<usize>, seed: u64) -> Result<Vec<Case>, InputError> {
    let Some(longest) = longest else {
        let case = |batch: usize| {
            let inputs = seeded_inputs(specs, batch, 1, seed, false)?;
            Ok(Case { label: format!("batch of {batch}"), inputs, before: None })
        };
        return [1, 3].into_iter().map(case).collect();
    };
    let cached = has_cache(specs);
    let longest = if cached { longest.min(LONGEST_OF_CACHED) } else { longest };
    let shapes = [(1, 1, false), (1, 8, false), (2, 1, false), (3, 8, true), (2, 37, true), (1, longest, false)];
    let mut shapes = shapes.map(|(batch, sequence, padded)| (batch, longest.min(sequence), padded)).to_vec();
    shapes.sort_unstable_by_key(|&(batch, sequence, _)| (sequence, batch));
    shapes.dedup();
    let case = |batch: usize, sequence: usize, padded: bool, before: Option<usize>| {
        let after = before.map_or_else(String::new, |before| format!(", {before} of them cached"));
        let label = format!("{batch} x {sequence}{}{after}", if padded { ", padded" } else { "" });
        Ok(Case { label, inputs: seeded_inputs(specs, batch, sequence, seed, padded)?, before })
    };
    let whole = shapes.into_iter().map(|(batch, sequence, padded)| case(batch, sequence, padded, None));
    let continued = [(2, 7, 6), (3, 9, 5)].into_iter().filter(|(_, sequence, _)| cached && *sequence <= longest);
    whole.chain(continued.map(|(batch, sequence, before)| case(batch, sequence, true, Some(before)))).collect()
}

/// Runs both on every case and compares their outputs.
///
/// # Errors
/// When either fails to run.
pub fn verify(
    reference: &mut dyn Session,
    candidate: &mut dyn Session,
    cases: &[Case],
    tolerances: Tolerances,
) -> Result<Report, RuntimeError> {
    let per_token = per_token(reference);
    let run = |case: &Case| {
        let ([inputs, expected], [_, actual]) = (case.run(reference)?, case.run(candidate)?);
        let outputs = compare(&expected, &actual, &inputs, &per_token, tolerances);
        Ok(CaseReport { label: case.label.clone(), outputs })
    };
    let cases = cases.iter().map(run).collect::<Result<Vec<_>, RuntimeError>>()?;
    Ok(Report { tolerances, cases })
}

/// Inputs in the form in which sessions take them.
pub(crate) fn named(inputs: &[(String, Tensor)]) -> Vec<(&str, Tensor)> {
    inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect()
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

    #[test]
    fn cases_reach_the_longest_sequence_and_no_further() {
        let labels =
            |longest| cases(&[], Some(longest), 0).unwrap().into_iter().map(|case| case.label).collect::<Vec<_>>();
        let all = ["1 x 1", "2 x 1", "1 x 8", "3 x 8, padded", "2 x 37, padded", "1 x 512"];
        assert_eq!(labels(512), all);
        assert_eq!(labels(4), ["1 x 1", "2 x 1", "1 x 4", "2 x 4, padded", "3 x 4, padded"]);
        let images = cases(&[], None, 0).unwrap();
        assert_eq!(images.iter().map(|case| case.label.as_str()).collect::<Vec<_>>(), ["batch of 1", "batch of 3"]);
    }

    #[test]
    fn columns_are_those_of_each_row() {
        let matrix = Tensor::new(vec![2, 3], vec![1i64, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(columns(&matrix, 1, 2), Tensor::new(vec![2, 1], vec![2i64, 5]).unwrap());
        assert_eq!(columns(&matrix, 1, usize::MAX), Tensor::new(vec![2, 2], vec![2i64, 3, 5, 6]).unwrap());
        assert_eq!(columns(&matrix, 3, 9).shape(), [2, 0]);
    }

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
        assert!(verify(reference.as_mut(), again.as_mut(), &cases, Tolerances::F32).unwrap().passed());
        let report = verify(reference.as_mut(), broken.as_mut(), &cases, Tolerances::F32).unwrap();
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
        let mut verified =
            |candidate: &str| verify(reference.as_mut(), load(candidate).as_mut(), &cases, Tolerances::F32).unwrap();
        let same = verified("embed.onnx");
        assert!(same.passed() && same.cases.len() == cases.len(), "{same}");
        let off = verified("embed_off.onnx");
        assert!(!off.passed() && off.misses().iter().all(|miss| miss.contains(": y: ")), "{off}");
    }
}
