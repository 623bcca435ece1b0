//! The head that gives a mask for each query (`DetrForSegmentation`): where a query attends to, made finer with the maps of the
//! backbone.

use planish_ir::ops::{BinaryKind, Concat, Expand, MatMul, Softmax};
use planish_ir::{Dim, Shape, ValueId};

use super::Settings;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::resize::{Interpolation, resize};
use crate::names;

/// How many finer maps are added.
const FINER: usize = 3;

/// The most groups of a norm.
const GROUPS: usize = 8;

/// `pred_masks` [batch_size, queries, height, width] of the finest map, of the maps of the backbone, the projected last one,
/// the encoder's states and the decoder's.
pub(super) fn masks(
    b: &mut Builder<'_>,
    s: &Settings,
    maps: &[(ValueId, Size)],
    [projected, memory, found]: [ValueId; 3],
    sides: &[Dim; 2],
) -> Result<(), ModelError> {
    let Some(finer) = maps.len().checked_sub(FINER + 1).map(|from| &maps[from..from + FINER]) else {
        return Err(b.config.error(format!(
            "the backbone gives {} maps, and masks need {}: `out_features` or `out_indices` of the backbone name them",
            maps.len(),
            FINER + 1
        )));
    };
    let heads = s.encoder.heads;
    let first = Size::derived(s.hidden.value + heads.value, "d_model + encoder_attention_heads");
    if !first.value.is_multiple_of(GROUPS) || s.hidden.value < 16 {
        return Err(b.config.error(format!(
            "{} and {heads} are {} channels of masks, which have to be a multiple of {GROUPS}, and 16 of the first at least",
            s.hidden, first.value
        )));
    }
    let attended = attended(b, s, [memory, found], sides)?;
    let features = of_queries(b, projected, s.queries, "mask_head.features")?;
    let mut x = b.emit(Concat { parts: vec![features, attended], axis: 1 }, "mask_head.concat")?;
    let part = |by: usize| Size::derived(s.hidden.value / by, "a part of d_model");
    x = block(b, s, x, ["mask_head.lay1", "mask_head.gn1"], [first, first])?;
    x = block(b, s, x, ["mask_head.lay2", "mask_head.gn2"], [part(2), first])?;
    for (stage, (map, channels)) in finer.iter().rev().enumerate() {
        let (number, narrow, narrower) = (stage + 1, part(2 << stage), part(4 << stage));
        let adapter = format!("mask_head.adapter{number}");
        // The same for all queries, so it is repeated after.
        let map = convolution::conv(b, *map, &adapter, [narrow, *channels], Window::patches(1), true)?;
        let [_, _, height, width] = convolution::dims(b, map)?;
        let map = of_queries(b, map, s.queries, &adapter)?;
        let larger = resize(b, x, [height, width], Interpolation::Nearest, &format!("{adapter}.resize"))?;
        let sum = b.add(map, larger, &format!("{adapter}.add"))?;
        let modules = [format!("mask_head.lay{}", number + 2), format!("mask_head.gn{}", number + 2)];
        x = block(b, s, sum, [&modules[0], &modules[1]], [narrower, narrow])?;
    }
    let one = Size::derived(1, "one mask for a query");
    let masks = convolution::conv(b, x, "mask_head.out_lay", [one, part(16)], Window::centred(3, 1), true)?;
    let [_, _, height, width] = convolution::dims(b, masks)?;
    let form = [Dim::symbol(BATCH), convolution::dim(s.queries), height, width];
    let masks = b.reshape(masks, form, "mask_head.masks")?;
    b.give(names::PRED_MASKS, masks);
    Ok(())
}

/// How much each head of each query attends to each place: [batch_size * queries, heads, height, width], which sum up to 1 over
/// heads and places.
fn attended(
    b: &mut Builder<'_>,
    s: &Settings,
    [memory, found]: [ValueId; 2],
    [height, width]: &[Dim; 2],
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("bbox_attention.{name}");
    let heads = s.encoder.heads;
    let size = s.hidden.value / heads.value;
    let (batch, queries, count) = (Dim::symbol(BATCH), convolution::dim(s.queries), convolution::dim(heads));
    let head_size = convolution::dim(Size::derived(size, "the size of a head"));
    let places = height.checked_mul(width);
    let all = places.as_ref().and_then(|places| places.checked_mul(&count));
    let rows = batch.checked_mul(&queries);
    let (Some(places), Some(all), Some(rows)) = (places, all, rows) else {
        return Err(b.config.error("images have more places than 64 bits count"));
    };
    let q = b.linear(found, &at("q_linear"), s.hidden, s.hidden)?;
    let q = b.with_number(BinaryKind::Mul, q, 1.0 / (size as f64).sqrt(), &at("scaled"), "d_model")?;
    let k = b.linear(memory, &at("k_linear"), s.hidden, s.hidden)?;
    let q = b.reshape(q, [batch.clone(), queries.clone(), count.clone(), head_size.clone()], &at("q"))?;
    let q = b.transpose(q, &[0, 2, 1, 3], &at("q.heads"))?;
    let k = b.reshape(k, [batch.clone(), places, count.clone(), head_size], &at("k"))?;
    let k = b.transpose(k, &[0, 2, 3, 1], &at("k.heads"))?;
    let scores = b.emit(MatMul { a: q, b: k }, &at("scores"))?;
    let scores = b.transpose(scores, &[0, 2, 1, 3], &at("by_query"))?;
    let scores = b.reshape(scores, [batch, queries, all], &at("of_all"))?;
    let parts = b.emit(Softmax { x: scores }, &at("softmax"))?;
    b.reshape(parts, [rows, count, height.clone(), width.clone()], &at("maps"))
}

/// A map of each image for each query: [batch_size * queries, channels, height, width].
fn of_queries(b: &mut Builder<'_>, map: ValueId, queries: Size, module: &str) -> Result<ValueId, ModelError> {
    let [batch, channels, height, width] = convolution::dims(b, map)?;
    let queries = convolution::dim(queries);
    let Some(rows) = batch.checked_mul(&queries) else {
        return Err(b.config.error("there are more queries than 64 bits count"));
    };
    let one = [batch.clone(), Dim::constant(1), channels.clone(), height.clone(), width.clone()];
    let map = b.reshape(map, one, &format!("{module}.one"))?;
    let shape = Shape::new([batch, queries, channels.clone(), height.clone(), width.clone()]);
    let all = b.emit(Expand { x: map, shape }, &format!("{module}.expand"))?;
    b.reshape(all, [rows, channels, height, width], &format!("{module}.rows"))
}

/// A convolution, a norm of groups and an activation.
fn block(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    [module, norm]: [&str; 2],
    [out, inner]: [Size; 2],
) -> Result<ValueId, ModelError> {
    let x = convolution::conv(b, x, module, [out, inner], Window::centred(3, 1), true)?;
    let x = convolution::group_norm(b, x, norm, out, GROUPS.min(out.value))?;
    s.activation.apply(b, x, &format!("{norm}.activation"))
}
