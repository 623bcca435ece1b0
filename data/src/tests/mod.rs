use std::fs;

use super::*;

mod tensors;

/// A file of a name in a folder of its own.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// A data set that was read to its end, with its texts.
fn read(name: &str, bytes: &[u8], options: &DataOptions) -> Result<(Dataset, Vec<String>, usize), String> {
    let (_folder, path) = file(name, bytes);
    let read = || {
        let dataset = Dataset::open(&path, options)?;
        let Content::Texts(file) = &dataset.content else {
            // The samples of tensors are read for a model.
            tensors::arrays(&dataset, options)?;
            return Ok((dataset, Vec::new(), 0));
        };
        let mut all = file.texts()?;
        let text = |sample: Result<texts::Sample>| {
            let texts::Text::One(text) = sample?.text else { panic!("texts alone") };
            Ok(text)
        };
        let texts = all.by_ref().map(text).collect::<Result<Vec<_>>>()?;
        let skipped = all.skipped();
        Ok((dataset, texts, skipped))
    };
    read().map_err(|e: anyhow::Error| format!("{e:#}"))
}

fn open(name: &str, bytes: &[u8], options: &DataOptions) -> Result<Dataset, String> {
    read(name, bytes, options).map(|(dataset, ..)| dataset)
}

#[track_caller]
fn texts(name: &str, bytes: &[u8], options: &DataOptions) -> Vec<String> {
    read(name, bytes, options).unwrap().1
}

#[track_caller]
fn fails(name: &str, bytes: &[u8], options: &DataOptions, parts: &[&str]) {
    let Err(message) = open(name, bytes, options) else { panic!("{name} is read") };
    parts.iter().for_each(|part| assert!(message.contains(part), "`{part}` is not in: {message}"));
}

fn most(samples: usize) -> DataOptions {
    DataOptions { samples: NonZeroUsize::new(samples).unwrap(), ..DataOptions::default() }
}

#[test]
fn lines_are_texts() {
    let lines = "one\r\n\n  \ntwo  words\nthree".as_bytes();
    assert_eq!(texts("a.txt", lines, &DataOptions::default()), ["one", "two  words", "three"]);
    assert_eq!(texts("a.txt", b"one\n\ntwo\nthree\n", &most(2)), ["one", "two"]);
}

#[test]
fn members_of_objects_are_texts() {
    let lines = b"{\"text\": \"one\\n\", \"id\": 1}\n\n{\"text\": \"\"}\n{\"text\": \"two\"}\n";
    assert_eq!(texts("a.jsonl", lines, &DataOptions::default()), ["one\n", "two"]);
    let body = DataOptions { field: Some("body".to_owned()), ..DataOptions::default() };
    assert_eq!(texts("a.jsonl", b"{\"body\": \"x\"}", &body), ["x"]);
    fails("a.jsonl", lines, &body, &["a.jsonl, line 1", "there is no `body`, but `text`, `id`", "--field"]);
    let plain = DataOptions::default();
    let of = |names| DataOptions { names, ..body.clone() };
    fails("a.jsonl", lines, &of(OptionNames::FIELD), &["record; correct it", "--field names the member with the text"]);
    fails("a.jsonl", lines, &of(OptionNames::NONE), &["call the member with the text `text`"]);
    fails("a.jsonl", b"{\"text\": \"a\"}\n{\"text\": 3}", &plain, &["line 2", "`text` is not a string"]);
    fails("a.jsonl", b"\n{\"text\": ", &plain, &["line 2", "this is not JSON"]);
    fails("a.jsonl", b"[\"text\"]", &plain, &["line 1", "this is not a JSON object"]);
}

#[test]
fn files_without_texts_are_errors() {
    let plain = DataOptions::default();
    fails("a.txt", b"", &plain, &["a.txt contains no text"]);
    fails("a.txt", b" \n\t\n", &plain, &["a.txt contains no text"]);
    fails("a.txt", b"ok\n\xff\xfe\n", &plain, &["a.txt, line 2", "UTF-8"]);
    fails("a.tsv", b"x", &plain, &["a.tsv is not a data set", ".jsonl (an object a line)"]);
    let field = DataOptions { field: Some("x".to_owned()), ..DataOptions::default() };
    fails("a.txt", b"x", &field, &["--field is for .jsonl, .csv and .parquet files"]);
    let length = DataOptions { max_length: NonZeroUsize::new(4), ..DataOptions::default() };
    fails("a.npz", b"x", &length, &["--max-length is for texts"]);
    let device = Dataset::open(Path::new("/dev/null"), &plain).err().map(|e| e.to_string()).unwrap();
    assert!(device.contains("not a regular file: data is read more than once"), "{device}");
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt", "a.jsonl", "a.csv", "a.npz", "a.safetensors"] {
        let message = Dataset::open(&folder.path().join(name), &plain).err().map(|e| format!("{e:#}")).unwrap();
        assert!(message.contains("cannot read") && message.contains(name), "{message}");
    }
}

fn skipping() -> DataOptions {
    DataOptions { skip_bad: true, ..DataOptions::default() }
}

#[test]
fn one_bad_line_in_many_is_named_or_left_out() {
    let mut lines: Vec<u8> = Vec::new();
    for number in 1..=100_000 {
        match number {
            73_512 => lines.extend(b"{\"text\": \"cut o\n"),
            _ => lines.extend(format!("{{\"text\": \"{number}\"}}\n").as_bytes()),
        }
    }
    let all = DataOptions { samples: NonZeroUsize::MAX, ..DataOptions::default() };
    fails("a.jsonl", &lines, &all, &["a.jsonl, line 73512", "this is not JSON", "--skip-bad leaves such records out"]);
    let (_, texts, skipped) = read("a.jsonl", &lines, &DataOptions { skip_bad: true, ..all }).unwrap();
    assert_eq!((texts.len(), skipped, texts[73_511].as_str()), (99_999, 1, "73513"));
    assert_eq!(read("a.txt", b"a\n\xff\nb\n", &skipping()).unwrap().1, ["a", "b"]);
    fails("a.jsonl", b"{\n[\n", &skipping(), &["a.jsonl contains no text", "all of its 2 records are bad"]);
    fails("a.npz", b"x", &skipping(), &["--skip-bad is for texts"]);
}

#[test]
fn columns_of_tables_are_texts() {
    let table = "id,text,note\r\n1,\"two\nlines, and a \"\"quote\"\"\",x\r\n2,,y\r\n3,plain,\r\n".as_bytes();
    let plain = DataOptions::default();
    assert_eq!(texts("a.csv", table, &plain), ["two\nlines, and a \"quote\"", "plain"]);
    let note = DataOptions { field: Some("note".to_owned()), ..DataOptions::default() };
    assert_eq!(texts("a.csv", table, &note), ["x", "y"]);
    let body = DataOptions { field: Some("body".to_owned()), ..DataOptions::default() };
    fails("a.csv", table, &body, &["a.csv has no column `body`, but `id`, `text`, `note`", "--field"]);
    fails("a.csv", b"", &plain, &["a.csv contains no text"]);
    fails("a.csv", b"text\n", &plain, &["a.csv contains no text"]);
    let bad = b"id,text\n1,a\n2,\"b\nb\"\n3\n4,d\n5,\xff\n";
    fails("a.csv", bad, &plain, &["a.csv, line 5: it has 1 columns, and the header has 2"]);
    let (_, texts, skipped) = read("a.csv", bad, &skipping()).unwrap();
    assert_eq!((texts, skipped), (vec!["a".to_owned(), "b\nb".to_owned(), "d".to_owned()], 2));
    fails("a.csv", b"id,text\n1,\xff\n", &plain, &["a.csv, line 2: it is not UTF-8"]);
    fails("a.csv", b"text,id,text\na,1,b\n", &plain, &["a.csv has 2 columns `text`", "rename"]);
}

#[test]
fn ids_are_those_of_their_records() {
    let named = |name: &str| DataOptions { id: Some(IdField::Named(name.to_owned())), ..DataOptions::default() };
    fails("a.txt", b"one\n", &named("x"), &["--id is for .jsonl, .csv and .parquet files"]);
    for (name, bytes) in [("a.jsonl", &b"{\"text\": \"a\", \"id\": 7}\n"[..]), ("a.csv", b"text,id\na,7\n")] {
        fails(name, bytes, &named("text"), &["`text` is named twice"]);
        let usual = DataOptions { field: Some("id".to_owned()), id: Some(IdField::Usual), ..DataOptions::default() };
        let bytes = String::from_utf8_lossy(bytes).replace(": 7", ": \"7\"");
        let (_folder, path) = file(name, bytes.as_bytes());
        let Content::Texts(texts) = Dataset::open(&path, &usual).unwrap().content else { panic!("texts") };
        let sample = texts.texts().unwrap().next().unwrap().unwrap();
        assert_eq!((sample.text, sample.id), (Text::One("7".to_owned()), Some("7".into())), "{name}");
    }
    let usual = DataOptions { id: Some(IdField::Usual), ..DataOptions::default() };
    fails("a.csv", b"id,text,id\n1,a,2\n", &usual, &["a.csv has 2 columns `id`: rename all but one of them"]);
}

#[test]
fn an_open_quote_is_an_error() {
    let plain = DataOptions::default();
    let open = b"id,text\n1,a\n2,\"never closed\n3,b\n";
    assert_eq!(texts("a.csv", b"id,text\n1,last line without an end", &plain), ["last line without an end"]);
    fails("a.csv", open, &plain, &["a.csv, line 3: a quote of this record is not closed"]);
    let (_, texts, skipped) = read("a.csv", open, &skipping()).unwrap();
    assert_eq!((texts, skipped), (vec!["a".to_owned()], 1));
    fails("a.csv", b"id,\"text\n1,a\n", &plain, &["a.csv, line 1: a quote is not closed"]);
    fails("a.csv", b"text\n\"open", &plain, &["a.csv, line 2: a quote of this record is not closed"]);
}

#[test]
fn records_are_bounded() {
    let plain = DataOptions::default();
    let long = vec![b'x'; 17 << 20];
    let lines = [b"a\n", long.as_slice(), b"\nb\n"].concat();
    fails("a.txt", &lines, &plain, &["a.txt, line 2: it has more than 16777216 bytes"]);
    assert_eq!(read("a.txt", &lines, &skipping()).unwrap().1, ["a", "b"]);
    let table = [b"text\n\"", long.as_slice(), b"\"\nb\n"].concat();
    fails(
        "a.csv",
        &table,
        &plain,
        &["a.csv, line 2", "the record has more than 16777216 bytes", "is a quote not closed?"],
    );
    let columns: Vec<String> = (0..1000).map(|column| format!("c{column}")).collect();
    fails("a.csv", (columns.join(",") + "\n").as_bytes(), &plain, &["`c19` and 980 more; --field"]);
}

#[cfg(feature = "parquet")]
mod parquet {
    use std::sync::Arc;

    use ::parquet::basic::{Compression, ZstdLevel};
    use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    use super::*;

    /// A file with a column of numbers and one of texts, in row groups of three.
    fn table(texts: &[Option<&str>], compression: Compression) -> Vec<u8> {
        table_of("required int64 id", texts, compression)
    }

    fn table_of(id: &str, texts: &[Option<&str>], compression: Compression) -> Vec<u8> {
        let schema = format!("message rows {{ {id}; optional binary text (UTF8); }}");
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
        for group in texts.chunks(3) {
            let mut rows = writer.next_row_group().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let ids: Vec<i64> = (0i64..).take(group.len()).collect();
            column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let present: Vec<ByteArray> = group.iter().flatten().map(|text| ByteArray::from(*text)).collect();
            let levels: Vec<i16> = group.iter().map(|text| i16::from(text.is_some())).collect();
            column.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None).unwrap();
            column.close().unwrap();
            rows.close().unwrap();
        }
        writer.close().unwrap();
        bytes
    }

    #[test]
    fn columns_are_texts() {
        let plain = DataOptions::default();
        let all = [Some("one"), Some("two"), Some(""), Some("three"), Some("v\u{ef}er")];
        let zstd = Compression::ZSTD(ZstdLevel::default());
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd, Compression::LZ4_RAW] {
            let bytes = table(&all, compression);
            assert_eq!(texts("a.parquet", &bytes, &plain), ["one", "two", "three", "v\u{ef}er"]);
        }
        let bytes = table(&[Some("a"), None, Some("b"), Some("c"), None], Compression::SNAPPY);
        fails("a.parquet", &bytes, &plain, &["a.parquet, row 2: `text` is null", "--skip-bad"]);
        let (_, texts, skipped) = read("a.parquet", &bytes, &skipping()).unwrap();
        assert_eq!((texts.len(), skipped), (3, 2));
        let id = DataOptions { field: Some("id".to_owned()), ..DataOptions::default() };
        fails("a.parquet", &bytes, &id, &["a.parquet, row 1: `id` is not a string"]);
        let usual = DataOptions { id: Some(IdField::Usual), ..DataOptions::default() };
        let times = table_of("required int64 id (TIMESTAMP(MILLIS, true))", &[Some("a")], Compression::SNAPPY);
        fails("a.parquet", &times, &usual, &["a.parquet, row 1: `id`, which says what a record is called, is neither"]);
        let body = DataOptions { field: Some("body".to_owned()), ..DataOptions::default() };
        fails("a.parquet", &bytes, &body, &["a.parquet has no column `body`, but `id`, `text`"]);
        fails("a.parquet", &table(&[], Compression::SNAPPY), &plain, &["a.parquet contains no text"]);
        fails("a.parquet", b"PAR1 and no more", &plain, &["a.parquet is not a Parquet file"]);
        fails("a.parquet", b"", &plain, &["a.parquet is not a Parquet file"]);
        fails("a.parquet", &bytes[..bytes.len() / 2], &plain, &["a.parquet is not a Parquet file"]);
    }
}

#[test]
fn every_fifth_sample_is_held_out() {
    let lines: String = (1..=12).map(|line| format!("{line}\n")).collect();
    let split = |split: Split, samples: usize| {
        texts("a.txt", lines.as_bytes(), &DataOptions { split, ..most(samples) }).join(" ")
    };
    assert_eq!(split(Split::HeldOut, 100), "5 10");
    assert_eq!(split(Split::Rest, 100), "1 2 3 4 6 7 8 9 11 12");
    assert_eq!((split(Split::HeldOut, 9), split(Split::Rest, 6)), ("5".to_owned(), "1 2 3 4 6".to_owned()));
    let held_out = DataOptions { split: Split::HeldOut, ..most(4) };
    fails("a.txt", lines.as_bytes(), &held_out, &["a.txt has fewer than 5 samples", "--evaluate"]);
    assert_eq!(Split::HeldOut.samples(3).get(), 15);
    assert_eq!((Split::All.samples(3).get(), Split::All.samples(0).get()), (3, 1));
}
