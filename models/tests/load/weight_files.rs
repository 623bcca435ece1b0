//! Weight files that are cut short, malformed or contradict themselves.

use planish_testing::scratch;
use std::fs;

use planish_ir::WeightSource;
use planish_models::{MAX_HEADER_BYTES, WeightFile};

use crate::support::{assert_says, golden};

/// A file of a header and data bytes.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn open(bytes: &[u8]) -> Result<WeightFile, String> {
    let folder = scratch();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, bytes).unwrap();
    WeightFile::open(&path).map_err(|e| e.to_string())
}

#[track_caller]
fn assert_refused(bytes: &[u8], parts: &[&str]) {
    let error = open(bytes).expect_err("this should not open");
    assert_says(&error, &[&["model.safetensors: "], parts].concat());
}

#[test]
fn a_golden_opens() {
    let path = golden("bert").join("model.safetensors");
    let file = WeightFile::open(&path).unwrap();
    assert_eq!(file.name(), "model.safetensors");
    assert_eq!(file.bytes(), fs::metadata(&path).unwrap().len());
    let bias = &file.tensors()["pooler.dense.bias"];
    assert_eq!((bias.dtype.as_str(), bias.shape.as_slice()), ("F32", [48].as_slice()));
    let mut bytes = vec![0; 192];
    file.read_at(bias.offset, &mut bytes).unwrap();
    assert_eq!(bytes, fs::read(&path).unwrap()[usize::try_from(bias.offset).unwrap()..][..192]);
    assert_eq!(file.file_path().unwrap(), path);
}

#[test]
fn files_cut_short_are_refused_wherever_they_end() {
    let whole = fs::read(golden("bert").join("model.safetensors")).unwrap();
    let header = usize::try_from(u64::from_le_bytes(whole[..8].try_into().unwrap())).unwrap();
    assert_refused(&[], &["0 bytes", "cut short"]);
    assert_refused(&whole[..7], &["7 bytes", "cut short"]);
    assert_refused(&whole[..8], &["the header ends at byte", "the file has 8", "cut short"]);
    assert_refused(&whole[..header], &["the header ends at byte", "cut short"]);
    assert_refused(&whole[..8 + header], &["the file has 0", "cut short", "download it again"]);
    assert_refused(&whole[..whole.len() - 1], &["tensor `pooler.dense.weight`", "cut short"]);
}

#[test]
fn headers_that_are_too_long_are_refused_before_they_are_read() {
    assert_refused(&u64::MAX.to_le_bytes(), &["18446744073709551615", "not a safetensors file"]);
    assert_refused(&(MAX_HEADER_BYTES + 1).to_le_bytes(), &["100000001", "100000000"]);
    assert_refused(b"version https://git-lfs.github.com/spec/v1", &["pointer of Git LFS", "git lfs pull"]);
}

#[test]
fn malformed_headers_are_refused() {
    assert_refused(&file("{", 0), &["header is malformed"]);
    assert_refused(&file("", 0), &["header is malformed"]);
    assert_refused(&file("[1]", 0), &["header is malformed", "expected an object of tensors"]);
    assert_refused(&file("\u{0}\u{1}", 0), &["header is malformed"]);
    let incomplete = r#"{"w":{"dtype":"F32","data_offsets":[0,4]}}"#;
    assert_refused(&file(incomplete, 4), &["tensor `w`", "missing field `shape`"]);
    let negative = r#"{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#;
    assert_refused(&file(negative, 4), &["tensor `w`", "-1"]);
}

#[test]
fn tensors_must_cover_the_data_once() {
    let two = |a: [u64; 2], b: [u64; 2]| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},"b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}}"#,
            a[1].wrapping_sub(a[0]),
            a[0],
            a[1],
            b[1].wrapping_sub(b[0]),
            b[0],
            b[1]
        )
    };
    assert!(open(&file(&two([0, 4], [4, 8]), 8)).is_ok());
    assert!(open(&file(&two([4, 8], [0, 4]), 8)).is_ok());
    assert_refused(&file(&two([0, 4], [3, 7]), 7), &["`a` and `b` overlap at byte 3"]);
    assert_refused(&file(&two([0, 4], [5, 8]), 8), &["no tensor covers bytes 4 to 5", "`b`"]);
    assert_refused(&file(&two([0, 4], [4, 9]), 8), &["`b` ends at byte 9", "has 8", "cut short"]);
    assert_refused(&file(&two([0, 4], [4, 8]), 9), &["no tensor covers the last 1 bytes"]);
    assert_refused(&file(&two([0, 4], [4, 2]), 8), &["`b` ends at byte 2, before its start at 4"]);
    assert_refused(&file("{}", 3), &["no tensor covers the last 3 bytes"]);
}

#[test]
fn sizes_must_follow_from_type_and_shape() {
    let one = |dtype: &str, shape: &str, bytes: u64| {
        file(&format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{bytes}]}}}}"#), 8)
    };
    assert!(open(&one("F32", "[2]", 8)).is_ok());
    assert!(open(&one("F4", "[16]", 8)).is_ok());
    assert_refused(&one("F32", "[3]", 8), &["tensor `w` is F32[3] but takes 8 bytes"]);
    assert_refused(&one("BF16", "[]", 8), &["tensor `w` is BF16[] but takes 8 bytes"]);
    assert_refused(&one("F32", "[4611686018427387904, 4]", 8), &["tensor `w`", "takes 8 bytes"]);
    // A type that the format does not define is an error only where the tensor is used.
    assert!(open(&one("F128", "[1]", 8)).unwrap().tensors()["w"].element_type().is_none());
}

#[test]
fn names_are_unique() {
    let header =
        r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    assert_refused(&file(header, 2), &["tensor `w` twice"]);
}

#[test]
fn folders_are_no_weight_files() {
    let folder = scratch();
    let error = WeightFile::open(folder.path()).unwrap_err().to_string();
    assert_says(&error, &["not a regular file"]);
    let error = WeightFile::open(&folder.path().join("none.safetensors")).unwrap_err().to_string();
    assert_says(&error, &["cannot read", "none.safetensors"]);
}
