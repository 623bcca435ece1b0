//! The check of a configuration, before a graph is built: which architecture and task
//! config.json asks for, and whether the graph of that architecture follows each of its keys.
//!
//! A key is read by the architecture ([`Architecture::keys`]), has one supported value
//! ([`Architecture::only`], [`ONLY`]), does not change the computation ([`Architecture::irrelevant_keys`],
//! [`IRRELEVANT`]), or is named in a warning. A key whose value is null, false or empty is never named:
//! it asks for nothing.

use serde_json::Value;

use crate::architecture::Architecture;
use crate::architectures::ARCHITECTURES;
use crate::checkpoint::config::{Config, brief, is_off};
use crate::checkpoint::config_keys::{EXPERTS, IRRELEVANT, ONLY, Only, QUANTIZATION, REMOTE_CODE};
use crate::checkpoint::multimodal;
use crate::checkpoint::quantized::Quantization;
use crate::checkpoint::refusals::other_architecture;
use crate::{Checkpoint, ModelError, Task};

/// The key that names the class that the checkpoint was saved from.
const CLASSES: &str = "architectures";

/// A configuration that can be built.
pub(crate) struct Accepted<'a> {
    pub(crate) config: Config<'a>,
    pub(crate) architecture: &'static Architecture,
    pub(crate) task: Task,
    /// The class that the checkpoint was saved from, such as `BertForMaskedLM`.
    pub(crate) class: Option<&'a str>,
    /// How linear layers are quantized, where they are.
    pub(crate) quantization: Option<Quantization>,
    /// The text model of a model that sees.
    pub(crate) text: Option<(Config<'a>, &'static Architecture)>,
}

/// Judges the configuration of a checkpoint. `task` is the one that the caller asks for.
///
/// # Errors
/// When architecture or task are unknown, or a key has a value that no graph here follows.
pub(crate) fn accept(checkpoint: &Checkpoint, task: Option<Task>) -> Result<Accepted<'_>, ModelError> {
    let class = class_name(&Config::new(checkpoint))?;
    let Some(architecture) = multimodal::seeing(checkpoint, task, class) else {
        let whole = checkpoint.whole().filter(|whole| whole.kind == multimodal::PALIGEMMA);
        return match whole {
            None => accept_one(checkpoint, task),
            Some(whole) => Err(Config::of_whole(checkpoint).error(format!(
                "tokens of the prompt of a {} see each other, which its text model alone does not do; choose the task {}, for which \
                 the checkpoint needs a tower of images",
                whole.kind,
                Task::ImageTextToText
            ))),
        };
    };
    let mut config = Config::of_whole(checkpoint);
    config.read_older_keys(architecture.older_keys)?;
    check_values(&config, architecture)?;
    let text = accept_one(checkpoint, Some(Task::TextGeneration))?;
    let (class, quantization) = (text.class, text.quantization);
    let text = Some((text.config, text.architecture));
    Ok(Accepted { config, architecture, task: Task::ImageTextToText, class, quantization, text })
}

/// The same of a model of one kind, or of the text model of a multimodal one.
fn accept_one(checkpoint: &Checkpoint, task: Option<Task>) -> Result<Accepted<'_>, ModelError> {
    let mut config = Config::new(checkpoint);
    refuse_experts(&config)?;
    let quantization = Quantization::read(&config)?;
    let mut class = class_name(&config)?;
    let architecture = find_architecture(&config, class)?;
    config.read_older_keys(architecture.older_keys)?;
    if checkpoint.whole().is_some() {
        // The class of the whole generates text after images.
        class = class.filter(|class| Task::of_class(class) != Some(Task::Text2TextGeneration));
    }
    let is_usual = checkpoint.whole().is_some() && class.is_none();
    let task = choose_task(&config, architecture, task.or(is_usual.then_some(Task::TextGeneration)), class)?;
    check_values(&config, architecture)?;
    check_code(&config, architecture)?;
    Ok(Accepted { config, architecture, task, class, quantization, text: None })
}

/// The configuration of a part of a model, under the first of some keys that is there, judged by the lists of the architecture
/// that the part has by itself.
///
/// # Errors
/// When a key has a value that no graph here follows.
pub(crate) fn section<'a>(
    whole: &Config<'a>,
    keys: &[&'static str],
    architecture: &Architecture,
) -> Result<Config<'a>, ModelError> {
    let mut config = whole.section(keys)?;
    config.read_older_keys(architecture.older_keys)?;
    // Older versions of transformers wrote an empty text.
    let kind = config.text("model_type", architecture.model_type)?;
    if !kind.is_empty() && kind != architecture.model_type {
        let only = architecture.model_type;
        return Err(
            config.error(format!("`model_type` is \"{kind}\", only \"{only}\" is supported in this type of model"))
        );
    }
    check_values(&config, architecture)?;
    Ok(config)
}

/// Ends what [`section`] began: all keys are read.
pub(crate) fn end_section(whole: &Config<'_>, section: &Config<'_>, architecture: &Architecture) {
    debug_assert_eq!(undeclared(section, architecture), [""; 0], "{} reads these keys", architecture.model_type);
    whole.take_over(section);
}

/// Refuses values that are not supported, and warns of keys that are not known.
fn check_values(config: &Config<'_>, architecture: &Architecture) -> Result<(), ModelError> {
    let is_free = |key: &str| architecture.reads(key) || architecture.irrelevant_keys.contains(&key);
    for only in ONLY.iter().filter(|only| !is_free(only.key())).chain(architecture.only) {
        check_only(config, *only)?;
    }
    const ENCODES_AND_DECODES: &str = "is_encoder_decoder";
    let decodes = [Task::Text2TextGeneration, Task::AutomaticSpeechRecognition, Task::ImageToText];
    if !architecture.tasks.iter().any(|task| decodes.contains(task))
        && !architecture.irrelevant_keys.contains(&ENCODES_AND_DECODES)
    {
        check_only(config, Only::Off(ENCODES_AND_DECODES))?;
    }
    let unknown: Vec<&str> = config.set_keys().filter(|key| !is_known(architecture, key)).collect();
    if !unknown.is_empty() {
        config.warn(format!("ignored keys: {}", unknown.join(", ")));
    }
    Ok(())
}

/// Whether a key is read, or is known not to change the computation.
fn is_known(architecture: &Architecture, key: &str) -> bool {
    let mut only = ONLY.iter().chain(architecture.only).map(Only::key);
    [CLASSES, REMOTE_CODE].contains(&key)
        || [IRRELEVANT, EXPERTS, QUANTIZATION, architecture.irrelevant_keys].iter().any(|keys| keys.contains(&key))
        || architecture.reads(key)
        || only.any(|known| known == key)
}

/// Keys that the architecture reads, or that were read here, although no list has them.
pub(crate) fn undeclared(config: &Config<'_>, architecture: &Architecture) -> Vec<&'static str> {
    config.asked().into_iter().filter(|key| !is_known(architecture, key)).collect()
}

/// Refuses a value that is not the only supported one.
fn check_only(config: &Config<'_>, only: Only) -> Result<(), ModelError> {
    match only {
        Only::Off(key) => match config.get(key).filter(|value| !is_off(value)) {
            Some(value) => Err(config.error(format!("`{key}` is {}: that is not supported", brief(value)))),
            None => Ok(()),
        },
        Only::False(key) | Only::On(key) => {
            let supported = matches!(only, Only::On(_));
            match config.boolean(key, supported)? {
                value if value == supported => Ok(()),
                value => Err(config.error(format!("`{key}` is {value}: that is not supported"))),
            }
        }
        Only::One(key) => match config.get(key).filter(|value| value.as_f64() != Some(1.0)) {
            Some(value) => Err(config.error(format!("`{key}` is {}, only 1 is supported", brief(value)))),
            None => Ok(()),
        },
        Only::Text(key, supported) => match config.text(key, supported)? {
            text if text == supported => Ok(()),
            text => Err(config.error(format!("`{key}` is \"{text}\", only \"{supported}\" is supported"))),
        },
    }
}

/// The first of some keys that is there and asks for something.
fn first<'a>(config: &Config<'a>, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
    keys.iter().find_map(|&key| config.get(key).filter(|value| !is_off(value)).map(|value| (key, value)))
}

/// Refuses mixtures of experts, but those of architectures that read how many there are.
fn refuse_experts(config: &Config<'_>) -> Result<(), ModelError> {
    let Some((key, value)) = first(config, EXPERTS) else { return Ok(()) };
    let model_type = config.text("model_type", "")?;
    if Architecture::find(model_type).is_some_and(|a| a.reads(key)) {
        return Ok(());
    }
    Err(config.error(format!(
        "`{key}` is {}: {model_type} is a mixture of experts (MoE), which is not supported; take a dense \
         model of the family",
        brief(value)
    )))
}

/// The class that the checkpoint was saved from, such as `BertForMaskedLM`.
fn class_name<'a>(config: &Config<'a>) -> Result<Option<&'a str>, ModelError> {
    let wrong = || config.error(format!("`{CLASSES}` is not a list of class names"));
    match config.get(CLASSES) {
        None => Ok(None),
        Some(Value::Array(classes)) => classes.first().map(|c| c.as_str().ok_or_else(wrong)).transpose(),
        Some(_) => Err(wrong()),
    }
}

/// The architecture of `model_type`, or of the class in files of 2019, which have no such key.
fn find_architecture(config: &Config<'_>, class: Option<&str>) -> Result<&'static Architecture, ModelError> {
    let names = || ARCHITECTURES.iter().map(|a| a.model_type).collect::<Vec<_>>();
    let known = || names().join(", ");
    let name = config.text("model_type", "")?;
    if !name.is_empty() {
        return Architecture::find(name).ok_or_else(|| {
            let code = match first(config, &[REMOTE_CODE]) {
                Some(_) => format!(
                    ", and Python code that a checkpoint brings (`{REMOTE_CODE}`, what `trust_remote_code` is for) is \
                     not run"
                ),
                None => String::new(),
            };
            let route = other_architecture(name, &names());
            config.error(format!("`model_type` \"{name}\" is not supported{code}: known are {}; {route}", known()))
        });
    }
    let (class, architecture) = class.and_then(|c| Some((c, Architecture::of_class(c)?))).ok_or_else(|| {
        config.error(format!("`model_type` is missing: it says which architecture to build ({})", known()))
    })?;
    config.warn(format!("`model_type` is missing: taking {}, the architecture of {class}", architecture.model_type));
    Ok(architecture)
}

/// The task that the caller asks for, or that of the class; it is one that the architecture has a head for.
fn choose_task(
    config: &Config<'_>,
    architecture: &Architecture,
    asked: Option<Task>,
    class: Option<&str>,
) -> Result<Task, ModelError> {
    let task = match (asked, class) {
        (Some(task), _) => task,
        (None, Some(class)) => Task::of_class(class).ok_or_else(|| {
            config.error(format!(
                "`{CLASSES}` names {class}, which no task is known for: choose one of {}",
                Task::list(architecture.tasks)
            ))
        })?,
        (None, None) => {
            let task = architecture.tasks.first().copied().unwrap_or(Task::FeatureExtraction);
            config.warn(format!("`{CLASSES}` is missing, so no task can be inferred: taking {task}"));
            task
        }
    };
    match architecture.tasks.contains(&task) {
        true => Ok(task),
        false => Err(architecture.without(task)),
    }
}

/// Refuses a model whose class is the checkpoint's own code. Where that code has the name of the
/// transformers library's class, that library takes its own class, and the graph is that of the class:
/// then there is a warning.
fn check_code(config: &Config<'_>, architecture: &Architecture) -> Result<(), ModelError> {
    let Some((_, map)) = first(config, &[REMOTE_CODE]) else { return Ok(()) };
    let classes = map.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("AutoModel"));
    for (key, class) in classes {
        let name = class.as_str().and_then(|path| path.rsplit('.').next()).unwrap_or_default();
        let is_stock = Architecture::of_class(name).is_some_and(|a| a.model_type == architecture.model_type);
        if !is_stock {
            return Err(config.error(format!(
                "`{REMOTE_CODE}.{key}` is {1}: the model is Python code of the checkpoint's own (what \
                 `trust_remote_code` is for), which is not run, and need not compute what the stock `{0}` does; remove \
                 `{REMOTE_CODE}` where the stock `{0}` is what you want",
                architecture.model_type,
                brief(class)
            )));
        }
    }
    config.warn(format!(
        "`{REMOTE_CODE}` names Python code that the checkpoint brings, which is not run: the graph is that of the stock \
         `{}`",
        architecture.model_type
    ));
    Ok(())
}

#[cfg(test)]
mod tests;
