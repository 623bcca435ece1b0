//! Checkpoints that tests take from a golden, edit, and write to a temporary folder.

use planish_testing::scratch;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish_ir::Graph;
use planish_models::{Checkpoint, LoadOptions, Loaded, ModelError, Task, load};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Loading with warnings, for the task of the class.
pub(crate) const LENIENT: LoadOptions = LoadOptions {
    task: None,
    encoder_gives_keys: false,
    gives_inputs_of_modules: false,
    cache_names: &[],
    strict: false,
    pooling: None,
    latent_cache: None,
    towers: None,
    image_size: None,
    pictures: None,
    preprocessing: None,
    steps: None,
    sounds: None,
};
/// Loading in which warnings are errors, for the task of the class.
pub(crate) const STRICT: LoadOptions = LoadOptions { strict: true, ..LENIENT };

/// The folder of a golden.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/goldens").join(name)
}

/// The names of all goldens.
pub(crate) fn goldens() -> Vec<String> {
    let all = fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = all
        .filter(|path| path.join("config.json").is_file())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names.len() >= 25, "{names:?}");
    names.sort_unstable();
    names
}

/// Opens and loads.
pub(crate) fn load_path(path: &Path, options: LoadOptions) -> Result<Loaded, ModelError> {
    load(&Checkpoint::open(path)?, options)
}

/// The options that ask for a task.
pub(crate) fn task(task: Task) -> LoadOptions {
    LoadOptions { task: Some(task), ..LoadOptions::default() }
}

/// A stored tensor.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Stored {
    /// Floats that rise from -0.5 on.
    pub(crate) fn ramp(shape: &[usize]) -> Self {
        let elements: usize = shape.iter().product();
        let bytes = (0..elements).flat_map(|i| (i as f32 / elements as f32 - 0.5).to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    /// The same floats times a factor.
    pub(crate) fn scaled(self, factor: f32) -> Self {
        let floats = self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes) * factor);
        Self { bytes: floats.flat_map(f32::to_le_bytes).collect(), ..self }
    }
}

/// A checkpoint in memory.
pub(crate) struct Draft {
    pub(crate) config: Value,
    pub(crate) tensors: BTreeMap<String, Stored>,
}

impl Draft {
    /// A copy of a golden.
    pub(crate) fn of(name: &str) -> Self {
        Self::at(&golden(name))
    }

    /// A copy of a checkpoint of one file.
    pub(crate) fn at(folder: &Path) -> Self {
        let config = serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let stored =
            |t: TensorView<'_>| Stored { dtype: t.dtype(), shape: t.shape().to_vec(), bytes: t.data().to_vec() };
        Self { config, tensors: tensors.iter().map(|(name, t)| (name.to_owned(), stored(t))).collect() }
    }

    /// The same with a key of the configuration set.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// The same without a key of the configuration.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.config.as_object_mut().unwrap().remove(key);
        self
    }

    /// The same with a tensor added or replaced.
    pub(crate) fn tensor(mut self, name: &str, tensor: Stored) -> Self {
        self.tensors.insert(name.to_owned(), tensor);
        self
    }

    /// The same with tensors renamed.
    pub(crate) fn renamed(mut self, f: impl Fn(&str) -> String) -> Self {
        self.tensors = self.tensors.into_iter().map(|(name, t)| (f(&name), t)).collect();
        self
    }

    /// The same with every tensor replaced.
    pub(crate) fn mapped(mut self, f: impl Fn(&Stored) -> Stored) -> Self {
        self.tensors.values_mut().for_each(|t| *t = f(t));
        self
    }

    fn serialize(tensors: &[(&String, &Stored)]) -> Vec<u8> {
        let views = tensors.iter().map(|(n, t)| (*n, TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    /// Writes a folder with one weight file.
    pub(crate) fn write(&self) -> TempDir {
        let folder = scratch();
        fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        let all: Vec<_> = self.tensors.iter().collect();
        fs::write(folder.path().join("model.safetensors"), Self::serialize(&all)).unwrap();
        folder
    }

    /// Writes a folder with three shards.
    pub(crate) fn write_sharded(&self) -> TempDir {
        let folder = scratch();
        fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        let all: Vec<_> = self.tensors.iter().collect();
        let mut map = serde_json::Map::new();
        for (i, part) in all.chunks(all.len().div_ceil(3)).enumerate() {
            let shard = format!("model-{:05}-of-00003.safetensors", i + 1);
            fs::write(folder.path().join(&shard), Self::serialize(part)).unwrap();
            map.extend(part.iter().map(|(name, _)| ((*name).clone(), json!(shard))));
        }
        let index = json!({"metadata": {"total_size": 0}, "weight_map": map});
        fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        folder
    }

    /// Writes and loads; weights stay readable.
    pub(crate) fn load(&self, options: LoadOptions) -> Result<Loaded, ModelError> {
        load_path(self.write().path(), options)
    }

    /// What loading complains about.
    pub(crate) fn error(&self, options: LoadOptions) -> String {
        self.load(options).map(|_| ()).expect_err("this should not load").to_string()
    }
}

/// The nodes, inputs and outputs of a graph as text, and the value of each weight by name.
pub(crate) fn meaning(graph: &Graph) -> (String, BTreeMap<String, Vec<f64>>) {
    let text = graph.to_string();
    let lines = text.lines().skip(1).filter(|line| !line.trim_start().starts_with("weight "));
    let weights = graph.weights().map(|(_, value, weight)| (value.name.clone(), weight.read_numbers().unwrap()));
    (lines.collect::<Vec<_>>().join("\n"), weights.collect())
}

/// The text of a part.
pub(crate) fn text(model: &Loaded, part: &str) -> String {
    model.parts.iter().find(|p| p.name == part).unwrap().graph.to_string()
}

/// Asserts that a message has each of some parts.
#[track_caller]
pub(crate) fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// Asserts that a golden with one key set is refused, with a message that names file and key.
#[track_caller]
pub(crate) fn assert_refused(golden: &str, key: &str, value: Value, parts: &[&str]) {
    let message = Draft::of(golden).with(key, value).error(LENIENT);
    assert_says(&message, &[&["config.json", key], parts].concat());
}

/// Asserts that two models compute the same with the same weights.
#[track_caller]
pub(crate) fn assert_meaning(model: &Loaded, original: &Loaded) {
    assert_eq!(model.parts.len(), original.parts.len());
    for (part, wanted) in model.parts.iter().zip(&original.parts) {
        let ((text, weights), (wanted_text, wanted_weights)) = (meaning(&part.graph), meaning(&wanted.graph));
        assert_eq!(text, wanted_text);
        assert!(weights == wanted_weights, "a weight of {} has another value", part.name);
    }
}

/// Asserts that a checkpoint is the same model as a golden, without a warning.
#[track_caller]
pub(crate) fn assert_same(draft: &Draft, name: &str) {
    let model = draft.load(STRICT).unwrap();
    let original = load_path(&golden(name), LoadOptions { task: model.task, ..STRICT }).unwrap();
    assert_meaning(&model, &original);
}
