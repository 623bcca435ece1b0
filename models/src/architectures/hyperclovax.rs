//! HyperCLOVA X (NAVER Cloud 2025), as `transformers/models/hyperclovax` has it: Granite with norms after attention and feed-forward
//! too, and logits that are multiplied where Granite divides them.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{granite, llama};
use crate::layers::blocks::{self, Around};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "hyperclovax",
    class_prefix: "HyperCLOVAX",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, granite::KEYS, &["mlp_bias", NORMS]],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const NORMS: &str = "use_post_norm";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const SCALE: &str = "attention_multiplier";
    const LOGITS: &str = "logits_scaling";
    let mut s = granite::read(b)?;
    if b.config.get(SCALE).is_none() {
        s.scale = (s.heads.size.value as f64).powf(-0.5);
    }
    s.logit_factor = Some((b.config.positive(LOGITS, 1.0)?, LOGITS));
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    if b.config.boolean(NORMS, true)? {
        s.attention_norms = Around::before_and_after("input_layernorm", "post_norm1");
        s.feed_forward_norms = Around::before_and_after("post_attention_layernorm", "post_norm2");
    }
    blocks::decoder(b, &s, task)
}
