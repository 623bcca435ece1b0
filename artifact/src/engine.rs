//! What `planish.json` says of engines, and the files of an artifact that has them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::manifest::{File, Manifest, PartManifest};
use crate::{Artifact, whole};

/// The engine of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineManifest {
    /// Its file.
    pub file: String,
    /// The bytes of the file.
    pub bytes: u64,
    /// The file that says what the build took, and which layers the engine has.
    pub record: String,
    /// The product that built it.
    pub product: String,
    /// The version of the product.
    pub version: String,
    /// The GPUs that it runs on.
    pub capabilities: Vec<String>,
    /// How many profiles it has.
    pub profiles: usize,
    /// How many layers it has.
    pub layers: LayerCounts,
    /// Whether it was built without the weights that can be replaced, and has none in their place yet.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub stripped: bool,
    /// Whether its weights can be replaced by others.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub refittable: bool,
}

/// The layers of an engine, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCounts {
    /// All layers.
    pub count: usize,
    /// The regions that the compiler of TensorRT made of the graph. A layer outside of them counts as one.
    pub regions: usize,
    /// The layers that compute attention as one kernel.
    pub attentions: usize,
}

impl PartManifest {
    /// Whether there is an engine of the part and no ONNX file.
    pub fn is_engine_only(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| self.files.first() == Some(&engine.file))
    }
}

impl Manifest {
    /// Whether a part has an engine.
    #[must_use]
    pub fn has_engines(&self) -> bool {
        self.parts.iter().any(|part| part.engine.is_some())
    }

    /// Records the engine of a part, in place of an older one.
    #[cfg_attr(not(any(feature = "tensorrt-rtx", feature = "tensorrt")), allow(dead_code))]
    pub fn add_engine(&mut self, part: usize, engine: EngineManifest) {
        self.files.retain(|file| file.name != engine.file);
        self.files.push(File { name: engine.file.clone(), bytes: engine.bytes, blake3: None });
        if !self.companions.contains(&engine.record) {
            self.companions.push(engine.record.clone());
        }
        if let Some(part) = self.parts.get_mut(part) {
            part.engine = Some(engine);
        }
    }
}

impl Artifact {
    /// The file of the engine of a part, if it has one.
    ///
    /// # Errors
    /// When the file is missing or not as long as it was.
    pub fn engine(&self, part: &PartManifest) -> Result<Option<PathBuf>> {
        let Some(engine) = &part.engine else { return Ok(None) };
        let file = File { name: engine.file.clone(), bytes: engine.bytes, blake3: None };
        whole(&self.folder, &file).map(Some)
    }

    /// Removes the ONNX files of parts that have engines, which stand in their places then, and what these files point to.
    ///
    /// # Errors
    /// When a file cannot be removed.
    #[cfg_attr(not(any(feature = "tensorrt-rtx", feature = "tensorrt")), allow(dead_code))]
    pub fn remove_onnx(&mut self) -> Result<()> {
        let mut removed = std::mem::take(&mut self.manifest.linked);
        for part in &mut self.manifest.parts {
            if let Some(engine) = &part.engine {
                removed.extend(std::mem::replace(&mut part.files, vec![engine.file.clone()]));
            }
        }
        let engines = self.manifest.parts.iter().filter_map(|part| part.engine.as_ref());
        let kept: Vec<&String> = engines.map(|engine| &engine.file).collect();
        removed.retain(|name| !kept.contains(&name));
        self.manifest.files.retain(|file| !removed.contains(&file.name));
        for name in removed {
            let path = self.folder.join(&name);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}
