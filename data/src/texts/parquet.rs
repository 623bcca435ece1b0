//! Records of a Parquet file.

use std::path::Path;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use ::parquet::record::reader::RowIter;
use ::parquet::schema::types::Type;
use anyhow::{Context, Error, Result, anyhow};
use serde_json::Value;

use super::{Fields, OptionNames, Place, RECORD_BYTES, Record, Records};

/// The values of some columns. One row group is read at a time, and of it the pages of these columns.
pub(super) fn records(path: &Path, fields: &Fields<'_>, options: OptionNames) -> Result<Records> {
    let (file, _) = planish_files::open(path)?;
    let reader =
        SerializedFileReader::new(file).with_context(|| format!("{} is not a Parquet file", path.display()))?;
    let schema = reader.metadata().file_metadata().schema().clone();
    let names: Vec<&str> = schema.get_fields().iter().map(|column| column.name()).collect();
    let mut places: Vec<usize> = fields.columns(path, &names, options)?.into_iter().flatten().collect();
    places.sort_unstable();
    places.dedup();
    let columns = places.iter().map(|place| schema.get_fields()[*place].clone()).collect();
    let projection = Type::group_type_builder(schema.name()).with_fields(columns).build();
    let context = format!("cannot read {}", path.display());
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection.context(context.clone())?));
    let rows = rows.context(context.clone())?;
    let name = path.display().to_string();
    let optional = fields.optional.map(str::to_owned);
    let fields: Vec<String> = fields.names().map(str::to_owned).collect();
    Ok(Box::new(rows.zip(1u64..).map(move |(row, number)| {
        let row = row.map_err(|error| Error::new(error).context(context.clone()))?;
        let bad = |reason: String| Ok(Record::Bad(anyhow!("{name}, row {number}: {reason}")));
        let columns = row.into_columns();
        let mut values = Vec::with_capacity(fields.len());
        for field in &fields {
            let value = columns.iter().find(|(name, _)| name == field).map(|(_, value)| value);
            match value.and_then(json) {
                Some(Value::String(text)) if text.len() > RECORD_BYTES => {
                    return bad(format!(
                        "it has {} bytes, and {RECORD_BYTES} are the most that is read of a text; divide it",
                        text.len()
                    ));
                }
                Some(value) => values.push(value),
                None if optional.as_ref() != Some(field) => {
                    return bad(format!(
                        "`{field}` is neither a string, nor a number, nor a list of these; {}",
                        options.remedy("column")
                    ));
                }
                None if value.is_none() => values.push(Value::Null),
                None => {
                    return bad(format!(
                        "`{field}`, which says what a record is called, is neither a string, nor a number, nor a list of \
                         these; change its type, or rename the column"
                    ));
                }
            }
        }
        Ok(Record::Values(values, Place::Row(number)))
    })))
}

/// The number of rows.
pub(super) fn count(path: &Path) -> Result<u64> {
    let (file, _) = planish_files::open(path)?;
    Ok(u64::try_from(SerializedFileReader::new(file)?.metadata().file_metadata().num_rows())?)
}

/// The names of the columns.
pub(super) fn names(path: &Path) -> Result<Vec<String>> {
    let (file, _) = planish_files::open(path)?;
    let reader = SerializedFileReader::new(file)?;
    let columns = reader.metadata().file_metadata().schema().get_fields();
    Ok(columns.iter().map(|column| column.name().to_owned()).collect())
}

/// A value as JSON has it; `None` for what no text or label is.
fn json(field: &Field) -> Option<Value> {
    Some(match field {
        Field::Null => Value::Null,
        Field::Bool(is_true) => (*is_true).into(),
        Field::Byte(number) => (*number).into(),
        Field::Short(number) => (*number).into(),
        Field::Int(number) => (*number).into(),
        Field::Long(number) => (*number).into(),
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Float(number) => (*number).into(),
        Field::Double(number) => (*number).into(),
        Field::Str(text) => text.clone().into(),
        Field::ListInternal(list) => Value::Array(list.elements().iter().map(json).collect::<Option<_>>()?),
        _ => return None,
    })
}
