//! Recordings of a list, with what is said in them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use planish_artifact::evaluation::Coverage;
use planish_sounds::{Recording, SoundError};

use super::{Medium, PictureSource, no_texts};
use crate::texts::Label;
use crate::{Content, DataOptions, Dataset};

/// How many samples are read at a time.
const PIECE: usize = 1 << 16;

/// A recording and its label.
pub struct Spoken {
    /// The file.
    pub path: PathBuf,
    /// What is said in it.
    pub label: Option<Label>,
}

impl Dataset {
    /// The recordings of a list, and how much of the list they are. Where bad ones are left out, each is decoded to its end; else the
    /// beginnings of all are read.
    ///
    /// # Errors
    /// When the data set is no list, options of texts are given, or a recording cannot be read and such ones are not left out.
    pub fn spoken(&self, options: &DataOptions) -> Result<(Vec<Spoken>, Coverage)> {
        let Content::Texts(file) = &self.content else {
            bail!("{} is no list of recordings: expected .jsonl, .csv or .parquet", self.path.display())
        };
        let medium = Medium::Recordings;
        no_texts(&self.path, medium, options)?;
        let mut source = PictureSource::List(file.texts()?);
        let (mut all, mut coverage) = (Vec::new(), Coverage::new(medium.unit()));
        for named in source.next(usize::MAX)? {
            let path = named.file.path;
            match check(&path, options.skip_bad) {
                Ok(()) => all.push(Spoken { path, label: named.label }),
                Err(_) if options.skip_bad => coverage.bad += 1,
                Err(error) => return Err(source.bad(error.into(), medium, options.names)),
            }
        }
        if all.is_empty() {
            bail!("no recording of {} can be read: all of the {} are bad", self.path.display(), coverage.bad);
        }
        coverage.texts = all.len() as u64;
        source.cover(&mut coverage);
        Ok((all, coverage))
    }
}

/// Whether a recording can be read: its beginning, or all of it.
fn check(path: &Path, is_whole: bool) -> Result<(), SoundError> {
    let recording = Recording::open(path)?;
    if is_whole {
        let rate = recording.rate();
        let mut samples = recording.samples(rate)?;
        while !samples.take_up_to(PIECE)?.is_empty() {}
    }
    Ok(())
}
