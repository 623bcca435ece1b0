//! Writing the files of an artifact.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::backend::{EmitOptions, Emitted};
use planish_artifact::files::{create_folders_within, digest};
use planish_artifact::manifest::File;
use planish_models::{Pooling, SourceFile, Task};
use planish_onnx::Placement;
use planish_runtimes::ort::{CACHE_ENTRY, IN_PLACE};

use super::{CompileOptions, LoweredPart, Observer};
use crate::source::SourceModel;

/// Writes the graphs under their names, and digests the source meanwhile.
pub(super) fn graphs(
    model: &SourceModel,
    task: Option<Task>,
    parts: &[LoweredPart],
    folder: &Path,
    options: &CompileOptions,
    observer: &dyn Observer,
) -> Result<(Vec<Emitted>, Vec<File>)> {
    let sources = model.files(task)?;
    let weights = model.weight_files();
    let linked = options.placement != Placement::Copy;
    let (emitted, files) = std::thread::scope(|scope| {
        let files = scope.spawn(|| -> Result<Vec<File>> {
            let one = |source: &SourceFile| {
                let skipped = linked && weights.contains(&source.path.as_path());
                let blake3 = if skipped { None } else { Some(digest(&source.path)?) };
                Ok(File { name: source.name.clone(), bytes: source.bytes, blake3 })
            };
            sources.iter().map(one).collect()
        });
        observer.begin_writing(parts.iter().flat_map(|part| part.graph.weights()).map(|(_, _, w)| w.bytes()).sum());
        let progress = |bytes| observer.written(bytes);
        let metadata = metadata(model, parts);
        let how = EmitOptions {
            opset: options.passes.opset,
            placement: options.placement,
            data_suffix: options.package.data_suffix(),
            metadata: &metadata,
            progress: &progress,
        };
        let one = |part: &LoweredPart| -> Result<Emitted> {
            let layout = options.package.layout(&model.name(), parts.len(), &part.name).of_variant(options.variant);
            let folder = create_folders_within(folder, layout.folder())?;
            let Emitted { files, linked } = options.backend.emitter.emit(&part.graph, layout.stem(), &folder, &how)?;
            Ok(Emitted {
                files: files.into_iter().map(|(name, bytes)| (layout.named(&name), bytes)).collect(),
                linked: linked.iter().map(|name| layout.named(name)).collect(),
            })
        };
        let emitted: Result<Vec<Emitted>> = parts.iter().map(one).collect();
        observer.end_writing();
        // The thread does not panic: it returns what goes wrong.
        (emitted, files.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Ok((emitted?, files?))
}

/// Copies configuration and tokenizer files, and writes those that are to say something else than the source's; returns their
/// names. `pooling` is one that was asked for, and the features of a token.
pub(super) fn companions(model: &SourceModel, pooling: Option<(Pooling, usize)>, folder: &Path) -> Result<Vec<String>> {
    let place = |name: &str| {
        if let Some(parent) = Path::new(name).parent() {
            create_folders_within(folder, parent)?;
        }
        anyhow::Ok(folder.join(name))
    };
    let copy = |(name, from): (String, PathBuf)| {
        let to = place(&name)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        Ok(name)
    };
    let write = |(name, text): (String, String)| {
        let to = place(&name)?;
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(name)
    };
    let written = model.written_modules(pooling)?;
    let mut copied = model.companions()?;
    // A pooling that was asked for comes in place of the modules of the source, which are in folders of their own.
    copied
        .retain(|(name, _)| !written.iter().any(|(own, _)| own == name) && (pooling.is_none() || !name.contains('/')));
    let copied = copied.into_iter().map(copy);
    copied.chain(written.into_iter().map(write)).collect()
}

/// The files of the source that several parts point into, each once.
pub(super) fn linked(emitted: &[Emitted]) -> Vec<String> {
    let mut all: Vec<String> = emitted.iter().flat_map(|part| part.linked.iter().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

/// What is noted in the files of graphs: what the source has, and how attention appends to the cache, by which sessions of
/// planish know that it writes into the memory of the past.
fn metadata(model: &SourceModel, parts: &[LoweredPart]) -> Vec<(String, String)> {
    let of_source = model.metadata().iter().filter(|(key, _)| key != CACHE_ENTRY).cloned();
    let in_place = parts.iter().any(LoweredPart::appends_in_place);
    of_source.chain(in_place.then(|| (CACHE_ENTRY.to_owned(), IN_PLACE.to_owned()))).collect()
}
