//! Files that are laid out first and then filled: the sizes of weights are known before their values, so each is evaluated
//! piece by piece to its place, in parallel, and memory follows the largest tensor that is transformed.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use planish_ir::weight::WeightError;
use planish_ir::{Origin, Weight};
use rayon::prelude::*;

use crate::ExportError;
use crate::proto::StringStringEntryProto;

/// What says of a tensor that its elements are in a file.
pub(crate) fn external_data(location: &str, offset: u64, length: u64) -> Vec<StringStringEntryProto> {
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.to_owned(), value };
    vec![
        entry("location", location.to_owned()),
        entry("offset", offset.to_string()),
        entry("length", length.to_string()),
    ]
}

/// A weight and what it is called in the model.
#[derive(Debug)]
pub struct NamedWeight<'g> {
    /// The name.
    pub name: String,
    /// The weight.
    pub weight: &'g Weight,
    /// Where it came from.
    pub origin: &'g Origin,
}

/// A part of a file.
#[derive(Debug)]
pub enum Segment<'s> {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A weight's value.
    Weight(&'s NamedWeight<'s>),
}

/// A file to be written: its length and its parts in order of their offsets.
#[derive(Debug, Default)]
pub struct File<'s> {
    /// The bytes so far; larger where the next part begins further on.
    pub length: u64,
    /// The parts with their offsets.
    pub segments: Vec<(u64, Segment<'s>)>,
}

impl<'s> File<'s> {
    /// Appends a part.
    pub fn push(&mut self, segment: Segment<'s>) {
        let length = match &segment {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Weight(named) => named.weight.bytes(),
        };
        self.segments.push((self.length, segment));
        self.length += length;
    }
}

/// Links a file, not the symbolic link that leads to it: one as in the cache of Hugging Face would be linked itself.
///
/// # Errors
/// When there is a file at the place, or it is on another filesystem.
pub fn hard_link(file: &Path, place: &Path) -> io::Result<()> {
    fs::hard_link(file.canonicalize()?, place)
}

/// Writes a file that does not exist yet; `progress` sees the bytes that were written, from any thread.
///
/// # Errors
/// When a weight cannot be evaluated, or the file cannot be written.
pub fn write(path: &Path, layout: &File<'_>, progress: &(dyn Fn(u64) + Sync)) -> Result<(), ExportError> {
    let io = |action| move |source| ExportError::Io { action, path: path.to_owned(), source };
    let file = fs::File::create_new(path).map_err(io("create"))?;
    file.set_len(layout.length).map_err(io("extend"))?;
    layout.segments.par_iter().try_for_each(|(offset, segment)| match segment {
        Segment::Bytes(bytes) => {
            file.write_all_at(bytes, *offset).map_err(io("write"))?;
            progress(bytes.len() as u64);
            Ok(())
        }
        Segment::Weight(named) => weight(&file, *offset, named, progress).map_err(|error| match error {
            WeightError::Sink(source) => io("write")(source),
            source => ExportError::Weight { name: named.name.clone(), origin: named.origin.clone(), source },
        }),
    })
}

fn weight(
    file: &fs::File,
    mut offset: u64,
    named: &NamedWeight<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), WeightError> {
    named.weight.stream(&mut |bytes| {
        file.write_all_at(bytes, offset)?;
        offset += bytes.len() as u64;
        progress(bytes.len() as u64);
        Ok(())
    })
}
