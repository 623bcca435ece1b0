//! RemBERT (Chung et al. 2020, arXiv:2010.12821), as `transformers/models/rembert` has it: BERT with embeddings of a size of
//! their own, and a projection to the vocabulary that takes features of a third size.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context};
use crate::layers::heads::{DecoderBias, HeadSizes, MaskedLm, TextHeads, Tied};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "rembert",
    class_prefix: "RemBert",
    base: "rembert",
    keys: &[bert::KEYS, &["input_embedding_size", "output_embedding_size"]],
    only: &[encoder::NO_DECODER],
    // Dropout, and the size of embeddings by a name that is not read.
    irrelevant_keys: &["classifier_dropout_prob", "embedding_dropout_prob", "embedding_size"],
    build,
    ..bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 250_300,
        hidden_size: 1152,
        intermediate_size: 4608,
        num_attention_heads: 18,
        num_hidden_layers: 32,
        ..Defaults::BERT
    };
    let mut s = bert::settings(b.config, &defaults)?;
    s.embedded = b.config.size("input_embedding_size", 256)?;
    let given = b.config.size("output_embedding_size", 1664)?;
    let (x, mask) = bert::embeddings(b, &s)?;
    let x = b.linear(x, "encoder.embedding_hidden_mapping_in", s.hidden, s.embedded)?;
    let hidden = encoder::layers(b, &s, &LAYER, x, Context::of_mask(mask))?;
    let heads = TextHeads {
        masked: MaskedLm {
            transform: "cls.predictions.dense",
            norm: "cls.predictions.LayerNorm",
            decoder: "cls.predictions.decoder",
            bias: DecoderBias::Own,
            activation: s.activation,
            // Whatever `tie_word_embeddings` says.
            tied: Tied::Never,
        },
        ..TextHeads::bert(s.activation)
    };
    heads.finish(b, &HeadSizes { embedded: given, ..s.head_sizes() }, hidden, task)?;
    Ok(s.properties(s.positions.value))
}
