//! Experts in MXFP4 (OCP Microscaling Formats 1.0), as gpt-oss has them: numbers of 4 bits (E2M1), and a power of two for each
//! 32 of them. Twice a number is an integer, so these are codes of 8 bits.

use planish_ir::weight::{Channels, StoredRange};
use planish_ir::{DType, Weight};

use super::Dequantized;
use super::layer::Layer;
use super::settings::{Keys, Settings};
use crate::ModelError;
use crate::checkpoint::config::MAX_SIZE;

/// The numbers, [experts, outputs, blocks, bytes of a block]; the first of two in a byte is in the lower bits.
pub(super) const MARKER: &str = "_blocks";
/// The exponents of the powers of two plus 127, [experts, outputs, blocks].
const SCALES: &str = "_scales";

/// The bytes and the elements of a block.
const BYTES: usize = 16;
const ELEMENTS: usize = 32;

const KEYS: Keys = Keys { used: &["quant_method"], irrelevant: &["dequantize", "modules_to_not_convert"], off: &[] };

pub(super) fn check(settings: &Settings<'_, '_>) -> Result<(), ModelError> {
    settings.check(&KEYS)
}

/// The weight of all experts, [experts, out, in].
pub(super) fn weight(layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
    let packed = layer.tensor(MARKER, &[DType::U8])?;
    let &[experts, outputs, blocks, BYTES] = packed.shape() else {
        let shape = packed.shape();
        return Err(layer.error(
            MARKER,
            format!(
                "the shape is {shape:?}, expected [experts, outputs, blocks, {BYTES}]: blocks of {ELEMENTS} inputs"
            ),
        ));
    };
    if [experts, outputs, blocks].iter().any(|size| !(1..=MAX_SIZE).contains(size)) {
        let shape = packed.shape();
        return Err(layer.error(MARKER, format!("the shape is {shape:?}, expected sizes from 1 to {MAX_SIZE}")));
    }
    let scales =
        layer.shaped(SCALES, &[DType::U8, DType::F8E8M0], &[experts, outputs, blocks], "one for each block")?;
    let as_type = |of: &Weight, dtype: DType, shape: &[usize]| match of.as_stored() {
        Some(StoredRange { source, offset }) => {
            Weight::stored(dtype, shape.to_vec(), StoredRange { source: source.clone(), offset: *offset })
        }
        None => None,
    };
    let inputs = blocks.checked_mul(ELEMENTS);
    let numbers = inputs.and_then(|inputs| as_type(&packed, DType::F4E2M1, &[experts, outputs, inputs]));
    let half = Weight::scalar(DType::F32, 0.5);
    let codes = numbers.and_then(|numbers| numbers.cast(DType::F32)?.quantize(DType::I8, 0, &half, None));
    let halves = Weight::numbers(DType::F32, vec![experts], &vec![0.5; experts]);
    let scales = as_type(&scales, DType::F8E8M0, scales.shape()).and_then(|scales| scales.cast(DType::F32));
    let scales = scales.zip(halves).and_then(|(scales, halves)| scales.scale(0, &halves));
    let weight = codes
        .zip(scales)
        .and_then(|(codes, scales)| codes.dequantize(Channels::Blocks { axis: 2, size: ELEMENTS }, &scales, None));
    let weight = weight.ok_or_else(|| layer.error(MARKER, "its size does not fit 64 bits".to_owned()))?;
    Ok(Dequantized { weight, loses_codes: None })
}
