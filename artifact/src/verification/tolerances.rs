//! The allowed differences between results.

use planish_ir::handle::Handle;
use planish_ir::ops::Kind;
use planish_ir::weight::Channels;
use planish_ir::{DType, Graph, Op, ValueId};
use planish_models::Loaded;
use planish_passes::block_bits;
use serde::{Deserialize, Serialize};

use crate::precision::PrecisionName;

/// How far a candidate may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerances {
    /// The basis of the tolerances.
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

/// The basis of tolerances: the coarsest rounding in a model or an artifact of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The model computes in float32.
    #[default]
    Float32,
    /// It has weights or results in float16.
    Float16,
    /// It has data in bfloat16: results of products, or what is computed from these or from inputs.
    Bfloat16,
    /// It has operators that round to integers of 8 bits or fewer.
    Quantized,
    /// Its linear layers were quantized to 8 bits, and it is compared with the model before.
    Codes,
    /// Weights were quantized to 4 bits, and it is compared with the model before.
    Nibbles,
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
            Self::Codes => "an artifact with layers of 8 bits",
            Self::Nibbles => "an artifact with weights of 4 bits",
        }
    }
}

impl Tolerances {
    /// For graphs that compute in float32: only the order of summation may differ.
    pub const F32: Self = Self { basis: Basis::Float32, max_relative: 1e-5, cosine: 0.999_99, top1: 1.0 };

    /// For weights and results of 11 bits, rounded anew in each layer.
    pub const F16: Self = Self { basis: Basis::Float16, max_relative: 2e-2, cosine: 0.999, top1: 1.0 };

    /// For results of 8 bits.
    pub const BF16: Self = Self { basis: Basis::Bfloat16, max_relative: 1e-1, cosine: 0.999, top1: 1.0 };

    /// For graphs with quantized operators, compared with the same operators on the same runtime.
    ///
    /// A sum that is computed in another order, or by a fused kernel, differs in its last bit of float32. Where it
    /// lies halfway between two integers of 8 bits, that bit decides which of the two it is rounded to: a whole
    /// step, 1/127 of the largest magnitude that the scale allows. Such ties are few, so most elements stay as
    /// they are and the cosine stays close to 1; but each layer rounds anew, and what a layer got wrong by a step the next
    /// layers carry on. Six steps are allowed for the largest error, as much as deep models were seen to
    /// collect; a weight or a scale that is wrong shows in the cosine.
    pub const QUANTIZED: Self = Self { basis: Basis::Quantized, max_relative: 5e-2, cosine: 0.999, top1: 1.0 };

    /// For artifacts whose linear layers were quantized, compared with the model in float.
    ///
    /// How much that costs depends on the model and its data: `planish evaluate` measures it. These find wrong graphs: wrong
    /// scales, codes or columns turn the direction of the outputs.
    pub const CODES: Self = Self { basis: Basis::Codes, max_relative: 5e-1, cosine: 0.98, top1: 0.9 };

    /// For artifacts with weights of 4 bits, compared with the model in float; for the same purpose. Random ids are far from
    /// texts: MiniLM with blocks of 128 has a cosine of 0.868 at 1 x 512, and one of 0.96 on sentences.
    pub const NIBBLES: Self = Self { basis: Basis::Nibbles, max_relative: 1.0, cosine: 0.8, top1: 0.6 };

    /// What the coarsest rounding allows that a model, or an artifact of it in a precision, has.
    #[must_use]
    pub fn of(model: &Loaded, precision: PrecisionName) -> Self {
        let mut graphs = model.parts.iter().map(|part| &part.graph);
        let is_half = |graph: &Graph| graph.values().any(|(_, value)| value.ty.dtype() == Some(DType::F16));
        match precision {
            _ if precision == PrecisionName::Bf16 || graphs.clone().any(rounds_to_bfloat16) => Self::BF16,
            _ if is_quantized(model) => Self::QUANTIZED,
            _ if precision == PrecisionName::F16 || graphs.any(is_half) => Self::F16,
            _ => Self::F32,
        }
    }
}

/// Whether a graph has data in bfloat16: what comes from an input of numbers, a product, or a table. What is computed from
/// positions, masks and constants alone, such as the biases of ALiBi, is the same on both sides, however it is
/// rounded.
fn rounds_to_bfloat16(graph: &Graph) -> bool {
    let dtype = |value: ValueId| graph.type_of(value).dtype();
    let mut is_data = vec![false; graph.value_count()];
    for input in graph.inputs() {
        is_data[input.index()] = dtype(*input).is_none_or(DType::is_float);
    }
    for (_, node) in graph.nodes() {
        let computes = matches!(node.op.row().kind, Kind::Product | Kind::Lookup | Kind::PassesThrough);
        let begins = computes && node.outputs.iter().any(|value| dtype(*value).is_none_or(DType::is_float));
        let goes_on = begins || node.op.operands().iter().any(|value| is_data[value.index()]);
        node.outputs.iter().for_each(|value| is_data[value.index()] = goes_on);
    }
    graph.values().any(|(id, value)| is_data[id.index()] && value.ty.dtype() == Some(DType::Bf16))
}

/// Whether a model has operators on integers that stand for real numbers.
#[must_use]
pub fn is_quantized(model: &Loaded) -> bool {
    let mut nodes = model.parts.iter().flat_map(|part| part.graph.nodes());
    nodes.any(|(_, node)| matches!(&node.op, Op::Foreign(foreign) if quantizes(&foreign.op.0)))
}

/// The tolerances of what a graph computes on codes of weights or of activations, compared with a model in float; `None` where it
/// computes on none.
#[must_use]
pub fn of_codes(graph: &Graph) -> Option<Tolerances> {
    let named = |test: &dyn Fn(&str) -> bool| {
        graph.nodes().any(|(_, node)| matches!(&node.op, Op::Foreign(foreign) if test(&foreign.op.0)))
    };
    let is_packed = graph.weights().any(|(_, _, weight)| weight.dtype().is_packed());
    let few = |op: &Op| matches!(op, Op::Foreign(op) if block_bits(op).is_some_and(|bits| bits <= 4));
    if is_packed || graph.nodes().any(|(_, node)| few(&node.op)) {
        return Some(Tolerances::NIBBLES);
    }
    let has_blocks = graph.weights().any(|(_, _, weight)| weight.as_dequantized().is_some());
    (has_blocks || named(&quantizes)).then_some(Tolerances::CODES)
}

/// Whether a weight of a model is codes with a scale for each block, as in quantized checkpoints.
#[must_use]
pub fn has_blocks(model: &Loaded) -> bool {
    let weights = model.parts.iter().flat_map(|part| part.graph.weights());
    let mut channels = weights.filter_map(|(_, _, weight)| Some(weight.as_dequantized()?.channels));
    channels.any(|channels| matches!(channels, Channels::Blocks { .. }))
}

/// Whether weights of a model have 4 bits or fewer.
#[must_use]
pub fn has_4_bits(model: &Loaded) -> bool {
    model.parts.iter().map(|part| &part.graph).any(|graph| {
        graph.weights().any(|(_, _, weight)| weight.dtype().is_packed())
            || graph
                .nodes()
                .any(|(_, node)| matches!(&node.op, Op::Foreign(op) if block_bits(op).is_some_and(|bits| bits <= 4)))
    })
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
    fn bfloat16_of_positions_and_constants_rounds_no_data() {
        let rounds = |text: &str| {
            let text = format!("graph \"of\" {{\n{text}\n}}");
            rounds_to_bfloat16(&planish_ir::text::parse(&text, &planish_ir::text::no_files).unwrap())
        };
        let biases = "
            input %x: f32[n, 4]
            input %mask: i64[n]
            weight @slope = dense([0.5]) : bf16[]
            weight @w = uniform(1) : f32[4, 4]
            %m = cast(%mask) {to = bf16} : bf16[n]
            %p = mul(%m, @slope) : bf16[n]
            %f = cast(%p) {to = f32} : f32[n]
            %c = reshape(%f) {shape = [n, 1]} : f32[n, 1]
            %h = matmul(%x, @w) : f32[n, 4]
            %y = add(%h, %c) : f32[n, 4]
            output y = %y";
        assert!(!rounds(biases));
        assert!(rounds(&biases.replace("output y", "%b = cast(%h) {to = bf16} : bf16[n, 4]\noutput b = %b\noutput y")));
        assert!(rounds("input %x: bf16[n]\n%y = neg(%x) : bf16[n]\noutput y = %y"));
    }

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
