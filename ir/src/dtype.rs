//! Element types.

use std::fmt;
use std::str::FromStr;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bytes:literal;)*) => {
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

            /// Bytes an element takes.
            #[must_use]
            pub fn size(self) -> usize {
                match self { $(DType::$variant => $bytes,)* }
            }
        }
    };
}

dtypes! {
    /// One byte, 0 or 1.
    Bool = "bool", 1;
    /// Signed 8 bit integer.
    I8 = "i8", 1;
    /// Signed 16 bit integer.
    I16 = "i16", 2;
    /// Signed 32 bit integer.
    I32 = "i32", 4;
    /// Signed 64 bit integer.
    I64 = "i64", 8;
    /// Unsigned 8 bit integer.
    U8 = "u8", 1;
    /// Unsigned 16 bit integer.
    U16 = "u16", 2;
    /// Unsigned 32 bit integer.
    U32 = "u32", 4;
    /// Unsigned 64 bit integer.
    U64 = "u64", 8;
    /// IEEE 754 binary16.
    F16 = "f16", 2;
    /// bfloat16: the upper half of a binary32.
    Bf16 = "bf16", 2;
    /// IEEE 754 binary32.
    F32 = "f32", 4;
    /// IEEE 754 binary64.
    F64 = "f64", 8;
}

impl DType {
    /// Whether elements are floating-point numbers.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// Whether elements are integers (not booleans).
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64) || self.is_unsigned()
    }

    /// Whether elements are integers without a sign.
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
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        DType::ALL.iter().copied().find(|d| d.name() == s).ok_or_else(|| format!("unknown element type `{s}`"))
    }
}
