//! Which shards of a whole a document has.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// The most shards that an error lists as missing.
const LISTED: usize = 20;

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
    /// Some are missing.
    #[error("shards are missing: there is shard {present}, and not {missing}")]
    Missing {
        /// Those that are here.
        present: String,
        /// Those that are not.
        missing: String,
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

    /// Whether none is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.present.len() >= self.of
    }

    /// Checks that none is missing.
    ///
    /// # Errors
    /// Which ones are here, and which ones are not.
    pub fn check_complete(&self) -> Result<(), ShardsError> {
        if self.is_complete() {
            return Ok(());
        }
        let first: BTreeSet<usize> = (1..=self.of).filter(|shard| !self.present.contains(shard)).take(LISTED).collect();
        let others = self.of - self.present.len() - first.len();
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        Err(ShardsError::Missing { present: self.to_string(), missing: listed(&first) + &more })
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

/// The members in which two options differ, such as `batch is 2 and 4`.
///
/// # Errors
/// When they cannot be written as JSON.
pub fn differences(own: &impl Serialize, other: &impl Serialize) -> serde_json::Result<String> {
    let (own, other) = (serde_json::to_value(own)?, serde_json::to_value(other)?);
    let names = [&own, &other].into_iter().filter_map(Value::as_object).flat_map(|of| of.keys());
    let names: BTreeSet<&String> = names.filter(|name| own.get(*name) != other.get(*name)).collect();
    let said = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let one = |name: &String| format!("{name} is {} and {}", said(own.get(name)), said(other.get(name)));
    Ok(names.into_iter().map(one).collect::<Vec<_>>().join(", "))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named() {
        let own = json!({"batch": 2, "field": null, "unit": "word", "samples": 9});
        let other = json!({"batch": 4, "field": "text", "unit": "word"});
        let all = differences(&own, &other).unwrap();
        assert_eq!(all, "batch is 2 and 4, field is nothing and text, samples is 9 and nothing");
        assert_eq!(differences(&own, &own).unwrap(), "");
    }

    #[test]
    fn a_few_of_many_missing_shards_are_listed() {
        let shards = Shards { of: usize::MAX, present: [2].into() };
        let error = shards.check_complete().unwrap_err().to_string();
        let listed: Vec<String> = [1].into_iter().chain(3..=21).map(|shard: usize| shard.to_string()).collect();
        assert!(error.ends_with(&format!("and not {} and {} more", listed.join(", "), usize::MAX - 21)), "{error}");
        assert!(Shards { of: 2, present: [1, 2].into() }.check_complete().is_ok());
    }
}
