//! From an opened checkpoint to a verified graph.

use planish_ir::Graph;
use serde_json::Value;

use crate::checkpoint::config::Config;
use crate::checkpoint::config_keys::{IRRELEVANT, REFUSED};
use crate::checkpoint::refusals;
use crate::layers::builder::Builder;
use crate::registry::{ARCHITECTURES, Architecture};
use crate::{Checkpoint, ModelError, Task};

/// How to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// The head to build; inferred from `architectures` in `config.json` where absent.
    pub task: Option<Task>,
    /// Whether warnings are errors.
    pub strict: bool,
}

/// The ids that an input takes: from 0 up to, not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The input's name.
    pub input: String,
    /// The first id that is too large.
    pub end: i64,
}

/// A graph of a loaded model.
pub struct Part {
    /// The name of its file, without the ending: `model` where there is one part.
    pub name: &'static str,
    /// Verified; ids and masks are i64, floats are f32.
    pub graph: Graph,
    /// The ids that each input of integers takes, in the order of the inputs.
    pub id_ranges: Vec<IdRange>,
}

/// A loaded model.
pub struct Loaded {
    /// One graph; of an encoder-decoder the encoder, the decoder of the first tokens, and the decoder
    /// that continues from a cache. Each takes what those before it give.
    pub parts: Vec<Part>,
    /// What its outputs are for, where that is known: an ONNX graph does not say.
    pub task: Option<Task>,
    /// The architecture's `model_type`.
    pub architecture: &'static str,
    /// What was ignored or assumed, a line each.
    pub warnings: Vec<String>,
    /// The longest sequence it takes, in tokens; absent where it takes none or has no limit.
    pub max_positions: Option<usize>,
    /// The number of token ids; absent where it takes none.
    pub vocab_size: Option<usize>,
    /// The id that pads short sequences, where the configuration has one.
    pub pad_token_id: Option<i64>,
    /// The length in tokens at which a text is read anew as a whole, as keys and values in the cache
    /// are those of shorter texts; absent where they hold at all lengths.
    pub recompute_at: Option<usize>,
}

/// Builds the graphs of a checkpoint. No tensor is read, unless a copy of a shared one is stored:
/// then the two are compared.
///
/// # Errors
/// When the architecture or task is unknown, a setting cannot be honoured, a tensor is missing,
/// does not fit or contradicts its copy, or, with `strict`, there is a warning.
pub fn load(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Loaded, ModelError> {
    let config = Config::new(checkpoint);
    refusals::check(&config)?;
    let class = class_name(&config)?;
    let architecture = find_architecture(&config, class)?;
    let task = choose_task(&config, architecture, options.task, class)?;
    if !architecture.tasks.contains(&task) {
        return Err(architecture.without(task));
    }
    config.refuse(REFUSED)?;
    if task != Task::Text2TextGeneration {
        config.refuse(&["is_encoder_decoder"])?;
    }
    refusals::check_code(&config, architecture)?;

    let mut builder = Builder::new(checkpoint, &config, architecture.base);
    let interface = (architecture.build)(&mut builder, task).map_err(|e| explain(e, task, class))?;
    let ignored = config.ignored(&[IRRELEVANT, architecture.irrelevant_keys]);
    if !ignored.is_empty() {
        config.warn(format!("ignored keys: {}", ignored.join(", ")));
    }
    let unused = builder.tensors.unused(architecture.unused_tensors);
    let mut warnings = config.take_warnings();
    if !unused.is_empty() {
        warnings.push(unused_tensors(checkpoint, &unused));
    }
    warnings.append(&mut builder.warnings);
    let parts = builder.into_parts();
    if options.strict && !warnings.is_empty() {
        return Err(ModelError::Strict(warnings));
    }
    parts.iter().try_for_each(|part| planish_ir::verify(&part.graph))?;
    Ok(Loaded {
        parts,
        task: Some(task),
        architecture: architecture.model_type,
        warnings,
        max_positions: interface.max_positions,
        vocab_size: interface.vocab_size,
        pad_token_id: interface.pad_token_id,
        recompute_at: interface.recompute_at,
    })
}

/// The architecture of `model_type`, or of the class in files of 2019, which have no such key.
fn find_architecture(config: &Config<'_>, class: Option<&str>) -> Result<&'static Architecture, ModelError> {
    let known = || ARCHITECTURES.iter().map(|a| a.model_type).collect::<Vec<_>>().join(", ");
    let name = config.text("model_type", "")?;
    if !name.is_empty() {
        return Architecture::find(name).ok_or_else(|| {
            let code = refusals::unknown_type_hint(config);
            config.error(format!("`model_type` \"{name}\" is not supported{code}: known are {}", known()))
        });
    }
    let (class, architecture) = class.and_then(|c| Some((c, Architecture::of_class(c)?))).ok_or_else(|| {
        config.error(format!("`model_type` is missing: it says which architecture to build ({})", known()))
    })?;
    config.warn(format!("`model_type` is missing: taking {}, the architecture of {class}", architecture.model_type));
    Ok(architecture)
}

/// The class that the checkpoint was saved from, such as `BertForMaskedLM`.
fn class_name<'a>(config: &Config<'a>) -> Result<Option<&'a str>, ModelError> {
    let wrong = || config.error("`architectures` is no list of class names");
    match config.get("architectures") {
        None => Ok(None),
        Some(Value::Array(classes)) => classes.first().map(|c| c.as_str().ok_or_else(wrong)).transpose(),
        Some(_) => Err(wrong()),
    }
}

/// The task that was asked for, or that of the class.
fn choose_task(
    config: &Config<'_>,
    architecture: &Architecture,
    asked: Option<Task>,
    class: Option<&str>,
) -> Result<Task, ModelError> {
    match (asked, class) {
        (Some(task), _) => Ok(task),
        (None, Some(class)) => Task::of_class(class).ok_or_else(|| {
            config.error(format!(
                "`architectures` names {class}, which no task is known for: choose one of {}",
                Task::list(architecture.tasks)
            ))
        }),
        (None, None) => {
            let task = architecture.tasks.first().copied().unwrap_or(Task::FeatureExtraction);
            config.warn(format!("`architectures` is missing, so no task can be inferred: taking {task}"));
            Ok(task)
        }
    }
}

/// Adds to an error about a missing tensor that the checkpoint was saved for another task.
fn explain(error: ModelError, task: Task, class: Option<&str>) -> ModelError {
    match (error, class) {
        (ModelError::MissingTensor { name, path, mut hint }, Some(class)) if Task::of_class(class) != Some(task) => {
            hint.push_str(&format!("; the checkpoint was saved from {class}, and may have no head for {task}"));
            ModelError::MissingTensor { name, path, hint }
        }
        (error, _) => error,
    }
}

/// How many unused tensors a warning names.
const UNUSED_SHOWN: usize = 8;

fn unused_tensors(checkpoint: &Checkpoint, names: &[&str]) -> String {
    let shown = names[..names.len().min(UNUSED_SHOWN)].join(", ");
    let more = match names.len().saturating_sub(UNUSED_SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{}: {} unused tensors: {shown}{more}", checkpoint.weights_path().display(), names.len())
}
