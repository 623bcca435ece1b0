//! The entries of a cache: what a step leaves for the next one.

use std::fmt;
use std::str::FromStr;

use super::UnknownRole;

/// A tensor of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheEntry {
    /// The layer, from 0 on.
    pub layer: usize,
    /// How it changes from step to step.
    pub kind: CacheKind,
    /// Which tensor of the layer it is.
    pub tensor: CacheTensor,
}

/// How a cache entry changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    /// It grows by the new tokens along an axis.
    Growing {
        /// The axis of tokens.
        axis: usize,
    },
    /// It has the latest tokens of a window.
    Window,
    /// It is made of what the encoder gives, by the first step, and stays as it is.
    Encoder,
    /// The last inputs of a convolution: its size is fixed.
    Convolution,
    /// The state of a recurrence: its size is fixed.
    Recurrent,
}

impl CacheKind {
    /// Whether it is a state of a fixed size: zeros before the first token, and none that a shorter text has.
    #[must_use]
    pub fn is_state(self) -> bool {
        matches!(self, Self::Convolution | Self::Recurrent)
    }
}

/// Which tensor of a layer a cache entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheTensor {
    /// Keys of attention.
    Key,
    /// Values of attention.
    Value,
    /// Both, one after the other along the first axis.
    KeyAndValue,
    /// Queries, of layers that convolve them.
    Query,
    /// A state that is neither.
    State,
}

/// The kinds without an axis, and the tensors, with their names in text.
const KINDS: &[(&str, CacheKind)] = &[
    ("window", CacheKind::Window),
    ("encoder", CacheKind::Encoder),
    ("convolution", CacheKind::Convolution),
    ("recurrent", CacheKind::Recurrent),
];
const TENSORS: &[(&str, CacheTensor)] = &[
    ("key", CacheTensor::Key),
    ("value", CacheTensor::Value),
    ("key-and-value", CacheTensor::KeyAndValue),
    ("query", CacheTensor::Query),
    ("state", CacheTensor::State),
];

/// The name of a value in a table.
fn name_of<T: PartialEq>(table: &'static [(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, other)| other == value).map_or("", |(name, _)| name)
}

/// As text: `growing(2).0.key`, `encoder.3.value`, `convolution.1.state`.
impl fmt::Display for CacheEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            CacheKind::Growing { axis } => write!(f, "growing({axis})")?,
            CacheKind::Window | CacheKind::Encoder | CacheKind::Convolution | CacheKind::Recurrent => {
                f.write_str(name_of(KINDS, &self.kind))?;
            }
        }
        write!(f, ".{}.{}", self.layer, name_of(TENSORS, &self.tensor))
    }
}

impl FromStr for CacheEntry {
    type Err = UnknownRole;
    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let find = || {
            let [kind, layer, tensor] = text.split('.').collect::<Vec<_>>()[..] else { return None };
            let axis = kind.strip_prefix("growing(").and_then(|rest| rest.strip_suffix(')'));
            let kind = match axis {
                Some(axis) => CacheKind::Growing { axis: axis.parse().ok()? },
                None => KINDS.iter().find(|(name, _)| *name == kind)?.1,
            };
            let tensor = TENSORS.iter().find(|(name, _)| *name == tensor)?.1;
            Some(Self { layer: layer.parse().ok()?, kind, tensor })
        };
        find().ok_or_else(|| UnknownRole { what: "cache entry", text: text.to_owned() })
    }
}
