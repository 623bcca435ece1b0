//! Texts in files, one record after the other: no more of a file is in memory than a record needs.

mod csv;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod sample;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail};
use planish_artifact::evaluation::Left;
use planish_artifact::split::Split;
use serde_json::Value;

use super::{DataOptions, IdField, OptionNames};
pub use sample::Label;
pub(crate) use sample::Sample;
pub use sample::Text;

/// The member or column that contains the text, unless told otherwise.
pub(super) const FIELD: &str = "text";

/// The most bytes of a record.
const RECORD_BYTES: usize = 16 << 20;

/// The most names that an error lists.
const MOST_NAMES: usize = 20;

/// What a file of texts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

/// The fields of a record whose values are read.
struct Fields<'a> {
    /// Those that each record has.
    wanted: Vec<&'a str>,
    /// One that is null where a record has none of that name. Its value comes last.
    optional: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// The places of the columns that are read among those of a table, by their names.
    ///
    /// # Errors
    /// When one that each record has is missing, or there several.
    fn columns(&self, path: &Path, names: &[&str], options: OptionNames) -> Result<Vec<Option<usize>>> {
        let wanted = self.wanted.iter().map(|field| column_of(path, field, names, options).map(Some));
        let optional = self.optional.iter().map(|field| match names.contains(field) {
            true => column_of(path, field, names, options).map(Some),
            false => Ok(None),
        });
        wanted.chain(optional).collect()
    }

    /// All names.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        self.wanted.iter().copied().chain(self.optional)
    }
}

/// The names of the members of a file's first object, or of its columns; none of a file that has no names or cannot be read.
pub fn fields_of(path: &Path) -> Vec<String> {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let names = match Kind::of(&ending) {
        Some(Kind::Objects) => lines::names(path),
        Some(Kind::Csv) => csv::names(path),
        #[cfg(feature = "parquet")]
        Some(Kind::Parquet) => parquet::names(path),
        _ => Ok(Vec::new()),
    };
    names.unwrap_or_default()
}

/// About how many records a file has: the lines of one of lines, or the rows of a table. For progress; `None` where that is not
/// known.
pub fn count(path: &Path) -> Option<u64> {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    match Kind::of(&ending)? {
        Kind::Lines | Kind::Objects => lines::count(path).ok(),
        Kind::Csv => lines::count(path).ok().map(|lines| lines.saturating_sub(1)),
        #[cfg(feature = "parquet")]
        Kind::Parquet => parquet::count(path).ok(),
        #[cfg(not(feature = "parquet"))]
        Kind::Parquet => None,
    }
}

/// A record of a file.
enum Record {
    /// The values of its fields, in the order in which these are asked for, and where it is: a line or a row.
    Values(Vec<Value>, Place),
    /// What is wrong with it, and which one it is; the records after it can be read.
    Bad(Error),
}

/// After so many characters that were not run, nobody waits for the count of the others.
const MOST_COUNTED: u64 = 64 << 20;

/// Where a record is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Line(u64),
    Row(u64),
}

/// The records of a file. An error is one of the whole file, which cannot be read on.
type Records = Box<dyn Iterator<Item = Result<Record>>>;

/// A file of texts.
pub struct TextFile {
    pub(super) path: PathBuf,
    kind: Kind,
    /// The members or columns with the text, or with both texts of a pair.
    texts: Vec<String>,
    /// The member or column with the label.
    label: Option<String>,
    /// The member or column that says what a record is called.
    id: Option<IdField>,
    /// Whether blank texts are samples.
    keeps_blank: bool,
    /// Whether a file without records is one text.
    is_whole: bool,
    /// Whether bad records are passed over.
    skip_bad: bool,
    /// How many records are taken at most.
    pub(super) most: usize,
    /// Which of these are given.
    split: Split,
    /// How the user gives these options.
    names: OptionNames,
}

impl TextFile {
    /// A file of this kind, read as the options say.
    ///
    /// # Errors
    /// When the options name no text, more than two, or a field twice.
    pub(super) fn new(path: &Path, kind: Kind, options: &DataOptions) -> Result<Self> {
        let texts: Vec<String> = options.field.as_deref().unwrap_or(FIELD).split(',').map(str::to_owned).collect();
        if texts.len() > 2 || texts.iter().any(String::is_empty) {
            let option = options.names.field.map(|option| format!("{option}: ")).unwrap_or_default();
            bail!("{option}`{}` is not the name of a text, or of two with a comma between them", texts.join(","));
        }
        let label = options.label.clone();
        let id = if let Some(IdField::Named(name)) = &options.id { Some(name) } else { None };
        let mut named: Vec<&String> = texts.iter().chain(&label).chain(id).collect();
        named.sort_unstable();
        if let Some([twice, _]) = named.array_windows().find(|[one, other]| one == other) {
            bail!("`{twice}` is named twice; each text, the label and the id has a name of its own");
        }
        Ok(Self {
            path: path.to_owned(),
            kind,
            texts,
            label,
            id: options.id.clone(),
            keeps_blank: options.keeps_blank,
            is_whole: options.is_whole(),
            skip_bad: options.skip_bad,
            most: options.samples.get(),
            split: options.split,
            names: options.names,
        })
    }

    /// Reads the file from its beginning.
    ///
    /// # Errors
    /// When it cannot be read, or has no column of that name.
    pub(super) fn texts(&self) -> Result<Texts<'_>> {
        let id = self.id.as_ref().map(|id| (id.name(), matches!(id, IdField::Named(_))));
        let wanted = self.texts.iter().chain(&self.label).map(String::as_str);
        let fields = Fields {
            wanted: wanted.chain(id.filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name)).collect(),
            optional: id.filter(|(_, is_wanted)| !is_wanted).map(|(name, _)| name),
        };
        let records = match self.kind {
            Kind::Lines if self.is_whole => lines::whole(&self.path)?,
            Kind::Lines => lines::plain(&self.path)?,
            Kind::Objects => lines::objects(&self.path, &fields, self.names)?,
            Kind::Csv => csv::records(&self.path, &fields, self.names)?,
            #[cfg(feature = "parquet")]
            Kind::Parquet => parquet::records(&self.path, &fields, self.names)?,
            #[cfg(not(feature = "parquet"))]
            Kind::Parquet => bail!(
                "{}: this planish was built without Parquet; build it with the feature `parquet`, or convert the file",
                self.path.display()
            ),
        };
        Ok(Texts { file: self, records, taken: 0, skipped: 0, ready: VecDeque::new(), of_split: Left::default() })
    }

    /// The samples of a record, none where it is blank.
    fn samples(&self, mut values: Vec<Value>, place: Place) -> Result<Vec<Sample>> {
        let id = if self.id.is_some() && values.len() > self.texts.len() { values.pop() } else { None };
        let named = |reason: String| {
            let (kind, number) = match place {
                Place::Line(number) => ("line", number),
                Place::Row(number) => ("row", number),
            };
            anyhow::anyhow!("{}, {kind} {number}: {reason}", self.path.display())
        };
        let part = if self.kind == Kind::Objects { "member" } else { "column" };
        let remedy = self.names.remedy(part);
        let mut samples = sample::samples(&self.texts, self.label.as_deref(), values, &remedy).map_err(named)?;
        samples.retain(|sample| self.keeps_blank || !sample.text.is_blank());
        samples.iter_mut().for_each(|sample| sample.id = id.clone().filter(|id| !id.is_null()));
        Ok(samples)
    }
}

/// The texts of a file that are not blank, as many as are taken, without those that the split leaves out.
pub(super) struct Texts<'a> {
    file: &'a TextFile,
    records: Records,
    taken: usize,
    skipped: usize,
    /// Samples of the last record that were not given yet.
    ready: VecDeque<Sample>,
    /// What the split left out so far.
    of_split: Left,
}

impl Texts<'_> {
    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// How many bad records were passed over so far.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// What the split left out so far.
    pub(super) fn of_split(&self) -> Left {
        self.of_split
    }

    /// Reads on, and gives the characters of each text to `add`, with whether `--samples` would have taken it. The texts are not
    /// checked. Returns whether the file was read to its end: what cannot be read ends the count, and so do [`MOST_COUNTED`]
    /// characters.
    pub(super) fn after(&mut self, mut add: impl FnMut(bool, u64)) -> bool {
        for sample in self.ready.drain(..) {
            add(true, sample.text.characters());
        }
        let mut counted = 0;
        for record in self.records.by_ref() {
            let Ok(record) = record else { return false };
            let Record::Values(values, place) = record else { continue };
            let samples = self.file.samples(values, place).unwrap_or_default();
            if samples.is_empty() {
                continue;
            }
            let is_taken = self.taken < self.file.most;
            let is_of_split = is_taken && !self.file.split.has(self.taken);
            self.taken += 1;
            for characters in samples.iter().map(|sample| sample.text.characters()) {
                counted += characters;
                if is_of_split { self.of_split.add(characters) } else { add(is_taken, characters) }
            }
            if counted > MOST_COUNTED {
                return false;
            }
        }
        true
    }

    fn advance(&mut self) -> Result<Option<Sample>> {
        let path = self.file.path.display();
        loop {
            if let Some(sample) = self.ready.pop_front() {
                return Ok(Some(sample));
            }
            if self.taken >= self.file.most {
                return Ok(None);
            }
            let record = match self.records.next().transpose()? {
                None if self.taken == 0 && self.skipped > 0 => {
                    bail!("{path} contains no text: all of its {} records are bad", self.skipped)
                }
                None if self.taken == 0 => bail!("{path} contains no text"),
                None => return Ok(None),
                Some(Record::Values(values, place)) => self.file.samples(values, place),
                Some(Record::Bad(error)) => Err(error),
            };
            match record {
                Ok(samples) if samples.is_empty() => {}
                Ok(samples) => {
                    self.taken += 1;
                    if self.file.split.has(self.taken - 1) {
                        self.ready.extend(samples);
                    } else {
                        samples.iter().for_each(|sample| self.of_split.add(sample.text.characters()));
                    }
                }
                Err(_) if self.file.skip_bad => self.skipped += 1,
                Err(error) => {
                    let remedy = match self.file.names.skip_bad {
                        Some(option) => format!("{option} leaves such records out"),
                        None => "correct it, or leave it out of the file".to_owned(),
                    };
                    return Err(error.context(format!("{path} has a bad record; {remedy}")));
                }
            }
        }
    }
}

impl Iterator for Texts<'_> {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// The place of the column that is asked for among those of a table.
///
/// # Errors
/// When there is none of that name, or several.
fn column_of(path: &Path, field: &str, names: &[&str], options: OptionNames) -> Result<usize> {
    let mut found = names.iter().enumerate().filter(|(_, name)| **name == field).map(|(at, _)| at);
    match (found.next(), found.count()) {
        (Some(at), 0) => Ok(at),
        (Some(_), more) => {
            bail!("{} has {} columns `{field}`: rename all but one of them", path.display(), more + 1)
        }
        (None, _) => bail!(
            "{} has no column `{field}`, but {}; {}",
            path.display(),
            listed(names.iter().copied()),
            options.remedy("column")
        ),
    }
}

/// Names, of many the first ones.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let shown = names.take(MOST_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
