//! GTE (Zhang et al. 2024, arXiv:2407.19669), as `transformers/models/gte` has it: BERT with rotary embedding and a gated
//! feed-forward.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{bert, llama, nomic_bert, roberta};
use crate::checkpoint::config_keys::Only;
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
    // The model is `new` in the checkpoints of its authors. The transformers library saves all names with that prefix.
    other_bases: &["new.gte", "new"],
    renamed: &[
        ("lm_head.layer_norm", "lm_head.norm"),
        ("encoder.layer", "layers"),
        ("attention.qkv_proj", nomic_bert::QUERIES_KEYS_VALUES),
        ("attention.o_proj", "self_attn.o_proj"),
        ("up_gate_proj", "{up_proj,gate_proj}"),
        ("attn_ln", "post_attention_layernorm"),
        ("mlp_ln", "post_mlp_layernorm"),
    ],
    tasks: nomic_bert::ARCHITECTURE.tasks,
    keys: &[rope::KEYS, blocks::KEYS, nomic_bert::KEYS],
    // What configurations of the authors' code may say.
    only: &[
        Only::Text("layer_norm_type", "layer_norm"),
        Only::Off("logn_attention_scale"),
        Only::On("pack_qkv"),
        Only::Text("position_embedding_type", "rope"),
    ],
    irrelevant_keys: &[
        // How the authors' code computes the same.
        "unpad_inputs",
        "use_memory_efficient_attention",
        // Of scores that are refused.
        "logn_attention_clip1",
    ],
    // Heads of other tasks.
    unused_tensors: &["pooler.", "lm_head.", "classifier."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The same, as its authors' code calls it.
pub(crate) const NEW: Architecture =
    Architecture { model_type: "new", class_prefix: "New", build: build_new, ..ARCHITECTURE };

fn build_new(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const THETA: &str = "rope_theta";
    match b.config.get(THETA) {
        Some(_) => build(b, task),
        None => Err(b.config.error(format!(
            "`{THETA}` is missing: models of the type `{}` have no default that planish knows; set it to the base of the \
             rotary frequencies that the model was trained with",
            NEW.model_type
        ))),
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 250_048, max_position_embeddings: Some(8192), ..nomic_bert::DEFAULTS };
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
                let ids = b.input(names::TOKEN_TYPES, types.signed())?;
                Some(b.embedding(ids, "embeddings.token_type_embeddings", types, s.hidden)?)
            }
        };
        let sum = types.map_or(Ok(words), |types| b.add(words, types, "embeddings.add"))?;
        b.layer_norm(sum, "embeddings.LayerNorm", s.hidden, s.eps)
    })?;
    let masked = MaskedLm { bias: DecoderBias::Own, ..TextHeads::roberta().masked };
    let sequence = (Pooling::Dense("pooler.dense", Activation::TANH), "classifier");
    TextHeads { pooler: None, masked, sequence, choice: None }.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(properties)
}
