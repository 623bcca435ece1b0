//! Lowering of attention.

use std::collections::HashSet;

use planish_ir::ops::{
    Attention, BinaryKind, Concat, Expand, Flag, MaskedSoftmax, MatMul, Reshape, Select, Softmax, Transpose, UnaryKind,
};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Shape, Step, ValueId};

use super::attention_codes::Codes;
use super::{SWAP_TOKENS, cast_attention, dim, in_place, mask, multi_head};
use crate::build::Builder;
use crate::{AttentionForm, Example, ONNX, Options, Outcome, Pass, PassError};

/// Lowers attention to products and a softmax.
pub const LOWER_ATTENTION: Pass = Pass {
    name: "lower-attention",
    summary: "Lowers attention to matrix products and a softmax. Where the mask leaves out a key, the most negative \
              finite number of the element type is added to its scores, so that no row becomes NaN. Queries are \
              multiplied by the scale before the product with the keys. In float16 and bfloat16, queries and keys are \
              each multiplied by the square root of the scale instead, so that neither operand leaves the range of the \
              type further than it must. In these types everything from the scores to the softmax is computed in \
              float32, in which a row whose keys are all left out stays uniform. Keys that the attention returns stay \
              unscaled. Query heads that share a head of keys are multiplied with it as one matrix, so that the keys \
              are not repeated. Where the operands are transposed from [sequence, batch, features], heads are split \
              from that order. For target ort, queries and keys that are the numbers of codes are multiplied as codes \
              (MatMulIntegerToFloat), and a mask is added only where it leaves out a key of the batch: an If chooses. At opsets 23 and 24, \
              attention with a cache stays one operator if it \
              computes in float32, has no softcap, and has keys of its own for each head. ONNX's Attention then takes \
              mask and causality as an addend. Other targets take products. With --recipe cache=in-place, attention with a \
              cache becomes ONNX Runtime's GroupQueryAttention, which writes new keys and values after the past where \
              both are in one buffer. Where the plan of the \
              quantization says so, probabilities go through QuantizeLinear and DequantizeLinear. Where the recipe has `attention_fp32`, queries, keys and values \
              of half types are cast to float32 in front of the products and the result is cast back. For target trt, from \
              opset 23 on, ONNX's Attention stands between these casts, with a mask of the half type, if there are two \
              heads or more of 9 to 256 features, no cache, no bias and no softcap: TensorRT computes it as one kernel. For target cuda, attention stays one operator in every form, between such casts.",
    numerics: "Scores round once more for scale and mask: relative differences of 1e-7. In float16 and bfloat16 both \
               roots and both scaled operands round: differences of up to 2e-3 and 1.6e-2 of the terms that a score \
               sums. Where the mask leaves out every key of a query, ONNX Runtime's operator returns zeros. Such \
               queries are padding.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %q: f32[b, s, 4]
            input %m: bool[b, s]
            %y = attention(%q, %q, %q, mask: %m) {heads = 2, scale = 0.5} : f32[b, s, 4]
            output y = %y",
        after: "
            input %q: f32[b, s, 4]
            input %m: bool[b, s]
            weight @y/const = dense([0.5]) : f32[]
            weight @y/const_1 = dense([0.0]) : f32[]
            weight @y/const_2 = dense([-3.4028235e38]) : f32[]
            %y/reshape = reshape(%q) {shape = [b, s, 2, 2]} : f32[b, s, 2, 2]
            %y/transpose = transpose(%y/reshape) {perm = [0, 2, 1, 3]} : f32[b, 2, s, 2]
            %y/mul = mul(%y/transpose, @y/const) : f32[b, 2, s, 2]
            %y/reshape_1 = reshape(%q) {shape = [b, s, 2, 2]} : f32[b, s, 2, 2]
            %y/transpose_1 = transpose(%y/reshape_1) {perm = [0, 2, 3, 1]} : f32[b, 2, 2, s]
            %y/reshape_2 = reshape(%q) {shape = [b, s, 2, 2]} : f32[b, s, 2, 2]
            %y/transpose_2 = transpose(%y/reshape_2) {perm = [0, 2, 1, 3]} : f32[b, 2, s, 2]
            %y/matmul = matmul(%y/mul, %y/transpose_1) : f32[b, 2, s, s]
            %y/reshape_3 = reshape(%m) {shape = [b, 1, 1, s]} : bool[b, 1, 1, s]
            %y/select = select(%y/reshape_3, @y/const_1, @y/const_2) : f32[b, 1, 1, s]
            %y/add = add(%y/matmul, %y/select) : f32[b, 2, s, s]
            %y/softmax = softmax(%y/add) : f32[b, 2, s, s]
            %y/matmul_1 = matmul(%y/softmax, %y/transpose_2) : f32[b, 2, s, 2]
            %y/transpose_3 = transpose(%y/matmul_1) {perm = [0, 2, 1, 3]} : f32[b, s, 2, 2]
            %y/reshape_4 = reshape(%y/transpose_3) {shape = [b, s, 4]} : f32[b, s, 4]
            output y = %y/reshape_4",
    },
    applies: |_| true,
    run,
};

/// The first opset with an operator for attention.
pub(crate) const ATTENTION_OPSET: u32 = 23;

/// The last opset of which ONNX Runtime's CPU provider has kernels for all operators that are in use. It has none for the
/// Attention of opset 25, of which it makes some 60 nodes, nor for the QuantizeLinear and DequantizeLinear of opset 28.
pub const LAST_WITH_KERNELS: u32 = 24;

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let whole_with_cache = matches!(options.attention, AttentionForm::WholeWithCache | AttentionForm::MultiHead);
    let keep_caches =
        options.fusion && whole_with_cache && (ATTENTION_OPSET..=LAST_WITH_KERNELS).contains(&options.opset);
    let skips_mask = options.fusion && options.target.skips_masks;
    let appends = in_place::is_chosen(graph, options)?;
    let swapped: HashSet<ValueId> = graph.nodes().filter_map(|(_, node)| swapped(&node.op)).collect();
    let lowered = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let (attention, mut l) = match graph.node(node).op.clone() {
            Op::Attention(attention) => (attention, Builder::at(graph, like)),
            Op::MaskedSoftmax(op) if !skips_mask => {
                return Ok(Step::Replace(vec![without_branch(&mut Builder::at(graph, like), op)?]));
            }
            _ => return Ok::<_, PassError>(Step::Keep),
        };
        let kernel = l.graph.ty(like).dtype == DType::F32 && l.graph.ty(attention.k).shape.rank() == 3;
        if appends && attention.past_key.is_some() {
            return Ok(Step::Replace(in_place::lower(&mut l, &attention)?));
        }
        // Where heads share keys, products of grouped queries are as fast.
        let apart = attention.kv_heads() == attention.heads;
        if keep_caches && kernel && apart && has_operator(&attention) && addend_is_whole(&l, &attention) {
            return match mask::is_needed(&attention) {
                true => Ok(Step::Replace(with_bias(&mut l, attention)?)),
                false => Ok(Step::Keep),
            };
        }
        if options.fusion && options.attention == AttentionForm::Whole {
            return Ok(match options.attention_fp32 && l.graph.ty(like).dtype != DType::F32 {
                true => Step::Replace(cast_attention::whole(&mut l, &attention)?),
                false => Step::Keep,
            });
        }
        let swap = swapped.contains(&like);
        if options.attention_fp32 && cast_attention::fits(&l, &attention, options) {
            return Ok(Step::Replace(vec![cast_attention::lower(&mut l, &attention, swap)?]));
        }
        let groups = options.attention == AttentionForm::ProductsOfGroups && !apart;
        let codes = Codes::of(l.graph, &attention, options);
        let operator = options.fusion && options.attention == AttentionForm::MultiHead;
        if operator && codes.is_none() && multi_head::fits(l.graph, &attention) {
            return Ok(Step::Replace(multi_head::lower(&mut l, &attention)?));
        }
        let form = Form { groups, swap, wide: options.attention_fp32, codes, skips_mask };
        Ok(Step::Replace(lower(&mut l, &attention, form)?))
    })?;
    graph.compact();
    Ok(lowered.into())
}

/// The softmax of scores and an addend, which is 0 where nothing is masked.
fn without_branch(l: &mut Builder<'_, '_>, op: MaskedSoftmax) -> Result<ValueId, BuildError> {
    let zero = l.scalar(op.x, 0.0);
    let addend = l.emit(Select { condition: op.masked, a: op.addend, b: zero })?;
    let x = l.binary(BinaryKind::Add, op.x, addend)?;
    l.emit(Softmax { x })
}

/// Whether ONNX's Attention does this, once what is left out is a bias. A softcap is not the same there:
/// it caps the addend too.
pub(super) fn has_operator(attention: &Attention) -> bool {
    attention.past_key.is_some() && attention.present.0 && attention.softcap.is_none()
}

/// Whether what is added to scores has a row for each query and a column for each key, or nothing is
/// added: ONNX Runtime does not repeat one row for all queries.
fn addend_is_whole(l: &Builder<'_, '_>, attention: &Attention) -> bool {
    let past = attention.past_key.map_or_else(Dim::default, |past| l.graph.ty(past).shape[2].clone());
    let whole = |bias: ValueId| match &l.graph.ty(bias).shape[..] {
        [.., rows, columns] => {
            *rows == l.graph.ty(attention.q).shape[1]
                && past.checked_add(&l.graph.ty(attention.k).shape[1]).as_ref() == Some(columns)
        }
        _ => false,
    };
    attention.goes_by_position() || attention.bias.map_or(attention.mask.is_none(), whole)
}

/// The same attention, where what causality, window and mask leave out is left out by its bias.
fn with_bias(l: &mut Builder<'_, '_>, attention: Attention) -> Result<Vec<ValueId>, BuildError> {
    let bias = in_place::bias(l, &attention, true)?;
    l.emit_all(Attention { bias, mask: None, causal: Flag(false), window: None, ..attention })
}

/// The operand of a transpose that swaps batch and sequence.
fn swapped(op: &Op) -> Option<ValueId> {
    match op {
        Op::Transpose(Transpose { x, perm }) if perm == SWAP_TOKENS => Some(*x),
        _ => None,
    }
}

/// How attention is written as products.
struct Form {
    /// The queries of heads which share keys are rows of one matrix up to the second product.
    groups: bool,
    /// The first result is wanted as [queries, batch, features] too.
    swap: bool,
    /// Products are computed in float32.
    wide: bool,
    /// Queries and keys that are multiplied as codes.
    codes: Option<Codes>,
    /// A mask that leaves no key out is not added.
    skips_mask: bool,
}

/// The results of an attention.
fn lower(l: &mut Builder<'_, '_>, attention: &Attention, form: Form) -> Result<Vec<ValueId>, BuildError> {
    let Form { groups, swap, wide, codes, skips_mask } = form;
    let heads = Heads::split(l, attention, wide)?;
    let (keys, value_size) = (l.graph.ty(heads.k).shape[3].clone(), l.graph.ty(heads.v).shape[3].clone());
    let products = match codes {
        Some(codes) => codes.products(l, attention, |l, q| {
            let size = l.graph.ty(q).shape[3].clone();
            heads.grouped(l, q, size)
        })?,
        None => heads.products(l)?,
    };
    let products = if groups { products } else { heads.apart(l, products, keys.clone())? };
    let dtype = l.graph.ty(products).dtype;
    let mut scores = l.widened(products)?;
    if let Some(cap) = attention.softcap {
        let part = l.with_scalar(BinaryKind::Div, scores, cap.0)?;
        let capped = l.unary(UnaryKind::Tanh, part)?;
        scores = l.with_scalar(BinaryKind::Mul, capped, cap.0)?;
    }
    let of_rows = |l: &mut Builder<'_, '_>, addend| if groups { heads.addend_of_groups(l, addend) } else { Ok(addend) };
    if let Some(bias) = attention.bias {
        let bias = l.widened(bias)?;
        let bias = of_rows(l, bias)?;
        scores = l.binary(BinaryKind::Add, scores, bias)?;
    }
    let addend = mask::added(l, attention, scores)?.map(|addend| of_rows(l, addend)).transpose()?;
    let masked = if skips_mask { mask::leaves_out(l, attention)? } else { None };
    let weights = match (addend, masked) {
        (Some(addend), Some(masked)) => l.emit(MaskedSoftmax { x: scores, addend, masked })?,
        (Some(addend), None) => {
            let x = l.binary(BinaryKind::Add, scores, addend)?;
            l.emit(Softmax { x })?
        }
        (None, _) => l.emit(Softmax { x: scores })?,
    };
    let weights = l.cast(weights, dtype)?;
    let weights = if groups { weights } else { heads.grouped(l, weights, keys)? };
    let mixed = l.emit(MatMul { a: weights, b: heads.v })?;
    let mixed = heads.apart(l, mixed, value_size.clone())?;

    let mixed = l.cast(mixed, l.graph.ty(attention.q).dtype)?;
    let result = merged(l, mixed, swap)?;
    Ok(std::iter::once(result).chain(heads.present.into_iter().flatten()).collect())
}

/// [batch, heads, queries, size] as [batch, queries, heads * size]; by way of [queries, batch, heads * size] where `swap`
/// says that this is wanted too.
pub(super) fn merged(l: &mut Builder<'_, '_>, heads: ValueId, swap: bool) -> Result<ValueId, BuildError> {
    let shape = l.graph.ty(heads).shape.clone();
    let (batch, queries) = (shape[0].clone(), shape[2].clone());
    let features = shape[1].checked_mul(&shape[3]).unwrap_or_default();
    if swap {
        let side_by_side = l.transpose(heads, &[2, 0, 1, 3])?;
        let merged = l.reshape(side_by_side, [queries, batch, features])?;
        return l.transpose(merged, SWAP_TOKENS);
    }
    let side_by_side = l.transpose(heads, &[0, 2, 1, 3])?;
    l.reshape(side_by_side, [batch, queries, features])
}

/// The scaled scores of an attention, before softcap, bias and mask: [batch, heads, queries, keys].
pub(crate) fn scores(l: &mut Builder<'_, '_>, attention: &Attention) -> Result<ValueId, BuildError> {
    let heads = Heads::split(l, attention, false)?;
    let (products, keys) = (heads.products(l)?, l.graph.ty(heads.k).shape[3].clone());
    heads.apart(l, products, keys)
}

/// The operands of an attention in heads.
struct Heads {
    /// Scaled queries, [batch, heads, queries, size].
    q: ValueId,
    /// Keys, scaled where the queries are by the root only: [batch, kv heads, size, keys].
    k: ValueId,
    /// [batch, kv heads, keys, size].
    v: ValueId,
    /// Keys and values as caches hold them, where they are results.
    present: Option<[ValueId; 2]>,
    heads: usize,
    kv_heads: usize,
    batch: Dim,
    queries: Dim,
}

impl Heads {
    /// `wide` says that operands of a half type are cast to float32.
    fn split(l: &mut Builder<'_, '_>, attention: &Attention, wide: bool) -> Result<Self, BuildError> {
        let (heads, kv_heads) = (attention.heads, attention.kv_heads());
        let widen = |l: &mut Builder<'_, '_>, x: ValueId| if wide { l.widened(x) } else { Ok(x) };
        let q = split_heads(l, attention.q, heads, [0, 2, 1, 3])?;
        let q = widen(l, q)?;
        let (q_scale, k_scale) = scales(l.graph.ty(q).dtype, attention.scale.0);
        let q = l.with_scalar(BinaryKind::Mul, q, q_scale)?;
        let whole = attention.past_key.is_some() || attention.present.0 || l.graph.ty(attention.k).shape.rank() == 4;
        let (k, v, present) = if whole {
            let k = cached(l, attention.k, attention.past_key, kv_heads)?;
            let v = cached(l, attention.v, attention.past_value, kv_heads)?;
            (l.transpose(k, &[0, 1, 3, 2])?, v, attention.present.0.then_some([k, v]))
        } else {
            let k = split_heads(l, attention.k, kv_heads, [0, 2, 3, 1])?;
            (k, cached(l, attention.v, attention.past_value, kv_heads)?, None)
        };
        let (k, v) = (widen(l, k)?, widen(l, v)?);
        let k = match k_scale {
            Some(scale) => l.with_scalar(BinaryKind::Mul, k, scale)?,
            None => k,
        };
        let [batch, queries] = [0, 2].map(|axis: usize| l.graph.ty(q).shape[axis].clone());
        Ok(Self { q, k, v, present, heads, kv_heads, batch, queries })
    }

    /// Scaled products of queries and keys: [batch, kv heads, group * queries, keys].
    fn products(&self, l: &mut Builder<'_, '_>) -> Result<ValueId, BuildError> {
        let q = self.grouped(l, self.q, l.graph.ty(self.q).shape[3].clone())?;
        l.emit(MatMul { a: q, b: self.k })
    }

    /// What is added to scores [batch, heads, queries, keys], for the queries of groups as rows: it broadcasts to
    /// [batch, kv heads, group * queries, keys].
    fn addend_of_groups(&self, l: &mut Builder<'_, '_>, addend: ValueId) -> Result<ValueId, BuildError> {
        let one = || dim(1);
        let mut shape = l.graph.ty(addend).shape.to_vec();
        while shape.len() < 4 {
            shape.insert(0, one());
        }
        let [batch, heads, queries, keys] = &shape[..] else { return Ok(addend) };
        if *heads == one() && *queries == one() {
            return Ok(addend);
        }
        let group = dim(self.heads / self.kv_heads);
        let rows = group.checked_mul(&self.queries).unwrap_or_default();
        let split = |group: &Dim, queries: &Dim| {
            let shared = if *heads == one() { one() } else { dim(self.kv_heads) };
            Shape::new([batch.clone(), shared, group.clone(), queries.clone(), keys.clone()])
        };
        let own = if *heads == one() { one() } else { group.clone() };
        let (given, wanted) = (split(&own, queries), split(&group, &self.queries));
        let mut addend = addend;
        if given != wanted {
            addend = l.emit(Reshape { x: addend, shape: given })?;
            addend = l.emit(Expand { x: addend, shape: wanted.clone() })?;
        }
        l.reshape(addend, [batch.clone(), wanted[1].clone(), rows, keys.clone()])
    }

    /// Heads that share keys as rows of one matrix, [batch, kv heads, group * queries, ...].
    fn grouped(&self, l: &mut Builder<'_, '_>, x: ValueId, last: Dim) -> Result<ValueId, BuildError> {
        if self.heads == self.kv_heads {
            return Ok(x);
        }
        let rows = dim(self.heads / self.kv_heads).checked_mul(&self.queries).unwrap_or_default();
        l.reshape(x, [self.batch.clone(), dim(self.kv_heads), rows, last])
    }

    /// Such rows as heads again, [batch, heads, queries, ...].
    fn apart(&self, l: &mut Builder<'_, '_>, x: ValueId, last: Dim) -> Result<ValueId, BuildError> {
        if self.heads == self.kv_heads {
            return Ok(x);
        }
        l.reshape(x, [self.batch.clone(), dim(self.heads), self.queries.clone(), last])
    }
}

/// What queries and keys are multiplied with so that their products are scaled; keys by 1 when absent.
fn scales(dtype: DType, scale: f64) -> (f64, Option<f64>) {
    match dtype {
        DType::F16 | DType::Bf16 => {
            let root = scale.abs().sqrt();
            (root.copysign(scale), Some(root))
        }
        _ => (scale, None),
    }
}

/// The past followed by what is new: [batch, kv heads, keys, size].
pub(super) fn cached(
    l: &mut Builder<'_, '_>,
    new: ValueId,
    past: Option<ValueId>,
    kv_heads: usize,
) -> Result<ValueId, BuildError> {
    let new = match l.graph.ty(new).shape.rank() {
        4 => new,
        _ => split_heads(l, new, kv_heads, [0, 2, 1, 3])?,
    };
    match past {
        Some(past) => l.emit(Concat { parts: vec![past, new], axis: 2 }),
        None => Ok(new),
    }
}

/// [batch, length, heads * size] as [batch, length, heads, size], permuted.
pub(super) fn split_heads(
    l: &mut Builder<'_, '_>,
    x: ValueId,
    heads: usize,
    perm: [usize; 4],
) -> Result<ValueId, BuildError> {
    let inner = l.graph.producer(x).and_then(|node| swapped(&node.op));
    // Splitting before batch and length are swapped leaves one transpose.
    let (x, perm) = match inner {
        Some(inner) => (inner, perm.map(|i| [1, 0, 2, 3][i])),
        None => (x, perm),
    };
    let shape = l.graph.ty(x).shape.clone();
    // The typing rule of attention has heads divide the features.
    let size = shape[2].exact_div(&dim(heads)).unwrap_or_default();
    let split = l.reshape(x, [shape[0].clone(), shape[1].clone(), dim(heads), size])?;
    l.transpose(split, &perm)
}
