//! dots.llm1 (Huo et al. 2025, arXiv:2506.05767), as `transformers/models/dots1` has it: the attention of Qwen3 and the experts of
//! DeepSeek-V3.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{deepseek_v3, llama};
use crate::checkpoint::config_keys::Only;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, experts, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "dots1",
    class_prefix: "Dots1",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["attention_bias", "hidden_act", "max_window_layers", "rms_norm_eps"],
    ],
    older_keys: &[("num_local_experts", "n_routed_experts")],
    only: &[Only::One("moe_layer_freq"), deepseek_v3::ONLY[0], deepseek_v3::ONLY[1]],
    // Cuts products into pieces, as they were trained: same result.
    irrelevant_keys: &["pretraining_tp"],
    gguf: Some(&Kind {
        name: "dots1",
        class: "Dots1ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: |c| {
            let sizes = gguf::config::llama(c)?;
            c.set("hidden_act", "silu");
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            parts::windows(c, sizes.window, sizes.layers)?;
            gguf::latent::experts(c, Gating::Sigmoid)
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
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
        ("ffn_gate_inp", "mlp.gate"),
        ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
        ("ffn_gate_exps", "mlp.experts.gate_proj"),
        ("ffn_up_exps", "mlp.experts.up_proj"),
        ("ffn_down_exps", "mlp.experts.down_proj"),
        ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
        ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
        ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 152_064,
            hidden_size: 4608,
            intermediate_size: Some(10944),
            num_hidden_layers: 62,
            num_key_value_heads: Some(32),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.head_norms = HeadNorms::Each;
    let from = b.config.whole("max_window_layers", 62)?;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| layer >= from)?;
    let numbers = deepseek_v3::Numbers {
        experts: None,
        taken: None,
        inner: 1408,
        shared: None,
        groups: [1, 1],
        dense: 0,
        factor: 1.0,
        normalizes: false,
    };
    s.experts = Some(deepseek_v3::mixture(b, &s, &numbers)?);
    blocks::decoder(b, &s, task)
}
