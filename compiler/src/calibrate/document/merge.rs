//! Tables of shards, and the table of all data that they make.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::Calibration;

/// Shards of the batches of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shards {
    /// How many there are in all.
    pub of: usize,
    /// Those that are here, from 1 on.
    pub present: BTreeSet<usize>,
}

impl Shards {
    /// One shard, by its index from 0 on.
    pub(super) fn one(index: usize, count: usize) -> Self {
        Self { of: count, present: [index + 1].into() }
    }

    /// Checks that there can be such shards.
    pub(super) fn check(&self) -> Result<(), String> {
        let fits = self.present.iter().all(|shard| (1..=self.of).contains(shard));
        if fits && !self.present.is_empty() { Ok(()) } else { Err("its shards are not valid".to_owned()) }
    }

    /// Those that are not here.
    fn missing(&self) -> Vec<String> {
        (1..=self.of).filter(|shard| !self.present.contains(shard)).map(|shard| shard.to_string()).collect()
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present: Vec<String> = self.present.iter().map(usize::to_string).collect();
        write!(f, "{} of {}", present.join(", "), self.of)
    }
}

impl Calibration {
    /// Checks that it is of all data.
    ///
    /// # Errors
    /// When shards are missing.
    pub fn check_complete(&self) -> Result<()> {
        match &self.shards {
            None => Ok(()),
            Some(shards) => bail!(
                "it has shard {shards}, and misses {}; `planish calibrate --merge` makes one table of all shards",
                shards.missing().join(", ")
            ),
        }
    }

    /// The table of the data of both. When no shard is missing, it is bit for bit the table of one run over all data.
    ///
    /// # Errors
    /// When the two are of other models or data, data that was read in another way, or shards that overlap.
    pub fn merge(mut self, other: &Self) -> Result<Self> {
        let differs = |what: &str, own: String, its: String| -> Result<()> {
            bail!("the tables are of different {what}: {own} and {its}")
        };
        if self.source != other.source || self.task != other.task {
            let model = |table: &Self| {
                let digests = table.source.files.iter().filter_map(|file| file.blake3.as_deref());
                let short: Vec<String> = digests.map(|digest| digest.chars().take(12).collect()).collect();
                let task = table.task.as_deref().unwrap_or("no task");
                format!("{} for {task} (BLAKE3 {})", table.source.name, short.join(", "))
            };
            differs("models", model(&self), model(other))?;
        }
        if self.data != other.data {
            let data = |table: &Self| {
                let digest: String = table.data.blake3.iter().flat_map(|digest| digest.chars()).take(12).collect();
                format!("{} (BLAKE3 {digest})", table.data.name)
            };
            differs("data", data(&self), data(other))?;
        }
        if (&self.reading, self.measured) != (&other.reading, other.measured) {
            let options = |table: &Self| format!("{:?}, {:?}", table.reading, table.measured);
            differs("options", options(&self), options(other))?;
        }
        let (Some(own), Some(its)) = (&mut self.shards, &other.shards) else {
            bail!("a table that is not of a shard has all of the data already");
        };
        if own.of != its.of {
            bail!("the tables are of shards of {} and of {}", own.of, its.of);
        }
        if let Some(both) = own.present.intersection(&its.present).next() {
            bail!("both tables have shard {both} of {}", own.of);
        }
        if self.skipped != other.skipped {
            bail!("one table left out {} bad records of the data, and the other {}", self.skipped, other.skipped);
        }
        own.present.extend(&its.present);
        if own.present.len() == own.of {
            self.shards = None;
        }
        self.samples += other.samples;
        self.table.merge(&other.table)?;
        Ok(self)
    }
}
