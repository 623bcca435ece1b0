//! Attention with linear biases (Press et al. 2021, arXiv:2108.12409): the score of a key falls with its distance from the
//! query, in each head with a slope of its own. As the softmax does not change where the same is added to all scores, the
//! distance of a key is counted from the last key of the text, and one row of biases serves all queries.

use planish_ir::ops::{BinaryKind, Cast, CumSum, Iota, Slice};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder};

const MODULE: &str = "alibi";

/// The last of the slopes is 2 to the power of this, negated.
const MAX: f64 = 8.0;

/// How the places of keys are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    /// Among the tokens that the mask keeps, as `build_alibi_tensor` of `transformers/models/bloom` has it.
    Kept,
    /// The same in bfloat16, of slopes and of products too, as that of `transformers/models/falcon` has it. Rounding depends
    /// on the place itself, so it is not counted from the last key.
    KeptInBfloat16,
    /// Among all tokens, as `build_mpt_alibi_tensor` of `transformers/models/mpt` has it.
    All,
}

/// The biases of a model.
#[derive(Clone, Copy)]
pub(crate) struct Alibi {
    pub(crate) places: Places,
    /// What biases are multiplied with.
    pub(crate) factor: f64,
}

impl Alibi {
    /// The addend of scaled scores, [batch_size or 1, heads, 1, keys]. `attention_mask` is i64[batch_size, keys].
    pub(crate) fn bias(self, b: &mut Builder<'_>, attention_mask: ValueId, heads: Size) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{MODULE}.{name}");
        let keys = b.graph.ty(attention_mask).shape[1].clone();
        let (rows, places) = match self.places {
            Places::All => {
                let key = b.emit(Iota { dtype: DType::I64, length: keys.clone() }, &at("key"))?;
                (Dim::constant(1), from_last(b, key, 0, &keys)?)
            }
            Places::Kept | Places::KeptInBfloat16 => {
                let kept = b.emit(CumSum { x: attention_mask, axis: 1 }, &at("kept"))?;
                let places = match self.places {
                    Places::Kept => from_last(b, kept, 1, &keys)?,
                    _ => {
                        let one = b.graph.add_scalar(&at("one"), DType::I64, 1.0);
                        let place = b.binary(BinaryKind::Sub, [kept, one], &at("place"))?;
                        b.binary(BinaryKind::Mul, [place, attention_mask], &at("place.kept"))?
                    }
                };
                (Dim::symbol(BATCH), places)
            }
        };
        let one = || Dim::constant(1);
        let mut places = b.emit(Cast { x: places, to: DType::F32 }, &at("places"))?;
        let rounds = self.places == Places::KeptInBfloat16;
        if rounds {
            places = bfloat16(b, places, &at("places"))?;
        }
        let places = b.reshape(places, [rows, one(), one(), keys], &at("places.row"))?;
        let dtype = if rounds { DType::Bf16 } else { DType::F32 };
        let slopes = Weight::numbers(dtype, vec![1, heads.value, 1, 1], &self.slopes(heads.value));
        let slopes = slopes.and_then(|slopes| slopes.cast(DType::F32));
        let slopes = slopes.unwrap_or_else(|| unreachable!("there is a slope for each head"));
        let slopes = b.graph.add_weight(&at("slopes"), slopes, Origin::Config(heads.key.into()));
        let mut bias = b.binary(BinaryKind::Mul, [places, slopes], &at("bias"))?;
        if rounds {
            bias = bfloat16(b, bias, &at("bias"))?;
        }
        match self.factor {
            1.0 => Ok(bias),
            factor => b.with_number(BinaryKind::Mul, bias, factor, &at("bias.scaled"), heads.key),
        }
    }

    /// The slope of each head: powers of `2^(-8 / n)` for the largest power of two `n` of heads, then the odd powers of its
    /// root for the other heads.
    fn slopes(self, heads: usize) -> Vec<f64> {
        let whole = 1 << heads.max(1).ilog2();
        let power = |n: usize, power: usize| {
            let base = 2f64.powf(-MAX / n as f64);
            match self.places {
                Places::All => base.powf(power as f64),
                // The base is a number of 32 bits there.
                Places::Kept | Places::KeptInBfloat16 => f64::from(base as f32).powf(power as f64),
            }
        };
        let first = (1..=whole).map(|i| power(whole, i));
        first.chain((0..heads - whole).map(|i| power(2 * whole, 2 * i + 1))).collect()
    }
}

/// Numbers along an axis, less the last of them.
fn from_last(b: &mut Builder<'_>, x: ValueId, axis: usize, keys: &Dim) -> Result<ValueId, ModelError> {
    let start = keys.checked_sub(&Dim::constant(1)).unwrap_or_default();
    let last = b.emit(Slice { x, axis, start, end: keys.clone() }, &format!("{MODULE}.last"))?;
    b.binary(BinaryKind::Sub, [x, last], &format!("{MODULE}.from_last"))
}

/// Numbers as bfloat16 has them.
fn bfloat16(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let x = b.emit(Cast { x, to: DType::Bf16 }, &format!("{module}.bfloat16"))?;
    b.emit(Cast { x, to: DType::F32 }, &format!("{module}.rounded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slopes(heads: usize) -> Vec<f64> {
        Alibi { places: Places::All, factor: 1.0 }.slopes(heads)
    }

    #[test]
    fn slopes_of_powers_of_two_are_a_geometric_sequence() {
        assert_eq!(slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(slopes(2), [0.0625, 0.00390625]);
    }

    #[test]
    fn other_heads_have_slopes_between_these() {
        assert_eq!(slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
        assert_eq!(slopes(1), [0.00390625]);
        assert_eq!(slopes(3), [0.0625, 0.00390625, 0.25]);
    }
}
