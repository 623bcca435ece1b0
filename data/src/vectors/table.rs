//! Vectors in a Parquet file: a column with what each record is called, and one with lists of float32.

use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::Encoding;
use ::parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use anyhow::{Context, Result};
use planish_artifact::files::Streamed;
use serde_json::Value;

use super::check_size;

const SCHEMA: &str = "message embeddings {
    optional binary id (UTF8);
    required group embedding (LIST) { repeated group list { required float element; } }
}";

/// The bytes of vectors that are one row group.
const GROUP_BYTES: usize = 64 << 20;

/// The file, with the rows that are no row group yet.
pub(super) struct Table {
    writer: SerializedFileWriter<Streamed>,
    features: usize,
    ids: Vec<Option<String>>,
    numbers: Vec<f32>,
    name: String,
}

impl Table {
    pub(super) fn create(path: &Path, features: usize) -> Result<Self> {
        let name = path.display().to_string();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::PLAIN)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let writer = SerializedFileWriter::new(Streamed::create(path)?, schema, Arc::new(properties));
        let writer = writer.with_context(|| format!("cannot write {name}"))?;
        Ok(Self { writer, features, ids: Vec::new(), numbers: Vec::new(), name })
    }

    pub(super) fn write(&mut self, id: Option<&Value>, vector: &[f32]) -> Result<()> {
        check_size(vector, self.features)?;
        let text = |id: &Value| id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        self.ids.push(id.map(text));
        self.numbers.extend(vector);
        if size_of_val(self.numbers.as_slice()) < GROUP_BYTES {
            return Ok(());
        }
        self.write_group()
    }

    fn write_group(&mut self) -> Result<()> {
        let (ids, numbers) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.numbers));
        if ids.is_empty() {
            return Ok(());
        }
        let written = write_group(self.writer.next_row_group()?, &ids, &numbers, self.features);
        written.with_context(|| format!("cannot write {}", self.name))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.write_group()?;
        self.writer.into_inner().with_context(|| format!("cannot write {}", self.name))?.place()
    }
}

fn write_group(
    mut group: SerializedRowGroupWriter<'_, Streamed>,
    ids: &[Option<String>],
    numbers: &[f32],
    features: usize,
) -> Result<()> {
    if let Some(mut column) = group.next_column()? {
        let present: Vec<ByteArray> = ids.iter().flatten().map(|id| ByteArray::from(id.as_str())).collect();
        let levels: Vec<i16> = ids.iter().map(|id| i16::from(id.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)?;
        column.close()?;
    }
    if let Some(mut column) = group.next_column()? {
        // No list is empty; an element repeats the list of the one before it, but for the first one of a list.
        let defined = vec![1; numbers.len()];
        let repeated: Vec<i16> = (0..numbers.len()).map(|at| i16::from(at % features.max(1) != 0)).collect();
        column.typed::<FloatType>().write_batch(numbers, Some(&defined), Some(&repeated))?;
        column.close()?;
    }
    group.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use serde_json::json;

    use super::*;

    #[test]
    fn vectors_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.parquet");
        let mut table = Table::create(&path, 2).unwrap();
        table.write(Some(&json!("a")), &[1.0, 2.0]).unwrap();
        table.write_group().unwrap();
        table.write(None, &[3.0, 4.0]).unwrap();
        table.write(Some(&json!(7)), &[5.0, 6.5]).unwrap();
        assert!(table.write(None, &[1.0]).is_err());
        table.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(
            rows,
            [
                "{id: \"a\", embedding: [1.0, 2.0]}",
                "{id: null, embedding: [3.0, 4.0]}",
                "{id: \"7\", embedding: [5.0, 6.5]}"
            ]
        );
    }
}
