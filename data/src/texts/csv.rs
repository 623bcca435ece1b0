//! Records of a table with a header, in CSV.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use ::csv::{ErrorKind, ReaderBuilder, StringRecord};
use anyhow::{Context, Error, Result, anyhow, bail};
use serde_json::Value;

use super::{Fields, OptionNames, Place, RECORD_BYTES, Record, Records};

/// The values of some columns, which are all strings.
pub(super) fn records(path: &Path, fields: &Fields<'_>, options: OptionNames) -> Result<Records> {
    let context = || format!("cannot read {}", path.display());
    let (file, _) = planish_files::open(path)?;
    let left = Rc::new(Cell::new(RECORD_BYTES));
    // The library does not tell whether a quote was open at the end of a file. So a mark follows: it is a record of its own,
    // or part of the record whose quote is open.
    let mark = format!("planish-end-{:016x}", fastrand::u64(..));
    let input = Bounded { file, left: Rc::clone(&left) }.chain(Cursor::new(format!("\n{mark}\n")));
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
    let header = reader.headers().with_context(context)?;
    match header.iter().next_back() {
        // An empty file has no text; the error is the same for all kinds.
        None => return Ok(Box::new(std::iter::empty())),
        Some(only) if only == mark && header.len() == 1 => return Ok(Box::new(std::iter::empty())),
        Some(last) if last.contains(&mark) => bail!("{}, line 1: a quote is not closed", path.display()),
        Some(_) => {}
    }
    let names: Vec<&str> = header.iter().collect();
    let fields = fields.columns(path, &names, options)?;
    let columns = header.len();
    let name = path.display().to_string();
    let (mut record, mut ended) = (StringRecord::new(), false);
    Ok(Box::new(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        left.set(RECORD_BYTES);
        // A record may have several lines.
        let line = reader.position().line();
        let bad = |line: u64, reason: &str| Some(Ok(Record::Bad(anyhow!("{name}, line {line}: {reason}"))));
        match reader.read_record(&mut record) {
            Ok(false) => None,
            Ok(true) => {
                let line = record.position().map_or(line, ::csv::Position::line);
                let last = record.iter().next_back().unwrap_or_default();
                ended = last.contains(&mark);
                match (ended, record.len()) {
                    (true, 1) if last == mark => None,
                    (true, _) => bad(line, "a quote of this record is not closed"),
                    (false, len) if len != columns => {
                        bad(line, &format!("it has {len} columns, and the header has {columns}"))
                    }
                    _ => {
                        let value = |column: &Option<usize>| match column {
                            Some(column) => Value::String(record.get(*column).unwrap_or_default().to_owned()),
                            None => Value::Null,
                        };
                        Some(Ok(Record::Values(fields.iter().map(value).collect(), Place::Line(line))))
                    }
                }
            }
            Err(error) if error.is_io_error() => {
                ended = true;
                Some(Err(Error::new(error).context(format!("cannot read {name}, line {line}"))))
            }
            Err(error) => {
                let line = error.position().map_or(line, ::csv::Position::line);
                match error.kind() {
                    ErrorKind::Utf8 { .. } => bad(line, "it is not UTF-8"),
                    _ => bad(line, &error.to_string()),
                }
            }
        }
    })))
}

/// The names of the columns.
pub(super) fn names(path: &Path) -> Result<Vec<String>> {
    let (file, _) = planish_files::open(path)?;
    let input = Bounded { file, left: Rc::new(Cell::new(RECORD_BYTES)) };
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
    Ok(reader.headers()?.iter().map(str::to_owned).collect())
}

/// A file of which a record may take so many bytes.
struct Bounded {
    file: File,
    left: Rc<Cell<usize>>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let left = self.left.get().checked_sub(count).ok_or_else(|| {
            io::Error::other(format!(
                "the record has more than {RECORD_BYTES} bytes, the most that is read of one; is a quote not closed?"
            ))
        })?;
        self.left.set(left);
        Ok(count)
    }
}
