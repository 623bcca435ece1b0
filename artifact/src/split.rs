//! The part of a data set that is taken, where one part decides and another one shows what came of it.

use std::fmt;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

/// Of so many samples one is held out.
const EVERY: usize = 5;

/// The samples of a data set that are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// All.
    #[default]
    All,
    /// All but every fifth.
    Rest,
    /// Every fifth: the 5th, the 10th and so on.
    HeldOut,
}

impl Split {
    /// Whether it has a sample, by the place of that in the data set, from 0 on.
    #[must_use]
    pub fn has(self, sample: usize) -> bool {
        let held_out = sample % EVERY == EVERY - 1;
        match self {
            Self::All => true,
            Self::Rest => !held_out,
            Self::HeldOut => held_out,
        }
    }

    /// How many samples a data set has, of which so many are held out, or all belong to another split.
    #[must_use]
    pub fn samples(self, count: usize) -> NonZeroUsize {
        let every = if self == Self::HeldOut { EVERY } else { 1 };
        NonZeroUsize::MIN.saturating_add((count * every).saturating_sub(1))
    }

    /// Whether it has no sample of a data set of so many.
    #[must_use]
    pub fn is_empty_of(self, count: usize) -> bool {
        !(0..count).any(|sample| self.has(sample))
    }

    /// Whether it is the whole data set.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// As a text has it after the name of the data set.
impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "",
            Self::Rest => " without every fifth sample",
            Self::HeldOut => ", every fifth sample",
        })
    }
}
