//! Falcon (Almazrouei et al. 2023, arXiv:2311.16867), as `transformers/models/falcon` has it: one head of keys and values, or
//! a few, attention and feed-forward side by side, and rotary embedding or linear biases of attention.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::Size;
use crate::layers::alibi::{self, Alibi};
use crate::layers::blocks::{self, Around, Defaults, FeedForward, Places, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Positions};
use crate::layers::norm::Norm;
use crate::layers::rope;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "falcon",
    class_prefix: "Falcon",
    base: "transformer",
    other_bases: &[],
    tasks: decoder::TASKS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &[
            "activation",
            "alibi",
            "bias",
            "layer_norm_epsilon",
            "multi_query",
            "new_decoder_architecture",
            NORMS,
            "parallel_attn",
        ],
    ],
    older_keys: &[
        ("ffn_hidden_size", "intermediate_size"),
        ("n_embed", "hidden_size"),
        ("num_kv_heads", "num_key_value_heads"),
    ],
    // Training.
    irrelevant_keys: &["hidden_dropout"],
    unused_tensors: &[".rotary_emb.inv_freq", "rotary_emb.inv_freq", "score.", "classifier.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const NORMS: &str = "num_ln_in_parallel_attn";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 65024,
            hidden_size: 4544,
            intermediate_size: None,
            num_attention_heads: 71,
            activation: ("activation", "gelu"),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    (s.names.embeddings, s.names.layers, s.names.final_norm) = ("word_embeddings", "h", Some("ln_f"));
    (s.names.attention, s.names.output) = ("self_attention", "dense");
    s.norm = Norm::Layer { bias: true };
    s.feed_forward = FeedForward::Plain { up: "dense_h_to_4h", down: "dense_4h_to_h" };
    let bias = b.config.boolean("bias", false)?;
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (bias, bias, bias);
    s.tied = true;
    s.token_classifier = Classifier::Own;
    keys(b, &mut s)?;
    norms(b, &mut s)?;
    if b.config.boolean("alibi", false)? {
        let factor = 1.0 / (s.heads.size.value as f64).sqrt();
        s.places = Places::Alibi(Alibi { places: alibi::Places::KeptInBfloat16, factor });
        s.position_source = Positions::Counted;
    }
    blocks::decoder(b, &s, task)
}

/// Sets the heads of keys and values, and how they are stored: those of each group of queries after these.
fn keys(b: &Builder<'_>, s: &mut Settings) -> Result<(), ModelError> {
    let multi_query = b.config.boolean("multi_query", true)?;
    if b.config.boolean("new_decoder_architecture", false)? {
        s.repeats_keys = true;
    } else if multi_query {
        s.heads.keys = Size::derived(1, "multi_query");
    } else if s.heads.keys.value != s.heads.queries.value {
        return Err(b.config.error(format!(
            "`num_kv_heads` is {}, but {}: without `new_decoder_architecture` and `multi_query` there are as many",
            s.heads.keys.value, s.heads.queries
        )));
    }
    s.projections = Projections::Grouped { name: "query_key_value", groups: s.heads.keys, values_first: false };
    Ok(())
}

/// Sets the norms: those of attention and feed-forward, or one for both.
fn norms(b: &Builder<'_>, s: &mut Settings) -> Result<(), ModelError> {
    let new = b.config.boolean("new_decoder_architecture", false)?;
    s.parallel = b.config.boolean("parallel_attn", true)?;
    let count = b.config.optional_size(NORMS, None)?.unwrap_or(if new { 2 } else { 1 });
    match (s.parallel, new, count) {
        (false, true, _) => {
            Err(b.config.error("`parallel_attn` is false, but `new_decoder_architecture` is true: set it to true"))
        }
        (false, false, _) => Ok(()),
        (true, true, 2) => {
            (s.attention_norms, s.feed_forward_norms) = (Around::before("ln_attn"), Around::before("ln_mlp"));
            Ok(())
        }
        (true, _, 1) => {
            s.feed_forward_norms.before = None;
            Ok(())
        }
        (true, _, count) => Err(b
            .config
            .error(format!("`{NORMS}` is {count}, expected 1, or 2 where `new_decoder_architecture` is true"))),
    }
}
