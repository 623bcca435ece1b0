//! Legalization: from the canonical form to operators that the target has kernels for.

mod absorb;
mod activation;
mod attention;
mod attention_codes;
mod cast_attention;
mod chunk;
mod experts;
mod flatten;
mod in_place;
mod kernels;
mod linear;
mod mask;
mod move_codes;
mod multi_head;
mod norm;
mod parts;
mod quantized;
mod rotary;
mod split_ahead;
mod states;
mod store_once;
mod substitute;

pub use absorb::ABSORB_BIASES;
pub use activation::LOWER_ACTIVATIONS;
pub(crate) use attention::{ATTENTION_OPSET, scores};
pub use attention::{LAST_WITH_KERNELS, LOWER_ATTENTION};
pub use chunk::CHUNK_ATTENTION;
pub use experts::LOWER_EXPERTS;
pub use flatten::FLATTEN_TOKENS;
pub use kernels::{CHECK_KERNELS, Kernels, Signature};
pub(crate) use kernels::{native, openvino, tables, tensorrt};
pub use linear::LOWER_LINEAR;
pub use move_codes::MOVE_CODES;
pub use norm::LOWER_NORMS;
pub use parts::SELECT_PARTS;
pub use quantized::{LAST_WITH_QUANTIZE_KERNELS, LOWER_QUANTIZED, block_bits, opset_of_codes, product_inputs};
pub(crate) use quantized::{MICROSOFT, becomes_block_product, reshaped};
pub use rotary::LOWER_ROTARY;
pub(crate) use rotary::ROTARY_OPSET;
pub use split_ahead::SPLIT_AHEAD;
pub use states::LOWER_STATES;
pub use store_once::STORE_ONCE;
pub use substitute::SUBSTITUTE_KERNELS;

use planish_ir::Dim;

/// Swaps the first two dimensions of [batch, sequence, features].
const SWAP_TOKENS: &[usize] = &[1, 0, 2];

/// A size as a dimension.
pub(crate) fn dim(size: usize) -> Dim {
    // Sizes of graphs fit: a typing rule has counted with them.
    Dim::constant(i64::try_from(size).unwrap_or(i64::MAX))
}
