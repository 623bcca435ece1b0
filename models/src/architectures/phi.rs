//! Phi-1 to Phi-2 (Li et al. 2023, arXiv:2309.05463), as `transformers/models/phi` has it: attention and feed-forward side by
//! side after one layer normalization, biases everywhere, and a part of each head rotated.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "phi",
    class_prefix: "Phi",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["hidden_act", "layer_norm_eps", "qk_layernorm"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 51200,
            hidden_size: 2048,
            intermediate_size: Some(8192),
            num_hidden_layers: 24,
            activation: ("hidden_act", "gelu_new"),
            eps: ("layer_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.norm = Norm::Layer { bias: true };
    s.parallel = true;
    s.feed_forward_norms.before = None;
    s.feed_forward = FeedForward::Plain { up: "fc1", down: "fc2" };
    (s.names.output, s.names.final_norm) = ("dense", Some("final_layernorm"));
    (s.input_bias, s.output_bias, s.feed_forward_bias, s.logit_bias) = (true, true, true, true);
    if b.config.boolean("qk_layernorm", false)? {
        s.head_norms = HeadNorms::Each;
        s.names.head_norms = ["q_layernorm", "k_layernorm"];
    }
    s.rope = rope::Defaults { part: Some(0.5), ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}
