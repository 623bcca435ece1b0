//! Records of a table with a header, in CSV.

use std::path::Path;

use ::csv::{ErrorKind, Reader, StringRecord};
use anyhow::{Context, Error, Result};

use super::{Record, Records, no_column};

/// The texts of a column.
pub(super) fn records(path: &Path, field: &str) -> Result<Records> {
    let context = || format!("cannot read {}", path.display());
    let mut reader = Reader::from_path(path).with_context(context)?;
    let header = reader.headers().with_context(context)?;
    // An empty file has no text; the error is the same for all kinds.
    if header.is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let Some(column) = header.iter().position(|name| name == field) else {
        return Err(no_column(path, field, &header.iter().collect::<Vec<_>>()));
    };
    let name = path.display().to_string();
    let mut record = StringRecord::new();
    Ok(Box::new(std::iter::from_fn(move || {
        // A record may have several lines.
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(false) => None,
            Ok(true) => Some(Ok(Record::Text(record.get(column).unwrap_or_default().to_owned()))),
            Err(error) if error.is_io_error() => Some(Err(Error::new(error).context(format!("cannot read {name}")))),
            Err(error) => {
                let (line, reason) = described(&error, line);
                Some(Ok(Record::Bad(anyhow::anyhow!("{name}, line {line}: {reason}"))))
            }
        }
    })))
}

/// The line of a bad record, and what is wrong with it.
fn described(error: &::csv::Error, line: u64) -> (u64, String) {
    let line = error.position().map_or(line, ::csv::Position::line);
    let reason = match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} columns, and the header has {expected_len}")
        }
        ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    (line, reason)
}
