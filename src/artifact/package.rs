//! The library whose file names and configuration files an artifact has.

use anyhow::{Result, bail};
use clap::ValueEnum;
use planish_models::{Loaded, Task};
use planish_runtimes::Format;
use planish_runtimes::tensorrt::{ENTERPRISE, PRODUCT};
use serde::{Deserialize, Serialize};

use crate::artifact::manifest::PartManifest;
use crate::artifact::{Artifact, genai, triton};
use crate::backend::{BACKENDS, Backend};
use crate::engine::Profiles;

/// The library that an artifact is laid out for. The graphs are the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimePackage {
    /// Optimum, and ONNX Runtime alone
    #[default]
    Optimum,
    /// onnxruntime-genai, for decoders; not for targets trt and cuda
    ///
    /// genai_config.json is added, and weights above 1.5 GB are in model.onnx.data.
    Genai,
    /// a model repository of Triton Inference Server; not for target cuda and engines of TensorRT-RTX
    ///
    /// For each part a folder with config.pbtxt and 1/model.onnx, or 1/model.plan for target trt.
    Triton,
}

impl RuntimePackage {
    /// The suffix of the name of an artifact's folder.
    pub(crate) fn folder_suffix(self) -> &'static str {
        match self {
            Self::Optimum => "",
            Self::Genai => "-genai",
            Self::Triton => "-triton",
        }
    }

    /// The suffix after `NAME.onnx` in the name of a file of weights.
    pub(crate) fn data_suffix(self) -> &'static str {
        match self {
            Self::Optimum | Self::Triton => "_data",
            Self::Genai => ".data",
        }
    }

    /// Why the library loads no artifact of a target.
    pub(crate) fn refuses(self, backend: &Backend) -> Option<String> {
        let format = backend.emitter.format();
        if self != Self::Optimum && format == Format::GRAPH {
            let (option, library) = match self {
                Self::Triton => ("triton", "Triton Inference Server"),
                _ => ("genai", "onnxruntime-genai"),
            };
            return Some(format!(
                "--runtime-package {option}: {library} does not load a file of format {}, which target {} has; choose \
                 another target, or leave out --runtime-package",
                format.name, backend.target
            ));
        }
        if self == Self::Triton && backend.engines.is_some() && cfg!(feature = "tensorrt-rtx") && !ENTERPRISE {
            return Some(format!(
                "--runtime-package triton: Triton's backend tensorrt loads engines of TensorRT, and this planish builds engines \
                 of {PRODUCT} for target {}; choose --target ort-cuda, or a planish that was built with \
                 --no-default-features --features tensorrt",
                backend.target
            ));
        }
        if self != Self::Genai || backend.engines.is_none() {
            return None;
        }
        let onnx = |backend: &&&Backend| backend.engines.is_none() && backend.emitter.format() == Format::ONNX;
        let targets = BACKENDS.iter().filter(onnx);
        let targets: Vec<&str> = targets.map(|backend| backend.target.name).collect();
        Some(format!(
            "--runtime-package genai: onnxruntime-genai loads ONNX files, and target {} has engines in their place; choose \
             one of the targets {}, or leave out --runtime-package",
            backend.target,
            targets.join(", ")
        ))
    }

    /// Checks that the library can load such a model.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn check(self, model: &Loaded, backend: &Backend) -> Result<()> {
        if let Some(reason) = self.refuses(backend) {
            bail!(reason);
        }
        match (self, model.task) {
            (Self::Optimum | Self::Triton, _) | (Self::Genai, Some(Task::TextGeneration)) => Ok(()),
            (Self::Genai, task) => bail!(
                "onnxruntime-genai loads no {} for {}: of what planish compiles it takes decoders for {} only; \
                 leave out --runtime-package",
                model.architecture,
                task.map_or("what is not known", Task::name),
                Task::TextGeneration,
            ),
        }
    }

    /// The warnings for users of the library.
    pub(crate) fn warnings(self, model: &Loaded, last_logits: bool) -> Vec<String> {
        match self {
            Self::Optimum | Self::Triton => Vec::new(),
            Self::Genai => genai::warnings(model, last_logits),
        }
    }

    /// Checks that the library takes the inputs and outputs of the parts.
    ///
    /// # Errors
    /// When it does not take one of them.
    pub(crate) fn check_parts(self, parts: &[PartManifest], backend: &Backend) -> Result<()> {
        match self {
            Self::Optimum | Self::Genai => Ok(()),
            Self::Triton => triton::check(parts, backend),
        }
    }

    /// Writes the configuration of the library into an artifact that has the configuration of the source, and adds the
    /// names of its files to the manifest; returns what a user must know. `scored` is how wide logits are, if not as in
    /// the source.
    ///
    /// # Errors
    /// When a configuration that was copied there cannot be honoured, or a file cannot be written.
    pub(crate) fn configure(
        self,
        model: &Loaded,
        scored: Option<usize>,
        artifact: &mut Artifact,
        profiles: Option<&Profiles>,
    ) -> Result<Option<String>> {
        match self {
            Self::Optimum => Ok(None),
            Self::Genai => {
                let warning = genai::write(model, scored, &artifact.manifest, &artifact.folder)?;
                artifact.manifest.companions.push(genai::CONFIG.to_owned());
                Ok(warning)
            }
            Self::Triton => {
                let names = triton::write(artifact, profiles)?;
                artifact.manifest.companions.extend(names);
                Ok(profiles.and_then(|profiles| triton::smaller_batch(&artifact.manifest.parts, profiles)))
            }
        }
    }

    /// Writes the configuration of the library again for other profiles; returns what a user must know.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn configure_profiles(self, artifact: &Artifact, profiles: &Profiles) -> Result<Option<String>> {
        match self {
            Self::Optimum | Self::Genai => Ok(None),
            Self::Triton => {
                triton::write(artifact, Some(profiles))?;
                Ok(triton::smaller_batch(&artifact.manifest.parts, profiles))
            }
        }
    }
}
