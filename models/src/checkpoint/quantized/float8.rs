//! Weights of floating-point numbers of 8 bits (FP8, E4M3 or E5M2) with scales: of the whole weight, of outputs, of groups of
//! inputs, or of blocks of outputs and inputs (DeepSeek-AI 2024, arXiv:2412.19437, section 3.3). They become floats, because
//! no target has a product of floats with such codes that is faster.

use planish_ir::weight::Channels;
use planish_ir::{DType, Weight};
use serde_json::Value;

use super::Dequantized;
use super::layer::Layer;
use super::settings::{Keys, Settings};
use crate::ModelError;

/// The types of the codes.
pub(crate) const CODES: &[DType] = &[DType::F8E4M3FN, DType::F8E5M2];

/// The types of the scales.
const SCALES: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::F8E8M0];

const WEIGHT: &str = ".weight";
/// The names of scales. They are what codes are multiplied with, also those that are called inverse.
const NAMES: [&str; 2] = [".weight_scale_inv", ".weight_scale"];
/// Scales of activations.
const ACTIVATIONS: [&str; 2] = [".input_scale", ".activation_scale"];

/// The tensors say which layers are quantized, and the types of codes and scales.
const KEYS: Keys = Keys {
    used: &["quant_method", "activation_scheme", "expert_dtype", "fmt", "weight_block_size"],
    irrelevant: &["dequantize", "ignored_layers", "modules_to_convert", "modules_to_not_convert", "scale_fmt"],
    off: &[],
};

/// How many outputs and inputs share a scale where the settings do not say it.
const BLOCK: [usize; 2] = [128, 128];

/// The settings of a checkpoint.
pub(crate) struct Float8 {
    /// How many outputs and inputs share a scale, where blocks of both do.
    pub(super) block: Option<[usize; 2]>,
}

impl Float8 {
    pub(super) fn read(settings: &Settings<'_, '_>) -> Result<Self, ModelError> {
        settings.check(&KEYS)?;
        settings.only("fmt", &["e4m3", "e5m2"])?;
        settings.only("expert_dtype", &["fp8"])?;
        settings.only("activation_scheme", &["dynamic", "static"])?;
        settings.warn_of_activations("activation_scheme");
        const SIZE: &str = "weight_block_size";
        let block = match settings.values.get(SIZE) {
            None => Some(BLOCK),
            Some(Value::Null) => None,
            Some(value) => Some(sizes(value).ok_or_else(|| settings.unexpected(SIZE, value, PAIR))?),
        };
        Ok(Self { block })
    }

    /// The weight of a layer.
    pub(super) fn weight(&self, layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
        let (codes, [outputs, inputs]) = layer.matrix(WEIGHT, CODES)?;
        let mut found = None;
        for name in NAMES {
            if found.is_none() {
                found = layer.find(name, SCALES)?.map(|scales| (name, scales));
            }
        }
        let Some((name, scales)) = found else { return Err(layer.missing(NAMES[0])) };
        ACTIVATIONS.iter().for_each(|name| layer.skip(name));
        let scales = scales.cast(DType::F32).and_then(|scales| self.scales(&scales, [outputs, inputs]));
        let Some((scales, channels)) = scales else {
            let shape = layer.find(name, SCALES)?.map(|scales| scales.shape().to_vec()).unwrap_or_default();
            let blocks = match self.block {
                Some(block @ [rows, columns]) => {
                    format!("{:?} for blocks of {rows} outputs and {columns} inputs", blocks([outputs, inputs], block))
                }
                None => format!("[{outputs}, groups] with a number of groups that divides {inputs}"),
            };
            return Err(layer.error(
                name,
                format!("the shape is {shape:?}, expected [1], [{outputs}, 1], or {blocks}: the weight is [{outputs}, {inputs}]"),
            ));
        };
        let weight = codes.dequantize(channels, &scales, None).and_then(|weight| weight.without_codes());
        let weight = weight.ok_or_else(|| layer.error(WEIGHT, "its size does not fit 64 bits".to_owned()))?;
        Ok(Dequantized { weight, loses_codes: Some("no product with FP8 weights takes floats") })
    }

    /// The scales of a weight [out, in] as weights have them. `None` where they are of another weight.
    fn scales(&self, scales: &Weight, [outputs, inputs]: [usize; 2]) -> Option<(Weight, Channels)> {
        if let Some(block @ [rows, size]) = self.block
            && scales.shape() == blocks([outputs, inputs], block)
        {
            let of_rows: Vec<usize> = (0..outputs).map(|row| row / rows).collect();
            return Some((scales.gather(0, &of_rows)?, Channels::Blocks { axis: 1, size }));
        }
        Some(match *scales.shape() {
            [] | [1] | [1, 1] => (scales.reshape(&[])?, Channels::Axis(0)),
            [rows] | [rows, 1] if rows == outputs => (scales.reshape(&[outputs])?, Channels::Axis(0)),
            [rows, groups]
                if rows == outputs && groups > 0 && inputs.is_multiple_of(groups) && self.block.is_none() =>
            {
                (scales.clone(), Channels::Blocks { axis: 1, size: inputs / groups })
            }
            _ => return None,
        })
    }
}

/// What a pair of sizes of a block is.
pub(super) const PAIR: &str = "a pair of positive numbers, or null";

/// A pair of positive numbers.
pub(super) fn sizes(value: &Value) -> Option<[usize; 2]> {
    let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    match value.as_array()?.as_slice() {
        [rows, columns] => Some([size(rows)?, size(columns)?]),
        _ => None,
    }
}

/// The number of blocks along each axis; the last ones may be smaller.
fn blocks(shape: [usize; 2], block: [usize; 2]) -> [usize; 2] {
    [shape[0].div_ceil(block[0]), shape[1].div_ceil(block[1])]
}
