//! Reductions and running sums. Floats add up in `f64` in row-major order and round once a result;
//! integers add up exactly, and a result out of range is an error.

use planish_ir::ops::{CumSum, Reduce, ReduceKind};

use super::{Call, Kernel};
use crate::element::{Element, Float, Int, with_type};
use crate::strided::{broadcast, row_major, walk};
use crate::{Data, Tensor};

impl Kernel for Reduce {
    /// The mean of integers truncates towards zero. The maximum and the minimum of numbers of which one is
    /// not-a-number are not-a-number. Of no elements, the sum is 0, and of floats the mean is not-a-number,
    /// the maximum -inf and the minimum inf (onnx/docs/Operators.md, ReduceMax); of integers these three are
    /// errors.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let count: usize = self.axes.iter().map(|&axis| x.shape()[axis]).product();
        let of_none = count == 0 && call.shape().iter().all(|&d| d > 0);
        let undefined = match self.kind {
            ReduceKind::Sum => false,
            ReduceKind::Mean | ReduceKind::Max | ReduceKind::Min => x.dtype().is_integer(),
        };
        if of_none && undefined {
            return Err(format!("is not defined for no elements, along axes {:?} of {}", self.axes, x.ty()));
        }
        let data = with_type!(x.dtype(),
            float T => {
                let sums = match self.kind {
                    ReduceKind::Sum => fold(x, &self.axes, 0.0, |sum, e: T| *sum += e.widen())?,
                    ReduceKind::Mean => {
                        let mut sums = fold(x, &self.axes, 0.0, |sum, e: T| *sum += e.widen())?;
                        sums.iter_mut().for_each(|sum| *sum /= count as f64);
                        sums
                    }
                    ReduceKind::Max => fold(x, &self.axes, f64::NEG_INFINITY, |max, e: T| {
                        let e = e.widen();
                        if e > *max || e.is_nan() {
                            *max = e;
                        }
                    })?,
                    ReduceKind::Min => fold(x, &self.axes, f64::INFINITY, |min, e: T| {
                        let e = e.widen();
                        if e < *min || e.is_nan() {
                            *min = e;
                        }
                    })?,
                };
                T::data(sums.into_iter().map(T::narrow).collect())
            },
            int T => {
                let sums = match self.kind {
                    ReduceKind::Sum | ReduceKind::Mean => {
                        fold(x, &self.axes, 0, |sum, e: T| *sum += e.widen())?
                    }
                    ReduceKind::Max => fold(x, &self.axes, i128::MIN, |max, e: T| *max = (*max).max(e.widen()))?,
                    ReduceKind::Min => fold(x, &self.axes, i128::MAX, |min, e: T| *min = (*min).min(e.widen()))?,
                };
                let by = if self.kind == ReduceKind::Mean { count as i128 } else { 1 };
                let narrowed: Option<_> = sums.into_iter().map(|sum| T::narrow(sum / by)).collect();
                T::data(narrowed.ok_or_else(|| out_of_range(x))?)
            },
            bool => return Err("is not defined for bool".to_owned()));
        Ok(vec![data])
    }
}

impl Kernel for CumSum {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let data = with_type!(x.dtype(),
            float T => {
                let mut out = Vec::with_capacity(x.data().len());
                fold(x, &[self.axis], 0.0, |sum, e: T| {
                    *sum += e.widen();
                    out.push(T::narrow(*sum));
                })?;
                T::data(out)
            },
            int T => {
                let mut out = Vec::with_capacity(x.data().len());
                fold(x, &[self.axis], 0, |sum, e: T| {
                    *sum += e.widen();
                    out.push(T::narrow(*sum));
                })?;
                T::data(out.into_iter().collect::<Option<_>>().ok_or_else(|| out_of_range(x))?)
            },
            bool => return Err("is not defined for bool".to_owned()));
        Ok(vec![data])
    }
}

fn out_of_range(x: &Tensor) -> String {
    format!("a sum is out of range for {}", x.dtype())
}

/// One accumulator for each position outside of `axes`, row-major, after `f` was called with it
/// and each element along them. Elements are visited in row-major order.
fn fold<T: Element, A: Copy>(
    x: &Tensor,
    axes: &[usize],
    initial: A,
    mut f: impl FnMut(&mut A, T),
) -> Result<Vec<A>, String> {
    let elements = T::of(x)?;
    let mut kept = x.shape().to_vec();
    axes.iter().for_each(|&axis| kept[axis] = 1);
    let mut out = vec![initial; kept.iter().product()];
    walk(x.shape(), [&row_major(x.shape()), &broadcast(&kept, x.shape())], |run| {
        run.positions().for_each(|[from, to]| f(&mut out[to], elements[from]));
        Ok::<_, String>(())
    })?;
    Ok(out)
}
