//! compressed-tensors (<https://github.com/vllm-project/compressed-tensors>), as llm-compressor writes it: integers, packed
//! into words or not, with scales of whole tensors, of outputs or of groups of inputs; and floating-point numbers of 8 bits.

use planish_ir::weight::{Channels, Packing};
use planish_ir::{DType, Weight};
use serde_json::Value;

use super::Dequantized;
use super::float8::{self, Float8};
use super::layer::{FLOATS, Layer};
use super::packed::{group_order, grouped};
use super::settings::{Keys, Settings};
use crate::ModelError;
use crate::checkpoint::config::is_off;

const KEYS: Keys = Keys {
    used: &["quant_method", "format", "quantization_status", "sparsity_config", "config_groups", "kv_cache_scheme"],
    // The tensors say which layers are quantized.
    irrelevant: &["global_compression_ratio", "ignore", "version"],
    // Rotations of inputs and outputs.
    off: &["transform_config"],
};

/// Those of a group of layers.
const GROUP: Keys = Keys {
    used: &["weights", "input_activations", "output_activations", "format"],
    irrelevant: &["targets"],
    off: &[],
};

/// Those of the weights of a group. The tensors say the size of groups, and whether there are zero points and an order.
const WEIGHTS: Keys = Keys {
    used: &["block_structure", "num_bits", "strategy", "type"],
    irrelevant: &["actorder", "group_size", "observer", "observer_kwargs", "scale_dtype", "symmetric", "zp_dtype"],
    // Scales that each run computes.
    off: &["dynamic"],
};

/// The codes of a layer in words.
const PACKED: &str = ".weight_packed";

/// The settings of a checkpoint. The tensors of a layer say the bits and the groups of its codes.
pub(crate) struct CompressedTensors {
    form: Form,
    /// The bits that groups say; none where one does not say them.
    bits: Vec<u64>,
}

/// How codes are stored.
enum Form {
    /// Integers packed into words: `weight_packed`.
    Packed,
    /// Integers of 8 bits.
    Integers,
    /// Floating-point numbers of 8 bits.
    Floats(Float8),
}

impl CompressedTensors {
    pub(super) fn read(settings: &Settings<'_, '_>) -> Result<Self, ModelError> {
        const FORMATS: &[&str] = &["pack-quantized", "int-quantized", "float-quantized"];
        settings.check(&KEYS)?;
        settings.only("format", FORMATS)?;
        settings.only("quantization_status", &["compressed"])?;
        let format = settings.text("format")?;
        if let Some(value) = settings.get("sparsity_config").filter(|value| !is_off(value))
            && !matches!(value.get("format").and_then(Value::as_str), None | Some("dense"))
        {
            return Err(settings.unexpected("sparsity_config", value, "no sparsity"));
        }
        let Some(Value::Object(groups)) = settings.get("config_groups") else {
            let config = settings.config;
            return Err(
                config.error(format!("`{}.config_groups` is missing: it says how weights are quantized", settings.key))
            );
        };
        if settings.get("kv_cache_scheme").is_some_and(|value| !is_off(value)) {
            settings.warn_of_activations("kv_cache_scheme");
        }
        let is_float = format == Some(FORMATS[2]);
        let (kind, kinds, strategies): (_, _, &[&str]) = match is_float {
            true => ("float", "floating-point numbers", &["tensor", "channel", "group", "block"]),
            false => ("int", "integers", &["tensor", "channel", "group"]),
        };
        let (mut bits, mut block) = (Vec::new(), None);
        for (name, group) in groups {
            let place = format!("config_groups.{name}");
            let Value::Object(group) = group else { return Err(settings.unexpected(&place, group, "an object")) };
            settings.check_object(&format!("{place}."), group, &GROUP)?;
            settings.only_of(&format!("{place}.format"), group.get("format").filter(|v| !v.is_null()), FORMATS)?;
            let given = |key: &str| group.get(key).filter(|value| !is_off(value));
            if let Some(value) = given("weights") {
                let place = format!("{place}.weights");
                let Value::Object(weights) = value else { return Err(settings.unexpected(&place, value, "an object")) };
                let given = |key: &str| weights.get(key).filter(|value| !value.is_null());
                let own = given("type").and_then(Value::as_str).unwrap_or("int");
                if own != kind {
                    return Err(settings.unexpected(&place, value, kinds));
                }
                settings.check_object(&format!("{place}."), weights, &WEIGHTS)?;
                settings.only_of(&format!("{place}.strategy"), given("strategy"), strategies)?;
                bits.push(given("num_bits").and_then(Value::as_u64));
                if let Some(value) = given("block_structure") {
                    let place = format!("{place}.block_structure");
                    let own = float8::sizes(value).ok_or_else(|| settings.unexpected(&place, value, float8::PAIR))?;
                    if block.replace(own).is_some_and(|other| other != own) {
                        return Err(settings.unexpected(&place, value, "the same for all groups"));
                    }
                }
            }
            if given("input_activations").or(given("output_activations")).is_some() {
                settings.warn_of_activations(&place);
            }
        }
        let bits = bits.into_iter().collect::<Option<Vec<u64>>>().unwrap_or_default();
        if let Some(other) = bits.iter().find(|bits| is_float && **bits != 8) {
            return Err(settings.config.error(format!(
                "`{}.config_groups` has floating-point numbers of {other} bits, which are not supported: 8 are",
                settings.key
            )));
        }
        match format {
            Some(_) if is_float => Ok(Self { form: Form::Floats(Float8 { block }), bits }),
            Some(format) if format == FORMATS[0] => Ok(Self { form: Form::Packed, bits }),
            Some(_) => Ok(Self { form: Form::Integers, bits }),
            None => Err(settings.config.error(format!(
                "`{}.format` is missing: known are {}",
                settings.key,
                FORMATS.join(", ")
            ))),
        }
    }

    /// The ending of the tensor that tells a quantized layer; none where the type of its weight does.
    pub(super) fn marker(&self) -> Option<&'static str> {
        match self.form {
            Form::Packed => Some(PACKED),
            Form::Integers => Some(".weight_scale"),
            Form::Floats(_) => None,
        }
    }

    /// The weight of a layer. Codes without zero points are signed, those with zero points are unsigned, and so are these:
    /// the forms that targets have.
    pub(super) fn weight(&self, layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
        let weight = if matches!(self.form, Form::Packed) { PACKED } else { ".weight" };
        let too_many = |layer: &Layer<'_>| layer.error(weight, "its size does not fit 64 bits".to_owned());
        let unsigned = match &self.form {
            Form::Floats(method) => return method.weight(layer),
            Form::Packed => {
                let codes = packed_codes(layer)?;
                let own = codes.dtype().bits() as u64;
                if !self.bits.is_empty() && !self.bits.contains(&own) {
                    let expected: Vec<String> = self.bits.iter().map(u64::to_string).collect();
                    let expected = expected.join(" or ");
                    let message =
                        format!("its codes have {own} bits, and `config_groups` of config.json says {expected}");
                    return Err(layer.error(PACKED, message));
                }
                Some(codes)
            }
            Form::Integers => layer.matrix(weight, &[DType::I8])?.0.flip_sign(),
        };
        let unsigned = unsigned.ok_or_else(|| too_many(layer))?;
        let &[outputs, inputs] = unsigned.shape() else { return Err(too_many(layer)) };
        let scales = layer.tensor(".weight_scale", FLOATS)?;
        let (shape, channels) = match *scales.shape() {
            [] | [1] | [1, 1] => (Vec::new(), Channels::Axis(0)),
            [rows, groups] if rows == outputs && groups > 0 && inputs.is_multiple_of(groups) => {
                (vec![outputs, groups], Channels::Blocks { axis: 1, size: inputs / groups })
            }
            _ => {
                return Err(layer.error(
                    ".weight_scale",
                    format!(
                        "the shape is {:?}, expected [1], [{outputs}, 1], or [{outputs}, groups] with a number of groups that \
                         divides {inputs}",
                        scales.shape()
                    ),
                ));
            }
        };
        let zeros = zero_points(layer, unsigned.dtype(), outputs, &scales)?;
        let codes = if zeros.is_some() { Some(unsigned) } else { unsigned.flip_sign() };
        let zeros = match zeros {
            Some(zeros) => Some(zeros.reshape(&shape).ok_or_else(|| too_many(layer))?),
            None => None,
        };
        let scales = scales.cast(DType::F32).and_then(|scales| scales.reshape(&shape));
        let (Some(codes), Some(scales)) = (codes, scales) else { return Err(too_many(layer)) };
        let weight = match channels {
            Channels::Blocks { size, .. } => {
                let order = group_order(layer, ".weight_g_idx", inputs, size)?;
                grouped(&codes, &scales, zeros.as_ref(), size, order)
            }
            Channels::Axis(_) => {
                layer.skip(".weight_g_idx");
                let weight = codes.dequantize(channels, &scales, zeros.as_ref());
                weight.map(|weight| Dequantized { weight, loses_codes: None })
            }
        };
        weight.ok_or_else(|| too_many(layer))
    }
}

/// The codes of `weight_packed` [out, words], of the shape `weight_shape`: in offset binary, so that they are unsigned.
fn packed_codes(layer: &mut Layer<'_>) -> Result<Weight, ModelError> {
    let (words, [rows, columns]) = layer.matrix(PACKED, &[DType::I32])?;
    let sizes = layer.shaped(".weight_shape", &[DType::I64, DType::I32], &[2], "outputs and inputs")?;
    let sizes = sizes.cast(DType::I64).ok_or_else(|| layer.error(".weight_shape", "it is no list".to_owned()))?;
    let sizes: Vec<usize> = layer
        .read(".weight_shape", &sizes)?
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| usize::try_from(i64::from_le_bytes(*bytes)).unwrap_or(0))
        .collect();
    let &[outputs, inputs] = sizes.as_slice() else {
        return Err(layer.error(".weight_shape", "it is no pair".to_owned()));
    };
    let bits =
        columns.checked_mul(32).filter(|_| inputs > 0).filter(|bits| bits.is_multiple_of(inputs)).map(|b| b / inputs);
    let codes = match bits {
        Some(2) => Some(DType::U2),
        Some(4) => Some(DType::U4),
        Some(8) => Some(DType::U8),
        _ => None,
    };
    let Some(dtype) = codes.filter(|_| outputs == rows) else {
        return Err(layer.error(PACKED, format!(
            "the shape is [{rows}, {columns}], and `weight_shape` is {sizes:?}: this is no matrix of codes of 2, 4 or 8 bits \
             whose rows fill words of 32 bits"
        )));
    };
    let codes = Weight::unpack(&[words], Packing::Words, dtype, &sizes);
    codes.ok_or_else(|| layer.error(PACKED, "its size does not fit 64 bits".to_owned()))
}

/// The zero points of unsigned codes of a type, of the shape of the scales: stored as they are, or packed along the outputs.
fn zero_points(
    layer: &mut Layer<'_>,
    dtype: DType,
    outputs: usize,
    scales: &Weight,
) -> Result<Option<Weight>, ModelError> {
    const ZERO_POINT: &str = ".weight_zero_point";
    let Some(zeros) = layer.find(ZERO_POINT, &[DType::I8, DType::I32])? else { return Ok(None) };
    let bits = dtype.bits();
    let failed = |layer: &Layer<'_>| layer.error(ZERO_POINT, "its size does not fit 64 bits".to_owned());
    if zeros.dtype() == DType::I8 {
        layer.check_shape(ZERO_POINT, &zeros, scales.shape(), "one for each scale")?;
        // Zero points of fewer bits are stored in 8.
        return signed_type(dtype)
            .and_then(|signed| zeros.cast(signed)?.flip_sign())
            .map(Some)
            .ok_or_else(|| failed(layer));
    }
    let groups = scales.shape().last().copied().unwrap_or(1);
    let words = (outputs * bits).div_ceil(32);
    layer.check_shape(ZERO_POINT, &zeros, &[words, groups], "the codes of zero points of each group")?;
    if !(outputs * bits).is_multiple_of(32) {
        return Err(
            layer.error(ZERO_POINT, format!("the zero points of {outputs} outputs do not fill words of 32 bits"))
        );
    }
    let zeros = zeros.transpose(&[1, 0]);
    let zeros = zeros.and_then(|zeros| Weight::unpack(&[zeros], Packing::Words, dtype, &[groups, outputs]));
    let zeros = zeros.and_then(|zeros| zeros.transpose(&[1, 0]));
    zeros.map(Some).ok_or_else(|| failed(layer))
}

/// The signed type of as many bits.
fn signed_type(unsigned: DType) -> Option<DType> {
    match unsigned {
        DType::U2 => Some(DType::I2),
        DType::U4 => Some(DType::I4),
        DType::U8 => Some(DType::I8),
        _ => None,
    }
}
