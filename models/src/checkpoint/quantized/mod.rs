//! Checkpoints whose linear layers other tools quantized: config.json says by which method, and the tensors of a layer are
//! codes, scales and zero points in place of its weight. A weight becomes an expression of codes with scales where that is
//! what it is; else one of the numbers that the codes stand for.

mod bitsandbytes;
mod compressed_tensors;
mod layer;
mod packed;

use planish_ir::Weight;
use serde_json::{Map, Value};

pub(crate) use layer::Layer;

use crate::ModelError;
use crate::checkpoint::config::{Config, brief, is_off};
use crate::checkpoint::config_keys::QUANTIZATION;

/// The methods that are read, as messages name them.
const METHODS: &str = "gptq, awq, compressed-tensors (pack-quantized, int-quantized), bitsandbytes (4 bits)";

/// How the linear layers of a checkpoint are quantized.
pub(crate) enum Quantization {
    /// GPTQ and AWQ: `qweight`, `scales`, `qzeros`, and perhaps `g_idx`.
    Packed(packed::Packed),
    /// `weight_packed`, or `weight` of integers, with `weight_scale`.
    CompressedTensors(compressed_tensors::CompressedTensors),
    /// `weight` of bytes with `weight.absmax` and `weight.quant_map`.
    Bitsandbytes,
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

    /// The ending of the tensor that stands for the weight of a quantized layer.
    pub(crate) fn marker(&self) -> &'static str {
        match self {
            Self::Packed(_) => ".qweight",
            Self::CompressedTensors(method) => method.marker(),
            Self::Bitsandbytes => bitsandbytes::MARKER,
        }
    }

    /// The weight of a quantized layer, which has a tensor with the [marker](Self::marker).
    ///
    /// # Errors
    /// When a tensor of the layer is missing, or they do not fit each other.
    pub(crate) fn weight(&self, layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
        match self {
            Self::Packed(method) => method.weight(layer),
            Self::CompressedTensors(method) => method.weight(layer),
            Self::Bitsandbytes => bitsandbytes::weight(layer),
        }
    }
}

/// An object of settings in `config.json`.
struct Settings<'a, 'c> {
    config: &'a Config<'c>,
    key: &'static str,
    values: &'a Map<String, Value>,
}

impl<'a> Settings<'a, '_> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn unexpected(&self, key: &str, value: &Value, expected: &str) -> ModelError {
        self.config.unexpected(&format!("{}.{key}", self.key), value, expected)
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.unexpected(key, value, "a text"))
    }

    fn boolean(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.unexpected(key, value, "true or false"))
    }

    /// The bits of a code, one of some numbers.
    fn bits(&self, key: &str, known: &[usize]) -> Result<usize, ModelError> {
        let value = self.get(key).unwrap_or(&Value::Null);
        let bits = value.as_u64().and_then(|bits| usize::try_from(bits).ok()).filter(|bits| known.contains(bits));
        let names: Vec<String> = known.iter().map(usize::to_string).collect();
        bits.ok_or_else(|| self.unexpected(key, value, &names.join(" or ")))
    }

    /// The elements along a row that share a scale: `None` for all, which files write as -1.
    fn group_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let value = self.get(key).unwrap_or(&Value::Null);
        if value.as_i64() == Some(-1) {
            return Ok(None);
        }
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
        size.map(Some).ok_or_else(|| self.unexpected(key, value, "a positive number, or -1 for whole rows"))
    }

    /// Refuses another value of a setting than those that are followed.
    fn only(&self, key: &str, known: &[&str]) -> Result<(), ModelError> {
        match self.get(key) {
            Some(value) if !value.as_str().is_some_and(|text| known.iter().any(|k| k.eq_ignore_ascii_case(text))) => {
                let named = known.join("\", \"");
                Err(self.config.error(format!(
                    "`{}.{key}` is {}, which is not supported: known are \"{named}\"",
                    self.key,
                    brief(value)
                )))
            }
            _ => Ok(()),
        }
    }
}
