//! Conversion of element bytes between types.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::{small, text};
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

/// The numbers that so many elements of a tensor are, from its bytes. Integers beyond 2^53 round; text that is no
/// number is not a number.
pub(super) fn decode(dtype: DType, bytes: &[u8], elements: usize) -> Vec<f64> {
    if dtype == DType::String {
        let parsed = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok());
        let elements = text::unpack_text(bytes).unwrap_or_default();
        return elements.into_iter().map(|text| parsed(text).unwrap_or(f64::NAN)).collect();
    }
    if !dtype.is_computed() {
        let number = |code| small::number(dtype, code).unwrap_or(f64::NAN);
        return small::unpack(dtype.bits(), bytes).take(elements).map(number).collect();
    }
    let each = bytes.chunks_exact(dtype.size());
    with_float!(dtype, |T| each.map(|b| T::load(b).widen()).collect(), else {
        each.map(|b| integer(dtype, b) as f64).collect()
    })
}

/// The bytes of numbers as elements of a type: floats round to nearest even, integers are
/// truncated towards zero and saturate, booleans are whether the number differs from zero, text is its digits.
pub(super) fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    if dtype == DType::String {
        let digits: Vec<String> = values.iter().map(f64::to_string).collect();
        return text::pack(&digits).unwrap_or_default();
    }
    if !dtype.is_computed() {
        let encoder = small::Encoder::new(dtype);
        let codes: Vec<u8> = values.iter().map(|&v| encoder.code(v)).collect();
        return small::pack(dtype.bits(), &codes);
    }
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

/// Converts the bytes of so many elements. Between floating-point types rounding is to nearest even, once.
pub(super) fn convert(from: DType, to: DType, bytes: &[u8], elements: usize) -> Vec<u8> {
    if let Some(out) = through_f32(from, to, bytes) {
        return out;
    }
    with_float!(from, |A| with_float!(to, |B| {
        let mut out = Vec::with_capacity(bytes.len() / size_of::<A>() * size_of::<B>());
        for b in bytes.chunks_exact(size_of::<A>()) {
            <B as Float>::narrow(A::load(b).widen()).store(&mut out);
        }
        out
    }, else encode(to, &decode(from, bytes, elements))), else encode(to, &decode(from, bytes, elements)))
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
        let convert = |to: DType, v: f32| decode(to, &convert(DType::F32, to, &v.to_le_bytes(), 1), 1)[0];
        let (step, ulp) = (2f32.powi(-7), f32::EPSILON);
        assert_eq!(convert(DType::Bf16, 1.0 + step / 2.0), 1.0);
        assert_eq!(convert(DType::Bf16, 1.0 + step / 2.0 + ulp), f64::from(1.0 + step));
        assert_eq!(convert(DType::Bf16, 1.0 + step * 1.5 - ulp), f64::from(1.0 + step));
        assert_eq!(convert(DType::Bf16, -(1.0 + step / 2.0 + ulp)), f64::from(-1.0 - step));

        let beside = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(
            decode(DType::F16, &encode(DType::F16, &[beside, -beside, f64::MAX, 1e-300]), 4),
            [1.0 + 2f64.powi(-10), -1.0 - 2f64.powi(-10), f64::INFINITY, 0.0]
        );
        assert!(decode(DType::Bf16, &encode(DType::Bf16, &[f64::NAN]), 1)[0].is_nan());
        assert_eq!(decode(DType::Bf16, &encode(DType::Bf16, &[f64::MAX]), 1), [f64::INFINITY]);
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
            assert!(short == encode(to, &decode(DType::F32, &bytes, numbers.len())), "{to}");
            assert!(
                through_f32(to, DType::F32, &short).unwrap() == encode(DType::F32, &decode(to, &short, numbers.len())),
                "{to}"
            );
        }
        let nan = decode(DType::F16, &through_f32(DType::F32, DType::F16, &f32::NAN.to_le_bytes()).unwrap(), 1);
        assert!(nan[0].is_nan());
    }

    /// Every pattern of every small type against what ml_dtypes says (tools/small_types.py).
    #[test]
    fn small_types_are_what_ml_dtypes_says() {
        let table = include_str!("../../../fixtures/small_types/numbers.csv");
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (name, numbers) = line.split_once(',').unwrap();
            let dtype: DType = name.parse().unwrap();
            let expected: Vec<f64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
            assert_eq!(expected.len(), 1 << dtype.bits(), "{dtype}");
            let codes: Vec<u8> = (0..expected.len()).map(|code| u8::try_from(code).unwrap()).collect();
            let bytes = small::pack(dtype.bits(), &codes);
            let found = decode(dtype, &bytes, codes.len());
            let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(found.iter().zip(&expected).all(same), "{dtype}: {found:?}");
            // Each number has bits of its own, but infinities saturate, and one of several stands for what is none.
            let finite: Vec<f64> = expected.iter().copied().filter(|v| v.is_finite()).collect();
            let back = decode(dtype, &encode(dtype, &finite), finite.len());
            assert!(back.iter().zip(&finite).all(same), "{dtype}: {back:?}");
        }
        assert_eq!(table.lines().filter(|line| !line.starts_with('#')).count(), 12);
    }

    #[test]
    fn small_types_round_to_even_and_saturate() {
        let given = |dtype, values: &[f64]| decode(dtype, &encode(dtype, values), values.len());
        assert_eq!(given(DType::F8E4M3FN, &[17.0, 19.0, 1e9, -1e9]), [16.0, 20.0, 448.0, -448.0]);
        assert_eq!(given(DType::F4E2M1, &[0.25, 0.75, 2.5, 5.0, -9.0]), [0.0, 1.0, 2.0, 4.0, -6.0]);
        assert_eq!(given(DType::I4, &[7.9, 8.0, -9.0, -1.5, f64::NAN]), [7.0, 7.0, -8.0, -1.0, 0.0]);
        assert_eq!(given(DType::U2, &[-1.0, 2.5, 4.0]), [0.0, 2.0, 3.0]);
        assert!(given(DType::F8E5M2, &[f64::NAN])[0].is_nan());
        assert_eq!(given(DType::String, &[1.5, -2.0]), [1.5, -2.0]);
    }

    #[test]
    fn every_bfloat16_survives_and_every_midpoint_goes_to_even() {
        for bits in 0..0x7f7f_u16 {
            let (low, high) = (bf16::from_bits(bits).to_f64(), bf16::from_bits(bits + 1).to_f64());
            let even = if bits % 2 == 0 { low } else { high };
            let middle = (low + high) / 2.0;
            let given =
                decode(DType::Bf16, &encode(DType::Bf16, &[low, middle, middle.next_up(), middle.next_down()]), 4);
            assert_eq!(given, [low, even, high, low]);
        }
    }
}
