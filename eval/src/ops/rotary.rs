//! Rotary position embedding, computed in `f64` and rounded once.

use planish_ir::ops::Rotary;

use super::{Call, Kernel};
use crate::Data;
use crate::element::{Element, Float, with_type};

impl Kernel for Rotary {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let [x, cos, sin] = [self.x, self.cos, self.sin].map(|v| call.operand(v));
        let [tokens, pairs] = [cos.shape()[0] * cos.shape()[1], cos.shape()[2]];
        let features = x.shape()[2];
        let size = features / self.heads;
        with_type!(x.dtype(), float T => {
            let (x, cos, sin) = (T::of(x)?, T::of(cos)?, T::of(sin)?);
            let mut out = x.to_vec();
            for (at, row) in out.chunks_mut(features.max(1)).enumerate() {
                let angle = (at % tokens.max(1)) * pairs;
                for head in row.chunks_mut(size) {
                    for i in 0..pairs {
                        let (first, second) = if self.interleaved.0 { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
                        let (a, b) = (head[first].widen(), head[second].widen());
                        let (c, s) = (cos[angle + i].widen(), sin[angle + i].widen());
                        head[first] = T::narrow(a * c - b * s);
                        head[second] = T::narrow(b * c + a * s);
                    }
                }
            }
            Ok(vec![T::data(out)])
        })
    }
}
