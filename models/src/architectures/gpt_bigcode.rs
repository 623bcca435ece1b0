//! GPT-BigCode (Ben Allal et al. 2023, arXiv:2301.03988), as `transformers/models/gpt_bigcode` has it: GPT-2 with linear layers
//! and one head of keys and values.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{gptj, llama};
use crate::checkpoint::config::Size;
use crate::layers::blocks::{self, Around, Defaults, FeedForward, Places, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier};
use crate::layers::norm::Norm;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gpt_bigcode",
    class_prefix: "GPTBigCode",
    base: "transformer",
    other_bases: &[],
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[
        decoder::KEYS,
        blocks::KEYS,
        &["activation_function", "layer_norm_epsilon", "multi_query", "scale_attn_weights"],
    ],
    older_keys: gptj::OLDER_KEYS,
    irrelevant_keys: &[
        // How scores are computed in half precision.
        "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32",
        // How the transformers library ran it.
        "inference_runner",
        "max_batch_size",
        "max_sequence_length",
        "n_ctx",
        "pad_key_length",
        "pre_allocate_kv_cache",
        "runner_max_sequence_length",
        "validate_runner_input",
        // A head of another task.
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    ],
    unused_tensors: &[".attn.bias", ".attn.masked_bias", "score.", "classifier."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50257,
            max_position_embeddings: Some(1024),
            hidden_size: 768,
            intermediate_size: None,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            activation: ("activation_function", "gelu_pytorch_tanh"),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    (s.names.embeddings, s.names.layers, s.names.final_norm) = ("wte", "h", Some("ln_f"));
    (s.names.attention, s.names.output) = ("attn", "c_proj");
    s.norm = Norm::Layer { bias: true };
    (s.attention_norms, s.feed_forward_norms) = (Around::before("ln_1"), Around::before("ln_2"));
    s.feed_forward = FeedForward::Plain { up: "c_fc", down: "c_proj" };
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (true, true, true);
    s.places = Places::Table { module: "wpe", first: 0 };
    s.heads.keys = match b.config.boolean("multi_query", true)? {
        true => Size::derived(1, "multi_query"),
        false => s.heads.queries,
    };
    s.projections = Projections::Grouped { name: "c_attn", groups: s.heads.keys, values_first: false };
    if !b.config.boolean("scale_attn_weights", true)? {
        s.scale = 1.0;
    }
    s.tied = true;
    s.token_classifier = Classifier::Own;
    blocks::decoder(b, &s, task)
}
