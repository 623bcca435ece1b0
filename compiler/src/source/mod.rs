//! What a model is compiled from: a checkpoint, an ONNX graph, or the graphs of an artifact.

mod companions;
mod find;
mod graph;
pub mod modules;
mod onnx;
mod opset;
pub(crate) mod pictures;
mod sounds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use planish_artifact::MANIFEST;
use planish_artifact::manifest::{ArtifactHistory, PaddedVocabulary};
use planish_models::{
    Checkpoint, ImageSize, LoadOptions, Loaded, ModelCard, PictureSteps, Pooling, Preprocessing, SoundSteps,
    SourceFile, Task,
};
use planish_onnx::{ImportOptions, node_results};

use modules::NodeNames;

pub use companions::WrittenCompanions;
pub use find::{Compared, Found, compared, find, open_again, takes_the_same};
pub use onnx::OnnxModel;

/// The ending of ONNX files.
const ONNX: &str = "onnx";

/// The weights that a checkpoint's folder is opened by.
const USUAL_WEIGHTS: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];

/// What a model is compiled from, opened: weights are not read.
pub enum SourceModel {
    /// A checkpoint of Hugging Face's libraries, or a GGUF file with the files that are written for it.
    Checkpoint(Box<Checkpoint>, WrittenCompanions),
    /// An ONNX graph, or those of an artifact.
    Onnx(Box<OnnxModel>),
}

/// The ONNX file that a model was read from, for ONNX Runtime to run.
#[derive(Clone, Debug)]
pub struct OnnxFile {
    /// The file.
    pub path: PathBuf,
    /// Whether only a part of it was taken.
    pub is_cut: bool,
    /// The opset that the part is written for.
    pub opset: u32,
    /// The library of ONNX Runtime, where the user named one.
    pub library: Option<PathBuf>,
    /// The threads of a session; 0 leaves the number to the runtime.
    pub threads: usize,
}

impl SourceModel {
    /// Opens an ONNX file, a checkpoint: a folder, a `.safetensors` file, an index of shards, or a `.gguf` file, or the folder
    /// of an artifact with ONNX graphs. A folder that is both, because the artifact links the weights, is a checkpoint.
    ///
    /// # Errors
    /// When it is missing, unreadable or malformed.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &ImportOptions::default())
    }

    /// The same, of an ONNX file with shapes fixed or a part cut out.
    ///
    /// # Errors
    /// As of [`Self::open`], and when there is something to fix or cut that the model does not have.
    pub fn open_with(path: &Path, options: &ImportOptions) -> Result<Self> {
        if Self::is_file_of_graph(path) {
            return OnnxModel::open(path, options).map(Box::new).map(Self::Onnx);
        }
        let opened = Checkpoint::open(path);
        if opened.is_err() && path.join(MANIFEST).is_file() {
            return OnnxModel::open_artifact(path, options).map(Box::new).map(Self::Onnx);
        }
        if !options.is_empty() {
            bail!(
                "{} is not an .onnx file: --shapes, --inputs and --outputs take parts of ONNX graphs only; compile it with \
                 `--target onnx --no-fusion` first, and then that artifact",
                path.display()
            );
        }
        Ok(Self::Checkpoint(Box::new(opened?), WrittenCompanions::default()))
    }

    /// The same with adapters of low rank added to the weights of a checkpoint: their folders, and what each change of weights is
    /// multiplied by.
    ///
    /// # Errors
    /// When one is malformed, or there are some and this is an ONNX graph.
    pub fn with_adapters(mut self, adapters: &[(PathBuf, f64)]) -> Result<Self> {
        for (folder, weight) in adapters {
            match &mut self {
                Self::Checkpoint(checkpoint, _) => checkpoint.add_adapter(folder, *weight)?,
                Self::Onnx(model) => bail!(
                    "adapters are added to the weights of checkpoints, and {} is an ONNX graph; compile the checkpoint that it was \
                     made from",
                    model.path().display()
                ),
            }
        }
        Ok(self)
    }

    /// The folders of the adapters that are added to the weights, and what each is multiplied by.
    pub fn adapters(&self) -> impl Iterator<Item = (&Path, f64)> {
        let checkpoint = match self {
            Self::Checkpoint(checkpoint, _) => Some(checkpoint),
            Self::Onnx(_) => None,
        };
        checkpoint.into_iter().flat_map(|checkpoint| checkpoint.added_adapters())
    }

    /// Whether a file is all of a model, by its ending: an ONNX graph, or in the format GGUF.
    pub(crate) fn is_file_of_model(path: &Path) -> bool {
        Self::is_file_of_graph(path) || Checkpoint::is_gguf(path)
    }

    /// Whether a file is an ONNX graph, by its ending.
    pub fn is_file_of_graph(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(ONNX))
    }

    /// The model's name: that of the folder of a checkpoint; that of an ONNX file, or where this
    /// is `model`, of its folder.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Checkpoint(checkpoint, _) => checkpoint.name().to_owned(),
            Self::Onnx(model) => model.name(),
        }
    }

    /// What of an ONNX file is taken; all of a checkpoint is.
    #[must_use]
    pub fn import_options(&self) -> ImportOptions {
        match self {
            Self::Checkpoint(..) => ImportOptions::default(),
            Self::Onnx(model) => model.options.clone(),
        }
    }

    /// Where it can be opened again: the folder of a checkpoint or, where that has several, its weights; the ONNX file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Onnx(model) => model.path().to_owned(),
            Self::Checkpoint(checkpoint, _) => {
                let mut sources = checkpoint.sources().unwrap_or_default().into_iter().map(|source| source.path);
                let index = sources.find(|path| path.to_string_lossy().ends_with(".index.json"));
                let weights = index.unwrap_or_else(|| checkpoint.weights_path().to_owned());
                let usual = weights.file_name().is_some_and(|name| USUAL_WEIGHTS.iter().any(|usual| name == *usual));
                if usual { checkpoint.root().to_owned() } else { weights }
            }
        }
    }

    /// The names of the nodes of an ONNX file; a checkpoint has none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn node_names(&self) -> Result<NodeNames> {
        match self {
            Self::Checkpoint(..) => Ok(NodeNames::default()),
            Self::Onnx(model) => {
                let mut results = BTreeMap::new();
                for part in &model.parts {
                    results.extend(node_results(&part.path)?);
                }
                Ok(NodeNames { results, are_modules: false })
            }
        }
    }

    /// The ONNX file of a part for ONNX Runtime to run, on so many threads of the library that was named, if one was; a
    /// checkpoint has none.
    #[must_use]
    pub fn onnx_file(&self, part: &str, library: Option<PathBuf>, threads: usize) -> Option<OnnxFile> {
        let Self::Onnx(model) = self else { return None };
        let is_cut = !model.options.inputs.is_empty() || !model.options.outputs.is_empty();
        let path = model.parts.iter().find(|other| other.name == part)?.path.clone();
        Some(OnnxFile { path, is_cut, opset: self.default_opset(), library, threads })
    }

    /// How the artifact was made that is the source; absent for another source.
    #[must_use]
    pub fn history(&self) -> Option<ArtifactHistory> {
        match self {
            Self::Checkpoint(..) => None,
            Self::Onnx(model) => model.history(),
        }
    }

    /// Whether the source is an artifact whose layers or weights were quantized.
    #[must_use]
    pub(crate) fn is_quantized_artifact(&self) -> bool {
        match self {
            Self::Checkpoint(..) => false,
            Self::Onnx(model) => model.is_quantized_artifact(),
        }
    }

    /// The padded vocabulary of a part of the artifact that is the source.
    #[must_use]
    pub(crate) fn padded_vocabulary(&self, part: &str) -> Option<PaddedVocabulary> {
        match self {
            Self::Checkpoint(..) => None,
            Self::Onnx(model) => model.described(part)?.vocabulary.clone(),
        }
    }

    /// What the makers of an ONNX graph noted in its file.
    #[must_use]
    pub fn metadata(&self) -> &[(String, String)] {
        match self {
            Self::Checkpoint(..) => &[],
            Self::Onnx(model) => model.parts.first().map_or(&[], |part| &part.imported.metadata),
        }
    }

    /// The opset that an ONNX graph is written in.
    #[must_use]
    pub fn opset(&self) -> Option<u32> {
        match self {
            Self::Checkpoint(..) => None,
            Self::Onnx(model) => Some(model.opset()),
        }
    }

    /// The model's graphs.
    ///
    /// # Errors
    /// When the model cannot be loaded, or with `strict` when there is a warning.
    pub fn load(&self, options: LoadOptions) -> Result<Loaded> {
        match self {
            Self::Checkpoint(checkpoint, _) => {
                let pictures = options.pictures.or_else(|| pictures::size(&self.folder()));
                let (steps, sounds) = match options.preprocessing {
                    Some(Preprocessing::Graph) => self.steps(options.image_size)?,
                    None => (None, None),
                };
                Ok(planish_models::load(checkpoint, LoadOptions { pictures, steps, sounds, ..options })?)
            }
            Self::Onnx(model) => {
                let pooling = options.pooling.map(|pooling| (format!("pooling ({pooling})"), "the outputs"));
                let cache = options.latent_cache.map(|cache| (format!("--recipe latent-cache={cache}"), "the cache"));
                let size =
                    options.image_size.map(|size| (format!("--recipe image-size={size}"), "the sizes of images"));
                let towers = options.towers.map(|_| ("--recipe towers=apart".to_owned(), "the parts"));
                let preprocessing =
                    options.preprocessing.map(|_| ("--recipe preprocessing=graph".to_owned(), "the inputs"));
                match pooling.or(cache).or(size).or(towers).or(preprocessing) {
                    Some((setting, what)) => bail!(
                        "{setting} is for checkpoints, and {} keeps {what} of its graph; compile the checkpoint that it was \
                         made from",
                        model.path().display()
                    ),
                    None => model.load(options),
                }
            }
        }
    }

    /// What the settings in the folder say that becomes of pictures, and of recordings, for a graph that does it.
    fn steps(&self, size: Option<ImageSize>) -> Result<(Option<PictureSteps>, Option<Arc<SoundSteps>>)> {
        let folder = self.folder();
        match sounds::steps(&folder) {
            Ok(Some(sounds)) => Ok((pictures::steps(&folder, size).ok(), Some(Arc::new(sounds)))),
            Ok(None) => Ok((Some(pictures::steps(&folder, size)?), None)),
            Err(_) if pictures::are_described(&folder) => Ok((Some(pictures::steps(&folder, size)?), None)),
            Err(why) => Err(why),
        }
    }

    /// Whether settings in the folder say how pictures become inputs.
    #[must_use]
    pub(crate) fn sees(&self) -> bool {
        pictures::are_described(&self.folder())
    }

    /// Every file that the model is made from for a task.
    ///
    /// # Errors
    /// When one has gone.
    pub fn files(&self, task: Option<Task>) -> Result<Vec<SourceFile>> {
        match self {
            Self::Checkpoint(checkpoint, _) => {
                let mut files = checkpoint.sources()?;
                if task == Some(Task::SentenceSimilarity) {
                    files.extend(checkpoint.sources_of_modules()?);
                }
                Ok(files)
            }
            Self::Onnx(model) => {
                Ok(model.files().map(|path| SourceFile::at(path.to_owned())).collect::<Result<_, _>>()?)
            }
        }
    }

    /// The files that weights are ranges of.
    #[must_use]
    pub fn weight_files(&self) -> Vec<&Path> {
        match self {
            Self::Checkpoint(checkpoint, _) => checkpoint.weight_files().iter().map(|f| f.path()).collect(),
            Self::Onnx(model) => model.files().collect(),
        }
    }

    /// The folder that the model is in.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        match self {
            Self::Checkpoint(checkpoint, _) => {
                checkpoint.config_path().parent().map(Path::to_owned).unwrap_or_default()
            }
            Self::Onnx(model) => model.folder().to_owned(),
        }
    }

    /// What the model card beside the model says: of an artifact, what its source's card said. A graph in a folder `onnx` has the
    /// card of the folder above.
    ///
    /// # Errors
    /// When the card cannot be read.
    pub fn card(&self) -> Result<Option<ModelCard>> {
        let folder = match self {
            Self::Checkpoint(checkpoint, _) => checkpoint.root().to_owned(),
            Self::Onnx(model) => match model.history() {
                Some(history) => return Ok(history.source.card),
                None => model.folder().canonicalize()?,
            },
        };
        let above = folder.parent().filter(|_| folder.ends_with(ONNX));
        match (ModelCard::read(&folder)?, above) {
            (None, Some(above)) => Ok(ModelCard::read(above)?),
            (card, _) => Ok(card),
        }
    }

    /// The folder that has the tokenizer and the configuration: that of the model, or a temporary one of a GGUF file, which
    /// goes when this is dropped.
    ///
    /// # Errors
    /// When the files of a GGUF file cannot be written.
    pub fn companion_folder(&self) -> Result<PathBuf> {
        match self {
            Self::Checkpoint(checkpoint, written) => written.folder(checkpoint, self.folder()),
            Self::Onnx(_) => Ok(self.folder()),
        }
    }

    /// Files beside the model that belong into an artifact unchanged, by their names there; of a GGUF file, what it says in
    /// their place. Where the model of a sentence model has a folder of its own, the files above it belong to it too.
    ///
    /// # Errors
    /// When the files of a GGUF file cannot be written.
    pub fn companions(&self) -> Result<Vec<(String, PathBuf)>> {
        let named = |names: Vec<String>, folder: PathBuf| {
            Ok(names.into_iter().map(|name| (name.clone(), folder.join(name))).collect())
        };
        match self {
            Self::Checkpoint(checkpoint, written) => match checkpoint.companions() {
                own if own.is_empty() => {
                    let names = checkpoint.written_companions().into_iter().map(|(name, _)| name.to_owned());
                    named(names.collect(), written.folder(checkpoint, PathBuf::new())?)
                }
                own => {
                    let (root, folder) = (checkpoint.root(), self.folder());
                    let above = if *root == folder { Vec::new() } else { planish_models::companions(root) };
                    let above = above.into_iter().filter(|name| !own.contains(name)).collect();
                    Ok([named(own, folder)?, named(above, root.to_owned())?].concat())
                }
            },
            Self::Onnx(model) => named(planish_models::companions(model.folder()), model.folder().to_owned()),
        }
    }

    /// Files of sentence-transformers in place of those of the source, with their texts ([`planish_models::written_modules`]).
    ///
    /// # Errors
    /// When modules.json is malformed.
    pub fn written_modules(&self, pooling: Option<(Pooling, usize)>) -> Result<Vec<(String, String)>> {
        match self {
            Self::Checkpoint(checkpoint, _) => Ok(planish_models::written_modules(checkpoint.root(), pooling)?),
            Self::Onnx(_) => Ok(Vec::new()),
        }
    }
}
