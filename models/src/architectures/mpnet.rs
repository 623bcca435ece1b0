//! MPNet (Song et al. 2020, arXiv:2004.09297), as `transformers/models/mpnet` has it: BERT without token types, with positions
//! as RoBERTa counts them, and with biases of scores by relative position as T5 has them.

use planish_ir::Dim;

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults};
use crate::architectures::roberta;
use crate::checkpoint::config::Size;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::encoder::{self, Context, LayerNames};
use crate::layers::heads::TextHeads;
use crate::layers::relative::{self, Buckets};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mpnet",
    class_prefix: "MPNet",
    base: "mpnet",
    keys: &[
        &[
            "hidden_act",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "pad_token_id",
            "vocab_size",
        ],
        &["relative_attention_num_buckets"],
    ],
    irrelevant_keys: &[],
    // Buffers, then heads of other tasks.
    unused_tensors: &["embeddings.position_ids", "pooler.", "lm_head.", "classifier.", "qa_outputs."],
    build,
    ..bert::ARCHITECTURE
};

const LAYER: LayerNames = LayerNames {
    layers: "encoder.layer",
    query: "attention.attn.q",
    key: "attention.attn.k",
    value: "attention.attn.v",
    output: "attention.attn.o",
    attention_norm: "attention.LayerNorm",
    up: "intermediate.dense",
    down: "output.dense",
    output_norm: "output.LayerNorm",
    final_norm: None,
};

/// The position of padding; `pad_token_id` does not change it.
const PADDING: i64 = 1;
/// The buckets of distances; `relative_attention_num_buckets` is only how many rows the table has.
const BUCKETS: usize = 32;
/// The distance from which on keys share the last bucket.
const MAX_DISTANCE: usize = 128;

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = bert::settings(b.config, &Defaults { vocab_size: 30527, pad_token_id: 1, ..Defaults::BERT })?;
    let buckets = b.config.size("relative_attention_num_buckets", 32)?;
    let max_positions = s.positions.value.saturating_sub(2);
    if max_positions == 0 {
        return Err(b.config.error(format!("{} leaves no position after that of padding", s.positions)));
    }
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    let ids = roberta::position_ids(b, input_ids, PADDING, &Dim::constant(0))?;
    let positions = b.embedding(ids, "embeddings.position_embeddings", s.positions, s.hidden)?;
    let mut x = encoder::embeddings(b, &s, words, &[positions])?;

    let max_distance = Size::derived(MAX_DISTANCE, "the largest distance");
    if buckets.value < BUCKETS {
        return Err(b.config.error(format!("{buckets} leaves no row for some of the {BUCKETS} buckets")));
    }
    let table = Buckets::new(b.config, Size::derived(BUCKETS, "the number of buckets"), max_distance, true)?;
    let module = "encoder.relative_attention_bias";
    let length = Dim::symbol(SEQUENCE);
    let bias = relative::bias(b, &table, [buckets, s.heads], &Dim::constant(0), &length, module)?;
    let context = Context { bias: Some(bias), ..Context::of_mask(mask) };
    for i in 0..s.layers.value {
        x = encoder::layer(b, &s, &LAYER, &format!("{}.{i}", LAYER.layers), x, context)?;
    }
    TextHeads { pooler: None, ..TextHeads::roberta() }.finish(b, &s.head_sizes(), x, task)?;
    Ok(s.properties(max_positions))
}
