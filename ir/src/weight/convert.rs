//! Conversion of element bytes between types.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::DType;
use crate::round::{bf16_from_f64, f16_from_f64};

/// Evaluates `$body` with `$t` bound to the Rust type that stores elements of a floating-point type.
macro_rules! with_float {
    ($dtype:expr, |$t:ident| $body:expr, else $other:expr) => {
        match $dtype {
            DType::F16 => {
                type $t = f16;
                $body
            }
            DType::Bf16 => {
                type $t = bf16;
                $body
            }
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            _ => $other,
        }
    };
}

trait Float: Copy {
    fn widen(self) -> f64;
    fn narrow(value: f64) -> Self;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, out: &mut Vec<u8>);
}

macro_rules! float {
    ($t:ty, $widen:expr, $narrow:expr) => {
        impl Float for $t {
            #[inline]
            fn widen(self) -> f64 {
                $widen(self)
            }
            #[inline]
            fn narrow(value: f64) -> Self {
                $narrow(value)
            }
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$t>()];
                array.copy_from_slice(bytes);
                <$t>::from_le_bytes(array)
            }
            #[inline]
            fn store(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    };
}

float!(f16, f16::to_f64, f16_from_f64);
float!(bf16, bf16::to_f64, bf16_from_f64);
float!(f32, f64::from, |v| v as f32);
float!(f64, |v| v, |v| v);

/// The numbers a tensor's bytes hold. Integers beyond 2^53 round.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let each = bytes.chunks_exact(dtype.size());
    with_float!(dtype, |T| each.map(|b| T::load(b).widen()).collect(), else {
        each.map(|b| integer(dtype, b) as f64).collect()
    })
}

/// The bytes of numbers as elements of a type: floats round to nearest even, integers are
/// truncated towards zero and saturate, booleans are whether the number differs from zero.
pub(super) fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * dtype.size());
    for &v in values {
        with_float!(dtype, |T| T::narrow(v).store(&mut out), else {
            match dtype {
                DType::Bool => out.push(u8::from(v != 0.0)),
                DType::I8 => out.extend_from_slice(&(v as i8).to_le_bytes()),
                DType::I16 => out.extend_from_slice(&(v as i16).to_le_bytes()),
                DType::I32 => out.extend_from_slice(&(v as i32).to_le_bytes()),
                DType::U8 => out.push(v as u8),
                DType::U16 => out.extend_from_slice(&(v as u16).to_le_bytes()),
                DType::U32 => out.extend_from_slice(&(v as u32).to_le_bytes()),
                DType::U64 => out.extend_from_slice(&(v as u64).to_le_bytes()),
                _ => out.extend_from_slice(&(v as i64).to_le_bytes()),
            }
        });
    }
    out
}

/// Converts element bytes. Between floating-point types rounding is to nearest even, once.
pub(super) fn convert(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    if let Some(out) = through_f32(from, to, bytes) {
        return out;
    }
    with_float!(from, |A| with_float!(to, |B| {
        let mut out = Vec::with_capacity(bytes.len() / size_of::<A>() * size_of::<B>());
        for b in bytes.chunks_exact(size_of::<A>()) {
            <B as Float>::narrow(A::load(b).widen()).store(&mut out);
        }
        out
    }, else encode(to, &decode(from, bytes))), else encode(to, &decode(from, bytes)))
}

/// Elements that are converted together: they stay in a core's first cache.
const BLOCK: usize = 1024;

/// Converts between types of at most 32 bits, with the processor's instructions where there are any:
/// widening to `f32` is exact, so that rounding what comes of it is rounding once.
fn through_f32(from: DType, to: DType, bytes: &[u8]) -> Option<Vec<u8>> {
    let short = |dtype| matches!(dtype, DType::F16 | DType::Bf16 | DType::F32);
    if !short(from) || !short(to) {
        return None;
    }
    let mut out = vec![0; bytes.len() / from.size() * to.size()];
    let (mut single, mut halves) = ([0f32; BLOCK], [f16::ZERO; BLOCK]);
    for (input, output) in bytes.chunks(BLOCK * from.size()).zip(out.chunks_mut(BLOCK * to.size())) {
        let count = input.len() / from.size();
        let (single, halves) = (&mut single[..count], &mut halves[..count]);
        match from {
            DType::F16 => {
                halves.iter_mut().zip(input.as_chunks().0).for_each(|(to, from)| *to = f16::from_le_bytes(*from));
                halves.convert_to_f32_slice(single);
            }
            DType::Bf16 => {
                let elements = input.as_chunks().0.iter().map(|from| bf16::from_le_bytes(*from).to_f32());
                single.iter_mut().zip(elements).for_each(|(to, from)| *to = from);
            }
            _ => single.iter_mut().zip(input.as_chunks().0).for_each(|(to, from)| *to = f32::from_le_bytes(*from)),
        }
        match to {
            DType::F16 => {
                halves.convert_from_f32_slice(single);
                output.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(to, from)| *to = from.to_le_bytes());
            }
            DType::Bf16 => {
                let elements = single.iter().map(|from| bf16::from_f32(*from).to_le_bytes());
                output.as_chunks_mut().0.iter_mut().zip(elements).for_each(|(to, from)| *to = from);
            }
            _ => output.as_chunks_mut().0.iter_mut().zip(single).for_each(|(to, from)| *to = from.to_le_bytes()),
        }
    }
    Some(out)
}

fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    let negative = dtype.is_integer() && !dtype.is_unsigned() && bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_once_beside_ties() {
        let convert = |to: DType, v: f32| decode(to, &convert(DType::F32, to, &v.to_le_bytes()))[0];
        let (step, ulp) = (2f32.powi(-7), f32::EPSILON);
        assert_eq!(convert(DType::Bf16, 1.0 + step / 2.0), 1.0);
        assert_eq!(convert(DType::Bf16, 1.0 + step / 2.0 + ulp), f64::from(1.0 + step));
        assert_eq!(convert(DType::Bf16, 1.0 + step * 1.5 - ulp), f64::from(1.0 + step));
        assert_eq!(convert(DType::Bf16, -(1.0 + step / 2.0 + ulp)), f64::from(-1.0 - step));

        let beside = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(
            decode(DType::F16, &encode(DType::F16, &[beside, -beside, f64::MAX, 1e-300])),
            [1.0 + 2f64.powi(-10), -1.0 - 2f64.powi(-10), f64::INFINITY, 0.0]
        );
        assert!(decode(DType::Bf16, &encode(DType::Bf16, &[f64::NAN]))[0].is_nan());
        assert_eq!(decode(DType::Bf16, &encode(DType::Bf16, &[f64::MAX])), [f64::INFINITY]);
    }

    /// Both ways of converting agree on every upper half of a binary32, and beside it.
    #[test]
    fn through_f32_gives_what_f64_gives() {
        let numbers =
            (0..=0xffff_u32).flat_map(|high| [0, 1, 0x0fff, 0x1000, 0x8000, 0x8001].map(|low| high << 16 | low));
        let numbers: Vec<f32> = numbers.map(f32::from_bits).filter(|v| !v.is_nan()).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        for to in [DType::F16, DType::Bf16] {
            let short = through_f32(DType::F32, to, &bytes).unwrap();
            assert!(short == encode(to, &decode(DType::F32, &bytes)), "{to}");
            assert!(through_f32(to, DType::F32, &short).unwrap() == encode(DType::F32, &decode(to, &short)), "{to}");
        }
        let nan = decode(DType::F16, &through_f32(DType::F32, DType::F16, &f32::NAN.to_le_bytes()).unwrap());
        assert!(nan[0].is_nan());
    }

    #[test]
    fn every_bfloat16_survives_and_every_midpoint_goes_to_even() {
        for bits in 0..0x7f7f_u16 {
            let (low, high) = (bf16::from_bits(bits).to_f64(), bf16::from_bits(bits + 1).to_f64());
            let even = if bits % 2 == 0 { low } else { high };
            let middle = (low + high) / 2.0;
            let given = decode(DType::Bf16, &encode(DType::Bf16, &[low, middle, middle.next_up(), middle.next_down()]));
            assert_eq!(given, [low, even, high, low]);
        }
    }
}
