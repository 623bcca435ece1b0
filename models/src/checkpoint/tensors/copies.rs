//! Tensors that are stored twice.

use std::io;
use std::sync::Arc;

use planish_ir::WeightSource;

use super::Tensors;
use crate::ModelError;

/// Bytes compared at once.
const COMPARE_BYTES: usize = 1 << 20;

impl Tensors<'_> {
    /// Whether `copy` is stored and holds other bytes than `original`. Both count as used.
    pub(crate) fn differs(&mut self, original: &str, copy: &str) -> Result<bool, ModelError> {
        let (Some(original), Some(copy)) = (self.find(original), self.find(copy)) else { return Ok(false) };
        let equal = match (self.checkpoint.tensor(&original), self.checkpoint.tensor(&copy)) {
            (Some((file_a, a)), Some((file_b, b))) if a.dtype == b.dtype && a.shape == b.shape => {
                same_bytes((file_a, a.offset), (file_b, b.offset), a.bytes)
                    .map_err(|source| ModelError::Read { path: file_b.path().to_owned(), source })?
            }
            _ => false,
        };
        self.used.extend([original, copy]);
        Ok(!equal)
    }

    /// An error about `copy`, which should be the same as `original`.
    pub(crate) fn contradiction(&self, copy: &str, original: &str, advice: &str) -> ModelError {
        let stored = |name: &str| self.find(name).unwrap_or_else(|| name.to_owned());
        let name = stored(copy);
        let path = self.checkpoint.tensor(&name).map_or(self.checkpoint.weights_path(), |(file, _)| file.path());
        let message = format!("it differs from `{}`, which should be the same: {advice}", stored(original));
        ModelError::Tensor { path: path.to_owned(), name, message }
    }
}

type Place<'a> = (&'a Arc<crate::WeightFile>, u64);

fn same_bytes(a: Place<'_>, b: Place<'_>, bytes: u64) -> io::Result<bool> {
    let (mut x, mut y) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut done = 0;
    while done < bytes {
        let length = usize::try_from(bytes - done).map_or(COMPARE_BYTES, |left| left.min(COMPARE_BYTES));
        a.0.read_at(a.1 + done, &mut x[..length])?;
        b.0.read_at(b.1 + done, &mut y[..length])?;
        if x[..length] != y[..length] {
            return Ok(false);
        }
        done += length as u64;
    }
    Ok(true)
}
