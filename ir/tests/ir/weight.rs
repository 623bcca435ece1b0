use std::io;
use std::path::Path;
use std::sync::Arc;

use planish_ir::weight::{CHUNK_BYTES, StoredRange, WeightError, WeightExpr};
use planish_ir::{DType, Weight, WeightSource};
use proptest::prelude::*;

/// A file in memory.
#[derive(Debug)]
pub(crate) struct Buffer(pub(crate) Vec<u8>);

impl WeightSource for Buffer {
    fn name(&self) -> &str {
        "buffer.safetensors"
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = self.0.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
    fn file_path(&self) -> Option<&Path> {
        None
    }
}

pub(crate) fn stored(dtype: DType, shape: &[usize], bytes: Vec<u8>, offset: u64) -> Weight {
    let source: Arc<dyn WeightSource> = Arc::new(Buffer(bytes));
    Weight::stored(dtype, shape.to_vec(), StoredRange { source, offset }).unwrap()
}

/// The pieces that a weight is streamed in.
pub(crate) fn pieces(weight: &Weight) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let keep = &mut |bytes: &[u8]| {
        pieces.push(bytes.to_vec());
        Ok(())
    };
    weight.stream(keep).unwrap();
    pieces
}

/// A tensor as its shape and its elements by index, row-major.
#[derive(Clone, Debug, PartialEq)]
struct Naive {
    shape: Vec<usize>,
    elements: Vec<f64>,
}

impl Naive {
    /// A tensor whose element at an index is given.
    fn from(shape: &[usize], element: impl Fn(&[usize]) -> f64) -> Self {
        let count: usize = shape.iter().product();
        let index = |mut flat: usize| {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = flat % shape[axis];
                flat /= shape[axis];
            }
            index
        };
        Self { shape: shape.to_vec(), elements: (0..count).map(|i| element(&index(i))).collect() }
    }

    fn at(&self, index: &[usize]) -> f64 {
        self.elements[index.iter().zip(&self.shape).fold(0, |flat, (i, size)| flat * size + i)]
    }
}

/// One transform after the other, of a weight and of the tensor it should give.
fn transformed(dims: &[usize], dtype: DType, choices: &[(u8, usize)]) -> (Weight, Naive) {
    // Small integers, which every type holds.
    let values: Vec<f64> = (0..dims.iter().product::<usize>()).map(|i| (i % 100) as f64).collect();
    let plain = Weight::numbers(dtype, dims.to_vec(), &values).unwrap();
    let mut weight = stored(dtype, dims, [vec![9; 5], plain.read().unwrap()].concat(), 5);
    let mut naive = Naive { shape: dims.to_vec(), elements: values };
    for &(kind, choice) in choices {
        let rank = naive.shape.len();
        match kind % 5 {
            0 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                perm.rotate_left(choice % rank);
                weight = weight.transpose(&perm).unwrap();
                let shape: Vec<usize> = perm.iter().map(|p| naive.shape[*p]).collect();
                naive = Naive::from(&shape, |index| {
                    let mut from = vec![0; rank];
                    perm.iter().zip(index).for_each(|(p, i)| from[*p] = *i);
                    naive.at(&from)
                });
            }
            1 => {
                weight = weight
                    .cast(DType::ALL.iter().copied().filter(|d| *d != DType::Bool).nth(choice % 9).unwrap())
                    .unwrap()
            }
            2 => {
                let axis = choice % rank;
                let size = naive.shape[axis];
                weight = Weight::concat(&[weight.clone(), weight], axis).unwrap();
                let mut shape = naive.shape.clone();
                shape[axis] *= 2;
                naive = Naive::from(&shape, |index| {
                    let mut from = index.to_vec();
                    from[axis] %= size.max(1);
                    naive.at(&from)
                });
            }
            3 => {
                let shape: Vec<usize> = naive.shape.iter().enumerate().map(|(i, d)| d + (choice >> i & 1)).collect();
                let value = (choice % 3) as f64;
                weight = weight.pad(&shape, value).unwrap();
                naive = Naive::from(&shape, |index| {
                    let inside = index.iter().zip(&naive.shape).all(|(i, size)| i < size);
                    if inside { naive.at(index) } else { value }
                });
            }
            _ => {
                let mut shape = naive.shape.clone();
                let last = shape.remove(rank - 1);
                let at = choice % rank;
                shape.insert(at, last);
                weight = weight.reshape(&shape).unwrap();
                naive.shape = shape;
            }
        }
    }
    (weight, naive)
}

proptest! {
    #[test]
    fn transforms_agree_with_a_naive_formula(
        dims in prop::collection::vec(0usize..4, 1..4),
        dtype in prop::sample::select(vec![DType::F32, DType::F16, DType::I64, DType::U8]),
        choices in prop::collection::vec((any::<u8>(), 0usize..12), 0..6),
    ) {
        let (weight, naive) = transformed(&dims, dtype, &choices);
        prop_assert_eq!(weight.shape(), &naive.shape[..]);
        prop_assert_eq!(&weight.read_numbers().unwrap(), &naive.elements);
        prop_assert_eq!(pieces(&weight).concat(), weight.read().unwrap());
        prop_assert_eq!(weight.bytes(), weight.read().unwrap().len() as u64);
    }

    #[test]
    fn a_permutation_and_its_inverse_give_the_weight_back(perm in Just(vec![0usize, 1, 2, 3]).prop_shuffle()) {
        let weight = Weight::uniform(DType::F32, vec![2, 3, 4, 5], 7).unwrap();
        let mut inverse = vec![0; 4];
        perm.iter().enumerate().for_each(|(i, p)| inverse[*p] = i);
        prop_assert_eq!(weight.transpose(&perm).unwrap().transpose(&inverse).unwrap(), weight);
    }

    #[test]
    fn casts_round_as_the_hardware_does(values in prop::collection::vec(any::<f64>(), 1..20)) {
        let weight = Weight::numbers(DType::F64, vec![values.len()], &values).unwrap();
        let single = weight.cast(DType::F32).unwrap().read_numbers().unwrap();
        for (found, value) in single.iter().zip(&values) {
            prop_assert!(*found == f64::from(*value as f32) || value.is_nan() && found.is_nan());
        }
    }
}

#[test]
fn pieces_are_bounded() {
    let elements = CHUNK_BYTES / 4 + 3;
    let bytes: Vec<u8> = (0..elements * 4).map(|i| (i % 251) as u8).collect();
    let large = stored(DType::F32, &[elements], bytes.clone(), 0);
    let half = stored(DType::F16, &[elements * 2], bytes.clone(), 0);
    let weights = [
        large.clone(),
        large.reshape(&[1, elements]).unwrap(),
        large.cast(DType::F16).unwrap(),
        half.cast(DType::F32).unwrap(),
        half.cast(DType::F64).unwrap(),
        Weight::concat(&[large.clone(), large.clone()], 0).unwrap(),
        Weight::uniform(DType::F64, vec![elements], 3).unwrap(),
        large.pad(&[2 * elements], 1.0).unwrap(),
        large.reshape(&[1, elements]).unwrap().transpose(&[1, 0]).unwrap().pad(&[elements + 5, 3], 1.0).unwrap(),
        half.cast(DType::F32).unwrap().pad(&[elements * 3], 0.0).unwrap().cast(DType::F64).unwrap(),
    ];
    for weight in &weights {
        let pieces = pieces(weight);
        assert!(pieces.len() > 1 || weight.bytes() <= CHUNK_BYTES as u64);
        assert!(pieces.iter().all(|p| p.len() <= CHUNK_BYTES), "{:?} {:?}", weight.dtype(), weight.shape());
        assert_eq!(pieces.concat().len() as u64, weight.bytes());
    }
    assert_eq!(pieces(&large).concat(), bytes);
    let widened = half.cast(DType::F32).unwrap();
    assert_eq!(widened.cast(DType::F16).unwrap().read().unwrap().len(), bytes.len());
}

#[test]
fn transforms_across_pieces() {
    let elements = CHUNK_BYTES / 8 + 5;
    let weight = Weight::uniform(DType::F64, vec![elements], 11).unwrap();
    let numbers = weight.read_numbers().unwrap();
    let twice = Weight::concat(&[weight.clone(), weight.clone()], 0).unwrap();
    assert_eq!(twice.read_numbers().unwrap(), [numbers.clone(), numbers.clone()].concat());
    let single: Vec<f64> = numbers.iter().map(|v| f64::from(*v as f32)).collect();
    assert_eq!(weight.cast(DType::F32).unwrap().read_numbers().unwrap(), single);
    let column = weight.reshape(&[elements, 1]).unwrap();
    let both = Weight::concat(&[column.clone(), column], 1).unwrap().transpose(&[1, 0]).unwrap();
    assert_eq!(both.read_numbers().unwrap(), [numbers.clone(), numbers].concat());
}

#[test]
fn what_is_appended() {
    let weight = Weight::numbers(DType::F32, vec![2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let padded = weight.pad(&[3, 3], 9.0).unwrap();
    assert_eq!(padded.read_numbers().unwrap(), [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0]);
    let turned = weight.transpose(&[1, 0]).unwrap().pad(&[2, 3], 0.0).unwrap();
    assert_eq!(turned.read_numbers().unwrap(), [1.0, 3.0, 0.0, 2.0, 4.0, 0.0]);
    let empty = Weight::numbers(DType::F32, vec![0, 2], &[]).unwrap().pad(&[1, 3], 5.0).unwrap();
    assert_eq!(empty.read_numbers().unwrap(), [5.0; 3]);

    assert_eq!(weight.pad(&[2, 2], 9.0).unwrap(), weight);
    assert_eq!(padded.pad(&[5, 3], 9.0), weight.pad(&[5, 3], 9.0), "one padding instead of two");
    for shape in [&[2][..], &[1, 2], &[2, 2, 1], &[usize::MAX, 2]] {
        assert!(weight.pad(shape, 0.0).is_none(), "{shape:?}");
    }
}

/// What stands for the lowest number of a type does so in every type.
#[test]
fn finite_padding_stays_finite() {
    let column = |dtype: DType, value: f64| Weight::scalar(dtype, 1.0).reshape(&[1]).unwrap().pad(&[2], value).unwrap();
    let last = |weight: &Weight| weight.read_numbers().unwrap()[1];
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let least = dtype.finite_min().unwrap();
        assert_eq!(last(&column(DType::F64, f64::MIN).cast(dtype).unwrap()), least);
        assert_eq!(last(&column(dtype, f64::MIN)), least);
        assert_eq!(last(&column(dtype, f64::NEG_INFINITY)), f64::NEG_INFINITY);
        assert!(last(&column(dtype, f64::NAN)).is_nan());
    }
    // Rounded to each type in turn, as what is stored is.
    let twice = column(DType::F32, 0.1).cast(DType::F16).unwrap();
    assert_eq!(
        last(&twice),
        last(&Weight::numbers(DType::F32, vec![2], &[1.0, 0.1]).unwrap().cast(DType::F16).unwrap())
    );
}

#[test]
fn uniform_numbers() {
    let read = |seed| Weight::uniform(DType::F64, vec![4000], seed).unwrap().read_numbers().unwrap();
    let numbers = read(1);
    assert_eq!(numbers, read(1));
    assert_ne!(numbers, read(2));
    assert!(numbers.iter().all(|v| (-1.0..1.0).contains(v)));
    let mean = numbers.iter().sum::<f64>() / 4000.0;
    let square = numbers.iter().map(|v| v * v).sum::<f64>() / 4000.0;
    assert!(mean.abs() < 0.05 && (square - 1.0 / 3.0).abs() < 0.02, "{mean} {square}");
}

#[test]
fn expressions_stay_small() {
    let weight = Weight::uniform(DType::F32, vec![2, 3, 4], 1).unwrap();
    assert_eq!(weight.cast(DType::F32).unwrap(), weight);
    assert_eq!(weight.transpose(&[0, 1, 2]).unwrap(), weight);
    assert_eq!(weight.reshape(&[2, 3, 4]).unwrap(), weight);
    assert!(matches!(weight.reshape(&[6, 4]).unwrap().expr(), WeightExpr::Uniform(1)));
    let turned = weight.transpose(&[1, 2, 0]).unwrap().transpose(&[1, 2, 0]).unwrap();
    assert!(matches!(turned.expr(), WeightExpr::Transpose(of, perm) if *of == weight && *perm == [2, 0, 1]));
    assert!(stored(DType::U8, &[2], vec![1, 2], 0).as_stored().is_some_and(|range| range.offset == 0));
    assert!(weight.as_stored().is_none());
}

#[test]
fn what_does_not_fit_is_no_weight() {
    let weight = Weight::uniform(DType::F32, vec![2, 3], 1).unwrap();
    for perm in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
        assert!(weight.transpose(perm).is_none(), "{perm:?}");
    }
    assert!(weight.reshape(&[5]).is_none());
    assert!(Weight::concat(&[], 0).is_none());
    assert!(Weight::concat(std::slice::from_ref(&weight), 2).is_none());
    assert!(Weight::concat(&[weight.clone(), weight.cast(DType::F16).unwrap()], 0).is_none());
    assert!(Weight::concat(&[weight.clone(), weight.transpose(&[1, 0]).unwrap()], 0).is_none());
    assert!(Weight::inline(DType::F32, vec![2], vec![0; 7]).is_none());
    assert!(Weight::numbers(DType::F32, vec![2], &[1.0]).is_none());
    assert!(Weight::uniform(DType::F64, vec![1 << 62], 0).is_none());
    assert!(Weight::uniform(DType::F64, vec![usize::MAX, 2, 0], 0).is_none());
    let huge = Weight::uniform(DType::U8, vec![usize::MAX], 0).unwrap();
    assert!(Weight::concat(&[huge.clone(), huge], 0).is_none());
    let range = |offset| StoredRange { source: Arc::new(Buffer(Vec::new())), offset };
    assert!(Weight::stored(DType::F32, vec![1], range(u64::MAX)).is_none());
}

#[test]
fn failures_name_the_range() {
    let cut = stored(DType::F32, &[4], vec![0; 10], 0);
    for weight in [cut.clone(), cut.transpose(&[0]).unwrap(), cut.cast(DType::F16).unwrap()] {
        let message = weight.read().unwrap_err().to_string();
        assert!(message.contains("cannot read 16 bytes at offset 0 of buffer.safetensors"), "{message}");
    }
    let whole = Weight::integers(&[1, 2]);
    assert!(matches!(whole.stream(&mut |_| Err(io::Error::other("full"))), Err(WeightError::Sink(_))));
    let huge = Weight::uniform(DType::U8, vec![1 << 62], 0).unwrap();
    let message = huge.read().unwrap_err().to_string();
    assert!(message.contains("4611686018427387904 bytes do not fit in memory"), "{message}");
}

#[test]
fn constants() {
    assert_eq!(
        Weight::integers(&[-1, i64::MAX]).read().unwrap(),
        [(-1i64).to_le_bytes(), i64::MAX.to_le_bytes()].concat()
    );
    assert_eq!(Weight::scalar(DType::Bf16, 1.0).read().unwrap(), [0x80, 0x3f]);
    let saturated = Weight::numbers(DType::I8, vec![4], &[300.0, -300.0, 1.9, -1.9]).unwrap();
    assert_eq!(saturated.read_numbers().unwrap(), [127.0, -128.0, 1.0, -1.0]);
    assert_eq!(Weight::numbers(DType::Bool, vec![3], &[0.0, 0.5, -3.0]).unwrap().read().unwrap(), [0, 1, 1]);
    assert_eq!(Weight::integers(&[3, 0]).cast(DType::Bool).unwrap().read().unwrap(), [1, 0]);
}

/// Elements that share bytes are stored, read, moved and converted.
#[test]
fn elements_that_share_bytes() {
    let packed = Weight::numbers(DType::I4, vec![3], &[1.0, -2.0, 7.0]).unwrap();
    assert_eq!((packed.bytes(), packed.read().unwrap()), (2, vec![0xe1, 0x07]));
    assert_eq!(packed.read_numbers().unwrap(), [1.0, -2.0, 7.0]);
    assert_eq!(packed.cast(DType::F32).unwrap().read_numbers().unwrap(), [1.0, -2.0, 7.0]);
    assert_eq!(packed.cast(DType::I2).unwrap().read().unwrap(), [0b01_10_01]);
    let file = stored(DType::U4, &[3, 1], vec![0xff, 0x21, 0x03], 1);
    assert_eq!((file.bytes(), file.read_numbers().unwrap()), (2, vec![1.0, 2.0, 3.0]));
    assert_eq!(file.reshape(&[3]).unwrap().read().unwrap(), [0x21, 0x03]);
    assert!(file.reshape(&[4]).is_none(), "as many bytes, and more elements");
    assert!(Weight::inline(DType::U4, vec![3], vec![1]).is_none());
    let twice = Weight::concat(&[packed.clone(), packed.clone()], 0).unwrap();
    assert_eq!(twice.read().unwrap(), [0xe1, 0x17, 0x7e]);
    assert_eq!(packed.pad(&[4], -1.0).unwrap().read().unwrap(), [0xe1, 0xf7]);
    assert!(Weight::uniform(DType::I4, vec![2], 1).is_none());
    // Padded and then narrowed.
    let padded = Weight::numbers(DType::F32, vec![1], &[3.0]).unwrap().pad(&[3], -1.0).unwrap();
    assert_eq!(padded.cast(DType::I4).unwrap().read_numbers().unwrap(), [3.0, -1.0, -1.0]);
    let small = Weight::numbers(DType::F8E5M2, vec![2, 1], &[1.5, -4.0]).unwrap();
    assert_eq!(small.transpose(&[1, 0]).unwrap().cast(DType::F32).unwrap().read_numbers().unwrap(), [1.5, -4.0]);
}

#[test]
fn text_is_kept() {
    let words = Weight::text(vec![2], &["ab", ""]).unwrap();
    assert_eq!(words.as_text().unwrap(), [b"ab".as_slice(), b""]);
    assert_eq!(words.bytes(), 10);
    assert_eq!(words.reshape(&[2, 1]).unwrap().as_text().unwrap().len(), 2);
    assert!(Weight::text(vec![3], &["a"]).is_none());
    assert!(Weight::inline(DType::String, vec![1], vec![2, 0, 0, 0, b'a']).is_none(), "it ends within the element");
    assert!(words.cast(DType::F32).is_none() && Weight::integers(&[1]).cast(DType::String).is_none());
    assert!(words.transpose(&[0]).is_none() && words.pad(&[3], 0.0).is_none());
    assert!(Weight::concat(&[words.clone(), words], 0).is_none());
    assert!(
        Weight::stored(DType::String, vec![1], StoredRange { source: Arc::new(Buffer(vec![0; 8])), offset: 0 })
            .is_none()
    );
}

#[test]
fn a_transform_of_other_weights() {
    let [a, b] = [1, 2].map(|seed| Weight::uniform(DType::F32, vec![2, 3], seed).unwrap());
    let joined = Weight::concat(&[a.clone(), b.clone()], 0).unwrap();
    let whole = joined.transpose(&[1, 0]).unwrap().pad(&[4, 4], 0.5).unwrap().reshape(&[16]).unwrap();

    let mut leaves = Vec::new();
    whole.visit_leaves(&mut |leaf| leaves.push(leaf.clone()));
    assert_eq!(leaves, [a.clone(), b.clone()]);
    assert_eq!(joined.expr().children(), leaves);
    assert_eq!(whole.cast(DType::F16).unwrap().expr().children().len(), 1);
    assert!(a.expr().children().is_empty());
    assert!(whole.expr().moves_elements() && joined.expr().moves_elements());
    assert!(!a.expr().moves_elements() && !a.cast(DType::F16).unwrap().expr().moves_elements());

    /// The weight with its leaves in float16.
    fn halved(weight: &Weight) -> Option<Weight> {
        if weight.expr().children().is_empty() { weight.cast(DType::F16) } else { weight.map(&mut halved) }
    }
    let half = halved(&whole).unwrap();
    assert_eq!((half.dtype(), half.shape()), (DType::F16, &[16][..]));
    assert_eq!(half.read_numbers().unwrap(), whole.cast(DType::F16).unwrap().read_numbers().unwrap());
    // A cast still converts to its own type, and a transform that does not fit gives nothing.
    assert_eq!(joined.cast(DType::F64).unwrap().map(&mut |of| of.cast(DType::Bf16)).unwrap().dtype(), DType::F64);
    assert_eq!(a.map(&mut |_| None), Some(a.clone()));
    assert_eq!(whole.map(&mut |of| of.reshape(&[4])), None);
}

#[test]
fn one_number() {
    assert_eq!(Weight::scalar(DType::F16, 0.5).number(), Some(0.5));
    assert_eq!(Weight::numbers(DType::I64, vec![1, 1], &[3.0]).unwrap().number(), Some(3.0));
    assert_eq!(Weight::numbers(DType::F32, vec![2], &[1.0, 1.0]).unwrap().number(), None);
    assert_eq!(stored(DType::F32, &[1], vec![0; 2], 0).number(), None);
}
