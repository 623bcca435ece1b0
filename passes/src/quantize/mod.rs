//! Quantization: the inputs and weights of linear layers as codes of 8 bits, and weights alone as codes of 4 or 8 bits.

mod apply;
mod attention;
mod check;
mod codes;
mod finite;
mod gptq;
mod losses;
mod maps;
mod norms;
mod plan;
mod planner;
mod recurrent;
mod release;
mod round;
mod sites;
mod smooth;
mod split;
mod tables;
mod trial;
mod triangle;
mod weight_only;
mod weights;

use std::collections::BTreeMap;

use planish_ir::{DType, Weight};

pub use apply::QUANTIZE;
pub use check::PlanError;
pub use codes::weights_of_codes;
pub use finite::{CHECK_CODES, not_finite_weights};
pub use gptq::{CodeGrid, Gptq};
pub use maps::feature_maps;
pub use plan::{Activation, Plan, PlannedAttention, PlannedInput};
pub use planner::{SPLIT_COLUMNS, Settings, Smooth};
pub use release::release_codes;
pub use sites::{MIN_FEATURES, Site, sites};
pub use smooth::smooth_factors;
pub use split::split_columns;
pub use trial::quantize_rows;
pub use weight_only::{
    Bits, PlannedWeight, QUANTIZE_WEIGHTS, WeightForm, WeightMethod, WeightPlan, WeightQuantization, WeightSettings,
};
pub use weights::WeightScales;

/// What `quantize` does to a graph.
#[derive(Clone, Debug, Default)]
pub struct Quantization {
    /// What becomes of the inputs of linear layers.
    pub plan: Plan,
    /// How the scales of weights are chosen.
    pub weight_scales: WeightScales,
    /// Weights whose codes were chosen with data, by the result of the layer.
    pub rounded: BTreeMap<String, RoundedWeight>,
}

/// The codes of a weight, [out, in], and their scales, `[out]`.
#[derive(Clone, Debug)]
pub struct RoundedWeight {
    /// i8, [out, in].
    pub codes: Weight,
    /// f32, `[out]`.
    pub scales: Weight,
}

/// The type of the codes of weights that are multiplied with codes of this type.
pub(crate) fn weight_codes(activation: DType) -> DType {
    match activation {
        DType::F8E4M3FN => DType::F8E4M3FN,
        _ => DType::I8,
    }
}
