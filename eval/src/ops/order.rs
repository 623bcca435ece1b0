//! The largest and the smallest elements along an axis.

use std::cmp::Ordering;

use planish_ir::ops::{ArgMax, TopK};

use super::{Call, Kernel};
use crate::Data;
use crate::element::{Element, Float, Int, with_type};

impl Kernel for TopK {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, shape) = (call.operand(self.x), call.shape());
        let lines = Lines::of(x.shape(), self.axis);
        let k = shape[self.axis];
        let taken = |order: &dyn Fn(usize, usize) -> Ordering| {
            let mut taken = vec![0; lines.outer * k * lines.inner];
            lines.each(|outer, inner| {
                let at = |n| lines.at(outer, n, inner);
                let mut ranks: Vec<usize> = (0..lines.size).collect();
                ranks.sort_by(|&a, &b| {
                    let ascending = order(at(a), at(b));
                    if self.smallest.0 { ascending } else { ascending.reverse() }
                });
                for (n, rank) in ranks.into_iter().take(k).enumerate() {
                    taken[(outer * k + n) * lines.inner + inner] = rank;
                }
            });
            taken
        };
        let places = |ranks: &[usize]| -> Vec<usize> {
            let place =
                |(i, rank): (usize, &usize)| lines.at(i / (k * lines.inner).max(1), *rank, i % lines.inner.max(1));
            ranks.iter().enumerate().map(place).collect()
        };
        let (values, ranks) = with_type!(x.dtype(),
            float T => {
                let x = T::of(x)?;
                let ranks = taken(&|a, b| ascending(x[a].widen(), x[b].widen()));
                (T::data(places(&ranks).into_iter().map(|at| x[at]).collect()), ranks)
            },
            int T => {
                let x = T::of(x)?;
                let ranks = taken(&|a, b| x[a].widen().cmp(&x[b].widen()));
                (T::data(places(&ranks).into_iter().map(|at| x[at]).collect()), ranks)
            },
            bool => return Err("is not defined for bool".to_owned()));
        Ok(vec![values, indices(ranks)?])
    }
}

/// The order of two numbers: both zeros are equal, and what is no number is above all.
fn ascending(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Kernel for ArgMax {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let lines = Lines::of(x.shape(), self.axis);
        let found = |order: &dyn Fn(usize, usize) -> Option<Ordering>| {
            let mut found = Vec::with_capacity(lines.outer * lines.inner);
            lines.each(|outer, inner| {
                let better =
                    |k: usize, best: usize| match order(lines.at(outer, k, inner), lines.at(outer, best, inner)) {
                        Some(Ordering::Equal) => self.last.0,
                        order => order == Some(Ordering::Greater),
                    };
                found.push((1..lines.size).fold(0, |best, k| if better(k, best) { k } else { best }));
            });
            found
        };
        let found = with_type!(x.dtype(),
            float T => {
                let x = T::of(x)?;
                found(&|a, b| x[a].partial_cmp(&x[b]))
            },
            int T => {
                let x = T::of(x)?;
                found(&|a, b| x[a].partial_cmp(&x[b]))
            },
            bool => return Err("is not defined for bool".to_owned()));
        Ok(vec![indices(found)?])
    }
}

fn indices(found: Vec<usize>) -> Result<Data, String> {
    let found: Result<Vec<i64>, _> = found.into_iter().map(i64::try_from).collect();
    Ok(i64::data(found.map_err(|_| "an index does not fit 64 bits")?))
}

/// The lines along an axis: `outer * inner` of them, of `size` elements.
struct Lines {
    outer: usize,
    size: usize,
    inner: usize,
}

impl Lines {
    fn of(shape: &[usize], axis: usize) -> Self {
        Self { outer: shape[..axis].iter().product(), size: shape[axis], inner: shape[axis + 1..].iter().product() }
    }

    /// Where an element of a line is.
    fn at(&self, outer: usize, n: usize, inner: usize) -> usize {
        (outer * self.size + n) * self.inner + inner
    }

    fn each(&self, mut f: impl FnMut(usize, usize)) {
        (0..self.outer).for_each(|outer| (0..self.inner).for_each(|inner| f(outer, inner)));
    }
}
