//! Gemma 2 (Gemma Team 2024, arXiv:2408.00118), as `transformers/models/gemma2` has it: Gemma with
//! norms after attention and feed-forward too, bounded scores, and windows in every other layer.

use crate::architecture::{Architecture, Properties};
use crate::architectures::gemma;
use crate::architectures::llama::{self, GGUF_MODEL};
use crate::checkpoint::gguf::config::{Conversion, Sizes};
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Around, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma2",
    class_prefix: "Gemma2",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, KEYS],
    only: gemma::ONLY,
    irrelevant_keys: IRRELEVANT_KEYS,
    gguf: Some(&Kind {
        name: "gemma2",
        class: "Gemma2ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        whole_norms: true,
        configure: configure_gguf,
    }),
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

/// The names of tensors in GGUF files, with norms after attention and feed-forward.
pub(crate) const GGUF_NAMES: Names = Names {
    model: GGUF_MODEL,
    layers: "model.layers.",
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    let Sizes { hidden, heads, head, layers, window } = gguf::config::llama(c)?;
    c.set("hidden_activation", "gelu_pytorch_tanh");
    c.set("sliding_window", window.unwrap_or(4096));
    // The file does not say it: of the published models, only that with 46 layers scales by features of the model.
    c.set("query_pre_attn_scalar", if layers == 46 { hidden / heads } else { head });
    c.set("attn_logit_softcapping", c.number("attn_logit_softcapping")?.unwrap_or(50.0));
    c.set("final_logit_softcapping", c.number("final_logit_softcapping")?.unwrap_or(30.0));
    Ok(())
}

/// The configuration keys that Gemma 3 reads too.
pub(crate) const KEYS: &[&str] = &[
    "attention_bias",
    "attn_logit_softcapping",
    LOGIT_CAP,
    "hidden_activation",
    "query_pre_attn_scalar",
    "rms_norm_eps",
];

pub(crate) const IRRELEVANT_KEYS: &[&str] = &[
    // `hidden_activation` counts.
    "hidden_act",
    // How Python callers keep the cache.
    "cache_implementation",
];

const LOGIT_CAP: &str = "final_logit_softcapping";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = with_windows(b)?;
    blocks::decoder(b, &s, task)
}

/// Reads what Gemma 2 and VaultGemma have in common.
pub(super) fn with_windows(b: &Builder<'_>) -> Result<Settings, ModelError> {
    let mut s = read(b, &DEFAULTS, [Some(50.0), Some(30.0)])?;
    let window = b.config.size("sliding_window", 4096)?;
    s.windows = Windows::read(b.config, s.layers, Some(window.value), |layer| layer.is_multiple_of(2))?;
    Ok(s)
}

/// The defaults of a configuration, of Gemma 3 for the most part too.
pub(crate) const DEFAULTS: Defaults = Defaults {
    vocab_size: 256000,
    max_position_embeddings: Some(8192),
    hidden_size: 2304,
    intermediate_size: Some(9216),
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: Some(4),
    head_dim: Some(256),
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    ..Defaults::LLAMA
};

/// Reads what Gemma 2 and Gemma 3 have in common; the default bounds are those of scores and of logits.
pub(crate) fn read(
    b: &Builder<'_>,
    defaults: &Defaults,
    [score_cap, logit_cap]: [Option<f64>; 2],
) -> Result<Settings, ModelError> {
    let mut s = gemma::read(b, defaults)?;
    s.scale = 1.0 / b.config.positive("query_pre_attn_scalar", 256.0)?.sqrt();
    s.softcap = b.config.optional_positive("attn_logit_softcapping", score_cap)?;
    s.logit_cap = b.config.optional_positive(LOGIT_CAP, logit_cap)?.map(|cap| (cap, LOGIT_CAP));
    s.attention_norms = Around::before_and_after("input_layernorm", "post_attention_layernorm");
    s.feed_forward_norms = Around::before_and_after("pre_feedforward_layernorm", "post_feedforward_layernorm");
    Ok(s)
}
