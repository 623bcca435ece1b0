//! Codes and numbers taken out of the layouts in which weight files pack them.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::read::{Sink, WeightError};
use super::{CHUNK_BYTES, Weight, WeightExpr, bytes_of, ggml};
use crate::ops::Real;
use crate::{DType, SpellingError};

pub use ggml::GgmlBlock;

/// A layout of packed codes or numbers. The first part of a weight that is unpacked has the packed bytes, and elements
/// follow each other in the order of these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Codes of `u2`, `u4` or `u8` in larger integers, the first code in the lowest bits: GPTQ.
    Words,
    /// Codes as those of [`Packing::Words`], each plus 1, modulo the number of codes: zero points of GPTQ's first format.
    NextWords,
    /// Eight codes of `u4` in each integer of 32 bits. From the lowest bits on, they are the codes 0 2 4 6 1 3 5 7: AWQ.
    Awq,
    /// Indices of a table of numbers, which are multiplied by the scale of their block of elements: bitsandbytes. The parts
    /// are the indices: `u8`, the table: `f32`, of as many numbers as there are indices, and the scales: `f32`, one for
    /// each block. The result is `f32`. Arithmetic is in f32.
    Codebook {
        /// The bits of an index, 4 or 8; of two in a byte, the first is in the higher bits.
        bits: usize,
        /// The elements that share a scale, more than 0.
        block: usize,
        /// What is added after the multiplication.
        offset: Real,
    },
    /// The codes of blocks of GGML: [`GgmlBlock::codes`] is their type.
    Codes(GgmlBlock),
    /// The scales of these codes: [`GgmlBlock::scales`] has their type and their number.
    Scales(GgmlBlock),
    /// The numbers that blocks of GGML stand for: `f32`. A sum is rounded once, products before it are exact.
    Numbers(GgmlBlock),
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words => f.write_str("words"),
            Self::NextWords => f.write_str("next_words"),
            Self::Awq => f.write_str("awq"),
            Self::Codebook { bits, block, offset } => write!(f, "codebook/{bits}/{block}/{:?}", offset.0),
            Self::Codes(block) => write!(f, "codes/{block}"),
            Self::Scales(block) => write!(f, "scales/{block}"),
            Self::Numbers(block) => write!(f, "numbers/{block}"),
        }
    }
}

impl FromStr for Packing {
    type Err = SpellingError;
    fn from_str(text: &str) -> Result<Self, SpellingError> {
        let parts: Vec<&str> = text.split('/').collect();
        let unknown = || SpellingError::Packing(text.to_owned());
        Ok(match parts.as_slice() {
            ["words"] => Self::Words,
            ["next_words"] => Self::NextWords,
            ["awq"] => Self::Awq,
            ["codebook", bits, block, offset] => Self::Codebook {
                bits: bits.parse().map_err(|_| unknown())?,
                block: block.parse().map_err(|_| unknown())?,
                offset: Real(offset.parse().map_err(|_| unknown())?),
            },
            ["codes", block] => Self::Codes(block.parse()?),
            ["scales", block] => Self::Scales(block.parse()?),
            ["numbers", block] => Self::Numbers(block.parse()?),
            _ => return Err(unknown()),
        })
    }
}

impl Packing {
    /// Whether parts are what a weight of this type and shape is unpacked from.
    fn fits(self, parts: &[Weight], dtype: DType, shape: &[usize]) -> Option<bool> {
        let (packed, others) = parts.split_first()?;
        let bytes = bytes_of(dtype, shape)?;
        let elements = super::elements_of(shape)?;
        let words = || {
            let wide =
                matches!(packed.dtype(), DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 | DType::I8);
            wide && matches!(dtype, DType::U2 | DType::U4 | DType::U8) && packed.bytes() == bytes
        };
        let blocks = |block: GgmlBlock, to: DType, each: usize| {
            let whole = elements.is_multiple_of(each) && packed.elements().is_multiple_of(block.bytes());
            packed.dtype() == DType::U8 && dtype == to && whole && elements / each == packed.elements() / block.bytes()
        };
        Some(match self {
            Self::Codebook { bits, block, .. } => {
                let [table, scales] = others else { return None };
                let indices = packed.elements().checked_mul(8 / bits.max(1))?;
                matches!(bits, 4 | 8)
                    && block > 0
                    && [table, scales].iter().all(|part| part.dtype() == DType::F32)
                    && (packed.dtype(), table.elements()) == (DType::U8, 1 << bits)
                    && scales.elements() == elements.div_ceil(block)
                    && (dtype, indices) == (DType::F32, elements)
            }
            _ if !others.is_empty() => return None,
            Self::Words | Self::NextWords => words(),
            Self::Awq => {
                let packs = matches!(packed.dtype(), DType::I32 | DType::U32) && packed.bytes() == bytes;
                packs && dtype == DType::U4
            }
            Self::Codes(block) => blocks(block, block.codes()?, block.elements()),
            Self::Scales(block) => {
                let (to, each) = block.scales()?;
                blocks(block, to, each)
            }
            Self::Numbers(block) => blocks(block, DType::F32, block.elements()),
        })
    }

    /// The packed bytes that are unpacked together.
    pub(super) fn unit(self) -> usize {
        match self {
            Self::Awq => 4,
            Self::Codes(block) | Self::Scales(block) | Self::Numbers(block) => block.bytes(),
            Self::Words | Self::NextWords | Self::Codebook { .. } => 1,
        }
    }
}

impl Weight {
    /// A weight of a type and a shape, taken out of what packs it. `None` where type, shape or parts do not fit the
    /// packing.
    #[must_use]
    pub fn unpack(parts: &[Self], packing: Packing, dtype: DType, shape: &[usize]) -> Option<Self> {
        packing.fits(parts, dtype, shape)?.then_some(())?;
        Some(Self::build(dtype, shape.to_vec(), WeightExpr::Unpack(parts.to_vec(), packing)))
    }
}

/// Streams the elements, of type `to`, that `parts` pack.
pub(super) fn stream(parts: &[Weight], packing: Packing, to: DType, sink: Sink<'_>) -> Result<(), WeightError> {
    let table = match packing {
        Packing::Codebook { bits, block, offset } => Some(Table::read(parts, bits, block, offset)?),
        _ => None,
    };
    let (mut held, mut out, mut at) = (Vec::new(), Vec::new(), 0);
    parts[0].stream(&mut |bytes| {
        held.extend_from_slice(bytes);
        let whole = held.len() - held.len() % packing.unit();
        let (now, _) = held.split_at(whole);
        out.clear();
        match (packing, &table) {
            (Packing::Words, _) => out.extend_from_slice(now),
            (Packing::NextWords, _) => out.extend(now.iter().map(|byte| next(*byte, to.bits()))),
            (Packing::Awq, _) => out.extend(now.as_chunks::<4>().0.iter().flat_map(|word| awq(*word))),
            (Packing::Codes(block), _) => now.chunks_exact(block.bytes()).for_each(|b| block.write_codes(b, &mut out)),
            (Packing::Scales(block), _) => {
                now.chunks_exact(block.bytes()).for_each(|b| block.write_scales(b, &mut out))
            }
            (Packing::Numbers(block), _) => {
                now.chunks_exact(block.bytes()).for_each(|b| block.write_numbers(b, &mut out))
            }
            (Packing::Codebook { .. }, Some(table)) => at = table.write(now, at, &mut out),
            (Packing::Codebook { .. }, None) => return Err(io::Error::other("the table was not read")),
        }
        held.drain(..whole);
        out.chunks(CHUNK_BYTES).try_for_each(&mut *sink)
    })
}

/// The codes of a byte, each plus 1, modulo the number of codes.
fn next(byte: u8, bits: usize) -> u8 {
    let mask = u8::MAX >> (8 - bits);
    (0..8).step_by(bits).fold(0, |out, at| out | (((byte >> at) & mask).wrapping_add(1) & mask) << at)
}

/// The codes of an integer of 32 bits in their order.
fn awq(word: [u8; 4]) -> [u8; 4] {
    let word = u32::from_le_bytes(word);
    // Where the codes 0 to 7 are.
    let places = [0, 4, 1, 5, 2, 6, 3, 7];
    let codes = places.iter().enumerate().fold(0, |out, (i, place)| out | (word >> (4 * place) & 0xf) << (4 * i));
    codes.to_le_bytes()
}

/// What indices stand for.
struct Table {
    bits: usize,
    block: usize,
    numbers: Vec<f32>,
    scales: Vec<f32>,
    offset: f32,
}

impl Table {
    fn read(parts: &[Weight], bits: usize, block: usize, offset: Real) -> Result<Self, WeightError> {
        let floats = |part: &Weight| -> Result<Vec<f32>, WeightError> {
            Ok(part.read()?.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        Ok(Self { bits, block, numbers: floats(&parts[1])?, scales: floats(&parts[2])?, offset: offset.0 as f32 })
    }

    /// Appends the numbers of the next indices, the first of which is that of element `at`; returns the next one.
    fn write(&self, indices: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
        let mut one = |index: u8| {
            let number = self.numbers[usize::from(index)] * self.scales[at / self.block] + self.offset;
            out.extend_from_slice(&number.to_le_bytes());
            at += 1;
        };
        for byte in indices {
            if self.bits == 4 {
                one(byte >> 4);
                one(byte & 0xf);
            } else {
                one(*byte);
            }
        }
        at
    }
}
