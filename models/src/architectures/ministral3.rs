//! Ministral 3 (Mistral AI 2025), as `transformers/models/ministral3` has it: Mistral with queries that grow with their
//! positions, as in Llama 4.

use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, POSITIVE, positive};
use crate::layers::blocks::{self, Defaults, Growth, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::layers::rope::{self, Absent, Stretch};
use crate::layers::windows::Windows;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "ministral3",
    class_prefix: "Ministral3",
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["hidden_act", "rms_norm_eps", "sliding_window"]],
    // The window is that of all layers.
    irrelevant_keys: &["layer_types"],
    gguf: None,
    build,
    pad_token_id: Some(11),
    ..llama::ARCHITECTURE
};

const PARAMETERS: &str = "rope_parameters";
const BETA: &str = "llama_4_scaling_beta";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 131_072,
            max_position_embeddings: Some(262_144),
            intermediate_size: Some(14336),
            num_hidden_layers: 34,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    let own = b.config.get(PARAMETERS);
    let stretch = Stretch { factor: 16.0, original: 16384.0 };
    s.rope = rope::Defaults {
        theta: if own.is_none() { 1e6 } else { 10_000.0 },
        absent: Absent::WholeYarn(stretch),
        other_keys: &[BETA],
        ..rope::Defaults::default()
    };
    s.growth = Some(match own {
        Some(parameters) => Growth {
            beta: number(b.config, parameters, BETA)?,
            length: number(b.config, parameters, "original_max_position_embeddings")?,
            ..Growth::DEFAULT
        },
        None => Growth { beta: 0.1, length: stretch.original, ..Growth::DEFAULT },
    });
    if let Some(window) = b.config.optional_size("sliding_window", None)? {
        s.windows = Windows::in_layers(window, vec![true; s.layers.value]);
    }
    blocks::decoder(b, &s, task)
}

/// A number of the parameters of rotary embedding, which has to be there.
fn number(config: &Config<'_>, parameters: &Value, key: &str) -> Result<f64, ModelError> {
    match parameters.get(key).filter(|value| !value.is_null()) {
        None => Err(config.error(format!("`{PARAMETERS}.{key}` is missing: queries grow with their positions by it"))),
        Some(value) => {
            positive(value).ok_or_else(|| config.unexpected(&format!("{PARAMETERS}.{key}"), value, POSITIVE))
        }
    }
}
