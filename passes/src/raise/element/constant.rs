//! Elements of constants.

use planish_ir::{DType, Dim, Weight};

use super::{Element, Fact, Number, Truth};

/// How many elements a constant has at most that is looked at: the causal masks that old exports of
/// decoders hold are this large.
const ELEMENTS: usize = 1 << 22;

/// The element of a constant whose elements are all the same, count from 0, or are one number up to the
/// diagonal and another above it.
pub(super) fn element(weight: &Weight, index: &[Dim]) -> Option<Element> {
    if weight.elements() > ELEMENTS {
        return None;
    }
    let numbers = weight.read_numbers().ok()?;
    let first = *numbers.first()?;
    if numbers.iter().all(|n| *n == first) {
        return Some(match weight.dtype() {
            DType::Bool => Element::Truth(Truth::constant(first != 0.0)),
            dtype if dtype.is_integer() => Element::Integer(Dim::constant(first as i64)),
            _ => Element::Number(Number::constant(first)),
        });
    }
    if let Some(axis) = weight.shape().iter().position(|size| *size == weight.elements()) {
        let counts = weight.dtype().is_integer() && numbers.iter().enumerate().all(|(i, n)| *n == i as f64);
        return counts.then(|| Element::Integer(index[axis].clone()));
    }
    let (row, column) = (weight.shape().len().checked_sub(2)?, weight.shape().len() - 1);
    let size = weight.shape()[column];
    let above = *numbers.get(1)?;
    let triangular = size * size == numbers.len()
        && numbers.iter().enumerate().all(|(i, n)| *n == if i % size <= i / size { first } else { above });
    let reached = Fact::AtLeastZero(index[row].checked_sub(&index[column])?);
    let reached = Truth::All(vec![reached]);
    triangular.then(|| match weight.dtype() {
        DType::Bool if first != 0.0 => Some(Element::Truth(reached)),
        DType::Bool => reached.not().map(Element::Truth),
        _ => Some(Element::Number(Number::choice(reached, [first, above]))),
    })?
}
