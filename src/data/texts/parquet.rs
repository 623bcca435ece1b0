//! Records of a Parquet file.

use std::fs::File;
use std::path::Path;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use ::parquet::record::reader::RowIter;
use ::parquet::schema::types::Type;
use anyhow::{Context, Error, Result, anyhow};

use super::{Record, Records, no_column};

/// The texts of a column. One row group is read at a time, and of it the pages of this column.
pub(super) fn records(path: &Path, field: &str) -> Result<Records> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let reader =
        SerializedFileReader::new(file).with_context(|| format!("{} is not a Parquet file", path.display()))?;
    let schema = reader.metadata().file_metadata().schema().clone();
    let Some(column) = schema.get_fields().iter().find(|column| column.name() == field).cloned() else {
        let names: Vec<&str> = schema.get_fields().iter().map(|column| column.name()).collect();
        return Err(no_column(path, field, &names));
    };
    let projection = Type::group_type_builder(schema.name()).with_fields(vec![column]).build();
    let context = format!("cannot read {}", path.display());
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection.context(context.clone())?));
    let rows = rows.context(context.clone())?;
    let (name, field) = (path.display().to_string(), field.to_owned());
    Ok(Box::new(rows.zip(1u64..).map(move |(row, number)| {
        let row = row.map_err(|error| Error::new(error).context(context.clone()))?;
        let bad = |reason: String| Ok(Record::Bad(anyhow!("{name}, row {number}: {reason}")));
        match row.get_column_iter().next() {
            Some((_, Field::Str(text))) => Ok(Record::Text(text.clone())),
            Some((_, Field::Null)) => bad(format!("`{field}` is null")),
            _ => bad(format!("`{field}` is not a string; name the column with the text by --field")),
        }
    })))
}
