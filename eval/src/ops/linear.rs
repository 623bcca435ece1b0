//! Matrix products, accumulated in `f64` and rounded once.

use planish_ir::ops::{Linear, MatMul};
use rayon::prelude::*;

use super::{Call, Kernel};
use crate::Data;
use crate::element::{Element, with_type};
use crate::product::{Stored, multiply_rounded};
use crate::strided::{broadcast, walk};

impl Kernel for Linear {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, weight) = (call.operand(self.x), call.operand(self.weight));
        let (n, k, stored) = match self.transposed.0 {
            false => (weight.shape()[0], weight.shape()[1], Stored::Transposed),
            true => (weight.shape()[1], weight.shape()[0], Stored::RowMajor),
        };
        let elements = call.shape().iter().product::<usize>();
        with_type!(x.dtype(), float T => {
            let bias = self.bias.map(|bias| T::of(call.operand(bias))).transpose()?;
            let mut out = vec![T::default(); elements];
            multiply_rounded([n, k], T::of(x)?, (T::of(weight)?, stored), bias, &mut out);
            Ok(vec![T::data(out)])
        })
    }
}

impl Kernel for MatMul {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (a, b) = (call.operand(self.a), call.operand(self.b));
        let (batch, mn) = call.shape().split_at(call.shape().len() - 2);
        let [m, n, k] = [mn[0], mn[1], a.shape()[a.shape().len() - 1]];
        let strides = [a, b].map(|t| broadcast(&t.shape()[..t.shape().len() - 2], batch));
        let mut pairs = Vec::new();
        walk(batch, [&strides[0], &strides[1]], |run| {
            pairs.extend(run.positions());
            Ok::<_, String>(())
        })?;
        with_type!(a.dtype(), float T => {
            let (x, y) = (T::of(a)?, T::of(b)?);
            let mut out = vec![T::default(); pairs.len() * m * n];
            if !out.is_empty() {
                out.par_chunks_mut(m * n).zip(&pairs).for_each(|(out, [i, j])| {
                    let (x, y) = (&x[i * m * k..(i + 1) * m * k], &y[j * k * n..(j + 1) * k * n]);
                    multiply_rounded([n, k], x, (y, Stored::RowMajor), None, out);
                });
            }
            Ok(vec![T::data(out)])
        })
    }
}
