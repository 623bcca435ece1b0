//! The files of sentence-transformers beside a model: which modules come after it. Both generations of names are read: paths of
//! the libraries' classes count by their last part, and older keys of their configurations beside those of version 5.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use planish_files::Kind as FileKind;
use serde_json::{Map, Value};

use super::checks::{check_model, check_weights};
use super::configuration::Configuration;
use super::entries::{MODULES, ModuleEntry, PYLATE, module_entries};
use super::splade::Splade;
use super::{Dense, Feature, Kind, Mode, Module, Modules, m3};
use crate::architectures::model2vec;
use crate::checkpoint::config::{MAX_SIZE, Size, is_off};
use crate::checkpoint::files::read_object;
use crate::checkpoint::{CONFIG, torch_linear};
use crate::layers::activation::Activation;
use crate::{Checkpoint, LoadOptions, ModelError, Task};

/// What the library says of the whole: the kind of model, prompts, and how vectors are compared.
const SETTINGS: &str = "config_sentence_transformers.json";
/// The weights of a module, in its folder.
pub(super) const WEIGHTS: &str = "model.safetensors";

/// The file that says how a table's rows are those of tokens.
const TOKENIZER: &str = "tokenizer.json";

/// The class of the checkpoints of ColBERT's authors.
const COLBERT: &str = "HF_ColBERT";

/// The class of a module that has a model for each route.
const ROUTER: &str = "Router";

/// Classes that change no value when a model runs.
const WITHOUT_EFFECT: &[&str] = &["Dropout"];

/// Classes with an operator here, for messages.
const KNOWN: &str = "Transformer, Pooling, Dense, Normalize, LayerNorm, SpladePooling, MultiVectorMask, Dropout";

/// What a checkpoint lists of modules after its model.
pub(crate) struct Listed {
    pub(crate) modules: Modules,
    /// What the graph does not follow, one line each.
    pub(crate) warnings: Vec<String>,
}

/// The folder that has the model of the transformers library: that of the first module, or the root of a checkpoint.
///
/// # Errors
/// When the root has no model, and modules.json is malformed or has a model for each route.
pub(crate) fn folder_of_model(root: &Path) -> Result<PathBuf, ModelError> {
    let first = match module_entries(root) {
        Ok(entries) => entries.into_iter().next(),
        Err(error) if !root.join(CONFIG).is_file() => return Err(error),
        Err(_) => None,
    };
    if let Some(entry) = first.as_ref().filter(|entry| entry.class == ROUTER && !root.join(CONFIG).is_file()) {
        return Err(router(root, entry));
    }
    let folder = first.map(|entry| (root.join(&entry.path), entry.is_static()));
    let own = folder.filter(|(folder, is_static)| *is_static || folder.join(CONFIG).is_file());
    Ok(own.map_or_else(|| root.to_owned(), |(folder, _)| folder))
}

/// The folders of modules that have weights of their own, and the files of these; the heads of BGE-M3 by their names.
pub(crate) fn files(root: &Path) -> Vec<(String, PathBuf)> {
    let files = after_model(root).into_iter().map(|entry| {
        let file = root.join(&entry.path).join(WEIGHTS);
        (entry.path, file)
    });
    files.filter(|(_, file)| file.is_file()).chain(heads_of_m3(root).into_iter().flatten()).collect()
}

/// The modules after the model that have a folder of their own.
fn after_model(root: &Path) -> Vec<ModuleEntry> {
    let entries = module_entries(root).unwrap_or_default().into_iter().skip(1);
    entries.filter(|entry| !entry.path.is_empty()).collect()
}

/// The files that decide what the modules are, by their names from the root on.
pub(crate) fn sources(root: &Path) -> Vec<String> {
    let heads = heads_of_m3(root).into_iter().flatten();
    let heads = heads.filter_map(|(_, path)| Some(path.file_name()?.to_string_lossy().into_owned()));
    let texts = [MODULES, SETTINGS].map(str::to_owned).into_iter().chain(files_of_modules(root));
    texts.filter(|name| root.join(name).is_file()).chain(heads).collect()
}

/// The files of the heads of BGE-M3, where both are there: as safetensors, or else as torch.save writes them.
fn heads_of_m3(root: &Path) -> Option<[(String, PathBuf); 2]> {
    let names = std::fs::read_dir(root).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| root.join(name).is_file()).collect();
    let files = heads_among(&names.iter().map(String::as_str).collect())?;
    let [sparse, vectors] = files.map(|file| root.join(file));
    Some([(m3::SPARSE.to_owned(), sparse), (m3::MULTI_VECTOR.to_owned(), vectors)])
}

/// The files of the heads of BGE-M3 among names of files.
pub(crate) fn heads_among(names: &BTreeSet<&str>) -> Option<[String; 2]> {
    let file = |forms: [String; 2]| forms.into_iter().find(|file| names.contains(file.as_str()));
    let [sparse, multi_vector] = head_files();
    Some([file(sparse)?, file(multi_vector)?])
}

/// The names that the files of the heads of BGE-M3 may have.
pub(crate) fn head_files() -> [[String; 2]; 2] {
    [m3::SPARSE, m3::MULTI_VECTOR]
        .map(|name| ["safetensors", torch_linear::ENDING].map(|ending| format!("{name}.{ending}")))
}

/// The names of the files that modules have in folders of their own.
pub(crate) fn files_of_modules(root: &Path) -> Vec<String> {
    let names = |entry: ModuleEntry| [CONFIG, WEIGHTS].map(|name| format!("{}/{name}", entry.path));
    after_model(root).into_iter().flat_map(names).collect()
}

/// Whether a checkpoint lists modules after its model.
pub(crate) fn is_listed(root: &Path) -> bool {
    module_entries(root).is_ok_and(|entries| entries.len() > 1)
}

/// Whether a checkpoint is a table of vectors.
pub(crate) fn is_static(root: &Path) -> bool {
    module_entries(root).is_ok_and(|entries| entries.first().is_some_and(|entry| entry.is_static()))
}

/// The modules that a graph is to have: those that an option asks for or that the checkpoint lists; `None` for the model alone.
///
/// # Errors
/// When they cannot be read, or a sentence model is asked for and there are none.
pub(crate) fn chosen(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Option<Listed>, ModelError> {
    let refuse = |message: String| Err(ModelError::File { path: checkpoint.root().to_owned(), message });
    let is_asked = options.task == Some(Task::SentenceSimilarity);
    match options.pooling {
        Some(pooling) if is_asked || options.task.is_none() => {
            let replaced = is_listed(checkpoint.root()).then(|| {
                format!(
                    "the pooling that was asked for ({pooling}) is taken in place of the modules of {MODULES}, by which \
                     sentence-transformers still pools `{}`",
                    crate::names::HIDDEN.0
                )
            });
            return Ok(Some(Listed { modules: Modules::of(pooling), warnings: replaced.into_iter().collect() }));
        }
        Some(pooling) => {
            let task = options.task.unwrap_or(Task::SentenceSimilarity);
            return refuse(format!(
                "pooling ({pooling}) is for the task {}, and not for {task}",
                Task::SentenceSimilarity
            ));
        }
        None => {}
    }
    let wants = is_asked || options.task.is_none();
    let listed = if wants { read(checkpoint)? } else { None };
    match is_asked && listed.is_none() {
        true => refuse(format!(
            "{MODULES} is not there or lists no pooling, so nothing says how the task {} pools tokens: give `--recipe \
             pooling=mean` or another one (`--pooling mean` of calibrate)",
            Task::SentenceSimilarity
        )),
        false => Ok(listed),
    }
}

/// The modules after the model of a checkpoint; `None` where there are none.
///
/// # Errors
/// When a file is malformed, or a module cannot be an operator of the graph.
pub(crate) fn read(checkpoint: &Checkpoint) -> Result<Option<Listed>, ModelError> {
    let root = checkpoint.root();
    let entries = module_entries(root)?;
    let mut list = Vec::new();
    if checkpoint.config().get("model_type").is_some_and(|kind| kind == model2vec::ARCHITECTURE.model_type) {
        let folder = checkpoint.folder();
        if !folder.join(TOKENIZER).is_file() {
            let message = format!("{TOKENIZER} is missing, without which no text becomes rows of the table");
            return Err(ModelError::File { path: folder.to_owned(), message });
        }
        list.push(Module::bare(Kind::Pooling { modes: vec![Mode::Mean], features: None }));
        if entries.is_empty() && checkpoint.config().get("normalize").is_some_and(|value| value == true) {
            list.push(Module::bare(Kind::Normalize([Feature::Sentence; 2])));
        }
    }
    if entries.is_empty() {
        list.extend(late_interaction(checkpoint)?);
    }
    let Some((model, rest)) = entries.split_first() else {
        let modules = Modules { list };
        return Ok((!modules.list.is_empty()).then(|| Listed { modules, warnings: Vec::new() }));
    };
    if !model.is_model() && !model.is_static() {
        return Err(match KNOWN.split(", ").any(|class| class == model.class) {
            true => ModelError::File {
                path: root.join(MODULES),
                message: format!("the first module is `{}`, and the model (Transformer) comes before it", model.full),
            },
            false => unknown(root, model),
        });
    }
    let settings = match root.join(SETTINGS) {
        path if path.is_file() => read_object(&path, &FileKind::SETTINGS)?,
        _ => Map::new(),
    };
    let kind_of_model = settings.get("model_type").and_then(Value::as_str);
    let is_of_tokens = matches!(kind_of_model, Some("ColBERT" | "MultiVectorEncoder"));
    let mut warnings = Vec::new();
    for entry in rest {
        let file = Configuration::read(root, &entry.path)?;
        if let Some(kind) = module(root, entry, &file, is_of_tokens, &mut warnings)? {
            list.push(Module { path: entry.path.clone(), kind });
        }
        warnings.extend(file.unknown());
    }
    if heads_of_m3(root).is_some() && !list.is_empty() {
        list.push(Module::bare(Kind::M3));
    }
    // A model of PyLate, which divides vectors of tokens by their lengths without a module that says so.
    let is_pylate = kind_of_model == Some("ColBERT") || rest.iter().any(|entry| entry.full.starts_with(PYLATE));
    let is_normalized = |module: &Module| matches!(module.kind, Kind::Normalize([_, Feature::Tokens]));
    if is_pylate && !list.last().is_some_and(is_normalized) {
        list.push(Module::bare(Kind::Normalize([Feature::Tokens; 2])));
    }
    if list.is_empty() {
        return Ok(None);
    }
    let is_sparse = rest.iter().any(|entry| entry.class == "SpladePooling");
    warnings.extend(check_model(checkpoint.folder(), is_sparse)?);
    if let Some(size) = settings.get("truncate_dim").filter(|size| !is_off(size)) {
        let size =
            size.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| (1..=MAX_SIZE).contains(size));
        let bad = || ModelError::File {
            path: root.join(SETTINGS),
            message: "`truncate_dim` is not a number of features".to_owned(),
        };
        list.push(Module::bare(Kind::Truncate(Size::derived(size.ok_or_else(bad)?, "truncate_dim"))));
    }
    Ok(Some(Listed { modules: Modules { list }, warnings }))
}

/// The modules of a checkpoint of ColBERT (Khattab and Zaharia 2020, arXiv:2004.12832) as its authors' code writes it, with a
/// projection of tokens among the weights of the model; none of another one.
fn late_interaction(checkpoint: &Checkpoint) -> Result<Vec<Module>, ModelError> {
    let classes = checkpoint.config().get("architectures").and_then(Value::as_array);
    if !classes.is_some_and(|classes| classes.iter().any(|class| class == COLBERT)) {
        return Ok(Vec::new());
    }
    let projection = checkpoint.tensor("linear.weight").map(|(_, tensor)| tensor.shape.as_slice());
    let Some([out, inner]) = projection else {
        let message = format!("there is no matrix `linear.weight`, by which {COLBERT} projects tokens");
        return Err(ModelError::File { path: checkpoint.weights_path().to_owned(), message });
    };
    let dense = Dense {
        inner: Size::derived(*inner, "columns of linear.weight"),
        out: Size::derived(*out, "rows of linear.weight"),
        bias: false,
        activation: Activation::Linear,
        features: [Feature::Tokens; 2],
        residual: false,
    };
    Ok(vec![Module::bare(Kind::Dense(dense)), Module::bare(Kind::Normalize([Feature::Tokens; 2]))])
}

/// The error for a module without an operator.
fn unknown(root: &Path, entry: &ModuleEntry) -> ModelError {
    let advice = match entry.class.as_str() {
        "LogitScore" => {
            "; give `--task text-generation` for the scores of all tokens, of which this module takes one or two"
        }
        _ => "; give `--task feature-extraction` for the model without modules",
    };
    if entry.class == ROUTER {
        return router(root, entry);
    }
    let message = format!("the module `{}` is not supported: known are {KNOWN}{advice}", entry.full);
    ModelError::File { path: root.join(MODULES), message }
}

/// The error for several models in one folder, of which one is chosen for each text, with the folders of these models.
fn router(root: &Path, entry: &ModuleEntry) -> ModelError {
    let path = root.join(&entry.path).join("router_config.json");
    let config = read_object(&path, &FileKind::SETTINGS).unwrap_or_default();
    let routes = config.get("structure").and_then(Value::as_object).into_iter().flatten();
    let first = |(route, modules): (&String, &Value)| {
        let folder = modules.get(0)?.as_str()?;
        Some(format!("{} for the route \"{route}\"", root.join(&entry.path).join(folder).display()))
    };
    let folders: Vec<String> = routes.filter_map(first).collect();
    let message = format!(
        "the module `{}` has a model for each route, and a graph has one model: compile the folder of one route's model with \
         --recipe pooling=MODE{}",
        entry.full,
        if folders.is_empty() { String::new() } else { format!(": {}", folders.join(", ")) }
    );
    ModelError::File { path, message }
}

/// The kind of a module; `None` where it changes no value.
fn module(
    root: &Path,
    entry: &ModuleEntry,
    file: &Configuration,
    is_of_tokens: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<Kind>, ModelError> {
    Ok(Some(match entry.class.as_str() {
        "Pooling" => Kind::Pooling { features: Some(file.needed(&WIDTH)?), modes: file.modes(warnings)? },
        "Dense" => {
            check_weights(&root.join(&entry.path).join(WEIGHTS), &entry.full)?;
            // PyLate's projection is of tokens, without a key that says so.
            let tokens = is_of_tokens || entry.full.starts_with(PYLATE);
            Kind::Dense(dense(file, if tokens { Feature::Tokens } else { Feature::Sentence })?)
        }
        "Normalize" => Kind::Normalize(file.features(Feature::Sentence)?),
        "LayerNorm" => {
            check_weights(&root.join(&entry.path).join(WEIGHTS), &entry.full)?;
            Kind::LayerNorm(file.needed(&["dimension"])?)
        }
        "SpladePooling" => Kind::Splade(Splade {
            is_sum: file.one_of("pooling_strategy", "max", &["max", "sum"])? == "sum",
            is_log_twice: file.one_of("activation_function", "relu", &["relu", "log1p_relu"])? == "log1p_relu",
            words: file.size(&WIDTH)?,
        }),
        "MultiVectorMask" => {
            let left_out = ["skiplist_words", "keep_only_token_ids"];
            let given = left_out.iter().filter(|key| file.get(key).is_some_and(|value| !is_off(value)));
            for key in given {
                warnings.push(format!(
                    "{}: `{key}` says which vectors of tokens are compared; the graph gives those of all tokens",
                    file.path.display()
                ));
            }
            file.used(&["skiplist_tasks"]);
            return Ok(None);
        }
        class if WITHOUT_EFFECT.contains(&class) => {
            file.used(&["dropout"]);
            return Ok(None);
        }
        _ => return Err(unknown(root, entry)),
    }))
}

/// The keys of the number of features that pooling takes.
const WIDTH: [&str; 2] = ["embedding_dimension", "word_embedding_dimension"];

fn dense(file: &Configuration, usual: Feature) -> Result<Dense, ModelError> {
    Ok(Dense {
        inner: file.needed(&["in_features"])?,
        out: file.needed(&["out_features"])?,
        bias: file.boolean("bias", true)?,
        activation: file.activation()?,
        features: file.features(usual)?,
        residual: file.boolean("use_residual", false)?,
    })
}
