//! Weights of codes that other operators than layers take.

use planish_ir::ops::{BinaryKind, Embedding, Gather, Linear, Setting};
use planish_ir::weight::{Channels, Dequantized, WeightExpr};
use planish_ir::{DType, NodeId, Op, Rewriter, Step, TensorType, ValueId, Weight};

use super::blocks::Blocks;
use super::emit::foreign;
use super::{Lowering, Matrix};
use crate::build::Builder;
use crate::legalize::dim;
use crate::{PassError, QuantizedForm};

impl Lowering {
    /// An operator whose weights of codes are taken through `DequantizeLinear`. Vectors stay weights, which the export
    /// computes.
    pub(super) fn other(&mut self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
        let mut op = graph.node(node).op.clone();
        let like = graph.node(node).outputs[0];
        if let Some(rows) = self.looked_up(graph, &op, like)? {
            return Ok(Step::Replace(vec![rows]));
        }
        let mut tables: Vec<(ValueId, ValueId)> = Vec::new();
        for operand in op.operands() {
            if let Some(numbers) = self.table(graph, operand)? {
                tables.push((operand, numbers));
            }
        }
        if tables.is_empty() {
            return Ok(Step::Keep);
        }
        op.visit_operands_mut(&mut |v| *v = tables.iter().find(|(weight, _)| weight == v).map_or(*v, |(_, n)| *n));
        Ok(Step::Replace(graph.emit_all(op, like)?))
    }

    /// The numbers of a weight of codes.
    fn table(&mut self, graph: &mut Rewriter<'_>, value: ValueId) -> Result<Option<ValueId>, PassError> {
        if let Some(numbers) = self.tables.get(&value) {
            return Ok(Some(*numbers));
        }
        let reshaped = graph.weight(value).and_then(reshaped);
        let shape = reshaped.as_ref().map(|(_, shape)| shape.clone());
        let weight = reshaped.map_or_else(|| graph.weight(value), |(of, _)| Some(of)).and_then(matrix);
        let Some(weight) = weight else { return Ok(None) };
        let weight = self.signed_codes(weight);
        let l = &mut Builder::at(graph, value);
        let codes = l.graph.weight_like(weight.codes.clone(), value);
        let mut numbers = self.numbers(l, codes, &weight)?;
        if let Some(shape) = shape {
            numbers = l.reshape(numbers, shape.into_iter().map(dim))?;
        }
        self.tables.insert(value, numbers);
        Ok(Some(numbers))
    }

    /// The numbers of the weight of a layer, [out, in], that lookups take too, where nothing else than DequantizeLinear takes
    /// codes: the layer and the lookups then share them.
    pub(super) fn shared_numbers(
        &mut self,
        graph: &mut Rewriter<'_>,
        matrix: &Matrix,
        linear: &Linear,
    ) -> Result<Option<ValueId>, PassError> {
        let is_looked_up = self.form == QuantizedForm::SignedPairs && self.looked_up.contains(&linear.weight);
        // Columns that are split repeat rows of the matrix.
        let columns = graph.weight(linear.weight).and_then(|weight| weight.shape().last().copied());
        if !is_looked_up || linear.transposed.0 || columns != matrix.codes.shape().first().copied() {
            return Ok(None);
        }
        self.table(graph, linear.weight)
    }

    /// `DequantizeLinear` of codes with the scales of a weight.
    fn numbers(&self, l: &mut Builder<'_, '_>, codes: ValueId, weight: &Dequantized) -> Result<ValueId, PassError> {
        let scales = l.graph.weight_part(weight.scales.clone(), l.like);
        let dtype = weight.codes.dtype();
        let zeros = weight.zero_points.clone().or_else(|| {
            let shape = matches!(weight.channels, Channels::Axis(_)).then(|| weight.scales.shape().to_vec())?;
            Weight::numbers(dtype, shape, &vec![0.0; weight.scales.elements()])
        });
        let zeros = zeros.map(|zeros| l.graph.weight_part(zeros, l.like));
        let ty = TensorType::new(weight.scales.dtype(), l.graph.ty(codes).shape.clone());
        let settings = match weight.scales.shape() {
            [] => Vec::new(),
            _ => channel_settings(weight.channels),
        };
        let operator =
            self.operator(l.graph, l.like, "DequantizeLinear", [dtype, weight.scales.dtype()], weight.channels)?;
        Ok(foreign(l, operator, vec![Some(codes), Some(scales), zeros], settings, vec![ty])?[0])
    }

    /// Rows of a table of codes, looked up before they become numbers.
    fn looked_up(&self, graph: &mut Rewriter<'_>, op: &Op, like: ValueId) -> Result<Option<ValueId>, PassError> {
        // TensorRT takes codes into DequantizeLinear only.
        if self.form != QuantizedForm::SignedPairs
            && let Some(rows) = scaled_rows(graph, op, like)?
        {
            return Ok(Some(rows));
        }
        let Some([table, indices]) = lookup(op) else { return Ok(None) };
        let weight = graph.weight(table).and_then(matrix);
        let blocks = weight.as_ref().filter(|_| self.microsoft).and_then(Blocks::new);
        if let Some(blocks) = blocks {
            return blocks.rows(graph, [table, indices], like);
        }
        let whole = |weight: &Dequantized| weight.scales.shape().is_empty() && !weight.codes.dtype().is_packed();
        let Some(weight) = weight.filter(|weight| self.form == QuantizedForm::IntegerProducts && whole(weight)) else {
            return Ok(None);
        };
        let codes = graph.weight_like(weight.codes.clone(), table);
        let l = &mut Builder::at(graph, like);
        let rows = l.emit(Gather { x: codes, indices, axis: 0 })?;
        self.numbers(l, rows, &weight).map(Some)
    }
}

/// The table and the indices of an operator that looks rows up.
pub(super) fn lookup(op: &Op) -> Option<[ValueId; 2]> {
    match op {
        Op::Embedding(Embedding { weight, ids }) => Some([*weight, *ids]),
        Op::Gather(Gather { x, indices, axis: 0 }) => Some([*x, *indices]),
        _ => None,
    }
}

/// Rows of a table of codes with a scale for each row: the codes and the scales are looked up, and multiplied. No more of the
/// table than these rows is ever a number. `None` of another operator.
pub(super) fn scaled_rows(graph: &mut Rewriter<'_>, op: &Op, like: ValueId) -> Result<Option<ValueId>, PassError> {
    let Some([table, indices]) = lookup(op) else { return Ok(None) };
    let Some(weight) = graph.weight(table).and_then(matrix) else { return Ok(None) };
    let Dequantized { codes, scales, zero_points, channels: Channels::Axis(0) } = weight else { return Ok(None) };
    let [rows, _] = *codes.shape() else { return Ok(None) };
    let has_zero = |zeros: &Weight| zeros.read_numbers().is_ok_and(|zeros| zeros.iter().all(|zero| *zero == 0.0));
    if scales.shape() != [rows] || codes.dtype() != DType::I8 || !zero_points.as_ref().is_none_or(has_zero) {
        return Ok(None);
    }
    let Some(scales) = scales.reshape(&[rows, 1]) else { return Ok(None) };
    let codes = graph.weight_like(codes, table);
    let scales = graph.weight_part(scales, table);
    let l = &mut Builder::at(graph, like);
    let of_rows = l.emit(Gather { x: codes, indices, axis: 0 })?;
    let dtype = l.graph.ty(scales).dtype;
    let numbers = l.cast(of_rows, dtype)?;
    let scale = l.emit(Gather { x: scales, indices, axis: 0 })?;
    Ok(Some(l.binary(BinaryKind::Mul, numbers, scale)?))
}

/// The codes of a weight that has another shape, and the shape: those of recurrent layers have a scale for each row of the
/// matrix of all directions.
pub(crate) fn reshaped(weight: &Weight) -> Option<(&Weight, Vec<usize>)> {
    let WeightExpr::Reshape(of) = weight.expr() else { return None };
    matrix(of).map(|_| (of, weight.shape().to_vec()))
}

/// The attributes of `DequantizeLinear` that say which codes share a scale.
pub(super) fn channel_settings(channels: Channels) -> Vec<(String, Setting)> {
    let int = |name: &str, value: usize| i64::try_from(value).ok().map(|value| (name.to_owned(), Setting::Int(value)));
    let size = match channels {
        Channels::Axis(_) => None,
        Channels::Blocks { size, .. } => int("block_size", size),
    };
    int("axis", channels.axis()).into_iter().chain(size).collect()
}

/// A weight of codes of at most 16 bits, and of at least two dimensions.
fn matrix(weight: &Weight) -> Option<Dequantized> {
    let of = weight.as_dequantized()?;
    (of.codes.shape().len() >= 2 && of.codes.dtype() != DType::I32).then_some(of)
}
