//! What Optimum loads: its classes for ONNX Runtime, which run on transformers 4.57.

use planish_artifact::manifest::PartManifest;
use planish_artifact::package::RuntimePackage;
use planish_ir::interface::CacheKind;
use planish_ir::{Dim, InputRole, OutputRole, PartRole};
use planish_models::Task;

use super::examples::Subject;
use super::values::{self, Library};
use minijinja::context;

/// Types of models that transformers 4.57 does not have, or whose configuration it or Optimum cannot read.
const UNKNOWN: [&str; 36] = [
    "afmoe",
    "blip",
    "cwm",
    "eurobert",
    "exaone",
    "exaone_moe",
    "gemma4",
    "gemma4_text",
    "glm4_moe_lite",
    "granitemoehybrid",
    "gte",
    "hyperclovax",
    "internlm3",
    "iquestcoder",
    "jais2",
    "jina_embeddings_v3",
    "lfm2_moe",
    "minicpm3",
    "minimax_m2",
    "ministral3",
    "model2vec",
    "nanochat",
    "nemotron_h",
    "new",
    "nomic_bert",
    "onnx",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "sam",
    "sam_mask_decoder",
    "siglip2_text_model",
    "siglip_text_model",
    "solar_open",
    "youtu",
];

/// Types whose `num_key_value_heads` its class for decoders reads; of others it takes as many heads of keys as of queries.
const SHARED_KEYS: [&str; 17] = [
    "arcee",
    "deepseek_v3",
    "cohere",
    "gemma",
    "gemma3_text",
    "glm",
    "granite",
    "gpt_oss",
    "helium",
    "mistral",
    "llama",
    "nemotron",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "smollm3",
    "stablelm",
];

/// Types whose `head_dim` it reads; of others the heads share the hidden size evenly.
const HEAD_SIZES: [&str; 4] = ["gemma", "gemma3_text", "gpt_oss", "nemotron"];

/// The inputs that its class for features passes on.
const FEATURE_INPUTS: [InputRole; 7] = [
    InputRole::TokenIds,
    InputRole::Mask,
    InputRole::TokenTypes,
    InputRole::Positions,
    InputRole::Pixels,
    InputRole::Features,
    InputRole::Waveform,
];

/// Whether it knows the type of model.
pub(super) fn knows(subject: &Subject<'_>) -> bool {
    let named = subject.config.get("model_type").and_then(serde_json::Value::as_str);
    named.is_some_and(|name| !UNKNOWN.contains(&name)) && !UNKNOWN.contains(&subject.manifest.architecture.as_str())
}

/// What the template shows; none where it has no class for the model or does not run it.
pub(super) fn context(subject: &Subject<'_>) -> Option<minijinja::Value> {
    let manifest = subject.manifest;
    if manifest.runtime_package != RuntimePackage::Optimum || !knows(subject) {
        return None;
    }
    let class = class(subject)?;
    let reader = subject.reader()?;
    let text = subject.text();
    let sees = subject.has("preprocessor_config.json")
        && subject.reads(InputRole::Pixels)
        && !reader.inputs.iter().any(|i| i.role.is_token_ids());
    let hears = subject.has("preprocessor_config.json") && subject.hears();
    let processor = match text {
        Some(_) => Some("AutoTokenizer"),
        None if sees => Some("AutoImageProcessor"),
        None if hears => Some("AutoFeatureExtractor"),
        None => None,
    };
    let generates = matches!(
        class,
        "ORTModelForCausalLM" | "ORTModelForSeq2SeqLM" | "ORTModelForSpeechSeq2Seq" | "ORTModelForVision2Seq"
    );
    // Generation counts positions itself.
    let given = values::plain_inputs(reader).filter(|input| !generates || input.role != InputRole::Positions);
    let tensors = match processor {
        Some(_) => Vec::new(),
        None => values::of_sizes(reader, given, Library::Torch)?,
    };
    Some(context! { class, processor, text, tensors, generates })
}

/// The class for a task that runs such a graph.
fn class(subject: &Subject<'_>) -> Option<&'static str> {
    let parts = &subject.manifest.parts;
    let steps = [PartRole::Encoder, PartRole::FirstStep, PartRole::NextStep];
    let decodes = parts.len() == steps.len() && parts.iter().zip(steps).all(|(part, role)| part.role == role);
    let Some(part) = subject.part() else {
        return match subject.manifest.task? {
            Task::Text2TextGeneration if decodes => Some("ORTModelForSeq2SeqLM"),
            Task::AutomaticSpeechRecognition if decodes => Some("ORTModelForSpeechSeq2Seq"),
            Task::ImageToText if decodes => Some("ORTModelForVision2Seq"),
            _ => None,
        };
    };
    let takes = |known: &[InputRole]| part.inputs.iter().all(|input| known.contains(&input.role));
    let gives = |role: OutputRole| part.outputs.iter().any(|output| output.role == role);
    let class = match subject.manifest.task? {
        Task::FeatureExtraction | Task::SentenceSimilarity
            if gives(OutputRole::HiddenStates) && takes(&FEATURE_INPUTS) =>
        {
            "ORTModelForFeatureExtraction"
        }
        Task::FillMask => "ORTModelForMaskedLM",
        Task::TextClassification => "ORTModelForSequenceClassification",
        Task::TokenClassification => "ORTModelForTokenClassification",
        Task::MultipleChoice => "ORTModelForMultipleChoice",
        Task::QuestionAnswering => "ORTModelForQuestionAnswering",
        Task::TextGeneration if has_usual_cache(subject, part) => "ORTModelForCausalLM",
        Task::AutomaticSpeechRecognition if takes(&[InputRole::Waveform]) => "ORTModelForCTC",
        Task::AudioClassification => "ORTModelForAudioClassification",
        Task::AudioFrameClassification => "ORTModelForAudioFrameClassification",
        Task::AudioXVector => "ORTModelForAudioXVector",
        Task::ImageClassification if takes(&[InputRole::Pixels]) => "ORTModelForImageClassification",
        Task::SemanticSegmentation if takes(&[InputRole::Pixels]) => "ORTModelForSemanticSegmentation",
        Task::ZeroShotImageClassification if !subject.reads(InputRole::PixelMask) => {
            "ORTModelForZeroShotImageClassification"
        }
        Task::ObjectDetection | Task::ImageSegmentation | Task::DepthEstimation | Task::KeypointDetection => {
            "ORTModelForCustomTasks"
        }
        _ => return None,
    };
    Some(class)
}

/// Whether the cache is of the shape that the class for decoders makes it: it looks at config.json, and not at the graph.
fn has_usual_cache(subject: &Subject<'_>, part: &PartManifest) -> bool {
    let number = |keys: &[&str]| keys.iter().find_map(|key| subject.config.get(*key)?.as_i64());
    let kind = subject.config.get("model_type").and_then(serde_json::Value::as_str).unwrap_or_default();
    let Some(heads) = number(&["num_attention_heads", "n_head", "n_heads", "num_heads"]) else { return false };
    let Some(hidden) = number(&["hidden_size", "n_embd", "d_model"]) else { return false };
    let flag = |key: &str| subject.config.get(key).and_then(serde_json::Value::as_bool).unwrap_or(false);
    let key_heads = match kind {
        "falcon" if flag("new_decoder_architecture") || !flag("multi_query") => {
            number(&["num_kv_heads"]).unwrap_or(heads)
        }
        "falcon" => 1,
        "gpt_bigcode" if flag("multi_query") => 1,
        kind if SHARED_KEYS.contains(&kind) => number(&["num_key_value_heads"]).unwrap_or(heads),
        _ => heads,
    };
    let own_size = HEAD_SIZES.contains(&kind).then(|| number(&["head_dim"])).flatten();
    let Some(size) = own_size.or_else(|| hidden.checked_div(heads)) else { return false };
    let entries = || part.inputs.iter().filter_map(|input| Some((input, input.role.cache()?)));
    let mut fits = entries().map(|(input, entry)| {
        let dims: Vec<Option<i64>> = input.value.dims().iter().map(Dim::as_constant).collect();
        matches!(entry.kind, CacheKind::Growing { axis: 2 } | CacheKind::Window)
            && matches!(dims[..], [_, Some(h), _, Some(s)] if (h, s) == (key_heads, size))
    });
    entries().next().is_some()
        && fits.all(|fits| fits)
        && part.outputs.iter().any(|output| output.role == OutputRole::Logits)
}
