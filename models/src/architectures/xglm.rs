//! XGLM (Lin et al. 2021, arXiv:2112.10668), as `transformers/models/xglm` has it: layer normalization before attention and
//! feed-forward, and positions as sines and cosines.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Around, Defaults, EmbeddingScale, FeedForward, Places, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::layers::norm::Norm;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "xglm",
    class_prefix: "XGLM",
    other_bases: &[],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, blocks::KEYS, &["activation_function", SCALED]],
    older_keys: &[
        ("attention_heads", "num_attention_heads"),
        ("d_model", "hidden_size"),
        ("ffn_dim", "intermediate_size"),
        ("num_layers", "num_hidden_layers"),
    ],
    // Training.
    irrelevant_keys: &["activation_dropout", "init_std", "layerdrop"],
    // Tables of positions that old checkpoints store.
    unused_tensors: &["embed_positions.weights"],
    gguf: None,
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

/// Whether embeddings are multiplied with the square root of the hidden size, also in BioGPT.
pub(crate) const SCALED: &str = "scale_embedding";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(
        b,
        &Defaults {
            vocab_size: 256_008,
            hidden_size: 1024,
            intermediate_size: Some(4096),
            num_hidden_layers: 24,
            num_attention_heads: 16,
            activation: ("activation_function", "gelu"),
            ..Defaults::LLAMA
        },
    )?;
    let padding = b.config.token("pad_token_id", 1, s.vocabulary)?;
    let zero = padding.and_then(|id| usize::try_from(id).ok());
    s.places = Places::Sinusoidal { module: "embed_positions", first: 2, zero };
    blocks::decoder(b, &s, task)
}

/// Reads what XGLM and BioGPT have in common.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, &Defaults { eps: ("", 1e-5), ..*defaults })?;
    (s.names.output, s.names.feed_forward, s.names.final_norm) = ("out_proj", "", Some("layer_norm"));
    s.norm = Norm::Layer { bias: true };
    s.attention_norms = Around::before("self_attn_layer_norm");
    s.feed_forward_norms = Around::before("final_layer_norm");
    s.feed_forward = FeedForward::Plain { up: "fc1", down: "fc2" };
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (true, true, true);
    if b.config.boolean(SCALED, true)? {
        s.embedding_scale = EmbeddingScale::Number((s.hidden.value as f64).sqrt(), SCALED);
    }
    s.tied = true;
    Ok(s)
}
