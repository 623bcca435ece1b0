//! GPT-J (Wang and Komatsuzaki 2021), as `transformers/models/gptj` has it: attention and feed-forward side by side after one
//! norm, and neighbours turn in a part of each head.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, Places, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::layers::norm::Norm;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gptj",
    class_prefix: "GPTJ",
    base: "transformer",
    other_bases: &[],
    tasks: decoder::OF_TEXTS_WITH_ANSWERS,
    keys: KEYS,
    older_keys: OLDER_KEYS,
    irrelevant_keys: IRRELEVANT_KEYS,
    unused_tensors: &[".attn.bias", ".attn.masked_bias", "score.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The configuration keys that CodeGen reads too.
pub(crate) const KEYS: &[&[&str]] =
    &[decoder::KEYS, blocks::KEYS, &["activation_function", "layer_norm_epsilon", ROTARY]];

/// Names of keys that models after GPT-2 have.
pub(crate) const OLDER_KEYS: &[(&str, &str)] = &[
    ("n_embd", "hidden_size"),
    ("n_head", "num_attention_heads"),
    ("n_inner", "intermediate_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_positions", "max_position_embeddings"),
];

pub(crate) const IRRELEVANT_KEYS: &[&str] = &[
    // What published configurations have besides: no class reads it.
    "n_ctx",
    "rotary",
    "scale_attn_weights",
    // A head of another task.
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
];

const ROTARY: &str = "rotary_dim";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    blocks::decoder(b, &read(b)?, task)
}

/// Reads what GPT-J and CodeGen have in common.
pub(crate) fn read(b: &Builder<'_>) -> Result<Settings, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50400,
            intermediate_size: None,
            num_hidden_layers: 28,
            num_attention_heads: 16,
            activation: ("activation_function", "gelu_new"),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    (s.names.embeddings, s.names.layers, s.names.final_norm) = ("wte", "h", Some("ln_f"));
    (s.names.attention, s.names.output) = ("attn", "out_proj");
    s.norm = Norm::Layer { bias: true };
    s.attention_norms.before = Some("ln_1");
    s.feed_forward_norms.before = None;
    s.parallel = true;
    s.feed_forward = FeedForward::Plain { up: "fc_in", down: "fc_out" };
    (s.feed_forward_bias, s.logit_bias) = (true, true);
    let turning = b.config.size(ROTARY, 64)?;
    if turning.value > s.heads.size.value || !turning.value.is_multiple_of(2) {
        return Err(b
            .config
            .error(format!("{turning}, expected an even number of the features of a head: {}", s.heads.size)));
    }
    (s.places, s.interleaved) = (Places::PlainRotary(turning), true);
    Ok(s)
}
