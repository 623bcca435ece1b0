//! Tables of shards, and the table of all data that they make.

use anyhow::{Result, bail};
use planish_data::{Shards, differences};
use serde_json::json;

use super::Calibration;

impl Calibration {
    /// Checks that it is of all data.
    ///
    /// # Errors
    /// When shards are missing.
    pub fn check_complete(&self) -> Result<()> {
        let Some(Err(missing)) = self.shards.as_ref().map(Shards::check_complete) else { return Ok(()) };
        bail!("{missing}; `planish calibrate --merge` makes one table of all shards")
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
            let measured = |table: &Self| json!({"measured": table.measured});
            let both = [differences(&self.reading, &other.reading)?, differences(&measured(&self), &measured(other))?];
            let both: Vec<String> = both.into_iter().filter(|of| !of.is_empty()).collect();
            bail!("the tables are of different options: {}", both.join(", "));
        }
        let (Some(own), Some(its)) = (&self.shards, &other.shards) else {
            bail!("a table that is not of a shard has all of the data already");
        };
        let mut both = own.clone();
        both.join(its, "tables")?;
        if self.skipped != other.skipped {
            bail!("one table left out {} bad records of the data, and the other {}", self.skipped, other.skipped);
        }
        self.shards = Some(both).filter(|both| !both.is_complete());
        self.samples += other.samples;
        self.table.merge(&other.table)?;
        Ok(self)
    }
}
