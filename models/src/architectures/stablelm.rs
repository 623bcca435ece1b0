//! StableLM (Bellagente et al. 2024, arXiv:2402.17834), as `transformers/models/stablelm` has it: Llama with layer
//! normalization, a part of each head rotated, and attention and feed-forward side by side where the configuration says so.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Form;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, HeadNorms, HeadWeights, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "stablelm",
    class_prefix: "StableLm",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["hidden_act", "layer_norm_eps", "qk_layernorm", "use_parallel_residual", "use_qkv_bias"],
    ],
    irrelevant_keys: &["hidden_dropout"],
    gguf: Some(&Kind {
        name: "stablelm",
        class: "StableLmForCausalLM",
        pairs: false,
        configure: |c| {
            if c.has("blk.0.attn_q_norm.weight") {
                return Err("`blk.0.attn_q_norm.weight` is there: norms of heads of StableLM are not supported in GGUF files; take the \
                            checkpoint that the file was made from"
                    .to_owned());
            }
            let form = Form { eps: ["attention.layer_norm_epsilon", "layer_norm_eps"], ..Form::IN_PART };
            gguf::config::sizes_of_heads(c, &form)?;
            c.set("hidden_act", "silu");
            c.set("use_qkv_bias", c.has("blk.0.attn_q.bias"));
            c.set("use_parallel_residual", c.flag("use_parallel_residual")?.unwrap_or(false));
            Ok(())
        },
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50304,
            max_position_embeddings: Some(4096),
            hidden_size: 2560,
            intermediate_size: Some(6912),
            num_key_value_heads: Some(32),
            eps: ("layer_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.norm = Norm::Layer { bias: true };
    s.input_bias = b.config.boolean("use_qkv_bias", false)?;
    s.rope = rope::Defaults { part: Some(0.25), ..rope::Defaults::default() };
    if b.config.boolean("qk_layernorm", false)? {
        s.head_norms = HeadNorms::Apart(HeadWeights::Listed);
        s.names.head_norms = ["q_layernorm", "k_layernorm"];
    }
    s.parallel = b.config.boolean("use_parallel_residual", false)?;
    if s.parallel {
        s.feed_forward_norms.before = None;
    }
    blocks::decoder(b, &s, task)
}
