//! Gemma (Gemma Team 2024, arXiv:2403.08295), as `transformers/models/gemma` has it: Llama with
//! scaled embeddings, norms whose weights are stored less 1, and tied embeddings.

use planish_ir::ops::GeluForm;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config_keys::Only;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Defaults, EmbeddingScale, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Positions};
use crate::layers::norm::Norm;
use crate::layers::rope;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma",
    class_prefix: "Gemma",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["attention_bias", "hidden_act", "hidden_activation", "rms_norm_eps"],
    ],
    only: ONLY,
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "gemma",
        class: "GemmaForCausalLM",
        pairs: false,
        whole_norms: true,
        configure: |c| {
            gguf::config::llama(c)?;
            c.set("hidden_act", "gelu_pytorch_tanh");
            c.set("hidden_activation", "gelu_pytorch_tanh");
            Ok(())
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(
        b,
        &Defaults {
            vocab_size: 256000,
            max_position_embeddings: Some(8192),
            hidden_size: 3072,
            intermediate_size: Some(24576),
            num_hidden_layers: 28,
            num_attention_heads: 16,
            num_key_value_heads: Some(16),
            head_dim: Some(256),
            activation: ("hidden_act", "gelu_pytorch_tanh"),
            ..Defaults::LLAMA
        },
    )?;
    s.activation = activation(b, s.activation)?;
    blocks::decoder(b, &s, task)
}

/// The function that `hidden_act` means: checkpoints that say "gelu" were trained with its
/// approximation. `hidden_activation` counts in transformers 4 only, so it must say the same.
fn activation(b: &Builder<'_>, stated: Activation) -> Result<Activation, ModelError> {
    const NEWER: &str = "hidden_activation";
    let meant = match b.config.text("hidden_act", "gelu_pytorch_tanh")? {
        "gelu" => Activation::Gelu(GeluForm::Tanh),
        _ => stated,
    };
    match b.config.get(NEWER) {
        Some(value) if Activation::read(b.config, NEWER, "gelu_pytorch_tanh")? != meant => {
            Err(b.config.error(format!(
                "`{NEWER}` is {value}, another function than that of `hidden_act`: transformers 4 takes the former, \
                 transformers 5 the latter; remove one of the two keys"
            )))
        }
        _ => Ok(meant),
    }
}

/// The configuration keys of which one value is supported, in Gemma 2 too.
pub(crate) const ONLY: &[Only] = &[Only::False("use_bidirectional_attention")];

/// Reads what Gemma and Gemma 2 have in common.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.read_attention_bias(b, false)?;
    s.norm = Norm::RmsAroundOne;
    s.embedding_scale = EmbeddingScale::Root;
    s.tied = true;
    s.position_source = Positions::Counted;
    Ok(s)
}
