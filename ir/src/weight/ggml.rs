//! The blocks of GGML's quantized types, which GGUF files have (ggml-common.h and ggml-quants.c of the project ggml).

use half::f16;

use crate::DType;
use crate::named::named;

/// The numbers of the codes of IQ4_NL and IQ4_XS (`kvalues_iq4nl` of ggml-common.h).
const NONLINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// The numbers of 4 bits of the MX formats of OCP (E2M1), times 2.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

named! {
    /// A quantized type of GGML: a tensor is blocks of elements along its last axis, and each block has its codes and scales.
    /// Its name is GGML's in lower case.
    GgmlBlock {
        /// 32 codes of 4 bits and a scale: `scale * (code - 8)`.
        Q4_0 = "q4_0",
        /// 32 codes of 4 bits, a scale and a minimum: `scale * code + minimum`.
        Q4_1 = "q4_1",
        /// 32 codes of 5 bits and a scale: `scale * (code - 16)`.
        Q5_0 = "q5_0",
        /// 32 codes of 5 bits, a scale and a minimum: `scale * code + minimum`.
        Q5_1 = "q5_1",
        /// 32 codes of 8 bits and a scale: `scale * code`.
        Q8_0 = "q8_0",
        /// 256 codes of 2 bits; for each 16 of them a scale and a minimum of 4 bits: `scale * code - minimum`.
        Q2K = "q2_k",
        /// 256 codes of 3 bits; for each 16 of them a scale of 6 bits: `scale * (code - 4)`.
        Q3K = "q3_k",
        /// 256 codes of 4 bits; for each 32 of them a scale and a minimum of 6 bits: `scale * code - minimum`.
        Q4K = "q4_k",
        /// 256 codes of 5 bits, with scales and minima as those of `Q4K`.
        Q5K = "q5_k",
        /// 256 codes of 6 bits; for each 16 of them a scale of 8 bits: `scale * (code - 32)`.
        Q6K = "q6_k",
        /// 32 indices of a table of 16 integers and a scale: `scale * table[index]`.
        Iq4Nl = "iq4_nl",
        /// 256 indices of the table of `Iq4Nl`; for each 32 of them a scale of 6 bits.
        Iq4Xs = "iq4_xs",
        /// 32 floating-point numbers of 4 bits (E2M1), and a scale that is a power of two.
        Mxfp4 = "mxfp4",
    }
}

impl GgmlBlock {
    /// The elements of a block.
    #[must_use]
    pub fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Iq4Nl | Self::Mxfp4 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs => 256,
        }
    }

    /// The bytes of a block.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Mxfp4 => 17,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Iq4Xs => 136,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The type of the codes, where elements are codes times scales: codes are signed, and 0 stands for 0. Indices of a table of
    /// integers are the integers.
    #[must_use]
    pub fn codes(self) -> Option<DType> {
        match self {
            Self::Q4_0 | Self::Q3K => Some(DType::I4),
            Self::Q5_0 | Self::Q8_0 | Self::Q6K | Self::Iq4Nl | Self::Iq4Xs | Self::Mxfp4 => Some(DType::I8),
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => None,
        }
    }

    /// The type of the scales of codes, and how many scales a block has.
    #[must_use]
    pub fn scales(self) -> Option<(DType, usize)> {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Iq4Nl => Some((DType::F16, 1)),
            Self::Mxfp4 => Some((DType::F32, 1)),
            Self::Iq4Xs => Some((DType::F32, 8)),
            Self::Q3K | Self::Q6K => Some((DType::F32, 16)),
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => None,
        }
    }

    /// One of the half-precision numbers of a block that its scales and minima are made of: one that is not finite, where
    /// there is one.
    pub(super) fn extreme(self, block: &[u8]) -> f32 {
        let places: &[usize] = match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Iq4Nl | Self::Iq4Xs => &[0],
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q2K => &[80, 82],
            Self::Q3K => &[108],
            Self::Q6K => &[208],
            // Powers of two are finite.
            Self::Mxfp4 => &[],
        };
        let numbers = || places.iter().map(|at| float(block, *at));
        numbers().find(|x| !x.is_finite()).unwrap_or(0.0)
    }

    /// Code `i` of a block of a type that has [codes](Self::codes).
    fn code(self, block: &[u8], i: usize) -> i8 {
        let small = |code: u8, zero: u8| code.wrapping_sub(zero).cast_signed();
        match self {
            Self::Q4_0 => small(nibble(&block[2..], i), 8),
            Self::Q5_0 => small(nibble(&block[6..], i) | bit(&block[2..], i) << 4, 16),
            Self::Q3K => small(two_bits(&block[32..], i) | (block[i % 32] >> (i / 32) & 1) << 2, 4),
            Self::Q6K => small(six_bits(block, i), 32),
            Self::Iq4Nl => NONLINEAR[usize::from(nibble(&block[2..], i))],
            Self::Iq4Xs => NONLINEAR[usize::from(nibble(&block[8 + i / 32 * 16..], i % 32))],
            Self::Mxfp4 => DOUBLED[usize::from(nibble(&block[1..], i))],
            Self::Q8_0 | Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => block[2 + i].cast_signed(),
        }
    }

    /// Scale `j` of a block of such a type.
    fn scale(self, block: &[u8], j: usize) -> f32 {
        let of_six_bits = |code: u8| f32::from(code) - 32.0;
        match self {
            Self::Q6K => float(block, 208) * f32::from(block[192 + j].cast_signed()),
            Self::Q3K => {
                let low = block[96 + j % 8] >> (j / 8 * 4) & 0xf;
                let high = block[104 + j % 4] >> (j / 4 * 2) & 3;
                float(block, 108) * of_six_bits(low | high << 4)
            }
            Self::Iq4Xs => {
                let low = block[4 + j / 2] >> (j % 2 * 4) & 0xf;
                let high = block[2 + j / 4] >> (j % 4 * 2) & 3;
                float(block, 0) * of_six_bits(low | high << 4)
            }
            // Half of the power of two, because codes are doubled; the smallest ones are subnormal.
            Self::Mxfp4 => match block[0] {
                exponent @ 0..2 => f32::from_bits(0x0020_0000 << exponent),
                exponent => f32::from_bits(u32::from(exponent - 1) << 23),
            },
            _ => float(block, 0),
        }
    }

    /// Appends the codes of a block.
    pub(super) fn write_codes(self, block: &[u8], out: &mut Vec<u8>) {
        let code = |i: usize| self.code(block, i).cast_unsigned();
        match self.codes() {
            Some(DType::I4) => {
                out.extend((0..self.elements()).step_by(2).map(|i| code(i) & 0xf | code(i + 1) << 4));
            }
            _ => out.extend((0..self.elements()).map(code)),
        }
    }

    /// Appends the scales of a block.
    pub(super) fn write_scales(self, block: &[u8], out: &mut Vec<u8>) {
        match self.scales() {
            Some((DType::F32, count)) => out.extend((0..count).flat_map(|j| self.scale(block, j).to_le_bytes())),
            _ => out.extend_from_slice(&block[..2]),
        }
    }

    /// Appends the numbers of a block.
    pub(super) fn write_numbers(self, block: &[u8], out: &mut Vec<u8>) {
        let mut number = |x: f32| out.extend_from_slice(&x.to_le_bytes());
        match self {
            Self::Q4_1 => {
                let (scale, least) = (float(block, 0), float(block, 2));
                (0..32).for_each(|i| number(scale * f32::from(nibble(&block[4..], i)) + least));
            }
            Self::Q5_1 => {
                let (scale, least) = (float(block, 0), float(block, 2));
                let code = |i: usize| nibble(&block[8..], i) | bit(&block[4..], i) << 4;
                (0..32).for_each(|i| number(scale * f32::from(code(i)) + least));
            }
            Self::Q2K => {
                let (whole, low) = (float(block, 80), float(block, 82));
                for i in 0..256 {
                    let packed = block[i / 16];
                    let (scale, minimum) = (whole * f32::from(packed & 0xf), low * f32::from(packed >> 4));
                    number(scale * f32::from(two_bits(&block[16..], i)) - minimum);
                }
            }
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
            _ => {
                let count = self.scales().map_or(1, |(_, count)| count);
                let each = self.elements() / count;
                for j in 0..count {
                    let scale = self.scale(block, j);
                    (j * each..(j + 1) * each).for_each(|i| number(scale * f32::from(self.code(block, i))));
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

/// Bit `i` of bytes, the first in the lowest place.
fn bit(bits: &[u8], i: usize) -> u8 {
    bits[i / 8] >> (i % 8) & 1
}

/// Code `i` of 256 of 2 bits: each 32 bytes have four times 32 codes, the first ones in the lowest bits.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3
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
