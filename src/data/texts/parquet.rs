//! Records of a Parquet file.

use std::path::Path;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use ::parquet::record::reader::RowIter;
use ::parquet::schema::types::Type;
use anyhow::{Context, Error, Result, anyhow};

use super::{RECORD_BYTES, Record, Records, column_of};

/// The texts of a column. One row group is read at a time, and of it the pages of this column.
pub(super) fn records(path: &Path, field: &str) -> Result<Records> {
    let (file, _) = planish_files::open(path)?;
    let reader =
        SerializedFileReader::new(file).with_context(|| format!("{} is not a Parquet file", path.display()))?;
    let schema = reader.metadata().file_metadata().schema().clone();
    let names: Vec<&str> = schema.get_fields().iter().map(|column| column.name()).collect();
    let column = schema.get_fields()[column_of(path, field, &names)?].clone();
    let projection = Type::group_type_builder(schema.name()).with_fields(vec![column]).build();
    let context = format!("cannot read {}", path.display());
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection.context(context.clone())?));
    let rows = rows.context(context.clone())?;
    let (name, field) = (path.display().to_string(), field.to_owned());
    Ok(Box::new(rows.zip(1u64..).map(move |(row, number)| {
        let row = row.map_err(|error| Error::new(error).context(context.clone()))?;
        let bad = |reason: String| Ok(Record::Bad(anyhow!("{name}, row {number}: {reason}")));
        match row.into_columns().into_iter().next() {
            Some((_, Field::Str(text))) if text.len() > RECORD_BYTES => bad(format!(
                "it has {} bytes, and {RECORD_BYTES} are the most that is read of a text; divide it",
                text.len()
            )),
            Some((_, Field::Str(text))) => Ok(Record::Text(text)),
            Some((_, Field::Null)) => bad(format!("`{field}` is null")),
            _ => bad(format!("`{field}` is not a string; name the column with the text by --field")),
        }
    })))
}
