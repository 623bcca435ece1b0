//! What a GGUF file calls the tensors of a checkpoint.

/// A module of a layer: its name in the file, and in the checkpoint.
type Pair = (&'static str, &'static str);

/// The names of an architecture's tensors.
#[derive(Debug)]
pub(crate) struct Names {
    /// Tensors outside of layers.
    pub(crate) model: &'static [Pair],
    /// What modules of layers begin with in the checkpoint.
    pub(crate) layers: &'static str,
    /// Modules of layers.
    pub(crate) layer: &'static [Pair],
}

const LLAMA_MODEL: &[Pair] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Llama, Mistral, Qwen2, Qwen3 and Gemma.
pub(crate) const LLAMA: Names = Names {
    model: LLAMA_MODEL,
    layers: "model.layers.",
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
};

/// Gemma 2, with norms behind attention and feed-forward.
pub(crate) const GEMMA2: Names = Names {
    model: LLAMA_MODEL,
    layers: "model.layers.",
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
};

/// GPT-2.
pub(crate) const GPT2: Names = Names {
    model: &[
        ("token_embd", "transformer.wte"),
        ("position_embd", "transformer.wpe"),
        ("output_norm", "transformer.ln_f"),
        ("output", "lm_head"),
    ],
    layers: "transformer.h.",
    layer: &[
        ("attn_norm", "ln_1"),
        ("attn_qkv", "attn.c_attn"),
        ("attn_output", "attn.c_proj"),
        ("ffn_norm", "ln_2"),
        ("ffn_up", "mlp.c_fc"),
        ("ffn_down", "mlp.c_proj"),
    ],
};

impl Names {
    /// The checkpoint's name of a tensor of the file, if it has one.
    pub(crate) fn checkpoint(&self, stored: &str) -> Option<String> {
        let (module, kind) = stored.rsplit_once('.')?;
        let of = |pairs: &[Pair], module: &str| pairs.iter().find(|(own, _)| *own == module).map(|(_, name)| *name);
        let name = match module.strip_prefix("blk.") {
            Some(rest) => {
                let (layer, module) = rest.split_once('.')?;
                format!("{}{}.{}", self.layers, layer.parse::<u32>().ok()?, of(self.layer, module)?)
            }
            None => of(self.model, module)?.to_owned(),
        };
        matches!(kind, "weight" | "bias").then(|| format!("{name}.{kind}"))
    }
}
