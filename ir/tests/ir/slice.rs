//! Ranges of an axis of weights have the elements that a gather of the whole has.

use std::io;
use std::path::Path;
use std::sync::Arc;

use planish_ir::weight::{Channels, StoredRange};
use planish_ir::{DType, Weight, WeightSource};

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl WeightSource for Bytes {
    fn name(&self) -> &str {
        "bytes"
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
        Ok(())
    }

    fn file_path(&self) -> Option<&Path> {
        None
    }
}

/// Stored floats that count from 0 on.
fn stored(shape: &[usize]) -> Weight {
    let count: usize = shape.iter().product();
    let bytes = (0..count).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let range = StoredRange { source: Arc::new(Bytes(bytes)), offset: 0 };
    Weight::stored(DType::F32, shape.to_vec(), range).unwrap()
}

#[test]
fn slices_have_the_elements_of_a_gather() {
    let of = stored(&[6, 4]);
    let codes = Weight::numbers(DType::I8, vec![4, 8], &(0..32).map(f64::from).collect::<Vec<_>>()).unwrap();
    let blocks = codes.dequantize(Channels::Blocks { axis: 1, size: 4 }, &stored(&[4, 2]), None).unwrap();
    let rows = codes.dequantize(0, &stored(&[4]), None).unwrap();
    let weights = [
        of.clone(),
        of.transpose(&[1, 0]).unwrap(),
        of.cast(DType::F16).unwrap(),
        Weight::concat(&[of.clone(), stored(&[2, 4])], 0).unwrap(),
        Weight::concat(&[of.clone(), stored(&[6, 3])], 1).unwrap(),
        of.pad(&[9, 5], 7.0).unwrap(),
        of.reshape(&[3, 2, 4]).unwrap(),
        of.transpose(&[1, 0]).unwrap().reshape(&[2, 2, 6]).unwrap(),
        of.gather(0, &[5, 1, 3, 0]).unwrap(),
        of.scale(1, &stored(&[4])).unwrap(),
        of.plus_product(&stored(&[6, 2]), &stored(&[2, 4])).unwrap(),
        blocks,
        rows,
        Weight::uniform(DType::F32, vec![5, 4], 3).unwrap(),
        Weight::numbers(DType::I4, vec![3, 3], &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0, 4.0, 5.0, 6.0]).unwrap(),
    ];
    for weight in &weights {
        for axis in 0..weight.shape().len() {
            let size = weight.shape()[axis];
            for (start, end) in (0..size).flat_map(|start| (start + 1..=size).map(move |end| (start, end))) {
                let expected = weight.gather(axis, &(start..end).collect::<Vec<_>>()).unwrap();
                let sliced = weight.slice(axis, start..end).unwrap();
                assert_eq!(sliced.shape(), expected.shape());
                assert_eq!(
                    sliced.read().unwrap(),
                    expected.read().unwrap(),
                    "{start}..{end} of axis {axis}: {weight:?}"
                );
            }
        }
    }
}

#[test]
fn rows_of_a_file_are_ranges_of_it() {
    let of = stored(&[6, 4]);
    assert_eq!(of.slice(0, 2..4).unwrap().as_stored().unwrap().offset, 32);
    assert!(of.slice(1, 2..4).unwrap().as_stored().is_none());
    assert_eq!(of.reshape(&[3, 2, 4]).unwrap().slice(0, 1..2).unwrap().as_stored().unwrap().offset, 32);
    let half = Weight::concat(&[of.clone(), stored(&[6, 4])], 0).unwrap().slice(0, 7..9).unwrap();
    assert_eq!(half.as_stored().unwrap().offset, 16);
    assert!(of.slice(0, 4..7).is_none() && of.slice(2, 0..1).is_none());
    // A block of codes that is cut has no scale of its own.
    let codes = Weight::numbers(DType::I8, vec![1, 8], &[1.0; 8]).unwrap();
    let blocks = codes.dequantize(Channels::Blocks { axis: 1, size: 4 }, &stored(&[1, 2]), None).unwrap();
    assert!(blocks.slice(1, 4..8).unwrap().as_dequantized().is_some());
    assert!(blocks.slice(1, 2..6).unwrap().as_dequantized().is_none());
    // A part of one block has that block's.
    assert!(blocks.slice(1, 5..7).unwrap().as_dequantized().is_some());
}
