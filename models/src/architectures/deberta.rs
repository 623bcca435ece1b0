//! DeBERTa (He et al. 2020, arXiv:2006.03654), as `transformers/models/deberta` has it: BERT with disentangled attention, from one
//! projection whose rows are stored head by head.

use planish_ir::ops::{Concat, Linear};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, LAYER};
use crate::architectures::deberta_v2::{self, Disentangled, Positions};
use crate::checkpoint::config::Size;
use crate::checkpoint::config_keys::Only;
use crate::layers::builder::Builder;
use crate::layers::dense::{Forms, by_kind};
use crate::layers::encoder::{self, Settings};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "deberta",
    class_prefix: "Deberta",
    tasks: encoder::WITHOUT_CHOICES,
    base: "deberta",
    keys: &[bert::KEYS, deberta_v2::KEYS],
    only: &[encoder::NO_DECODER, Only::Off("talking_head")],
    irrelevant_keys: deberta_v2::IRRELEVANT_KEYS,
    unused_tensors: deberta_v2::UNUSED_TENSORS,
    build,
    ..bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = deberta_v2::settings(b, 50265, 768, 12, 12, 3072)?;
    let (mut x, mask) = deberta_v2::embeddings(b, &s)?;
    let attention = Disentangled::read(b, &s, mask, None)?;
    for layer in 0..s.layers.value {
        let path = format!("{}.{layer}", LAYER.layers);
        x = encoder::layer_with(b, &s, &LAYER, &Forms::LINEAR, &path, x, |b, x| {
            let module = format!("{path}.attention.self");
            let qkv = projections(b, &s, x, &module)?;
            attention.attend(b, &s, qkv, &path, |b, distances, of| {
                let square = [s.hidden, s.hidden];
                match of {
                    Positions::AsKeys => b.projection(distances, &format!("{module}.pos_proj"), square, false),
                    Positions::AsQueries => b.projection(distances, &format!("{module}.pos_q_proj"), square, true),
                }
            })
        })?;
    }
    deberta_v2::finish(b, &s, x, task)
}

/// Queries, keys and values. Keys have no bias.
fn projections(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<[ValueId; 3], ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let heads = s.attention_heads();
    let packed = Size::derived(3 * s.hidden.value, "3 * hidden_size");
    let rows = [heads.queries.signed(), 3, heads.size.signed()].map(Dim::constant);
    let stored = b.weight(&[&at("in_proj.weight")], &[packed, s.hidden])?;
    let weight = by_kind(b, stored, &rows, &[packed, s.hidden], &at("in_proj.weight"))?;
    let zeros = Weight::numbers(DType::F32, vec![s.hidden.value], &vec![0.0; s.hidden.value]);
    let zeros = zeros.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
    let of_keys = b.graph.add_weight(&at("k_bias"), zeros, Origin::Unknown);
    let (of_queries, of_values) = (b.weight(&[&at("q_bias")], &[s.hidden])?, b.weight(&[&at("v_bias")], &[s.hidden])?);
    let bias = b.emit(Concat { parts: vec![of_queries, of_keys, of_values], axis: 0 }, &at("in_proj.bias"))?;
    let packed = b.emit(Linear::new(x, weight, Some(bias)), &at("in_proj"))?;
    b.thirds(packed, s.hidden, &at("split"))
}
