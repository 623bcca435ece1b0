//! Attention whose keys and values are summed up in a state.

use planish_ir::ops::{BinaryKind, CumSum, Iota, LinearAttention, MatMul, Select, Setting, Slice, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Shape, TensorType, ValueId, Weight};

use super::{count, text, zeros};
use crate::build::Builder;
use crate::legalize::quantized::foreign;
use crate::legalize::{MICROSOFT, dim};

/// The types of the results.
fn results(l: &Builder<'_, '_>, op: &LinearAttention) -> [TensorType; 2] {
    let (q, v) = (l.graph.ty(op.q).clone(), l.graph.ty(op.v).clone());
    let heads = dim(op.heads);
    // The typing rule has sizes of heads that are known.
    let size = |ty: &TensorType, heads: &Dim| ty.shape[2].exact_div(heads).unwrap_or_default();
    let state = [q.shape[0].clone(), heads.clone(), size(&q, &dim(op.key_heads)), size(&v, &heads)];
    [v, TensorType::new(q.dtype, Shape::new(state))]
}

/// ONNX Runtime's operator.
pub(super) fn operator(l: &mut Builder<'_, '_>, op: &LinearAttention) -> Result<Vec<ValueId>, BuildError> {
    let rule = match (op.decay, op.beta) {
        (None, None) => "linear",
        (Some(_), None) => "gated",
        (None, Some(_)) => "delta",
        (Some(_), Some(_)) => "gated_delta",
    };
    let [y, state] = results(l, op);
    let mut inputs = vec![Some(op.q), Some(op.k), Some(op.v), op.state, op.decay, op.beta];
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    // A factor of 0 stands for another one there.
    let (scale, zero) = if op.scale.0 == 0.0 { (1.0, true) } else { (op.scale.0, false) };
    let settings = vec![
        ("kv_num_heads".to_owned(), count(op.heads)),
        ("q_num_heads".to_owned(), count(op.key_heads)),
        ("scale".to_owned(), Setting::Float(planish_ir::ops::Real(scale))),
        ("update_rule".to_owned(), text(rule)),
    ];
    let mut all = foreign(l, (MICROSOFT, "LinearAttention", 1), inputs, settings, vec![y, state])?;
    if zero {
        all[0] = l.with_scalar(BinaryKind::Mul, all[0], 0.0)?;
    }
    Ok(all)
}

/// The operator in float32, with a state.
pub(super) fn with_state(l: &mut Builder<'_, '_>, op: &LinearAttention) -> Result<Vec<ValueId>, BuildError> {
    let [y, state] = results(l, op);
    let mut widened = op.clone();
    for value in [&mut widened.q, &mut widened.k, &mut widened.v] {
        *value = l.widened(*value)?;
    }
    for value in [&mut widened.decay, &mut widened.beta, &mut widened.state] {
        *value = value.map(|value| l.widened(value)).transpose()?;
    }
    if widened.state.is_none() {
        widened.state = Some(zeros(l, widened.q, &state.shape)?);
    }
    let results = l.emit_all(widened)?;
    results.into_iter().map(|value| l.cast(value, y.dtype)).collect()
}

/// Products of all queries with all keys, each with the decay between the two, and products with the state; `None` where
/// `beta`, or a decay of each element, lets no product do that.
pub(super) fn products(l: &mut Builder<'_, '_>, op: &LinearAttention) -> Result<Option<Vec<ValueId>>, BuildError> {
    let by_element = op.decay.is_some_and(|decay| op.decays_by_element(&l.graph.ty(decay).shape));
    if op.beta.is_some() || by_element {
        return Ok(None);
    }
    let [y, state] = results(l, op);
    let [rows, tokens] = [0, 1].map(|axis: usize| y.shape[axis].clone());
    let (groups, each) = (dim(op.key_heads), dim(op.heads / op.key_heads));
    let [key, value] = [2, 3].map(|axis: usize| state.shape[axis].clone());
    let one = Dim::constant(1);

    // [rows, groups, heads of a group, .., ..], where the heads of a group share queries and keys.
    let heads = |l: &mut Builder<'_, '_>, x: ValueId, each: &Dim, size: &Dim, perm: &[usize]| {
        let x = l.widened(x)?;
        let x = l.reshape(x, [rows.clone(), tokens.clone(), groups.clone(), each.clone(), size.clone()])?;
        l.transpose(x, perm)
    };
    let q = heads(l, op.q, &one, &key, &[0, 2, 3, 1, 4])?;
    let k = heads(l, op.k, &one, &key, &[0, 2, 3, 4, 1])?;
    let v = heads(l, op.v, &each, &value, &[0, 2, 3, 1, 4])?;
    let decays = match op.decay {
        Some(decay) => Some(heads(l, decay, &each, &one, &[0, 2, 3, 1, 4])?),
        None => None,
    };
    let kept = kept(l, v, &tokens, decays)?;

    let scores = l.emit(MatMul { a: q, b: k })?;
    let scores = l.binary(BinaryKind::Mul, scores, kept)?;
    let mut result = l.emit(MatMul { a: scores, b: v })?;
    let start = tokens.checked_sub(&one).unwrap_or_default();
    let last =
        |l: &mut Builder<'_, '_>, x: ValueId| l.emit(Slice { x, axis: 3, start: start.clone(), end: tokens.clone() });
    // What is left of each key after the last token.
    let left = last(l, kept)?;
    let k = l.binary(BinaryKind::Mul, k, left)?;
    let mut next = l.emit(MatMul { a: k, b: v })?;
    if let Some(given) = op.state {
        let given = l.widened(given)?;
        let mut given = l.reshape(given, [rows.clone(), groups, each, key, value])?;
        let mut read = l.emit(MatMul { a: q, b: given })?;
        if let Some(decays) = decays {
            let up_to = l.emit(CumSum { x: decays, axis: 3 })?;
            let held = l.unary(UnaryKind::Exp, up_to)?;
            read = l.binary(BinaryKind::Mul, read, held)?;
            let held = last(l, held)?;
            given = l.binary(BinaryKind::Mul, given, held)?;
        }
        result = l.binary(BinaryKind::Add, result, read)?;
        next = l.binary(BinaryKind::Add, next, given)?;
    }
    if op.scale.0 != 1.0 {
        result = l.with_scalar(BinaryKind::Mul, result, op.scale.0)?;
    }
    let result = l.transpose(result, &[0, 3, 1, 2, 4])?;
    let result = l.reshape(result, y.shape.iter().cloned())?;
    let next = l.reshape(next, state.shape.iter().cloned())?;
    Ok(Some(vec![l.cast(result, y.dtype)?, l.cast(next, y.dtype)?]))
}

/// How much of what a token adds is left at a later one: [.., tokens, earlier tokens], 0 for those that are no earlier ones.
/// `decays` are [.., tokens, 1]. Sums over what is between two tokens are exact where those from the first token on are large.
fn kept(l: &mut Builder<'_, '_>, v: ValueId, tokens: &Dim, decays: Option<ValueId>) -> Result<ValueId, BuildError> {
    let places = l.emit(Iota { dtype: DType::I64, length: tokens.clone() })?;
    let rows = l.reshape(places, [tokens.clone(), Dim::constant(1)])?;
    let is_later = l.binary(BinaryKind::Greater, places, rows)?;
    let dtype = l.graph.ty(v).dtype;
    let number = |l: &mut Builder<'_, '_>, number: f64| l.graph.weight_part(Weight::scalar(dtype, number), l.like);
    let (zero, one) = (number(l, 0.0), number(l, 1.0));
    let Some(decays) = decays else {
        let whole = l.emit(Select { condition: is_later, a: zero, b: one })?;
        let one = Dim::constant(1);
        return l.reshape(whole, [one.clone(), one.clone(), one, tokens.clone(), tokens.clone()]);
    };
    let is_earlier = l.binary(BinaryKind::Less, places, rows)?;
    let after = l.emit(Select { condition: is_earlier, a: decays, b: zero })?;
    let between = l.emit(CumSum { x: after, axis: 3 })?;
    let lowest = number(l, dtype.finite_min().unwrap_or(f64::from(f32::MIN)));
    let between = l.emit(Select { condition: is_later, a: lowest, b: between })?;
    l.unary(UnaryKind::Exp, between)
}
