//! Phi-3 (Abdin et al. 2024, arXiv:2404.14219), as `transformers/models/phi3` has it: Llama with
//! packed projections, and with a part of each head rotated where the configuration says so.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config_keys::Only;
use crate::checkpoint::gguf::config::Form;
use crate::checkpoint::gguf::parts;
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, FeedForward, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "phi3",
    class_prefix: "Phi3",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, &["hidden_act", "rms_norm_eps"]],
    only: &[Only::Off("attention_bias")],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "phi3",
        class: "Phi3ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: |c| {
            if c.has("rope_factors_long.weight") {
                return Err("`rope_factors_long.weight` is there: the rotary embedding longrope of Phi-3 is not supported in GGUF files; \
                            take the checkpoint that the file was made from"
                    .to_owned());
            }
            let sizes = gguf::config::decoder(c, &Form::IN_PART)?;
            c.set("hidden_act", "silu");
            parts::windows(c, sizes.window, sizes.layers)
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(32_000),
    ..llama::ARCHITECTURE
};

/// The names of tensors in GGUF files.
const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_qkv", "self_attn.qkv_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_up", "mlp.gate_up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 32064,
            max_position_embeddings: Some(4096),
            hidden_size: 3072,
            intermediate_size: Some(8192),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.projections = Projections::Packed("qkv_proj");
    s.feed_forward = FeedForward::Packed { both: "gate_up_proj", last: false, down: "down_proj" };
    // What checkpoints of early versions call it. Of the original length the transformers library has a
    // default, which counts before what is among the parameters.
    s.rope = rope::Defaults {
        part: Some(1.0),
        longrope_names: &["su", "yarn"],
        original: Some(4096.0),
        recomputes: true,
        ..rope::Defaults::default()
    };
    let window = b.config.optional_size("sliding_window", None)?;
    s.windows = Windows::read(b.config, s.layers, window, |_| true)?;
    blocks::decoder(b, &s, task)
}
