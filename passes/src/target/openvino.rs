//! OpenVINO.

use planish_ir::ops::Foreign;

use super::{AttentionForm, CastAttention, ExpertsForm, Observation, QuantizedForm, StateForm, Target, TokenOrder};
use crate::legalize::openvino::{openvino, openvino_foreign};
use crate::legalize::{Kernels, MICROSOFT};

/// OpenVINO's plugin for processors.
pub static OPENVINO: Target = Target {
    name: "openvino",
    summary: "OpenVINO on processors: standard operators in the forms that it fuses",
    kernels: Kernels {
        missing: openvino,
        domains: &[Foreign::STANDARD, MICROSOFT],
        node: |_| None,
        foreign: openvino_foreign,
        value: |_, _| None,
    },
    order: TokenOrder::BatchMajor,
    attention: AttentionForm::Products,
    collectives: false,
    forms: &["projections", "biases"],
    experts: &[ExpertsForm::Grouped, ExpertsForm::Gathered, ExpertsForm::All],
    appends_in_place: false,
    has_rotary_embedding: false,
    fuses: false,
    most_scores: None,
    skips_masks: false,
    states: StateForm::Scan,
    quantized: QuantizedForm::UnsignedPairs,
    attention_between_casts: CastAttention::Products,
    selects_parts: false,
    absorbs_biases: false,
    substitutes_kernels: true,
    observation: Observation::Interleaved,
    computes_in_float32: true,
    vocabulary_multiple: None,
    alignment: |_| 1,
};
