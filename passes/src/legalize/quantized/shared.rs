//! Codes that the graph has already.

use planish_ir::ops::{FakeQuantize, Foreign};
use planish_ir::weight::Dequantized;
use planish_ir::{DType, Rewriter, ValueId, Weight};

use super::{Coded, Lowering};
use crate::QuantizedForm;

/// The zero point of u8 that stands for the 0 of i8.
const MIDDLE: i64 = 128;

impl Lowering {
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
        let moves = self.form == QuantizedForm::SignedPairs && weight.codes.dtype() == DType::U8;
        let Some(zeros) = weight.zero_points.as_ref().filter(|_| moves) else { return weight };
        let middle = zeros.read_numbers().is_ok_and(|zeros| zeros.iter().all(|zero| *zero == MIDDLE as f64));
        // Numbers of a scale of 1 are codes less the zero point.
        let one = Weight::scalar(DType::F32, 1.0);
        let zero = Weight::scalar(DType::U8, MIDDLE as f64);
        let codes =
            weight.codes.dequantize(0, &one, Some(&zero)).and_then(|codes| codes.quantize(DType::I8, 0, &one, None));
        match codes.filter(|_| middle) {
            Some(codes) => Dequantized { codes, zero_points: None, ..weight },
            None => weight,
        }
    }
}
