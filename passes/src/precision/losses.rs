//! The errors of float32 weights in half precision.

use planish_ir::weight::{WeightError, WeightExpr};
use planish_ir::{DType, Graph, ValueId, Weight};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Half;
use crate::PassError;

/// A weight's relative error in half precision beyond which it stays in float32, in units of
/// roundoff. In the normal range of the type it is at most one.
const ROUNDOFFS: f64 = 4.0;

/// The error of a weight in half precision. What is recorded of weights that stay in it has no overflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// The weight's name.
    pub name: String,
    /// The largest magnitude.
    pub max_abs: f64,
    /// How many elements overflow to infinity.
    #[serde(skip)]
    pub overflows: u64,
    /// How many elements other than 0 become 0.
    pub underflows: u64,
    /// How many elements there are.
    pub elements: u64,
    /// A bound of the error's Euclidean norm relative to that of the weight, as far as elements do not overflow.
    #[serde(skip)]
    pub relative_error: f64,
}

impl Loss {
    /// Whether the weight cannot be stored in half precision.
    #[must_use]
    pub fn is_unfit(&self, half: Half) -> bool {
        self.overflows > 0 || self.relative_error > ROUNDOFFS * half.roundoff()
    }
}

impl Half {
    /// The least magnitude that rounds to infinity.
    fn overflow(self) -> f32 {
        match self {
            Half::F16 => 65520.0,
            Half::Bf16 => f32::from_bits(0x7f7f_8000),
        }
    }

    /// The least normal number.
    fn least_normal(self) -> f32 {
        match self {
            Half::F16 => 2f32.powi(-14),
            Half::Bf16 => 2f32.powi(-126),
        }
    }

    /// Half of the least number other than 0: the largest error below the normal numbers, and the
    /// largest magnitude that becomes 0.
    fn half_of_least(self) -> f32 {
        match self {
            Half::F16 => 2f32.powi(-25),
            Half::Bf16 => 2f32.powi(-134),
        }
    }
}

/// The losses of the float32 weights of which elements overflow or underflow, in their order.
///
/// # Errors
/// When a weight cannot be read.
pub(super) fn losses(graph: &Graph, half: Half) -> Result<Vec<(ValueId, Loss)>, PassError> {
    let weights: Vec<(ValueId, &Weight)> = graph
        .weights()
        .filter(|(_, _, weight)| weight.dtype() == DType::F32)
        .map(|(id, _, weight)| (id, weight))
        .collect();
    let one = |(id, weight): (ValueId, &Weight)| {
        let failed = |source| PassError::of_weight(graph, id, source);
        let loss = loss(&graph.value(id).name, weight, half).map_err(failed)?;
        Ok((loss.overflows > 0 || loss.underflows > 0 || loss.is_unfit(half)).then_some((id, loss)))
    };
    weights.into_par_iter().filter_map(|weight| one(weight).transpose()).collect()
}

fn loss(name: &str, weight: &Weight, half: Half) -> Result<Loss, WeightError> {
    let mut sums = Sums::default();
    measure(weight, half, &mut sums)?;
    let least = f64::from(half.half_of_least());
    let below = if sums.square == 0.0 { 0.0 } else { sums.subnormal as f64 * least * least / sums.square };
    // Squares of what is far below the normal numbers are 0 in float32.
    let vanishes = sums.max > 0.0 && sums.max < half.least_normal();
    let error = if vanishes { 1.0 } else { below.sqrt() + if sums.max > 0.0 { half.roundoff() } else { 0.0 } };
    Ok(Loss {
        name: name.to_owned(),
        max_abs: f64::from(sums.max),
        overflows: sums.overflows,
        underflows: sums.underflows,
        elements: weight.elements() as u64,
        relative_error: error,
    })
}

/// Adds up what counts of the elements of a weight, in any order.
fn measure(weight: &Weight, half: Half, sums: &mut Sums) -> Result<(), WeightError> {
    match weight.expr() {
        WeightExpr::Cast(of) if is_held(of.dtype(), half) => Ok(()),
        // Elements that padding appends saturate.
        expr if expr.moves_elements() => expr.children().iter().try_for_each(|child| measure(child, half, sums)),
        _ => weight.stream(&mut |bytes| {
            sums.add(bytes, half);
            Ok(())
        }),
    }
}

/// Whether no number of a type overflows or underflows in half precision, so that weights stored in it need not be
/// read.
fn is_held(stored: DType, half: Half) -> bool {
    // The least number of float16 is a normal one of bfloat16.
    stored.widens_to(half.dtype()) || (stored == DType::F16 && half == Half::Bf16)
}

/// Figures of the elements so far.
#[derive(Default)]
struct Sums {
    max: f32,
    square: f64,
    overflows: u64,
    underflows: u64,
    /// Below the normal numbers, 0 excepted.
    subnormal: u64,
}

/// As many elements are looked at together.
const LANES: usize = 16;

impl Sums {
    /// Adds the elements that are in some bytes.
    fn add(&mut self, bytes: &[u8], half: Half) {
        let (overflow, normal, least) = (half.overflow(), half.least_normal(), half.half_of_least());
        let (mut max, mut square) = ([0f32; LANES], [0f32; LANES]);
        let (mut over, mut under, mut small) = ([0u32; LANES], [0u32; LANES], [0u32; LANES]);
        let mut lanes = |at: usize, x: f32| {
            let x = x.abs();
            // Infinity is infinity in half precision too.
            let x = if x == f32::INFINITY { 0.0 } else { x };
            let overflows = x >= overflow || x.is_nan();
            max[at] = if x > max[at] { x } else { max[at] };
            square[at] += if overflows { 0.0 } else { x * x };
            over[at] += u32::from(overflows);
            under[at] += u32::from(x <= least) & u32::from(x > 0.0);
            small[at] += u32::from(x < normal) & u32::from(x > 0.0);
        };
        let (chunks, rest) = bytes.as_chunks::<4>().0.as_chunks::<LANES>();
        for chunk in chunks {
            for (at, x) in chunk.iter().enumerate() {
                lanes(at, f32::from_le_bytes(*x));
            }
        }
        rest.iter().enumerate().for_each(|(at, x)| lanes(at, f32::from_le_bytes(*x)));
        self.max = max.into_iter().fold(self.max, f32::max);
        self.square += square.into_iter().map(f64::from).sum::<f64>();
        let sum = |counts: [u32; LANES]| counts.into_iter().map(u64::from).sum::<u64>();
        self.overflows += sum(over);
        self.underflows += sum(under);
        self.subnormal += sum(small);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use planish_ir::WeightSource;
    use planish_ir::weight::StoredRange;

    use super::*;

    fn of(half: Half, values: &[f64]) -> Loss {
        let weight = Weight::numbers(DType::F32, vec![values.len()], values).unwrap();
        loss("w", &weight, half).unwrap()
    }

    #[test]
    fn what_rounds_to_infinity_or_zero_is_counted() {
        let loss = of(Half::F16, &[65519.0, -65520.0, 1e-8, 2f64.powi(-25), 2f64.powi(-24), 0.0, 1.0, f64::NAN]);
        assert_eq!((loss.overflows, loss.underflows, loss.elements), (2, 2, 8));
        assert!(loss.is_unfit(Half::F16));
        let infinite = of(Half::F16, &[1.0, f64::NEG_INFINITY, f64::INFINITY]);
        assert!(!infinite.is_unfit(Half::F16) && infinite.max_abs == 1.0, "{infinite:?}");
        let loss = of(Half::Bf16, &[65520.0, 1e-8, f64::from(f32::MIN), 1e-40]);
        assert_eq!((loss.overflows, loss.underflows), (1, 0));
        assert_eq!(loss.max_abs, f64::from(f32::MAX));
    }

    /// A few small elements among large ones are not a loss; a tensor of small ones is.
    #[test]
    fn underflow_counts_by_what_it_does_to_the_whole() {
        let mut values = vec![1e-9; 100];
        values[0] = 1.0;
        let loss = of(Half::F16, &values);
        assert_eq!(loss.underflows, 99);
        assert!(!loss.is_unfit(Half::F16), "{loss:?}");
        assert!(of(Half::F16, &[1e-6; 10]).is_unfit(Half::F16));
        assert!(of(Half::F16, &[1e-30; 10]).is_unfit(Half::F16));
        assert!(!of(Half::Bf16, &[1e-30; 10]).is_unfit(Half::Bf16));
        assert!(!of(Half::F16, &[0.0; 10]).is_unfit(Half::F16));
    }

    /// A file that fails to be read.
    #[derive(Debug)]
    struct Unread;

    impl WeightSource for Unread {
        fn name(&self) -> &str {
            "unread.bin"
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::UnexpectedEof.into())
        }

        fn file_path(&self) -> Option<&Path> {
            None
        }
    }

    /// Of weights that are stored in a type whose numbers the half type holds, nothing is read.
    #[test]
    fn what_is_stored_in_a_type_that_loses_nothing_is_not_read() {
        let stored = |dtype: DType| {
            let weight =
                Weight::stored(dtype, vec![4, 8], StoredRange { source: Arc::new(Unread), offset: 0 }).unwrap();
            let weight = weight.cast(DType::F32).unwrap();
            let turned = weight.transpose(&[1, 0]).unwrap().reshape(&[4, 8]).unwrap();
            Weight::concat(&[weight, turned.pad(&[9, 8], 0.0).unwrap()], 0).unwrap()
        };
        for (dtype, half, is_read) in [
            (DType::Bf16, Half::Bf16, false),
            (DType::F16, Half::F16, false),
            // The range of bfloat16 is larger; it only rounds.
            (DType::F16, Half::Bf16, false),
            (DType::Bf16, Half::F16, true),
            (DType::F32, Half::Bf16, true),
        ] {
            let loss = loss("w", &stored(dtype), half);
            assert_eq!(loss.is_err(), is_read, "{dtype} {half}: {loss:?}");
            assert!(loss.is_err() || !loss.unwrap().is_unfit(half));
        }
    }

    /// The bound holds for what conversion does.
    #[test]
    fn the_error_is_bounded() {
        for scale in [1.0, 1e-2, 1e-4, 1e-5, 3e-6] {
            let weight = Weight::uniform(DType::F64, vec![1000], 7).unwrap();
            let values: Vec<f64> = weight.read_numbers().unwrap().iter().map(|v| v * scale).collect();
            let weight = Weight::numbers(DType::F32, vec![1000], &values).unwrap();
            let (exact, rounded) =
                (weight.read_numbers().unwrap(), weight.cast(DType::F16).unwrap().read_numbers().unwrap());
            let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
            let error = norm(&mut exact.iter().zip(&rounded).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
            let bound = loss("w", &weight, Half::F16).unwrap().relative_error;
            assert!(error <= bound, "scale {scale}: {error} > {bound}");
        }
    }
}
