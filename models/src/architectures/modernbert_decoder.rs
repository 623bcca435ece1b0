//! The decoders of Ettin (Weller et al. 2025, arXiv:2507.11412), as `transformers/models/modernbert_decoder` has them: ModernBERT
//! whose tokens see only those before them, with a projection each to queries, keys and values.

use planish_ir::ValueId;
use planish_ir::ops::Linear;

use crate::architecture::{Architecture, Properties};
use crate::architectures::modernbert::{self, Head};
use crate::layers::blocks::{self, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::Windows;
use crate::layers::{decoder, heads, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "modernbert-decoder",
    class_prefix: "ModernBertDecoder",
    tasks: decoder::OF_TEXTS,
    keys: &[decoder::KEYS, rope::SHARED_KEYS, blocks::KEYS, modernbert::KEYS, &[WINDOW]],
    // Heads of other tasks.
    unused_tensors: &["lm_head.", "head.", "decoder.", "classifier."],
    pad_token_id: Some(50283),
    build,
    ..modernbert::ARCHITECTURE
};

const WINDOW: &str = "sliding_window";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let (mut s, head) = (modernbert::settings(b)?, Head::read(b.config)?);
    s.projections = Projections::Apart;
    (s.names.embeddings, s.names.embedding_norm) = (modernbert::EMBEDDINGS, Some("embeddings.norm"));
    let half = b.config.size("local_attention", 128)?.value / 2;
    let window = b.config.given_size(&[WINDOW])?.map_or(half, |size| size.value);
    if window == 0 {
        return Err(b.config.error("`local_attention` is 1: a token would see no token, not even itself"));
    }
    s.windows = Windows::in_layers(window, (0..s.layers.value).map(|layer| s.windows.of(layer).is_some()).collect());
    let decoded = blocks::decode(b, &s, task)?;
    if task == Task::TextClassification {
        let last = decoded.decoder.last_token(b, decoded.hidden)?;
        let x = head.apply(b, &s, last, "head")?;
        match head.bias {
            true => heads::classify(b, s.hidden, x, "classifier")?,
            false => heads::classify_without_bias(b, s.hidden, x, "classifier")?,
        }
        return Ok(decoded.properties());
    }
    decoded.finish(b, &s, |_, b, x| logits(b, &s, &head, x))
}

/// The scores of the vocabulary.
fn logits(b: &mut Builder<'_>, s: &Settings, head: &Head, x: ValueId) -> Result<ValueId, ModelError> {
    const DECODER: &str = "decoder";
    let x = head.apply(b, s, x, "lm_head")?;
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let embeddings = format!("{}.weight", modernbert::EMBEDDINGS);
    let weight = heads::vocabulary_weight(b, DECODER, &embeddings, tied, [s.vocabulary, s.hidden])?;
    let bias = match head.decoder_bias {
        true => Some(b.weight(&[&format!("{DECODER}.bias")], &[s.vocabulary])?),
        false => None,
    };
    b.emit(Linear::new(x, weight, bias), DECODER)
}
