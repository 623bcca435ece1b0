//! The verifier. After it, code trusts the graph.
//!
//! | | invariant |
//! |---|---|
//! | V01 | every operand is an input, a weight or a result of an earlier node |
//! | V02 | the results of a node have the types that its operator infers |
//! | V03 | names of values are unique and not empty |
//! | V04 | outputs have unique, non-empty names that no other input has, and values of the graph |
//! | V05 | a weight has the type of its value |
//! | V06 | a node's results name it as what defines them, and each node stands in the order once |
//! | V07 | every symbol of a type or an attribute is a dimension of an input, or of a result of a `foreign` node no later |
//! | V08 | no known dimension is negative |
//! | V09 | only `foreign` operators take what is no tensor of a known number of dimensions |

use std::collections::HashSet;

use crate::handle::Handle;
use crate::ops::{Foreign, Types};
use crate::{Def, Dim, Graph, Op, Output, Symbol, Value};

/// A graph breaks an invariant.
#[derive(Debug, thiserror::Error)]
#[error("{invariant}: {message}")]
pub struct VerifyError {
    /// The invariant's number, e.g. `V02`.
    pub invariant: &'static str,
    /// What breaks it, and where.
    pub message: String,
}

/// Checks every invariant.
///
/// # Errors
/// The first one that does not hold.
pub fn verify(graph: &Graph) -> Result<(), VerifyError> {
    let inputs = graph.inputs().iter().flat_map(|v| graph.type_of(*v).dims());
    let symbols: HashSet<Symbol> = inputs.filter_map(|d| d.as_symbol().cloned()).collect();
    let determined = graph.nodes().flat_map(|(_, node)| determined(&node.op)).cloned();
    values(graph, &symbols.iter().cloned().chain(determined).collect())?;
    let defined = nodes(graph, symbols)?;
    outputs(graph, &defined)
}

fn fail<T>(invariant: &'static str, message: String) -> Result<T, VerifyError> {
    Err(VerifyError { invariant, message })
}

/// V03, V05, and V07 and V08 of types.
fn values(graph: &Graph, symbols: &HashSet<Symbol>) -> Result<(), VerifyError> {
    let mut names: HashSet<&str> = HashSet::new();
    for (_, value) in graph.values() {
        let Value { name, ty, origin, .. } = value;
        if name.is_empty() || !names.insert(name) {
            return fail("V03", format!("the name `{name}` is empty or taken twice"));
        }
        if let Def::Weight(weight) = &value.def {
            let sizes = ty.dims().map(|d| d.as_constant().and_then(|d| usize::try_from(d).ok()));
            if ty.as_tensor().is_none_or(|ty| ty.dtype != weight.dtype())
                || !sizes.eq(weight.shape().iter().map(|&d| Some(d)))
            {
                let (dtype, shape) = (weight.dtype(), weight.shape());
                return fail("V05", format!("`{name}` is {ty} but its weight {dtype}{shape:?}"));
            }
        }
        for dim in ty.dims() {
            symbols_of(dim, symbols, || format!("`{name}` ({origin}) is {ty}"))?;
            if dim.as_constant().is_some_and(|d| d < 0) {
                return fail("V08", format!("`{name}` ({origin}) is {ty}, with a negative dimension"));
            }
        }
    }
    Ok(())
}

/// The symbols whose size an operator determines.
fn determined(op: &Op) -> impl Iterator<Item = &Symbol> {
    let foreign = match op {
        Op::Foreign(p) => Some(p),
        _ => None,
    };
    foreign.into_iter().flat_map(Foreign::result_symbols)
}

/// V01, V02, V06, and V07 of attributes; returns which values are defined, by index.
fn nodes(graph: &Graph, mut symbols: HashSet<Symbol>) -> Result<Vec<bool>, VerifyError> {
    let mut defined: Vec<bool> = graph.values().map(|(_, v)| matches!(v.def, Def::Weight(_))).collect();
    graph.inputs().iter().for_each(|v| defined[v.index()] = true);
    let mut placed = HashSet::new();
    for (id, node) in graph.nodes() {
        let name = || node.outputs.first().map_or("?", |v| &graph.value(*v).name);
        let what = || format!("`{}` at `{}`", node.op.kind(), name());
        if !placed.insert(id) {
            return fail("V06", format!("{} stands in the order twice", what()));
        }
        for operand in node.op.operands() {
            if graph.get_value(operand).is_none() || !defined[operand.index()] {
                return fail("V01", format!("{} uses {operand:?} before it is defined", what()));
            }
        }
        let lookup = |v| graph.type_of(v);
        let types = Types::new(&lookup);
        if let Err(message) = node.op.check_tensors(&types) {
            return fail("V09", format!("{}: {message}", what()));
        }
        match node.op.infer(&types) {
            Ok(types) if types.iter().eq(node.outputs.iter().map(|v| graph.type_of(*v))) => {}
            Ok(types) => return fail("V02", format!("{} has other result types than {types:?}", what())),
            Err(message) => return fail("V02", format!("{}: {message}", what())),
        }
        symbols.extend(determined(&node.op).cloned());
        let mut attributes = Ok(());
        node.op.visit_dims(&mut |dim| {
            if attributes.is_ok() {
                attributes = symbols_of(dim, &symbols, || format!("an attribute of {} is {dim}", what()));
            }
        });
        attributes?;
        for (i, output) in node.outputs.iter().enumerate() {
            if !matches!(graph.value(*output).def, Def::Node { node, index } if node == id && index == i) {
                return fail("V06", format!("result {i} of {} names another definition", what()));
            }
            defined[output.index()] = true;
        }
    }
    Ok(defined)
}

/// V04.
fn outputs(graph: &Graph, defined: &[bool]) -> Result<(), VerifyError> {
    let mut names: HashSet<&str> = HashSet::new();
    for Output { name, value } in graph.outputs() {
        let of_input = graph.inputs().iter().any(|input| input != value && graph.value(*input).name == *name);
        if name.is_empty() || of_input || !names.insert(name) {
            return fail("V04", format!("the output name `{name}` is empty, another input's, or taken twice"));
        }
        if graph.get_value(*value).is_none() || !defined[value.index()] {
            return fail("V04", format!("output `{name}` has no value"));
        }
    }
    Ok(())
}

/// V07 of one dimension; `what` says where it stands.
fn symbols_of(dim: &Dim, symbols: &HashSet<Symbol>, what: impl Fn() -> String) -> Result<(), VerifyError> {
    match dim.symbols().find(|s| !symbols.contains(*s)) {
        Some(symbol) => {
            fail("V07", format!("{}, but neither an input nor an earlier result has the dimension `{symbol}`", what()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
