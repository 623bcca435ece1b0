//! MiniCPM3 (OpenBMB 2024), as `transformers/models/minicpm3` has it: latent attention without experts, and numbers that
//! embeddings, residuals and the input of the head are multiplied with.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, EmbeddingScale, Settings};
use crate::layers::builder::Builder;
use crate::layers::latent::{self, Latent, Pairs};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "minicpm3",
    class_prefix: "MiniCPM3",
    tasks: decoder::OF_TEXTS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        latent::KEYS,
        &["hidden_act", "mlp_bias", "rms_norm_eps", BASE, DEPTH, SCALE],
    ],
    irrelevant_keys: &[
        // The sum of two sizes that are read.
        "qk_head_dim",
        // Cuts products into pieces, as they were trained: same result.
        "pretraining_tp",
    ],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const BASE: &str = "dim_model_base";
const DEPTH: &str = "scale_depth";
const SCALE: &str = "scale_emb";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 73448,
            max_position_embeddings: Some(32768),
            hidden_size: 2560,
            intermediate_size: Some(6400),
            num_hidden_layers: 62,
            num_attention_heads: 40,
            // Heads are of other sizes than this, which the features that turn take the place of.
            head_dim: Some(32),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    let sizes = latent::Defaults { queries: Some(768), rank: 256, still: 64, turning: 32, values: None };
    s.latent = Some(Latent::read(b, &mut s, &sizes, Pairs::Halves)?);
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.embedding_scale = EmbeddingScale::Number(b.config.positive(SCALE, 12.0)?, SCALE);
    if let Some(depth) = b.config.optional_positive(DEPTH, Some(1.4))? {
        s.residual_factor = Some((depth / (s.layers.value as f64).sqrt(), DEPTH));
    }
    if let Some(base) = b.config.optional_positive(BASE, Some(256.0))? {
        s.logit_factor = Some((base / s.hidden.value as f64, BASE));
    }
    s.tied = true;
    blocks::decoder(b, &s, task)
}
