//! Weights whose codes are indices of a table of numbers, as bitsandbytes stores them.

use super::{Packing, Weight, WeightExpr};
use crate::DType;
use crate::ops::Real;

/// The numbers of NF4 (Dettmers et al. 2023, arXiv:2305.14314, appendix E), by their codes.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The numbers of FP4 of bitsandbytes, by their codes.
pub const FP4: [f32; 16] = [
    0.0,
    0.005_208_333_3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    -0.0,
    -0.005_208_333_3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];

/// The tables of ONNX Runtime's MatMulBnb4, by the values of its attribute `quant_type`.
pub const BNB4_TABLES: [[f32; 16]; 2] = [FP4, NF4];

/// A weight whose elements are numbers of a table times the scale of their block of neighbours, rows one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Codebook {
    /// u8, `[bytes]`: indices of 4 bits, the first of two in the higher bits.
    pub indices: Weight,
    /// What the indices stand for.
    pub table: Vec<f64>,
    /// Floats, `[blocks]`.
    pub scales: Weight,
    /// The elements that share a scale.
    pub block: usize,
}

impl Weight {
    /// The indices of 4 bits and the scales that the weight is made of, where it is: conversion to another floating-point type
    /// is applied to the scales, and weights that are rows below each other are one where their blocks are.
    #[must_use]
    pub fn as_codebook(&self) -> Option<Codebook> {
        match self.expr() {
            WeightExpr::Unpack(parts, Packing::Codebook { bits: 4, block, offset: Real(0.0) }) => Some(Codebook {
                indices: parts[0].reshape(&[parts[0].elements()])?,
                table: parts[1].read_numbers().ok()?,
                scales: parts[2].reshape(&[parts[2].elements()])?,
                block: *block,
            }),
            WeightExpr::Cast(of) if self.dtype().is_float() => {
                let of = of.as_codebook()?;
                Some(Codebook { scales: of.scales.cast(self.dtype())?, ..of })
            }
            WeightExpr::Concat(parts, 0) => {
                let (last, whole) = parts.split_last()?;
                let books: Vec<Codebook> = parts.iter().map(Self::as_codebook).collect::<Option<_>>()?;
                let first = books.first()?.clone();
                let alike = books.iter().all(|book| (book.block, &book.table) == (first.block, &first.table));
                let fits = whole
                    .iter()
                    .all(|part| part.elements().is_multiple_of(first.block) && part.elements().is_multiple_of(2))
                    && last.elements() > 0;
                let join =
                    |of: &dyn Fn(&Codebook) -> Weight| Self::concat(&books.iter().map(of).collect::<Vec<_>>(), 0);
                let indices = join(&|book| book.indices.clone()).filter(|_| alike && fits)?;
                Some(Codebook { indices, scales: join(&|book| book.scales.clone())?, ..first })
            }
            _ => None,
        }
    }

    /// A matrix of indices of 4 bits of a table, in the type of the scales; the reverse of [`as_codebook`](Self::as_codebook).
    #[must_use]
    pub fn of_codebook(book: &Codebook, shape: &[usize]) -> Option<Self> {
        let table = Self::numbers(DType::F32, vec![book.table.len()], &book.table)?;
        let parts = [book.indices.clone(), table, book.scales.cast(DType::F32)?];
        let packing = Packing::Codebook { bits: 4, block: book.block, offset: Real(0.0) };
        Self::unpack(&parts, packing, DType::F32, shape)?.cast(book.scales.dtype())
    }
}
