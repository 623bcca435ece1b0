//! gpt-oss (OpenAI 2025, arXiv:2508.10925), as `transformers/models/gpt_oss` has it: Llama with sinks, windows in every other
//! layer, and a mixture of experts as feed-forward.

use serde_json::json;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::Config;
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::layers::experts::{Clamp, Mixture, Router, Scoring, Stored};
use crate::layers::rope::{self, Absent, Stretch};
use crate::layers::windows::{self, Windows};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gpt_oss",
    class_prefix: "GptOss",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        &["attention_bias", "hidden_act", "rms_norm_eps", "swiglu_alpha", "swiglu_limit", COUNT, TAKEN],
    ],
    older_keys: &[("num_experts", COUNT)],
    irrelevant_keys: &[
        // What published configurations say twice.
        "experts_per_token",
        "initial_context_length",
    ],
    gguf: Some(&Kind {
        name: "gpt-oss",
        class: "GptOssForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: configure_gguf,
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

const COUNT: &str = "num_local_experts";
const TAKEN: &str = "num_experts_per_tok";

/// The names of tensors in GGUF files.
const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_sinks.weight", "self_attn.sinks"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_gate_inp", "mlp.router"),
        ("ffn_gate_exps", "mlp.experts.gate_proj"),
        ("ffn_up_exps", "mlp.experts.up_proj"),
        ("ffn_down_exps", "mlp.experts.down_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    c.set_model("gpt_oss", "GptOssForCausalLM");
    let sizes = gguf::config::llama(c)?;
    // Files do not say it: the frequencies of the published models are not cut to whole dimensions.
    parts::truncates(c, false);
    if c.text("rope.scaling.type")?.is_none_or(|kind| kind == "none") {
        let base = c.number("rope.freq_base")?.unwrap_or(10000.0);
        c.set("rope_parameters", json!({"rope_type": "default", "rope_theta": base}));
    }
    parts::windows(c, sizes.window, sizes.layers)?;
    c.set("attention_bias", c.has("blk.0.attn_q.bias"));
    parts::must_normalize(c, true)?;
    parts::experts(c, [COUNT, TAKEN, "intermediate_size"], Gating::SoftmaxOfChosen)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 201_088,
            max_position_embeddings: Some(131_072),
            hidden_size: 2880,
            intermediate_size: Some(2880),
            num_hidden_layers: 36,
            num_attention_heads: 64,
            num_key_value_heads: Some(8),
            head_dim: Some(64),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, true)?;
    s.sinks = Some("sinks");
    let mixture = Mixture::read(b, &s, (COUNT, 128), (TAKEN, 4), s.intermediate)?;
    let clamp =
        Clamp { alpha: b.config.positive("swiglu_alpha", 1.702)?, limit: b.config.positive("swiglu_limit", 7.0)? };
    s.experts = Some(Mixture {
        router: Router { name: "router", bias: true, scoring: Scoring::SoftmaxOfChosen, ..Router::SOFTMAX },
        stored: Stored::InTurn,
        clamp: Some(clamp),
        ..mixture
    });
    s.rope = rope::Defaults { theta: 150_000.0, absent: default_embedding(b.config)?, ..rope::Defaults::default() };
    let window = b.config.optional_size("sliding_window", Some(128))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| layer.is_multiple_of(2))?;
    blocks::decoder(b, &s, task)
}

/// The rotary embedding where the configuration has no parameters of it.
fn default_embedding(config: &Config<'_>) -> Result<Absent, ModelError> {
    const SCALING: &str = "rope_scaling";
    let yarn = Stretch { factor: 32.0, original: 4096.0 };
    if config.get("rope_parameters").is_some() || !config.is_null(SCALING) {
        return Ok(Absent::Yarn(yarn));
    }
    match config.transformers_version()? {
        Some((4, _)) => Ok(Absent::Plain),
        _ => Err(config.error(format!(
            "`{SCALING}` is null: transformers 4 takes plain frequencies, transformers 5 the rotary embedding \"yarn\" with \
             a factor of {} and an original length of {}; for the latter remove the key, for the former set \
             `rope_parameters` to {{\"rope_type\": \"default\"}}",
            yarn.factor, yarn.original
        ))),
    }
}
