//! A data set of pictures or recordings.

use std::path::Path;

use anyhow::{Result, bail};
use planish_artifact::split::Split;

use super::{Medium, PictureFiles};
use crate::{Content, DataOptions, Dataset, IdField, tensors, too_few};

/// Refuses options of texts for pictures and recordings.
///
/// # Errors
/// When one is given.
pub(crate) fn no_texts(path: &Path, medium: Medium, options: &DataOptions) -> Result<()> {
    let given = [
        (options.max_length.is_some(), "--max-length is"),
        (options.tokens.is_some(), "--tokens is"),
        (options.unit.is_some(), "--lines and --documents are"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => bail!("{option} for texts; {} has {}", path.display(), medium.plural()),
        None => Ok(()),
    }
}

impl Dataset {
    /// Pictures or recordings of a path.
    pub(crate) fn of_pictures(path: &Path, pictures: PictureFiles, options: &DataOptions) -> Result<Self> {
        let (shown, medium) = (path.display(), pictures.medium);
        let what = medium.plural();
        if path.is_dir() && tensors::has_any(path)? {
            bail!("{shown} has {what} and files of tensors; give a folder of one of both");
        }
        let named = [
            (options.field.is_some(), options.names.field.unwrap_or("the name of a text"), "files of records"),
            (matches!(options.id, Some(IdField::Named(_))), "--id", "files of records"),
            (
                options.label.is_some(),
                "--label",
                "files of records, and the labels of pictures and recordings are the names of their folders",
            ),
        ];
        if let Some((_, option, data)) = named.into_iter().find(|(is_given, ..)| *is_given) {
            bail!("{option} is for {data}; {shown} has {what}");
        }
        no_texts(path, medium, options)?;
        if !options.split.is_all() && Split::HeldOut.is_empty_of(pictures.files.len()) {
            bail!(too_few(path));
        }
        Ok(Self { path: path.to_owned(), split: options.split, content: Content::Pictures(pictures) })
    }

    /// How many files of pictures or recordings it has; absent where it is no such files.
    pub fn files(&self) -> Option<u64> {
        if let Content::Pictures(files) = &self.content { Some(files.files.len() as u64) } else { None }
    }

    /// The names of the folders that pictures or recordings are in, each once; none of other data.
    pub fn folders(&self) -> Vec<&str> {
        if let Content::Pictures(files) = &self.content { files.labels() } else { Vec::new() }
    }
}
