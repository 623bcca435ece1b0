//! Files of tensors by the names of inputs, alone or in a folder.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use planish_ir::DType;
use zip::ZipArchive;

use super::npy::{self, Rows};
use crate::inputs::tensor_file;
use crate::media::endings;

/// The most bytes of samples that are read into memory.
const MOST_BYTES: u64 = 4 << 30;

/// The endings of files of tensors.
const ENDINGS: [&str; 2] = ["npz", "safetensors"];

/// What an error says of a folder without them.
const NO_FILES: &str = "contains no .npz or .safetensors file, no picture and no recording";

/// A tensor as a file has it.
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Little-endian elements in row-major order.
    pub(super) bytes: Vec<u8>,
}

/// Files of tensors.
pub(super) struct TensorFiles {
    pub(super) files: Vec<PathBuf>,
    /// Whether a folder of them was named.
    pub(super) is_folder: bool,
}

/// Whether a path, by its ending or because it is a folder, names tensors and no texts.
pub fn is_tensors(path: &Path) -> bool {
    has_tensors(path) || path.is_dir()
}

fn has_tensors(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ENDINGS.iter().any(|own| ending == *own))
}

/// Whether a folder has files of tensors.
///
/// # Errors
/// When it cannot be read.
pub(super) fn has_any(folder: &Path) -> Result<bool> {
    let context = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(context)? {
        if has_tensors(&entry.with_context(context)?.path()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The files of a data set: the file that is named, or those of tensors in a folder in the order of their names.
///
/// # Errors
/// When a folder cannot be read, or has no such file.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let context = || format!("cannot read {}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(context)? {
        let file = entry.with_context(context)?.path();
        if has_tensors(&file) {
            files.push(file);
        }
    }
    if files.is_empty() {
        let [pictures, recordings] = endings();
        bail!("the folder {} {NO_FILES} ({pictures}, {recordings})", path.display());
    }
    files.sort_unstable();
    Ok(files)
}

impl TensorFiles {
    /// Opens a file or a folder, of this so many files at most, and looks at each of them.
    ///
    /// # Errors
    /// When one cannot be read, or is not what its ending says.
    pub(super) fn open(path: &Path, most: usize) -> Result<Self> {
        let mut files = files(path)?;
        files.truncate(most);
        files.iter().try_for_each(|file| check(file))?;
        Ok(Self { files, is_folder: path.is_dir() })
    }
}

fn is_npz(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "npz")
}

/// Checks that a file is of the kind that its ending says, and has a tensor.
fn check(path: &Path) -> Result<()> {
    let count = if is_npz(path) { archive(path)?.len() } else { tensor_file::open(path)?.tensors().len() };
    if count == 0 {
        bail!("{} contains no array", path.display());
    }
    Ok(())
}

fn archive(path: &Path) -> Result<ZipArchive<BufReader<fs::File>>> {
    let (file, _) = planish_files::open(path)?;
    ZipArchive::new(BufReader::new(file))
        .with_context(|| format!("{} is not an .npz file, which is a zip archive", path.display()))
}

/// The tensors of a file, so many slices along the first axis of each at most.
///
/// # Errors
/// When it cannot be read, has a type that is not supported, or has more than is read into memory.
pub(super) fn read(path: &Path, most: usize) -> Result<Vec<Stored>> {
    if is_npz(path) {
        return arrays(path, most);
    }
    let stored = |(name, tensor): (String, Tensor)| {
        let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape().to_vec(), tensor.to_bytes());
        Stored { name, dtype, shape, bytes }
    };
    Ok(tensor_file::read_rows(path, most, MOST_BYTES)?.into_iter().map(stored).collect())
}

/// All tensors of a file, as they are.
///
/// # Errors
/// As [`read`].
pub(super) fn read_whole(path: &Path) -> Result<Vec<(String, Tensor)>> {
    if !is_npz(path) {
        return tensor_file::read_rows(path, usize::MAX, MOST_BYTES);
    }
    let tensor = |Stored { name, dtype, shape, bytes }: Stored| {
        let tensor = Tensor::from_bytes(dtype, shape, &bytes);
        let tensor = tensor.with_context(|| format!("`{name}` of {} is not a tensor", path.display()))?;
        Ok((name, tensor))
    };
    arrays(path, usize::MAX)?.into_iter().map(tensor).collect()
}

/// The tensors of a file that has the inputs of one run.
///
/// # Errors
/// When it cannot be read, has a type that graphs do not have, or has more than is read into memory.
pub fn read_inputs(path: &Path) -> Result<Vec<(String, Tensor)>> {
    if is_npz(path) { read_whole(path) } else { tensor_file::read(path) }
}

/// The arrays that `numpy.savez` and `savez_compressed` wrote.
fn arrays(path: &Path, most: usize) -> Result<Vec<Stored>> {
    let mut archive = archive(path)?;
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
        arrays.push(Stored { name: input.to_owned(), dtype, shape, bytes });
    }
    Ok(arrays)
}
