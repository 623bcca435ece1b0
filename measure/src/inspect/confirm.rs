//! Running the largest batch that should fit in a memory.

use std::path::Path;

use planish_artifact::backend::RuntimeSettings;
use serde::Serialize;

use super::{Asked, LargestBatch, Opened};
use crate::profile::{ProfileOptions, run_apart};

/// What runs of the largest batch came to.
#[derive(Debug, Serialize)]
pub struct Confirmation {
    /// The rows of the last run; 0 where there was none.
    pub batch: usize,
    /// Whether this run kept within the memory.
    pub fits: bool,
    /// The most memory that its process had resident, which loaded the model, ran it once and read its outputs, in bytes;
    /// absent where it did not run.
    pub resident: Option<u64>,
    /// Why there was no further run.
    pub reason: Option<String>,
}

/// The most runs.
const MOST_RUNS: usize = 4;

/// Runs the largest batch once on its runtime, in a process of its own. Where that takes more memory than there is, a smaller
/// batch is run: the estimate less what it missed. A run is left out where this machine has not as much memory free.
#[must_use]
pub fn confirm(
    opened: &Opened,
    path: &Path,
    largest: &LargestBatch,
    asked: Asked,
    settings: RuntimeSettings,
) -> Confirmation {
    let mut last = Confirmation { batch: 0, fits: false, resident: None, reason: None };
    let (mut batch, mut total) = (largest.batch, largest.total);
    for _ in 0..MOST_RUNS {
        if batch == 0 {
            last.reason = Some("one row does not fit".to_owned());
            return last;
        }
        let options = ProfileOptions {
            asked: Asked { batch: Some(batch), ..asked },
            runs: 1,
            settings: settings.clone(),
            ..ProfileOptions::default()
        };
        let resident = match run_apart(path, total, &options) {
            Ok(resident) => resident,
            Err(error) => return Confirmation { reason: Some(format!("{error:#}")), ..last },
        };
        last = Confirmation { batch, fits: resident.is_some_and(|all| all <= largest.memory), resident, reason: None };
        let Some(beyond) = resident.and_then(|all| all.checked_sub(largest.memory)).filter(|beyond| *beyond > 0) else {
            return last;
        };
        let (sizes, past) = (opened.sizes(asked), asked.past.unwrap_or(0));
        // What the estimate missed by at this batch, and half as much: what a process has resident differs from run to run.
        let aim = total.min(largest.memory).saturating_sub(beyond + beyond / 2);
        let Ok(next) = opened.largest_batch(aim, sizes, past, largest.process.clone().ok_or_else(String::new)) else {
            return last;
        };
        (batch, total) = (next.batch.min(batch - 1), next.total);
    }
    last
}
