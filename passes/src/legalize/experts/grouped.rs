//! Each expert computes the tokens that take it.

use planish_ir::ops::{BinaryKind, Experts, Flag, Gather, Linear, Reduce, ReduceKind, Split, TopK};
use planish_ir::{BuildError, DType, Dim, Shape, TensorType, ValueId, Weight};

use super::super::quantized::{attributes, foreign, standard};
use super::symbols::Symbols;
use super::{gated, rows, tokens, unrows};
use crate::build::Builder;

/// Tokens are put in the order of their experts, an expert computes those that follow each other, and the results go back
/// in the order of the tokens. An expert that no token takes computes a product without rows, for which no weight is read.
pub(super) fn grouped(l: &mut Builder<'_, '_>, p: &Experts, symbols: &mut Symbols) -> Result<ValueId, BuildError> {
    let size = |l: &Builder<'_, '_>, value: ValueId, at: fn(&Shape) -> Option<&Dim>| {
        at(&l.graph.ty(value).shape).and_then(Dim::as_constant).filter(|size| *size > 0)
    };
    let sizes = (size(l, p.gate, |shape| shape.first()), size(l, p.indices, |shape| shape.last()));
    let (Some(experts), Some(per_token)) = sizes else { return super::all::products(l, p, None) };
    let experts = usize::try_from(experts).unwrap_or(usize::MAX);
    let (x, indices, scores) = (rows(l, p.x)?, rows(l, p.indices)?, rows(l, p.scores)?);
    // The typing rule has counted with the sizes.
    let taken = tokens(l, p.x).checked_mul(&Dim::constant(per_token)).unwrap_or_default();
    let chosen = l.cast(indices, DType::I64)?;
    let chosen = l.reshape(chosen, [taken.clone()])?;
    let order = sorted(l, chosen, &taken)?;
    let back = sorted(l, order, &taken)?;
    let token = l.with_scalar(BinaryKind::Div, order, per_token as f64)?;
    let x = l.emit(Gather { x, indices: token, axis: 0 })?;
    let groups =
        Groups { sizes: counted(l, chosen, experts)?, dims: (0..experts).map(|_| symbols.next()).collect(), taken };
    let layer = |l: &mut Builder<'_, '_>, parts: &[ValueId], weight: ValueId, bias: Option<ValueId>| {
        let weights = each(l, weight, experts)?;
        let biases = bias.map(|bias| each(l, bias, experts)).transpose()?;
        let results = parts
            .iter()
            .zip(weights)
            .enumerate()
            .map(|(e, (part, weight))| l.emit(Linear::new(*part, weight, biases.as_ref().map(|biases| biases[e]))));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        groups.joined(l, results)
    };
    let parts = groups.split(l, x)?;
    let gate = layer(l, &parts, p.gate, p.gate_bias)?;
    let up = p.up.map(|up| layer(l, &parts, up, p.up_bias)).transpose()?;
    let inner = gated(l, p, gate, up)?;
    let parts = groups.split(l, inner)?;
    let results = layer(l, &parts, p.down, p.down_bias)?;
    let results = l.emit(Gather { x: results, indices: back, axis: 0 })?;
    let (results, scores) = (l.widened(results)?, l.widened(scores)?);
    let [count, out] = [tokens(l, p.x), l.graph.ty(results).shape[1].clone()];
    let results = l.reshape(results, [count.clone(), Dim::constant(per_token), out])?;
    let scores = l.reshape(scores, [count, Dim::constant(per_token), Dim::constant(1)])?;
    let weighted = l.binary(BinaryKind::Mul, results, scores)?;
    let sum = l.emit(Reduce { kind: ReduceKind::Sum, x: weighted, axes: vec![1], keep: false })?;
    let sum = l.cast(sum, l.graph.ty(p.x).dtype)?;
    unrows(l, sum)
}

/// Where the elements of a vector are in ascending order, i64.
fn sorted(l: &mut Builder<'_, '_>, x: ValueId, count: &Dim) -> Result<ValueId, BuildError> {
    let top = TopK { x, axis: 0, k: count.clone(), smallest: Flag(true) };
    Ok(l.emit_all(top)?[1])
}

/// How often each expert is among those that are chosen: [experts], i64.
pub(super) fn counted(l: &mut Builder<'_, '_>, chosen: ValueId, experts: usize) -> Result<ValueId, BuildError> {
    let column = [l.graph.ty(chosen).shape[0].clone(), Dim::constant(1)];
    let column = l.reshape(chosen, column)?;
    let numbers: Vec<i64> = (0..experts).filter_map(|e| i64::try_from(e).ok()).collect();
    let all = l.graph.weight_part(Weight::integers(&numbers), l.like);
    let is_taken = l.binary(BinaryKind::Equal, column, all)?;
    let counted = l.cast(is_taken, DType::I64)?;
    l.emit(Reduce { kind: ReduceKind::Sum, x: counted, axes: vec![0], keep: false })
}

/// The slice of each expert of what is stacked. Those of a weight are weights.
fn each(l: &mut Builder<'_, '_>, stacked: ValueId, experts: usize) -> Result<Vec<ValueId>, BuildError> {
    let shape = l.graph.ty(stacked).shape.clone();
    let sizes = shape[1..].iter().map(|dim| dim.as_constant().and_then(|size| usize::try_from(size).ok()));
    if let (Some(weight), Some(sizes)) = (l.graph.weight(stacked).cloned(), sizes.collect::<Option<Vec<_>>>()) {
        let slices = (0..experts).map(|e| weight.rows(e..e + 1)?.reshape(&sizes));
        if let Some(slices) = slices.collect::<Option<Vec<_>>>() {
            return Ok(slices.into_iter().map(|slice| l.graph.weight_like(slice, stacked)).collect());
        }
    }
    let parts = match experts {
        1 => vec![stacked],
        _ => l.emit_all(Split { x: stacked, axis: 0, sizes: vec![1; experts] })?,
    };
    parts.into_iter().map(|part| l.reshape(part, shape[1..].iter().cloned())).collect()
}

/// Rows that follow each other, those of one expert after those of the one before.
struct Groups {
    /// How many rows an expert has: [experts], i64.
    sizes: ValueId,
    /// The same, as dimensions.
    dims: Vec<Dim>,
    /// How many rows there are.
    taken: Dim,
}

impl Groups {
    /// The rows of each expert.
    fn split(&self, l: &mut Builder<'_, '_>, x: ValueId) -> Result<Vec<ValueId>, BuildError> {
        let ty = l.graph.ty(x).clone();
        let part = |dim: &Dim| TensorType::new(ty.dtype, ty.shape.with_dim(0, dim.clone()));
        let types = self.dims.iter().map(part).collect();
        foreign(l, standard("Split", 13), vec![Some(x), Some(self.sizes)], attributes([("axis", 0)]), types)
    }

    /// The rows of all experts.
    fn joined(&self, l: &mut Builder<'_, '_>, parts: Vec<ValueId>) -> Result<ValueId, BuildError> {
        // What follows knows the number of rows, and not that of each expert.
        let ty = l.graph.ty(parts[0]);
        let joined = TensorType::new(ty.dtype, ty.shape.with_dim(0, self.taken.clone()));
        let parts = parts.into_iter().map(Some).collect();
        Ok(foreign(l, standard("Concat", 13), parts, attributes([("axis", 0)]), vec![joined])?[0])
    }
}
