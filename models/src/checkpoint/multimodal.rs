//! Checkpoints of multimodal models: the configuration of their text model, which is compiled by itself, or as the decoder of a model
//! that sees.

use std::path::Path;

use serde_json::{Map, Value};

use crate::checkpoint::config::brief;
use crate::{Architecture, Checkpoint, ModelError, Task};

/// The key of the configuration of the text model.
const TEXT: &str = "text_config";

/// Types of models whose text model alone computes what the whole does for a text without images, by `transformers/models`, with the
/// type of the text model where its configuration does not say.
const TYPES: &[(&str, &str)] = &[
    ("aya_vision", "cohere2"),
    ("gemma3", "gemma3_text"),
    ("gemma3n", "gemma3n_text"),
    ("gemma4", "gemma4_text"),
    ("idefics3", "llama"),
    ("internvl", "qwen2"),
    ("lfm2_vl", "lfm2"),
    ("llama4", "llama4_text"),
    ("llava", "llama"),
    ("llava_next", "llama"),
    ("llava_onevision", "qwen2"),
    ("mistral3", "mistral"),
    (PALIGEMMA, "gemma"),
    ("qwen2_5_vl", "qwen2_5_vl_text"),
    ("qwen2_vl", "qwen2_vl_text"),
    ("qwen3_5", "qwen3_5_text"),
    ("qwen3_5_moe", "qwen3_5_moe_text"),
    ("qwen3_vl", "qwen3_vl_text"),
    ("qwen3_vl_moe", "qwen3_vl_moe_text"),
    ("smolvlm", "llama"),
];

/// Types whose published checkpoints have the keys of the text model beside those of the towers.
const FLAT: &[&str] = &["qwen2_5_vl", "qwen2_vl"];

/// The keys of the whole model that a flat configuration has beside those of the text model.
const OF_TOWERS: &[&str] = &[
    "image_token_id",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
    "vision_token_id",
];

/// Keys of the whole model that the text model's configuration takes over, whether it has them or not.
const OF_WHOLE: &[&str] = &[
    "architectures",
    "auto_map",
    "compression_config",
    "id2label",
    "num_labels",
    "quantization_config",
    "transformers_version",
];

/// The same where the text model's configuration does not have them.
const IF_ABSENT: &[&str] = &["dtype", "pad_token_id", "torch_dtype"];

/// Types of models, and keys of their text models that the whole does not follow: null means that nothing is done.
const NOT_OF_WHOLE: &[(&str, &str)] = &[
    ("aya_vision", "logit_scale"),
    ("gemma3", "final_logit_softcapping"),
    ("idefics3", "is_llama_config"),
    ("idefics3", "perceiver_config"),
    ("idefics3", "pixel_shuffle_factor"),
    (PALIGEMMA, "num_image_tokens"),
    (PALIGEMMA, "use_bidirectional_attention"),
    ("smolvlm", "is_llama_config"),
    ("smolvlm", "perceiver_config"),
    ("smolvlm", "pixel_shuffle_factor"),
];

/// A type whose prompts are read in both directions, which the text model alone does not do.
pub(crate) const PALIGEMMA: &str = "paligemma";

/// Whether the projection to the vocabulary has the weight of the embeddings.
const TIED: &str = "tie_word_embeddings";

/// Names of the text model in checkpoints, with the modules around it. The name of the text model's own base may follow.
pub(crate) const BASES: &[&str] = &["model.language_model", "language_model", "model.text_model"];

/// Whether a tensor is of the projection to the vocabulary.
pub(super) fn is_of_head(name: &str) -> bool {
    name.split('.').any(|part| part == "lm_head")
}

/// A multimodal model.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Its type.
    pub(crate) kind: String,
    /// Its configuration, that of the text model included.
    pub(crate) config: Map<String, Value>,
}

/// Takes the text model's configuration out of that of a whole model, which is the result; absent where the configuration is of a
/// text model. `stores_head` says whether the checkpoint has a projection to the vocabulary.
///
/// # Errors
/// When no text model of such a type computes what the whole does.
pub(super) fn take_text(
    config: &mut Map<String, Value>,
    path: &Path,
    stores_head: bool,
) -> Result<Option<Whole>, ModelError> {
    let error = |message| Err(ModelError::File { path: path.to_owned(), message });
    let Some(whole) = config.get("model_type").and_then(Value::as_str).map(str::to_owned) else { return Ok(None) };
    if Architecture::find(&whole).is_some_and(|architecture| architecture.reads(TEXT) && !architecture.sees()) {
        return Ok(None);
    }
    let known = TYPES.iter().find(|(name, _)| *name == whole);
    let mut text = match (config.get(TEXT), known) {
        (Some(Value::Object(text)), Some(_)) => text.clone(),
        (Some(Value::Object(text)), None) => {
            let kind = text.get("model_type").map_or_else(|| "a type that it does not say".to_owned(), brief);
            let types: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
            return error(format!(
                "`{TEXT}` is that of a text model ({kind}) in a model of the type {whole}: planish compiles the text models of {}; \
                 save the text model by itself, or export the whole with PyTorch or Optimum and compile its graphs",
                types.join(", ")
            ));
        }
        (Some(Value::Null) | None, Some(_)) if FLAT.contains(&whole.as_str()) => {
            let own = config.iter().filter(|(key, _)| !OF_TOWERS.contains(&key.as_str()) && *key != "model_type");
            own.map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        (Some(Value::Null) | None, Some(_)) => Map::new(),
        (Some(value), Some(_)) => return error(format!("`{TEXT}` is {}, expected an object", brief(value))),
        (_, None) => return Ok(None),
    };
    for (_, key) in NOT_OF_WHOLE.iter().filter(|(name, _)| *name == whole) {
        text.insert((*key).to_owned(), Value::Null);
    }
    let kind = text.get("model_type").and_then(Value::as_str).filter(|kind| *kind != whole);
    let kind = kind.or(known.map(|(_, usual)| *usual)).unwrap_or_default().to_owned();
    text.insert("model_type".to_owned(), kind.into());
    for key in OF_WHOLE {
        text.remove(*key);
    }
    let absent = IF_ABSENT.iter().filter(|key| text.get(**key).is_none_or(Value::is_null)).copied().collect::<Vec<_>>();
    for key in OF_WHOLE.iter().copied().chain(absent) {
        if let Some(value) = config.get(key) {
            text.insert(key.to_owned(), value.clone());
        }
    }
    // The class of the whole decides, whose default differs from type to type; but two weights that differ are never tied.
    let is_tied = config.get(TIED).and_then(Value::as_bool).unwrap_or(false) || !stores_head;
    text.insert(TIED.to_owned(), is_tied.into());
    let config = std::mem::replace(config, text);
    Ok(Some(Whole { kind: whole, config }))
}

/// The architecture of a multimodal model that is built as a whole: if that is asked for, or else if nothing is asked for, the model has
/// a tower of images, and its class generates text.
pub(crate) fn seeing(
    checkpoint: &Checkpoint,
    asked: Option<Task>,
    class: Option<&str>,
) -> Option<&'static Architecture> {
    let architecture = Architecture::find(&checkpoint.whole()?.kind).filter(|architecture| architecture.sees())?;
    let is_of_tower = |name: &str| name.split('.').any(|part| part.starts_with("vision") || part == "visual");
    let sees = match asked {
        Some(task) => task == Task::ImageTextToText,
        None => {
            class.is_none_or(|class| Task::of_class(class) == Some(Task::Text2TextGeneration))
                && checkpoint.tensor_names().any(is_of_tower)
        }
    };
    sees.then_some(architecture)
}
