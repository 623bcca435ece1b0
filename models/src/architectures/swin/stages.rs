//! The stages of Swin: layers whose attention is within windows, and four tokens that become one after each stage.

use planish_ir::ops::{Attention, Real};
use planish_ir::{Dim, Origin, ValueId};

use super::{EPS, Layer, Settings, Version};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::patches::dim;
use crate::layers::shifted::{self, Windows};

/// All stages: [batch_size, tokens, embed_dim] of a grid to fewer tokens of more features. `whole` is the grid of images of the size
/// that the configuration has.
pub(in crate::architectures) fn stages(
    b: &mut Builder<'_>,
    s: &Settings,
    version: &Version,
    x: ValueId,
    [grid, whole]: [[usize; 2]; 2],
) -> Result<ValueId, ModelError> {
    let (mut x, mut grid) = (x, grid);
    for (stage, depth) in s.depths.iter().enumerate() {
        let (hidden, heads) = (s.hidden(stage), s.heads[stage]);
        for index in 0..depth.value {
            let layer = Layer { stage, index, grid, whole: whole.map(|side| side >> stage), hidden, heads };
            x = block(b, s, version, x, layer)?;
        }
        if stage + 1 < s.depths.len() {
            (x, grid) = join(b, version, x, grid, hidden, &format!("{}.{stage}.downsample", version.layers))?;
        }
    }
    Ok(x)
}

/// Four tokens, of two rows and columns, as one of twice the features. There are zeros after odd rows and columns.
fn join(
    b: &mut Builder<'_>,
    version: &Version,
    x: ValueId,
    grid: [usize; 2],
    hidden: Size,
    path: &str,
) -> Result<(ValueId, [usize; 2]), ModelError> {
    let ([height, width], [rows, columns]) = (grid, grid.map(|side| side.div_ceil(2)));
    let quarters = [[0, 0], [1, 0], [0, 1], [1, 1]];
    let places: shifted::Places = (0..rows * columns)
        .flat_map(|at| quarters.map(|[row, column]| [at / columns * 2 + row, at % columns * 2 + column]))
        .map(|[row, column]| (row < height && column < width).then_some(row * width + column))
        .collect();
    let x = shifted::order(b, x, &places, hidden, &format!("{path}.quarters"))?;
    let [both, four] = [2, 4].map(|times| Size::derived(times * hidden.value, "features of joined tokens"));
    let mut x =
        b.reshape(x, [Dim::symbol(b.images), dim(rows * columns), dim(four.value)], &format!("{path}.joined"))?;
    let norm = format!("{path}.norm");
    if version.norms_first {
        x = b.layer_norm(x, &norm, four, EPS)?;
    }
    x = b.projection(x, &format!("{path}.reduction"), [both, four], false)?;
    if !version.norms_first {
        x = b.layer_norm(x, &norm, both, EPS)?;
    }
    Ok((x, [rows, columns]))
}

fn block(
    b: &mut Builder<'_>,
    s: &Settings,
    version: &Version,
    x: ValueId,
    layer: Layer,
) -> Result<ValueId, ModelError> {
    let path = format!("{}.{}.blocks.{}", version.layers, layer.stage, layer.index);
    let at = |name: &str| format!("{path}.{name}");
    let hidden = layer.hidden;
    let norm = |b: &mut Builder<'_>, x, name: &str, here: bool| match here {
        true => b.layer_norm(x, &at(name), hidden, s.eps),
        false => Ok(x),
    };
    let normal = norm(b, x, "layernorm_before", version.norms_first)?;
    let attended = attention(b, s, version, normal, layer, &path)?;
    let attended = norm(b, attended, "layernorm_before", !version.norms_first)?;
    let x = b.add(attended, x, &at("attention.add"))?;

    let normal = norm(b, x, "layernorm_after", version.norms_first)?;
    let wide = Size::derived((hidden.value as f64 * s.ratio) as usize, "embed_dim * 2^stage * mlp_ratio");
    let up = b.linear(normal, &at("intermediate.dense"), wide, hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at("output.dense"), hidden, wide)?;
    let down = norm(b, down, "layernorm_after", !version.norms_first)?;
    b.add(down, x, &at("add"))
}

/// Attention of each token to those of its window. Windows without a shift are rows of a batch. Shifted ones, of which each has
/// a mask of its own, are heads, so that masks and biases of all of them are one weight.
fn attention(
    b: &mut Builder<'_>,
    s: &Settings,
    version: &Version,
    x: ValueId,
    layer: Layer,
    path: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.attention.{name}");
    let windows = (version.windows)(b, s, layer)?;
    shifted::check_pairs(b, windows.count() * windows.tokens(), windows.tokens())?;
    shifted::check_pairs(b, windows.tokens(), windows.tokens())?;
    let (hidden, batch) = (layer.hidden, Dim::symbol(b.images));
    let (count, tokens) = (windows.count(), windows.tokens());
    let x = shifted::order(b, x, &windows.partition(), hidden, &at("windows"))?;
    let linear = |b: &mut Builder<'_>, name: &str, bias| b.projection(x, &at(name), [hidden; 2], bias);
    let q = linear(b, "self.query", s.qkv_bias)?;
    let k = linear(b, "self.key", s.qkv_bias && version.key_bias)?;
    let v = linear(b, "self.value", s.qkv_bias)?;
    let ([q, k], scale) = (version.products)(b, layer, [q, k], &at("self"))?;
    let mut bias = (version.bias)(b, layer, windows, &at("self"))?;
    let (shape, heads) = if windows.shift == 0 {
        let Some(rows) = batch.checked_mul(&dim(count)) else {
            return Err(b.config.error("there are too many windows"));
        };
        ([rows, dim(tokens), dim(hidden.value)], layer.heads.value)
    } else {
        let heads = count * layer.heads.value;
        let Some(mask) = windows.mask(version.outside) else { unreachable!("pairs are as many as the shape says") };
        let mask = b.graph.add_weight(&at("self.mask"), mask, Origin::Config("window_size".into()));
        bias = b.add(bias, mask, &at("self.masked"))?;
        bias = b.reshape(bias, [dim(heads), dim(tokens), dim(tokens)], &at("self.bias"))?;
        ([batch.clone(), dim(tokens), dim(count * hidden.value)], heads)
    };
    let mut split = |x, name: &str| b.reshape(x, shape.clone(), &at(&format!("self.{name}.windows")));
    let (q, k, v) = (split(q, "query")?, split(k, "key")?, split(v, "value")?);
    let attention = Attention { bias: Some(bias), ..Attention::new(q, k, v, heads, Real(scale)) };
    let attended = b.emit(attention, &at("self"))?;
    let attended = b.reshape(attended, [batch, dim(count * tokens), dim(hidden.value)], &at("self.tokens"))?;
    let projected = b.linear(attended, &at("output.dense"), hidden, hidden)?;
    shifted::order(b, projected, &windows.merge(), hidden, &at("merged"))
}

/// Windows as the configuration has them, with no shift where one window has all rows or columns.
pub(super) fn windows(b: &Builder<'_>, s: &Settings, layer: Layer) -> Result<Windows, ModelError> {
    let (size, [rows, columns]) = (s.window.value, layer.grid);
    match rows.min(columns) {
        least if least < size => Err(b.config.error(format!(
            "stage {} has {rows} x {columns} tokens, fewer than a window of {}, for which transformers has no relative \
             positions; take a larger `image_size`",
            layer.stage, s.window
        ))),
        least if least == size => Ok(Windows { grid: layer.grid, size, shift: 0 }),
        _ => Ok(Windows { grid: layer.grid, size, shift: layer.shift(size) }),
    }
}

/// A learned number for each distance in a window and head.
pub(super) fn bias(b: &mut Builder<'_>, layer: Layer, windows: Windows, path: &str) -> Result<ValueId, ModelError> {
    let side = 2 * windows.size - 1;
    let distances = Size::derived(side * side, "(2 * window_size - 1)^2");
    let table = format!("{path}.relative_position_bias_table");
    let table = b.weight(&[&table], &[distances, layer.heads])?;
    shifted::of_pairs(b, table, &shifted::pairs([windows.size; 2]), &format!("{path}.relative_position_bias"))
}
