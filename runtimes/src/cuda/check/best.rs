//! The best scores of rows, and the sums of their exponentials.

use std::fmt;
use std::sync::Arc;

use planish_eval::Tensor;
use planish_ir::DType;

use crate::cuda::device::Device;
use crate::cuda::tensor::DeviceTensor;

/// Scores [rows, columns, width], of whose last columns the best are found.
#[derive(Clone, Copy)]
pub(in crate::cuda) struct Rows {
    dtype: DType,
    rows: usize,
    columns: usize,
    width: usize,
    /// The scores of each row that count.
    scored: usize,
    k: usize,
    what: What,
}

/// What the scores are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Random,
    /// Many are equal; zeros have either sign.
    Equal,
    /// Most are negative infinity, in some rows all.
    Impossible,
    /// A row has a number that is none, another one infinity.
    Wrong,
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, rows, columns, width, scored, k, what } = self;
        write!(f, "the {k} best of {scored} scores of {dtype}[{rows}, {columns}, {width}], {what:?}")
    }
}

pub(super) fn cases() -> Vec<Rows> {
    let plain = Rows { dtype: DType::F32, rows: 3, columns: 1, width: 100, scored: 100, k: 3, what: What::Random };
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for what in [What::Random, What::Equal, What::Impossible, What::Wrong] {
            cases.push(Rows { dtype, what, ..plain });
            // Several groups, the last one short; columns and scores that do not count.
            cases.push(Rows { dtype, what, columns: 2, width: 2111, scored: 2059, k: 9, ..plain });
        }
        cases.push(Rows { dtype, rows: 1, width: 1024, scored: 1024, k: 128, ..plain });
        cases.push(Rows { dtype, rows: 9, width: 5000, scored: 5000, k: 1, ..plain });
    }
    cases.push(Rows { width: 8, scored: 8, k: 1, ..plain });
    cases.push(Rows { rows: 2, width: 1025, scored: 1025, k: 128, what: What::Equal, ..plain });
    cases
}

impl Rows {
    fn tensor(&self) -> Option<Tensor> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ (self.width * 31 + self.k) as u64;
        let mut next = || {
            // Xorshift (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let element = |at: usize| {
            let (row, number) = (at / (self.width * self.columns), next());
            match self.what {
                What::Random => number * 20.0 - 10.0,
                What::Equal if number < 0.2 => -0.0,
                What::Equal => (number * 3.0).floor() - 1.0,
                What::Impossible if row == 1 || number < 0.9 => f64::NEG_INFINITY,
                What::Impossible => number,
                What::Wrong if at % self.width == 5 && row == 0 => f64::NAN,
                What::Wrong if at % self.width == 7 && row == 1 => f64::INFINITY,
                What::Wrong => number,
            }
        };
        let elements: Vec<f64> = (0..self.rows * self.columns * self.width).map(element).collect();
        Tensor::from_f64(self.dtype, vec![self.rows, self.columns, self.width], &elements)
    }

    /// Runs the kernels, and compares with sorting.
    pub(super) fn check(&self, device: &Arc<dyn Device>) -> Result<(), String> {
        let tensor = self.tensor().ok_or("there are no such elements")?;
        let found = DeviceTensor::upload(device, &tensor)?.best(self.scored, self.k)?;
        let found = found.ok_or("the kernels do not find them")?;
        let elements = tensor.to_f64();
        for (row, found) in found.iter().enumerate() {
            let all = &elements[((row + 1) * self.columns - 1) * self.width..][..self.scored];
            // What is no number counts as the least.
            let score = |at: usize| if all[at].is_nan() { f64::NEG_INFINITY } else { all[at] };
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).unwrap_or(std::cmp::Ordering::Equal));
            for (at, (index, value)) in found.best.iter().enumerate() {
                if *index != order[at] || f64::from(*value) != score(order[at]) {
                    let wanted = (order[at], score(order[at]));
                    return Err(format!("result {at} of row {row} is {:?}, and should be {wanted:?}", (index, value)));
                }
            }
            if found.best.len() != self.k {
                return Err(format!("row {row} has {} results", found.best.len()));
            }
            let most = all.iter().fold(f64::NEG_INFINITY, |most, x| if x.is_nan() { most } else { most.max(*x) });
            let sum: f64 = all.iter().filter(|x| **x != f64::NEG_INFINITY).map(|x| (x - most).exp()).sum();
            let wanted = if sum == 0.0 { 0.0 } else { most + sum.ln() };
            let near = (found.log_sum - wanted).abs() <= 1e-12 * wanted.abs().max(1.0);
            let are_none = wanted.is_nan() && found.log_sum.is_nan();
            if !(near || are_none) {
                return Err(format!("the sum of row {row} is {}, and should be {wanted}", found.log_sum));
            }
        }
        if found.len() == self.rows { Ok(()) } else { Err(format!("there are {} rows", found.len())) }
    }
}
