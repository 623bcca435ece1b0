//! The metadata of a GGUF file.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Integer(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Array),
}

/// As a person reads it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Bool(flag) => flag.fmt(f),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Array(list) => write!(f, "a list of {} elements", list.length),
        }
    }
}

/// A list of the metadata, which stays as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(super) kind: u32,
    pub(super) length: usize,
    pub(super) place: Range<usize>,
}

/// The metadata of a file by key.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub(super) header: Vec<u8>,
    pub(super) values: BTreeMap<String, Value>,
}

impl Metadata {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The keys with a beginning.
    pub(crate) fn keys(&self, beginning: &str) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str).filter(move |key| key.starts_with(beginning))
    }

    /// The elements of a list of texts; `None` where it is another list, or a text is not UTF-8.
    pub(crate) fn texts(&self, array: &Array) -> Option<Vec<&str>> {
        let mut bytes = self.header.get(array.place.clone())?;
        (array.kind == TEXT).then_some(())?;
        let mut texts = Vec::with_capacity(array.length.min(bytes.len() / 8));
        while let Some((length, rest)) = bytes.split_first_chunk::<8>() {
            let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            texts.push(std::str::from_utf8(text).ok()?);
            bytes = rest;
        }
        Some(texts)
    }

    /// The elements of a list of booleans; `None` where it is another list.
    pub(crate) fn flags(&self, array: &Array) -> Option<Vec<bool>> {
        let bytes = self.header.get(array.place.clone())?;
        (array.kind == BOOL).then(|| bytes.iter().map(|byte| *byte != 0).collect())
    }

    /// The elements of a list of numbers; `None` where it is another list.
    pub(crate) fn numbers(&self, array: &Array) -> Option<Vec<f64>> {
        let bytes = self.header.get(array.place.clone())?;
        let size = scalar_bytes(array.kind)?;
        bytes
            .chunks_exact(size)
            .map(|bytes| match scalar(array.kind, bytes)? {
                Value::Integer(number) => Some(number as f64),
                Value::Float(number) => Some(number),
                _ => None,
            })
            .collect()
    }
}

const BOOL: u32 = 7;
pub(super) const TEXT: u32 = 8;
pub(super) const ARRAY: u32 = 9;

/// The bytes of a value of a type that is neither text nor a list.
pub(super) fn scalar_bytes(kind: u32) -> Option<usize> {
    Some(match kind {
        0 | 1 | BOOL => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

/// A number or a boolean of its stored bytes; `None` where the type is another.
pub(super) fn scalar(kind: u32, bytes: &[u8]) -> Option<Value> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    let signed = |bits: u32| i128::from(unsigned.cast_signed() << (64 - bits) >> (64 - bits));
    Some(match kind {
        0 | 2 | 4 | 10 => Value::Integer(unsigned.into()),
        1 => Value::Integer(signed(8)),
        3 => Value::Integer(signed(16)),
        5 => Value::Integer(signed(32)),
        11 => Value::Integer(signed(64)),
        6 => Value::Float(f32::from_le_bytes(*bytes.first_chunk()?).into()),
        12 => Value::Float(f64::from_le_bytes(wide)),
        BOOL => Value::Bool(unsigned != 0),
        _ => return None,
    })
}
