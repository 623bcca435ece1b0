//! Models in several GGUF files, as `llama-gguf-split` and gguf-py write them: `NAME-00001-of-00003.gguf` and so on. The first one
//! has the metadata of the model, and each says which part it is.

use std::path::Path;

use super::header;
use super::metadata::{Metadata, Value};
use crate::ModelError;
use crate::checkpoint::safetensors::WeightFile;

/// The digits of the numbers in names.
const DIGITS: usize = 5;

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

/// The name of a model by that of a part without its ending, the number of the part from 1 on, and the number of all; `None` where
/// the name is not one of a part.
pub(crate) fn part(stem: &str) -> Option<(&str, usize, usize)> {
    let number = |digits: &str| {
        let is_number = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, own) = rest.rsplit_once('-')?;
    Some((name, number(own)?, number(count)?))
}

/// Opens the parts of a model in their order, by any of them, and the metadata of the first. A model in one file is one part.
///
/// # Errors
/// When a part is missing, cannot be read, or is one of another model.
pub(super) fn open(path: &Path) -> Result<(Vec<WeightFile>, Metadata), ModelError> {
    let (file, metadata) = header::open(path)?;
    let bad = |path: &Path, message| ModelError::File { path: path.to_owned(), message };
    let count = match metadata.get(COUNT) {
        None | Some(Value::Integer(0 | 1)) => return Ok((vec![file], metadata)),
        Some(Value::Integer(count)) => *count,
        Some(other) => return Err(bad(path, format!("`{COUNT}` is {other}, expected the number of parts"))),
    };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((name, _, parts)) =
        part(&stem).filter(|(_, own, parts)| (1..=*parts).contains(own) && *parts as i128 == count)
    else {
        return Err(bad(
            path,
            format!(
                "this is one of {count} parts of a model, which are found by names such as NAME-00001-of-{count:05}.gguf: give the parts \
                 these names, or merge them with `llama-gguf-split --merge`"
            ),
        ));
    };
    let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (mut files, mut first, mut tensors) = (Vec::new(), None::<Metadata>, 0);
    for number in 1..=parts {
        let file_name = format!("{name}-{number:05}-of-{parts:05}.{ending}");
        let own = folder.join(&file_name);
        if !own.exists() {
            return Err(bad(
                path,
                format!("part {number} of {parts} is missing: download {file_name} into {}", folder.display()),
            ));
        }
        let (file, metadata) = header::open(&own)?;
        for (key, expected) in [(COUNT, count), (NUMBER, number as i128 - 1)] {
            if metadata.get(key) != Some(&Value::Integer(expected)) {
                let found = metadata.get(key).map_or("missing".to_owned(), |value| format!("{value}"));
                return Err(bad(
                    &own,
                    format!("`{key}` is {found}, expected {expected}: this is a part of another model"),
                ));
            }
        }
        let architecture = "general.architecture";
        let differs = |of: &Metadata| metadata.get(architecture).is_some_and(|own| of.get(architecture) != Some(own));
        if first.as_ref().is_some_and(differs) {
            return Err(bad(&own, format!("`{architecture}` is not that of part 1: this is a part of another model")));
        }
        tensors += file.tensors().len();
        files.push(file);
        first.get_or_insert(metadata);
    }
    let metadata = first.unwrap_or(metadata);
    match metadata.get(TENSORS) {
        Some(Value::Integer(all)) if *all != tensors as i128 => Err(bad(
            path,
            format!(
                "the {parts} parts have {tensors} tensors, and `{TENSORS}` is {all}: a part is of another model, or is cut"
            ),
        )),
        _ => Ok((files, metadata)),
    }
}
