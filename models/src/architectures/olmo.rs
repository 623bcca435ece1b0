//! OLMo (Groeneveld et al. 2024, arXiv:2402.00838), as `transformers/models/olmo` has it: Llama with layer normalization
//! without weights, and queries, keys and values with a bound.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "olmo",
    class_prefix: "Olmo",
    tasks: decoder::OF_TEXTS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", CLIP, "hidden_act"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

const CLIP: &str = "clip_qkv";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(b, &Defaults { vocab_size: 50304, eps: ("", 1e-5), ..Defaults::LLAMA })?;
    s.norm = Norm::Plain;
    s.clip = b.config.optional_positive(CLIP, None)?.map(|bound| (bound, CLIP));
    s.read_attention_bias(b, false)?;
    blocks::decoder(b, &s, task)
}
