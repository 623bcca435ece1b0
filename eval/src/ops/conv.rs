//! Convolution: windows laid out as the rows of a matrix, times the filters. Sums in `f64`, rounded once.

use planish_ir::ops::Conv;
use rayon::prelude::*;

use super::{Call, Kernel};
use crate::Data;
use crate::element::{Element, Float, with_type};
use crate::product::{Matrix, multiply};

/// The elements of the windows that are laid out at the same time, for each thread.
const BLOCK: usize = 1 << 20;

impl Kernel for Conv {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, weight) = (call.operand(self.x), call.operand(self.weight));
        with_type!(x.dtype(), float T => {
            let bias = self.bias.map(|bias| T::of(call.operand(bias))).transpose()?;
            let layer = Layer { conv: self, x: x.shape(), weight: weight.shape(), places: &call.shape()[2..] };
            Ok(vec![T::data(layer.run(T::of(x)?, T::of(weight)?, bias))])
        })
    }
}

/// A convolution with its sizes.
struct Layer<'a> {
    conv: &'a Conv,
    x: &'a [usize],
    weight: &'a [usize],
    /// The spatial sizes of the result.
    places: &'a [usize],
}

impl Layer<'_> {
    fn run<T: Float>(&self, x: &[T], weight: &[T], bias: Option<&[T]>) -> Vec<T> {
        let (out, each, groups) = (self.weight[0], self.weight[1], self.conv.groups);
        let (spatial, kernel) = (&self.x[2..], &self.weight[2..]);
        let count = |sizes: &[usize]| sizes.iter().product::<usize>();
        let (size, number, window) = (count(spatial), count(self.places), each * count(kernel));
        let mut result = vec![T::default(); self.x[0] * out * number];
        let rows = out / groups;
        if result.is_empty() || rows == 0 {
            return result;
        }
        let block = (BLOCK / window.max(1)).clamp(1, number);
        result.par_chunks_mut(rows * number).enumerate().for_each(|(at, result)| {
            let (batch, group) = (at / groups, at % groups);
            let x = &x[(batch * groups + group) * each * size..][..each * size];
            let filters: Vec<f64> =
                weight[group * rows * window..][..rows * window].iter().map(|w| w.widen()).collect();
            for first in (0..number).step_by(block) {
                let taken = block.min(number - first);
                let mut columns = Vec::with_capacity(taken * window);
                for place in first..first + taken {
                    for channel in 0..each {
                        for offset in 0..count(kernel) {
                            let at = self.position(place, offset);
                            columns.push(at.map_or(0.0, |at| x[channel * size + at].widen()));
                        }
                    }
                }
                let columns = Matrix::new(&columns, taken, window).transposed();
                let product = multiply(Matrix::new(&filters, rows, window), columns);
                for (i, sum) in product.into_iter().enumerate() {
                    let row = i / taken;
                    let bias = bias.map_or(0.0, |bias| bias[group * rows + row].widen());
                    result[row * number + first + i % taken] = T::narrow(sum + bias);
                }
            }
        });
        result
    }

    /// Where an element of a window is among the spatial elements; `None` in the padding.
    fn position(&self, mut place: usize, mut offset: usize) -> Option<usize> {
        let (mut position, mut step) = (0, 1);
        for axis in (0..self.places.len()).rev() {
            let (size, kernel) = (self.x[axis + 2], self.weight[axis + 2]);
            let at = place % self.places[axis] * self.conv.strides[axis] + offset % kernel * self.conv.dilations[axis];
            let at = at.checked_sub(self.conv.pads[axis]).filter(|at| *at < size)?;
            position += at * step;
            step *= size;
            place /= self.places[axis];
            offset /= kernel;
        }
        Some(position)
    }
}
