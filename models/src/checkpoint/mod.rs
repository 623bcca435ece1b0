//! The files of a checkpoint: one weight file or several shards, `config.json` and what belongs
//! beside it.

mod adapter;
pub(crate) mod companions;
pub(crate) mod config;
pub(crate) mod config_keys;
pub(crate) mod elsewhere;
pub(crate) mod files;
pub(crate) mod gguf;
pub(crate) mod multimodal;
mod open;
pub(crate) mod quantized;
pub(crate) mod refusals;
pub(crate) mod safetensors;
pub(crate) mod tensors;
pub(crate) mod torch_linear;
pub(crate) mod wanted;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use self::adapter::Adapter;
use self::companions::companions;
use self::elsewhere::RemoteFiles;
use self::gguf::Gguf;
use self::multimodal::Whole;
use self::safetensors::{StoredTensor, WeightFile};
use crate::{ModelError, sentence};

pub(crate) const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const INDEX_SUFFIX: &str = ".safetensors.index.json";

/// A file that a model is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name, with that of its folder where it is a module's.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// An opened checkpoint: headers of the weight files are read and checked, tensors are not.
#[derive(Debug)]
pub struct Checkpoint {
    /// The folder that was given, or that the file given is in.
    root: PathBuf,
    /// The folder of the model: the root, or that of the first module of a sentence model.
    folder: PathBuf,
    name: String,
    config: Map<String, Value>,
    /// The multimodal model whose text model `config` is of.
    whole: Option<Whole>,
    index: Option<PathBuf>,
    shards: Vec<Arc<WeightFile>>,
    /// Tensor names to positions in `shards`.
    tensors: BTreeMap<String, usize>,
    /// The weight files that are not here.
    elsewhere: RemoteFiles,
    /// The folders of the modules of a sentence model that have weights. The names of their tensors begin with them and a slash.
    modules: Vec<String>,
    /// What a GGUF file says, where the checkpoint is one.
    gguf: Option<Gguf>,
    /// Adapters that are added to it, whose files are the last of `shards`.
    adapters: Vec<Adapter>,
    /// Tensors of adapters that come in place of the model's, and what their files call them.
    replaced: BTreeMap<String, String>,
}

impl SourceFile {
    /// A file by its path.
    ///
    /// # Errors
    /// When it has gone.
    pub fn at(path: PathBuf) -> Result<Self, ModelError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Self { name, path, bytes: metadata.len() }),
            Err(source) => Err(ModelError::Read { path, source }),
        }
    }
}

impl Checkpoint {
    /// Whether a file is in the format GGUF, by its ending.
    #[must_use]
    pub fn is_gguf(path: &Path) -> bool {
        path.to_string_lossy().to_ascii_lowercase().ends_with(gguf::ENDING)
    }

    /// Whether weights may be codes with scales: the configuration says that they are quantized, or the checkpoint is a GGUF
    /// file.
    #[must_use]
    pub fn may_have_codes(&self) -> bool {
        self.gguf.is_some() || config_keys::QUANTIZATION.iter().any(|key| self.config.contains_key(*key))
    }

    /// What a GGUF file says, where the checkpoint is one.
    pub(crate) fn gguf(&self) -> Option<&Gguf> {
        self.gguf.as_ref()
    }

    /// The folder that was given, or that the file given is in: where modules of a sentence model are.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the model, with its configuration and tokenizer.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the checkpoint lists modules of a sentence model.
    #[must_use]
    pub fn has_modules(&self) -> bool {
        sentence::is_listed(&self.root)
    }

    /// The model's name: that of its folder, or of a weight file with a name of its own.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the configuration is: `config.json`, or the GGUF file that has it.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        match (&self.gguf, self.shards.first()) {
            (Some(_), Some(file)) => file.path().to_owned(),
            _ => self.folder.join(CONFIG),
        }
    }

    /// The multimodal model whose text model the configuration is of, where it is of one.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// The contents of `config.json`, or what a GGUF file's metadata says in its place; those of the text model where the
    /// checkpoint is of a multimodal model.
    #[must_use]
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// The weight files, in the order of their names.
    #[must_use]
    pub fn weight_files(&self) -> &[Arc<WeightFile>] {
        &self.shards
    }

    /// Where the weights are, for messages: the one file, or the folder of several.
    #[must_use]
    pub fn weights_path(&self) -> &Path {
        match self.own_weights() {
            [one] => one.path(),
            _ => &self.folder,
        }
    }

    /// What a weight file calls a tensor.
    pub(crate) fn stored_name<'n>(&'n self, name: &'n str) -> &'n str {
        let of_module = || self.modules.iter().find_map(|module| name.strip_prefix(module.as_str())?.strip_prefix('/'));
        let own = self.replaced.get(name).map(String::as_str);
        own.or_else(|| self.gguf.as_ref()?.stored_name(name)).or_else(of_module).unwrap_or(name)
    }

    /// A tensor and the file that contains it.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<(&Arc<WeightFile>, &StoredTensor)> {
        let file = self.shards.get(*self.tensors.get(name)?)?;
        Some((file, file.tensors().get(self.stored_name(name))?))
    }

    /// The names of all tensors, sorted.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The files that decide what the model is: configuration, index, weights.
    ///
    /// # Errors
    /// When one has vanished since.
    pub fn sources(&self) -> Result<Vec<SourceFile>, ModelError> {
        let config = Some(self.config_path()).filter(|path| self.gguf.is_none() && path.is_file());
        let weights = self.own_weights().iter().map(|file| file.path().to_owned());
        let own = config.into_iter().chain(self.index.clone()).chain(weights).map(SourceFile::at);
        let mut all = own.collect::<Result<Vec<_>, _>>()?;
        for adapter in &self.adapters {
            all.extend(adapter.sources()?);
        }
        Ok(all)
    }

    /// The files that decide what the modules of a sentence model are, besides those of the model.
    ///
    /// # Errors
    /// When one has vanished since.
    pub fn sources_of_modules(&self) -> Result<Vec<SourceFile>, ModelError> {
        let one = |name: String| Ok(SourceFile { name: name.clone(), ..SourceFile::at(self.root.join(name))? });
        sentence::sources(&self.root).into_iter().map(one).collect()
    }

    /// The weight files of the model, without those of modules after it and of adapters.
    fn own_weights(&self) -> &[Arc<WeightFile>] {
        &self.shards[..self.shards.len() - self.modules.len() - self.adapters.len()]
    }

    /// The names and contents of the configuration and tokenizer files that a GGUF file stands for; none of other
    /// checkpoints, which have such files.
    #[must_use]
    pub fn written_companions(&self) -> Vec<(&'static str, String)> {
        self.gguf.as_ref().map(|gguf| gguf.companions(&self.config)).unwrap_or_default()
    }

    /// The configuration and tokenizer files that are there, which an artifact takes over unchanged. None are those of a
    /// GGUF file.
    #[must_use]
    pub fn companions(&self) -> Vec<String> {
        if self.gguf.is_some() { Vec::new() } else { companions(&self.folder) }
    }

    /// Whether a tensor is one of a module of a sentence model.
    pub(crate) fn is_of_module(&self, name: &str) -> bool {
        self.modules.iter().any(|module| name.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with('/')))
    }
}

/// Whether a name stays inside its folder.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}
