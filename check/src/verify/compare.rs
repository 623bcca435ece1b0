//! Comparing outputs: what counts, and how far they are from each other.

use planish_artifact::verification::{Figures, LogitsForm, OutputReport, Tolerances};
use planish_eval::Tensor;
use planish_ir::{Dim, InputRole, PartInterface};
use planish_runtimes::{Port, Session};

/// The outputs of a model that have something for each token, and the axis of tokens: those whose
/// first dimension is declared as the attention mask's, and another one as the positions of the mask
/// or of token ids, by a symbol. Sizes at run time decide nothing: a classifier's 8 labels are not
/// 8 tokens.
#[must_use]
pub fn per_token(session: &dyn Session, of: &PartInterface) -> Vec<(String, usize)> {
    let input = |role: InputRole| session.inputs().iter().find(|port| of.input(&port.name) == role);
    let Some([batch, _]) = input(InputRole::Mask).map(|mask| &mask.ty.shape[..]) else { return Vec::new() };
    let open = |dim: &&Dim| dim.as_constant().is_none();
    let roles = [InputRole::Mask, InputRole::TokenIds, InputRole::DecoderTokenIds, InputRole::Embeddings].into_iter();
    let positions: Vec<&Dim> = roles.filter_map(|role| input(role)?.ty.shape.get(1)).filter(open).collect();
    let axis = |port: &Port| {
        let rest = port.ty.shape.first().filter(|first| *first == batch).map(|_| &port.ty.shape[1..])?;
        rest.iter().position(|dim| positions.contains(&dim)).map(|at| at + 1)
    };
    session.outputs().iter().filter_map(|port| Some((port.name.clone(), axis(port)?))).collect()
}

/// Compares outputs by name; `of` says what the tensors are, and the form of logits. Of the outputs `per_token` only the
/// positions whose mask is 1 count: the values at padded positions are ignored. A mask that is longer than an output
/// begins with positions that were cached. Of logits of another form than the reference's, the tokens
/// and columns that both have are compared; columns of no token have to be so low that none is ever chosen.
#[must_use]
pub fn compare(
    expected: &[(String, Tensor)],
    actual: &[(String, Tensor)],
    inputs: &[(String, Tensor)],
    per_token: &[(String, usize)],
    (of, logits): (&PartInterface, &LogitsForm),
    tolerances: Tolerances,
) -> Vec<OutputReport> {
    let mask = inputs.iter().find(|(name, _)| of.input(name) == InputRole::Mask).map(|(_, mask)| mask);
    let one = |(name, expected): &(String, Tensor)| {
        let role = of.output(name);
        let axis = per_token.iter().find(|(output, _)| output == name).map(|(_, axis)| *axis);
        let mask = mask.zip(axis);
        let actual = actual.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor);
        let figures = match actual {
            None => Err("the artifact does not have this output".to_owned()),
            Some(actual) => logits
                .aligned(role, expected, actual)
                .map_err(|error| error.to_string())
                .and_then(|[expected, actual]| figures(&expected, &actual, mask, 2.0 * tolerances.max_relative)),
        };
        let miss = figures.as_ref().map_or_else(|miss| Some(miss.clone()), |figures| figures.miss(tolerances));
        OutputReport { output: name.clone(), is_cache: role.cache().is_some(), figures: figures.ok(), miss }
    };
    expected.iter().map(one).collect()
}

/// How two tensors differ at the positions that count, or why they cannot be compared. Elements of the
/// reference that are apart by `tie` at most, relative to the largest, may change places.
fn figures(expected: &Tensor, actual: &Tensor, mask: Option<(&Tensor, usize)>, tie: f64) -> Result<Figures, String> {
    if expected.shape() != actual.shape() {
        return Err(format!("shape {:?}, the reference has {:?}", actual.shape(), expected.shape()));
    }
    let (want, got) = (rows(expected, mask), rows(actual, mask));
    if !want.iter().flatten().all(|v| v.is_finite()) {
        return Err("the reference itself is not finite".to_owned());
    }
    if !got.iter().flatten().all(|v| v.is_finite()) {
        return Err("not finite".to_owned());
    }
    let pairs = || want.iter().flatten().zip(got.iter().flatten());
    let largest = want.iter().flatten().fold(1.0, |largest: f64, v| largest.max(v.abs()));
    let max_abs = pairs().fold(0.0, |worst: f64, (w, g)| worst.max((w - g).abs()));
    let norm = |rows: &[Vec<f64>]| rows.iter().flatten().map(|v| v * v).sum::<f64>().sqrt();
    // Two zero vectors agree; one alone does not.
    let (dot, norms) = (pairs().map(|(w, g)| w * g).sum::<f64>(), (norm(&want), norm(&got)));
    let cosine = if norms == (0.0, 0.0) { 1.0 } else { dot / (norms.0 * norms.1).max(f64::MIN_POSITIVE) };
    let agree = want.iter().zip(&got).filter(|(w, g)| w[top(g)] >= w[top(w)] - tie * largest).count();
    let top1 = if want.is_empty() { 1.0 } else { agree as f64 / want.len() as f64 };
    Ok(Figures { max_abs, max_rel: max_abs / largest, cosine, top1 })
}

/// The rows along the last dimension with only the elements at positions whose mask is not zero;
/// with all where the mask does not apply. Rows that are left empty are left out. The mask comes
/// with the axis of tokens.
fn rows(tensor: &Tensor, mask: Option<(&Tensor, usize)>) -> Vec<Vec<f64>> {
    let (elements, shape) = (tensor.to_f64(), tensor.shape());
    let width = shape.last().copied().unwrap_or(1).max(1);
    let applies = |(mask, axis): &(&Tensor, usize)| match (mask.shape(), shape.get(*axis)) {
        (&[rows, all], Some(&tokens)) => rows == shape[0] && tokens <= all,
        _ => false,
    };
    let Some((mask, axis)) = mask.filter(applies) else {
        return elements.chunks(width).map(<[f64]>::to_vec).collect();
    };
    let (all, tokens) = (mask.shape()[1], shape[axis].max(1));
    let mask = mask.to_f64();
    let [row_size, token_size] = [0, axis].map(|axis| shape[axis + 1..].iter().product::<usize>().max(1));
    let counts = |at: usize| mask[at / row_size * all + all - tokens + at / token_size % tokens] != 0.0;
    let row = |(row, chunk): (usize, &[f64])| {
        let kept = chunk.iter().enumerate().filter(|(k, _)| counts(row * width + k));
        kept.map(|(_, v)| *v).collect::<Vec<f64>>()
    };
    elements.chunks(width).enumerate().map(row).filter(|row| !row.is_empty()).collect()
}

/// Where the largest element is; the first of equals.
fn top(row: &[f64]) -> usize {
    (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use planish_models::{Checkpoint, LoadOptions, load};
    use planish_runtimes::{Model, ReferenceRuntime, Runtime, SessionOptions};

    use super::*;

    fn outputs(shape: &[usize], elements: &[f32]) -> Vec<(String, Tensor)> {
        vec![("y".to_owned(), Tensor::new(shape.to_vec(), elements.to_vec()).unwrap())]
    }

    fn mask(shape: &[usize], elements: &[i64]) -> Vec<(String, Tensor)> {
        vec![("attention_mask".to_owned(), Tensor::new(shape.to_vec(), elements.to_vec()).unwrap())]
    }

    fn of() -> PartInterface {
        planish_onnx::interface::infer(planish_ir::PartRole::Model, &[("attention_mask", None)], &[("y", None)])
    }

    fn one(want: &[(String, Tensor)], got: &[(String, Tensor)], inputs: &[(String, Tensor)]) -> OutputReport {
        let mut reports =
            compare(want, got, inputs, &[("y".to_owned(), 1)], (&of(), &LogitsForm::default()), Tolerances::F32);
        assert_eq!(reports.len(), 1);
        reports.remove(0)
    }

    #[test]
    fn figures_have_their_textbook_values() {
        let report = one(&outputs(&[2, 2], &[3.0, 4.0, 0.0, 0.0]), &outputs(&[2, 2], &[4.0, 3.0, 0.0, 0.0]), &[]);
        // Errors of 1 against a largest value of 4; cosine 24 / 25; the first of two rows differs.
        let expected = Figures { max_abs: 1.0, max_rel: 0.25, cosine: 0.96, top1: 0.5 };
        assert_eq!(report.figures, Some(expected));
        assert_eq!(report.miss.unwrap(), "max relative error 2.5e-1, at most 1.0e-5 allowed");
    }

    #[test]
    fn small_references_are_measured_absolutely() {
        let report = one(&outputs(&[1], &[0.5]), &outputs(&[1], &[0.25]), &[]);
        assert_eq!(report.figures.unwrap().max_rel, 0.25);
        let zeros = one(&outputs(&[2], &[0.0; 2]), &outputs(&[2], &[0.0; 2]), &[]);
        assert_eq!((zeros.figures.unwrap().cosine, zeros.miss), (1.0, None));
        let against_zero = one(&outputs(&[2], &[0.0; 2]), &outputs(&[2], &[1e-6; 2]), &[]);
        assert_eq!(against_zero.miss.unwrap(), "cosine 0.000000, at least 0.99999 required");
    }

    #[test]
    fn padding_does_not_count() {
        let (want, got) = ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, -9.0, f32::NAN]);
        let padded = mask(&[1, 2], &[1, 0]);
        assert_eq!(one(&outputs(&[1, 2, 2], &want), &outputs(&[1, 2, 2], &got), &padded).miss, None);
        // A score a token: the row ends where its mask does.
        let padded = mask(&[2, 2], &[1, 1, 1, 0]);
        let report = one(&outputs(&[2, 2], &want), &outputs(&[2, 2], &[1.0, 2.0, 3.0, f32::NAN]), &padded);
        assert_eq!(report.figures, Some(Figures { max_abs: 0.0, max_rel: 0.0, cosine: 1.0, top1: 1.0 }));
        // One that is longer begins with what was cached.
        let cached = mask(&[1, 4], &[0, 0, 1, 0]);
        assert_eq!(one(&outputs(&[1, 2, 2], &want), &outputs(&[1, 2, 2], &got), &cached).miss, None);
        // In a cache, [batch, heads, tokens, size], heads are before tokens.
        let (want_heads, got_heads) = ([1.0, 2.0, 3.0, 4.0], [1.0, f32::NAN, 3.0, -9.0]);
        let (want_heads, got_heads) = (outputs(&[1, 2, 2, 1], &want_heads), outputs(&[1, 2, 2, 1], &got_heads));
        let padded = mask(&[1, 2], &[1, 0]);
        let report = &compare(
            &want_heads,
            &got_heads,
            &padded,
            &[("y".to_owned(), 2)],
            (&of(), &LogitsForm::default()),
            Tolerances::F32,
        )[0];
        assert_eq!(report.miss, None);
        // A mask of other sizes says nothing about the output.
        let other = mask(&[2, 1], &[1, 0]);
        let report = one(&outputs(&[1, 2, 2], &want), &outputs(&[1, 2, 2], &got), &other);
        assert_eq!(report.miss.unwrap(), "not finite");
    }

    /// 8 labels of 3 rows, in a case with a mask of 3 x 8.
    #[test]
    fn labels_are_no_tokens() {
        let mut rest = vec![0.0; 24];
        rest[15] = 1.0;
        let (want, got) = (outputs(&[3, 8], &[0.0; 24]), outputs(&[3, 8], &rest));
        let padded = mask(&[3, 8], &std::array::from_fn::<i64, 24, _>(|at| i64::from(at != 15)));
        assert_eq!(one(&want, &got, &padded).miss, None);
        let report = &compare(&want, &got, &padded, &[], (&of(), &LogitsForm::default()), Tolerances::F32)[0];
        assert_eq!(report.figures.unwrap().max_abs, 1.0);
    }

    #[test]
    fn what_is_declared_decides_what_counts_per_token() {
        let outputs = |golden: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/goldens").join(golden);
            let checkpoint = Checkpoint::open(&folder).unwrap();
            let options = LoadOptions { task: None, strict: true, ..LoadOptions::default() };
            let model = load(&checkpoint, options).unwrap();
            let session =
                ReferenceRuntime::default().load(Model::Graph(&model.parts[0].graph), SessionOptions::default());
            let found = per_token(session.unwrap().as_ref(), &model.parts[0].graph.interface);
            found.iter().map(|(name, axis)| format!("{name} {axis}")).collect::<Vec<_>>()
        };
        assert_eq!(outputs("bert"), ["last_hidden_state 1"]);
        assert_eq!(outputs("bert-classify"), [""; 0]);
        assert_eq!(outputs("distilbert-qa"), ["start_logits 1", "end_logits 1"]);
        let cache = ["present.0.key 2", "present.0.value 2", "present.1.key 2", "present.1.value 2"];
        assert_eq!(outputs("gpt2"), [&["logits 1"][..], &cache].concat());
        assert_eq!(outputs("vit"), [""; 0]);
    }

    #[test]
    fn what_cannot_be_compared_misses() {
        let want = outputs(&[2], &[1.0, 2.0]);
        assert_eq!(one(&want, &[], &[]).miss.unwrap(), "the artifact does not have this output");
        let turned = one(&want, &outputs(&[1, 2], &[1.0, 2.0]), &[]);
        assert_eq!(turned.miss.unwrap(), "shape [1, 2], the reference has [2]");
        let infinite = outputs(&[2], &[1.0, f32::INFINITY]);
        assert_eq!(one(&infinite, &want, &[]).miss.unwrap(), "the reference itself is not finite");
        assert_eq!(one(&want, &infinite, &[]).miss.unwrap(), "not finite");
    }

    #[test]
    fn near_ties_may_change_places() {
        let tolerances = Tolerances { cosine: 0.0, ..Tolerances::F32 };
        let top1 = |want: &[f32], got: &[f32]| {
            let n = want.len();
            compare(
                &outputs(&[1, n], want),
                &outputs(&[1, n], got),
                &[],
                &[],
                (&of(), &LogitsForm::default()),
                tolerances,
            )[0]
            .figures
            .unwrap()
            .top1
        };
        assert_eq!(top1(&[8.0, 8.000_01, 1.0], &[8.000_01, 8.0, 1.0]), 1.0);
        assert_eq!(top1(&[8.0, 8.1, 1.0], &[8.1, 8.0, 1.0]), 0.0);
    }
}
