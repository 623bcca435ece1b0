//! GPT-Neo (Black et al. 2021), as `transformers/models/gpt_neo` has it: GPT-2 with scores that are not scaled, and windows in
//! some layers.

use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Around, Defaults, FeedForward, Places, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier};
use crate::layers::norm::Norm;
use crate::layers::windows::Windows;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gpt_neo",
    class_prefix: "GPTNeo",
    base: "transformer",
    other_bases: &[],
    tasks: decoder::TASKS,
    keys: &[decoder::KEYS, blocks::KEYS, &["activation_function", LAYERS, TYPES, "layer_norm_epsilon", "window_size"]],
    older_keys: &[("num_heads", "num_attention_heads"), ("num_layers", "num_hidden_layers")],
    irrelevant_keys: &[
        // Training.
        "embed_dropout",
        "resid_dropout",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    ],
    unused_tensors: &[".attn.attention.bias", ".attn.attention.masked_bias", "score.", "classifier.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const LAYERS: &str = "attention_layers";
const TYPES: &str = "attention_types";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50257,
            hidden_size: 2048,
            intermediate_size: None,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            activation: ("activation_function", "gelu_new"),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    (s.names.embeddings, s.names.layers, s.names.final_norm) = ("wte", "h", Some("ln_f"));
    (s.names.attention, s.names.output) = ("attn.attention", "out_proj");
    s.norm = Norm::Layer { bias: true };
    (s.attention_norms, s.feed_forward_norms) = (Around::before("ln_1"), Around::before("ln_2"));
    s.feed_forward = FeedForward::Plain { up: "c_fc", down: "c_proj" };
    (s.output_bias, s.feed_forward_bias) = (true, true);
    s.places = Places::Table { module: "wpe", first: 0 };
    s.scale = 1.0;
    let slides = slides(b)?;
    if slides.len() != s.layers.value {
        let said = [LAYERS, TYPES].into_iter().find(|key| b.config.get(key).is_some());
        let said = said.map_or_else(|| format!("`{TYPES}` is missing, which means"), |key| format!("`{key}` says"));
        return Err(b.config.error(format!("{said} {} layers, but {}", slides.len(), s.layers)));
    }
    s.windows = Windows::in_layers(b.config.size("window_size", 256)?.value, slides);
    s.tied = true;
    s.token_classifier = Classifier::Own;
    blocks::decoder(b, &s, task)
}

/// Which layers have windows: a list of layers, or else of patterns and how often each repeats.
fn slides(b: &Builder<'_>) -> Result<Vec<bool>, ModelError> {
    let kind = |key, kind: &Value| match kind.as_str() {
        Some("global") => Ok(false),
        Some("local") => Ok(true),
        _ => Err(b.config.unexpected(key, kind, "\"global\" or \"local\"")),
    };
    let (layers, types) = (b.config.get(LAYERS), b.config.get(TYPES));
    if let Some(value) = layers {
        let layers = value.as_array().ok_or_else(|| b.config.unexpected(LAYERS, value, "a list"))?;
        return layers.iter().map(|layer| kind(LAYERS, layer)).collect();
    }
    let Some(value) = types else { return Ok([false, true].repeat(12)) };
    let wrong =
        || b.config.unexpected(TYPES, value, "a list of pairs: a list of types of layers, and how often it repeats");
    let mut all = Vec::new();
    for pair in value.as_array().ok_or_else(wrong)? {
        let (pattern, times) = (pair.get(0).and_then(Value::as_array), pair.get(1).and_then(Value::as_u64));
        let (pattern, times) = pattern.zip(times).ok_or_else(wrong)?;
        let pattern: Vec<bool> = pattern.iter().map(|layer| kind(TYPES, layer)).collect::<Result<_, _>>()?;
        let times = usize::try_from(times).ok().filter(|times| times.saturating_mul(pattern.len()) <= MOST - all.len());
        all.extend(pattern.repeat(times.ok_or_else(wrong)?));
    }
    Ok(all)
}

/// The most layers that patterns give.
const MOST: usize = 1 << 16;
