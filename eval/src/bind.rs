//! Fitting inputs to a graph.

use std::collections::BTreeMap;

use planish_ir::{Bindings, Graph, Symbol, TensorType};

use crate::ops::unresolved;
use crate::{EvalError, Tensor};

/// What each symbol stands for, from the shapes of the inputs, given by the names of the graph's
/// input values.
///
/// # Errors
/// When an input is missing, unknown or given twice, has another type than the graph says, or two
/// inputs disagree on a symbol.
pub fn bind(graph: &Graph, inputs: &[(&str, Tensor)]) -> Result<Bindings, EvalError> {
    check_names(graph, inputs)?;
    let given = inputs.iter().filter_map(|(name, tensor)| {
        let input = graph.inputs().iter().find(|v| graph.value(**v).name == *name)?;
        Some((*name, graph.ty(*input), tensor.ty()))
    });
    bind_types(graph, &given.collect::<Vec<_>>())
}

/// What each symbol stands for, from inputs by name, each with the type that the graph says and the one that it has.
///
/// # Errors
/// When an input has another type than the graph says, or two inputs disagree on a symbol.
pub fn bind_types(graph: &Graph, given: &[(&str, &TensorType, TensorType)]) -> Result<Bindings, EvalError> {
    let mut bound: BTreeMap<&Symbol, (i64, &str)> = BTreeMap::new();
    let mismatch = |name: &str, ty: &TensorType, actual: &TensorType, why: String| EvalError::InputType {
        name: name.to_owned(),
        actual: Box::new(actual.clone()),
        ty: Box::new(ty.clone()),
        why,
        expected: expected(graph),
    };
    for (name, ty, actual) in given {
        if ty.dtype != actual.dtype || ty.shape.rank() != actual.shape.rank() {
            return Err(mismatch(name, ty, actual, String::new()));
        }
        for (dim, size) in ty.shape.iter().zip(actual.shape.iter()) {
            let Some((symbol, size)) = size.as_constant().and_then(|size| dim.solve(size)) else { continue };
            let &mut (first, first_input) = bound.entry(symbol).or_insert((size, name));
            if first != size {
                return Err(EvalError::Symbol {
                    symbol: symbol.clone(),
                    first,
                    first_input: first_input.to_owned(),
                    second: size,
                    second_input: (*name).to_owned(),
                });
            }
        }
    }
    let bindings: Bindings = bound.into_iter().map(|(symbol, (size, _))| (symbol.clone(), size)).collect();
    for (name, ty, actual) in given {
        for (axis, (dim, size)) in ty.shape.iter().zip(actual.shape.iter()).enumerate() {
            let why = match dim.evaluate(&bindings) {
                Some(value) if size.as_constant() == Some(value) => continue,
                Some(value) => format!(" (dimension {axis}, `{dim}`, is {value})"),
                None => format!(" ({})", unresolved(dim, &bindings)),
            };
            return Err(mismatch(name, ty, actual, why));
        }
    }
    Ok(bindings)
}

fn check_names(graph: &Graph, inputs: &[(&str, Tensor)]) -> Result<(), EvalError> {
    let names: Vec<&str> = graph.inputs().iter().map(|v| graph.value(*v).name.as_str()).collect();
    for (i, (name, _)) in inputs.iter().enumerate() {
        if !names.contains(name) {
            return Err(EvalError::UnknownInput { name: (*name).to_owned(), expected: expected(graph) });
        }
        if inputs[..i].iter().any(|(other, _)| other == name) {
            return Err(EvalError::RepeatedInput { name: (*name).to_owned() });
        }
    }
    match names.into_iter().find(|name| inputs.iter().all(|(given, _)| given != name)) {
        Some(name) => Err(EvalError::MissingInput { name: name.to_owned(), expected: expected(graph) }),
        None => Ok(()),
    }
}

/// The inputs of a graph with their types, for an error message.
fn expected(graph: &Graph) -> String {
    let inputs = graph.inputs().iter().map(|v| format!("`{}`: {}", graph.value(*v).name, graph.ty(*v)));
    let inputs: Vec<String> = inputs.collect();
    if inputs.is_empty() { "no inputs".to_owned() } else { inputs.join(", ") }
}
