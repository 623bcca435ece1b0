//! Texts in files, one record after the other: no more of a file is in memory than a record needs.

mod csv;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail};

use super::Split;

/// The member or column that contains the text, unless told otherwise.
const FIELD: &str = "text";

/// The most bytes of a record.
const RECORD_BYTES: usize = 16 << 20;

/// The most names that an error lists.
const MOST_NAMES: usize = 20;

/// What a file of texts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text a line.
    Lines,
    /// An object a line, with the text as a member.
    Objects,
    /// A table with a header, and the text in a column.
    Csv,
    /// The same in Parquet's form.
    Parquet,
}

impl Kind {
    /// By the ending of a file's name.
    pub(super) fn of(ending: &str) -> Option<Self> {
        match ending {
            "txt" => Some(Self::Lines),
            "jsonl" => Some(Self::Objects),
            "csv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// A record of a file.
enum Record {
    /// Its text, which may be blank.
    Text(String),
    /// What is wrong with it, and which one it is; the records behind it can be read.
    Bad(Error),
}

/// The records of a file. An error is one of the whole file, which cannot be read on.
type Records = Box<dyn Iterator<Item = Result<Record>>>;

/// A file of texts.
pub(super) struct TextFile {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// The member or column with the text.
    pub(super) field: Option<String>,
    /// Whether bad records are passed over.
    pub(super) skip_bad: bool,
    /// How many texts are taken at most.
    pub(super) most: usize,
    /// Which of these are given.
    pub(super) split: Split,
}

impl TextFile {
    /// Reads the file from its beginning.
    ///
    /// # Errors
    /// When it cannot be read, or has no column of that name.
    pub(super) fn texts(&self) -> Result<Texts<'_>> {
        let field = self.field.as_deref().unwrap_or(FIELD);
        let records = match self.kind {
            Kind::Lines => lines::plain(&self.path)?,
            Kind::Objects => lines::objects(&self.path, field)?,
            Kind::Csv => csv::records(&self.path, field)?,
            #[cfg(feature = "parquet")]
            Kind::Parquet => parquet::records(&self.path, field)?,
            #[cfg(not(feature = "parquet"))]
            Kind::Parquet => bail!(
                "{}: this planish was built without Parquet; build it with the feature `parquet`, or convert the file",
                self.path.display()
            ),
        };
        Ok(Texts { file: self, records, taken: 0, skipped: 0 })
    }
}

/// The texts of a file that are not blank, as many as are taken, without those that the split leaves out.
pub(super) struct Texts<'a> {
    file: &'a TextFile,
    records: Records,
    taken: usize,
    skipped: usize,
}

impl Texts<'_> {
    /// How many bad records were passed over so far.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    fn advance(&mut self) -> Result<Option<String>> {
        let path = self.file.path.display();
        while self.taken < self.file.most {
            match self.records.next().transpose()? {
                None if self.taken == 0 && self.skipped > 0 => {
                    bail!("{path} contains no text: all of its {} records are bad", self.skipped)
                }
                None if self.taken == 0 => bail!("{path} contains no text"),
                None => break,
                Some(Record::Text(text)) if text.trim().is_empty() => {}
                Some(Record::Text(text)) => {
                    self.taken += 1;
                    if self.file.split.has(self.taken - 1) {
                        return Ok(Some(text));
                    }
                }
                Some(Record::Bad(_)) if self.file.skip_bad => self.skipped += 1,
                Some(Record::Bad(error)) => {
                    return Err(error.context(format!("{path} has a bad record; --skip-bad leaves such records out")));
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for Texts<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// The place of the column that is asked for among those of a table.
///
/// # Errors
/// When there is none of that name, or several.
fn column_of(path: &Path, field: &str, names: &[&str]) -> Result<usize> {
    let mut found = names.iter().enumerate().filter(|(_, name)| **name == field).map(|(at, _)| at);
    match (found.next(), found.count()) {
        (Some(at), 0) => Ok(at),
        (Some(_), more) => {
            bail!("{} has {} columns `{field}`: rename all but the one with the text", path.display(), more + 1)
        }
        (None, _) => bail!(
            "{} has no column `{field}`, but {}; --field names the column with the text",
            path.display(),
            listed(names.iter().copied())
        ),
    }
}

/// Names, of many the first ones.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let shown = names.take(MOST_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
