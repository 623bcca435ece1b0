//! What keeps another type than the rest: `PATTERN[=TYPE]`.

use std::fmt;
use std::str::FromStr;

use planish_passes::{Exception, KeptType, Named};
use regex::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The layer that scores tokens, and the table of tokens where both are one weight.
pub const HEAD: &str = "@head";
/// The table of tokens.
pub const TABLE: &str = "@table";

/// What keeps another type than the rest.
#[derive(Clone, Debug)]
pub struct Keep {
    /// `@head`, `@table`, or a regular expression of names of operators, weights and modules.
    pub pattern: Regex,
    /// The type; where absent, a float where something is quantized, else float32.
    pub kept: Option<KeptAs>,
}

/// The type of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAs {
    /// float32, also where the rest is in half precision.
    Fp32,
    /// The floating-point type of the artifact.
    Float,
    /// Weights of 8 bits.
    Int8,
    /// Weights of 4 bits.
    Int4,
}

impl KeptAs {
    const NAMES: [(&'static str, Self); 4] =
        [("fp32", Self::Fp32), ("float", Self::Float), ("int8", Self::Int8), ("int4", Self::Int4)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kept)| *kept == self).map_or("", |(name, _)| name)
    }
}

impl Keep {
    /// As passes have it, with the reason that a plan gives; `usual` is the type where none is given.
    #[must_use]
    pub fn exception(&self, usual: KeptType) -> Exception {
        let (of, reason) = match self.pattern.as_str() {
            HEAD => (Named::Head, format!("keep {HEAD} says so")),
            TABLE => (Named::Table, format!("keep {TABLE} says so")),
            pattern => (Named::Names(self.pattern.clone()), format!("`{pattern}` of keep matches")),
        };
        let ty = match self.kept {
            None => usual,
            Some(KeptAs::Fp32) => KeptType::Single,
            Some(KeptAs::Float) => KeptType::Float,
            Some(KeptAs::Int8) => KeptType::Eight,
            Some(KeptAs::Int4) => KeptType::Four,
        };
        Exception { of, ty, reason }
    }

    /// Whether it is of all weights that a pattern names, and not of the head or the table.
    pub fn is_pattern(&self) -> bool {
        ![HEAD, TABLE].contains(&self.pattern.as_str())
    }

    /// Whether what matches stays a float.
    pub fn is_float(&self) -> bool {
        matches!(self.kept, None | Some(KeptAs::Fp32 | KeptAs::Float))
    }
}

impl PartialEq for Keep {
    fn eq(&self, other: &Self) -> bool {
        (self.pattern.as_str(), self.kept) == (other.pattern.as_str(), other.kept)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pattern.as_str())?;
        self.kept.map_or(Ok(()), |kept| write!(f, "={}", kept.name()))
    }
}

/// A text is not `PATTERN[=TYPE]`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeepError {
    /// There is no type of this name.
    #[error("`{0}` is none of the types {all}", all = KeptAs::NAMES.map(|(name, _)| name).join(", "))]
    Type(String),
    /// There is no pattern.
    #[error("an empty pattern matches every name; write .* to say so")]
    Empty,
    /// It names neither the head nor the table.
    #[error("`{0}` is none of {HEAD} and {TABLE}")]
    Part(String),
    /// The pattern is no regular expression.
    #[error(transparent)]
    Pattern(#[from] regex::Error),
}

impl FromStr for Keep {
    type Err = KeepError;

    fn from_str(text: &str) -> Result<Self, KeepError> {
        let (pattern, kept) = match text.rsplit_once('=') {
            None => (text, None),
            Some((pattern, name)) => {
                let found = KeptAs::NAMES.iter().find(|(own, _)| *own == name).map(|(_, kept)| *kept);
                (pattern, Some(found.ok_or_else(|| KeepError::Type(name.to_owned()))?))
            }
        };
        if pattern.is_empty() {
            return Err(KeepError::Empty);
        }
        if pattern.starts_with('@') && ![HEAD, TABLE].contains(&pattern) {
            return Err(KeepError::Part(pattern.to_owned()));
        }
        Ok(Self { pattern: Regex::new(pattern)?, kept })
    }
}

impl Serialize for Keep {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}
