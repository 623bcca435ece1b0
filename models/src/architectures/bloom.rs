//! BLOOM (BigScience 2022, arXiv:2211.05100), as `transformers/models/bloom` has it: linear biases of attention in place of
//! positions, normalized embeddings, and queries, keys and values from one projection.

use planish_ir::ops::GeluForm;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::{Kind, Names};
use crate::layers::activation::Activation;
use crate::layers::alibi::{self, Alibi};
use crate::layers::blocks::{self, Defaults, FeedForward, Places, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Positions};
use crate::layers::norm::Norm;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "bloom",
    class_prefix: "Bloom",
    base: "transformer",
    other_bases: &[],
    tasks: decoder::TASKS,
    keys: &[
        decoder::KEYS,
        blocks::KEYS_WITHOUT_LENGTH,
        &["apply_residual_connection_post_layernorm", "layer_norm_epsilon", PARTS, SLOW],
    ],
    older_keys: &[("n_embed", "hidden_size"), ("n_head", "num_attention_heads"), ("n_layer", "num_hidden_layers")],
    irrelevant_keys: &[
        // Training.
        "hidden_dropout",
        "seq_length",
        // How sums of products are ordered.
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "offset_alibi",
        "skip_bias_add",
        "skip_bias_add_qkv",
        "unk_token_id",
    ],
    unused_tensors: &["score.", "classifier.", "qa_outputs."],
    gguf: Some(&Kind {
        name: "bloom",
        class: "BloomForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: configure_gguf,
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

const PARTS: &str = "pretraining_tp";
const SLOW: &str = "slow_but_exact";

/// The names of tensors in GGUF files.
const GGUF_NAMES: Names = Names {
    model: &[
        ("token_embd", "transformer.word_embeddings"),
        ("token_embd_norm", "transformer.word_embeddings_layernorm"),
        ("output_norm", "transformer.ln_f"),
        ("output", "lm_head"),
    ],
    layers: "transformer.h.",
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_qkv", "self_attention.query_key_value"),
        ("attn_output", "self_attention.dense"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_up", "mlp.dense_h_to_4h"),
        ("ffn_down", "mlp.dense_4h_to_h"),
    ],
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    const EPS: &str = "attention.layer_norm_epsilon";
    let (hidden, heads) = (c.required("embedding_length")?, c.required("attention.head_count")?);
    c.set("hidden_size", hidden);
    c.set("num_attention_heads", heads);
    c.set("num_hidden_layers", c.required("block_count")?);
    c.set("layer_norm_epsilon", c.number(EPS)?.ok_or_else(|| c.unexpected(EPS, "a number"))?);
    // Biases of attention take the place of positions, so any length is computed.
    c.size("context_length")?;
    if c.size("feed_forward_length")?.is_some_and(|inner| inner != 4 * hidden) {
        return Err(c.unexpected("feed_forward_length", &format!("{}, four times the features", 4 * hidden)));
    }
    if c.size("attention.head_count_kv")?.is_some_and(|own| own != heads) {
        return Err(c.unexpected("attention.head_count_kv", &format!("{heads}, the number of heads")));
    }
    c.check(hidden / heads)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 250_880,
            max_position_embeddings: None,
            hidden_size: 64,
            intermediate_size: None,
            num_hidden_layers: 2,
            num_attention_heads: 8,
            fixed_activation: Some(Activation::Gelu(GeluForm::Tanh)),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.names.embeddings = "word_embeddings";
    s.names.embedding_norm = Some("word_embeddings_layernorm");
    (s.names.layers, s.names.final_norm) = ("h", Some("ln_f"));
    (s.names.attention, s.names.output) = ("self_attention", "dense");
    s.norm = Norm::Layer { bias: true };
    s.places = Places::Alibi(Alibi { places: alibi::Places::Kept, factor: 1.0 });
    s.position_source = Positions::Counted;
    s.projections = Projections::Grouped { name: "query_key_value", groups: s.heads.queries, values_first: false };
    s.feed_forward = FeedForward::Plain { up: "dense_h_to_4h", down: "dense_4h_to_h" };
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (true, true, true);
    s.residual_is_normal = b.config.boolean("apply_residual_connection_post_layernorm", false)?;
    s.tied = true;
    s.token_classifier = Classifier::Own;
    let parts = b.config.given_size(&[PARTS])?.map_or(1, |parts| parts.value);
    if b.config.boolean(SLOW, false)? && parts > 1 {
        return Err(b.config.error(format!(
            "`{SLOW}` is true and `{PARTS}` above 1: the transformers library then leaves out biases, which is not supported; \
             remove `{SLOW}`"
        )));
    }
    blocks::decoder(b, &s, task)
}
