//! Keys of a GGUF file's metadata that are not read for the configuration: those that change nothing, and those that would.

/// Metadata that does not change the computation.
pub(super) const IRRELEVANT: &[&str] =
    &["rope.scaling.finetuned", "rope.dimension_sections", "tensor_data_layout", "vocab_size"];

/// Numbers that change the computation in a way that an architecture follows only if it asks for them, unless they are 0 or this.
pub(super) const NEUTRAL: &[(&str, f64)] = &[
    ("attention.clamp_kqv", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.scale", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("embedding_scale", 1.0),
    ("expert_group_count", 1.0),
    ("expert_group_used_count", 1.0),
    ("expert_weights_scale", 1.0),
    ("final_logit_softcapping", 0.0),
    ("logit_scale", 1.0),
    ("residual_scale", 1.0),
    ("rope.scaling.attn_factor", 1.0),
    ("rope.scaling.yarn_log_multiplier", 0.0),
];

/// The beginnings of keys that describe a file, and the tokens of a tokenizer that only programs for chats take.
pub(super) const DESCRIPTIONS: &[&str] = &["general.", "imatrix.", "quantize.", "split.", "tokenizer.chat_template"];

/// The keys of a tokenizer that are read.
pub(super) const TOKENIZER: &[&str] = &[
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
    "bos_token_id",
    "eos_token_id",
    "merges",
    "model",
    "padding_token_id",
    "pre",
    "scores",
    "token_type",
    "tokens",
    "unknown_token_id",
];

/// The keys of a tokenizer that change no tokens of a text: those that programs for chats and for code look for, and copies of
/// what other keys say.
pub(super) const OTHER_TOKENS: &[&str] = &[
    "added_tokens",
    "cls_token_id",
    "eom_token_id",
    "eot_token_id",
    "fim_mid_token_id",
    "fim_pad_token_id",
    "fim_pre_token_id",
    "fim_rep_token_id",
    "fim_sep_token_id",
    "fim_suf_token_id",
    "mask_token_id",
    "middle_token_id",
    "prefix_token_id",
    "separator_token_id",
    "seperator_token_id",
    "suffix_token_id",
    "token_type_count",
];
