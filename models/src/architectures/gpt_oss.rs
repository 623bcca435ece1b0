//! gpt-oss (OpenAI 2025, arXiv:2508.10925), as `transformers/models/gpt_oss` has it: Llama with sinks, windows in every other
//! layer, and a mixture of experts as feed-forward.

use planish_ir::ops::{Activation, Experts, Flag, Linear, Real, Softmax, Split, TopK};
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::{self, Defaults, FeedForward, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::layers::rope::{self, Stretch};
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
        // Training.
        "output_router_logits",
        "router_aux_loss_coef",
        // What published configurations say twice.
        "experts_per_token",
        "initial_context_length",
    ],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const COUNT: &str = "num_local_experts";
const TAKEN: &str = "num_experts_per_tok";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 201_088,
            max_position_embeddings: 131_072,
            hidden_size: 2880,
            intermediate_size: 2880,
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
    s.feed_forward = FeedForward::Own(experts);
    s.rope = rope::Defaults { theta: 150_000.0, yarn: default_yarn(b.config)?, ..rope::Defaults::default() };
    let window = b.config.optional_size("sliding_window", Some(128))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| layer.is_multiple_of(2))?;
    blocks::decoder(b, &s, task)
}

/// The rotary embedding where the configuration has no parameters of it: plain frequencies where it is `None`.
fn default_yarn(config: &Config<'_>) -> Result<Option<Stretch>, ModelError> {
    const SCALING: &str = "rope_scaling";
    let yarn = Stretch { factor: 32.0, original: 4096.0 };
    if config.get("rope_parameters").is_some() || !config.is_null(SCALING) {
        return Ok(Some(yarn));
    }
    match config.transformers_version()? {
        Some((4, _)) => Ok(None),
        _ => Err(config.error(format!(
            "`{SCALING}` is null: transformers 4 takes plain frequencies, transformers 5 the rotary embedding \"yarn\" with \
             a factor of {} and an original length of {}; for the latter remove the key, for the former set \
             `rope_parameters` to {{\"rope_type\": \"default\"}}",
            yarn.factor, yarn.original
        ))),
    }
}

/// The experts of each token with the largest scores, whose softmax is the factor of what they give.
fn experts(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let count = b.config.size(COUNT, 128)?;
    let taken = b.config.size(TAKEN, 4)?;
    if taken.value > count.value {
        return Err(b.config.error(format!("{taken} is more than {count}")));
    }
    let (alpha, limit) = (b.config.positive("swiglu_alpha", 1.702)?, b.config.positive("swiglu_limit", 7.0)?);
    let router = b.weight(&[&at("router.weight")], &[count, s.hidden])?;
    let bias = Some(b.weight(&[&at("router.bias")], &[count])?);
    let scores = b.emit(Linear::new(x, router, bias), &at("router"))?;
    let top = TopK { x: scores, axis: 2, k: taken.signed().into(), smallest: Flag(false) };
    let (scores, indices) = match b.emit_all(top, &at("router.top"))?[..] {
        [scores, indices] => (scores, indices),
        _ => unreachable!("the largest elements come with their indices"),
    };
    let scores = b.emit(Softmax { x: scores }, &at("router.softmax"))?;
    let both = Size::derived(2 * s.intermediate.value, "2 * intermediate_size");
    let [gate, up] = halves(b, &[count, s.hidden, both], &at("experts.gate_up_proj"))?;
    let [gate_bias, up_bias] = halves(b, &[count, both], &at("experts.gate_up_proj_bias"))?;
    let down = b.weight(&[&at("experts.down_proj")], &[count, s.intermediate, s.hidden])?;
    let experts = Experts {
        x,
        indices,
        scores,
        gate: b.transpose(gate, &[0, 2, 1], &at("experts.gate"))?,
        down: b.transpose(down, &[0, 2, 1], &at("experts.down"))?,
        up: Some(b.transpose(up, &[0, 2, 1], &at("experts.up"))?),
        gate_bias: Some(gate_bias),
        up_bias: Some(up_bias),
        down_bias: Some(b.weight(&[&at("experts.down_proj_bias")], &[count, s.hidden])?),
        activation: Activation::Silu,
        alpha: Some(Real(alpha)),
        limit: Some(Real(limit)),
        shift: Some(Real(1.0)),
    };
    b.emit(experts, module)
}

/// The weights of gates and of what they are multiplied with, which are stored in turn along the last axis.
fn halves(b: &mut Builder<'_>, shape: &[Size], name: &str) -> Result<[ValueId; 2], ModelError> {
    let stored = b.weight(&[name], shape)?;
    let dims = |last: &[i64]| {
        let kept = shape[..shape.len() - 1].iter().map(|size| size.signed());
        kept.chain(last.iter().copied()).map(Dim::constant).collect::<Vec<_>>()
    };
    let half = shape.last().map_or(0, |size| size.signed() / 2);
    let pairs = b.reshape(stored, dims(&[half, 2]), &format!("{name}.pairs"))?;
    let split = Split { x: pairs, axis: shape.len(), sizes: vec![1; 2] };
    let parts = b.emit_all(split, &format!("{name}.split"))?;
    let mut flat = |part, of: &str| b.reshape(part, dims(&[half]), &format!("{name}.{of}"));
    match parts[..] {
        [gate, up] => Ok([flat(gate, "gate")?, flat(up, "up")?]),
        _ => unreachable!("a split has as many results as sizes"),
    }
}
