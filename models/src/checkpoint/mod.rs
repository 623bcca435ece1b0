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
pub(crate) mod quantized;
pub(crate) mod refusals;
pub(crate) mod safetensors;
pub(crate) mod tensors;
pub(crate) mod torch_linear;
pub(crate) mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use planish_files::Kind;
use planish_ir::WeightSource;
use serde_json::{Map, Value};

use self::adapter::Adapter;
use self::companions::companions;
use self::elsewhere::RemoteFiles;
use self::gguf::Gguf;
use self::multimodal::Whole;
use self::refusals::{find_weights, no_config, not_there, other_file};
use self::safetensors::{StoredTensor, WeightFile};
use crate::architectures::model2vec;
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
    /// Opens a checkpoint, as [`Checkpoint::open`] does; `.gguf` files are of one of some architectures.
    pub(crate) fn open_one_of(
        path: &Path,
        kinds: &[&'static gguf::Kind],
        elsewhere: RemoteFiles,
    ) -> Result<Self, ModelError> {
        let metadata = fs::metadata(path).map_err(|source| not_there(path, source))?;
        if metadata.is_file() && Self::is_gguf(path) {
            return Self::open_gguf(path, kinds);
        }
        let file_name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let (folder, weights) = if metadata.is_dir() {
            (path.to_owned(), None)
        } else if file_name.ends_with(".safetensors") || file_name.ends_with(INDEX_SUFFIX) {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (parent.to_owned(), Some(path.to_owned()))
        } else {
            return Err(ModelError::File { path: path.to_owned(), message: other_file(&file_name) });
        };

        let (root, folder) = match &weights {
            None => (folder.clone(), sentence::folder_of_model(&folder)?),
            Some(_) => (folder.clone(), folder),
        };
        let config_path = folder.join(CONFIG);
        let is_static = !config_path.exists() && sentence::is_static(&root);
        if !config_path.exists() && !is_static {
            let message = no_config(&folder, weights.is_none());
            return Err(ModelError::File { path: folder, message });
        }
        let config = match is_static {
            true => Map::from_iter([("model_type".to_owned(), model2vec::ARCHITECTURE.model_type.into())]),
            false => files::read_object(&config_path, &Kind::SETTINGS)?,
        };
        let weights = match weights {
            Some(path) => path,
            None => find_weights(&folder)?,
        };
        let name = model_name(&root, &weights);
        let (index, gguf) = (None, None);
        let (shards, tensors) = (Vec::new(), BTreeMap::new());
        let bare = Self::bare(root, folder, config);
        let mut checkpoint = Self { name, index, shards, tensors, gguf, elsewhere, ..bare };
        if weights.to_string_lossy().ends_with(INDEX_SUFFIX) {
            checkpoint.open_shards(&weights)?;
            checkpoint.index = Some(weights);
        } else {
            checkpoint.refuse_lone_shard(&weights)?;
            checkpoint.add_shard(&weights)?;
        }
        let stores_head = checkpoint.tensor_names().any(multimodal::is_of_head);
        checkpoint.whole = multimodal::take_text(&mut checkpoint.config, &config_path, stores_head)?;
        checkpoint.add_modules()?;
        Ok(checkpoint)
    }

    /// Whether a file is in the format GGUF, by its ending.
    #[must_use]
    pub fn is_gguf(path: &Path) -> bool {
        path.to_string_lossy().to_ascii_lowercase().ends_with(gguf::ENDING)
    }

    /// Opens a GGUF file, which has the configuration too.
    fn open_gguf(path: &Path, kinds: &[&'static gguf::Kind]) -> Result<Self, ModelError> {
        let gguf::Opened { files, config, gguf } = Gguf::open(path, kinds)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = match gguf::split::part(&stem).map_or(stem.as_str(), |(name, ..)| name) {
            "model" => model_name(&folder, Path::new(SINGLE)),
            name => name.to_owned(),
        };
        let tensors = gguf.names().map(|(name, file)| (name.clone(), file)).collect();
        let (root, shards) = (folder.clone(), files.into_iter().map(Arc::new).collect());
        Ok(Self { name, shards, tensors, gguf: Some(gguf), ..Self::bare(root, folder, config) })
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

    /// Opens the shards that an index names, and checks that both agree.
    fn open_shards(&mut self, index: &Path) -> Result<(), ModelError> {
        let bad = |message| ModelError::File { path: index.to_owned(), message };
        let object = files::read_object(index, &Kind::INDEX)?;
        let Some(Value::Object(map)) = object.get("weight_map") else {
            return Err(bad("there is no object `weight_map`".to_owned()));
        };
        let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (tensor, shard) in map {
            let Some(shard) = shard.as_str().filter(|s| is_plain_name(s)) else {
                return Err(bad(format!("tensor `{tensor}` is in {shard}, which is not a plain file name")));
            };
            wanted.entry(shard).or_default().insert(tensor);
        }
        if wanted.is_empty() {
            return Err(bad("`weight_map` names no tensor".to_owned()));
        }
        for (shard, tensors) in wanted {
            let path = self.folder.join(shard);
            if !path.exists() {
                return Err(bad(format!("shard {shard} is missing: download it into {}", self.folder.display())));
            }
            let position = self.add_shard(&path)?;
            if let Some(lost) = tensors.iter().find(|t| self.tensors.get(**t) != Some(&position)) {
                return Err(bad(format!("tensor `{lost}` should be in {shard}, which has no such tensor")));
            }
        }
        Ok(())
    }

    /// Opens a weight file and enters its tensors; returns its position.
    fn add_shard(&mut self, path: &Path) -> Result<usize, ModelError> {
        let file = self.open_weights(path)?;
        let position = self.shards.len();
        for tensor in file.tensors().keys() {
            if let Some(other) = self.tensors.insert(tensor.clone(), position) {
                let other = self.shards.get(other).map_or("", |f| f.name());
                return Err(ModelError::File {
                    path: path.to_owned(),
                    message: format!("tensor `{tensor}` is in {other} as well"),
                });
            }
        }
        self.shards.push(Arc::new(file));
        Ok(position)
    }

    /// Opens a weight file, which may be one that is not here.
    fn open_weights(&self, path: &Path) -> Result<WeightFile, ModelError> {
        match self.elsewhere.get(path) {
            Some(file) => WeightFile::open_remote(path, Arc::clone(file)),
            None => WeightFile::open(path),
        }
    }

    /// A checkpoint without weights.
    fn bare(root: PathBuf, folder: PathBuf, config: Map<String, Value>) -> Self {
        Self {
            root,
            folder,
            name: String::new(),
            config,
            whole: None,
            index: None,
            shards: Vec::new(),
            tensors: BTreeMap::new(),
            elsewhere: RemoteFiles::new(),
            modules: Vec::new(),
            gguf: None,
            adapters: Vec::new(),
            replaced: BTreeMap::new(),
        }
    }

    /// Opens the weight files of modules after the model.
    fn add_modules(&mut self) -> Result<(), ModelError> {
        for (module, path) in sentence::files(&self.root) {
            let position = self.shards.len();
            let file = match path.extension().is_some_and(|ending| ending == torch_linear::ENDING) {
                true => torch_linear::open(&path)?,
                false => self.open_weights(&path)?.of_module(&module),
            };
            self.tensors.extend(file.tensors().keys().map(|name| (format!("{module}/{name}"), position)));
            self.shards.push(Arc::new(file));
            self.modules.push(module);
        }
        Ok(())
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

    /// Refuses a file that is one shard of several: most tensors would be missing.
    fn refuse_lone_shard(&self, weights: &Path) -> Result<(), ModelError> {
        let index = self.folder.join(INDEX);
        let name = weights.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name == SINGLE || !index.exists() {
            return Ok(());
        }
        let object = files::read_object(&index, &Kind::INDEX)?;
        let listed = |map: &Map<String, Value>| map.values().any(|shard| shard.as_str() == Some(name));
        match object.get("weight_map") {
            Some(Value::Object(map)) if listed(map) => Err(ModelError::File {
                path: weights.to_owned(),
                message: format!("this is one shard of several: give the folder, or {INDEX}"),
            }),
            _ => Ok(()),
        }
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

/// The name of a model. A snapshot of the Hugging Face cache, `models--ORG--NAME/snapshots/HASH`,
/// has the model's name two levels up.
fn model_name(folder: &Path, weights: &Path) -> String {
    let text = |path: Option<&Path>| path.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    let file = text(Some(weights)).unwrap_or_default();
    let own = file.strip_suffix(INDEX_SUFFIX).or(file.strip_suffix(".safetensors")).unwrap_or(&file);
    if own != "model" && !own.is_empty() {
        return own.to_owned();
    }
    // Only the folder: a weight file of the cache is a link to a name that is a hash.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let cached = match folder.parent() {
        Some(snapshots) if snapshots.ends_with("snapshots") => text(snapshots.parent()),
        _ => None,
    };
    let cached = cached.as_deref().and_then(|n| n.strip_prefix("models--")).and_then(|n| n.rsplit("--").next());
    cached.map(str::to_owned).or(text(Some(&folder))).unwrap_or_else(|| "model".to_owned())
}
