use std::fs;
use std::io::Write;
use std::ops::Range;

use planish_eval::Tensor;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::batches::check_types;
use super::*;
use crate::artifact::value::ValueInfo;

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
        let Content::Texts(file) = &dataset.content else { return Ok((dataset, Vec::new(), 0)) };
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

fn rows(dataset: &Dataset, samples: Range<usize>) -> Vec<(String, Tensor)> {
    match &dataset.content {
        Content::Arrays(arrays) => arrays.rows(samples).unwrap(),
        Content::Texts(_) => panic!("arrays"),
    }
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
        let schema = "message rows { required int64 id; optional binary text (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
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
        let body = DataOptions { field: Some("body".to_owned()), ..DataOptions::default() };
        fails("a.parquet", &bytes, &body, &["a.parquet has no column `body`, but `id`, `text`"]);
        fails("a.parquet", &table(&[], Compression::SNAPPY), &plain, &["a.parquet contains no text"]);
        fails("a.parquet", b"PAR1 and no more", &plain, &["a.parquet is not a Parquet file"]);
        fails("a.parquet", b"", &plain, &["a.parquet is not a Parquet file"]);
        fails("a.parquet", &bytes[..bytes.len() / 2], &plain, &["a.parquet is not a Parquet file"]);
    }
}

/// An array as NumPy writes it.
fn npy(descr: &str, order: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat()
}

fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (index, (name, bytes)) in arrays.iter().enumerate() {
        // As savez and as savez_compressed.
        let method = [CompressionMethod::Stored, CompressionMethod::Deflated][index % 2];
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn arrays_are_samples_of_inputs() {
    let ids: Vec<u8> = (0..6i64).flat_map(i64::to_le_bytes).collect();
    let floats: Vec<u8> = (0..3).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let halves: Vec<u8> = [0x3c00u16, 0x4000, 0x4200].into_iter().flat_map(u16::to_le_bytes).collect();
    let small: Vec<u8> = (0..3i32).flat_map(i32::to_le_bytes).collect();
    let bytes = npz(&[
        ("ids.npy", npy("<i8", "False", "(3, 2)", &ids)),
        ("x.npy", npy("<f4", "False", "(3, 1, 1)", &floats)),
        ("half.npy", npy("<f2", "False", "(3,)", &halves)),
        ("small.npy", npy("<i4", "False", "(3,)", &small)),
        ("mask.npy", npy("|b1", "False", "(3,)", &[1, 0, 1])),
    ]);
    let all = open("a.npz", &bytes, &DataOptions::default()).unwrap();
    assert_eq!(all.most(), 3);
    let rows = |range| rows(&all, range).into_iter().collect::<std::collections::BTreeMap<_, _>>();
    let last = rows(1..3);
    assert_eq!(last["ids"], Tensor::new(vec![2, 2], vec![2i64, 3, 4, 5]).unwrap());
    assert_eq!(last["x"], Tensor::new(vec![2, 1, 1], vec![1f32, 2.0]).unwrap());
    assert_eq!((last["half"].to_f64(), last["small"].to_f64()), (vec![2.0, 3.0], vec![1.0, 2.0]));
    assert_eq!(last["mask"], Tensor::new(vec![2], vec![false, true]).unwrap());
    let one = open("a.npz", &bytes, &most(1)).unwrap();
    assert_eq!((one.most(), super::tests::rows(&one, 0..1)[0].1.shape()), (1, &[1, 2][..]));
}

#[test]
fn arrays_that_are_no_samples_are_errors() {
    let plain = DataOptions::default();
    let one = |array: Vec<u8>| npz(&[("x.npy", array)]);
    let four = [0u8; 4];
    fails("a.npz", b"text", &plain, &["a.npz is not an .npz file"]);
    fails("a.npz", &npz(&[]), &plain, &["a.npz contains no array"]);
    fails("a.npz", &npz(&[("x.bin", vec![1])]), &plain, &["contains `x.bin`, which is not an .npy array"]);
    fails("a.npz", &one(b"\x93NUM".to_vec()), &plain, &["the array `x` of", "it is not a NumPy array"]);
    fails("a.npz", &one(b"PK3456789".to_vec()), &plain, &["it is not a NumPy array"]);
    fails("a.npz", &one(npy("<f8", "False", "(1,)", &[0; 8])), &plain, &["its type is <f8", ".astype"]);
    fails("a.npz", &one(npy(">f4", "False", "(1,)", &four)), &plain, &["its type is >f4"]);
    fails("a.npz", &one(npy("<f4", "True", "(1, 1)", &four)), &plain, &["np.ascontiguousarray"]);
    fails("a.npz", &one(npy("<f4", "False", "(2,)", &four)), &plain, &["it ends after 4 bytes", "needs 8"]);
    fails("a.npz", &one(npy("<f4", "False", "(1, x)", &four)), &plain, &["its shape has the size `x`"]);
    fails("a.npz", &one(npy("<f4", "False", "()", &four)), &plain, &["`x` of", "has no axis"]);
    fails("a.npz", &one(npy("<f4", "False", "(0, 3)", &[])), &plain, &["contains no samples"]);
    let huge = npy("<f4", "False", "(1, 4611686018427387904, 4)", &four);
    fails("a.npz", &one(huge), &plain, &["more than fit in memory"]);
    let two = npz(&[("x.npy", npy("<f4", "False", "(1,)", &four)), ("y.npy", npy("|b1", "False", "(2,)", &[0, 1]))]);
    fails("a.npz", &two, &plain, &["`x` of", "has 1 samples and `y` 2"]);
    fails("a.safetensors", b"text", &plain, &["a.safetensors is not a safetensors file"]);
}

#[test]
fn types_and_ranks_are_those_of_the_model() {
    let port = |dtype: &str, shape: &[&str]| Input {
        value: ValueInfo { name: "x".to_owned(), ty: format!("{dtype}[{}]", shape.join(", ")).parse().unwrap() },
        end: None,
    };
    let given = [("x".to_owned(), Tensor::new(vec![1, 2], vec![0f32; 2]).unwrap())];
    let check = |input: Input| check_types(&given, &[("x".into(), &input)]).map_err(|e| e.to_string());
    assert_eq!(check(port("f32", &["batch_size", "2"])), Ok(()));
    let wrong = |takes: &str| Err(format!("`x` is f32[1, 2], a batch included; the model takes {takes}"));
    assert_eq!(check(port("i64", &["batch_size", "2"])), wrong("i64[batch_size, 2]"));
    assert_eq!(check(port("f32", &["batch_size", "3"])), wrong("f32[batch_size, 3]"));
    assert_eq!(check(port("f32", &["batch_size"])), wrong("f32[batch_size]"));
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

    let tensors = |split: Split, count: i64| {
        let x = Tensor::new(vec![usize::try_from(count).unwrap(), 2], (0..2 * count).collect::<Vec<i64>>()).unwrap();
        let bytes = x.to_bytes();
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::I64, x.shape().to_vec(), &bytes).unwrap();
        let file = safetensors::serialize([("x", view)], None).unwrap();
        open("a.safetensors", &file, &DataOptions { split, ..DataOptions::default() })
    };
    let dataset = tensors(Split::HeldOut, 11).unwrap();
    assert_eq!(rows(&dataset, 0..2)[0].1.to_f64(), [8.0, 9.0, 18.0, 19.0]);
    assert_eq!(tensors(Split::Rest, 11).unwrap().most(), 9);
    assert!(tensors(Split::HeldOut, 4).is_err_and(|error| error.contains("fewer than 5 samples")));
}
