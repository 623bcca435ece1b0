//! Elements of fewer than 8 bits, and floating-point numbers of 8 bits and fewer, by their bits.

use crate::DType;

/// Splits bytes into elements of so many bits, the first one in the lowest bits. Elements of 6 bits lie four in three
/// bytes.
pub(super) fn unpack(bits: usize, bytes: &[u8]) -> impl Iterator<Item = u8> {
    let mask = u8::MAX >> (8 - bits);
    let group = if 8 % bits == 0 { 1 } else { bits / 2 };
    bytes.chunks(group).flat_map(move |group| {
        let all = group.iter().rev().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        // The lowest bits are kept.
        (0..group.len() * 8 / bits).map(move |at| (all >> (at * bits)) as u8 & mask)
    })
}

/// Puts elements of so many bits together; the last byte is filled up with zeros.
pub(super) fn pack(bits: usize, codes: &[u8]) -> Vec<u8> {
    if bits == 4 {
        let pairs = codes.as_chunks::<2>();
        let whole = pairs.0.iter().map(|[low, high]| low & 0x0f | high << 4);
        return whole.chain(pairs.1.iter().map(|low| low & 0x0f)).collect();
    }
    let mask = u8::MAX >> (8 - bits);
    let byte = |codes: &[u8]| {
        codes.iter().rev().fold(0, |byte: u8, code| byte.checked_shl(bits as u32).unwrap_or(0) | code & mask)
    };
    if bits == 6 {
        let groups = codes.chunks(4).flat_map(|group| {
            let all = group.iter().rev().fold(0u32, |all, code| all << bits | u32::from(code & mask));
            all.to_le_bytes().into_iter().take((group.len() * bits).div_ceil(8))
        });
        return groups.collect();
    }
    codes.chunks(8 / bits).map(byte).collect()
}

/// The bytes of elements of a type that is not computed with, given by their bits, one a byte.
#[must_use]
pub fn pack_codes(dtype: DType, codes: &[u8]) -> Vec<u8> {
    if dtype.is_packed() { pack(dtype.bits(), codes) } else { codes.to_vec() }
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
        DType::F6E2M3 => (2, 3, 1, Last::Finite),
        DType::F6E3M2 => (3, 2, 3, Last::Finite),
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

/// Gives the bits of a type that is not computed with that stand for numbers: integers are truncated and saturate;
/// floating-point numbers round to the nearest, of two that are as near to the one whose last bit is 0, and saturate.
pub(super) struct Encoder {
    dtype: DType,
    /// The finite numbers whose sign bit is 0, by their bits; empty for integers.
    numbers: Vec<f64>,
    /// The bit of the sign; absent for types without one.
    sign: Option<u8>,
    /// Whether there is a zero with a sign.
    has_negative_zero: bool,
    /// The first pattern that is not a number, or 0.
    nan: u8,
}

impl Encoder {
    /// For a type.
    pub(super) fn new(dtype: DType) -> Self {
        let codes = || 0..=u8::MAX >> (8 - dtype.bits());
        let integer = matches!(dtype, DType::I2 | DType::I4 | DType::U2 | DType::U4);
        let sign = format(dtype).map(|format| 1 << (format.exponent + format.fraction));
        let positive = codes().take_while(|code| sign.is_none_or(|sign| *code < sign));
        let finite = positive.map_while(|code| number(dtype, code).filter(|n| n.is_finite()));
        let nan = codes().find(|code| number(dtype, *code).is_some_and(f64::is_nan));
        Self {
            dtype,
            numbers: if integer { Vec::new() } else { finite.collect() },
            sign,
            has_negative_zero: sign.is_some_and(|sign| number(dtype, sign) == Some(0.0)),
            nan: nan.unwrap_or(0),
        }
    }

    /// The bits of a number.
    pub(super) fn code(&self, value: f64) -> u8 {
        // The cast saturates.
        let clamped = |low: f64, high: f64| (value.clamp(low, high) as i8).cast_unsigned();
        match self.dtype {
            DType::I2 => return clamped(-2.0, 1.0),
            DType::I4 => return clamped(-8.0, 7.0),
            DType::U2 => return clamped(0.0, 3.0),
            DType::U4 => return clamped(0.0, 15.0),
            _ => {}
        }
        if value.is_nan() {
            return self.nan;
        }
        // Without a sign, what is below 0 saturates.
        let magnitude = if self.sign.is_some() { value.abs() } else { value };
        let magnitude = self.numbers.last().map_or(magnitude, |largest| magnitude.min(*largest));
        let above = self.numbers.partition_point(|n| *n < magnitude).min(self.numbers.len().saturating_sub(1));
        let below = above.saturating_sub(1);
        let distance = |at: usize| self.numbers.get(at).map_or(f64::INFINITY, |n| (n - magnitude).abs());
        let nearest = match distance(below).total_cmp(&distance(above)) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => above,
            std::cmp::Ordering::Equal => below + below % 2 * (above - below),
        };
        let code = u8::try_from(nearest).unwrap_or(u8::MAX);
        match self.sign {
            Some(sign) if value.is_sign_negative() && (code > 0 || self.has_negative_zero) => code | sign,
            _ => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the format specifies: x0 | x1 << 6 | x2 << 12 | x3 << 18 in three bytes, the last group filled up with zeros.
    #[test]
    fn elements_of_6_bits_lie_four_in_three_bytes() {
        let codes = [0x01, 0x3f, 0x2a, 0x15, 0x20];
        let bytes = pack(6, &codes);
        assert_eq!(bytes, [0xc1, 0xaf, 0x56, 0x20]);
        assert_eq!(unpack(6, &bytes).take(codes.len()).collect::<Vec<u8>>(), codes);
        for length in 0..9 {
            let codes: Vec<u8> = (0..length).map(|i| (i * 7) & 0x3f).collect();
            let bytes = pack(6, &codes);
            assert_eq!(bytes.len(), (codes.len() * 6).div_ceil(8));
            assert_eq!(unpack(6, &bytes).take(codes.len()).collect::<Vec<u8>>(), codes);
        }
    }

    /// Against a search of all patterns: of the nearest the one whose last bit is 0, then the one of the same sign.
    #[test]
    fn the_nearest_of_all_patterns() {
        let types = [
            DType::F4E2M1,
            DType::F6E2M3,
            DType::F6E3M2,
            DType::F8E4M3FN,
            DType::F8E4M3FNUZ,
            DType::F8E5M2,
            DType::F8E5M2FNUZ,
            DType::F8E8M0,
        ];
        for dtype in types {
            let codes = 0..=u8::MAX >> (8 - dtype.bits());
            let all: Vec<(u8, f64)> = codes.filter_map(|code| Some((code, number(dtype, code)?))).collect();
            let finite: Vec<(u8, f64)> = all.iter().copied().filter(|(_, n)| n.is_finite()).collect();
            let largest = finite.iter().fold(0.0, |a: f64, (_, n)| a.max(*n));
            let mut values: Vec<f64> = finite.iter().map(|(_, n)| *n).collect();
            values.sort_by(f64::total_cmp);
            let middles: Vec<f64> = values.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
            let beside: Vec<f64> = middles.iter().flat_map(|m| [m.next_up(), m.next_down()]).collect();
            let ends = [0.0, -0.0, 1e-300, -1e-300, largest * 1.5, -largest * 1.5, f64::INFINITY, f64::NEG_INFINITY];
            let encoder = Encoder::new(dtype);
            for value in values.into_iter().chain(middles).chain(beside).chain(ends) {
                let least = finite.iter().fold(f64::INFINITY, |a, (_, n)| a.min(*n));
                let near = value.clamp(least, largest);
                let rank = |(code, n): &(u8, f64)| {
                    ((n - near).abs(), code & 1, n.is_sign_negative() != near.is_sign_negative())
                };
                let order = |a: &(u8, f64), b: &(u8, f64)| {
                    let (a, b) = (rank(a), rank(b));
                    a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2)))
                };
                let expected = finite.iter().copied().min_by(|a, b| order(a, b)).unwrap();
                assert_eq!(encoder.code(value), expected.0, "{dtype} {value:e}");
            }
            let nan = all.iter().find(|(_, n)| n.is_nan()).map_or(0, |(code, _)| *code);
            assert_eq!(encoder.code(f64::NAN), nan, "{dtype}");
        }
    }
}
