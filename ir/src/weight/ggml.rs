//! The blocks of GGML's quantized types, which GGUF files have (ggml-common.h and ggml-quants.c of the project ggml).

use half::f16;

use crate::DType;
use crate::named::named;

named! {
    /// A quantized type of GGML: a tensor is blocks of elements along its last axis, and each block has its codes and scales.
    /// Its name is GGML's in lower case.
    GgmlBlock {
        /// 32 codes of 4 bits and a scale: `scale * (code - 8)`.
        Q4_0 = "q4_0",
        /// 32 codes of 4 bits, a scale and a minimum: `scale * code + minimum`.
        Q4_1 = "q4_1",
        /// 32 codes of 8 bits and a scale: `scale * code`.
        Q8_0 = "q8_0",
        /// 256 codes of 4 bits; for each 32 of them a scale and a minimum of 6 bits: `scale * code - minimum`.
        Q4K = "q4_k",
        /// 256 codes of 5 bits, with scales and minima as those of `Q4K`.
        Q5K = "q5_k",
        /// 256 codes of 6 bits; for each 16 of them a scale of 8 bits: `scale * (code - 32)`.
        Q6K = "q6_k",
    }
}

impl GgmlBlock {
    /// The elements of a block.
    #[must_use]
    pub fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// The bytes of a block.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The type of the codes, where elements are codes times scales: codes are signed, and 0 stands for 0.
    #[must_use]
    pub fn codes(self) -> Option<DType> {
        match self {
            Self::Q4_0 => Some(DType::I4),
            Self::Q8_0 | Self::Q6K => Some(DType::I8),
            Self::Q4_1 | Self::Q4K | Self::Q5K => None,
        }
    }

    /// The type of the scales of codes, and how many scales a block has.
    #[must_use]
    pub fn scales(self) -> Option<(DType, usize)> {
        match self {
            Self::Q4_0 | Self::Q8_0 => Some((DType::F16, 1)),
            Self::Q6K => Some((DType::F32, 16)),
            Self::Q4_1 | Self::Q4K | Self::Q5K => None,
        }
    }

    /// One of the half-precision numbers of a block that its scales and minima are made of: one that is not finite, where
    /// there is one.
    pub(super) fn extreme(self, block: &[u8]) -> f32 {
        let places: &[usize] = match self {
            Self::Q4_0 | Self::Q8_0 => &[0],
            Self::Q4_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q6K => &[208],
        };
        let numbers = || places.iter().map(|at| float(block, *at));
        numbers().find(|x| !x.is_finite()).unwrap_or(0.0)
    }

    /// Appends the codes of a block.
    pub(super) fn write_codes(self, block: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Q4_0 => {
                // The first half of the codes is in the lower bits, the second half in the upper ones.
                let pairs = || block[2..].as_chunks::<2>().0.iter();
                out.extend(pairs().map(|[a, b]| (a & 0xf | b << 4) ^ 0x88));
                out.extend(pairs().map(|[a, b]| (a >> 4 | b & 0xf0) ^ 0x88));
            }
            Self::Q6K => out.extend((0..256).map(|i| six_bits(block, i).wrapping_sub(32))),
            _ => out.extend_from_slice(&block[2..]),
        }
    }

    /// Appends the scales of a block.
    pub(super) fn write_scales(self, block: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Q6K => {
                let whole = float(block, 208);
                out.extend(block[192..208].iter().flat_map(|s| (whole * f32::from(s.cast_signed())).to_le_bytes()));
            }
            _ => out.extend_from_slice(&block[..2]),
        }
    }

    /// Appends the numbers of a block.
    pub(super) fn write_numbers(self, block: &[u8], out: &mut Vec<u8>) {
        let mut number = |x: f32| out.extend_from_slice(&x.to_le_bytes());
        match self {
            Self::Q4_0 => (0..32).for_each(|i| number(float(block, 0) * (f32::from(nibble(&block[2..], i)) - 8.0))),
            Self::Q4_1 => {
                let (scale, least) = (float(block, 0), float(block, 2));
                (0..32).for_each(|i| number(scale * f32::from(nibble(&block[4..], i)) + least));
            }
            Self::Q8_0 => block[2..].iter().for_each(|code| number(float(block, 0) * f32::from(code.cast_signed()))),
            Self::Q4K | Self::Q5K => {
                let (whole, low) = (float(block, 0), float(block, 2));
                let (high, codes) = block[16..].split_at(if self == Self::Q5K { 32 } else { 0 });
                for j in 0..8 {
                    let (scale, minimum) = scale_and_minimum(&block[4..16], j);
                    let (scale, minimum) = (whole * f32::from(scale), low * f32::from(minimum));
                    for l in 0..32 {
                        let code = codes[j / 2 * 32 + l] >> (j % 2 * 4) & 0xf;
                        let fifth = high.get(l).map_or(0, |bits| bits >> j & 1);
                        number(scale * f32::from(code | fifth << 4) - minimum);
                    }
                }
            }
            Self::Q6K => {
                let whole = float(block, 208);
                for i in 0..256 {
                    let scale = whole * f32::from(block[192 + i / 16].cast_signed());
                    number(scale * (f32::from(six_bits(block, i)) - 32.0));
                }
            }
        }
    }
}

/// The half-precision number at a byte of a block.
fn float(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Code `i` of 32: the first 16 are in the lower bits.
fn nibble(codes: &[u8], i: usize) -> u8 {
    codes[i % 16] >> (i / 16 * 4) & 0xf
}

/// Code `i` of a block of `Q6K`: 4 bits at its beginning, 2 bits after them.
fn six_bits(block: &[u8], i: usize) -> u8 {
    let (half, group, l) = (i / 128, i / 32 % 4, i % 32);
    let low = block[half * 64 + group % 2 * 32 + l] >> (group / 2 * 4) & 0xf;
    let high = block[128 + half * 32 + l] >> (group * 2) & 3;
    low | high << 4
}

/// Scale and minimum `j` of 8, of 6 bits each, in 12 bytes: the lower 4 or all bits in one byte, and 2 in the upper bits of another.
fn scale_and_minimum(packed: &[u8], j: usize) -> (u8, u8) {
    match j {
        0..4 => (packed[j] & 63, packed[j + 4] & 63),
        _ => {
            let low = packed[j + 4];
            (low & 0xf | packed[j - 4] >> 6 << 4, low >> 4 | packed[j] >> 6 << 4)
        }
    }
}
