//! Tensors where a runtime keeps them.

use planish_eval::{Data, Tensor};
use planish_ir::DType;

use crate::cuda::DeviceTensor as CudaTensor;
use crate::ort::{OrtCache, OrtValue};
#[cfg(feature = "trtx")]
use crate::tensorrt::DeviceTensor;

/// A tensor in the memory of the runtime that gave it, or one of ours on its way there.
///
/// What one run gives, another run of the same runtime takes without a copy: see
/// [`Session::run_values`](crate::Session::run_values).
pub struct RuntimeValue(pub(crate) Kept);

/// The best of many scores, and what makes probabilities of them.
#[derive(Clone, Debug, PartialEq)]
pub struct BestScores {
    /// Indices and scores, the best first; of equals the lower index first.
    pub best: Vec<(usize, f32)>,
    /// The logarithm of the sum of the exponentials of all scores, the others too: NaN where a score is NaN or positive
    /// infinity, 0 where all are negative infinity.
    pub log_sum: f64,
}

/// Where the elements are.
pub(crate) enum Kept {
    Tensor(Tensor),
    Ort(OrtValue),
    OrtCache(OrtCache),
    Cuda(CudaTensor),
    #[cfg(feature = "trtx")]
    Device(DeviceTensor),
}

impl From<Tensor> for RuntimeValue {
    fn from(tensor: Tensor) -> Self {
        Self(Kept::Tensor(tensor))
    }
}

impl RuntimeValue {
    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match &self.0 {
            Kept::Tensor(tensor) => tensor.dtype(),
            Kept::Ort(value) => value.dtype(),
            Kept::OrtCache(_) => DType::F32,
            Kept::Cuda(value) => value.dtype(),
            #[cfg(feature = "trtx")]
            Kept::Device(value) => value.dtype(),
        }
    }

    /// The sizes, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        match &self.0 {
            Kept::Tensor(tensor) => tensor.shape(),
            Kept::Ort(value) => value.shape(),
            Kept::OrtCache(value) => value.shape(),
            Kept::Cuda(value) => value.shape(),
            #[cfg(feature = "trtx")]
            Kept::Device(value) => value.shape(),
        }
    }

    /// The elements, in row-major order, if they are f32.
    #[must_use]
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.0 {
            Kept::Tensor(tensor) => tensor.as_f32(),
            Kept::Ort(value) => value.elements(),
            Kept::OrtCache(_) | Kept::Cuda(_) => None,
            #[cfg(feature = "trtx")]
            Kept::Device(_) => None,
        }
    }

    /// The tensor, if it is one of ours.
    pub(crate) fn as_tensor(&self) -> Option<&Tensor> {
        match &self.0 {
            Kept::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A copy as a tensor; `None` where the runtime's memory cannot be read from here.
    #[must_use]
    pub fn to_tensor(&self) -> Option<Tensor> {
        match &self.0 {
            Kept::Tensor(tensor) => Some(tensor.clone()),
            Kept::Ort(value) => value.to_tensor(),
            Kept::OrtCache(value) => value.to_tensor(),
            Kept::Cuda(value) => value.to_tensor().ok(),
            #[cfg(feature = "trtx")]
            Kept::Device(value) => value.to_tensor(),
        }
    }

    /// Whether the runtime finds the best of scores where they are, with [`best`](Self::best).
    #[must_use]
    pub fn finds_best(&self) -> bool {
        matches!(&self.0, Kept::Cuda(_))
    }

    /// The `k` best of the first `scored` scores of the last column of each row of [rows, columns, scores], found in the
    /// runtime's memory, so that only they come to the host; fewer where there are fewer. `None` where the runtime does
    /// not find them there: the elements can be read instead.
    ///
    /// # Errors
    /// When the device fails.
    pub fn best(&self, scored: usize, k: usize) -> Result<Option<Vec<BestScores>>, String> {
        match &self.0 {
            Kept::Cuda(value) => value.best(scored, k),
            _ => Ok(None),
        }
    }

    /// Some of the outermost slices, in this order and each as often as it is named, in the same
    /// runtime's memory; `None` where there is no such slice.
    #[must_use]
    pub fn take_rows(&self, rows: &[usize]) -> Option<Self> {
        match &self.0 {
            Kept::Tensor(tensor) => {
                let (count, sizes) = tensor.shape().split_first()?;
                let taken = take(tensor.data(), rows, *count)?;
                let shape = [rows.len()].into_iter().chain(sizes.iter().copied()).collect();
                Tensor::new(shape, taken).map(Self::from)
            }
            Kept::Ort(value) => value.take_rows(rows).map(|value| Self(Kept::Ort(value))),
            Kept::OrtCache(value) => value.take_rows(rows).map(|value| Self(Kept::OrtCache(value))),
            Kept::Cuda(value) => value.take_rows(rows).map(|value| Self(Kept::Cuda(value))),
            #[cfg(feature = "trtx")]
            Kept::Device(value) => value.take_rows(rows).map(|value| Self(Kept::Device(value))),
        }
    }

    /// Keys or values, [batch, heads, keys, size], with only the first keys, in the same runtime's memory. `None` where there
    /// are fewer, and where the runtime's memory holds no shorter ones.
    #[must_use]
    pub fn first_keys(self, keys: usize) -> Option<Self> {
        let &[_, _, all, _] = self.shape() else { return None };
        if keys >= all {
            return (keys == all).then_some(self);
        }
        match self.0 {
            Kept::Tensor(tensor) => {
                let &[batch, heads, _, size] = tensor.shape() else { return None };
                let kept = shortened(tensor.data(), all * size, keys * size);
                Tensor::new(vec![batch, heads, keys, size], kept).map(Self::from)
            }
            Kept::Ort(value) => value.first_keys(keys).map(|value| Self(Kept::Ort(value))),
            Kept::OrtCache(value) => Some(Self(Kept::OrtCache(value.first_keys(keys)))),
            Kept::Cuda(value) => value.first_keys(keys).map(|value| Self(Kept::Cuda(value))),
            #[cfg(feature = "trtx")]
            Kept::Device(_) => None,
        }
    }
}

fn shortened(data: &Data, size: usize, kept: usize) -> Data {
    macro_rules! kept {
        ($($variant:ident),*) => {
            match data {
                $(Data::$variant(all) => beginnings(all, size, kept).into(),)*
            }
        };
    }
    kept!(Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64)
}

/// The first elements of slices of equal length, one after the other.
pub(crate) fn beginnings<T: Copy>(all: &[T], size: usize, kept: usize) -> Vec<T> {
    let slices = all.chunks(size.max(1));
    let mut taken = Vec::with_capacity(slices.len() * kept);
    slices.for_each(|slice| taken.extend_from_slice(&slice[..kept]));
    taken
}

fn take(data: &Data, rows: &[usize], count: usize) -> Option<Data> {
    macro_rules! taken {
        ($($variant:ident),*) => {
            match data {
                $(Data::$variant(all) => slices(all, rows, count)?.into(),)*
            }
        };
    }
    Some(taken!(Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64))
}

/// Some of `count` slices of equal length, one after the other.
pub(crate) fn slices<T: Copy>(all: &[T], rows: &[usize], count: usize) -> Option<Vec<T>> {
    let size = all.len().checked_div(count)?;
    if rows.iter().any(|row| *row >= count) {
        return None;
    }
    let mut taken = Vec::with_capacity(size * rows.len());
    for row in rows {
        taken.extend_from_slice(&all[row * size..][..size]);
    }
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_in_order_and_repeated() {
        let value = RuntimeValue::from(Tensor::new(vec![3, 2], vec![0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap());
        let taken = value.take_rows(&[2, 0, 2]).unwrap();
        assert_eq!((taken.shape(), taken.dtype()), (&[3, 2][..], DType::F32));
        assert_eq!(taken.as_f32(), Some(&[4.0, 5.0, 0.0, 1.0, 4.0, 5.0][..]));
        assert!(value.take_rows(&[3]).is_none());
        let empty = RuntimeValue::from(Tensor::zeros(DType::F32, vec![2, 0, 4]).unwrap());
        assert_eq!(empty.take_rows(&[1, 1, 0]).unwrap().shape(), [3, 0, 4]);
    }

    #[test]
    fn first_keys_are_those_of_each_head() {
        let value = || RuntimeValue::from(Tensor::new(vec![1, 2, 3, 1], vec![0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap());
        let kept = value().first_keys(2).unwrap();
        assert_eq!((kept.shape(), kept.as_f32()), (&[1, 2, 2, 1][..], Some(&[0.0, 1.0, 3.0, 4.0][..])));
        assert_eq!(value().first_keys(3).unwrap().as_f32(), value().as_f32());
        assert_eq!(value().first_keys(0).unwrap().shape(), [1, 2, 0, 1]);
        assert!(value().first_keys(4).is_none());
    }
}
