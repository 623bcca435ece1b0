//! StarCoder2 (Lozhkov et al. 2024, arXiv:2402.19173), as `transformers/models/starcoder2` has it: Llama with layer
//! normalization, biases, a feed-forward without gates, and attention to a window where the configuration says so.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Form;
use crate::checkpoint::gguf::parts;
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, FeedForward, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "starcoder2",
    class_prefix: "Starcoder2",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, &["hidden_act", "norm_epsilon", "use_bias"]],
    irrelevant_keys: &["embedding_dropout", "residual_dropout"],
    gguf: Some(&Kind {
        name: "starcoder2",
        class: "Starcoder2ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: |c| {
            let form = Form { eps: ["attention.layer_norm_epsilon", "norm_epsilon"], ..Form::LLAMA };
            let sizes = gguf::config::decoder(c, &form)?;
            c.set("use_bias", c.has("blk.0.attn_q.bias"));
            c.set("hidden_act", "gelu_pytorch_tanh");
            parts::windows(c, sizes.window, sizes.layers)
        },
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

/// The names of tensors in GGUF files.
const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_up", "mlp.c_fc"),
        ("ffn_down", "mlp.c_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 49152,
            max_position_embeddings: Some(4096),
            hidden_size: 3072,
            intermediate_size: Some(12288),
            num_hidden_layers: 30,
            num_attention_heads: 24,
            num_key_value_heads: Some(2),
            activation: ("hidden_act", "gelu_pytorch_tanh"),
            eps: ("norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.norm = Norm::Layer { bias: true };
    s.feed_forward = FeedForward::Plain { up: "c_fc", down: "c_proj" };
    let bias = b.config.boolean("use_bias", true)?;
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (bias, bias, bias);
    let window = b.config.optional_size("sliding_window", None)?;
    s.windows = Windows::read(b.config, s.layers, window, |_| true)?;
    s.tied = true;
    blocks::decoder(b, &s, task)
}
