//! The experts that tokens take compute every token.

use planish_ir::ops::{BinaryKind, Experts, Gather, Sizes};
use planish_ir::{BuildError, DType, Graph, Shape, TensorType, ValueId};

use super::super::quantized::{attributes, foreign, standard};
use super::grouped::counted;
use super::symbols::Symbols;
use super::{all, rows};
use crate::build::Builder;

/// Whether an operator can gather the weights: they are no codes, which would become numbers before they are gathered.
pub(super) fn fits(graph: &Graph, p: &Experts) -> bool {
    let stacked = [Some(p.gate), p.up, Some(p.down)];
    let is_codes = |value: ValueId| graph.weight(value).is_some_and(|weight| weight.as_dequantized().is_some());
    !stacked.into_iter().flatten().any(is_codes)
}

/// The experts that are chosen most often, as many as can be chosen by so many tokens, compute every token.
pub(super) fn gathered(l: &mut Builder<'_, '_>, p: &Experts, symbols: &mut Symbols) -> Result<ValueId, BuildError> {
    let shape = |l: &Builder<'_, '_>, value: ValueId| l.graph.ty(value).shape.clone();
    let Some(experts) = shape(l, p.gate)[0].as_constant().and_then(|size| usize::try_from(size).ok()) else {
        return all::products(l, p, None);
    };
    let indices = rows(l, p.indices)?;
    let taken = shape(l, indices).elements().unwrap_or_default();
    let chosen = l.cast(indices, DType::I64)?;
    let chosen = l.reshape(chosen, [taken.clone()])?;
    let counts = counted(l, chosen, experts)?;
    // TensorRT finds the largest of 32 bit numbers only.
    let counts = l.cast(counts, DType::I32)?;
    let most = l.emit(Sizes { of: Shape::new([taken]) })?;
    let most = l.with_scalar(BinaryKind::Min, most, experts as f64)?;
    let count = Shape::new([symbols.next()]);
    let types = [DType::I32, DType::I64].map(|dtype| TensorType::new(dtype, count.clone()));
    let inputs = vec![Some(counts), Some(most)];
    let numbers = foreign(l, standard("TopK", 11), inputs, attributes([("axis", 0)]), types.to_vec())?[1];
    let mut of = |stacked: ValueId| l.emit(Gather { x: stacked, indices: numbers, axis: 0 });
    let mut optional = |stacked: Option<ValueId>| stacked.map(&mut of).transpose();
    let [up, gate_bias, up_bias, down_bias] =
        [optional(p.up)?, optional(p.gate_bias)?, optional(p.up_bias)?, optional(p.down_bias)?];
    let some = Experts { gate: of(p.gate)?, down: of(p.down)?, up, gate_bias, up_bias, down_bias, ..p.clone() };
    all::products(l, &some, Some(numbers))
}
