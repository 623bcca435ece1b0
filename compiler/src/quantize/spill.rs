//! Tensors that wait on disk until the export writes them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use planish_ir::weight::{StoredRange, WeightSource};
use planish_ir::{DType, Weight};

/// A file without a name in the folder of temporary files (`TMPDIR`). The system frees it when no weight refers to it.
#[derive(Debug, Default)]
pub(super) struct Spill {
    /// Made for the first weight.
    file: Option<Arc<SpillFile>>,
    end: u64,
}

#[derive(Debug)]
struct SpillFile(File);

impl WeightSource for SpillFile {
    fn name(&self) -> &str {
        "a temporary file"
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn file_path(&self) -> Option<&Path> {
        None
    }
}

impl Spill {
    /// Moves the bytes of weights from memory to the file. A weight that is stored in a file already stays as it is.
    ///
    /// # Errors
    /// When a weight cannot be read, or the file cannot be made or written.
    pub(super) fn take<'w>(&mut self, mut weights: impl Iterator<Item = &'w mut Weight>) -> Result<()> {
        weights.try_for_each(|weight| self.take_one(weight))
    }

    fn take_one(&mut self, weight: &mut Weight) -> Result<()> {
        if weight.as_stored().is_some() || weight.dtype() == DType::String {
            return Ok(());
        }
        let spilled = match &self.file {
            Some(file) => file,
            None => {
                let file = tempfile::tempfile().with_context(|| failed("make a temporary file"))?;
                self.file.insert(Arc::new(SpillFile(file)))
            }
        };
        let mut file = &spilled.0;
        let written = weight.stream(&mut |bytes| file.write_all(bytes));
        written.with_context(|| failed(&format!("write {} bytes to a temporary file", weight.bytes())))?;
        let range = StoredRange { source: spilled.clone(), offset: self.end };
        self.end += weight.bytes();
        if let Some(stored) = Weight::stored(weight.dtype(), weight.shape().to_vec(), range) {
            *weight = stored;
        }
        Ok(())
    }
}

fn failed(what: &str) -> String {
    format!(
        "cannot {what} in {}; set TMPDIR to a folder with room for the codes of the model",
        std::env::temp_dir().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_back_from_the_file() {
        let mut spill = Spill::default();
        let codes: Vec<f64> = (0..15).map(|code| f64::from(code - 8)).collect();
        let all = [
            Weight::numbers(DType::I4, vec![3, 5], &codes).unwrap(),
            Weight::uniform(DType::F32, vec![7, 11], 1).unwrap(),
            Weight::numbers(DType::I8, vec![0], &[]).unwrap(),
            Weight::uniform(DType::F64, vec![400, 200], 2).unwrap(),
        ];
        let kept = all.clone().map(|mut weight| {
            spill.take([&mut weight].into_iter()).unwrap();
            weight
        });
        drop(spill);
        for (weight, kept) in all.iter().zip(&kept) {
            assert!(kept.as_stored().is_some());
            assert_eq!((kept.dtype(), kept.shape()), (weight.dtype(), weight.shape()));
            assert_eq!(kept.read().unwrap(), weight.read().unwrap());
        }
    }

    #[test]
    fn a_weight_of_a_file_stays_there() {
        let mut weight = Weight::uniform(DType::F32, vec![4], 1).unwrap();
        Spill::default().take([&mut weight].into_iter()).unwrap();
        let stored = weight.clone();
        Spill::default().take([&mut weight].into_iter()).unwrap();
        assert_eq!(weight, stored);
    }
}
