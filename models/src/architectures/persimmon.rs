//! Persimmon (Adept 2023), as `transformers/models/persimmon` has it: layer normalization, of heads of queries and keys too, and
//! a part of each head rotated.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, HeadNorms, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "persimmon",
    class_prefix: "Persimmon",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["hidden_act", "layer_norm_eps", "qk_layernorm"]],
    // Training.
    irrelevant_keys: &["hidden_dropout"],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 262_144,
            max_position_embeddings: Some(16384),
            intermediate_size: Some(16384),
            num_hidden_layers: 36,
            num_attention_heads: 64,
            activation: ("hidden_act", "relu2"),
            eps: ("layer_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.norm = Norm::Layer { bias: true };
    (s.names.output, s.names.final_norm) = ("dense", Some("final_layernorm"));
    s.projections = Projections::Grouped { name: "query_key_value", groups: s.heads.queries, values_first: false };
    s.feed_forward = FeedForward::Plain { up: "dense_h_to_4h", down: "dense_4h_to_h" };
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (true, true, true);
    if b.config.boolean("qk_layernorm", true)? {
        s.head_norms = HeadNorms::Each;
        s.names.head_norms = ["q_layernorm", "k_layernorm"];
    }
    s.rope = rope::Defaults { part: Some(0.5), ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}
