//! Granite (IBM 2024), as `transformers/models/granite` has it: Llama with numbers that embeddings, scores, residuals and
//! logits are multiplied with.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::parts;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, EmbeddingScale, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "granite",
    class_prefix: "Granite",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, KEYS, &["mlp_bias"]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "granite",
        class: "GraniteForCausalLM",
        configure: |c| {
            configure_gguf(c)?;
            c.set("mlp_bias", c.has("blk.0.ffn_up.bias"));
            Ok(())
        },
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

/// The configuration keys that Granite with experts reads too.
pub(super) const KEYS: &[&str] = &[
    "attention_bias",
    "attention_multiplier",
    "embedding_multiplier",
    "hidden_act",
    "logits_scaling",
    "residual_multiplier",
    "rms_norm_eps",
];

/// What GGUF files say of Granite without experts and with them.
pub(super) fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    gguf::config::llama_with_silu(c)?;
    c.set("attention_bias", c.has("blk.0.attn_q.bias"));
    for (from, to) in [
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("logit_scale", "logits_scaling"),
        ("residual_scale", "residual_multiplier"),
    ] {
        parts::copy(c, from, to)?;
    }
    Ok(())
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    blocks::decoder(b, &s, task)
}

/// Reads what Granite without experts and with them have in common.
pub(super) fn read(b: &Builder<'_>) -> Result<Settings, ModelError> {
    const NUMBERS: [&str; 3] = ["embedding_multiplier", "residual_multiplier", "logits_scaling"];
    let mut s = Settings::read(b, &Defaults::LLAMA)?;
    s.read_attention_bias(b, false)?;
    s.scale = b.config.positive("attention_multiplier", 1.0)?;
    s.embedding_scale = EmbeddingScale::Number(b.config.positive(NUMBERS[0], 1.0)?, NUMBERS[0]);
    s.residual_factor = Some((b.config.positive(NUMBERS[1], 1.0)?, NUMBERS[1]));
    s.logit_factor = Some((1.0 / b.config.positive(NUMBERS[2], 1.0)?, NUMBERS[2]));
    Ok(s)
}
