//! Swin V2 (Liu et al. 2021, arXiv:2111.09883), as `transformers/models/swinv2` has it: [`super::swin`] with norms after
//! attention and feed-forward, attention by cosines, and biases of scores that two layers compute from distances.

use std::f64::consts::LN_10;

use planish_ir::ops::{BinaryKind, Concat, Real, RmsNorm, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};
use serde_json::Value;

use super::swin::{self, IRRELEVANT, KEYS, Layer, OLDER_KEYS, Operands, Settings, UNUSED, Version};
use super::vit;
use crate::ModelError;
use crate::architecture::Architecture;
use crate::checkpoint::config::Size;
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::patches::{self, dim};
use crate::layers::shifted::{self, Windows};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "swinv2",
    class_prefix: "Swinv2",
    base: "swinv2",
    other_bases: &[],
    renamed: &[],
    tasks: vit::TASKS,
    keys: &[KEYS, patches::KEYS, &[PRETRAINED]],
    older_keys: OLDER_KEYS,
    // Its table has a row more than there are patches, and so transformers cannot add it.
    only: &[Only::False("use_absolute_embeddings")],
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build: |b, task| swin::build(b, task, &SECOND),
};

const PRETRAINED: &str = "pretrained_window_sizes";

const SECOND: Version = Version {
    windows,
    // transformers adds the mask twice.
    outside: -200.0,
    bias,
    products,
    norms_first: false,
    key_bias: false,
    positions: false,
    last_norm: true,
    layers: "encoder.layers",
};

/// The features between the two layers of biases.
const WIDE: Size = Size { value: 512, key: "the features of biases of positions", is_default: false };

/// The largest bias.
const LARGEST: f64 = 16.0;

/// The distances that go through the two layers at once, so that what is between them is small enough to be computed at
/// compile time.
const PIECE: usize = 256;

/// Windows of at most the whole grid that `image_size` gives.
fn windows(b: &Builder<'_>, s: &Settings, layer: Layer) -> Result<Windows, ModelError> {
    // The library takes the rows for both sides.
    let rows = layer.whole[0];
    let size = s.window.value.min(rows);
    if size == 0 {
        return Err(b.config.error(format!(
            "`image_size`, `patch_size` and `depths` leave no whole row of tokens to stage {}",
            layer.stage
        )));
    }
    let shift = if rows <= size { 0 } else { layer.shift(s.window.value) };
    Ok(Windows { grid: layer.grid, size, shift })
}

/// Queries and keys of length 1, queries times a learned number of each head that is 100 at most.
fn products(b: &mut Builder<'_>, layer: Layer, operands: [ValueId; 2], path: &str) -> Result<Operands, ModelError> {
    // The library divides by the length, but by no less than 1e-12. Here its square is added to that of the length.
    const LEAST: f64 = 1e-24;
    let at = |name: &str| format!("{path}.{name}");
    let (heads, size) = (layer.heads, layer.head_size());
    let one = Size::derived(1, "one number for each head");
    let stored = b.weight(&[&at("logit_scale")], &[heads, one, one])?;
    let stored = b.reshape(stored, [dim(heads.value), dim(1)], &at("logit_scale.by_head"))?;
    let most = b.number(2.0 * LN_10, &at("logit_scale.most"), "model_type");
    let clamped = b.binary(BinaryKind::Min, [stored, most], &at("logit_scale.min"))?;
    let factors = b.emit(Unary { kind: UnaryKind::Exp, x: clamped }, &at("logit_scale.exp"))?;
    let ones = b.ones(&at("ones"), Size::derived(size, "features of a head"));
    let mut unit = |x: ValueId, factors: Option<ValueId>, name: &str| -> Result<ValueId, ModelError> {
        let shape: Vec<Dim> = b.graph.ty(x).shape.iter().cloned().collect();
        let by_head = shape.iter().take(2).cloned().chain([dim(heads.value), dim(size)]);
        let x = b.reshape(x, by_head, &at(&format!("{name}.by_head")))?;
        let eps = Real(LEAST / size as f64);
        let mut x = b.emit(RmsNorm { x, weight: ones, eps }, &at(&format!("{name}.norm")))?;
        if let Some(factors) = factors {
            x = b.binary(BinaryKind::Mul, [x, factors], &at(&format!("{name}.scaled")))?;
        }
        b.reshape(x, shape, &at(&format!("{name}.normal")))
    };
    let [q, k] = operands;
    // Root mean squares are lengths divided by the root of the number of features.
    Ok(([unit(q, Some(factors), "query")?, unit(k, None, "key")?], 1.0 / size as f64))
}

/// A number between 0 and [`LARGEST`] for each distance in a window and head.
fn bias(b: &mut Builder<'_>, layer: Layer, windows: Windows, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.continuous_position_bias_mlp.{name}");
    let distances = distances(windows.size, pretrained(b, layer.stage)?);
    let mut parts = Vec::new();
    for (piece, distances) in distances.chunks(PIECE).enumerate() {
        let at = |name: &str| at(&format!("{name}.{piece}"));
        let numbers: Vec<f64> = distances.iter().flatten().copied().collect();
        let weight = Weight::numbers(DType::F32, vec![distances.len(), 2], &numbers);
        let weight = weight.unwrap_or_else(|| unreachable!("there are two numbers for each distance"));
        let x = b.graph.add_weight(&at("distances"), weight, Origin::Config("window_size".into()));
        let sides = Size::derived(2, "rows and columns");
        let x = b.linear(x, &format!("{path}.continuous_position_bias_mlp.0"), WIDE, sides)?;
        let x = Activation::RELU.apply(b, x, &at("activation"))?;
        let last = format!("{path}.continuous_position_bias_mlp.2");
        parts.push(b.projection(x, &last, [layer.heads, WIDE], false)?);
    }
    let table = match parts[..] {
        [one] => one,
        _ => b.emit(Concat { parts, axis: 0 }, &at("table"))?,
    };
    let table = b.emit(Unary { kind: UnaryKind::Sigmoid, x: table }, &at("sigmoid"))?;
    let table = b.with_number(BinaryKind::Mul, table, LARGEST, &at("scaled"), "model_type")?;
    shifted::of_pairs(b, table, &shifted::pairs([windows.size; 2]), &format!("{path}.relative_position_bias"))
}

/// The rows of the windows that the biases of a stage were trained with, where these are others.
fn pretrained(b: &Builder<'_>, stage: usize) -> Result<Option<usize>, ModelError> {
    let Some(value) = b.config.get(PRETRAINED) else { return Ok(None) };
    let size = |one: &Value| usize::try_from(one.as_u64()?).ok();
    let size = value.as_array().and_then(|sizes| size(sizes.get(stage)?));
    match size {
        Some(0) => Ok(None),
        // It is divided by one less.
        Some(size) if size > 1 => Ok(Some(size)),
        _ => Err(b.config.unexpected(PRETRAINED, value, "for each stage 0, or a size from 2 on")),
    }
}

/// What the two layers get of each distance in rows and columns: its logarithm, in parts of the farthest one.
fn distances(size: usize, pretrained: Option<usize>) -> Vec<[f64; 2]> {
    let farthest = (pretrained.unwrap_or(size).max(2) - 1) as f64;
    let side: Vec<f64> = (0..2 * size - 1)
        .map(|at| (at as f64 - (size - 1) as f64) / farthest * 8.0)
        .map(|part: f64| part.signum() * (part.abs() + 1.0).log2() / 8f64.log2())
        .collect();
    side.iter().flat_map(|row| side.iter().map(move |column| [*row, *column])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_logarithms_of_parts_of_the_farthest() {
        let of = distances(2, None);
        let far = 9f64.log2() / 3.0;
        assert_eq!(of.len(), 9);
        assert_eq!((of[0], of[4], of[5]), ([-far, -far], [0.0, 0.0], [0.0, far]));
        assert_eq!(distances(1, None), [[0.0, 0.0]]);
        // Trained with windows of 3: the farthest here is half as far.
        assert_eq!(distances(2, Some(3))[8], [5f64.log2() / 3.0; 2]);
    }
}
