//! The targets that graphs are compiled for.

mod forms;
mod openvino;

use std::fmt;
use std::ops::RangeInclusive;

use planish_ir::DType;
use planish_ir::ops::Foreign;
use planish_ir::weight::Channels;

pub use forms::{AttentionForm, CacheForm, Observation, Packing, QuantizedForm, StateForm, TokenOrder};
pub use openvino::OPENVINO;

use crate::legalize::native::{native, native_value};
use crate::legalize::tables::{ort_cpu, ort_cuda, standard};
use crate::legalize::tensorrt::{tensorrt, tensorrt_foreign, tensorrt_node, tensorrt_value};
use crate::legalize::{ATTENTION_OPSET, Kernels, MICROSOFT, ROTARY_OPSET, opset_of_codes};

/// A consumer of compiled graphs: everything that passes ask about it, each a property. Targets are equal when their
/// names are. No property has a default, so that a new target states them all.
pub struct Target {
    /// The name on the command line and in `planish.json`, e.g. `ort-cuda`.
    pub name: &'static str,
    /// One line about it, for lists of targets.
    pub summary: &'static str,
    /// The operators that it runs.
    pub kernels: Kernels,
    /// How the tokens of a batch are ordered in front of an attention without a cache.
    pub order: TokenOrder,
    /// What attention is lowered to.
    pub attention: AttentionForm,
    /// Whether graphs of several ranks may exchange tensors in it.
    pub collectives: bool,
    /// The members of a recipe that choose among forms of its graphs, which compute the same in different times.
    pub forms: &'static [&'static str],
    /// What mixtures of experts can be lowered to, first the form that they are lowered to where no other one is asked for; empty
    /// where they stay.
    pub experts: &'static [ExpertsForm],
    /// Whether it has an operator that appends to a cache of keys and values in place ([`CacheForm::InPlace`]).
    pub appends_in_place: bool,
    /// Whether it has a kernel for ONNX's RotaryEmbedding, of opset 23, for rows of tokens in float32.
    pub has_rotary_embedding: bool,
    /// Whether it runs the operators of the graph itself: with fusion they stay as they are, and the passes that fuse join
    /// them to larger ones.
    pub fuses: bool,
    /// The most bytes of scores that are in memory at the same time where attention is products; absent where the runtime
    /// makes one kernel of the products, or may do so.
    pub most_scores: Option<usize>,
    /// Whether a mask that leaves out no key is skipped at run time. A branch chooses.
    pub skips_masks: bool,
    /// What layers with a state of a fixed size are lowered to.
    pub states: StateForm,
    /// What quantized layers are lowered to.
    pub quantized: QuantizedForm,
    /// What attention of a half type is lowered to where its operands are cast to float32
    /// ([`Options::attention_fp32`](crate::Options::attention_fp32)).
    pub attention_between_casts: CastAttention,
    /// Whether `select-parts` has equal parts of a linear layer's result selected along a dimension of their own, in place
    /// of slices.
    pub selects_parts: bool,
    /// Whether `absorb-biases` moves the biases of linear layers into norms.
    pub absorbs_biases: bool,
    /// Whether `substitute-kernels` replaces operators that have no kernel by others that have one.
    pub substitutes_kernels: bool,
    /// Where `observe` computes the extremes of values.
    pub observation: Observation,
    /// Whether it computes in float32 whatever the weights are stored in, because its kernels for half types are missing
    /// or slow. `--fp16` and `--bf16` then change only how weights are stored.
    pub computes_in_float32: bool,
    /// The multiple that vocabularies are padded to, where the user asks for no other.
    pub vocabulary_multiple: Option<usize>,
    /// The multiple that the number of features of a linear layer should have, for the kernels of an element type: at
    /// least 1.
    pub alignment: fn(DType) -> usize,
}

/// The form of mixtures of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertsForm {
    /// Linear layers of each expert for the tokens that take it, whose number a run determines. Weights of experts that no
    /// token takes are not read.
    Grouped,
    /// The weights of the experts that some token takes, at most as many as all tokens take, are copied to one tensor, and each of these
    /// experts computes every token. Sizes follow from those of the inputs.
    Gathered,
    /// Products of all experts with all tokens.
    All,
}

impl Target {
    /// Whether it runs MatMulNBits and GatherBlockQuantized, ONNX Runtime's operators for weights with a scale for each block.
    #[must_use]
    pub fn has_block_operators(&self) -> bool {
        self.kernels.domains.contains(&MICROSOFT)
    }

    /// Whether its MatMulNBits can round blocks of the input to integers: ONNX Runtime's kernel for processors can, and that
    /// for GPUs multiplies floats.
    #[must_use]
    pub fn rounds_block_inputs(&self) -> bool {
        self.has_block_operators() && self.quantized == QuantizedForm::IntegerProducts
    }

    /// The first opset that can express a weight of such codes with a scale for each block; 0 where any can.
    #[must_use]
    pub fn blocks_opset(&self, codes: DType) -> u32 {
        if self.has_block_operators() {
            0
        } else {
            opset_of_codes(DType::F32, codes, Channels::Blocks { axis: 0, size: 1 })
        }
    }

    /// The first opset that can express the fastest operators of a decode step with a cache of this form: rotary embedding
    /// as one operator, if the cache is appended to in place; 0 where any can.
    #[must_use]
    pub fn cache_opset(&self, cache: CacheForm) -> u32 {
        if cache != CacheForm::Copy && self.has_rotary_embedding { ROTARY_OPSET } else { 0 }
    }
}

/// The form of attention of a half type whose operands are cast to float32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CastAttention {
    /// Two products in float32.
    Products,
    /// ONNX's operator Attention, from opset 23 on, for two heads or more of a size in this range. The mask is of the half
    /// type. Products elsewhere: for attention with a cache, a bias or a softcap, too.
    Operator {
        /// The sizes of heads that the operator has a kernel for.
        sizes: RangeInclusive<usize>,
    },
}

impl CastAttention {
    /// The first opset that can express the form.
    #[must_use]
    pub fn opset(&self) -> u32 {
        match self {
            Self::Products => 0,
            Self::Operator { .. } => ATTENTION_OPSET,
        }
    }
}

impl Target {
    /// The properties of [`ONNX`], for targets of tests that differ in a few of them. A target that is compiled for states
    /// every property.
    pub const BASE: Self = Self {
        name: "onnx",
        summary: "any ONNX runtime: standard operators only",
        kernels: Kernels {
            missing: standard,
            domains: &[Foreign::STANDARD],
            node: |_| None,
            foreign: |_, _| None,
            value: |_, _| None,
        },
        order: TokenOrder::BatchMajor,
        attention: AttentionForm::Products,
        collectives: true,
        forms: &["projections", "biases"],
        experts: &[ExpertsForm::Grouped, ExpertsForm::Gathered, ExpertsForm::All],
        appends_in_place: false,
        has_rotary_embedding: false,
        fuses: false,
        most_scores: None,
        skips_masks: false,
        states: StateForm::Scan,
        quantized: QuantizedForm::Pairs,
        attention_between_casts: CastAttention::Products,
        selects_parts: false,
        absorbs_biases: false,
        substitutes_kernels: true,
        observation: Observation::Interleaved,
        computes_in_float32: false,
        vocabulary_multiple: None,
        alignment: |_| 1,
    };
}

/// Any ONNX runtime.
pub static ONNX: Target = Target::BASE;

/// ONNX Runtime's CPU provider.
pub static ORT: Target = Target {
    name: "ort",
    summary: "ONNX Runtime, CPU provider: the forms measured to be fastest there",
    kernels: Kernels {
        missing: ort_cpu,
        domains: &[Foreign::STANDARD, "ai.onnx.ml", "ai.onnx.preview", "com.microsoft", "com.microsoft.nchwc"],
        node: |_| None,
        foreign: |_, _| None,
        value: |_, _| None,
    },
    order: TokenOrder::SequenceMajor,
    attention: AttentionForm::WholeWithCache,
    collectives: false,
    forms: &["token_order", "attention", "projections", "biases"],
    experts: &[ExpertsForm::Grouped, ExpertsForm::Gathered, ExpertsForm::All],
    appends_in_place: true,
    has_rotary_embedding: true,
    fuses: false,
    most_scores: Some(256 << 20),
    skips_masks: true,
    states: StateForm::Operators,
    quantized: QuantizedForm::IntegerProducts,
    attention_between_casts: CastAttention::Products,
    selects_parts: false,
    absorbs_biases: true,
    substitutes_kernels: false,
    observation: Observation::AtEnd,
    computes_in_float32: true,
    vocabulary_multiple: None,
    alignment: |_| 1,
};

/// ONNX Runtime's CUDA provider.
pub static ORT_CUDA: Target = Target {
    name: "ort-cuda",
    summary: "ONNX Runtime, CUDA provider: operators that it documents kernels for",
    kernels: Kernels {
        missing: ort_cuda,
        domains: &[Foreign::STANDARD, "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"],
        node: |_| None,
        foreign: |_, _| None,
        value: |_, _| None,
    },
    order: TokenOrder::BatchMajor,
    attention: AttentionForm::Products,
    collectives: false,
    forms: &[],
    experts: &[ExpertsForm::Grouped, ExpertsForm::Gathered, ExpertsForm::All],
    appends_in_place: false,
    has_rotary_embedding: false,
    fuses: false,
    most_scores: Some(256 << 20),
    skips_masks: false,
    states: StateForm::Scan,
    quantized: QuantizedForm::Pairs,
    attention_between_casts: CastAttention::Products,
    selects_parts: false,
    absorbs_biases: false,
    substitutes_kernels: true,
    observation: Observation::Interleaved,
    computes_in_float32: false,
    vocabulary_multiple: Some(64),
    alignment: tensor_cores,
};

/// TensorRT's parser of ONNX files.
pub static TRT: Target = Target {
    name: "trt",
    summary: "TensorRT: operators and element types that its ONNX parser takes",
    kernels: Kernels {
        missing: tensorrt,
        domains: &[Foreign::STANDARD],
        node: tensorrt_node,
        foreign: tensorrt_foreign,
        value: tensorrt_value,
    },
    order: TokenOrder::BatchMajor,
    attention: AttentionForm::ProductsOfGroups,
    collectives: true,
    forms: &[],
    experts: &[ExpertsForm::Gathered, ExpertsForm::All],
    appends_in_place: false,
    has_rotary_embedding: false,
    fuses: false,
    most_scores: None,
    skips_masks: false,
    states: StateForm::Scan,
    quantized: QuantizedForm::SignedPairs,
    // Found by building engines ([docs/tensorrt.md](../../docs/tensorrt.md)).
    attention_between_casts: CastAttention::Operator { sizes: 9..=256 },
    // Found by building engines ([docs/tensorrt.md](../../docs/tensorrt.md)).
    selects_parts: true,
    absorbs_biases: false,
    substitutes_kernels: true,
    observation: Observation::Interleaved,
    computes_in_float32: false,
    vocabulary_multiple: Some(64),
    alignment: tensor_cores,
};

/// planish's own runtime for GPUs of NVIDIA.
pub static CUDA: Target = Target {
    name: "cuda",
    summary: "planish's graph itself for NVIDIA GPUs: its operators stay whole and are fused",
    kernels: Kernels { missing: native, domains: &[], node: |_| None, foreign: |_, _| None, value: native_value },
    order: TokenOrder::BatchMajor,
    attention: AttentionForm::Whole,
    collectives: false,
    forms: &[],
    experts: &[],
    appends_in_place: false,
    has_rotary_embedding: false,
    fuses: true,
    most_scores: None,
    skips_masks: false,
    states: StateForm::Products,
    quantized: QuantizedForm::Codes,
    attention_between_casts: CastAttention::Products,
    selects_parts: false,
    absorbs_biases: false,
    substitutes_kernels: false,
    observation: Observation::Interleaved,
    computes_in_float32: false,
    vocabulary_multiple: Some(64),
    alignment: tensor_cores,
};

/// The multiples of features at which tensor cores multiply without a remainder.
fn tensor_cores(dtype: DType) -> usize {
    match dtype {
        DType::I8 => 16,
        DType::F16 | DType::Bf16 => 8,
        DType::F32 => 4,
        _ => 1,
    }
}

/// Every target of this crate, in the order in which they are listed.
pub static TARGETS: &[&Target] = &[&ONNX, &ORT, &OPENVINO, &ORT_CUDA, &TRT, &CUDA];

/// A name is not a target.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is not a target; there are {}", names().join(", "))]
pub struct UnknownTarget {
    /// The name.
    name: String,
}

fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

impl Target {
    /// The target of a name.
    ///
    /// # Errors
    /// When none of [`TARGETS`] has the name.
    pub fn find(name: &str) -> Result<&'static Self, UnknownTarget> {
        let found = TARGETS.iter().copied().find(|target| target.name == name);
        found.ok_or_else(|| UnknownTarget { name: name.to_owned() })
    }

    /// The names of the targets that have a property, for messages.
    pub fn names(has: impl Fn(&Self) -> bool) -> String {
        let names: Vec<&str> = TARGETS.iter().filter(|target| has(target)).map(|target| target.name).collect();
        names.join(", ")
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Target {}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Widths that the text is aligned to are respected.
        f.pad(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_found_by_its_name() {
        for target in TARGETS {
            assert_eq!(Target::find(target.name).unwrap(), *target);
        }
        let message = |name: &str| Target::find(name).unwrap_err().to_string();
        assert_eq!(message("ORT"), "`ORT` is not a target; there are onnx, ort, openvino, ort-cuda, trt, cuda");
    }
}
