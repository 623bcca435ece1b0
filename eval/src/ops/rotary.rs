//! Rotary position embedding, computed in `f64` and rounded once.

use planish_ir::ops::Rotary;

use super::{Call, Kernel};
use crate::element::{Element, Float, with_type};
use crate::{Data, Tensor};

impl Kernel for Rotary {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let [x, cos, sin] = [self.x, self.cos, self.sin].map(|v| call.operand(v));
        with_type!(x.dtype(), float T => Ok(vec![T::data(rotated::<T>(x, [cos, sin], self.heads, self.interleaved.0)?)]))
    }
}

/// The elements of `x`, [batch, length, heads * size], rotated by the positions' cosines and sines.
pub(super) fn rotated<T: Float>(
    x: &Tensor,
    [cos, sin]: [&Tensor; 2],
    heads: usize,
    interleaved: bool,
) -> Result<Vec<T>, String> {
    let [tokens, pairs] = [cos.shape()[0] * cos.shape()[1], cos.shape()[2]];
    let features = x.shape()[2];
    let size = features / heads;
    let (x, cos, sin) = (T::of(x)?, T::of(cos)?, T::of(sin)?);
    let mut out = x.to_vec();
    for (at, row) in out.chunks_mut(features.max(1)).enumerate() {
        let angle = (at % tokens.max(1)) * pairs;
        for head in row.chunks_mut(size) {
            for i in 0..pairs {
                let (first, second) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
                let (a, b) = (head[first].widen(), head[second].widen());
                let (c, s) = (cos[angle + i].widen(), sin[angle + i].widen());
                head[first] = T::narrow(a * c - b * s);
                head[second] = T::narrow(b * c + a * s);
            }
        }
    }
    Ok(out)
}
