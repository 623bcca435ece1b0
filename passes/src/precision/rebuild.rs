//! Rebuilding a graph with its floating-point values in other types.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::ops::Cast;
use planish_ir::{BuildError, DType, Graph, Node, NodeId, Op, TensorType, Type, ValueId};

/// The types of a graph's values.
pub(super) trait ElementTypes {
    /// That of an input or output of the graph that has been `dtype`.
    fn outside(&self, dtype: DType) -> DType;

    /// That in which an operator wants an operand that has been `dtype`; where the operand is not a weight, it
    /// now comes as `now`.
    fn operand(&self, node: NodeId, op: &Op, operand: ValueId, dtype: DType, now: Option<DType>) -> DType;

    /// What a cast to `dtype` casts to.
    fn cast(&self, node: NodeId, dtype: DType) -> DType;
}

/// The graph with casts where values are wanted in another type than they come in, one a value and type;
/// weights are cast lazily.
pub(super) fn rebuild(graph: &Graph, types: &dyn ElementTypes) -> Result<Graph, BuildError> {
    let values = vec![None; graph.value_count()];
    let mut empty = Graph::new(&graph.name);
    empty.interface.clone_from(&graph.interface);
    let mut new = Rebuilt { old: graph, types, graph: empty, values, others: HashMap::new() };
    for &input in graph.inputs() {
        let value = graph.value(input);
        let ty = match &value.ty {
            Type::Tensor(ty) => TensorType::new(types.outside(ty.dtype), ty.shape.clone()).into(),
            other => other.clone(),
        };
        new.values[input.index()] = Some(new.graph.add_input(&value.name, ty, value.origin.clone()));
    }
    new.add_weights();
    for (id, node) in graph.nodes() {
        new.add_node(id, node)?;
    }
    for output in graph.outputs() {
        let value = new.want(output.value, new.outside(output.value))?;
        new.graph.add_output(&output.name, value);
    }
    new.graph.compact();
    Ok(new.graph)
}

struct Rebuilt<'a> {
    old: &'a Graph,
    types: &'a dyn ElementTypes,
    graph: Graph,
    /// Inputs and results, by value of the old graph, as they come.
    values: Vec<Option<ValueId>>,
    /// Weights, and the others cast.
    others: HashMap<(ValueId, DType), ValueId>,
}

impl Rebuilt<'_> {
    /// Adds each weight in the types in which it is wanted, in the order of the old graph.
    fn add_weights(&mut self) {
        let old = self.old;
        let mut wanted: Vec<Vec<DType>> = vec![Vec::new(); old.value_count()];
        for (id, node) in old.nodes() {
            node.op.visit_operands(&mut |v| wanted[v.index()].push(self.operand_type(id, &node.op, v)));
        }
        old.outputs().iter().for_each(|o| wanted[o.value.index()].push(self.outside(o.value)));
        for (id, value, weight) in old.weights() {
            for &dtype in &wanted[id.index()] {
                // Text, the one type that is not cast, is wanted as it is.
                let Some(cast) = weight.cast(dtype) else { continue };
                let graph = &mut self.graph;
                self.others
                    .entry((id, dtype))
                    .or_insert_with(|| graph.add_weight(&value.name, cast, value.origin.clone()));
            }
        }
    }

    /// The type that an output has; what is not a tensor stays what it is.
    fn outside(&self, value: ValueId) -> DType {
        let dtype = self.old.ty(value).dtype;
        if self.old.type_of(value).as_tensor().is_some() { self.types.outside(dtype) } else { dtype }
    }

    fn operand_type(&self, node: NodeId, op: &Op, operand: ValueId) -> DType {
        let now = self.values[operand.index()].map(|new| self.graph.ty(new).dtype);
        self.types.operand(node, op, operand, self.old.ty(operand).dtype, now)
    }

    fn add_node(&mut self, id: NodeId, node: &Node) -> Result<(), BuildError> {
        let mut op = node.op.clone();
        let mut failed = None;
        op.visit_operands_mut(&mut |operand| {
            match self.want(*operand, self.operand_type(id, &node.op, *operand)) {
                Ok(new) => *operand = new,
                Err(error) => failed = Some(error),
            };
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Op::Cast(Cast { to, .. }) = &mut op {
            *to = self.types.cast(id, *to);
        }
        let first = self.old.value(node.outputs[0]);
        let outputs = self.graph.emit(op, &first.name, first.origin.clone())?;
        for (old, new) in node.outputs.iter().zip(outputs) {
            self.graph.rename(new, &self.old.value(*old).name);
            self.values[old.index()] = Some(new);
        }
        Ok(())
    }

    /// A value in a type, cast at most once.
    fn want(&mut self, value: ValueId, dtype: DType) -> Result<ValueId, BuildError> {
        let own = self.values[value.index()];
        if let Some(own) = own.filter(|own| self.graph.ty(*own).dtype == dtype) {
            return Ok(own);
        }
        if let Some(other) = self.others.get(&(value, dtype)) {
            return Ok(*other);
        }
        let Some(x) = own else { unreachable!("a weight was added in each type that is wanted") };
        let old = self.old.value(value);
        let cast = self.graph.emit(Cast { x, to: dtype }, &format!("{}/cast", old.name), old.origin.clone())?[0];
        self.others.insert((value, dtype), cast);
        Ok(cast)
    }
}
