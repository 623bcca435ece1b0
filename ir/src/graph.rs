//! The graph: values and nodes in arenas, nodes in an order in which operands come first.

use std::collections::{HashMap, HashSet};

use crate::handle::{Arena, Handle};
use crate::ops::Types;
use crate::{DType, NodeId, Op, Origin, Shape, TensorType, ValueId, Weight};

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

/// A tensor that flows through the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Unique in the graph: the name it was given, with a number behind it where that was taken.
    pub name: String,
    /// The name it was given; [`Graph::compact`] returns to it where it has become free.
    given: String,
    /// Element type and shape.
    pub ty: TensorType,
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
    values: Arena<ValueId, Value>,
    nodes: Arena<NodeId, Node>,
    pub(crate) order: Vec<NodeId>,
    inputs: Vec<ValueId>,
    outputs: Vec<Output>,
    names: HashSet<String>,
    /// The next suffix to try for a name that is taken.
    suffixes: HashMap<String, usize>,
}

impl Graph {
    /// An empty graph.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds an input. Its value takes the name, made unique.
    pub fn add_input(&mut self, name: &str, ty: TensorType, origin: Origin) -> ValueId {
        let value = self.add_value(name, ty, Def::Input, origin);
        self.inputs.push(value);
        value
    }

    /// Adds a weight. Its value takes the name, made unique.
    pub fn add_weight(&mut self, name: &str, weight: Weight, origin: Origin) -> ValueId {
        // Sizes of weights are checked against u64 bytes when they are built.
        let dims = weight.shape().iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX).into());
        let ty = TensorType::new(weight.dtype(), Shape::new(dims));
        self.add_value(name, ty, Def::Weight(weight), origin)
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
        let op = op.into();
        let types = op.infer(&Types::new(&|v| &self.values[v].ty)).map_err(|message| {
            let mut text = format!("`{}` at `{name}` ({origin}): {message}", op.mnemonic());
            op.visit_operands(&mut |v| text.push_str(&self.operand_origin(v)));
            BuildError(text)
        })?;
        let node = NodeId::from_index(self.nodes.len());
        let outputs: Vec<ValueId> = types
            .into_iter()
            .enumerate()
            .map(|(index, ty)| self.add_value(name, ty, Def::Node { node, index }, origin.clone()))
            .collect();
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

    fn add_value(&mut self, name: &str, ty: TensorType, def: Def, origin: Origin) -> ValueId {
        let given = name.to_owned();
        let name = self.unique(name);
        self.values.push(Value { name, given, ty, def, origin })
    }

    /// The name itself where it is free, and else with a number behind it.
    fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        while !self.names.insert(unique.clone()) {
            let suffix = self.suffixes.entry(name.to_owned()).or_insert(0);
            *suffix += 1;
            unique = format!("{name}_{suffix}");
        }
        unique
    }

    /// Gives a value another name, made unique.
    pub fn rename(&mut self, value: ValueId, name: &str) {
        if self.values[value].name != name {
            let old = std::mem::take(&mut self.values[value].name);
            self.names.remove(&old);
            self.values[value].name = self.unique(name);
        }
        self.values[value].given = name.to_owned();
    }

    /// Makes a value a result of the graph.
    pub fn add_output(&mut self, name: &str, value: ValueId) {
        self.outputs.push(Output { name: name.to_owned(), value });
    }

    /// Makes another value, also one of another type, the result of the graph at a place among its
    /// outputs; the name stays. Nothing happens where there is no such place.
    pub fn set_output(&mut self, at: usize, value: ValueId) {
        if let Some(output) = self.outputs.get_mut(at) {
            output.value = value;
        }
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

    /// The type of a value.
    #[must_use]
    pub fn ty(&self, id: ValueId) -> &TensorType {
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

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// The nodes in program order: operands come before their users.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
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

    /// Rebuilds the arenas with only what the outputs need; inputs stay with their names, and other
    /// names that were given twice are made unique anew. Returns how many nodes and weights were
    /// dropped.
    pub fn compact(&mut self) -> usize {
        let mut live = vec![false; self.values.len()];
        self.outputs.iter().for_each(|o| live[o.value.index()] = true);
        let mut kept = Vec::new();
        for &id in self.order.iter().rev() {
            let node = &self.nodes[id];
            if node.outputs.iter().any(|v| live[v.index()]) {
                node.op.visit_operands(&mut |v| live[v.index()] = true);
                node.outputs.iter().for_each(|v| live[v.index()] = true);
                kept.push(id);
            }
        }
        kept.reverse();

        let mut dropped = self.order.len() - kept.len();
        let old = std::mem::take(self);
        let mut moved: Vec<Option<ValueId>> = vec![None; old.values.len()];
        for &id in &old.inputs {
            let Value { name, ty, origin, .. } = &old.values[id];
            moved[id.index()] = Some(self.add_input(name, ty.clone(), origin.clone()));
        }
        for (id, value) in old.values.iter().filter(|(_, value)| matches!(value.def, Def::Weight(_))) {
            if live[id.index()] {
                moved[id.index()] = Some(self.move_value(value, value.def.clone()));
            } else {
                dropped += 1;
            }
        }
        for id in kept {
            let Node { mut op, outputs } = old.nodes[id].clone();
            op.visit_operands_mut(&mut |v| *v = moved[v.index()].unwrap_or(*v));
            let node = NodeId::from_index(self.nodes.len());
            let outputs = outputs
                .iter()
                .enumerate()
                .map(|(index, v)| {
                    let new = self.move_value(&old.values[*v], Def::Node { node, index });
                    moved[v.index()] = Some(new);
                    new
                })
                .collect();
            self.order.push(self.nodes.push(Node { op, outputs }));
        }
        self.outputs = old.outputs;
        self.outputs.iter_mut().for_each(|o| o.value = moved[o.value.index()].unwrap_or(o.value));
        self.name = old.name;
        dropped
    }

    fn move_value(&mut self, value: &Value, def: Def) -> ValueId {
        self.add_value(&value.given, value.ty.clone(), def, value.origin.clone())
    }
}
