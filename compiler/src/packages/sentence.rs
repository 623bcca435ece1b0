//! Folders that the sentence-transformers library loads by itself: its classes SentenceTransformer, SparseEncoder and CrossEncoder run a
//! graph with ONNX Runtime, and the modules after it by themselves.

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::package::RuntimePackage;
use planish_models::{Loaded, Task, module_entries};

/// Checks that a library of vectors and scores of texts has a class for such a model.
///
/// # Errors
/// When it has none.
pub(super) fn check(package: RuntimePackage, model: &Loaded) -> Result<()> {
    match model.task {
        Some(Task::SentenceSimilarity | Task::TextClassification) => Ok(()),
        task => bail!(
            "--package {}: {} loads sentence models and models for {}, and this {} is for {}; give `--recipe pooling=mean` or another one for \
             the vectors of texts, or leave out --package",
            package.option(),
            package.library(),
            Task::TextClassification,
            model.architecture,
            task.map_or("what is not known", Task::name),
        ),
    }
}

/// Checks that the library finds the modules of a sentence model in the folder of an artifact, and runs the first one as a graph.
///
/// # Errors
/// When it does not.
pub(super) fn check_folder(artifact: &Artifact) -> Result<()> {
    if artifact.manifest.task != Some(Task::SentenceSimilarity) {
        return Ok(());
    }
    match module_entries(&artifact.folder)?.first() {
        Some(entry) if entry.is_static() => bail!(
            "--package sentence-transformers: the library looks up the vectors of `{}` by itself, without a graph; load the checkpoint, or \
             leave out --package",
            entry.full
        ),
        Some(_) => Ok(()),
        None => bail!(
            "--package sentence-transformers: no modules.json says how the library makes the vector of a text; load the checkpoint with \
             the library and save it, and compile what it saves"
        ),
    }
}
