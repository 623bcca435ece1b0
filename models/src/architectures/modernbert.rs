//! ModernBERT (Warner et al. 2024, arXiv:2412.13663), as `transformers/models/modernbert` has it: an encoder with norms before
//! attention and feed-forward, and windows on both sides with a rotary embedding of their own in two of three layers.

use planish_ir::ValueId;
use planish_ir::ops::Linear;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Config;
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, Encoded, FeedForward, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::encoder;
use crate::layers::heads;
use crate::layers::norm::Norm;
use crate::layers::pooling;
use crate::layers::rope::{self, Layers};
use crate::layers::windows::Windows;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "modernbert",
    class_prefix: "ModernBert",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: encoder::TASKS,
    keys: &[rope::SHARED_KEYS, blocks::KEYS, KEYS, &["pad_token_id"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[
        // Training.
        "embedding_dropout",
        "initializer_cutoff_factor",
        "mlp_dropout",
        "sparse_pred_ignore_index",
        "sparse_prediction",
        // How the transformers library computes.
        "deterministic_flash_attn",
        "reference_compile",
        "repad_logits_with_grad",
        // What published configurations repeat of BERT; `norm_eps` and rotary embedding count.
        "layer_norm_eps",
        "position_embedding_type",
    ],
    // Heads of other tasks.
    unused_tensors: &["head.", "decoder.", "classifier."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The configuration keys that its decoder reads too.
pub(crate) const KEYS: &[&str] = &[
    "attention_bias",
    "classifier_activation",
    "classifier_bias",
    "classifier_pooling",
    "decoder_bias",
    "global_attn_every_n_layers",
    GLOBAL_THETA,
    "hidden_activation",
    "layer_types",
    "local_attention",
    LOCAL_THETA,
    "mlp_bias",
    "norm_bias",
    "norm_eps",
];

const GLOBAL_THETA: &str = "global_rope_theta";
const LOCAL_THETA: &str = "local_rope_theta";
pub(crate) const EMBEDDINGS: &str = "embeddings.tok_embeddings";

/// Reads what its decoder has in common.
pub(crate) fn settings(b: &Builder<'_>) -> Result<Settings, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50368,
            max_position_embeddings: Some(8192),
            hidden_size: 768,
            intermediate_size: Some(1152),
            num_hidden_layers: 22,
            num_attention_heads: 12,
            activation: ("hidden_activation", "gelu"),
            eps: ("norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.norm = Norm::Layer { bias: b.config.boolean("norm_bias", false)? };
    s.attention_norms = Around::before("attn_norm");
    s.feed_forward_norms = Around::before("mlp_norm");
    s.first_is_normal = true;
    s.projections = Projections::Packed("Wqkv");
    s.feed_forward = FeedForward::Packed { both: "Wi", last: false, down: "Wo" };
    (s.names.attention, s.names.output, s.names.final_norm) = ("attn", "Wo", Some("final_norm"));
    let every = b.config.optional_size("global_attn_every_n_layers", Some(3))?.unwrap_or(1);
    // A token sees as many on either side as half of this, and itself.
    let window = b.config.size("local_attention", 128)?.value / 2 + 1;
    s.windows = Windows::read(b.config, s.layers, Some(window), |layer| !layer.is_multiple_of(every))?;
    let defaults = rope::Defaults::default();
    s.rope = rope::Defaults { layers: Layers::Full, theta_key: GLOBAL_THETA, theta: 160_000.0, ..defaults };
    s.local_rope =
        Some(rope::Defaults { layers: Layers::Sliding { scaled: true }, theta_key: LOCAL_THETA, ..defaults });
    Ok(s)
}

/// The module that the heads of all tasks have.
const HEAD: &str = "head";

/// What the heads of all tasks have in common.
pub(crate) struct Head {
    activation: Activation,
    /// Whether its projection has a bias.
    pub(crate) bias: bool,
    /// Whether the projection to the vocabulary has.
    pub(crate) decoder_bias: bool,
    mean: bool,
}

impl Head {
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        const POOLING: &str = "classifier_pooling";
        Ok(Self {
            activation: Activation::read(config, "classifier_activation", "gelu")?,
            bias: config.boolean("classifier_bias", false)?,
            decoder_bias: config.boolean("decoder_bias", true)?,
            mean: match config.text(POOLING, "cls")? {
                "cls" => false,
                "mean" => true,
                other => return Err(config.error(format!("`{POOLING}` is \"{other}\", expected \"cls\" or \"mean\""))),
            },
        })
    }

    /// `norm(activation(dense(x)))`.
    pub(crate) fn apply(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let x = b.projection(x, &at("dense"), [s.hidden, s.hidden], self.bias)?;
        let x = self.activation.apply(b, x, &at("act"))?;
        s.norm.apply(b, x, &at("norm"), s.hidden, s.eps)
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let (s, head) = (settings(b)?, Head::read(b.config)?);
    let Encoded { hidden, mask, properties } = blocks::encoder(b, &s, |b, ids| {
        let x = b.embedding(ids, EMBEDDINGS, s.vocabulary, s.hidden)?;
        s.norm.apply(b, x, "embeddings.norm", s.hidden, s.eps)
    })?;
    match task {
        Task::FeatureExtraction => b.give(names::HIDDEN, hidden),
        Task::FillMask => {
            let x = head.apply(b, &s, hidden, HEAD)?;
            let tied = b.config.boolean("tie_word_embeddings", true)?;
            let embeddings = format!("{EMBEDDINGS}.weight");
            let weight = heads::vocabulary_weight(b, "decoder", &embeddings, tied, [s.vocabulary, s.hidden])?;
            let bias = if head.decoder_bias { Some(b.weight(&["decoder.bias"], &[s.vocabulary])?) } else { None };
            let logits = b.emit(Linear::new(x, weight, bias), "decoder")?;
            b.give(names::LOGITS, logits);
        }
        Task::TextClassification | Task::MultipleChoice => {
            let pooled = match (head.mean, task) {
                (true, _) => heads::mean_token(b, hidden, mask, "pooled")?,
                // The library finds the first token after padding in this class alone.
                (false, Task::MultipleChoice) => pooling::first_kept(b, hidden, mask, "pooled")?,
                (false, _) => heads::first_token(b, hidden, "pooled")?,
            };
            let x = head.apply(b, &s, pooled, HEAD)?;
            match task {
                Task::MultipleChoice => heads::choose(b, s.hidden, x, "classifier")?,
                _ => heads::classify(b, s.hidden, x, "classifier")?,
            }
        }
        Task::TokenClassification => {
            let x = head.apply(b, &s, hidden, HEAD)?;
            heads::classify(b, s.hidden, x, "classifier")?;
        }
        Task::QuestionAnswering => {
            let x = head.apply(b, &s, hidden, HEAD)?;
            heads::answer(b, s.hidden, x, "classifier")?;
        }
        _ => {
            return Err(ARCHITECTURE.without(task));
        }
    }
    Ok(properties)
}
