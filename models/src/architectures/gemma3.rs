//! Gemma 3 (Gemma Team 2025, arXiv:2503.19786), the text model as `transformers/models/gemma3` has it: Gemma 2 with heads
//! of queries and keys that are normalized, and a rotary embedding of their own for layers with windows.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{gemma2, llama};
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::parts;
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::rope::Layers;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma3_text",
    class_prefix: "Gemma3",
    tasks: decoder::OF_TEXTS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        windows::PATTERN_KEYS,
        gemma2::KEYS,
        &[BIDIRECTIONAL, LOCAL_THETA],
    ],
    irrelevant_keys: gemma2::IRRELEVANT_KEYS,
    gguf: Some(&Kind {
        name: "gemma3",
        class: "Gemma3ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        whole_norms: true,
        configure: configure_gguf,
    }),
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

const BIDIRECTIONAL: &str = "use_bidirectional_attention";
pub(super) const LOCAL_THETA: &str = "rope_local_base_freq";

/// The names of tensors in GGUF files: those of Gemma 2, and norms of heads.
const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    c.set_model("gemma3_text", "Gemma3ForCausalLM");
    let sizes = gguf::config::llama(c)?;
    parts::windows(c, Some(sizes.window.unwrap_or(4096)), sizes.layers)?;
    c.set("hidden_activation", "gelu_pytorch_tanh");
    c.set(LOCAL_THETA, c.number("rope.freq_base_swa")?.unwrap_or(10000.0));
    // The file does not say it: of the published models, only that with 62 layers scales by features of the model.
    c.set("query_pre_attn_scalar", if sizes.layers == 62 { sizes.hidden / sizes.heads } else { sizes.head });
    parts::copy(c, "final_logit_softcapping", "final_logit_softcapping")
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 262_208, max_position_embeddings: Some(131_072), ..gemma2::DEFAULTS };
    let mut s = gemma2::read(b, &defaults, [None; 2])?;
    // The reference gives no cap to attention, whatever `attn_logit_softcapping` says.
    s.softcap = None;
    s.head_norms = HeadNorms::Each;
    let every = windows::pattern(b.config, 6)?;
    let window = b.config.size("sliding_window", 4096)?.value;
    let both_sides = b.config.boolean(BIDIRECTIONAL, false)?;
    // A token sees as many on either side as half of this, and itself.
    let window = if both_sides { window / 2 + 1 } else { window };
    s.windows = Windows::read(b.config, s.layers, Some(window), |layer| !(layer + 1).is_multiple_of(every))?;
    ropes(&mut s);
    s.both_sides = both_sides.then_some(BIDIRECTIONAL);
    blocks::decoder(b, &s, task)
}

/// Sets the rotary embeddings of layers without windows and with.
pub(super) fn ropes(s: &mut Settings) {
    s.rope = rope::Defaults { layers: Layers::Full, theta: 1e6, ..rope::Defaults::default() };
    let layers = Layers::Sliding { scaled: false };
    s.local_rope = Some(rope::Defaults { layers, theta_key: LOCAL_THETA, ..rope::Defaults::default() });
}
