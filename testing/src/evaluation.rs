//! Evaluation of graphs on inputs that a seed makes, and comparison of what they give.

use std::collections::{BTreeMap, BTreeSet};

use planish_eval::{Tensor, evaluate};
use planish_ir::{Bindings, DType, Graph, Symbol, Weight};

/// A size for each symbol of the inputs, from a seed: 1 to 4, and not all alike.
fn sizes(graph: &Graph, seed: u64) -> Bindings {
    let dims = graph.inputs().iter().flat_map(|v| graph.ty(*v).shape.iter());
    let symbols: BTreeSet<Symbol> = dims.flat_map(|d| d.symbols().cloned()).collect();
    let size = |i: usize| 1 + (seed >> (i % 32) & 1) + 2 * (seed >> 7 >> (i % 32) & 1);
    symbols.into_iter().enumerate().map(|(i, symbol)| (symbol, i64::try_from(size(i)).unwrap())).collect()
}

/// Inputs from a seed: floats in [-1, 1), integers 0 or 1, booleans.
pub fn inputs(graph: &Graph, seed: u64) -> BTreeMap<String, Tensor> {
    let sizes = sizes(graph, seed);
    let input = |(i, value): (usize, &planish_ir::ValueId)| {
        let ty = graph.ty(*value);
        let shape = ty.shape.evaluate(&sizes).expect("every symbol has a size");
        let uniform = Weight::uniform(DType::F64, shape.clone(), seed.wrapping_add(i as u64)).unwrap();
        let mut numbers = uniform.read_numbers().unwrap();
        if !ty.dtype.is_float() {
            numbers.iter_mut().for_each(|v| *v = f64::from(u8::from(*v >= 0.0)));
        }
        (graph.value(*value).name.clone(), Tensor::from_f64(ty.dtype, shape, &numbers).unwrap())
    };
    graph.inputs().iter().enumerate().map(input).collect()
}

/// The outputs of a graph.
pub fn outputs(graph: &Graph, inputs: &BTreeMap<String, Tensor>) -> Result<Vec<(String, Tensor)>, String> {
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    evaluate(graph, &inputs).map_err(|e| e.to_string())
}

/// How far floats may be off, relative to the largest of their tensor: what the shortest type that
/// a graph computes with allows.
pub fn tolerance(graph: &Graph) -> f64 {
    graph.values().map(|(_, value)| allowed(value.ty.tensor().dtype)).fold(0.0, f64::max)
}

/// How far floats that were computed in a type may be off.
pub fn allowed(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => 3e-2,
        DType::F16 => 4e-3,
        DType::F32 => 1e-5,
        _ => 1e-12,
    }
}

/// Where outputs differ in name, type or by more than a tolerance, which is relative to the largest
/// number of a tensor or to `least`, whichever is more.
pub fn difference(
    tolerance: f64,
    least: f64,
    before: &[(String, Tensor)],
    after: &[(String, Tensor)],
) -> Option<String> {
    let names =
        |outputs: &[(String, Tensor)]| outputs.iter().map(|(n, t)| format!("{n}: {}", t.ty())).collect::<Vec<_>>();
    if names(before) != names(after) {
        return Some(format!("outputs were {:?}, are {:?}", names(before), names(after)));
    }
    before.iter().zip(after).find_map(|((name, a), (_, b))| {
        if !a.dtype().is_float() {
            return (a != b).then(|| format!("`{name}` was {a:?}, is {b:?}"));
        }
        let largest = a.to_f64().into_iter().filter(|v| v.is_finite()).fold(least, |m, v| v.abs().max(m));
        a.to_f64().into_iter().zip(b.to_f64()).enumerate().find_map(|(i, (x, y))| {
            let same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tolerance * largest;
            (!same).then(|| format!("element {i} of `{name}` was {x:e}, is {y:e}; the largest is {largest:e}"))
        })
    })
}
