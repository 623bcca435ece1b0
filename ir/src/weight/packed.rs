//! Elements that share bytes, moved one by one.

use super::read::WeightError;
use super::{Weight, WeightExpr, convert, small};
use crate::DType;

/// The bytes of a weight of a packed type whose expression moves elements.
pub(super) fn pack(weight: &Weight) -> Result<Vec<u8>, WeightError> {
    Ok(small::pack(weight.dtype().bits(), &unpack(weight)?))
}

/// The elements of a weight of a packed type, in a byte each.
fn unpack(weight: &Weight) -> Result<Vec<u8>, WeightError> {
    let bits = weight.dtype().bits();
    // The same transform of elements that take a byte each.
    let wide = |of: &Weight| -> Result<Option<Weight>, WeightError> {
        Ok(Weight::inline(DType::U8, of.shape().to_vec(), unpack(of)?))
    };
    let moved = match weight.expr() {
        WeightExpr::Transpose(of, perm) => wide(of)?.and_then(|of| of.transpose(perm)),
        WeightExpr::Reshape(of) => wide(of)?,
        WeightExpr::Gather(of, axis, indices) => wide(of)?.and_then(|of| of.gather(*axis, indices)),
        WeightExpr::Concat(parts, axis) => {
            let parts: Option<Vec<Weight>> = parts.iter().map(wide).collect::<Result<_, _>>()?;
            parts.and_then(|parts| Weight::concat(&parts, *axis))
        }
        WeightExpr::Pad(of, value) => {
            let code = small::unpack(bits, &convert::encode(weight.dtype(), &[value.0])).next().unwrap_or(0);
            wide(of)?.and_then(|of| of.pad(weight.shape(), code.into()))
        }
        _ => return Ok(small::unpack(bits, &weight.read()?).take(weight.elements()).collect()),
    };
    match moved {
        Some(moved) => moved.read(),
        None => Err(WeightError::Memory { bytes: weight.elements() as u64 }),
    }
}
