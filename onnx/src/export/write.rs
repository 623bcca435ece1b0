//! Filling a laid-out file: weights are evaluated in parallel, piece by piece, each to its place.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use planish_ir::weight::WeightError;
use rayon::prelude::*;

use super::ExportError;
use super::layout::{File, Initializer, Segment};

/// Writes a file that does not exist yet.
pub(super) fn file(path: &Path, layout: &File<'_>, progress: &(dyn Fn(u64) + Sync)) -> Result<(), ExportError> {
    let io = |action| move |source| ExportError::Io { action, path: path.to_owned(), source };
    let file = fs::File::create_new(path).map_err(io("create"))?;
    file.set_len(layout.length).map_err(io("extend"))?;
    layout.segments.par_iter().try_for_each(|(offset, segment)| match segment {
        Segment::Bytes(bytes) => {
            file.write_all_at(bytes, *offset).map_err(io("write"))?;
            progress(bytes.len() as u64);
            Ok(())
        }
        Segment::Weight(initializer) => weight(&file, *offset, initializer, progress).map_err(|error| match error {
            WeightError::Sink(source) => io("write")(source),
            source => {
                ExportError::Weight { name: initializer.name.clone(), origin: initializer.origin.clone(), source }
            }
        }),
    })
}

fn weight(
    file: &fs::File,
    mut offset: u64,
    initializer: &Initializer<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), WeightError> {
    initializer.weight.stream(&mut |bytes| {
        file.write_all_at(bytes, offset)?;
        offset += bytes.len() as u64;
        progress(bytes.len() as u64);
        Ok(())
    })
}
