//! Products, norms, recurrent layers and attention.

use std::collections::HashMap;

use planish_ir::{DType, Dim, TensorType};

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::Partial;
use super::contrib::statistics;
use super::elementwise::broadcast;

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Partial>>, String> {
    let ty = |index: usize| -> Result<TensorType, String> { scope.ty(node.input(index)?) };
    let found = match node.proto.op_type.as_str() {
        "MatMul" => product(&ty(0)?, &ty(1)?, ty(0)?.dtype)?,
        "MatMulInteger" => product(&ty(0)?, &ty(1)?, DType::I32)?,
        "QLinearMatMul" => product(&ty(0)?, &ty(3)?, ty(7)?.dtype)?,
        "Gemm" => gemm(node, &ty(0)?, &ty(1)?)?,
        "Einsum" => einsum(scope, node)?,
        "LayerNormalization" => {
            let x = ty(0)?;
            let from = axis(node.int_or("axis", -1)?, x.shape.rank())?;
            let statistics = statistics(&x, from);
            return Ok(Some(vec![x.into(), statistics.clone(), statistics]));
        }
        // ONNX Runtime's own, in the default domain.
        "SimplifiedLayerNormalization" => {
            let x = ty(0)?;
            let from = axis(node.int_or("axis", -1)?, x.shape.rank())?;
            let statistics = statistics(&x, from);
            return Ok(Some(vec![x.into(), statistics]));
        }
        "BatchNormalization" => {
            let (mean, variance) = (ty(3)?.into(), ty(4)?.into());
            return Ok(Some(vec![ty(0)?.into(), mean, variance]));
        }
        "LSTM" | "GRU" | "RNN" => return recurrent(scope, node).map(Some),
        "Attention" => return attention(scope, node).map(Some),
        "LinearAttention" => return linear_attention(scope, node).map(Some),
        "CausalConvWithState" => return causal_convolution(scope, node).map(Some),
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}

/// A product of two matrices, each as it is or transposed.
pub(super) fn gemm(node: &Node<'_>, a: &TensorType, b: &TensorType) -> Result<Partial, String> {
    let ([a0, a1], [b0, b1]) = (&a.shape[..], &b.shape[..]) else {
        return Err(format!("{a} and {b} are not matrices"));
    };
    let rows = if node.int_or("transA", 0)? == 0 { a0 } else { a1 };
    let columns = if node.int_or("transB", 0)? == 0 { b1 } else { b0 };
    Ok(Partial::known(a.dtype, &[rows.clone(), columns.clone()]))
}

/// A product of matrices, vectors being matrices of one row or column.
pub(super) fn product(a: &TensorType, b: &TensorType, dtype: DType) -> Result<Partial, String> {
    let parts = |ty: &TensorType| -> Vec<Option<Dim>> { ty.shape.iter().cloned().map(Some).collect() };
    let (left, right) = (parts(a), parts(b));
    if left.is_empty() || right.is_empty() {
        return Err(format!("{a} and {b} are not matrices"));
    }
    let outer = |dims: &[Option<Dim>]| dims[..dims.len().saturating_sub(2)].to_vec();
    let mut dims = broadcast(&outer(&left), &outer(&right))?;
    if left.len() > 1 {
        dims.push(left[left.len() - 2].clone());
    }
    if right.len() > 1 {
        dims.push(right[right.len() - 1].clone());
    }
    Ok(Partial::new(dtype, dims))
}

/// A sum of products over named dimensions; `...` stands for leading ones without names.
fn einsum(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let equation: String = node.text_or("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
    let (terms, result) = match equation.split_once("->") {
        Some((terms, result)) => (terms, Some(result)),
        None => (equation.as_str(), None),
    };
    let mut sizes: HashMap<char, Option<Dim>> = HashMap::new();
    let mut order: Vec<(char, usize)> = Vec::new();
    let mut ellipsis: Vec<Option<Dim>> = Vec::new();
    let mut dtype = DType::F32;
    for (index, term) in terms.split(',').enumerate() {
        let ty = scope.ty(node.input(index)?)?;
        dtype = ty.dtype;
        let malformed = || format!("its equation `{equation}` does not fit its operand {ty}");
        let (front, back) = match term.split_once("...") {
            Some((front, back)) => (front, Some(back)),
            None => (term, None),
        };
        let named = front.chars().count() + back.map_or(0, |b| b.chars().count());
        let extra = ty.shape.rank().checked_sub(named).filter(|&e| e == 0 || back.is_some()).ok_or_else(malformed)?;
        let (before, after) = (front.chars().count(), front.chars().count() + extra);
        let dims: Vec<Option<Dim>> = ty.shape.iter().cloned().map(Some).collect();
        ellipsis = broadcast(&ellipsis, &dims[before..after])?;
        let letters = front.chars().chain(back.unwrap_or("").chars());
        for (letter, dim) in letters.zip(dims[..before].iter().chain(&dims[after..])) {
            match order.iter_mut().find(|(l, _)| *l == letter) {
                Some((_, count)) => *count += 1,
                None => order.push((letter, 1)),
            }
            let slot = sizes.entry(letter).or_insert_with(|| dim.clone());
            if slot.as_ref().and_then(Dim::as_constant).is_none_or(|d| d == 1) {
                slot.clone_from(dim);
            }
        }
    }
    // Without a result, the names that occur once, in the order of the alphabet.
    let implied = || {
        let mut once: Vec<char> = order.iter().filter(|(_, n)| *n == 1).map(|(l, _)| *l).collect();
        once.sort_unstable();
        format!("...{}", once.into_iter().collect::<String>())
    };
    let result = result.map_or_else(implied, str::to_owned);
    let mut dims = Vec::new();
    let (front, back) = result.split_once("...").map_or((result.as_str(), None), |(f, b)| (f, Some(b)));
    let size = |letter: char| {
        sizes.get(&letter).cloned().ok_or_else(|| format!("its equation `{equation}` has no operand with `{letter}`"))
    };
    for letter in front.chars() {
        dims.push(size(letter)?);
    }
    if let Some(back) = back {
        dims.extend(ellipsis);
        for letter in back.chars() {
            dims.push(size(letter)?);
        }
    }
    Ok(Partial::new(dtype, dims))
}

/// All states, the last one, and of an LSTM the last cell.
fn recurrent(scope: &Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let (x, r) = (scope.ty(node.input(0)?)?, scope.ty(node.input(2)?)?);
    let ([first, second, _], [directions, _, hidden]) = (&x.shape[..], &r.shape[..]) else {
        return Err(format!("its operands are {x} and {r}, expected three dimensions"));
    };
    let known = |dims: [&Dim; 4]| Partial::known(x.dtype, &dims.map(Dim::clone));
    let last = |dims: [&Dim; 3]| Partial::known(x.dtype, &dims.map(Dim::clone));
    let (all, last) = match node.int_or("layout", 0)? {
        0 => (known([first, directions, second, hidden]), last([directions, second, hidden])),
        _ => (known([first, second, directions, hidden]), last([first, directions, hidden])),
    };
    Ok(vec![all, last.clone(), last])
}

/// Attention over [batch, sequence, heads * size] that keeps a state of [batch, heads, key size, value size].
fn linear_attention(scope: &Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let [q, k, v] = [scope.ty(node.input(0)?)?, scope.ty(node.input(1)?)?, scope.ty(node.input(2)?)?];
    let ([batch, length, _], [_, _, keys], [_, _, values]) = (&q.shape[..], &k.shape[..], &v.shape[..]) else {
        return Err(format!("its operands are {q}, {k} and {v}, expected three dimensions"));
    };
    let heads = |name: &str| -> Result<Dim, String> {
        Ok(Dim::constant(node.int(name)?.ok_or_else(|| format!("it has no `{name}`"))?))
    };
    let (queries, shared) = (heads("q_num_heads")?, heads("kv_num_heads")?);
    let (key, value) = (keys.exact_div(&shared), values.exact_div(&shared));
    let features = value.as_ref().and_then(|value| value.checked_mul(&queries));
    let kept = if node.has(3) { scope.ty(node.input(3)?)?.dtype } else { q.dtype };
    let state = [Some(batch.clone()), Some(shared), key, value];
    Ok(vec![Partial::new(q.dtype, [Some(batch.clone()), Some(length.clone()), features]), Partial::new(kept, state)])
}

/// A depthwise convolution over [batch, channels, length] that keeps the last elements before the next ones.
fn causal_convolution(scope: &Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let (x, weight) = (scope.ty(node.input(0)?)?, scope.ty(node.input(1)?)?);
    let ([batch, channels, _], [_, _, size]) = (&x.shape[..], &weight.shape[..]) else {
        return Err(format!("its operands are {x} and {weight}, expected three dimensions"));
    };
    let kept = size.checked_sub(&Dim::constant(1));
    let state = Partial::new(x.dtype, [Some(batch.clone()), Some(channels.clone()), kept]);
    Ok(vec![x.into(), state])
}

/// Attention over [batch, heads, sequence, size], or heads side by side as [batch, sequence, heads * size].
fn attention(scope: &Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let [q, k, v] = [scope.ty(node.input(0)?)?, scope.ty(node.input(1)?)?, scope.ty(node.input(2)?)?];
    let heads = |name: &str| -> Result<Dim, String> {
        Ok(Dim::constant(node.int(name)?.ok_or_else(|| format!("it has no `{name}`"))?))
    };
    // As [batch, heads, sequence, size].
    let apart = |ty: &TensorType, name: &str| -> Result<[Option<Dim>; 4], String> {
        match &ty.shape[..] {
            [batch, heads, length, size] => Ok([batch, heads, length, size].map(|d| Some(d.clone()))),
            [batch, length, features] => {
                let heads = heads(name)?;
                let size = features.exact_div(&heads);
                if size.is_none() && features.as_constant().is_some() {
                    return Err(format!(
                        "the {features} features of its operand {ty} are not `{name}` = {heads} heads"
                    ));
                }
                Ok([Some(batch.clone()), Some(heads.clone()), Some(length.clone()), size])
            }
            _ => Err(format!("its operand is {ty}, expected three or four dimensions")),
        }
    };
    let past = |index: usize| -> Result<Option<Dim>, String> {
        if !node.has(index) {
            return Ok(Some(Dim::constant(0)));
        }
        Ok(scope.ty(node.input(index)?)?.shape.get(2).cloned())
    };
    let (queries, keys, values) = (apart(&q, "q_num_heads")?, apart(&k, "kv_num_heads")?, apart(&v, "kv_num_heads")?);
    let sum = |a: &Option<Dim>, b: Option<Dim>| a.as_ref().zip(b).and_then(|(a, b)| a.checked_add(&b));
    let [batch, heads, length, _] = queries;
    let result = match q.shape.rank() {
        4 => vec![batch.clone(), heads.clone(), length.clone(), values[3].clone()],
        _ => {
            let features = heads.as_ref().zip(values[3].as_ref()).and_then(|(a, b)| a.checked_mul(b));
            vec![batch.clone(), length.clone(), features]
        }
    };
    let (all_keys, all_values) = (sum(&keys[2], past(4)?), sum(&values[2], past(5)?));
    let [batch_k, heads_k, _, size_k] = keys;
    let [batch_v, heads_v, _, size_v] = values;
    Ok(vec![
        Partial::new(q.dtype, result),
        Partial::new(k.dtype, [batch_k, heads_k, all_keys.clone(), size_k]),
        Partial::new(v.dtype, [batch_v, heads_v, all_values, size_v]),
        Partial::new(q.dtype, [batch, heads, length, all_keys]),
    ])
}
