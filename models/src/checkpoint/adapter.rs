//! Adapters of low rank (Hu et al. 2021, arXiv:2106.09685) as the PEFT library stores them: a folder with adapter_config.json and
//! adapter_model.safetensors. To the weight of a layer, [out, in], they add `lora_alpha / r * lora_B lora_A`, where `lora_A` is
//! [r, in] and `lora_B` [out, r]; other tensors among theirs come in place of the model's. With magnitudes [out] (DoRA, Liu et al.
//! 2024, arXiv:2402.09353), each row of the sum is divided by its norm and multiplied by its magnitude.

mod scale;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use planish_files::Kind;
use planish_ir::weight::StoredRange;
use planish_ir::{DType, Weight, WeightSource};
use scale::scale;
use serde_json::Value;

use super::config::{brief, is_off};
use super::files::read_object;
use super::refusals::ADAPTER;
use super::{SourceFile, WeightFile};
use crate::{Checkpoint, ModelError, Task};

/// The weights of an adapter.
const WEIGHTS: &str = "adapter_model.safetensors";

/// What names of tensors begin with: the classes of PEFT around the model.
const AROUND: &str = "base_model.model.";

/// What the names of the narrow matrices end with: of layers, and of tables.
const DOWN: [&str; 2] = [".lora_A.weight", ".lora_embedding_A"];
const UP: [&str; 2] = [".lora_B.weight", ".lora_embedding_B"];

/// What the names of the magnitudes of a layer's outputs end with, by the version of PEFT.
const MAGNITUDE: [&str; 2] = [".lora_magnitude_vector", ".lora_magnitude_vector.weight"];

/// What names of tensors have that PEFT keeps inside of a changed module, or of one that it saves whole.
const INSIDE: [&str; 2] = [".base_layer.", ".modules_to_save."];

/// What those have that stay as the model has them.
const ORIGINAL: &str = ".original_module.";

/// Keys that change what is added, or where, in a way that is not computed here.
const OFF: &[&str] = &[
    "alora_invocation_tokens",
    "arrow_config",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_qalora",
];

/// What `init_lora_weights` may say: how the narrow matrices started, without a change of the model's weights.
const PLAIN_STARTS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// The narrow matrices of a module: their names, and the factor of their product.
#[derive(Debug)]
struct Change {
    down: String,
    up: String,
    /// The norms that the rows of the sum get: [out].
    magnitude: Option<String>,
    /// Whether they are those of a table, which has its tokens in rows.
    is_table: bool,
    factor: f64,
}

/// An adapter that is added to a checkpoint.
#[derive(Debug)]
pub(crate) struct Adapter {
    folder: PathBuf,
    weight: f64,
    file: Arc<WeightFile>,
    /// By the module that is changed.
    changes: BTreeMap<String, Change>,
    /// Tensors that come in place of those of the model: the names there, and in its file.
    replaced: BTreeMap<String, String>,
    /// Whether the weights of the model's linear layers are [in, out], as those of `Conv1D` of the transformers library.
    fan_in_fan_out: bool,
    /// The model that it was trained for, as its configuration names it.
    base: Option<String>,
    task: Option<Task>,
}

impl Adapter {
    /// Opens an adapter, whose change of weights is multiplied by `weight`. No tensor is read.
    ///
    /// # Errors
    /// When a file is missing or malformed, or the adapter is one of another kind.
    pub(crate) fn open(folder: &Path, weight: f64) -> Result<Self, ModelError> {
        let path = folder.join(ADAPTER);
        if !path.is_file() {
            let message = format!("there is no {ADAPTER}: an adapter is a folder as the peft library saves it");
            return Err(ModelError::File { path: folder.to_owned(), message });
        }
        let config = read_object(&path, &Kind::SETTINGS)?;
        let bad = |message: String| ModelError::File { path: path.clone(), message };
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        match text("peft_type") {
            Some("LORA") => {}
            kind => return Err(bad(format!("`peft_type` is {}, and LORA is supported", kind.unwrap_or("missing")))),
        }
        if let Some(key) = OFF.iter().find(|key| config.get(**key).is_some_and(|value| !is_off(value))) {
            return Err(bad(format!("`{key}` is {}, which is not supported", brief(&config[*key]))));
        }
        if let Some(init) =
            text("init_lora_weights").filter(|init| !PLAIN_STARTS.contains(&init.to_lowercase().as_str()))
        {
            return Err(bad(format!(
                "`init_lora_weights` is \"{init}\", which may change the weights of the model too; save the adapter with \
                 `path_initial_model_for_weight_conversion` of `save_pretrained`, which makes it a plain one"
            )));
        }
        let weights = folder.join(WEIGHTS);
        if !weights.is_file() {
            let message = format!(
                "this file is missing; where there is an adapter_model.bin in its place, write it once where torch is installed: \
                 safetensors.torch.save_file(torch.load(\"adapter_model.bin\", weights_only=True), \"{WEIGHTS}\")"
            );
            return Err(ModelError::File { path: weights, message });
        }
        let file = WeightFile::open(&weights)?;
        let has_magnitudes = config.get("use_dora").is_some_and(|value| value == true);
        let (mut changes, mut replaced) = (BTreeMap::new(), BTreeMap::new());
        for name in file.tensors().keys() {
            let wrong = |message: &str| ModelError::Tensor {
                name: name.clone(),
                path: weights.clone(),
                message: message.to_owned(),
            };
            let own =
                name.strip_prefix(AROUND).ok_or_else(|| wrong("its name does not begin with base_model.model."))?;
            let half = |ends: [&'static str; 2]| ends.into_iter().find_map(|end| Some((own.strip_suffix(end)?, end)));
            if let Some((module, end)) = half(DOWN) {
                let is_table = end == DOWN[1];
                let up = format!("{AROUND}{module}{}", UP[usize::from(is_table)]);
                if !file.tensors().contains_key(&up) {
                    return Err(wrong(&format!("its other half, `{up}`, is missing")));
                }
                let rank = file.tensors()[name].shape.first().copied().unwrap_or_default();
                let scale = scale(&config, module, rank).map_err(&bad)?;
                let names = MAGNITUDE.map(|end| format!("{AROUND}{module}{end}"));
                let magnitude = names.into_iter().find(|name| has_magnitudes && file.tensors().contains_key(name));
                if has_magnitudes && magnitude.is_none() {
                    return Err(wrong("`use_dora` is true, and the layer has no lora_magnitude_vector"));
                }
                let change = Change { down: name.clone(), up, magnitude, is_table, factor: scale * weight };
                changes.insert(module.to_owned(), change);
            } else if let Some((module, end)) = half(UP) {
                let down = format!("{AROUND}{module}{}", DOWN[usize::from(end == UP[1])]);
                if !file.tensors().contains_key(&down) {
                    return Err(wrong(&format!("its other half, `{down}`, is missing")));
                }
            } else if let Some((module, _)) = half(MAGNITUDE).filter(|_| has_magnitudes) {
                let is_changed = |end: &str| file.tensors().contains_key(&format!("{AROUND}{module}{end}"));
                if !DOWN.into_iter().any(is_changed) {
                    return Err(wrong("the layer has no narrow matrices beside its magnitudes"));
                }
            } else if half(MAGNITUDE).is_some() {
                return Err(wrong(
                    "it has magnitudes (DoRA), and `use_dora` of adapter_config.json is not true; set it",
                ));
            } else if own.contains(".lora_") {
                return Err(wrong(
                    "it is none of lora_A, lora_B, lora_embedding_A and lora_embedding_B, which are supported",
                ));
            } else if !own.contains(ORIGINAL) {
                let of_model = INSIDE.iter().fold(own.to_owned(), |own, part| own.replace(part, "."));
                // With biases, one of a module that is saved whole is there under two names.
                replaced.entry(of_model).or_insert_with(|| name.clone());
            }
        }
        if changes.is_empty() && replaced.is_empty() {
            return Err(ModelError::File { path: weights, message: "it has no tensors".to_owned() });
        }
        let task = match text("task_type") {
            Some("SEQ_CLS") => Some(Task::TextClassification),
            Some("TOKEN_CLS") => Some(Task::TokenClassification),
            Some("QUESTION_ANS") => Some(Task::QuestionAnswering),
            _ => None,
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            folder: folder.to_owned(),
            weight,
            file: Arc::new(file.of_module(&name)),
            changes,
            replaced,
            fan_in_fan_out: config.get("fan_in_fan_out").is_some_and(|value| value == true),
            base: text("base_model_name_or_path").map(str::to_owned),
            task,
        })
    }

    /// Its folder, and what its change of weights is multiplied by.
    pub(crate) fn added(&self) -> (&Path, f64) {
        (&self.folder, self.weight)
    }

    pub(crate) fn file(&self) -> &Arc<WeightFile> {
        &self.file
    }

    /// The task of the head that it was trained with, where it has one.
    pub(crate) fn task(&self) -> Option<Task> {
        self.task
    }

    /// The tensors that come in place of the model's: the names there, and in its file.
    pub(crate) fn replaced(&self) -> &BTreeMap<String, String> {
        &self.replaced
    }

    /// A tensor that is there whole, so that nothing can be multiplied by a weight. Of a table that is changed, its copy is.
    fn whole(&self) -> Option<&str> {
        let is_copy = |name: &str| name.strip_suffix(".weight").is_some_and(|module| self.changes.contains_key(module));
        self.replaced.keys().map(String::as_str).find(|name| !is_copy(name))
    }

    /// Refuses a weight that is not for it.
    ///
    /// # Errors
    /// When the weight is another than 1, and there is a whole tensor, or one of magnitudes.
    fn check_weight(&self) -> Result<(), ModelError> {
        let magnitude = || self.changes.values().find_map(|change| change.magnitude.as_deref());
        let what = match (self.whole(), magnitude()) {
            (Some(name), _) => format!("the whole tensor `{name}`, which takes"),
            (None, Some(name)) => format!("magnitudes (DoRA) such as `{name}`, which take"),
            (None, None) => return Ok(()),
        };
        if self.weight == 1.0 {
            return Ok(());
        }
        Err(self.error(&format!("it has {what} no factor but 1, and {} is asked for", self.weight)))
    }

    /// Refuses an adapter that changes a layer of another one, where one of both has magnitudes: their sum has no meaning.
    ///
    /// # Errors
    /// When there is such a layer.
    fn check_beside(&self, other: &Self) -> Result<(), ModelError> {
        let clash = |(module, change): &(&String, &Change)| {
            let beside = other.changes.get(*module);
            beside.is_some_and(|beside| change.magnitude.is_some() || beside.magnitude.is_some())
        };
        match self.changes.iter().find(clash) {
            Some((module, _)) => {
                let folder = other.folder.display();
                Err(self.error(&format!(
                    "it changes `{module}` as {folder} does, and magnitudes (DoRA) of a layer allow one adapter alone"
                )))
            }
            None => Ok(()),
        }
    }

    /// The modules that it changes.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        self.changes.keys().map(String::as_str)
    }

    /// An error about it, with the model that it is for.
    pub(crate) fn error(&self, message: &str) -> ModelError {
        let base = self.base.as_ref().map_or_else(String::new, |base| format!("; it was trained for {base}"));
        ModelError::File { path: self.folder.clone(), message: format!("{message}{base}") }
    }

    /// The files that decide what it is.
    ///
    /// # Errors
    /// When one has gone.
    pub(crate) fn sources(&self) -> Result<Vec<SourceFile>, ModelError> {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let one =
            |name: &str| Ok(SourceFile { name: format!("{folder}/{name}"), ..SourceFile::at(self.folder.join(name))? });
        [ADAPTER, WEIGHTS].into_iter().map(one).collect()
    }

    /// The weight of a module with what the adapter adds. The shape is that of the stored tensor; `None` where the module is
    /// not changed.
    ///
    /// # Errors
    /// When the narrow matrices do not fit it.
    pub(crate) fn apply(&self, module: &str, weight: &Weight) -> Option<Result<Weight, ModelError>> {
        let change = self.changes.get(module)?;
        Some(self.changed(change, weight).ok_or_else(|| {
            let shape = |name: &String| format!("{:?}", self.file.tensors()[name].shape);
            let magnitude = change.magnitude.as_ref().map_or_else(String::new, |name| {
                format!(" with magnitudes {}", shape(name))
            });
            self.error(&format!(
                "the product of matrices {} and {}{magnitude} cannot be added to `{module}` {:?}: the sizes have to agree, and the \
                 numbers to be floats",
                shape(&change.up),
                shape(&change.down),
                weight.shape()
            ))
        }))
    }

    fn changed(&self, change: &Change, weight: &Weight) -> Option<Weight> {
        let (down, up) = (self.tensor(&change.down, 2)?, self.tensor(&change.up, 2)?);
        let rank = *down.shape().first()?;
        let factors = Weight::numbers(DType::F32, vec![rank], &vec![change.factor; rank])?;
        let up = up.scale(1, &factors)?;
        let [rows, columns] = *weight.shape() else { return None };
        // A square weight does not tell how it is stored.
        let is_out_in = [*up.shape().first()?, *down.shape().get(1)?] == [rows, columns];
        let is_in_out = change.is_table || !is_out_in || self.fan_in_fan_out && rows == columns;
        let add = |to: &Weight| match is_in_out {
            true => to.plus_product(&down.transpose(&[1, 0])?, &up.transpose(&[1, 0])?),
            false => to.plus_product(&up, &down),
        };
        let Some(magnitude) = change.magnitude.as_ref().filter(|_| weight.dtype().is_float()) else {
            return add(weight);
        };
        let axis = usize::from(is_in_out);
        let sum = add(&weight.cast(DType::F32)?)?;
        let factors = sum.inverse_norms(axis)?.scale(0, &self.tensor(magnitude, 1)?)?;
        sum.scale(axis, &factors)?.cast(weight.dtype())
    }

    /// A tensor of the file in float32, of so many dimensions.
    fn tensor(&self, name: &str, rank: usize) -> Option<Weight> {
        let tensor = self.file.tensors().get(name)?;
        let dtype = tensor.element_type().filter(|dtype| dtype.is_float())?;
        let source: Arc<dyn WeightSource> = Arc::<WeightFile>::clone(&self.file);
        let range = StoredRange { source, offset: tensor.offset };
        Weight::stored(dtype, tensor.shape.clone(), range).filter(|w| w.shape().len() == rank)?.cast(DType::F32)
    }
}

impl Checkpoint {
    /// Adds an adapter of low rank, a folder as the PEFT library saves it: what it adds to weights is multiplied by `weight`.
    ///
    /// # Errors
    /// When its files are malformed, it is one of another kind, or it replaces a tensor that another one replaces.
    pub fn add_adapter(&mut self, folder: &Path, weight: f64) -> Result<(), ModelError> {
        let adapter = Adapter::open(folder, weight)?;
        adapter.check_weight()?;
        self.adapters.iter().try_for_each(|other| adapter.check_beside(other))?;
        if let (Some((name, _)), true) = (adapter.replaced().first_key_value(), self.gguf.is_some()) {
            let message = format!("it has the whole tensor `{name}`, and no tensor of a GGUF file is replaced");
            return Err(adapter.error(&message));
        }
        let position = self.shards.len();
        for (name, stored) in adapter.replaced() {
            let of_model = self.name_in_model(name);
            if self.replaced.insert(of_model.clone(), stored.clone()).is_some() {
                return Err(adapter.error(&format!("another adapter has the tensor `{name}` too")));
            }
            self.tensors.insert(of_model, position);
        }
        self.shards.push(Arc::clone(adapter.file()));
        self.adapters.push(adapter);
        Ok(())
    }

    /// The name of a tensor in this checkpoint, which may have been saved with or without the name of the base model in front.
    fn name_in_model(&self, name: &str) -> String {
        let without = name.split_once('.').map(|(_, rest)| rest).filter(|rest| self.tensors.contains_key(*rest));
        let longer = |own: &&str| own.split_once('.').is_some_and(|(_, rest)| rest == name);
        match self.tensors.contains_key(name) {
            true => name.to_owned(),
            false => without.or_else(|| self.tensor_names().find(longer)).unwrap_or(name).to_owned(),
        }
    }

    /// Whether a tensor is one of an adapter, in place of the model's.
    pub(crate) fn is_replaced(&self, name: &str) -> bool {
        self.replaced.contains_key(name)
    }

    /// The adapters that are added to it.
    pub(crate) fn adapters(&self) -> &[Adapter] {
        &self.adapters
    }

    /// The folders of the adapters that are added to it, and what each is multiplied by.
    pub fn added_adapters(&self) -> impl Iterator<Item = (&Path, f64)> {
        self.adapters.iter().map(Adapter::added)
    }

    /// The task of the head that an adapter has.
    pub(crate) fn task_of_adapters(&self) -> Option<Task> {
        self.adapters.iter().find_map(Adapter::task)
    }
}
