//! bitsandbytes with 4 bits, NF4 and FP4 (Dettmers et al. 2023, arXiv:2305.14314): each code is an index of 16 numbers, and
//! a block of elements in a row-major order has a scale. With double quantization, scales are codes themselves.

use planish_ir::ops::Real;
use planish_ir::weight::Packing;
use planish_ir::{DType, Weight};
use serde_json::{Map, Value};

use super::Dequantized;
use super::layer::Layer;
use super::settings::{Keys, Settings};
use crate::ModelError;

/// The tensor that tells a layer of 4 bits.
pub(super) const MARKER: &str = ".weight.quant_map";
const WEIGHT: &str = ".weight";
const ABSMAX: &str = ".weight.absmax";
const STATES: [&str; 2] = [".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"];

/// The most bytes of the description of a layer.
const MAX_STATE_BYTES: u64 = 1 << 16;

/// A layer says of itself whether its scales are codes.
const KEYS: Keys = Keys {
    used: &["quant_method", "load_in_4bit", "_load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_quant_storage"],
    irrelevant: &[
        "bnb_4bit_compute_dtype",
        "bnb_4bit_use_double_quant",
        "llm_int8_enable_fp32_cpu_offload",
        "llm_int8_has_fp16_weight",
        "llm_int8_skip_modules",
        "llm_int8_threshold",
        "modules_to_not_convert",
    ],
    off: &["load_in_8bit", "_load_in_8bit"],
};

/// Refuses settings that are not those of 4 bits.
pub(super) fn check(settings: &Settings<'_, '_>) -> Result<(), ModelError> {
    let four = settings.boolean("load_in_4bit", false)? || settings.boolean("_load_in_4bit", false)?;
    if !four {
        let key = settings.key;
        return Err(settings.config.error(format!(
            "`{key}.load_in_4bit` is not true: of bitsandbytes, only 4 bits (nf4 and fp4) are supported; take the checkpoint \
             that the weights were made from"
        )));
    }
    settings.check(&KEYS)?;
    settings.only("bnb_4bit_quant_type", &["nf4", "fp4"])?;
    settings.only("bnb_4bit_quant_storage", &["uint8"])
}

/// The weight of a layer.
pub(super) fn weight(layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
    let codes = layer.tensor(WEIGHT, &[DType::U8])?;
    let state = State::read(layer)?;
    let elements = state.sizes[0].checked_mul(state.sizes[1]).filter(|n| n.div_ceil(2) == codes.elements());
    let Some(elements) = elements.filter(|n| n.is_multiple_of(2)) else {
        return Err(layer.error(
            WEIGHT,
            format!("it has {} bytes, which do not hold {:?} codes of 4 bits", codes.elements(), state.sizes),
        ));
    };
    let table = layer.shaped(MARKER, &[DType::F32], &[16], "a number for each code")?;
    let blocks = elements.div_ceil(state.block);
    let why = format!("a scale for each {} of {elements} elements", state.block);
    let absmax = match state.nested {
        None => layer.shaped(ABSMAX, &[DType::F32], &[blocks], &why)?,
        Some((block, offset)) => {
            let codes = layer.shaped(ABSMAX, &[DType::U8], &[blocks], &why)?;
            let table = layer.shaped(".weight.nested_quant_map", &[DType::F32], &[256], "a number for each code")?;
            let why = format!("a scale for each {block} of {blocks} scales");
            let scales = layer.shaped(".weight.nested_absmax", &[DType::F32], &[blocks.div_ceil(block)], &why)?;
            let packing = Packing::Codebook { bits: 8, block, offset: Real(offset) };
            let absmax = Weight::unpack(&[codes, table, scales], packing, DType::F32, &[blocks]);
            absmax.ok_or_else(|| layer.error(ABSMAX, "its size does not fit 64 bits".to_owned()))?
        }
    };
    let packing = Packing::Codebook { bits: 4, block: state.block, offset: Real(0.0) };
    let weight = Weight::unpack(&[codes, table, absmax], packing, DType::F32, &state.sizes);
    let weight = weight.ok_or_else(|| layer.error(WEIGHT, "its size does not fit 64 bits".to_owned()))?;
    Ok(Dequantized { weight, loses_codes: None })
}

/// What a layer says of itself, as JSON in a tensor of bytes.
struct State {
    /// Outputs and inputs.
    sizes: [usize; 2],
    /// The elements that share a scale.
    block: usize,
    /// The scales that share a scale of theirs, and what is added to them.
    nested: Option<(usize, f64)>,
}

impl State {
    fn read(layer: &mut Layer<'_>) -> Result<Self, ModelError> {
        let mut found = None;
        for ending in STATES {
            if let Some(tensor) = layer.find(ending, &[DType::U8])? {
                found = Some((ending, tensor));
            }
        }
        let Some((ending, tensor)) = found else { return Err(layer.missing(STATES[0])) };
        if tensor.bytes() > MAX_STATE_BYTES {
            return Err(
                layer.error(ending, format!("{} bytes are too many; the limit is {MAX_STATE_BYTES}", tensor.bytes()))
            );
        }
        let bytes = layer.read(ending, &tensor)?;
        let state: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|e| layer.error(ending, format!("it is no JSON object: {e}")))?;
        let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let wrong = |key: &str, expected: &str| layer.error(ending, format!("`{key}` is not {expected}"));
        let sizes = match state.get("shape").and_then(Value::as_array).map(Vec::as_slice) {
            Some([outputs, inputs]) => size(outputs).zip(size(inputs)),
            _ => None,
        };
        let (outputs, inputs) = sizes.ok_or_else(|| wrong("shape", "a pair of positive numbers"))?;
        let block = |key: &str| state.get(key).and_then(size).ok_or_else(|| wrong(key, "a positive number"));
        let nested = match state.contains_key("nested_blocksize") {
            false => None,
            true => {
                let offset = state.get("nested_offset").and_then(Value::as_f64).filter(|offset| offset.is_finite());
                Some((block("nested_blocksize")?, offset.ok_or_else(|| wrong("nested_offset", "a number"))?))
            }
        };
        Ok(Self { sizes: [outputs, inputs], block: block("blocksize")?, nested })
    }
}
