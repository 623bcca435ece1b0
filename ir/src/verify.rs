//! The verifier. Other code relies on the invariants that it checks.
//!
//! | | invariant |
//! |---|---|
//! | V01 | every operand is an input, a weight or a result of an earlier node |
//! | V02 | the results of a node have the types that its operator infers |
//! | V03 | names of values are unique and not empty |
//! | V04 | outputs have unique, non-empty names that no other input has, and values of the graph |
//! | V05 | a weight has the type of its value |
//! | V06 | a node's results name it as what defines them, and each node is in the order once |
//! | V07 | every symbol of a type or an attribute is a dimension of an input, which may be a multiple of it, or of a result of a `foreign` or `conv` node no later |
//! | V08 | no known dimension is negative |
//! | V09 | only `foreign` operators take what is not a tensor of a known number of dimensions |

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::handle::Handle;
use crate::ops::Types;
use crate::{Def, Dim, Graph, Node, Output, Symbol, Value, ValueId};

/// A graph breaks invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// Everything that breaks one, in the order in which it was found: at least one. A value that breaks several
    /// invariants, or whose user breaks one for it, is here more than once.
    pub violations: Vec<Violation>,
}

/// Something that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's number, e.g. `V02`.
    pub invariant: &'static str,
    /// What breaks it, and where.
    pub message: String,
}

/// The most violations that an error prints.
const PRINTED: usize = 20;

impl fmt::Display for VerifyError {
    /// A line for each violation, up to 20.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Violation { invariant, message }) in self.violations.iter().take(PRINTED).enumerate() {
            write!(f, "{}{invariant}: {message}", if at == 0 { "" } else { "\n" })?;
        }
        match self.violations.len().checked_sub(PRINTED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n{more} more"),
        }
    }
}

impl std::error::Error for VerifyError {}

/// Checks every invariant.
///
/// # Errors
/// All that do not hold.
pub fn verify(graph: &Graph) -> Result<(), VerifyError> {
    let inputs = graph.inputs().iter().flat_map(|v| graph.type_of(*v).dims());
    let symbols: HashSet<Symbol> = inputs.filter_map(|d| Some(d.as_multiple()?.0.clone())).collect();
    let determined = graph.nodes().flat_map(|(_, node)| node.op.determined_symbols()).cloned();
    let mut checks = Checks { graph, violations: Vec::new() };
    checks.values(&symbols.iter().cloned().chain(determined).collect());
    let defined = checks.nodes(symbols);
    checks.outputs(&defined);
    match checks.violations {
        violations if violations.is_empty() => Ok(()),
        violations => Err(VerifyError { violations }),
    }
}

/// A graph, and what breaks its invariants so far.
struct Checks<'a> {
    graph: &'a Graph,
    violations: Vec<Violation>,
}

impl Checks<'_> {
    fn fail(&mut self, invariant: &'static str, message: String) {
        self.violations.push(Violation { invariant, message });
    }

    /// V03, V05, and V07 and V08 of types.
    fn values(&mut self, symbols: &HashSet<Symbol>) {
        let mut names: HashSet<&str> = HashSet::new();
        for (_, value) in self.graph.values() {
            let Value { name, ty, origin, .. } = value;
            if name.is_empty() || !names.insert(name) {
                self.fail("V03", format!("the name `{name}` is empty or taken twice"));
            }
            if let Def::Weight(weight) = &value.def {
                let sizes = ty.dims().map(|d| d.as_constant().and_then(|d| usize::try_from(d).ok()));
                if ty.as_tensor().is_none_or(|ty| ty.dtype != weight.dtype())
                    || !sizes.eq(weight.shape().iter().map(|&d| Some(d)))
                {
                    let (dtype, shape) = (weight.dtype(), weight.shape());
                    self.fail("V05", format!("`{name}` is {ty} but its weight {dtype}{shape:?}"));
                }
            }
            for dim in ty.dims() {
                self.symbols(dim, symbols, || format!("`{name}` ({origin}) is {ty}"));
                if dim.as_constant().is_some_and(|d| d < 0) {
                    self.fail("V08", format!("`{name}` ({origin}) is {ty}, with a negative dimension"));
                }
            }
        }
    }

    /// V01, V02, V06, V09, and V07 of attributes; returns which values are defined, by index.
    fn nodes(&mut self, mut symbols: HashSet<Symbol>) -> Vec<bool> {
        let graph = self.graph;
        let mut defined: Vec<bool> = graph.values().map(|(_, v)| matches!(v.def, Def::Weight(_))).collect();
        graph.inputs().iter().for_each(|v| defined[v.index()] = true);
        let mut placed = HashSet::new();
        for (id, node) in graph.nodes() {
            let name = || node.outputs.first().map_or("?", |v| &graph.value(*v).name);
            let what = || format!("`{}` at `{}`", node.op.kind(), name());
            if !placed.insert(id) {
                self.fail("V06", format!("{} is twice in the order", what()));
                continue;
            }
            let operands = node.op.operands();
            for operand in &operands {
                if graph.get_value(*operand).is_none() || !defined[operand.index()] {
                    self.fail("V01", format!("{} uses {operand:?} before it is defined", what()));
                }
            }
            // What is not a value of the graph has no type.
            if operands.iter().all(|operand| graph.get_value(*operand).is_some()) {
                self.types(node, &what);
            }
            symbols.extend(node.op.determined_symbols().cloned());
            node.op.visit_dims(&mut |dim| {
                self.symbols(dim, &symbols, || format!("an attribute of {} is {dim}", what()));
            });
            for (i, output) in node.outputs.iter().enumerate() {
                if !matches!(graph.value(*output).def, Def::Node { node, index } if node == id && index == i) {
                    self.fail("V06", format!("result {i} of {} names another definition", what()));
                }
                defined[output.index()] = true;
            }
        }
        defined
    }

    /// V02 and V09 of a node.
    fn types(&mut self, node: &Node, what: &dyn Fn() -> String) {
        let lookup = |v| self.graph.type_of(v);
        let types = Types::new(&lookup);
        if let Err(message) = node.op.check_tensors(&types) {
            return self.fail("V09", format!("{}: {message}", what()));
        }
        match node.op.infer(&types) {
            Ok(types) if types.iter().eq(node.outputs.iter().map(|v| self.graph.type_of(*v))) => {}
            Ok(types) => self.fail("V02", format!("{} has other result types than {types:?}", what())),
            Err(message) => self.fail("V02", format!("{}: {message}", what())),
        }
    }

    /// V04.
    fn outputs(&mut self, defined: &[bool]) {
        let graph = self.graph;
        let mut names: HashSet<&str> = HashSet::new();
        let inputs: HashMap<&str, ValueId> =
            graph.inputs().iter().map(|input| (graph.value(*input).name.as_str(), *input)).collect();
        for Output { name, value } in graph.outputs() {
            let of_input = inputs.get(name.as_str()).is_some_and(|input| input != value);
            if name.is_empty() || of_input || !names.insert(name) {
                self.fail("V04", format!("the output name `{name}` is empty, another input's, or taken twice"));
            }
            if graph.get_value(*value).is_none() || !defined[value.index()] {
                self.fail("V04", format!("output `{name}` has no value"));
            }
        }
    }

    /// V07 of one dimension; `what` says where it is.
    fn symbols(&mut self, dim: &Dim, symbols: &HashSet<Symbol>, what: impl Fn() -> String) {
        if let Some(symbol) = dim.symbols().find(|s| !symbols.contains(*s)) {
            let text = "but neither an input nor an earlier result has the dimension";
            self.fail("V07", format!("{}, {text} `{symbol}`", what()));
        }
    }
}

#[cfg(test)]
mod tests;
