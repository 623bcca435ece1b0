//! EuroBERT (Boizard et al. 2025, arXiv:2503.05500), as `transformers/models/eurobert` has it: Llama as an encoder.

use planish_ir::ValueId;
use planish_ir::ops::Linear;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Defaults, Encoded, Settings};
use crate::layers::builder::Builder;
use crate::layers::{heads, rope};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "eurobert",
    class_prefix: "EuroBert",
    tasks: &[Task::FeatureExtraction, Task::FillMask, Task::TextClassification, Task::TokenClassification],
    keys: &[
        rope::KEYS,
        blocks::KEYS,
        &["attention_bias", POOLING, "hidden_act", "mlp_bias", "pad_token_id", "rms_norm_eps"],
    ],
    older_keys: &[("clf_pooling", POOLING)],
    // The pieces that products are cut into.
    irrelevant_keys: &["pretraining_tp"],
    // Heads of other tasks.
    unused_tensors: &["lm_head.", "dense.", "out_proj.", "classifier."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const EMBEDDINGS: &str = "embed_tokens";
    const HEAD: &str = "lm_head";
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 128_256,
            max_position_embeddings: Some(8192),
            hidden_size: 768,
            intermediate_size: Some(3072),
            num_hidden_layers: 12,
            num_attention_heads: 12,
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    let embed = |b: &mut Builder<'_>, ids| b.embedding(ids, EMBEDDINGS, s.vocabulary, s.hidden);
    let Encoded { hidden, mask, properties } = blocks::encoder(b, &s, embed)?;
    match task {
        Task::FeatureExtraction => b.give(names::HIDDEN, hidden),
        Task::TextClassification => classify(b, s.hidden, hidden, mask)?,
        Task::TokenClassification => heads::classify(b, s.hidden, hidden, "classifier")?,
        _ => {
            let tied = b.config.boolean("tie_word_embeddings", false)?;
            let embeddings = format!("{EMBEDDINGS}.weight");
            let weight = heads::vocabulary_weight(b, HEAD, &embeddings, tied, [s.vocabulary, s.hidden])?;
            // `mlp_bias` counts for the head too.
            let bias = s.feed_forward_bias.then(|| b.weight(&["lm_head.bias"], &[s.vocabulary])).transpose()?;
            let logits = b.emit(Linear::new(hidden, weight, bias), HEAD)?;
            b.give(names::LOGITS, logits);
        }
    }
    Ok(properties)
}

const POOLING: &str = "classifier_pooling";

/// What stands for a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pooling {
    First,
    Mean,
    /// The mean of the logits of the tokens.
    Late,
}

impl Pooling {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        match config.text(POOLING, "late")? {
            "bos" => Ok(Self::First),
            "mean" => Ok(Self::Mean),
            "late" => Ok(Self::Late),
            other => Err(config.error(format!("`{POOLING}` is \"{other}\", expected \"bos\", \"mean\" or \"late\""))),
        }
    }
}

/// `logits` of labels of each sequence.
fn classify(b: &mut Builder<'_>, hidden: Size, x: ValueId, mask: ValueId) -> Result<(), ModelError> {
    let pooling = Pooling::read(b.config)?;
    let pooled = match pooling {
        Pooling::First => heads::first_token(b, x, "pooled")?,
        Pooling::Mean => heads::mean_token(b, x, mask, "pooled")?,
        Pooling::Late => x,
    };
    let dense = b.linear(pooled, "dense", hidden, hidden)?;
    let active = Activation::GELU.apply(b, dense, "activation")?;
    let labels = b.config.labels()?;
    let logits = b.linear(active, "classifier", labels, hidden)?;
    let logits = if pooling == Pooling::Late { heads::mean_token(b, logits, mask, "classifier.mean")? } else { logits };
    b.give(names::LOGITS, logits);
    Ok(())
}
