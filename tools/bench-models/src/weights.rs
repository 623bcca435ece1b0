//! Random tensors, and the safetensors file they go into.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use clap::ValueEnum;
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensorError, View, serialize_to_file};

/// Standard deviation of every tensor: the `initializer_range` of all configurations.
const DEVIATION: f32 = 0.02;

/// The type that weights are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StorageType {
    F32,
    F16,
    Bf16,
}

impl StorageType {
    /// As a `dtype` key of config.json spells it.
    pub(crate) fn torch_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    fn safetensors(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Bytes of an element.
    fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A tensor whose values follow from its name alone.
#[derive(Debug)]
pub(crate) struct Tensor {
    name: String,
    shape: Vec<usize>,
    mean: f32,
}

impl Tensor {
    pub(crate) fn around_zero(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), shape: shape.into(), mean: 0.0 }
    }

    pub(crate) fn around_one(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Self { mean: 1.0, ..Self::around_zero(name, shape) }
    }

    /// Weight and bias of a layer norm.
    pub(crate) fn layer_norm(name: &str, size: usize) -> [Self; 2] {
        [Self::around_one(format!("{name}.weight"), [size]), Self::around_zero(format!("{name}.bias"), [size])]
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn values(&self) -> impl Iterator<Item = f32> {
        let mut random = SplitMix64(fnv1a(self.name.as_bytes()));
        (0..self.elements()).map(move |_| self.mean + DEVIATION * random.bell())
    }
}

/// Writes `tensors` to `path` in the order that the safetensors library gives them, one at a time.
/// The file appears under its name when it is whole.
pub(crate) fn write(tensors: &[Tensor], dtype: StorageType, path: &Path) -> Result<(), SafeTensorError> {
    let views = tensors.iter().map(|tensor| (&tensor.name, Stored { tensor, dtype }));
    // transformers refuses a file that does not name its framework.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize_to_file(views, Some(metadata), path)
}

/// A tensor as it lies in the file; its bytes are made when they are written.
struct Stored<'a> {
    tensor: &'a Tensor,
    dtype: StorageType,
}

impl View for Stored<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype.safetensors()
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(self.data_len());
        for value in self.tensor.values() {
            match self.dtype {
                StorageType::F32 => bytes.extend_from_slice(&value.to_le_bytes()),
                StorageType::F16 => bytes.extend_from_slice(&f16::from_f32(value).to_le_bytes()),
                StorageType::Bf16 => bytes.extend_from_slice(&bf16::from_f32(value).to_le_bytes()),
            }
        }
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.tensor.elements() * self.dtype.size()
    }
}

/// The SplitMix64 generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Close to a standard normal value: the sum of four uniform ones, scaled to mean 0 and deviation 1.
    /// Integer sums, unlike logarithms and cosines, are the same on every machine. In [-3.47, 3.47].
    fn bell(&mut self) -> f32 {
        const MEAN: f32 = 2.0 * 65535.0;
        const DEVIATION: f32 = 37837.227; // sqrt(4 * (65536^2 - 1) / 12)
        let bits = self.next();
        let sum: u32 = [0, 16, 32, 48].iter().map(|shift| ((bits >> shift) & 0xffff) as u32).sum();
        (sum as f32 - MEAN) / DEVIATION
    }
}

/// The 64-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    #[test]
    fn values_have_the_stated_mean_and_deviation() {
        for (tensor, mean) in [(Tensor::around_zero("a", [100_000]), 0.0), (Tensor::around_one("b", [100_000]), 1.0)] {
            let values: Vec<f64> = tensor.values().map(f64::from).collect();
            let count = values.len() as f64;
            let found = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|value| (value - found).powi(2)).sum::<f64>() / count;
            assert!((found - mean).abs() < 3e-4, "mean {found}");
            assert!((variance.sqrt() - 0.02).abs() < 2e-4, "deviation {}", variance.sqrt());
        }
    }

    #[test]
    fn names_decide_values() {
        let values = |name: &str| Tensor::around_zero(name, [64]).values().collect::<Vec<f32>>();
        assert_eq!(values("a"), values("a"));
        assert_ne!(values("a"), values("b"));
    }

    #[test]
    fn a_file_reads_back_in_every_storage_type() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = [Tensor::around_zero("linear.weight", [3, 5]), Tensor::around_one("norm.weight", [5])];
        for dtype in StorageType::value_variants() {
            let path = folder.path().join("model.safetensors");
            write(&tensors, *dtype, &path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            for tensor in &tensors {
                let stored = file.tensor(&tensor.name).unwrap();
                assert_eq!((stored.dtype(), stored.shape()), (dtype.safetensors(), &tensor.shape[..]));
                assert_eq!(stored.data(), Stored { tensor, dtype: *dtype }.data().as_ref());
            }
        }
    }
}
