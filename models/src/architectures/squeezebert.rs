//! SqueezeBERT (Iandola et al. 2020, arXiv:2006.11316), as `transformers/models/squeezebert` has it: BERT with projections in
//! groups of features.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults};
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::dense::{Form, Forms};
use crate::layers::encoder::{self, Context, LayerNames, Settings};
use crate::layers::heads::TextHeads;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "squeezebert",
    class_prefix: "SqueezeBert",
    base: "transformer",
    keys: &[bert::KEYS, &["embedding_size"], &GROUPS],
    only: &[encoder::NO_DECODER],
    irrelevant_keys: &[],
    build,
    ..bert::ARCHITECTURE
};

const GROUPS: [&str; 6] =
    ["q_groups", "k_groups", "v_groups", "post_attention_groups", "intermediate_groups", "output_groups"];

const LAYER: LayerNames = LayerNames {
    layers: "encoder.layers",
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    output: "post_attention.conv1d",
    attention_norm: "post_attention.layernorm",
    up: "intermediate.conv1d",
    down: "output.conv1d",
    output_norm: "output.layernorm",
    final_norm: None,
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = bert::settings(b.config, &Defaults::BERT)?;
    let embedded = b.config.size("embedding_size", 768)?;
    if embedded.value != s.hidden.value {
        return Err(b.config.error(format!("{embedded}, but {}: the two are the same", s.hidden)));
    }
    let groups = |at: usize, default| b.config.size_or(GROUPS[at], Size::derived(default, GROUPS[at]));
    let form = |at, default| groups(at, default).map(Form::Convolution);
    let forms = Forms {
        query: form(0, 4)?,
        key: form(1, 4)?,
        value: form(2, 4)?,
        output: form(3, 1)?,
        up: form(4, 4)?,
        down: form(5, 4)?,
    };
    let ([words, types, positions], mask) = bert::sums(b, &s)?;
    let mut x = encoder::embeddings(b, &s, words, &[positions, types])?;
    // Whatever `layer_norm_eps` says.
    let of_layers = Settings { eps: 1e-12, ..s };
    for layer in 0..s.layers.value {
        let path = format!("{}.{layer}", LAYER.layers);
        x = encoder::layer_with(b, &of_layers, &LAYER, &forms, &path, x, |b, x| {
            encoder::attend(b, &of_layers, &LAYER, &forms, &path, x, Context::of_mask(mask))
        })?;
    }
    TextHeads::bert(s.activation).finish(b, &s.head_sizes(), x, task)?;
    Ok(s.properties(s.positions.value))
}
