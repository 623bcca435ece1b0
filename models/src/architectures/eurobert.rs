//! EuroBERT (Boizard et al. 2025, arXiv:2503.05500), as `transformers/models/eurobert` has it: Llama as an encoder.

use planish_ir::ops::Linear;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Encoded, Settings};
use crate::layers::builder::Builder;
use crate::layers::{heads, rope};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "eurobert",
    class_prefix: "EuroBert",
    tasks: &[Task::FeatureExtraction, Task::FillMask],
    keys: &[rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "mlp_bias", "pad_token_id", "rms_norm_eps"]],
    // How a head of another task pools, and the pieces that products are cut into.
    irrelevant_keys: &["classifier_pooling", "pretraining_tp"],
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
            max_position_embeddings: 8192,
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    let embed = |b: &mut Builder<'_>, ids| b.embedding(ids, EMBEDDINGS, s.vocabulary, s.hidden);
    let Encoded { hidden, properties, .. } = blocks::encoder(b, &s, embed)?;
    if task == Task::FeatureExtraction {
        b.give(names::HIDDEN, hidden);
        return Ok(properties);
    }
    let tied = b.config.boolean("tie_word_embeddings", false)?;
    let embeddings = format!("{EMBEDDINGS}.weight");
    let weight = heads::vocabulary_weight(b, HEAD, &embeddings, tied, [s.vocabulary, s.hidden])?;
    // `mlp_bias` counts for the head too.
    let bias = s.feed_forward_bias.then(|| b.weight(&["lm_head.bias"], &[s.vocabulary])).transpose()?;
    let logits = b.emit(Linear::new(hidden, weight, bias), HEAD)?;
    b.give(names::LOGITS, logits);
    Ok(properties)
}
