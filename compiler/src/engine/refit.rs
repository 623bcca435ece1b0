//! Putting the weights of ONNX files into the engines of a finished artifact.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use planish_artifact::draft::Draft;
use planish_artifact::{Artifact, CARD, MANIFEST, files};
use planish_runtimes::tensorrt::{self, Library};

use super::rebuild::share;
use crate::card;

/// Puts the weights of its ONNX files into the engines of an artifact, and puts the artifact with them in its place. An
/// engine takes weights if it was built with `strip` or `refit`.
///
/// # Errors
/// When the artifact has no engine or no ONNX file of a part, TensorRT is unavailable or refuses a part, or a file cannot be
/// written.
pub fn refit_engines(artifact: &Artifact, library: Option<PathBuf>) -> Result<PathBuf> {
    let parts = &artifact.manifest.parts;
    let mut sources = Vec::new();
    for part in parts {
        let Some(engine) = artifact.engine(part)? else {
            let folder = artifact.folder.display();
            bail!("{folder} has no engine of {}; `planish build-engine {folder}` builds it", part.name);
        };
        sources.push((engine, artifact.file(part)?));
    }
    let library = Library::open(library)?;
    let draft = Draft::create(&artifact.folder, false)?;
    let engines: Vec<String> = parts.iter().filter_map(|part| Some(part.engine.as_ref()?.file.clone())).collect();
    let card = card::is_as_written(artifact).then(|| CARD.to_owned());
    let anew: Vec<String> = engines.into_iter().chain([MANIFEST.to_owned()]).chain(card).collect();
    share(artifact, draft.folder(), &anew)?;
    let mut refitted = Artifact { folder: draft.folder().to_owned(), stamp: None, ..artifact.clone() };
    let manifest = &mut refitted.manifest;
    for (index, (engine, onnx)) in sources.iter().enumerate() {
        let Some(mut entry) = manifest.parts[index].engine.clone() else { continue };
        let path = draft.folder().join(&entry.file);
        let mut output = files::create_within(&path).with_context(|| format!("cannot write {}", path.display()))?;
        entry.bytes = tensorrt::refit(library, engine, onnx, entry.refittable, &mut output)?;
        entry.stripped = false;
        manifest.add_engine(index, entry);
    }
    card::write(&mut refitted)?;
    refitted.manifest.write(draft.folder())?;
    draft.publish()
}
