//! Lowering of rotary position embedding.

use planish_ir::ops::{BinaryKind, Concat, Rotary, Split};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Step, ValueId};

use super::dim;
use super::quantized::{attributes, foreign, standard};
use crate::build::Builder;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// The opset whose RotaryEmbedding is emitted.
pub(crate) const ROTARY_OPSET: u32 = 23;

/// Lowers rotary position embedding to an operator, or to arithmetic on the halves of each head.
pub const LOWER_ROTARY: Pass = Pass {
    name: "lower-rotary",
    summary: "Lowers rotary position embedding to ONNX's RotaryEmbedding from opset 23 on where the target has a kernel, and \
              else to arithmetic. The two elements of each pair are split from the heads, \
              turned, and put together again.",
    numerics: "Products round before they are added: relative differences of 1e-7.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[b, s, 8]
            input %c: f32[b, s, 2]
            input %d: f32[b, s, 2]
            %y = rotary(%x, %c, %d) {heads = 2} : f32[b, s, 8]
            output y = %y",
        after: "
            input %x: f32[b, s, 8]
            input %c: f32[b, s, 2]
            input %d: f32[b, s, 2]
            %y/reshape = reshape(%x) {shape = [b, s, 2, 4]} : f32[b, s, 2, 4]
            %y/reshape_1 = reshape(%c) {shape = [b, s, 1, 2]} : f32[b, s, 1, 2]
            %y/reshape_2 = reshape(%d) {shape = [b, s, 1, 2]} : f32[b, s, 1, 2]
            %y/split, %y/split_1 = split(%y/reshape) {axis = 3, sizes = [2, 2]} : f32[b, s, 2, 2], f32[b, s, 2, 2]
            %y/mul = mul(%y/split, %y/reshape_1) : f32[b, s, 2, 2]
            %y/mul_1 = mul(%y/split_1, %y/reshape_2) : f32[b, s, 2, 2]
            %y/sub = sub(%y/mul, %y/mul_1) : f32[b, s, 2, 2]
            %y/mul_2 = mul(%y/split_1, %y/reshape_1) : f32[b, s, 2, 2]
            %y/mul_3 = mul(%y/split, %y/reshape_2) : f32[b, s, 2, 2]
            %y/add = add(%y/mul_2, %y/mul_3) : f32[b, s, 2, 2]
            %y/concat = concat([%y/sub, %y/add]) {axis = 3} : f32[b, s, 2, 4]
            %y/reshape_3 = reshape(%y/concat) {shape = [b, s, 8]} : f32[b, s, 8]
            output y = %y/reshape_3",
    },
    applies: |options| !options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let lowered = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let Op::Rotary(rotary) = graph.node(node).op.clone() else { return Ok::<_, PassError>(Step::Keep) };
        let l = &mut Builder::at(graph, like);
        Ok(Step::Replace(vec![if takes_operator(l, &rotary, options) {
            operator(l, &rotary)?
        } else {
            lower(l, &rotary)?
        }]))
    })?;
    graph.compact();
    Ok(lowered.into())
}

/// Whether the embedding becomes ONNX's RotaryEmbedding: the target has a kernel, fusion is on, the opset has the operator, all
/// is float32, and the angles have a row for each row of `x`.
fn takes_operator(l: &Builder<'_, '_>, rotary: &Rotary, options: &Options) -> bool {
    let (x, angles) = (l.graph.ty(rotary.x), l.graph.ty(rotary.cos));
    options.target.has_rotary_embedding
        && options.fusion
        && options.opset >= ROTARY_OPSET
        && (x.dtype, angles.dtype) == (DType::F32, DType::F32)
        && x.shape[..2] == angles.shape[..2]
}

fn operator(l: &mut Builder<'_, '_>, rotary: &Rotary) -> Result<ValueId, BuildError> {
    let ty = l.graph.ty(rotary.x).clone();
    let pairs = l.graph.ty(rotary.cos).shape[2].as_constant().unwrap_or_default();
    let heads = i64::try_from(rotary.heads).unwrap_or_default();
    let is_partial = ty.shape[2].as_constant() != Some(2 * pairs * heads);
    let settings = [
        ("num_heads", heads),
        ("interleaved", i64::from(rotary.interleaved.0)),
        ("rotary_embedding_dim", if is_partial { 2 * pairs } else { 0 }),
    ];
    let inputs = vec![Some(rotary.x), Some(rotary.cos), Some(rotary.sin)];
    Ok(foreign(l, standard("RotaryEmbedding", ROTARY_OPSET as usize), inputs, attributes(settings), vec![ty])?[0])
}

fn lower(l: &mut Builder<'_, '_>, rotary: &Rotary) -> Result<ValueId, BuildError> {
    let (whole, angles) = (l.graph.ty(rotary.x).shape.clone(), l.graph.ty(rotary.cos).shape.clone());
    // The typing rule of the operator has these known.
    let size = |dim: &Dim| dim.as_constant().and_then(|size| usize::try_from(size).ok()).unwrap_or_default();
    let (features, pairs) = (size(&whole[2]), size(&angles[2]));
    let rest = features / rotary.heads - 2 * pairs;
    let heads = dim(rotary.heads);

    // [batch, length, heads, size], and angles that broadcast to its pairs.
    let split =
        l.reshape(rotary.x, [whole[0].clone(), whole[1].clone(), heads.clone(), dim(features / rotary.heads)])?;
    let mut shape = vec![angles[0].clone(), angles[1].clone(), Dim::constant(1), angles[2].clone()];
    if rotary.interleaved.0 {
        shape.push(Dim::constant(1));
    }
    let cos = l.reshape(rotary.cos, shape.clone())?;
    let sin = l.reshape(rotary.sin, shape)?;

    let mut tail = Vec::new();
    let (first, second) = if rotary.interleaved.0 {
        let mut head = split;
        if rest > 0 {
            let parts = l.emit_all(Split { x: split, axis: 3, sizes: vec![2 * pairs, rest] })?;
            head = parts[0];
            tail.push(parts[1]);
        }
        let couples = [whole[0].clone(), whole[1].clone(), heads.clone(), dim(pairs), Dim::constant(2)];
        let couples = l.reshape(head, couples)?;
        let parts = l.emit_all(Split { x: couples, axis: 4, sizes: vec![1, 1] })?;
        (parts[0], parts[1])
    } else {
        let mut sizes = vec![pairs, pairs];
        sizes.extend((rest > 0).then_some(rest));
        let parts = l.emit_all(Split { x: split, axis: 3, sizes })?;
        tail.extend(parts.get(2));
        (parts[0], parts[1])
    };

    let (near, far) = (l.binary(BinaryKind::Mul, first, cos)?, l.binary(BinaryKind::Mul, second, sin)?);
    let turned_first = l.binary(BinaryKind::Sub, near, far)?;
    let (near, far) = (l.binary(BinaryKind::Mul, second, cos)?, l.binary(BinaryKind::Mul, first, sin)?);
    let turned_second = l.binary(BinaryKind::Add, near, far)?;

    let mut parts = vec![turned_first, turned_second];
    if rotary.interleaved.0 {
        let couples = l.emit(Concat { parts, axis: 4 })?;
        let head = l.reshape(couples, [whole[0].clone(), whole[1].clone(), heads, dim(2 * pairs)])?;
        parts = vec![head];
    }
    parts.extend(tail);
    let joined = match parts[..] {
        [one] => one,
        _ => l.emit(Concat { parts, axis: 3 })?,
    };
    l.reshape(joined, whole.iter().cloned())
}
