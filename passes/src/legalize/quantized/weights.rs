//! Weights of codes that other operators than layers take.

use planish_ir::ops::{Embedding, Gather, Setting};
use planish_ir::weight::{Channels, Dequantized};
use planish_ir::{DType, NodeId, Op, Rewriter, Step, TensorType, ValueId, Weight};

use super::Lowering;
use super::blocks::Blocks;
use super::emit::foreign;
use crate::build::Builder;
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
        let Some(weight) = graph.weight(value).and_then(matrix) else { return Ok(None) };
        let weight = self.signed_codes(weight);
        let l = &mut Builder::at(graph, value);
        let codes = l.graph.weight_like(weight.codes.clone(), value);
        let numbers = self.numbers(l, codes, &weight)?;
        self.tables.insert(value, numbers);
        Ok(Some(numbers))
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

    /// Rows of a table of codes with one scale, looked up before `DequantizeLinear`.
    fn looked_up(&self, graph: &mut Rewriter<'_>, op: &Op, like: ValueId) -> Result<Option<ValueId>, PassError> {
        let (table, indices) = match op {
            Op::Embedding(Embedding { weight, ids }) => (*weight, *ids),
            Op::Gather(Gather { x, indices, axis: 0 }) => (*x, *indices),
            _ => return Ok(None),
        };
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
