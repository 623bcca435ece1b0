//! Running the largest batch that should fit in a memory.

use std::path::Path;

use serde::Serialize;

use super::{Asked, LargestBatch};
use crate::backend::RuntimeSettings;
use crate::bench::memory;
use crate::profile::{ProfileOptions, run_once};

/// What a run of the largest batch came to.
#[derive(Debug, Serialize)]
pub struct Confirmation {
    /// Whether the batch ran within the memory.
    pub fits: bool,
    /// The resident memory that loading the model and the run added, in bytes; absent where it did not run.
    pub resident: Option<u64>,
    /// Why it did not run.
    pub reason: Option<String>,
}

/// Runs the largest batch once on its runtime. The run is left out where this machine has not as much memory free.
#[must_use]
pub fn confirm(path: &Path, largest: &LargestBatch, asked: Asked, settings: RuntimeSettings) -> Confirmation {
    let not_run = |reason: String| Confirmation { fits: false, resident: None, reason: Some(reason) };
    if largest.batch == 0 {
        return not_run("one row does not fit".to_owned());
    }
    let needs = largest.needs.total();
    if let Some(free) = available().filter(|free| *free < needs) {
        return not_run(format!("it needs {needs} bytes, and this machine has {free} free"));
    }
    let asked = Asked { batch: Some(largest.batch), ..asked };
    let options = ProfileOptions { asked, runs: 1, settings, ..ProfileOptions::default() };
    let before = memory("VmRSS");
    if let Err(error) = run_once(path, &options) {
        return not_run(format!("{error:#}"));
    }
    let resident = memory("VmHWM").zip(before).map(|(most, before)| most.saturating_sub(before));
    Confirmation { fits: resident.is_some_and(|bytes| bytes <= largest.memory), resident, reason: None }
}

/// The memory of the machine that programs can take without swapping, in bytes.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
