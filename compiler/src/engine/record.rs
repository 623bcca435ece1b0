//! What is recorded of the build of an engine: `PART.layers.json`.

use std::path::Path;

use anyhow::{Context, Result};
use planish_files::Kind;
use planish_runtimes::tensorrt::Layers;
use serde::{Deserialize, Serialize};

/// What the build of an engine took, and the layers that it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// The seconds that the parser and the builder took.
    pub seconds: f64,
    /// The most memory that the process has had so far, in bytes; absent where the system does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_memory: Option<u64>,
    /// The layers of the engine, in the order in which they run.
    pub layers: Layers,
}

/// What came of the build of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct EngineReport {
    /// The part.
    pub part: String,
    /// The seconds that the parser and the builder took.
    pub seconds: f64,
    /// The most memory that the process has had so far, in bytes; absent where the system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
}

impl BuildRecord {
    /// Reads the record of a build.
    ///
    /// # Errors
    /// When the file cannot be read or is none.
    pub fn read(path: &Path) -> Result<Self> {
        let text = planish_files::read_text(path, &Kind::ENGINE_RECORD)?;
        serde_json::from_str(&text).with_context(|| format!("{} is no record of a build", path.display()))
    }
}

/// The most memory that this process has had, in bytes, where the system says.
#[cfg_attr(not(any(feature = "tensorrt-rtx", feature = "tensorrt")), allow(dead_code))]
pub(super) fn peak_memory() -> Option<u64> {
    let status = planish_files::read_system("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
