//! ELECTRA (Clark et al. 2020, arXiv:2003.10555), as `transformers/models/electra` has it: BERT with embeddings of a size of
//! their own.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context};
use crate::layers::heads::TextHeads;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "electra",
    class_prefix: "Electra",
    base: "electra",
    keys: &[bert::KEYS, &["embedding_size"]],
    // Heads of other tasks.
    irrelevant_keys: &["summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"],
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "generator_predictions.",
        "generator_lm_head.",
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
    TextHeads::electra(Activation::GELU).finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}
