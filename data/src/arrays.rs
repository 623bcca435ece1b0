//! Samples of tensors along their first axes.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::split::Split;
use planish_eval::Tensor;
use planish_ir::DType;

use super::tensors::Stored;

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
    /// All samples, one after the other.
    bytes: Vec<u8>,
}

impl Arrays {
    /// The tensors of a file; `expected` says what the model takes.
    ///
    /// # Errors
    /// When they have different numbers of samples, or none.
    pub(super) fn new(path: &Path, given: Vec<Stored>, expected: &dyn Fn() -> String) -> Result<Self> {
        let path = path.display();
        let mut arrays: Vec<Array> = Vec::with_capacity(given.len());
        let mut samples = None;
        for Stored { name, dtype, shape, bytes } in given {
            let Some((&rows, sizes)) = shape.split_first() else {
                bail!("`{name}` of {path} has no axis: the first one counts samples; {}", expected());
            };
            let known = *samples.get_or_insert(rows);
            if known != rows {
                let first = arrays.first().map_or("", |array| array.name.as_str());
                bail!(
                    "`{first}` of {path} has {known} samples and `{name}` {rows}: the first axis of each counts them; {}",
                    expected()
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
