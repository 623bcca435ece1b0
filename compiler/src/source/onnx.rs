//! ONNX graphs as a source: a file, or the parts of an artifact of planish.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::manifest::{ArtifactHistory, Manifest, PartManifest};
use planish_ir::{Graph, PartRole, Weight};
use planish_models::{Architecture, IdRange, LoadOptions, Loaded, Part, names};
use planish_onnx::{ImportOptions, Imported};
use planish_runtimes::Format;

use super::ONNX;
use super::graph::{id_ranges, max_positions, other_task, task};

/// The name of the only part of a model.
fn only_part() -> Result<&'static str> {
    names::part(PartRole::Model).context("the only part of a model has no name")
}

/// ONNX graphs and the files that contain them.
pub struct OnnxModel {
    /// The file, or the folder of the artifact.
    path: PathBuf,
    pub(super) options: ImportOptions,
    pub(super) parts: Vec<OnnxPart>,
    /// What the artifact says of the model.
    artifact: Option<Box<Manifest>>,
    /// The files of external data that they use.
    pub(super) external: Vec<PathBuf>,
}

/// A graph and its file.
pub(super) struct OnnxPart {
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    pub(super) imported: Imported,
}

impl OnnxModel {
    /// Opens a file.
    pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let imported = planish_onnx::import_with(path, options)?;
        Ok(Self::new(path, options, vec![OnnxPart { name: only_part()?, path: path.to_owned(), imported }], None))
    }

    /// Opens the graphs of an artifact.
    ///
    /// # Errors
    /// When it has none, or a file of it is not as it was written.
    pub(super) fn open_artifact(folder: &Path, options: &ImportOptions) -> Result<Self> {
        let artifact = Artifact::open(folder)?;
        let manifest = &artifact.manifest;
        let has_engines = manifest.parts.iter().any(PartManifest::is_engine_only);
        if artifact.backend.emitter.format() != Format::ONNX || has_engines {
            let (source, target) = (&manifest.source, &manifest.target);
            let at =
                source.path.as_ref().map_or_else(String::new, |path| format!(" ({})", folder.join(path).display()));
            let again = if has_engines { ", or compile that again with --recipe engine.keep-onnx=true" } else { "" };
            bail!(
                "{} is an artifact for target {target} without ONNX graphs: give what it was compiled from, `{}`{at}{again}",
                folder.display(),
                source.name
            );
        }
        if manifest.parts.len() > 1 && !options.is_empty() {
            bail!(
                "{} has {} parts: --shapes, --inputs and --outputs take a part of one graph; name its .onnx file",
                folder.display(),
                manifest.parts.len()
            );
        }
        if let Some(cut) = &manifest.tensor_parallel {
            bail!("{} is cut for {} GPUs; compile the model that it was made from", folder.display(), cut.ranks);
        }
        let one = |part: &PartManifest| {
            let path = artifact.file(part)?;
            let Some(name) = names::known_part(&part.name) else {
                bail!("{} has a part `{}`, which this version does not know", folder.display(), part.name)
            };
            Ok(OnnxPart { name, imported: planish_onnx::import_with(&path, options)?, path })
        };
        let parts = manifest.parts.iter().map(one).collect::<Result<_>>()?;
        Ok(Self::new(folder, options, parts, Some(Box::new(artifact.manifest))))
    }

    fn new(path: &Path, options: &ImportOptions, parts: Vec<OnnxPart>, artifact: Option<Box<Manifest>>) -> Self {
        let mut used = BTreeSet::new();
        for (_, _, weight) in parts.iter().flat_map(|part| part.imported.graph.weights()) {
            files_of(weight, &mut used);
        }
        let is_external = |file: &PathBuf| !parts.iter().any(|part| part.path == *file);
        let external = used.into_iter().filter(is_external).collect();
        Self { path: path.to_owned(), options: options.clone(), parts, artifact, external }
    }

    /// The file, or the folder of the artifact.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The files of the graphs, then those of external data.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path()).chain(self.external.iter().map(PathBuf::as_path))
    }

    /// The graphs.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.parts.iter().map(|part| &part.imported.graph)
    }

    /// The newest opset that a graph is written in.
    pub(super) fn opset(&self) -> u32 {
        self.parts.iter().map(|part| part.imported.opset).max().unwrap_or_default()
    }

    pub(super) fn folder(&self) -> &Path {
        match &self.artifact {
            Some(_) => &self.path,
            None => self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        }
    }

    pub(super) fn name(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = self.folder().canonicalize().ok();
        let folder = folder.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        if names::known_part(&stem) == names::part(PartRole::Model) || self.artifact.is_some() {
            folder.unwrap_or(stem)
        } else {
            stem
        }
    }

    /// How the artifact was made; absent for a file.
    pub(super) fn history(&self) -> Option<ArtifactHistory> {
        self.artifact.as_deref().map(ArtifactHistory::of)
    }

    /// Whether it is an artifact whose layers or weights were quantized.
    pub(super) fn is_quantized_artifact(&self) -> bool {
        self.artifact.as_deref().is_some_and(Manifest::is_quantized)
    }

    pub(super) fn load(&self, options: LoadOptions) -> Result<Loaded> {
        let mut warnings: Vec<String> = self.parts.iter().flat_map(|part| part.imported.warnings.clone()).collect();
        let mut parts: Vec<Part> = Vec::new();
        for OnnxPart { name, imported, .. } in &self.parts {
            let id_ranges = match self.described(name) {
                Some(described) => ranges(described),
                None => id_ranges(&imported.graph),
            };
            let mut graph = imported.graph.clone();
            if let Some(described) = self.described(name) {
                graph.interface = described.interface();
            }
            names::name_entries(&mut graph, options.cache_names);
            parts.push(Part { name, graph, id_ranges });
        }
        // Of an encoder-decoder, the logits are those of the decoders.
        if let Some((task, last)) = options.task.zip(parts.last()) {
            warnings.extend(other_task(&last.graph, task));
        }
        if options.strict && !warnings.is_empty() {
            bail!("{}", warnings.join("\n"));
        }
        let reads = |part: &Part, input: &str| part.graph.interface.input(input).is_token_ids();
        let ids = |part: &Part| part.id_ranges.iter().find(|r| reads(part, &r.input)).map(|range| range.end);
        let vocab_size = parts.iter().find_map(ids).and_then(|end| usize::try_from(end).ok());
        let Some(manifest) = self.artifact.as_deref() else {
            let found = |part: &Part| (task(&part.graph), max_positions(&part.graph, &part.id_ranges));
            let (task, max_positions) = parts.first().map_or((None, None), found);
            return Ok(Loaded {
                task: options.task.or(task),
                architecture: ONNX,
                warnings,
                recompute_at: None,
                places: None,
                length_dependence: None,
                max_positions,
                vocab_size,
                pad_token_id: None,
                parts,
            });
        };
        Ok(Loaded {
            task: options.task.or(manifest.task),
            architecture: Architecture::find(&manifest.architecture).map_or(ONNX, |found| found.model_type),
            warnings,
            recompute_at: manifest.recompute_at,
            places: manifest.places,
            length_dependence: manifest.length_dependence,
            max_positions: manifest.max_sequence_length,
            vocab_size,
            pad_token_id: manifest.pad_token_id,
            parts,
        })
    }

    /// What an artifact says of a part that is taken as a whole.
    pub(super) fn described(&self, name: &str) -> Option<&PartManifest> {
        let manifest = self.artifact.as_deref().filter(|_| self.options.is_empty())?;
        manifest.parts.iter().find(|part| part.name == name)
    }
}

/// The ids that the inputs of a part take.
fn ranges(part: &PartManifest) -> Vec<IdRange> {
    let range =
        |input: &planish_artifact::manifest::Input| Some(IdRange { input: input.value.name.clone(), end: input.end? });
    part.inputs.iter().filter_map(range).collect()
}

/// The files that a weight is made of.
fn files_of(weight: &Weight, files: &mut BTreeSet<PathBuf>) {
    weight.visit_leaves(&mut |leaf| {
        files.extend(leaf.as_stored().and_then(|range| range.source.file_path()).map(Path::to_owned));
    });
}
