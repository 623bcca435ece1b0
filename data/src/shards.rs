//! Which shards of a whole a document has.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Shard;

/// Shards of a whole, such as the batches of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shards {
    /// How many there are in all.
    pub of: usize,
    /// Those that are here, from 1 on.
    pub present: BTreeSet<usize>,
}

/// Two documents do not have different shards of one whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardsError {
    /// They are of different numbers of shards.
    #[error("the {what} are of shards of {own} and of {other}")]
    Counts {
        /// What the documents are.
        what: &'static str,
        /// The number of one.
        own: usize,
        /// The number of the other.
        other: usize,
    },
    /// A shard is in both.
    #[error("both {what} have shard {both} of {of}")]
    Twice {
        /// What the documents are.
        what: &'static str,
        /// The shard.
        both: usize,
        /// How many there are in all.
        of: usize,
    },
}

impl Shards {
    /// Checks that there can be such shards.
    ///
    /// # Errors
    /// When a number is not one of them, or there is none.
    pub fn check(&self) -> Result<(), String> {
        let fits = self.present.iter().all(|shard| (1..=self.of).contains(shard));
        if fits && !self.present.is_empty() { Ok(()) } else { Err("its shards are not valid".to_owned()) }
    }

    /// Those that are not here, from 1 on.
    #[must_use]
    pub fn missing(&self) -> Vec<usize> {
        (1..=self.of).filter(|shard| !self.present.contains(shard)).collect()
    }

    /// Takes the shards of another document too; `what` says what the documents are, such as `tables`.
    ///
    /// # Errors
    /// When they are shards of another number, or one of them is here already.
    pub fn join(&mut self, other: &Self, what: &'static str) -> Result<(), ShardsError> {
        if self.of != other.of {
            return Err(ShardsError::Counts { what, own: self.of, other: other.of });
        }
        if let Some(both) = self.present.intersection(&other.present).next() {
            return Err(ShardsError::Twice { what, both: *both, of: self.of });
        }
        self.present.extend(&other.present);
        Ok(())
    }
}

impl From<Shard> for Shards {
    fn from(Shard { index, count }: Shard) -> Self {
        Self { of: count, present: [index + 1].into() }
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", listed(&self.present), self.of)
    }
}

/// Numbers of shards as messages have them.
fn listed(shards: &BTreeSet<usize>) -> String {
    shards.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
