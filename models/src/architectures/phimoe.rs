//! Phi-3.5-MoE (Abdin et al. 2024, arXiv:2404.14219), as `transformers/models/phimoe` has it: Mixtral with layer normalization
//! and another router.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{llama, mixtral};
use crate::layers::blocks::{self, Defaults};
use crate::layers::builder::Builder;
use crate::layers::experts::{Mixture, Router, Scoring};
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "phimoe",
    class_prefix: "Phimoe",
    tasks: decoder::OF_TEXTS,
    renamed: &[("block_sparse_moe.", "mlp."), ("mlp.gate.", "mlp.router.")],
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &[
            "attention_bias",
            "hidden_act",
            "lm_head_bias",
            "num_local_experts",
            "rms_norm_eps",
            "sliding_window",
            JITTER,
            TAKEN,
        ],
    ],
    irrelevant_keys: &["hidden_dropout"],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const JITTER: &str = "router_jitter_noise";
const TAKEN: &str = "num_experts_per_tok";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 32064, intermediate_size: Some(6400), ..mixtral::DEFAULTS };
    let mut s = mixtral::settings(b, &defaults)?;
    s.norm = Norm::Layer { bias: true };
    s.read_attention_bias(b, false)?;
    s.logit_bias = b.config.boolean("lm_head_bias", false)?;
    (s.rope.mscales, s.rope.recomputes) = (true, true);
    let mut mixture = Mixture::read(b, &s, ("num_local_experts", 16), (TAKEN, 2), s.intermediate)?;
    if mixture.taken.iter().any(|taken| taken.value != 2) {
        b.config.warn(format!(
            "`{TAKEN}` is not 2, but the router of this architecture chooses two experts whatever it is"
        ));
    }
    if mixture.count.value < 2 {
        return Err(b.config.error(format!("{} leaves no second expert for a token", mixture.count)));
    }
    let jitter = b.config.not_negative(JITTER, 0.01)?;
    mixture.router = Router { scoring: Scoring::SparseMixer { jitter }, ..Router::SOFTMAX };
    s.experts = Some(Mixture { stored: mixtral::PROJECTIONS, ..mixture });
    blocks::decoder(b, &s, task)
}
