//! Comparison of outputs.

use planish_eval::Tensor;

use crate::runner::Tensors;

/// How far numbers may be off, relative to the largest of their tensor where that is above 1.
pub(crate) const TOLERANCE: f64 = 2e-4;

/// The same where something was computed in float16.
pub(crate) const HALF_TOLERANCE: f64 = 2e-2;

/// An output that differs: its name, and how.
pub(crate) type Difference = (String, String);

/// Where outputs have other names, types, shapes or values.
pub(crate) fn differences(expected: &Tensors, found: &Tensors, tolerance: f64) -> Vec<Difference> {
    let names = |outputs: &Tensors| outputs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(expected) != names(found) {
        return vec![("shape".to_owned(), format!("outputs are {:?}, expected {:?}", names(found), names(expected)))];
    }
    let differs =
        |((name, a), (_, b)): (&(String, Tensor), &(String, Tensor))| Some((name.clone(), of(a, b, tolerance)?));
    expected.iter().zip(found).filter_map(differs).collect()
}

fn of(expected: &Tensor, found: &Tensor, tolerance: f64) -> Option<String> {
    if expected.dtype() != found.dtype() || expected.shape() != found.shape() {
        return Some(format!("shape {}, expected {}", found.ty(), expected.ty()));
    }
    if !expected.dtype().is_float() {
        let wrong = expected.to_f64().iter().zip(found.to_f64()).filter(|(a, b)| **a != *b).count();
        return (wrong > 0).then(|| format!("{wrong} of {} elements", expected.data().len()));
    }
    let (expected, found) = (expected.to_f64(), found.to_f64());
    let largest = expected.iter().filter(|v| v.is_finite()).fold(1.0f64, |largest, v| largest.max(v.abs()));
    let off = expected.iter().zip(&found).map(|(a, b)| match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false if a.is_finite() && b.is_finite() => (a - b).abs() / largest,
        false => f64::INFINITY,
    });
    let worst = off.fold(0.0, f64::max);
    (worst > tolerance).then(|| format!("off by {worst:.1e}"))
}
