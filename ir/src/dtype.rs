//! Element types.

use std::fmt;
use std::str::FromStr;

use crate::SpellingError;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal;)*) => {
        /// The element type of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The name used in the text form, e.g. `f32`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Bits that an element takes where many are together: those of fewer than 8 bits share bytes, the
            /// first one in the lowest bits, and the last byte is filled up with zeros. 0 for text, whose elements
            /// are of different lengths.
            #[must_use]
            pub fn bits(self) -> usize {
                match self { $(DType::$variant => $bits,)* }
            }
        }
    };
}

dtypes! {
    /// One byte, 0 or 1.
    Bool = "bool", 8;
    /// Signed 8 bit integer.
    I8 = "i8", 8;
    /// Signed 16 bit integer.
    I16 = "i16", 16;
    /// Signed 32 bit integer.
    I32 = "i32", 32;
    /// Signed 64 bit integer.
    I64 = "i64", 64;
    /// Unsigned 8 bit integer.
    U8 = "u8", 8;
    /// Unsigned 16 bit integer.
    U16 = "u16", 16;
    /// Unsigned 32 bit integer.
    U32 = "u32", 32;
    /// Unsigned 64 bit integer.
    U64 = "u64", 64;
    /// IEEE 754 binary16.
    F16 = "f16", 16;
    /// bfloat16: the upper half of a binary32.
    Bf16 = "bf16", 16;
    /// IEEE 754 binary32.
    F32 = "f32", 32;
    /// IEEE 754 binary64.
    F64 = "f64", 64;
    /// Signed 2 bit integer, four a byte.
    I2 = "i2", 2;
    /// Unsigned 2 bit integer, four a byte.
    U2 = "u2", 2;
    /// Signed 4 bit integer, two a byte.
    I4 = "i4", 4;
    /// Unsigned 4 bit integer, two a byte.
    U4 = "u4", 4;
    /// 4 bit floating-point number of 2 exponent bits, two a byte; finite only.
    F4E2M1 = "f4e2m1", 4;
    /// 6 bit floating-point number of 2 exponent bits, four in three bytes; finite only.
    F6E2M3 = "f6e2m3", 6;
    /// 6 bit floating-point number of 3 exponent bits, four in three bytes; finite only.
    F6E3M2 = "f6e3m2", 6;
    /// 8 bit floating-point number of 4 exponent bits; no infinities.
    F8E4M3FN = "f8e4m3fn", 8;
    /// The same with another bias; no infinities, no negative zero.
    F8E4M3FNUZ = "f8e4m3fnuz", 8;
    /// 8 bit floating-point number of 5 exponent bits.
    F8E5M2 = "f8e5m2", 8;
    /// The same with another bias; no infinities, no negative zero.
    F8E5M2FNUZ = "f8e5m2fnuz", 8;
    /// A power of two, from its 8 exponent bits: a scale.
    F8E8M0 = "f8e8m0", 8;
    /// Text: bytes of any number, in general UTF-8.
    String = "string", 0;
}

impl DType {
    /// Bytes that an element takes by itself: its bits, rounded up; 1 for text, which is counted in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        self.bits().div_ceil(8).max(1)
    }

    /// Whether several elements share a byte.
    #[must_use]
    pub fn is_packed(self) -> bool {
        matches!(self.bits(), 1..8)
    }

    /// How many elements fill whole bytes, the fewest; 1 for text.
    #[must_use]
    pub fn group(self) -> usize {
        // The powers of two in the number of bits, up to 8, are what a byte shares with it.
        8 >> self.bits().trailing_zeros().min(3)
    }

    /// Whether operators compute with elements of this type. Others are stored, moved and converted only: integers and
    /// floating-point numbers that only weights are kept in, and text.
    #[must_use]
    pub fn is_computed(self) -> bool {
        self == DType::Bool || self.is_integer() || self.is_float()
    }

    /// Whether elements are floating-point numbers that operators compute with.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// Whether elements are integers that operators compute with (not booleans).
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64) || self.is_unsigned()
    }

    /// Whether elements are such integers without a sign.
    #[must_use]
    pub fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// Whether all numbers of this floating-point type are numbers of another floating-point type too.
    #[must_use]
    pub fn widens_to(self, other: DType) -> bool {
        match self {
            DType::F16 | DType::Bf16 => matches!(other, DType::F32 | DType::F64) || other == self,
            DType::F32 => matches!(other, DType::F32 | DType::F64),
            _ => self == DType::F64 && other == DType::F64,
        }
    }

    /// The most negative finite number of a floating-point type: what a masked attention
    /// score is set to.
    #[must_use]
    pub fn finite_min(self) -> Option<f64> {
        match self {
            DType::F16 => Some(half::f16::MIN.to_f64()),
            DType::Bf16 => Some(half::bf16::MIN.to_f64()),
            DType::F32 => Some(f64::from(f32::MIN)),
            DType::F64 => Some(f64::MIN),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = SpellingError;
    fn from_str(s: &str) -> Result<Self, SpellingError> {
        DType::ALL.iter().copied().find(|d| d.name() == s).ok_or_else(|| SpellingError::DType(s.to_owned()))
    }
}
