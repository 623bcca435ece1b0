//! Writing the files of an artifact.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::backend::{EmitOptions, Emitted};
use planish_artifact::files::{create_folders_within, digest};
use planish_artifact::manifest::File;
use planish_ir::Graph;
use planish_models::{Pooling, SourceFile, Task};
use planish_onnx::Placement;
use planish_runtimes::ort::{CACHE_ENTRY, IN_PLACE};

use super::{CompileOptions, LoweredPart, Observer, stages};
use crate::source::SourceModel;

/// The graphs of an artifact.
#[derive(Clone, Copy)]
pub(super) struct Graphs<'a> {
    pub(super) parts: &'a [LoweredPart],
    /// The stages of each part; empty where it is whole.
    pub(super) stages: &'a [Vec<Graph>],
}

impl<'a> Graphs<'a> {
    /// The graphs of each part with their names: of its stages, or of itself.
    fn named(self) -> impl Iterator<Item = Vec<(String, &'a Graph)>> {
        self.parts.iter().zip(self.stages).map(|(part, stages)| match stages.as_slice() {
            [] => vec![(part.name.to_owned(), &part.graph)],
            stages => stages.iter().enumerate().map(|(at, graph)| (stages::name(&part.name, at), graph)).collect(),
        })
    }

    /// Writes the graphs under their names, and digests the source meanwhile. Returns the files of the graphs of each part, and the
    /// source's.
    pub(super) fn write(
        self,
        model: &SourceModel,
        task: Option<Task>,
        folder: &Path,
        options: &CompileOptions,
        observer: &dyn Observer,
    ) -> Result<(Vec<Vec<Emitted>>, Vec<File>)> {
        let parts = self.parts;
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
            let weights = self.named().flatten().flat_map(|(_, graph)| graph.weights());
            observer.begin_writing(weights.map(|(_, _, weight)| weight.bytes()).sum());
            let progress = |bytes| observer.written(bytes);
            let metadata = metadata(model, parts);
            let how = EmitOptions {
                opset: options.passes.opset,
                placement: options.placement,
                data_suffix: options.package.data_suffix(),
                metadata: &metadata,
                progress: &progress,
            };
            let one = |(name, graph): (String, &Graph)| -> Result<Emitted> {
                let layout = options.package.layout(&model.name(), parts.len(), &name).of_variant(options.variant);
                let folder = create_folders_within(folder, layout.folder())?;
                let Emitted { files, linked } = options.backend.emitter.emit(graph, layout.stem(), &folder, &how)?;
                Ok(Emitted {
                    files: files.into_iter().map(|(name, bytes)| (layout.named(&name), bytes)).collect(),
                    linked: linked.iter().map(|name| layout.named(name)).collect(),
                })
            };
            let all = |graphs: Vec<(String, &Graph)>| graphs.into_iter().map(one).collect::<Result<Vec<_>>>();
            let emitted: Result<Vec<Vec<Emitted>>> = self.named().map(all).collect();
            observer.end_writing();
            // The thread does not panic: it returns what goes wrong.
            (emitted, files.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok((emitted?, files?))
    }
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
pub(super) fn linked<'a>(emitted: impl Iterator<Item = &'a Emitted>) -> Vec<String> {
    let mut all: Vec<String> = emitted.flat_map(|part| part.linked.iter().cloned()).collect();
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
