//! Latent attention and the experts of DeepSeek's models, as GGUF files of llama.cpp's architecture deepseek2 describe them.

use serde_json::{Value, json};

use super::config::Conversion;
use super::metadata::Value as Stored;
use super::parts::{self, Gating};
use super::rope::rope_scaling;

/// Whether scores of experts are sigmoids, as those of DeepSeek-V3 are.
pub(crate) fn has_sigmoids(c: &Conversion<'_>) -> bool {
    c.get("expert_gating_func") == Some(&Stored::Integer(Gating::Sigmoid as i128))
}

/// Sets the sizes of a model with latent attention.
pub(crate) fn sizes(c: &mut Conversion<'_>) -> Result<(), String> {
    const EPS: &str = "attention.layer_norm_rms_epsilon";
    let (heads, positions) = (c.required("attention.head_count")?, c.required("context_length")?);
    // Files whose heads attend to latents have the sizes of a head under other names.
    let size = |mla: &'static str, plain: &'static str| match c.size(mla)? {
        Some(size) => {
            c.get(plain);
            Ok(size)
        }
        None => c.required(plain),
    };
    let keys = size("attention.key_length_mla", "attention.key_length")?;
    let values = size("attention.value_length_mla", "attention.value_length")?;
    let turning = c.required("rope.dimension_count")?;
    if turning >= keys {
        return Err(c.unexpected("rope.dimension_count", &format!("less than the {keys} features of a head's keys")));
    }
    c.get("attention.head_count_kv");
    let eps = c.number(EPS)?.ok_or_else(|| c.unexpected(EPS, "a number"))?;
    let base = c.number("rope.freq_base")?.unwrap_or(10000.0);
    let scaling = rope_scaling(c, base, turning, positions)?;
    // The logarithm of the factor is multiplied with this; it is a tenth of what config.json has.
    let multiplier = c.number("rope.scaling.yarn_log_multiplier")?.filter(|number| *number != 0.0);
    let layers = c.required("block_count")?;
    for (key, value) in [
        ("hidden_size", c.required("embedding_length")?),
        ("num_attention_heads", heads),
        ("num_key_value_heads", heads),
        ("num_hidden_layers", layers),
        ("intermediate_size", c.required("feed_forward_length")?),
        ("max_position_embeddings", positions),
        ("kv_lora_rank", c.required("attention.kv_lora_rank")?),
        ("qk_rope_head_dim", turning),
        ("qk_nope_head_dim", keys - turning),
        ("v_head_dim", values),
        ("head_dim", turning),
    ] {
        c.set(key, value);
    }
    let rank = c.size_or_none("attention.q_lora_rank")?;
    c.set("q_lora_rank", rank.map_or(Value::Null, |rank| json!(rank)));
    c.set("rms_norm_eps", eps);
    c.set("rope_theta", base);
    c.set("hidden_act", "silu");
    if let Some(mut scaling) = scaling {
        if let Some(multiplier) = multiplier {
            let of_all = (multiplier * 10.0) as f32;
            scaling["mscale"] = json!(of_all);
            scaling["mscale_all_dim"] = json!(of_all);
        }
        c.set("rope_scaling", scaling);
    }
    Ok(())
}

/// Sets the numbers of experts of DeepSeek's models and their kin.
pub(crate) fn experts(c: &mut Conversion<'_>, gating: Gating) -> Result<(), String> {
    parts::experts(c, ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"], gating)?;
    c.set("n_shared_experts", c.size_or_none("expert_shared_count")?.unwrap_or(0));
    c.set("first_k_dense_replace", c.size_or_none("leading_dense_block_count")?.unwrap_or(0));
    c.set("routed_scaling_factor", c.number("expert_weights_scale")?.filter(|factor| *factor != 0.0).unwrap_or(1.0));
    c.set("norm_topk_prob", parts::normalizes(c, gating == Gating::Sigmoid)?);
    let groups = c.size_or_none("expert_group_count")?;
    let taken = c.size_or_none("expert_group_used_count")?;
    let given = groups.zip(taken);
    if given.is_none() && gating == Gating::Softmax {
        return Ok(());
    }
    // Files that do not say it are of models without groups.
    let (groups, taken) = given.unwrap_or((1, 1));
    c.set("n_group", groups);
    c.set("topk_group", taken);
    if gating == Gating::Softmax {
        c.set("topk_method", "group_limited_greedy");
    }
    Ok(())
}
