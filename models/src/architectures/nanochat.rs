//! nanochat (Karpathy 2025), as `transformers/models/nanochat` has it: norms without weights, of embeddings and of rotated queries
//! and keys too, and pairs that turn against the usual direction.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "nanochat",
    class_prefix: "NanoChat",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps", CAP]],
    irrelevant_keys: &[],
    pad_token_id: Some(1),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const CAP: &str = "final_logit_softcapping";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50304,
            hidden_size: 768,
            intermediate_size: Some(8192),
            num_hidden_layers: 12,
            num_attention_heads: 6,
            activation: ("hidden_act", "relu2"),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.norm = Norm::RmsPlain;
    s.names.embedding_norm = Some("embedding_norm");
    s.head_norms = HeadNorms::Each;
    s.norms_rotated = true;
    s.turns_backwards = true;
    s.feed_forward = FeedForward::Plain { up: "fc1", down: "fc2" };
    s.logit_cap = b.config.optional_positive(CAP, Some(15.0))?.map(|cap| (cap, CAP));
    blocks::decoder(b, &s, task)
}
