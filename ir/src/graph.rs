//! The graph: values and nodes in arenas, nodes in an order in which operands come first.

use crate::handle::{Arena, Handle};
use crate::interface::PartInterface;
use crate::names::Names;
use crate::ops::Types;
use crate::{DType, NodeId, Op, Origin, Shape, TensorType, Type, ValueId, Weight};

/// What defines a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Def {
    /// Given from outside.
    Input,
    /// Known at compile time.
    Weight(Weight),
    /// Result number `index` of a node.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its results.
        index: usize,
    },
}

/// What flows through the graph: a tensor, in general.
#[derive(Clone, Debug)]
pub struct Value {
    /// Unique in the graph: the name it was given, with a number after it where that was taken.
    pub name: String,
    /// The name it was given, where that was taken; [`Graph::compact`] returns to it where it has
    /// become free.
    pub(crate) given: Option<Box<str>>,
    /// What it is.
    pub ty: Type,
    /// What defines it.
    pub def: Def,
    /// Where it came from, for diagnostics.
    pub origin: Origin,
}

/// One operator applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operator with its operands.
    pub op: Op,
    /// Its results.
    pub outputs: Vec<ValueId>,
}

/// A result of the graph under the name by which it is known outside.
#[derive(Clone, Debug)]
pub struct Output {
    /// The name outside, e.g. `last_hidden_state`.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// An operator's operands do not fit it: which operator, where, why, and where its operands
/// came from.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(String);

/// A computation from named inputs to named outputs.
#[derive(Clone, Default)]
pub struct Graph {
    /// The model's name.
    pub name: String,
    /// What its inputs, outputs and symbols are; no part of the text form.
    pub interface: PartInterface,
    pub(crate) values: Arena<ValueId, Value>,
    pub(crate) nodes: Arena<NodeId, Node>,
    pub(crate) order: Vec<NodeId>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) names: Names,
    /// Whether nothing has changed since [`Graph::compact`].
    pub(crate) is_compact: bool,
}

impl Graph {
    /// An empty graph.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds an input. Its value takes the name, made unique.
    pub fn add_input(&mut self, name: &str, ty: impl Into<Type>, origin: Origin) -> ValueId {
        let value = self.add_value(name, ty.into(), Def::Input, origin);
        self.inputs.push(value);
        value
    }

    /// Adds a weight. Its value takes the name, made unique.
    pub fn add_weight(&mut self, name: &str, weight: Weight, origin: Origin) -> ValueId {
        // Sizes of weights are checked against u64 bytes when they are built.
        let dims = weight.shape().iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX).into());
        let ty = TensorType::new(weight.dtype(), Shape::new(dims));
        self.add_value(name, ty.into(), Def::Weight(weight), origin)
    }

    /// Adds a scalar constant.
    pub fn add_scalar(&mut self, name: &str, dtype: DType, value: f64) -> ValueId {
        self.add_weight(name, Weight::scalar(dtype, value), Origin::Unknown)
    }

    /// Appends a node; its results take the name, made unique.
    ///
    /// # Errors
    /// When the operands do not fit the operator.
    pub fn emit(&mut self, op: impl Into<Op>, name: &str, origin: Origin) -> Result<Vec<ValueId>, BuildError> {
        self.emit_named(op.into(), name.to_owned(), origin)
    }

    pub(crate) fn emit_named(&mut self, op: Op, name: String, origin: Origin) -> Result<Vec<ValueId>, BuildError> {
        let types = op.infer(&Types::new(&|v| &self.values[v].ty)).map_err(|message| {
            let mut text = format!("`{}` at `{name}` ({origin}): {message}", op.kind());
            op.visit_operands(&mut |v| text.push_str(&self.operand_origin(v)));
            BuildError(text)
        })?;
        self.is_compact = false;
        let node = NodeId::from_index(self.nodes.len());
        let mut outputs = Vec::with_capacity(types.len());
        // Most operators have one result, which takes name and origin as they are.
        let last = types.len().saturating_sub(1);
        let (mut name, mut origin) = (name, origin);
        for (index, ty) in types.into_iter().enumerate() {
            let (name, origin) = match index == last {
                true => (std::mem::take(&mut name), std::mem::take(&mut origin)),
                false => (name.clone(), origin.clone()),
            };
            outputs.push(self.push_value(name, ty, Def::Node { node, index }, origin));
        }
        self.nodes.push(Node { op, outputs: outputs.clone() });
        self.order.push(node);
        Ok(outputs)
    }

    /// A line about an operand for an error message, where it came from somewhere.
    fn operand_origin(&self, value: ValueId) -> String {
        match &self.values[value] {
            Value { origin: Origin::Unknown, .. } => String::new(),
            Value { name, ty, origin, .. } => format!("\n  operand `{name}`: {ty} from {origin}"),
        }
    }

    fn add_value(&mut self, name: &str, ty: Type, def: Def, origin: Origin) -> ValueId {
        self.is_compact = false;
        self.push_value(name.to_owned(), ty, def, origin)
    }

    /// Adds a value; it takes the name where that is free, and else with a number after it.
    pub(crate) fn push_value(&mut self, name: String, ty: Type, def: Def, origin: Origin) -> ValueId {
        let value = ValueId::from_index(self.values.len());
        let (name, given) = self.names.take(name, value, &self.values);
        self.values.push(Value { name, given, ty, def, origin })
    }

    /// Gives a value another name, made unique.
    pub fn rename(&mut self, value: ValueId, name: &str) {
        self.is_compact = false;
        self.names.free(value, &self.values[value].name);
        let (name, given) = self.names.take(name.to_owned(), value, &self.values);
        (self.values[value].name, self.values[value].given) = (name, given);
    }

    /// Makes a value a result of the graph.
    pub fn add_output(&mut self, name: &str, value: ValueId) {
        self.outputs.push(Output { name: name.to_owned(), value });
    }

    /// Takes all results of the graph away.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.is_compact = false;
        std::mem::take(&mut self.outputs)
    }

    /// Makes another value, also one of another type, the result of the graph at a place among its outputs. The name
    /// of the output stays.
    ///
    /// # Errors
    /// When there is no such place.
    pub fn set_output(&mut self, at: usize, value: ValueId) -> Result<(), BuildError> {
        let count = self.outputs.len();
        let missing = || BuildError(format!("there is no output {at} to be set: the graph has {count}"));
        self.outputs.get_mut(at).ok_or_else(missing)?.value = value;
        self.is_compact = false;
        Ok(())
    }

    /// The inputs, in order.
    #[must_use]
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The outputs, in order.
    #[must_use]
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    pub(crate) fn outputs_mut(&mut self) -> &mut [Output] {
        &mut self.outputs
    }

    /// A value.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id]
    }

    /// The type of a value that is a tensor of a known number of dimensions, as all are but some operands and results
    /// of `foreign` operators. Of another value it is a type that fits nothing; see [`Type::tensor`].
    #[must_use]
    pub fn ty(&self, id: ValueId) -> &TensorType {
        self.values[id].ty.tensor()
    }

    /// The type of a value, whatever it is.
    #[must_use]
    pub fn type_of(&self, id: ValueId) -> &Type {
        &self.values[id].ty
    }

    /// All values, in the order they were added.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter()
    }

    /// A value to be broken by tests of the verifier.
    #[cfg(test)]
    pub(crate) fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id]
    }

    pub(crate) fn get_value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id)
    }

    /// The number of values, dead ones included.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// A node to be changed; see that [`Graph::is_compact`] is right afterwards.
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// The nodes in program order: operands come before their users.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.order.iter().map(|&id| (id, &self.nodes[id]))
    }

    /// The weight that defines a value.
    #[must_use]
    pub fn weight(&self, id: ValueId) -> Option<&Weight> {
        match &self.values[id].def {
            Def::Weight(weight) => Some(weight),
            _ => None,
        }
    }

    /// Changes how a weight comes about.
    ///
    /// # Errors
    /// When the value is not a weight, or one of another element type or shape.
    pub fn set_weight(&mut self, id: ValueId, weight: Weight) -> Result<(), BuildError> {
        let Value { name, def, ty, .. } = &mut self.values[id];
        match def {
            Def::Weight(old) if (old.dtype(), old.shape()) == (weight.dtype(), weight.shape()) => {
                *old = weight;
                Ok(())
            }
            Def::Weight(_) => {
                let (dtype, shape) = (weight.dtype(), weight.shape());
                Err(BuildError(format!("the weight `{name}` is {ty}, and {dtype}{shape:?} cannot take its place")))
            }
            _ => Err(BuildError(format!("`{name}` is not a weight, and cannot become one"))),
        }
    }

    /// The number, where a value is a weight of one element, and that can be read.
    #[must_use]
    pub fn number(&self, id: ValueId) -> Option<f64> {
        self.weight(id)?.number()
    }

    /// The weights, in the order they were added.
    pub fn weights(&self) -> impl Iterator<Item = (ValueId, &Value, &Weight)> {
        self.values.iter().filter_map(|(id, value)| match &value.def {
            Def::Weight(weight) => Some((id, value, weight)),
            _ => None,
        })
    }

    /// The node that computes a value.
    #[must_use]
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        match self.values[id].def {
            Def::Node { node, .. } => Some(&self.nodes[node]),
            _ => None,
        }
    }

    /// How often each value is used, by nodes and outputs; indexed by `ValueId::index`.
    #[must_use]
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.values.len()];
        for (_, node) in self.nodes() {
            node.op.visit_operands(&mut |v| counts[v.index()] += 1);
        }
        for output in &self.outputs {
            counts[output.value.index()] += 1;
        }
        counts
    }
}
