//! Attention of fixed sizes whose scores take much memory.

use planish_ir::ops::{Attention, Concat, Slice};
use planish_ir::{
    AttentionForm as Chosen, AttentionKernels, AttentionSizes, BuildError, DType, Dim, Graph, Op, Rewriter, Step,
    ValueId, choose_attention,
};

use super::dim;
use crate::build::Builder;
use crate::{Example, Note, ORT, Options, Outcome, Pass, PassError};

/// Computes attention for some queries after others where all scores would take too much memory.
pub const CHUNK_ATTENTION: Pass = Pass {
    name: "chunk-attention",
    summary: "Computes attention for some queries after others where the scores of all would take more than 256 MiB. A chunk \
              of causal attention leaves out the keys after its last query. The pass runs for targets ort and ort-cuda, \
              where --shapes fixes all sizes. The sizes of other graphs are known to a run only.",
    numerics: "none, but for a query whose keys the mask all leaves out: it attends to all keys of its chunk alike.",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %q: f32[1, 9000, 2]
            %y = attention(%q, %q, %q) {heads = 1, scale = 1} : f32[1, 9000, 2]
            output y = %y",
        after: "
            input %q: f32[1, 9000, 2]
            %y/reshape = reshape(%q) {shape = [1, 9000, 1, 2]} : f32[1, 9000, 1, 2]
            %y/transpose = transpose(%y/reshape) {perm = [0, 2, 1, 3]} : f32[1, 1, 9000, 2]
            %y/reshape_1 = reshape(%q) {shape = [1, 9000, 1, 2]} : f32[1, 9000, 1, 2]
            %y/transpose_1 = transpose(%y/reshape_1) {perm = [0, 2, 1, 3]} : f32[1, 1, 9000, 2]
            %y/slice = slice(%q) {axis = 1, start = 0, end = 7456} : f32[1, 7456, 2]
            %y/attention = attention(%y/slice, %y/transpose, %y/transpose_1) {heads = 1, scale = 1} : f32[1, 7456, 2]
            %y/slice_1 = slice(%q) {axis = 1, start = 7456, end = 9000} : f32[1, 1544, 2]
            %y/attention_1 = attention(%y/slice_1, %y/transpose, %y/transpose_1) {heads = 1, scale = 1} : f32[1, 1544, 2]
            %y/concat = concat([%y/attention, %y/attention_1]) {axis = 1} : f32[1, 9000, 2]
            output y = %y/concat",
    },
    applies: |options| options.fusion && options.target.most_scores.is_some(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let mut notes = Vec::new();
    let Some(most) = options.target.most_scores else { return Ok(Outcome::default()) };
    // The plan of a quantization names the attention whose products may be of codes.
    let planned = options.quantization.as_ref().map_or(&[][..], |quantization| &quantization.plan.attention);
    let changed = graph.rewrite(|graph, node| {
        let Op::Attention(attention) = graph.node(node).op.clone() else { return Ok::<_, PassError>(Step::Keep) };
        let like = graph.node(node).outputs[0];
        let name = &graph.value(like).name;
        // The keys of a window on both sides do not end with those of a chunk's queries.
        let both_sides = attention.window.is_some() && !attention.causal.0;
        if both_sides || planned.iter().any(|planned| planned.attention == *name) {
            return Ok(Step::Keep);
        }
        let Some(sizes) = sizes(graph, &attention) else { return Ok(Step::Keep) };
        let kernels = AttentionKernels { largest_head: 0, split_rows: 0, blocks: 1, scores: most, float_scores: most };
        let choice = choose_attention(&sizes, DType::F32, &kernels);
        notes.push(Note::Attention { at: name.clone(), choice: choice.to_string() });
        match choice.form {
            Chosen::Chunked { queries } => {
                let mut l = Builder::at(graph, like);
                Ok(Step::Replace(chunked(&mut l, &attention, &sizes, queries)?))
            }
            _ => Ok(Step::Keep),
        }
    })?;
    graph.compact();
    Ok(Outcome { changed, notes })
}

/// The sizes of an attention, where all are fixed.
fn sizes(graph: &Rewriter<'_>, attention: &Attention) -> Option<AttentionSizes> {
    let size = |value: ValueId, axis: usize| {
        let shape = &graph.ty(value).shape;
        usize::try_from(shape[axis].as_constant()?).ok()
    };
    let new = |value: ValueId| {
        let (heads, rank) = (attention.kv_heads(), graph.ty(value).shape.rank());
        let (keys, features) = (size(value, rank - 2)?, size(value, rank - 1)?);
        Some((keys, if rank == 4 { features } else { features / heads }))
    };
    let past = attention.past_key.map_or(Some(0), |past| size(past, 2))?;
    let ((keys, _), (_, value_size)) = (new(attention.k)?, new(attention.v)?);
    Some(AttentionSizes {
        batch: size(attention.q, 0)?,
        heads: attention.heads,
        kv_heads: attention.kv_heads(),
        queries: size(attention.q, 1)?,
        keys: past + keys,
        size: size(attention.q, 2)? / attention.heads,
        value_size,
    })
}

/// The results of an attention, of so many queries at a time.
fn chunked(
    l: &mut Builder<'_, '_>,
    attention: &Attention,
    sizes: &AttentionSizes,
    queries: usize,
) -> Result<Vec<ValueId>, BuildError> {
    let kv_heads = attention.kv_heads();
    let k = super::attention::cached(l, attention.k, attention.past_key, kv_heads)?;
    let v = super::attention::cached(l, attention.v, attention.past_value, kv_heads)?;
    let past = sizes.keys.saturating_sub(sizes.queries);
    let shape = attention.bias.map(|bias| l.graph.ty(bias).shape.to_vec()).unwrap_or_default();
    let mut parts = Vec::new();
    for first in (0..sizes.queries).step_by(queries) {
        let last = sizes.queries.min(first + queries);
        // Causal queries are at the positions of the last keys.
        let keys = if attention.causal.0 { past + last } else { sizes.keys };
        let mut part = |x: ValueId, axis: usize, start: usize, end: usize| {
            if start == 0 && l.graph.ty(x).shape[axis] == dim(end) {
                return Ok(x);
            }
            l.emit(Slice { x, axis, start: dim(start), end: dim(end) })
        };
        let q = part(attention.q, 1, first, last)?;
        let (own_k, own_v) = (part(k, 2, 0, keys)?, part(v, 2, 0, keys)?);
        let mask = attention.mask.map(|mask| part(mask, 1, 0, keys)).transpose()?;
        let bias = match attention.bias {
            Some(bias) => {
                let mut bias = bias;
                // What broadcasts stays.
                for (from_end, start, end) in [(1, 0, keys), (2, first, last)] {
                    if shape.len() >= from_end && shape[shape.len() - from_end] != Dim::constant(1) {
                        bias = part(bias, shape.len() - from_end, start, end)?;
                    }
                }
                Some(bias)
            }
            None => None,
        };
        let chunk = Attention {
            q,
            k: own_k,
            v: own_v,
            mask,
            bias,
            past_key: None,
            past_value: None,
            present: planish_ir::ops::Flag(false),
            ..attention.clone()
        };
        parts.push(l.emit(chunk)?);
    }
    let whole = l.emit(Concat { parts, axis: 1 })?;
    Ok(if attention.present.0 { vec![whole, k, v] } else { vec![whole] })
}
