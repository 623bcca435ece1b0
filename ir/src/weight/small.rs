//! Elements of fewer than 8 bits, and floating-point numbers of 8 bits and fewer, by their bits.

use crate::DType;

/// Splits bytes into elements of so many bits, a divisor of 8, the first one in the lowest bits.
pub(super) fn unpack(bits: usize, bytes: &[u8]) -> impl Iterator<Item = u8> {
    let mask = u8::MAX >> (8 - bits);
    bytes.iter().flat_map(move |byte| (0..8).step_by(bits).map(move |at| (byte >> at) & mask))
}

/// Puts elements of so many bits together; the last byte is filled up with zeros.
pub(super) fn pack(bits: usize, codes: &[u8]) -> Vec<u8> {
    let mask = u8::MAX >> (8 - bits);
    let byte = |codes: &[u8]| {
        codes.iter().rev().fold(0, |byte: u8, code| byte.checked_shl(bits as u32).unwrap_or(0) | code & mask)
    };
    codes.chunks(8 / bits).map(byte).collect()
}

/// A floating-point format: bits of exponent and of fraction, bias, and what its last numbers are.
struct Format {
    exponent: i32,
    fraction: i32,
    bias: i32,
    last: Last,
}

/// What the largest exponent, or else a pattern, stands for.
enum Last {
    /// Numbers only.
    Finite,
    /// Infinities and what is not a number, as in IEEE 754.
    Ieee,
    /// All bits but the sign: not a number.
    AllOnes,
    /// The sign alone: not a number.
    NegativeZero,
}

fn format(dtype: DType) -> Option<Format> {
    let (exponent, fraction, bias, last) = match dtype {
        DType::F4E2M1 => (2, 1, 1, Last::Finite),
        DType::F8E4M3FN => (4, 3, 7, Last::AllOnes),
        DType::F8E4M3FNUZ => (4, 3, 8, Last::NegativeZero),
        DType::F8E5M2 => (5, 2, 15, Last::Ieee),
        DType::F8E5M2FNUZ => (5, 2, 16, Last::NegativeZero),
        _ => return None,
    };
    Some(Format { exponent, fraction, bias, last })
}

/// The number that bits stand for, of a type that is not computed with; `None` for other types.
pub(super) fn number(dtype: DType, code: u8) -> Option<f64> {
    let signed = |bits: u32| f64::from((code << (8 - bits)).cast_signed() >> (8 - bits));
    match dtype {
        DType::I2 => return Some(signed(2)),
        DType::I4 => return Some(signed(4)),
        DType::U2 | DType::U4 => return Some(f64::from(code)),
        DType::F8E8M0 => return Some(if code == u8::MAX { f64::NAN } else { 2f64.powi(i32::from(code) - 127) }),
        _ => {}
    }
    let Format { exponent, fraction, bias, last } = format(dtype)?;
    let code = i32::from(code);
    let sign = if code >> (exponent + fraction) & 1 == 1 { -1.0 } else { 1.0 };
    let magnitude = code & ((1 << (exponent + fraction)) - 1);
    let (power, part) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
    let largest = power == (1 << exponent) - 1;
    let special = match last {
        Last::Finite => None,
        Last::Ieee if largest && part == 0 => Some(sign * f64::INFINITY),
        Last::Ieee => largest.then_some(f64::NAN),
        Last::AllOnes => (magnitude == (1 << (exponent + fraction)) - 1).then_some(f64::NAN),
        Last::NegativeZero => (magnitude == 0 && sign < 0.0).then_some(f64::NAN),
    };
    let (power, whole) = if power == 0 { (1, 0) } else { (power, 1 << fraction) };
    Some(special.unwrap_or_else(|| sign * f64::from(whole | part) * 2f64.powi(power - bias - fraction)))
}

/// The bits of a type that is not computed with that stand for a number: integers are truncated and saturate;
/// floating-point numbers round to the nearest, of two that are as near to the one whose last bit is 0, and saturate.
pub(super) fn code(dtype: DType, value: f64) -> u8 {
    let bits = dtype.bits();
    // The cast saturates.
    let clamped = |low: f64, high: f64| (value.clamp(low, high) as i8).cast_unsigned();
    match dtype {
        DType::I2 => return clamped(-2.0, 1.0),
        DType::I4 => return clamped(-8.0, 7.0),
        DType::U2 => return clamped(0.0, 3.0),
        DType::U4 => return clamped(0.0, 15.0),
        _ => {}
    }
    let codes = 0..=u8::MAX >> (8 - bits);
    let numbers = codes.filter_map(|code| Some((code, number(dtype, code)?)));
    if value.is_nan() {
        return numbers.filter(|(_, n)| n.is_nan()).map(|(code, _)| code).next().unwrap_or(0);
    }
    let finite = numbers.filter(|(_, n)| n.is_finite());
    let (low, high) = finite.clone().fold((f64::MAX, f64::MIN), |(low, high), (_, n)| (low.min(n), high.max(n)));
    let value = value.clamp(low, high);
    // A zero of the other sign is as near, and as even: the sign decides last, since not all types have both.
    let rank = |code: u8, n: f64| ((n - value).abs(), code & 1, n.is_sign_negative() != value.is_sign_negative());
    let nearest = finite.map(|(code, n)| (rank(code, n), code));
    let nearest = nearest.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    nearest.map_or(0, |(_, code)| code)
}
