//! FlexOlmo (Shi et al. 2025, arXiv:2507.07024), as `transformers/models/flex_olmo` has it: OLMo 2 with experts.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{llama, olmo2};
use crate::layers::blocks::{self, Defaults};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Mixture};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "flex_olmo",
    class_prefix: "FlexOlmo",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        experts::SUM_KEYS,
        &["attention_bias", "hidden_act", "num_experts", "num_experts_per_tok", "rms_norm_eps"],
    ],
    older_keys: &[("num_local_experts", "num_experts")],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(100_277),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 100_352, max_position_embeddings: Some(4096), ..Defaults::LLAMA };
    let mut s = olmo2::read(b, &defaults)?;
    s.rope = rope::Defaults { theta: 500_000.0, ..rope::Defaults::default() };
    let mut mixture = Mixture::read(b, &s, ("num_experts", 7), ("num_experts_per_tok", 5), s.intermediate)?;
    mixture.router.read_sum(b.config, false)?;
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
