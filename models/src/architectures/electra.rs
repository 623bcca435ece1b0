//! ELECTRA (Clark et al. 2020, arXiv:2003.10555), as `transformers/models/electra` has it: BERT with embeddings of a size of
//! their own.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, Settings};
use crate::layers::heads::TextHeads;
use crate::layers::pooling::{self, Pooling, Summary};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "electra",
    class_prefix: "Electra",
    base: "electra",
    keys: &[bert::KEYS, pooling::SUMMARY_KEYS, &["embedding_size"]],
    irrelevant_keys: pooling::SUMMARY_DROPOUT,
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "generator_predictions.",
        "generator_lm_head.",
        "sequence_summary.",
        "discriminator_predictions.",
        "classifier.",
        "qa_outputs.",
    ],
    build,
    ..bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { hidden_size: 256, intermediate_size: 1024, num_attention_heads: 4, ..Defaults::BERT };
    let mut s = bert::settings(b.config, &defaults)?;
    s.embedded = b.config.size("embedding_size", 128)?;
    let (mut x, mask) = bert::embeddings(b, &s)?;
    if s.embedded.value != s.hidden.value {
        x = b.linear(x, "embeddings_project", s.hidden, s.embedded)?;
    }
    let hidden = encoder::layers(b, &s, &LAYER, x, Context::of_mask(mask))?;
    if task == Task::TokenClassification && is_discriminator(b) {
        discriminate(b, &s, hidden)?;
        return Ok(s.properties(s.positions.value));
    }
    let choice = Some(Pooling::Summary(Summary::FIRST));
    TextHeads { choice, ..TextHeads::electra(Activation::GELU) }.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}

/// The head of `ElectraForPreTraining` of the transformers library.
const DISCRIMINATOR: &str = "discriminator_predictions";

/// Whether the checkpoint has the head of the discriminator, and no classifier.
fn is_discriminator(b: &Builder<'_>) -> bool {
    let stored = |module: &str| b.tensors.contains(&format!("{module}.weight"));
    stored(&format!("{DISCRIMINATOR}.dense")) && !stored("classifier")
}

/// `logits` of each token to be another one than that of the original text: [batch_size, sequence_length, 1].
fn discriminate(b: &mut Builder<'_>, s: &Settings, x: ValueId) -> Result<(), ModelError> {
    let at = |name: &str| format!("{DISCRIMINATOR}.{name}");
    let dense = b.linear(x, &at("dense"), s.hidden, s.hidden)?;
    let active = s.activation.apply(b, dense, &at("activation"))?;
    let logits = b.linear(active, &at("dense_prediction"), Size::derived(1, "one score of a token"), s.hidden)?;
    b.give(names::LOGITS, logits);
    Ok(())
}
