//! The opset that a model is written for unless told otherwise.

use planish_ir::ops::Foreign;
use planish_ir::weight::Channels;
use planish_ir::{DType, Graph, Op};
use planish_models::{Checkpoint, LoadOptions};
use planish_onnx::{DEFAULT_OPSET, OPSETS, oldest_opset};
use planish_passes::{LAST_WITH_KERNELS, block_bits, opset_of_codes};

use super::SourceModel;

impl SourceModel {
    /// The opset that its graphs are written for unless told otherwise. Operators that pass through
    /// mean what they mean at the opset that they came with, which is kept up to opset 24. A newer one is written only if
    /// they need it.
    #[must_use]
    pub fn default_opset(&self) -> u32 {
        self.default_opset_from(0)
    }

    /// The same for what needs an opset of `least` or newer: operators of ONNX itself that pass through keep theirs.
    #[must_use]
    pub fn default_opset_from(&self, least: u32) -> u32 {
        match self {
            Self::Onnx(model) if model.graphs().any(|graph| passes_through(graph, &|_| true)) => {
                let standard = model.graphs().any(|graph| passes_through(graph, &Foreign::is_standard));
                let least = if standard { 0 } else { least };
                let written = model.opset().clamp(*OPSETS.start(), *OPSETS.end());
                let oldest = |graph: &Graph| oldest_opset(graph, written.min(LAST_WITH_KERNELS), written);
                model.graphs().map(oldest).max().unwrap_or(written).max(least)
            }
            Self::Checkpoint(checkpoint, _) if checkpoint.may_have_codes() => {
                DEFAULT_OPSET.max(least).max(opset_of_weights(checkpoint))
            }
            // Inputs and outputs may be of element types that came later.
            Self::Onnx(model) => {
                let oldest = |graph: &Graph| oldest_opset(graph, DEFAULT_OPSET, model.opset());
                model.graphs().map(oldest).max().unwrap_or(DEFAULT_OPSET).max(least)
            }
            Self::Checkpoint(..) => DEFAULT_OPSET.max(least),
        }
    }

    /// The first opset that has codes of weights of experts, which no operator of ONNX Runtime takes; 0 where they are not
    /// `quantized`, and of a model without experts.
    #[must_use]
    pub fn opset_of_experts(&self, quantized: bool) -> u32 {
        let has = |graph: &Graph| graph.nodes().any(|(_, node)| matches!(node.op, Op::Experts(_)));
        let any = match self {
            _ if !quantized => false,
            Self::Onnx(model) => model.graphs().any(has),
            Self::Checkpoint(checkpoint, _) => planish_models::load(checkpoint, LoadOptions::default())
                .is_ok_and(|model| model.parts.iter().any(|part| has(&part.graph))),
        };
        let blocks = Channels::Blocks { axis: 0, size: 1 };
        if any { opset_of_codes(DType::F32, DType::I4, blocks) } else { 0 }
    }

    /// The smallest codes of a graph's operators of ONNX Runtime for weights with a scale for each block; absent of a model
    /// without such operators.
    #[must_use]
    pub fn block_codes(&self) -> Option<DType> {
        let Self::Onnx(model) = self else { return None };
        let any = |holds: &dyn Fn(&Foreign) -> bool| model.graphs().any(|graph| passes_through(graph, holds));
        let codes = if any(&|op| block_bits(op) == Some(2)) { DType::U2 } else { DType::U4 };
        // Targets without MatMulBnb4 store floats of its weights.
        any(&|op| block_bits(op).is_some() && op.op.0 != "MatMulBnb4").then_some(codes)
    }
}

/// The first opset that has operators for all codes of a checkpoint's weights; 0 where there are none, or the checkpoint
/// does not load.
fn opset_of_weights(checkpoint: &Checkpoint) -> u32 {
    let Ok(model) = planish_models::load(checkpoint, LoadOptions::default()) else { return 0 };
    let weights = model.parts.iter().flat_map(|part| part.graph.weights());
    let codes = weights.filter_map(|(_, _, weight)| weight.as_dequantized());
    let opsets = codes.map(|found| opset_of_codes(found.scales.dtype(), found.codes.dtype(), found.channels));
    opsets.max().unwrap_or(0)
}

/// Whether an operator is left as it came of which something holds.
fn passes_through(graph: &Graph, holds: &dyn Fn(&Foreign) -> bool) -> bool {
    graph.nodes().any(|(_, node)| matches!(&node.op, Op::Foreign(foreign) if holds(foreign)))
}
