//! Models after passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use planish_artifact::coverage::Coverage;
use planish_artifact::manifest::PaddedVocabulary;
use planish_artifact::ranks::RankManifest;
use planish_ir::{Dim, Graph, Output, OutputRole};
use planish_models::Loaded;
use planish_passes::legalize::LOWER_EXPERTS;
use planish_passes::quantize::{Quantization, WeightQuantization};
use planish_passes::raise::Explanation;
use planish_passes::shard::Plan;
use planish_passes::{LAST_LOGITS, Stage, precision};

use super::check;

/// A model after passes.
pub struct Lowered {
    /// The model before any pass.
    pub source: Loaded,
    /// Its parts after the passes, in their order.
    pub parts: Vec<LoweredPart>,
}

/// One of the ranks of a part.
pub struct LoweredRank {
    /// What the manifest says of it.
    pub described: RankManifest,
    /// How the part is cut, before precision and padding.
    pub plan: Plan,
}

/// A part of a model after passes.
pub struct LoweredPart {
    /// The name of its file, without `.onnx`.
    pub name: String,
    /// Which part of the source it is.
    pub of: usize,
    /// Which rank of that part it is, if the model is cut for ranks.
    pub rank: Option<LoweredRank>,
    /// The graph after the passes.
    pub graph: Graph,
    /// The passes that ran, in order.
    pub stages: Vec<Stage>,
    /// How many of each operator that raising finds the graph had when it was raised.
    pub raised: BTreeMap<&'static str, usize>,
    /// What raising found; absent without `explain_fusion`.
    pub explanation: Option<Explanation>,
    /// The report on half precision; absent in float32.
    pub precision: Option<precision::HalfReport>,
    /// How its linear layers are quantized; absent where they are not.
    pub quantization: Option<Arc<Quantization>>,
    /// How its weights alone are quantized; absent where they are not.
    pub weight_quantization: Option<Arc<WeightQuantization>>,
    /// How much of its weights are codes; absent where nothing was to be quantized.
    pub coverage: Option<Coverage>,
    /// How many weights that were codes were to be quantized anew.
    pub released: usize,
    /// For each exception of what is quantized, whether it names something of the part.
    pub matched: Vec<bool>,
    /// The vocabulary and what it was padded to, where that was asked for.
    pub vocabulary: Option<PaddedVocabulary>,
}

impl LoweredPart {
    /// Whether the logits of all tokens but the last are left out: by the pass, or in the source.
    pub(crate) fn has_last_logits(&self) -> bool {
        let one = Dim::constant(1);
        let reads_one = self.graph.inputs().iter().any(|&input| {
            self.graph.interface.input(&self.graph.value(input).name).is_token_ids()
                && self.graph.ty(input).shape.get(1) == Some(&one)
        });
        let gives_one = |output: &Output| {
            self.graph.interface.output(&output.name) == OutputRole::Logits
                && matches!(&self.graph.ty(output.value).shape[..], [_, tokens, _] if *tokens == one)
        };
        self.stages.iter().any(|stage| stage.pass == LAST_LOGITS.name && stage.changed > 0)
            || !reads_one && self.graph.outputs().iter().any(gives_one)
    }

    /// Whether it had mixtures of experts that were lowered.
    pub(super) fn has_experts(&self) -> bool {
        self.stages.iter().any(|stage| stage.pass == LOWER_EXPERTS.name && stage.changed > 0)
    }

    /// Whether its attention appends to a cache in place.
    pub(super) fn appends_in_place(&self) -> bool {
        self.graph.nodes().any(|(_, node)| check::is_appended(&node.op, None))
    }
}
