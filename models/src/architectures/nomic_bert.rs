//! NomicBERT (Nussbaum et al. 2024, arXiv:2402.01613), as `transformers/models/nomic_bert` has it: BERT with rotary embedding, a
//! gated feed-forward and no biases.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{bert, llama};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, Encoded, FeedForward, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::heads::{MaskedLm, Pooling, TextHeads};
use crate::layers::norm::Norm;
use crate::layers::rope;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "nomic_bert",
    class_prefix: "NomicBert",
    base: "nomic_bert",
    tasks: &[Task::FeatureExtraction, Task::FillMask, Task::TextClassification, Task::TokenClassification],
    keys: &[rope::KEYS, blocks::KEYS, KEYS],
    irrelevant_keys: &[],
    // Heads of other tasks.
    unused_tensors: &["pooler.", "cls.", "classifier."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The configuration keys of its relatives too.
pub(crate) const KEYS: &[&str] = &["hidden_act", "layer_norm_eps", "pad_token_id", "type_vocab_size"];

/// The defaults of a configuration, of its relatives for the most part too.
pub(crate) const DEFAULTS: Defaults = Defaults {
    vocab_size: 30528,
    hidden_size: 768,
    intermediate_size: 3072,
    num_hidden_layers: 12,
    num_attention_heads: 12,
    eps: ("layer_norm_eps", 1e-12),
    ..Defaults::LLAMA
};

/// Reads what its relatives have too: norms of sums, and none of what the last layer gives.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults, norms: [&'static str; 2]) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.norm = Norm::Layer { bias: true };
    let [attention, feed_forward] = norms;
    (s.attention_norms, s.feed_forward_norms) = (Around::sum(attention), Around::sum(feed_forward));
    s.names.final_norm = None;
    Ok(s)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b, &DEFAULTS, ["norm1", "norm2"])?;
    (s.names.layers, s.names.attention, s.names.output) = ("encoder.layers", "attn", "out_proj");
    s.projections = Projections::Packed("Wqkv");
    s.feed_forward = FeedForward::Gated { gate: "fc12", up: "fc11", down: "fc2" };
    s.rope = rope::Defaults { theta: 1000.0, ..rope::Defaults::default() };
    let types = bert::token_types(b)?;
    let Encoded { hidden, properties, .. } = blocks::encoder(b, &s, |b, ids| {
        let words = b.embedding(ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
        let token_type_ids = b.input(names::TOKEN_TYPES, types.signed());
        let types = b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.hidden)?;
        let sum = b.add(words, types, "embeddings.add")?;
        b.layer_norm(sum, "emb_ln", s.hidden, s.eps)
    })?;
    let bert = TextHeads::bert(s.activation);
    let masked = MaskedLm { norm: "cls.predictions.transform.layer_norm", ..bert.masked };
    let sequence = (Pooling::Dense("pooler.dense", Activation::TANH), "classifier");
    TextHeads { pooler: None, masked, sequence }.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(properties)
}
