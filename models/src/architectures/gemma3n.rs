//! Gemma 3n (Gemma Team 2025), the text model as `transformers/models/gemma3n` has it: Gemma 3 with several vectors of a token, a
//! low-rank residual, vectors of tokens for each layer, sparse feed-forwards, and layers that share keys and values.

use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::architectures::{gemma3, gemma4, llama};
use crate::checkpoint::config::{Config, MAX_SIZE, Size};
use crate::layers::blocks::{self, Alternating, Defaults, EmbeddingScale, HeadNorms, LayerInputs, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma3n_text",
    class_prefix: "Gemma3n",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        &[
            "altup_correct_scale",
            "attention_bias",
            "final_logit_softcapping",
            "hidden_activation",
            "hidden_size_per_layer_input",
            "laurel_rank",
            "num_kv_shared_layers",
            "rms_norm_eps",
            "vocab_size_per_layer_input",
            gemma3::LOCAL_THETA,
            ACTIVE,
            COUNT,
            SPARSE,
        ],
    ],
    irrelevant_keys: &[
        // `hidden_activation` counts.
        "hidden_act",
        // Training.
        "altup_coef_clip",
        "altup_lr_multiplier",
    ],
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const ACTIVE: &str = "altup_active_idx";
const COUNT: &str = "altup_num_inputs";
const INNER: &str = "intermediate_size";
const SPARSE: &str = "activation_sparsity_pattern";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const CAP: &str = "final_logit_softcapping";
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 262_400,
            max_position_embeddings: Some(32768),
            hidden_size: 2048,
            // A list may say it of each layer.
            intermediate_size: Some(0),
            num_hidden_layers: 35,
            num_attention_heads: 8,
            num_key_value_heads: Some(2),
            head_dim: Some(256),
            activation: ("hidden_activation", "gelu_pytorch_tanh"),
            ..Defaults::LLAMA
        },
    )?;
    let config = b.config;
    s.embedding_scale = EmbeddingScale::Root;
    (s.head_norms, s.normalizes_values, s.scale) = (HeadNorms::Each, true, 1.0);
    s.read_attention_bias(b, false)?;
    s.logit_cap = config.optional_positive(CAP, Some(30.0))?.map(|cap| (cap, CAP));
    s.tied = true;
    let window = config.size("sliding_window", 512)?.value;
    s.windows = Windows::read(config, s.layers, Some(window), |layer| !(layer + 1).is_multiple_of(5))?;
    gemma4::share(config, &mut s, 15)?;
    let size = config.size("hidden_size_per_layer_input", 256)?;
    s.layer_inputs = Some(LayerInputs { size, vocabulary: config.size("vocab_size_per_layer_input", 262_144)? });
    gemma3::ropes(&mut s);
    let count = config.size(COUNT, 4)?;
    let active = config.whole(ACTIVE, 0)?;
    if active >= count.value || count.value < 2 {
        return Err(config.error(format!(
            "`{ACTIVE}` is {active}, and {count}: a token has two vectors or more, of which it is one"
        )));
    }
    s.alternating = Some(Alternating {
        count,
        active,
        scales: config.boolean("altup_correct_scale", true)?,
        rank: config.size("laurel_rank", 64)?,
        inner: inner(config, s.layers)?,
        cutoffs: cutoffs(config, s.layers)?,
    });
    blocks::decoder(b, &s, task)
}

/// The features inside the feed-forward of each layer: one number for all, or a list.
fn inner(config: &Config<'_>, layers: Size) -> Result<Vec<Size>, ModelError> {
    let Some(value @ Value::Array(list)) = config.get(INNER) else {
        return Ok(vec![config.size(INNER, 16384)?; layers.value]);
    };
    let one = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|size| (1..=MAX_SIZE).contains(size));
    let sizes: Option<Vec<Size>> = list.iter().map(|value| Some(Size::derived(one(value)?, INNER))).collect();
    let sizes = sizes.filter(|sizes| sizes.len() == layers.value);
    sizes.ok_or_else(|| {
        config.unexpected(INNER, value, &format!("an integer from 1 to {MAX_SIZE}, or one for each of {layers}"))
    })
}

/// How many deviations above the mean a gate is that is kept, of each layer: a list says which share of them is not.
fn cutoffs(config: &Config<'_>, layers: Size) -> Result<Vec<Option<f64>>, ModelError> {
    let shares = match config.get(SPARSE) {
        None if layers.value > 10 => (0..layers.value).map(|layer| if layer < 10 { 0.95 } else { 0.0 }).collect(),
        None => vec![0.0; layers.value],
        Some(value) => {
            let share = |one: &Value| one.as_f64().filter(|share| (0.0..1.0).contains(share));
            let shares: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(share).collect());
            let expected = || format!("a list of a number from 0 to below 1 for each of {layers}");
            shares
                .filter(|shares| shares.len() == layers.value)
                .ok_or_else(|| config.unexpected(SPARSE, value, &expected()))?
        }
    };
    Ok(shares.into_iter().map(|share| (share > 0.0).then(|| deviations(share))).collect())
}

/// How many deviations above the mean is what a share of a normal distribution is below.
fn deviations(share: f64) -> f64 {
    /// The share of a normal distribution that is further than this from the mean is less than float64 tells from 0.
    const MOST: f64 = 8.5;
    let below = |x: f64| {
        // 1/2 and the density times x + x^3 / 3 + x^5 / (3 * 5) ...
        let (mut term, mut sum, mut k) = (x, x, 1.0);
        while term.abs() > sum.abs() * f64::EPSILON {
            k += 2.0;
            term *= x * x / k;
            sum += term;
        }
        0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
    };
    let (mut low, mut high) = (-MOST, MOST);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if below(middle) < share { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_quantiles_of_a_normal_distribution() {
        for (share, expected) in [(0.5, 0.0), (0.95, 1.644_853_626_951_472_2), (0.1, -1.281_551_565_544_600_4)] {
            assert!((deviations(share) - expected).abs() < 1e-12, "{share}: {}", deviations(share));
        }
    }
}
