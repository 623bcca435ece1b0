//! Tensors by the names of inputs, samples along the first axis of each.

use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use planish_ir::DType;
use zip::ZipArchive;

use super::Split;
use super::npy::{self, Rows};
use crate::inputs::tensor_file;

/// The most bytes of samples that are read into memory.
const MOST_BYTES: u64 = 4 << 30;

/// The samples of each input.
pub(super) struct Arrays {
    arrays: Vec<Array>,
    samples: usize,
}

struct Array {
    name: String,
    dtype: DType,
    /// The sizes of a sample.
    sizes: Vec<usize>,
    /// All samples, one behind the other.
    bytes: Vec<u8>,
}

impl Arrays {
    /// The arrays that `numpy.savez` and `savez_compressed` wrote, so many samples at most.
    pub(super) fn npz(path: &Path, most: usize) -> Result<Self> {
        let (file, _) = planish_files::open(path)?;
        let mut archive = ZipArchive::new(BufReader::new(file))
            .with_context(|| format!("{} is not an .npz file, which is a zip archive", path.display()))?;
        let mut arrays = Vec::with_capacity(archive.len());
        let mut left = MOST_BYTES;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index).with_context(|| format!("cannot read {}", path.display()))?;
            let name = entry.name().map(|name| name.into_owned()).unwrap_or_default();
            let Some(input) = name.strip_suffix(".npy") else {
                bail!("{} contains `{name}`, which is not an .npy array", path.display());
            };
            let context = || format!("cannot read the array `{input}` of {}", path.display());
            let Rows { dtype, shape, bytes } = npy::read(&mut entry, most, left).with_context(context)?;
            left = left.saturating_sub(bytes.len() as u64);
            arrays.push((input.to_owned(), dtype, shape, bytes));
        }
        Self::new(path, arrays)
    }

    /// The tensors of a safetensors file, so many samples at most.
    pub(super) fn safetensors(path: &Path, most: usize) -> Result<Self> {
        let array = |(name, tensor): (String, Tensor)| {
            let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape().to_vec(), tensor.to_bytes());
            (name, dtype, shape, bytes)
        };
        Self::new(path, tensor_file::read_rows(path, most, MOST_BYTES)?.into_iter().map(array).collect())
    }

    fn new(path: &Path, given: Vec<(String, DType, Vec<usize>, Vec<u8>)>) -> Result<Self> {
        let path = path.display();
        let mut arrays: Vec<Array> = Vec::with_capacity(given.len());
        let mut samples = None;
        for (name, dtype, shape, bytes) in given {
            let Some((&rows, sizes)) = shape.split_first() else {
                bail!("`{name}` of {path} has no axis: the first one counts samples");
            };
            let known = *samples.get_or_insert(rows);
            if known != rows {
                let first = arrays.first().map_or("", |array| array.name.as_str());
                bail!(
                    "`{first}` of {path} has {known} samples and `{name}` {rows}: the first axis of each counts them"
                );
            }
            arrays.push(Array { name, dtype, sizes: sizes.to_vec(), bytes });
        }
        match samples {
            None => bail!("{path} contains no array"),
            Some(0) => bail!("{path} contains no samples: the first axis of its arrays is 0"),
            Some(samples) => Ok(Self { arrays, samples }),
        }
    }

    /// The samples of a split.
    pub(super) fn of(mut self, split: Split) -> Self {
        if split.is_all() {
            return self;
        }
        let kept: Vec<usize> = (0..self.samples).filter(|sample| split.has(*sample)).collect();
        for array in &mut self.arrays {
            let size = array.bytes.len() / self.samples;
            array.bytes = kept.iter().flat_map(|at| &array.bytes[at * size..(at + 1) * size]).copied().collect();
        }
        self.samples = kept.len();
        self
    }

    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// Some of the samples.
    pub(super) fn rows(&self, samples: Range<usize>) -> Result<Vec<(String, Tensor)>> {
        let tensor = |array: &Array| {
            let size = array.bytes.len() / self.samples;
            let shape = [samples.len()].into_iter().chain(array.sizes.iter().copied()).collect();
            let tensor = Tensor::from_bytes(array.dtype, shape, &array.bytes[samples.start * size..samples.end * size]);
            Ok((array.name.clone(), tensor.with_context(|| format!("`{}` is not a tensor", array.name))?))
        };
        self.arrays.iter().map(tensor).collect()
    }
}
