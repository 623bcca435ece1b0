//! Opening a checkpoint: which files it has, and whether they agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use planish_files::Kind;
use planish_ir::WeightSource;
use serde_json::{Map, Value};

use super::elsewhere::RemoteFiles;
use super::gguf::Gguf;
use super::refusals::{find_weights, no_config, not_there, other_file};
use super::safetensors::WeightFile;
use super::{CONFIG, Checkpoint, INDEX, INDEX_SUFFIX, SINGLE, files, gguf, is_plain_name, multimodal, torch_linear};
use crate::architectures::model2vec;
use crate::{ModelError, sentence};

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
