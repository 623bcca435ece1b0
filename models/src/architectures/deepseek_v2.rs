//! DeepSeek-V2 (DeepSeek-AI 2024, arXiv:2405.04434), as `transformers/models/deepseek_v2` has it: latent attention, and experts of
//! which some are for all tokens.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config_keys::Only;
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::parts::Gating;
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, GroupScore, Groups, Mixture, Shared};
use crate::layers::latent::{self, Latent, Pairs};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "deepseek_v2",
    class_prefix: "DeepseekV2",
    tasks: decoder::OF_TEXTS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        latent::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["hidden_act", "mlp_bias", "rms_norm_eps", METHOD],
    ],
    older_keys: &[("num_experts", "n_routed_experts")],
    only: &[Only::One("moe_layer_freq"), Only::Text("scoring_func", "softmax")],
    irrelevant_keys: &[
        // The sum of two sizes that are read.
        "qk_head_dim",
        // Training.
        "aux_loss_alpha",
        "ep_size",
        "seq_aux",
        // Cuts products into pieces, as they were trained: same result.
        "pretraining_tp",
    ],
    gguf: Some(&Kind {
        name: "deepseek2",
        class: "DeepseekV2ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: configure_gguf,
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

const METHOD: &str = "topk_method";

/// The names of tensors in GGUF files, also of DeepSeek-V3.
const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_q_a", "self_attn.q_a_proj"),
        ("attn_q_a_norm", "self_attn.q_a_layernorm"),
        ("attn_q_b", "self_attn.q_b_proj"),
        ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
        ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
        ("attn_kv_b", "self_attn.kv_b_proj"),
        ("attn_k_b", "self_attn.k_b_proj"),
        ("attn_v_b", "self_attn.v_b_proj"),
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

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    gguf::latent::sizes(c)?;
    let (model_type, class, gating) = match gguf::latent::has_sigmoids(c) {
        true => ("deepseek_v3", "DeepseekV3ForCausalLM", Gating::Sigmoid),
        false => ("deepseek_v2", "DeepseekV2ForCausalLM", Gating::Softmax),
    };
    c.set_model(model_type, class);
    gguf::latent::experts(c, gating)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    // Heads are of other sizes than this, which the features that turn take the place of.
    let defaults = Defaults { vocab_size: 102_400, head_dim: Some(64), ..Defaults::LLAMA };
    let mut s = Settings::read(b, &defaults)?;
    let sizes = latent::Defaults { queries: Some(1536), rank: 512, still: 128, turning: 64, values: Some(128) };
    s.latent = Some(Latent::read(b, &mut s, &sizes, Pairs::Neighbours)?);
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    let config = b.config;
    let inner = config.size("moe_intermediate_size", 1407)?;
    let count = config.size("n_routed_experts", 64)?;
    let taken = experts::required(config, "num_experts_per_tok")?;
    let mut mixture = Mixture::new(config, count, vec![taken; s.layers.value], inner)?;
    mixture.dense = experts::dense_before(config, &s, "first_k_dense_replace", 0)?;
    mixture.shared = experts::shared(config, "n_shared_experts", 2, inner)?.map(Shared::beside);
    mixture.router.factor = experts::factor(config, 1.0)?;
    if config.boolean("norm_topk_prob", false)? {
        config.warn("`norm_topk_prob` is true, but this architecture never divides scores by their sum");
    }
    let groups = [config.optional_size("n_group", None)?, config.optional_size("topk_group", None)?];
    mixture.router.groups = match config.text(METHOD, "greedy")? {
        "greedy" => None,
        "group_limited_greedy" => Groups::of(config, &mixture, groups, GroupScore::Best)?,
        other => {
            return Err(config.error(format!(
                "`{METHOD}` is \"{other}\", which is not supported: known are greedy, group_limited_greedy"
            )));
        }
    };
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
