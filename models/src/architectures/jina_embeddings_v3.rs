//! Jina Embeddings v3 (Sturua et al. 2024, arXiv:2409.10173), as `transformers/models/jina_embeddings_v3` has it: XLM-RoBERTa
//! with rotary embedding.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{bert, llama, nomic_bert, roberta};
use crate::layers::blocks::{self, Defaults, Encoded, FeedForward, Projections};
use crate::layers::builder::Builder;
use crate::layers::encoder;
use crate::layers::heads::TextHeads;
use crate::layers::rope;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "jina_embeddings_v3",
    class_prefix: "JinaEmbeddingsV3",
    base: "roberta",
    tasks: encoder::WITHOUT_CHOICES,
    keys: &[rope::KEYS, blocks::KEYS, nomic_bert::KEYS],
    irrelevant_keys: &[],
    // Heads of other tasks.
    unused_tensors: &["pooler.", "lm_head.", "classifier.", "qa_outputs."],
    renamed: &[
        ("encoder.layers", "layers"),
        ("emb_ln", "embeddings.LayerNorm"),
        ("mixer.Wqkv", nomic_bert::QUERIES_KEYS_VALUES),
        ("mixer.out_proj", "self_attn.o_proj"),
        ("norm1", "post_attention_layernorm"),
        ("norm2", "post_mlp_layernorm"),
    ],
    build,
    gguf: None,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 250_002,
        max_position_embeddings: Some(8194),
        hidden_size: 1024,
        intermediate_size: Some(4096),
        num_hidden_layers: 24,
        num_attention_heads: 16,
        activation: ("hidden_act", "gelu"),
        eps: ("layer_norm_eps", 1e-5),
        ..nomic_bert::DEFAULTS
    };
    let mut s = nomic_bert::read(b, &defaults, ["norm1", "norm2"])?;
    (s.names.layers, s.names.attention, s.names.output) = ("encoder.layers", "mixer", "out_proj");
    s.projections = Projections::Packed("Wqkv");
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (true, true, true);
    s.feed_forward = FeedForward::Plain { up: "fc1", down: "fc2" };
    s.rope = rope::Defaults { theta: 20_000.0, ..rope::Defaults::default() };
    let types = bert::token_types(b)?;
    let Encoded { hidden, properties, .. } = blocks::encoder(b, &s, |b, ids| {
        let words = b.embedding(ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
        let types = roberta::type_of_all(b, types, s.hidden)?;
        let sum = b.add(words, types, "embeddings.add")?;
        b.layer_norm(sum, "emb_ln", s.hidden, s.eps)
    })?;
    TextHeads::roberta().finish(b, &s.head_sizes(), hidden, task)?;
    Ok(properties)
}
