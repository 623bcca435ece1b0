//! Keys of `config.json` that any model may carry: keys that do not change what is exported, and keys
//! that would but are not supported. accept.rs judges a configuration by these lists and by those of
//! its architecture.

/// Keys that do not change the exported computation.
pub(crate) const IRRELEVANT: &[&str] = &[
    // What wrote the file, and how it is loaded. The tensors say their own element types.
    "_name_or_path",
    "_commit_hash",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "attn_implementation",
    "model_type",
    "name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "use_bfloat16",
    "torchscript",
    "tf_legacy_loss",
    "transformers.js_config",
    // Training: dropout and its kin are off when a model is used.
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "classifier_dropout",
    "dropout",
    "embd_pdrop",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "initializer_range",
    "input_jitter_noise",
    "neftune_noise_alpha",
    "output_router_logits",
    "resid_pdrop",
    "router_aux_loss_coef",
    // How Python callers receive results; the outputs of an export are those of its task.
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "return_dict",
    "use_cache",
    "use_return_dict",
    // Cuts the feed-forward into pieces to save memory: same result.
    "chunk_size_feed_forward",
    // What labels are called and which loss a trainer takes.
    "finetuning_task",
    "id2label",
    "label2id",
    "num_labels",
    "_num_labels",
    "problem_type",
    "task_specific_params",
    // Token ids that the tokenizer puts in.
    "bos_token_id",
    "eos_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "prefix",
    "tokenizer_class",
    // Settings of text generation: they are of those who call the model.
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    // What a decoder is anyway; encoders refuse it.
    "is_decoder",
    // What an encoder-decoder is anyway; others refuse it.
    "is_encoder_decoder",
    // Whether embedding and decoder share a matrix: read where a head has a decoder.
    "tie_word_embeddings",
    "tie_weights_",
];

/// A key of which one value is supported.
#[derive(Clone, Copy)]
pub(crate) enum Only {
    /// Absent, null, false or empty.
    Off(&'static str),
    /// Absent, null or false; no other value is a setting of it.
    False(&'static str),
    /// Absent, null or true.
    On(&'static str),
    /// Absent, null or the number 1.
    One(&'static str),
    /// Absent, null or a text.
    Text(&'static str, &'static str),
}

impl Only {
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Only::Off(key) | Only::False(key) | Only::On(key) | Only::One(key) | Only::Text(key, _) => key,
        }
    }
}

/// Keys that change the computation in a way that no model here follows.
pub(crate) const ONLY: &[Only] = &[
    Only::Off("add_cross_attention"),
    Only::Off("cross_attention_hidden_size"),
    Only::Off("pruned_heads"),
    Only::Off("tie_encoder_decoder"),
];

/// Keys that only mixtures of experts have.
pub(crate) const EXPERTS: &[&str] =
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok"];

/// Keys that say how weights are quantized.
pub(crate) const QUANTIZATION: &[&str] = &["quantization_config", "compression_config"];

/// The key of a model whose code comes with its checkpoint.
pub(crate) const REMOTE_CODE: &str = "auto_map";
