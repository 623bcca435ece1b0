//! Codes that the graph has already.

use planish_ir::ops::{FakeQuantize, Foreign, Reshape, Transpose};
use planish_ir::weight::{Dequantized, code_range};
use planish_ir::{DType, Graph, Op, Rewriter, ValueId};

use super::{Coded, Lowering};
use crate::{PassError, QuantizedForm};

/// The zero point of u8 that stands for the 0 of i8.
const MIDDLE: i64 = 128;

/// How many operators that move elements are looked through.
pub(in crate::legalize) const DEPTH: usize = 4;

/// The operand, where a value is its elements in another shape or order.
pub(in crate::legalize) fn moved(graph: &Graph, value: ValueId) -> Option<ValueId> {
    match &graph.producer(value)?.op {
        Op::Reshape(Reshape { x, .. }) | Op::Transpose(Transpose { x, .. }) => Some(*x),
        _ => None,
    }
}

impl Lowering {
    /// What a layer's operand is quantized to. For products of integers, its codes may have been given another shape or
    /// order.
    pub(super) fn input(&self, graph: &Rewriter<'_>, x: ValueId) -> Option<FakeQuantize> {
        let known = |value: ValueId| match graph.producer(value).map(|node| &node.op) {
            Some(Op::FakeQuantize(quantize)) => Some(self.signed(quantize.clone())),
            _ => self.numbers.get(&value).cloned(),
        };
        if let Some(quantize) = known(x) {
            return Some(quantize);
        }
        let mut value = moved(graph, x).filter(|_| self.form == QuantizedForm::IntegerProducts)?;
        for _ in 0..DEPTH {
            if let Some(quantize) = known(value) {
                return Some(quantize).filter(|quantize| quantize.scale.is_some() && quantize.split.0.is_empty());
            }
            value = moved(graph, value)?;
        }
        None
    }

    /// The codes of a layer's operand, which [`Lowering::input`] found to be quantized.
    pub(super) fn codes_at(
        &mut self,
        graph: &mut Rewriter<'_>,
        x: ValueId,
        quantize: &FakeQuantize,
    ) -> Result<Coded, PassError> {
        if let Some(coded) = self.moved.get(&x) {
            return Ok(*coded);
        }
        let known = self.numbers.contains_key(&x) || super::is_quantized(graph, x);
        let (Some(before), false) = (moved(graph, x), known) else { return self.coded(graph, quantize, x) };
        let coded = self.codes_at(graph, before, quantize)?;
        let Some(mut op) = graph.producer(x).map(|node| node.op.clone()) else { return Ok(coded) };
        op.visit_operands_mut(&mut |v| *v = coded.codes);
        let coded = Coded { codes: graph.part(op, x)?, ..coded };
        self.moved.insert(x, coded);
        Ok(coded)
    }

    /// The codes that a `QuantizeLinear` of the graph gives, where they are there already. Codes that it gives first are
    /// kept for the layers that take them.
    pub(super) fn share(&mut self, graph: &Rewriter<'_>, foreign: &Foreign, result: ValueId) -> Option<ValueId> {
        let plain = foreign.is("QuantizeLinear") && foreign.settings.0.iter().all(|(name, _)| name == "axis");
        let [Some(x), Some(scale), Some(zero_point)] = foreign.inputs[..] else { return None };
        let is_scalar = |value: ValueId| graph.weight(value).is_some_and(|weight| weight.shape().is_empty());
        if !plain || !is_scalar(scale) || !is_scalar(zero_point) {
            return None;
        }
        let [number, zero] = [scale, zero_point].map(|value| graph.number(value));
        let key = FakeQuantize::new(x, graph.ty(zero_point).dtype, number?, zero? as i64);
        match self.codes.get(&key) {
            Some(coded) => Some(coded.codes).filter(|codes| graph.type_of(*codes) == graph.type_of(result)),
            None => {
                self.codes.insert(key, Coded { codes: result, scale, zero_point });
                None
            }
        }
    }

    /// The same codes as signed ones, where the target takes no others.
    pub(super) fn signed(&self, quantize: FakeQuantize) -> FakeQuantize {
        let moves =
            self.form == QuantizedForm::SignedPairs && quantize.to == DType::U8 && quantize.zero_point == Some(MIDDLE);
        if moves { FakeQuantize { to: DType::I8, zero_point: None, ..quantize } } else { quantize }
    }

    /// The same codes of a weight as signed ones, where the target takes no others.
    pub(super) fn signed_codes(&self, weight: Dequantized) -> Dequantized {
        let middle = code_range(weight.codes.dtype()).map_or(0, |(least, largest)| (least + largest + 1) / 2);
        let Some(zeros) = weight.zero_points.as_ref().filter(|_| self.form == QuantizedForm::SignedPairs && middle > 0)
        else {
            return weight;
        };
        let is_middle = zeros.read_numbers().is_ok_and(|zeros| zeros.iter().all(|zero| *zero == middle as f64));
        match weight.codes.flip_sign().filter(|_| is_middle) {
            Some(codes) => Dequantized { codes, zero_points: None, ..weight },
            None => weight,
        }
    }
}
