//! The configuration files of the libraries and servers that load artifacts.

mod genai;
mod sentence;
mod speech;
mod text_embeddings;
mod transformers_js;
mod triton;
mod triton_text;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::Backend;
use planish_artifact::manifest::PartManifest;
use planish_artifact::package::RuntimePackage;
use planish_models::{Loaded, Task};

use crate::engine::Profiles;

pub(crate) use text_embeddings::lacks_pooling;

/// Checks that the library can load such a model.
///
/// # Errors
/// When it cannot.
pub(crate) fn check(package: RuntimePackage, model: &Loaded, backend: &Backend) -> Result<()> {
    if let Some(reason) = package.refuses(backend) {
        bail!(reason);
    }
    match (package, model.task) {
        (RuntimePackage::Optimum | RuntimePackage::TransformersJs | RuntimePackage::Triton, _)
        | (RuntimePackage::Genai, Some(Task::TextGeneration)) => Ok(()),
        (RuntimePackage::SentenceTransformers | RuntimePackage::TextEmbeddingsInference, _) => {
            sentence::check(package, model)
        }
        (RuntimePackage::Genai, task) => match speech::parts(model) {
            Some(parts) => speech::check(parts),
            None => bail!(
                "onnxruntime-genai loads no {} for {}: of what planish compiles it takes decoders for {} and Whisper only; \
                 leave out --package",
                model.architecture,
                task.map_or("what is not known", Task::name),
                Task::TextGeneration,
            ),
        },
    }
}

/// The warnings for users of the library.
pub(crate) fn warnings(package: RuntimePackage, model: &Loaded, last_logits: bool) -> Vec<String> {
    match package {
        RuntimePackage::Optimum
        | RuntimePackage::TransformersJs
        | RuntimePackage::SentenceTransformers
        | RuntimePackage::TextEmbeddingsInference
        | RuntimePackage::Triton => Vec::new(),
        RuntimePackage::Genai => genai::warnings(model, last_logits),
    }
}

/// Checks that the library takes the inputs and outputs of the parts.
///
/// # Errors
/// When it does not take one of them.
pub(crate) fn check_parts(package: RuntimePackage, parts: &[PartManifest], backend: &Backend) -> Result<()> {
    match package {
        RuntimePackage::Optimum
        | RuntimePackage::TransformersJs
        | RuntimePackage::SentenceTransformers
        | RuntimePackage::Genai => Ok(()),
        RuntimePackage::TextEmbeddingsInference => text_embeddings::check_parts(parts),
        RuntimePackage::Triton => triton::check(parts, backend),
    }
}

/// Writes the configuration of the library into an artifact that has the configuration of the source, and adds the
/// names of its files to the manifest; returns what a user must know. `scored` is how wide logits are, if not as in
/// the source.
///
/// # Errors
/// When a configuration that was copied there cannot be honoured, or a file cannot be written.
pub(crate) fn configure(
    package: RuntimePackage,
    model: &Loaded,
    scored: Option<usize>,
    artifact: &mut Artifact,
    profiles: Option<&Profiles>,
) -> Result<Option<String>> {
    match package {
        RuntimePackage::Optimum => Ok(None),
        RuntimePackage::TransformersJs => {
            transformers_js::merge_decoders(artifact)?;
            Ok(None)
        }
        RuntimePackage::SentenceTransformers => {
            sentence::check_folder(artifact)?;
            Ok(None)
        }
        RuntimePackage::TextEmbeddingsInference => {
            let (mut names, warning) = text_embeddings::write(artifact)?;
            names.retain(|name| !artifact.manifest.companions.contains(name));
            artifact.manifest.companions.extend(names);
            Ok(warning)
        }
        RuntimePackage::Genai => {
            let (names, warning) = genai::write(model, scored, &artifact.manifest, &artifact.folder)?;
            artifact.manifest.companions.extend(names);
            Ok(warning)
        }
        RuntimePackage::Triton => {
            let names = triton::write(artifact, profiles)?;
            artifact.manifest.companions.extend(names);
            Ok(profiles.and_then(|profiles| triton::smaller_batch(&artifact.manifest.parts, profiles)))
        }
    }
}

/// Has the configuration of the source say what files there are, once all variants are known.
///
/// # Errors
/// When it cannot be read or written.
pub(crate) fn list_files(artifact: &Artifact) -> Result<()> {
    match artifact.manifest.runtime_package {
        RuntimePackage::TransformersJs => transformers_js::config::write(&artifact.folder, &artifact.manifest),
        RuntimePackage::Optimum
        | RuntimePackage::Genai
        | RuntimePackage::SentenceTransformers
        | RuntimePackage::TextEmbeddingsInference
        | RuntimePackage::Triton => Ok(()),
    }
}

/// Writes the configuration of the library again for other profiles; returns what a user must know.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn configure_profiles(artifact: &Artifact, profiles: &Profiles) -> Result<Option<String>> {
    match artifact.manifest.runtime_package {
        RuntimePackage::Optimum
        | RuntimePackage::TransformersJs
        | RuntimePackage::SentenceTransformers
        | RuntimePackage::TextEmbeddingsInference
        | RuntimePackage::Genai => Ok(None),
        RuntimePackage::Triton => {
            triton::write(artifact, Some(profiles))?;
            Ok(triton::smaller_batch(&artifact.manifest.parts, profiles))
        }
    }
}
