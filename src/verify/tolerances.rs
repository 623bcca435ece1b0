//! How far results may be apart.

use planish_ir::{DType, Op};
use planish_models::Loaded;
use serde::{Deserialize, Serialize};

use crate::artifact::precision::PrecisionName;

/// How far a candidate may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerances {
    /// What they follow from.
    #[serde(default)]
    pub basis: Basis,
    /// The largest error, relative to the largest magnitude of the reference (at least 1).
    pub max_relative: f64,
    /// The least cosine of the angle between the two outputs.
    pub cosine: f64,
    /// The least share of rows along the last dimension whose largest element is at the same
    /// place, or as large but for twice the largest error.
    pub top1: f64,
}

/// What tolerances follow from: the coarsest rounding in a model or an artifact of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// It computes in float32.
    #[default]
    Float32,
    /// It has weights or results in float16.
    Float16,
    /// It has weights or results in bfloat16.
    Bfloat16,
    /// It has operators that round to integers of 8 bits or fewer.
    Quantized,
}

impl Basis {
    /// What a report says of it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Quantized => "quantized operators",
        }
    }
}

impl Tolerances {
    /// For graphs that compute in float32: only the order of summation may differ.
    pub const F32: Self = Self { basis: Basis::Float32, max_relative: 1e-5, cosine: 0.999_99, top1: 1.0 };

    /// For weights and results of 11 bits, rounded anew in each layer.
    pub const F16: Self = Self { basis: Basis::Float16, max_relative: 2e-2, cosine: 0.999, top1: 1.0 };

    /// For weights and results of 8 bits.
    pub const BF16: Self = Self { basis: Basis::Bfloat16, max_relative: 1e-1, cosine: 0.999, top1: 1.0 };

    /// For graphs with quantized operators, held against the same operators on the same runtime.
    ///
    /// A sum that is computed in another order, or by a fused kernel, differs in its last bit of float32. Where it
    /// lies halfway between two integers of 8 bits, that bit decides which of the two it is rounded to: a whole
    /// step, 1/127 of the largest magnitude that the scale allows. Such ties are few, so most elements stay as
    /// they are and the cosine stays close to 1; but each layer rounds anew, and what a layer got wrong by a step the next
    /// layers carry on. Six steps are allowed for the largest error, as much as deep models were seen to
    /// collect; a weight or a scale that is wrong shows in the cosine.
    pub const QUANTIZED: Self = Self { basis: Basis::Quantized, max_relative: 5e-2, cosine: 0.999, top1: 1.0 };

    /// What the coarsest rounding allows that a model, or an artifact of it in a precision, has.
    #[must_use]
    pub fn of(model: &Loaded, precision: PrecisionName) -> Self {
        let values = model.parts.iter().flat_map(|part| part.graph.values());
        let types = values.fold([false; 2], |[half, brain], (_, value)| {
            [half || value.ty.dtype() == Some(DType::F16), brain || value.ty.dtype() == Some(DType::Bf16)]
        });
        match (types, precision) {
            ([_, true], _) | (_, PrecisionName::Bf16) => Self::BF16,
            _ if is_quantized(model) => Self::QUANTIZED,
            ([true, _], _) | (_, PrecisionName::F16) => Self::F16,
            _ => Self::F32,
        }
    }
}

/// Whether a model has operators on integers that stand for real numbers.
#[must_use]
pub fn is_quantized(model: &Loaded) -> bool {
    let mut nodes = model.parts.iter().flat_map(|part| part.graph.nodes());
    nodes.any(|(_, node)| matches!(&node.op, Op::Foreign(foreign) if quantizes(&foreign.op.0)))
}

/// Whether an operator of ONNX or ONNX Runtime computes on quantized numbers, by its name.
fn quantizes(op: &str) -> bool {
    let named = ["uantize", "QLinear", "Integer", "NBits"].iter().any(|part| op.contains(part));
    named || ["QAttention", "QEmbedLayerNormalization", "QGemm", "QMoE", "MatMulBnb4"].contains(&op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantized_operators_are_known_by_their_names() {
        let quantized = [
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "DynamicQuantizeMatMul",
            "GatherBlockQuantized",
            "QLinearMatMul",
            "QLinearAdd",
            "QEmbedLayerNormalization",
            "MatMulInteger",
            "MatMulIntegerToFloat",
            "ConvInteger",
            "MatMulNBits",
            "QAttention",
        ];
        assert_eq!(quantized.into_iter().filter(|op| !quantizes(op)).collect::<Vec<_>>(), [""; 0]);
        assert!(["MatMul", "LSTM", "Unique", "Sequence", "BiasGelu"].iter().all(|op| !quantizes(op)));
    }
}
