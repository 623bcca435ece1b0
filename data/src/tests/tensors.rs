//! Files of tensors.

use std::io::Write;

use planish_artifact::value::ValueInfo;
use planish_eval::Tensor;
use planish_ir::InputRole;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::super::batches::{Reader, Wanted};
use super::super::checks::check_types;
use super::super::tensors::read_whole;
use super::*;

/// The samples along the first axes of a data set.
pub(super) fn arrays(dataset: &Dataset, options: &DataOptions) -> Result<Arrays> {
    let Content::Tensors(files) = &dataset.content else { panic!("tensors") };
    match dataset.tensors(files, &Vec::new(), options)? {
        Reader::Rows(arrays) => Ok(arrays),
        _ => panic!("rows"),
    }
}

/// The samples of a file of tensors.
fn rows(name: &str, bytes: &[u8], options: &DataOptions) -> Result<Arrays, String> {
    let (_folder, path) = file(name, bytes);
    let read = || arrays(&Dataset::open(&path, options)?, options);
    read().map_err(|e: anyhow::Error| format!("{e:#}"))
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
    let all = rows("a.npz", &bytes, &DataOptions::default()).unwrap();
    assert_eq!(all.samples(), 3);
    let last: std::collections::BTreeMap<_, _> = all.rows(1..3).unwrap().into_iter().collect();
    assert_eq!(last["ids"], Tensor::new(vec![2, 2], vec![2i64, 3, 4, 5]).unwrap());
    assert_eq!(last["x"], Tensor::new(vec![2, 1, 1], vec![1f32, 2.0]).unwrap());
    assert_eq!((last["half"].to_f64(), last["small"].to_f64()), (vec![2.0, 3.0], vec![1.0, 2.0]));
    assert_eq!(last["mask"], Tensor::new(vec![2], vec![false, true]).unwrap());
    let one = rows("a.npz", &bytes, &most(1)).unwrap();
    assert_eq!((one.samples(), one.rows(0..1).unwrap()[0].1.shape()), (1, &[1, 2][..]));
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
        role: InputRole::Other,
    };
    let given = [("x".to_owned(), Tensor::new(vec![1, 2], vec![0f32; 2]).unwrap())];
    let check = |input: Input| check_types(&given, &[("x".into(), &input)], false).map_err(|e| e.to_string());
    assert_eq!(check(port("f32", &["batch_size", "2"])), Ok(()));
    let wrong = |takes: &str| Err(format!("`x` is f32[1, 2], a batch included; the model takes {takes}"));
    assert_eq!(check(port("i64", &["batch_size", "2"])), wrong("i64[batch_size, 2]"));
    assert_eq!(check(port("f32", &["batch_size", "3"])), wrong("f32[batch_size, 3]"));
    assert_eq!(check(port("f32", &["batch_size"])), wrong("f32[batch_size]"));
    let run = check_types(&given, &[("x".into(), &port("f32", &["nodes", "3"]))], true).unwrap_err().to_string();
    assert_eq!(run, "`x` is f32[1, 2]; the model takes f32[nodes, 3], and a file has the inputs of one run");
}

/// The samples of a model whose inputs have no first dimension in common.
#[test]
fn files_of_a_folder_are_samples() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, nodes: usize| {
        let x: Vec<u8> = (0..nodes * 2).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let arrays = [
            ("x.npy", npy("<f4", "False", &format!("({nodes}, 2)"), &x)),
            ("s.npy", npy("<f4", "False", "()", &[0; 4])),
        ];
        fs::write(folder.path().join(name), npz(&arrays)).unwrap();
    };
    (1..=6).rev().for_each(|nodes| write(&format!("{nodes}.npz"), nodes));
    fs::write(folder.path().join("notes.md"), "of something else").unwrap();
    let input = |name: &str, ty: &str| Input {
        value: ValueInfo { name: name.to_owned(), ty: ty.parse().unwrap() },
        end: None,
        role: InputRole::Other,
    };
    let inputs = [input("x", "f32[nodes, 2]"), input("s", "f32[]")];
    let wanted: Wanted<'_> = inputs.iter().map(|input| (input.value.name.as_str().into(), input)).collect();
    let read = |path: &Path, options: &DataOptions| -> Result<Vec<String>, String> {
        let dataset = Dataset::open(path, options).map_err(|e| format!("{e:#}"))?;
        let Content::Tensors(files) = &dataset.content else { panic!("tensors") };
        match dataset.tensors(files, &wanted, options).map_err(|e| format!("{e:#}"))? {
            Reader::Files(files) => {
                Ok(files.iter().map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect())
            }
            _ => panic!("files"),
        }
    };
    let plain = DataOptions::default();
    assert_eq!(read(folder.path(), &plain).unwrap(), ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(read(folder.path(), &most(2)).unwrap(), ["1", "2"]);
    assert_eq!(read(&folder.path().join("3.npz"), &plain).unwrap(), ["3"]);
    let split = |split| DataOptions { split, ..DataOptions::default() };
    assert_eq!(read(folder.path(), &split(Split::HeldOut)).unwrap(), ["5"]);
    let few = read(&folder.path().join("3.npz"), &split(Split::Rest)).unwrap_err();
    assert!(few.contains("3.npz has fewer than 5 samples"), "{few}");
    let batch = DataOptions { batch: NonZeroUsize::new(8), ..DataOptions::default() };
    let batch = read(folder.path(), &batch).unwrap_err();
    assert!(batch.contains("--batch 8") && batch.contains("x: f32[nodes, 2], s: f32[]"), "{batch}");
    let tensors = read_whole(&folder.path().join("3.npz")).unwrap();
    assert_eq!((tensors[0].1.shape(), tensors[1].1.shape()), (&[3, 2][..], &[][..]));

    let known = described(folder.path()).unwrap();
    assert_eq!(known, described(folder.path()).unwrap());
    fs::write(folder.path().join("notes.md"), "of other things").unwrap();
    assert_eq!(known, described(folder.path()).unwrap(), "files of tensors alone count");
    write("3.npz", 4);
    assert_ne!(known.blake3, described(folder.path()).unwrap().blake3);
    let field = Dataset::open(folder.path(), &DataOptions { field: Some("x".to_owned()), ..plain.clone() });
    assert!(field.is_err_and(|error| error.to_string().contains("--field is for .jsonl")));
    let rows = Dataset::open(folder.path(), &plain).unwrap();
    let error = arrays(&rows, &plain).err().unwrap().to_string();
    assert!(
        error.contains("is a folder, and the inputs of this model have their first dimension in common"),
        "{error}"
    );
    fs::write(folder.path().join("7.npz"), "text").unwrap();
    assert!(read(folder.path(), &plain).unwrap_err().contains("7.npz is not an .npz file"));
    let empty = tempfile::tempdir().unwrap();
    assert!(read(empty.path(), &plain).unwrap_err().contains("contains no .npz or .safetensors file"));
}

#[test]
fn every_fifth_row_is_held_out() {
    let tensors = |split: Split, count: i64| {
        let x = Tensor::new(vec![usize::try_from(count).unwrap(), 2], (0..2 * count).collect::<Vec<i64>>()).unwrap();
        let bytes = x.to_bytes();
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::I64, x.shape().to_vec(), &bytes).unwrap();
        let file = safetensors::serialize([("x", view)], None).unwrap();
        rows("a.safetensors", &file, &DataOptions { split, ..DataOptions::default() })
    };
    let held_out = tensors(Split::HeldOut, 11).unwrap();
    assert_eq!(held_out.rows(0..2).unwrap()[0].1.to_f64(), [8.0, 9.0, 18.0, 19.0]);
    assert_eq!(tensors(Split::Rest, 11).unwrap().samples(), 9);
    for split in [Split::HeldOut, Split::Rest] {
        assert!(tensors(split, 4).is_err_and(|error| error.contains("fewer than 5 samples")), "{split:?}");
    }
}
