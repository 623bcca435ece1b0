//! Checkpoints whose linear layers other tools quantized: config.json says by which method, and the tensors of a layer are
//! codes, scales and zero points in place of its weight. A weight becomes an expression of codes with scales where that is
//! what it is; else one of the numbers that the codes stand for.

mod bitsandbytes;
mod compressed_tensors;
mod float8;
mod layer;
mod mxfp4;
mod packed;
mod settings;

use planish_ir::Weight;
use serde_json::Value;

pub(crate) use layer::Layer;
use settings::Settings;

use crate::ModelError;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::config::{Config, is_off};
use crate::checkpoint::config_keys::QUANTIZATION;

/// The methods that are read, as messages name them.
const METHODS: &str = "gptq, awq, compressed-tensors (pack-quantized, int-quantized, float-quantized), bitsandbytes (4 bits), fp8, \
                       mxfp4";

/// How the linear layers of a checkpoint are quantized.
pub(crate) enum Quantization {
    /// GPTQ and AWQ: `qweight`, `scales`, `qzeros`, and perhaps `g_idx`.
    Packed(packed::Packed),
    /// `weight_packed`, or `weight` of integers, with `weight_scale`.
    CompressedTensors(compressed_tensors::CompressedTensors),
    /// `weight` of bytes with `weight.absmax` and `weight.quant_map`.
    Bitsandbytes,
    /// `weight` of numbers of 8 bits with `weight_scale_inv` or `weight_scale`.
    Float8(float8::Float8),
    /// Experts of numbers of 4 bits: a name with `_blocks` and with `_scales`.
    Mxfp4,
}

/// A weight of a quantized layer.
pub(crate) struct Dequantized {
    /// [out, in], in float32.
    pub(crate) weight: Weight,
    /// Why the stored codes or indices cannot be kept; `None` if they can.
    pub(crate) loses_codes: Option<&'static str>,
}

impl Quantization {
    /// Reads what a configuration says of quantized weights.
    ///
    /// # Errors
    /// When it names a method that is not read, or a setting of one that is not followed.
    pub(crate) fn read(config: &Config<'_>) -> Result<Option<Self>, ModelError> {
        let given = QUANTIZATION.iter().find_map(|&key| config.get(key).filter(|v| !is_off(v)).map(|v| (key, v)));
        let Some((key, value)) = given else { return Ok(None) };
        let Value::Object(values) = value else { return Err(config.unexpected(key, value, "an object")) };
        let settings = Settings { config, key, values };
        let method = settings.text("quant_method")?.unwrap_or("");
        match method {
            "gptq" => packed::Packed::gptq(&settings).map(Self::Packed),
            "awq" => packed::Packed::awq(&settings).map(Self::Packed),
            "compressed-tensors" => {
                compressed_tensors::CompressedTensors::read(&settings).map(Self::CompressedTensors)
            }
            "bitsandbytes" => bitsandbytes::check(&settings).map(|()| Self::Bitsandbytes),
            "fp8" => float8::Float8::read(&settings).map(Self::Float8),
            "mxfp4" => mxfp4::check(&settings).map(|()| Self::Mxfp4),
            _ => {
                let method = if method.is_empty() { "no `quant_method`" } else { method };
                Err(config.error(format!(
                    "`{key}` is there: the weights are quantized ({method}), which is not supported; known are {METHODS}; take \
                     the checkpoint that they were made from, or save a dequantized one"
                )))
            }
        }
        .map(Some)
    }

    /// The stored name of the module whose weight, of the name that it would have, is in quantized form, where it is.
    pub(crate) fn module<'n>(&self, checkpoint: &Checkpoint, weight: &'n str) -> Option<&'n str> {
        let module = match self {
            Self::Mxfp4 => weight,
            _ => weight.strip_suffix(".weight")?,
        };
        let is_there = |marker: &str| checkpoint.tensor(&format!("{module}{marker}")).is_some();
        let has_codes = || {
            let dtype = checkpoint.tensor(weight).and_then(|(_, tensor)| tensor.element_type());
            dtype.is_some_and(|dtype| float8::CODES.contains(&dtype))
        };
        let is_quantized = match self {
            Self::Packed(_) => is_there(".qweight"),
            Self::CompressedTensors(method) => method.marker().map_or_else(has_codes, is_there),
            Self::Bitsandbytes => is_there(bitsandbytes::MARKER),
            Self::Float8(_) => has_codes(),
            Self::Mxfp4 => is_there(mxfp4::MARKER),
        };
        is_quantized.then_some(module)
    }

    /// The weight of a quantized layer, by its [module](Self::module).
    ///
    /// # Errors
    /// When a tensor of the layer is missing, or they do not fit each other.
    pub(crate) fn weight(&self, layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
        match self {
            Self::Packed(method) => method.weight(layer),
            Self::CompressedTensors(method) => method.weight(layer),
            Self::Bitsandbytes => bitsandbytes::weight(layer),
            Self::Float8(method) => method.weight(layer),
            Self::Mxfp4 => mxfp4::weight(layer),
        }
    }
}
