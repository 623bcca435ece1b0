//! BLOOM (BigScience 2022, arXiv:2211.05100), as `transformers/models/bloom` has it: linear biases of attention in place of
//! positions, normalized embeddings, and queries, keys and values from one projection.

use planish_ir::ops::GeluForm;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
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
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const PARTS: &str = "pretraining_tp";
const SLOW: &str = "slow_but_exact";

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
