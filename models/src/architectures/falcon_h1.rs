//! Falcon-H1 (TII 2025, arXiv:2507.22448), as `transformers/models/falcon_h1` has it: Llama with a mixer of Mamba-2 beside the
//! attention of each layer, and factors of what layers take and give.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::{bamba, llama};
use crate::checkpoint::config::{Config, Size, positive};
use crate::layers::blocks::{self, Around, Defaults, EmbeddingScale, Factor, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Decoder};
use crate::layers::rope;
use crate::layers::state_space::{self, GatedNorm, StateSpace};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "falcon_h1",
    class_prefix: "FalconH1",
    other_bases: &[],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        state_space::MAMBA_KEYS,
        &[
            "attention_bias",
            "hidden_act",
            "mamba_norm_before_gate",
            "mamba_rms_norm",
            "mlp_bias",
            "projectors_bias",
            "rms_norm_eps",
            ATTENTION_IN,
            ATTENTION_OUT,
            EMBEDDINGS,
            HEAD,
            INNER,
            KEYS,
            MLP,
            SPACE,
            SPACE_IN,
            SPACE_OUT,
        ],
    ],
    irrelevant_keys: bamba::IRRELEVANT_KEYS,
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const ATTENTION_IN: &str = "attention_in_multiplier";
const ATTENTION_OUT: &str = "attention_out_multiplier";
const EMBEDDINGS: &str = "embedding_multiplier";
const HEAD: &str = "lm_head_multiplier";
const INNER: &str = "mamba_d_ssm";
const KEYS: &str = "key_multiplier";
const MLP: &str = "mlp_multipliers";
const SPACE: &str = "ssm_multipliers";
const SPACE_IN: &str = "ssm_in_multiplier";
const SPACE_OUT: &str = "ssm_out_multiplier";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 128_000,
            max_position_embeddings: Some(8192),
            intermediate_size: Some(14336),
            num_key_value_heads: Some(8),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.names.feed_forward = "feed_forward";
    s.names.final_norm = Some("final_layernorm");
    s.feed_forward_norms = Around::before("pre_ff_layernorm");
    let [gate, down] = factors(b.config, MLP)?;
    s.gate_factor = Some((gate, MLP));
    s.feed_forward_factor = Some((down, MLP));
    s.attention_factors = [factor(b.config, ATTENTION_IN)?, factor(b.config, ATTENTION_OUT)?];
    s.embedding_scale = EmbeddingScale::Number(b.config.positive(EMBEDDINGS, 1.0)?, EMBEDDINGS);
    s.logit_factor = factor(b.config, HEAD)?;
    // Keys are multiplied with it before they turn, which is the same for scores.
    s.scale *= b.config.positive(KEYS, 1.0)?;
    s.beside = Some(Mixer { module: "mamba", apply: mixer });
    blocks::decoder(b, &s, task)
}

fn factor(config: &Config<'_>, key: &'static str) -> Result<Factor, ModelError> {
    Ok(Some((config.positive(key, 1.0)?, key)))
}

/// Several positive numbers; all 1 where there are none.
fn factors<const N: usize>(config: &Config<'_>, key: &'static str) -> Result<[f64; N], ModelError> {
    let Some(value) = config.get(key) else { return Ok([1.0; N]) };
    let numbers = value.as_array().and_then(|list| list.iter().map(positive).collect::<Option<Vec<f64>>>());
    let numbers = numbers.and_then(|numbers| <[f64; N]>::try_from(numbers).ok());
    numbers.ok_or_else(|| config.unexpected(key, value, &format!("a list of {N} positive numbers")))
}

fn mixer(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let config = b.config;
    let inner = config.optional_size(INNER, Some(1024))?.map(|inner| Size::derived(inner, INNER));
    let read = StateSpace::read(config, s.hidden, inner, s.activation, s.eps)?;
    let normalizes = config.boolean("mamba_rms_norm", false)?;
    let norm = GatedNorm {
        parts: read.norm.parts.filter(|_| normalizes),
        gate_last: config.boolean("mamba_norm_before_gate", true)?,
        ..read.norm
    };
    let mixer = StateSpace {
        norm,
        output_bias: config.boolean("projectors_bias", false)?,
        factors: Some((factors(config, SPACE)?, SPACE)),
        ..read
    };
    let x = blocks::scaled(b, x, factor(config, SPACE_IN)?, &format!("{module}.input"))?;
    let y = mixer.apply(b, decoder, x, module)?;
    blocks::scaled(b, y, factor(config, SPACE_OUT)?, module)
}
