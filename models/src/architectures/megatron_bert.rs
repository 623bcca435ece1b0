//! Megatron-BERT (Shoeybi et al. 2019, arXiv:1909.08053), as `transformers/models/megatron_bert` has it: BERT with norms before
//! attention and feed-forward.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, LayerNames};
use crate::layers::heads::TextHeads;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "megatron-bert",
    class_prefix: "MegatronBert",
    irrelevant_keys: &[],
    build,
    ..bert::ARCHITECTURE
};

const PRE_NORM_LAYER: LayerNames =
    LayerNames { attention_norm: "attention.ln", output_norm: "ln", final_norm: Some("encoder.ln"), ..LAYER };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 29056,
        hidden_size: 1024,
        intermediate_size: 4096,
        num_attention_heads: 16,
        num_hidden_layers: 24,
        ..Defaults::BERT
    };
    let s = bert::settings(b.config, &defaults)?;
    let ([words, types, positions], mask) = bert::sums(b, &s)?;
    let x = encoder::sum(b, words, &[types, positions])?;
    let hidden = encoder::layers(b, &s, &PRE_NORM_LAYER, x, Context::of_mask(mask))?;
    TextHeads::bert(s.activation).finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}
