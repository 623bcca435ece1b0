//! GTE (Zhang et al. 2024, arXiv:2407.19669), as `transformers/models/gte` has it: BERT with rotary embedding and a gated
//! feed-forward.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{bert, nomic_bert, roberta};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Defaults, Encoded, FeedForward, Projections};
use crate::layers::builder::Builder;
use crate::layers::heads::{DecoderBias, MaskedLm, Pooling, TextHeads};
use crate::layers::rope;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gte",
    class_prefix: "Gte",
    base: "gte",
    // What the model is called in the checkpoints of its authors.
    renamed: &[
        ("embeddings.", "new.embeddings."),
        ("encoder.", "new.encoder."),
        ("pooler.", "new.pooler."),
        ("lm_head.layer_norm", "lm_head.norm"),
    ],
    // Heads of other tasks.
    unused_tensors: &["pooler.", "new.pooler.", "lm_head.", "classifier."],
    build,
    ..nomic_bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 250_048, max_position_embeddings: 8192, ..nomic_bert::DEFAULTS };
    let defaults = Defaults { activation: ("hidden_act", "gelu"), ..defaults };
    let mut s = nomic_bert::read(b, &defaults, ["attn_ln", "mlp_ln"])?;
    (s.names.layers, s.names.attention) = ("encoder.layer", "attention");
    s.projections = Projections::Packed("qkv_proj");
    (s.input_bias, s.output_bias, s.down_bias) = (true, true, true);
    s.feed_forward = FeedForward::Packed { both: "up_gate_proj", last: true, down: "down_proj" };
    s.rope = rope::Defaults { theta: 160_000.0, ..rope::Defaults::default() };
    let types = bert::any_token_types(b, 1)?;
    let Encoded { hidden, properties, .. } = blocks::encoder(b, &s, |b, ids| {
        let words = b.embedding(ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
        let types = match types {
            None => None,
            Some(types) if types.value == 1 => Some(roberta::type_of_all(b, types, s.hidden)?),
            Some(types) => {
                let ids = b.input(names::TOKEN_TYPES, types.signed());
                Some(b.embedding(ids, "embeddings.token_type_embeddings", types, s.hidden)?)
            }
        };
        let sum = types.map_or(Ok(words), |types| b.add(words, types, "embeddings.add"))?;
        b.layer_norm(sum, "embeddings.LayerNorm", s.hidden, s.eps)
    })?;
    let masked = MaskedLm { bias: DecoderBias::Own, ..TextHeads::roberta().masked };
    let sequence = (Pooling::Dense("pooler.dense", Activation::TANH), "classifier");
    TextHeads { pooler: None, masked, sequence }.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(properties)
}
