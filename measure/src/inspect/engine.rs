//! What an engine of TensorRT is: its header, its profiles and its layers. None of it needs TensorRT or a GPU.

use std::path::Path;

use anyhow::{Context, Result};
use planish_artifact::layout::layers_file;
use planish_artifact::{Artifact, MANIFEST};
use planish_compiler::engine::{BuildRecord, PartProfile, Profiles};
use planish_runtimes::tensorrt::{PRODUCT, Plan};
use serde::Serialize;

/// What the name of an engine's file ends in.
const ENDINGS: [&str; 2] = ["engine", "plan"];

/// An engine.
#[derive(Clone, Debug, Serialize)]
pub struct EngineInspection {
    /// Its file.
    pub file: String,
    /// The product that built it.
    pub product: String,
    /// The version of the product.
    pub version: String,
    /// The GPUs that it runs on.
    pub capabilities: Vec<String>,
    /// The bytes of the file.
    pub bytes: u64,
    /// The bytes of its weights.
    pub weights: u64,
    /// Its profiles, where `profiles.json` lies beside it.
    pub profiles: Option<Vec<PartProfile>>,
    /// The build and the layers, where the record of the build lies beside it.
    pub build: Option<BuildRecord>,
}

/// The engines at a path: that of a file, or those of an artifact; none where the path is something else.
///
/// # Errors
/// When a file is no engine or cut off, or what lies beside it cannot be read.
pub fn engines(path: &Path) -> Result<Vec<EngineInspection>> {
    if path.is_file() && path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
        return Ok(vec![engine(path)?]);
    }
    if !path.join(MANIFEST).is_file() {
        return Ok(Vec::new());
    }
    let artifact = Artifact::open(path)?;
    let one = |part| -> Result<Option<EngineInspection>> {
        let (Some(file), Some(engine)) = (artifact.engine(part)?, &part.engine) else { return Ok(None) };
        let record = artifact.folder.join(&engine.record);
        Ok(Some(EngineInspection {
            file: engine.file.clone(),
            ..inspect(&file, &artifact.folder, &part.name, &record)?
        }))
    };
    artifact.manifest.parts.iter().filter_map(|part| one(part).transpose()).collect()
}

/// An engine by its file, and what is known of it by files beside it.
fn engine(path: &Path) -> Result<EngineInspection> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let part = path.file_stem().unwrap_or_default().to_string_lossy();
    inspect(path, folder, &part, &folder.join(layers_file(&part)))
}

/// The engine of a part, with the profiles of a folder and the record of its build, where there are such files.
fn inspect(path: &Path, folder: &Path, part: &str, record: &Path) -> Result<EngineInspection> {
    let Plan { version, capabilities, bytes, weights } =
        Plan::read(path).with_context(|| format!("cannot inspect {}", path.display()))?;
    let profiles = match Profiles::is_in(folder) {
        true => Profiles::read(folder)?.parts.into_iter().find(|known| known.name == part).map(|known| known.profiles),
        false => None,
    };
    Ok(EngineInspection {
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        product: PRODUCT.to_owned(),
        version: version.to_string(),
        capabilities: capabilities.iter().map(ToString::to_string).collect(),
        bytes,
        weights,
        profiles,
        build: if record.is_file() { Some(BuildRecord::read(record)?) } else { None },
    })
}
