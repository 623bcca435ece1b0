//! Hunyuan with experts (Sun et al. 2024, arXiv:2411.02265), as `transformers/models/hunyuan_v1_moe` has it: norms of queries and
//! keys after they are turned, and an expert that all tokens take.

use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{Mixture, Router, Shared, Sum};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "hunyuan_v1_moe",
    class_prefix: "HunYuanMoEV1",
    tasks: decoder::OF_TEXTS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["attention_bias", "hidden_act", "num_experts", "rms_norm_eps", TAKEN],
    ],
    older_keys: &[("num_experts_per_tok", TAKEN), ("num_local_experts", "num_experts")],
    irrelevant_keys: &[
        // Token ids that the tokenizer puts in.
        "eod_token_id",
        // Cuts products into pieces, as they were trained: same result.
        "pretraining_tp",
    ],
    gguf: None,
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

const TAKEN: &str = "moe_topk";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 290_943, eps: ("rms_norm_eps", 1e-5), ..Defaults::LLAMA };
    let mut s = Settings::read(b, &defaults)?;
    s.read_attention_bias(b, false)?;
    s.head_norms = HeadNorms::Each;
    s.norms_rotated = true;
    s.names.head_norms = ["query_layernorm", "key_layernorm"];
    s.rope.fixed_alpha = true;
    let taken = taken(b.config, s.layers)?;
    let mut mixture = Mixture::new(b.config, b.config.size("num_experts", 1)?, taken, s.intermediate)?;
    mixture.router = Router { name: "gate.wg", sum: Some(Sum::Plus(0.0)), ..Router::SOFTMAX };
    mixture.shared = Some(Shared { module: "shared_mlp", inner: s.intermediate, gate: None });
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}

/// How many experts a token takes in each layer: a number, or one for each.
fn taken(config: &Config<'_>, layers: Size) -> Result<Vec<Size>, ModelError> {
    let Some(value @ Value::Array(list)) = config.get(TAKEN) else {
        return Ok(vec![config.size(TAKEN, 1)?; layers.value]);
    };
    let one = |value: &Value| usize::try_from(value.as_u64().filter(|number| *number > 0)?).ok();
    let numbers: Option<Vec<Size>> = list.iter().map(|value| one(value).map(|n| Size::derived(n, TAKEN))).collect();
    let numbers = numbers.filter(|numbers| numbers.len() >= layers.value);
    numbers.ok_or_else(|| {
        config.unexpected(TAKEN, value, &format!("a number, or one from 1 on for each layer ({layers})"))
    })
}
