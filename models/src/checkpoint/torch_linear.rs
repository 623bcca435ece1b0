//! The weight and the bias of one `torch.nn.Linear` in a file of `torch.save`, which is a zip archive: a pickle that describes
//! the tensors, and their elements, each of them uncompressed in an entry of its own.
//!
//! The pickle is not run, nor understood: of a linear layer with a bias, the sizes of the two entries say all but the element
//! type, and the pickle contains the name of that.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use zip::{CompressionMethod, ZipArchive};

use crate::ModelError;
use crate::checkpoint::safetensors::{StoredTensor, WeightFile};

/// The ending of such files.
pub(crate) const ENDING: &str = "pt";

/// The names of the types of elements in a pickle, their names in safetensors files, and their sizes in bytes.
const TYPES: &[(&str, &str, u64)] =
    &[("FloatStorage", "F32", 4), ("BFloat16Storage", "BF16", 2), ("HalfStorage", "F16", 2)];

/// The most that is read of a pickle; that of a linear layer has some hundred bytes.
const MOST_OF_PICKLE: u64 = 1 << 16;

/// Opens such a file; its tensors are `weight`, [out, in], and `bias`, [out].
///
/// # Errors
/// When it cannot be read, or is not a linear layer with a bias.
pub(crate) fn open(path: &Path) -> Result<WeightFile, ModelError> {
    let (file, bytes) = planish_files::open(path)?;
    let tensors = tensors(&file, bytes).map_err(|why| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let message = format!(
            "{why}: write {name}.safetensors beside it, once where torch is installed: \
             safetensors.torch.save_file(torch.load(\"{name}.pt\", weights_only=True), \"{name}.safetensors\")"
        );
        ModelError::File { path: path.to_owned(), message }
    })?;
    Ok(WeightFile::with_tensors(path, file, bytes, tensors))
}

fn tensors(file: &std::fs::File, bytes: u64) -> Result<BTreeMap<String, StoredTensor>, String> {
    let copy = file.try_clone().map_err(|error| error.to_string())?;
    let mut archive =
        ZipArchive::new(copy).map_err(|_| "this is not a zip archive, as torch.save writes".to_owned())?;
    let (mut pickle, mut storages) = (Vec::new(), Vec::new());
    for at in 0..archive.len() {
        let entry = archive.by_index(at).map_err(|error| error.to_string())?;
        let name = entry.name().map_err(|error| error.to_string())?.into_owned();
        if name.ends_with("/byteorder") {
            let mut order = String::new();
            entry.take(MOST_OF_PICKLE).read_to_string(&mut order).map_err(|error| error.to_string())?;
            if order.trim() != "little" {
                return Err(format!("the order of its bytes is `{}`", order.trim().escape_default()));
            }
        } else if name.ends_with("/data.pkl") && pickle.is_empty() {
            entry.take(MOST_OF_PICKLE).read_to_end(&mut pickle).map_err(|error| error.to_string())?;
        } else if name.ends_with("/data/0") || name.ends_with("/data/1") {
            if entry.compression() != CompressionMethod::Stored {
                return Err(format!("the entry {name} is compressed"));
            }
            let offset = entry.data_start().ok_or_else(|| format!("the entry {name} has no place"))?;
            if offset.checked_add(entry.size()).is_none_or(|end| end > bytes) {
                return Err(format!("the entry {name} ends after the file"));
            }
            storages.push((offset, entry.size()));
        }
    }
    let has = |name: &str| pickle.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    let types: Vec<_> = TYPES.iter().filter(|(name, ..)| has(name)).collect();
    let ([(_, dtype, size)], [first, second]) = (types.as_slice(), storages.as_slice()) else {
        return Err("this does not hold two tensors of one type".to_owned());
    };
    let (weight, bias) = if first.1 >= second.1 { (first, second) } else { (second, first) };
    let outs = bias.1 / size;
    let is_linear = outs > 0 && bias.1.is_multiple_of(*size) && weight.1.is_multiple_of(bias.1);
    let shape = |sizes: &[u64]| sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<usize>>>();
    let shapes = [shape(&[outs, weight.1 / bias.1.max(1)]), shape(&[outs])];
    let [Some(of_weight), Some(of_bias)] = shapes else { return Err("its tensors are too large".to_owned()) };
    if !is_linear {
        return Err("its tensors are not the weight and the bias of a linear layer".to_owned());
    }
    let stored = |shape: Vec<usize>, (offset, bytes): (u64, u64)| StoredTensor {
        dtype: (*dtype).to_owned(),
        shape,
        offset,
        bytes,
    };
    Ok(BTreeMap::from([("weight".to_owned(), stored(of_weight, *weight)), ("bias".to_owned(), stored(of_bias, *bias))]))
}
