//! Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), as `transformers/models/mamba2` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::mamba::{self, Settings};
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::state_space::{self, GatedNorm, StateSpace};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mamba2",
    class_prefix: "Mamba2",
    keys: &[
        &["pad_token_id", "tie_word_embeddings"],
        mamba::KEYS,
        &["expand", "head_dim", "n_groups", "num_heads", state_space::LIMIT],
    ],
    irrelevant_keys: &[
        // Cuts texts into pieces: same result.
        "chunk_size",
        "norm_before_gate",
        "rms_norm",
        "rescale_prenorm_residual",
        "residual_in_fp32",
        "time_step_floor",
        "time_step_init_scheme",
        "time_step_max",
        "time_step_min",
        "time_step_rank",
        "time_step_scale",
    ],
    pad_token_id: Some(1),
    build,
    ..mamba::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, [32768, 4096, 64])?;
    let groups = b.config.size("n_groups", 8)?;
    let mixer = StateSpace {
        hidden: s.hidden,
        heads: b.config.size("num_heads", 128)?,
        size: b.config.size("head_dim", 64)?,
        groups,
        state: b.config.size("state_size", 128)?,
        taps: b.config.size("conv_kernel", 4)?,
        bias: b.config.boolean("use_bias", false)?,
        output_bias: b.config.boolean("use_bias", false)?,
        convolution_bias: b.config.boolean("use_conv_bias", true)?,
        activation: Activation::read(b.config, "hidden_act", "silu")?,
        limit: state_space::limit(b.config)?,
        norm: GatedNorm { parts: Some(groups), gate_last: false, eps: s.eps },
        factors: None,
    };
    let mixer = mixer.check(b.config)?;
    let expand = b.config.size("expand", 2)?;
    let inner = Size::derived(expand.value * s.hidden.value, "expand * hidden_size");
    if inner.value != mixer.inner().value {
        return Err(b.config.error(format!("{inner}, but {} times {}", mixer.heads, mixer.size)));
    }
    s.decoder(b, task, false, |b, decoder, x, module| mixer.apply(b, decoder, x, module))
}
