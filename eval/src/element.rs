//! The Rust types that store elements, and how each becomes a number to compute with and back:
//! floats compute in `f64`, integers in `i128`, which holds sums and products of two.

use half::{bf16, f16};
use planish_ir::{bf16_from_f64, f16_from_f64};

use crate::{Data, Tensor};

/// A type that stores elements.
pub(crate) trait Element: Copy + Default + PartialOrd + Send + Sync {
    /// Elements as the data of a tensor.
    fn data(elements: Vec<Self>) -> Data;
    /// The elements of a tensor.
    ///
    /// # Errors
    /// When they are of another type.
    fn of(tensor: &Tensor) -> Result<&[Self], String>;
}

/// A floating-point type.
pub(crate) trait Float: Element {
    /// The same number.
    fn widen(self) -> f64;
    /// The nearest number of this type, ties to even.
    fn narrow(value: f64) -> Self;
    /// The nearest number of this type to an integer, ties to even.
    fn from_int(value: i128) -> Self;
}

/// An integer type.
pub(crate) trait Int: Element {
    /// The same number.
    fn widen(self) -> i128;
    /// The same number, where it is in range.
    fn narrow(value: i128) -> Option<Self>;
    /// The number of this type with the same low bits, in two's complement.
    fn low_bits(value: i128) -> Self;
}

macro_rules! element {
    ($($t:ty = $as:ident;)*) => {
        $(impl Element for $t {
            fn data(elements: Vec<Self>) -> Data {
                elements.into()
            }
            fn of(tensor: &Tensor) -> Result<&[Self], String> {
                tensor.$as().ok_or_else(|| format!("an operand is {}, expected {}", tensor.ty(), stringify!($t)))
            }
        })*
    };
}

element! {
    bool = as_bool;
    i8 = as_i8;
    i16 = as_i16;
    i32 = as_i32;
    i64 = as_i64;
    u8 = as_u8;
    u16 = as_u16;
    u32 = as_u32;
    u64 = as_u64;
    f16 = as_f16;
    bf16 = as_bf16;
    f32 = as_f32;
    f64 = as_f64;
}

macro_rules! float {
    ($($t:ty: $widen:expr, $narrow:expr, $from_int:expr;)*) => {
        $(impl Float for $t {
            #[inline]
            fn widen(self) -> f64 {
                $widen(self)
            }
            #[inline]
            fn narrow(value: f64) -> Self {
                $narrow(value)
            }
            #[inline]
            fn from_int(value: i128) -> Self {
                $from_int(value)
            }
        })*
    };
}

float! {
    f16: f16::to_f64, f16_from_f64, |v| Self::narrow(sticky(v));
    bf16: bf16::to_f64, bf16_from_f64, |v| Self::narrow(sticky(v));
    f32: f64::from, |v| v as f32, |v| v as f32;
    f64: |v| v, |v| v, |v| v as f64;
}

/// An integer of at most 64 bits as `f64`; of one too large to be exact, the lowest bits are drawn together into one
/// that says whether any was set, which is all that rounding to a short type needs to know.
fn sticky(value: i128) -> f64 {
    if value.unsigned_abs() < 1 << 53 {
        return value as f64;
    }
    let lowest = (1 << 12) - 1;
    ((value & !lowest) | i128::from(value & lowest != 0) << 11) as f64
}

macro_rules! int {
    ($($t:ty),*) => {
        $(impl Int for $t {
            #[inline]
            fn widen(self) -> i128 {
                i128::from(self)
            }
            #[inline]
            fn narrow(value: i128) -> Option<Self> {
                value.try_into().ok()
            }
            #[inline]
            fn low_bits(value: i128) -> Self {
                value as $t
            }
        })*
    };
}

int!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Evaluates `$body` with `$t` bound to the type that stores elements of a dtype. Groups of dtypes
/// that are not handled all together are given one after the other: `any`, or `float`, `int`,
/// `bool` and what `else` remains.
macro_rules! with_type {
    ($dtype:expr, any $t:ident => $body:expr) => {
        with_type!($dtype, float $t => $body, int $t => $body, bool => { type $t = bool; $body })
    };
    ($dtype:expr, float $t:ident => $float:expr, int $u:ident => $int:expr, bool => $bool:expr) => {
        match $dtype {
            planish_ir::DType::F16 => { type $t = half::f16; $float }
            planish_ir::DType::Bf16 => { type $t = half::bf16; $float }
            planish_ir::DType::F32 => { type $t = f32; $float }
            planish_ir::DType::F64 => { type $t = f64; $float }
            planish_ir::DType::I8 => { type $u = i8; $int }
            planish_ir::DType::I16 => { type $u = i16; $int }
            planish_ir::DType::I32 => { type $u = i32; $int }
            planish_ir::DType::I64 => { type $u = i64; $int }
            planish_ir::DType::U8 => { type $u = u8; $int }
            planish_ir::DType::U16 => { type $u = u16; $int }
            planish_ir::DType::U32 => { type $u = u32; $int }
            planish_ir::DType::U64 => { type $u = u64; $int }
            planish_ir::DType::Bool => $bool,
            other => return Err(format!("is not defined for {other}")),
        }
    };
    ($dtype:expr, float $t:ident => $float:expr) => {
        match $dtype {
            planish_ir::DType::F16 => { type $t = half::f16; $float }
            planish_ir::DType::Bf16 => { type $t = half::bf16; $float }
            planish_ir::DType::F32 => { type $t = f32; $float }
            planish_ir::DType::F64 => { type $t = f64; $float }
            other => Err(format!("is not defined for {other}")),
        }
    };
}

pub(crate) use with_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowing_rounds_once() {
        // Just above the tie between 1 and 1 + 2^-10: rounding to f32 first would lose the excess.
        let above_tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(<f16 as Float>::narrow(above_tie).to_f64(), 1.0 + 2f64.powi(-10));
        assert_eq!(<f16 as Float>::narrow(-above_tie).to_f64(), -1.0 - 2f64.powi(-10));
        assert_eq!(<f16 as Float>::narrow(1.0 + 2f64.powi(-11)).to_f64(), 1.0);
        let above_tie = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(<bf16 as Float>::narrow(above_tie).to_f64(), 1.0 + 2f64.powi(-7));
    }

    #[test]
    fn narrowing_keeps_special_numbers() {
        assert_eq!(<f16 as Float>::narrow(1e6), f16::INFINITY);
        assert_eq!(<f16 as Float>::narrow(f64::NEG_INFINITY), f16::NEG_INFINITY);
        assert_eq!(<f16 as Float>::narrow(1e-300), f16::ZERO);
        assert_eq!(<bf16 as Float>::narrow(1e300), bf16::INFINITY);
        assert!(<bf16 as Float>::narrow(f64::NAN).is_nan());
        assert!(<f16 as Float>::narrow(-0.0).is_sign_negative());
    }

    proptest::proptest! {
        #[test]
        fn narrowing_takes_a_nearest_number(value in -70000.0..70000.0f64) {
            let taken = <f16 as Float>::narrow(value);
            let bits = taken.to_bits();
            for neighbour in [bits.wrapping_sub(1), bits.wrapping_add(1)].map(f16::from_bits) {
                let distance = |n: f16| if n.is_infinite() { (65536.0 - value.abs()).abs() } else { (n.to_f64() - value).abs() };
                proptest::prop_assert!(neighbour.is_nan() || distance(taken) <= distance(neighbour));
            }
        }
    }
}
