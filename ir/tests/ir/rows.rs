//! Slices of the first axis of weights.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use planish_ir::ops::Real;
use planish_ir::weight::{BlockFit, Channels, GgmlBlock, Packing, Search, StoredRange, WeightSource};
use planish_ir::{DType, Weight};

/// A file of rising bytes that notes which of them are read.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<(u64, usize)>>);

impl WeightSource for Noted {
    fn name(&self) -> &str {
        "noted"
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.lock().unwrap().push((offset, buffer.len()));
        // Small numbers of float32, none of them equal to its neighbour.
        let byte = |at: u64| if at % 4 == 3 { 60 + (at / 4 % 4) as u8 } else { (at * 37 % 251) as u8 };
        buffer.iter_mut().zip(offset..).for_each(|(to, at)| *to = byte(at));
        Ok(())
    }
    fn file_path(&self) -> Option<&Path> {
        None
    }
}

fn stored(source: &Arc<Noted>, shape: &[usize], offset: u64) -> Weight {
    let source: Arc<dyn WeightSource> = Arc::clone(source) as _;
    Weight::stored(DType::F32, shape.to_vec(), StoredRange { source, offset }).unwrap()
}

/// Stacked matrices as the kinds of weights that files and passes make of them, [4, 6, 8] each, of which a slice reads a
/// quarter of the file.
fn stacks(source: &Arc<Noted>) -> Vec<(&'static str, Weight)> {
    let plain = stored(source, &[4, 6, 8], 16);
    let each: Vec<Weight> = (0..4).map(|e| stored(source, &[1, 6, 8], 16 + e * 4 * 48)).collect();
    let matrix = plain.reshape(&[24, 8]).unwrap();
    let signed = BlockFit { codes: DType::I4, size: 4, search: Search::LeastSquares, negative: true };
    let unsigned = BlockFit { codes: DType::U8, negative: false, ..signed };
    let fitted = |fit: BlockFit| {
        let codes = matrix.fit(fit, None).unwrap();
        codes
            .codes
            .dequantize(codes.channels, &codes.scales, codes.zero_points.as_ref())
            .unwrap()
            .reshape(&[4, 6, 8])
            .unwrap()
    };
    let scales = Weight::numbers(DType::F32, vec![4], &[0.5, 0.25, 0.125, 2.0]).unwrap();
    let by_stack = plain.quantize(DType::I8, 0, &scales, None).unwrap();
    let by_column = Weight::numbers(DType::F32, vec![8], &[0.5; 8]).unwrap();
    let numbers = |rows: usize, columns: usize| {
        let numbers: Vec<f64> = (0..rows * columns).map(|i| i as f64 / 16.0).collect();
        Weight::numbers(DType::F32, vec![rows, columns], &numbers).unwrap()
    };
    let adapted = matrix.plus_product(&numbers(24, 2), &numbers(2, 8)).unwrap().reshape(&[4, 6, 8]).unwrap();
    vec![
        ("plain", plain.clone()),
        ("plus a product", adapted),
        ("transposed", plain.transpose(&[0, 2, 1]).unwrap().reshape(&[4, 6, 8]).unwrap()),
        ("of matrices", Weight::concat(&each, 0).unwrap()),
        (
            "joined",
            Weight::concat(&[plain.clone(), plain.clone()], 2).unwrap().gather(2, &[0, 1, 2, 3, 8, 9, 10, 11]).unwrap(),
        ),
        (
            "every other",
            Weight::concat(&[plain.clone(), plain.clone()], 2)
                .unwrap()
                .gather(2, &[0, 2, 4, 6, 8, 10, 12, 14])
                .unwrap(),
        ),
        ("cast", plain.cast(DType::F16).unwrap().cast(DType::F32).unwrap()),
        ("padded", plain.gather(1, &[0, 1, 2]).unwrap().pad(&[4, 6, 8], 2.0).unwrap()),
        ("permuted", plain.gather(0, &[2, 0, 3, 1]).unwrap()),
        ("fitted", fitted(signed)),
        ("fitted with zero points", fitted(unsigned)),
        ("scales of stacks", by_stack.dequantize(0, &scales, None).unwrap()),
        ("scales of columns", plain.quantize(DType::I8, 2, &by_column, None).unwrap().flip_sign().unwrap()),
        ("times norms", plain.scale(0, &plain.inverse_norms(0).unwrap()).unwrap()),
        ("times factors", plain.scale(0, &scales).unwrap().scale(2, &by_column).unwrap()),
    ]
}

#[test]
fn a_slice_has_the_elements_of_the_whole_and_reads_no_others() {
    let source = Arc::new(Noted::default());
    for (name, stack) in stacks(&source) {
        let whole = stack.read_numbers().unwrap();
        for (first, count) in [(0, 1), (2, 1), (3, 1), (1, 2), (0, 4)] {
            let slice = stack.rows(first..first + count).unwrap();
            assert_eq!(slice.shape(), [count, 6, 8], "{name}");
            source.0.lock().unwrap().clear();
            assert_eq!(
                slice.read_numbers().unwrap(),
                whole[first * 48..(first + count) * 48],
                "{name} {first} {count}"
            );
            let reads = source.0.lock().unwrap();
            let numbers = reads.iter().map(|(offset, bytes)| (offset - 16, *bytes as u64));
            let (from, to) = match name {
                "permuted" => continue,
                _ => (first as u64 * 192, (first + count) as u64 * 192),
            };
            assert!(numbers.clone().count() > 0, "{name}");
            assert!(numbers.clone().all(|(at, bytes)| at >= from && at + bytes <= to), "{name}: {reads:?}");
        }
        assert_eq!(stack.rows(3..5), None);
        assert_eq!(stack.rows(usize::MAX - 1..usize::MAX), None);
    }
}

#[test]
fn codes_stay_codes() {
    let source = Arc::new(Noted::default());
    let stacks = stacks(&source);
    for name in ["fitted", "fitted with zero points"] {
        let stack = &stacks.iter().find(|(own, _)| *own == name).unwrap().1;
        let matrix = stack.rows(1..2).unwrap().reshape(&[6, 8]).unwrap();
        let codes = matrix.as_dequantized().unwrap();
        assert_eq!(
            (codes.codes.shape(), codes.channels),
            (&[6, 8][..], Channels::Blocks { axis: 1, size: 4 }),
            "{name}"
        );
    }
}

#[test]
fn what_no_slice_can_be_taken_of_is_sliced_as_a_whole() {
    let random = Weight::uniform(DType::F32, vec![3, 5], 7).unwrap();
    let numbers = random.read_numbers().unwrap();
    assert_eq!(random.rows(1..3).unwrap().read_numbers().unwrap(), numbers[5..]);
    // Three codes of four bits end within a byte.
    let codes = Weight::numbers(DType::U4, vec![4, 3], &(0..12).map(f64::from).collect::<Vec<_>>()).unwrap();
    assert_eq!(codes.rows(1..2).unwrap().read_numbers().unwrap(), [3.0, 4.0, 5.0]);
    assert_eq!(codes.rows(2..4).unwrap().read_numbers().unwrap(), (6..12).map(f64::from).collect::<Vec<_>>());
    // Another axis comes first after the transposition.
    let turned = random.transpose(&[1, 0]).unwrap();
    assert_eq!(turned.rows(2..3).unwrap().read_numbers().unwrap(), [numbers[2], numbers[7], numbers[12]]);
}

#[test]
fn packed_numbers_are_unpacked_slice_by_slice() {
    let bytes = |count: usize| (0..count).map(|i| (i * 73 % 256) as u8).collect::<Vec<u8>>();
    let packed = |count: usize| Weight::inline(DType::U8, vec![count], bytes(count)).unwrap();
    let table: Vec<f64> = (0..16).map(|i| f64::from(i) - 8.0).collect();
    let parts = [
        packed(4 * 2 * 8),
        Weight::numbers(DType::F32, vec![16], &table).unwrap(),
        Weight::numbers(DType::F32, vec![16], &(0..16).map(f64::from).collect::<Vec<_>>()).unwrap(),
    ];
    let book = Packing::Codebook { bits: 4, block: 8, offset: Real(0.5) };
    let stacks = [
        Weight::unpack(&parts, book, DType::F32, &[4, 2, 16]).unwrap(),
        Weight::unpack(&[packed(4 * 2 * 34)], Packing::Codes(GgmlBlock::Q8_0), DType::I8, &[4, 2, 32]).unwrap(),
    ];
    for stack in stacks {
        let row = stack.elements() / 4;
        let whole = stack.read_numbers().unwrap();
        for e in 0..4 {
            let slice = stack.rows(e..e + 1).unwrap();
            assert!(matches!(slice.expr(), planish_ir::weight::WeightExpr::Unpack(..)));
            assert_eq!(slice.read_numbers().unwrap(), whole[e * row..(e + 1) * row]);
        }
    }
}

/// Rows that begin inside of a block of a codebook have its scale too.
#[test]
fn rows_that_share_a_scale_are_those_of_the_whole() {
    let numbers = |count: usize, first: f64| {
        let all: Vec<f64> = (0..count).map(|i| first + i as f64).collect();
        Weight::numbers(DType::F32, vec![count], &all).unwrap()
    };
    let bytes: Vec<u8> = (0..384).map(|i| (i % 251) as u8).collect();
    let parts = [Weight::inline(DType::U8, vec![384], bytes).unwrap(), numbers(256, 0.0), numbers(2, 3.0)];
    let book = Packing::Codebook { bits: 8, block: 256, offset: Real(0.0) };
    let whole = Weight::unpack(&parts, book, DType::F32, &[4, 96]).unwrap();
    let all = whole.read_numbers().unwrap();
    for (first, last) in [(0, 1), (1, 3), (2, 4), (3, 4)] {
        assert_eq!(
            whole.rows(first..last).unwrap().read_numbers().unwrap(),
            all[first * 96..last * 96],
            "{first}..{last}"
        );
    }
}
