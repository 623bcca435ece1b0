//! EXAONE 3.5 (LG AI Research 2024, arXiv:2412.04862), as transformers 5 has it: Llama, under the names of tensors and the keys that
//! its authors' code writes.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "exaone",
    class_prefix: "Exaone",
    base: "model",
    tasks: decoder::WITHOUT_LABELS,
    other_bases: &["transformer"],
    renamed: &[
        ("embed_tokens.", "wte."),
        ("layers.", "h."),
        ("norm.weight", "ln_f.weight"),
        ("self_attn.o_proj.", "self_attn.out_proj."),
        ("self_attn.", "attn.attention."),
        ("input_layerln_f.", "ln_1."),
        ("post_attention_layerln_f.", "ln_2."),
        ("mlp.gate_proj.", "mlp.c_fc_0."),
        ("mlp.up_proj.", "mlp.c_fc_1."),
        ("mlp.down_proj.", "mlp.c_proj."),
    ],
    older_keys: &[
        ("activation_function", "hidden_act"),
        ("layer_norm_epsilon", "rms_norm_eps"),
        ("num_layers", "num_hidden_layers"),
    ],
    irrelevant_keys: &["embed_dropout"],
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 102_400,
            max_position_embeddings: Some(4096),
            intermediate_size: Some(14336),
            num_key_value_heads: Some(8),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.rope = rope::Defaults { theta: 500_000.0, ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}
