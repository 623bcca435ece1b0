//! A graph anew, its float32 values in the types of a plan.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::ops::Cast;
use planish_ir::{BuildError, DType, Graph, Node, Op, TensorType, ValueId};

use super::Precision;
use super::plan::{Plan, attention_bias};

pub(super) fn rebuild(graph: &Graph, precision: &Precision, plan: &Plan) -> Result<Graph, BuildError> {
    let half = precision.half.dtype();
    let halved = |dtype: DType| if dtype == DType::F32 { half } else { dtype };
    let outside = |dtype: DType| if precision.half_io { halved(dtype) } else { dtype };
    let values = vec![None; graph.value_count()];
    let mut new = Rebuilt { old: graph, graph: Graph::new(&graph.name), half, values, others: HashMap::new() };
    for &input in graph.inputs() {
        let value = graph.value(input);
        let ty = TensorType::new(outside(value.ty.dtype), value.ty.shape.clone());
        new.values[input.index()] = Some(new.graph.add_input(&value.name, ty, value.origin.clone()));
    }
    new.add_weights(plan);
    for (id, node) in graph.nodes() {
        new.add_node(node, plan.is_half(id))?;
    }
    for output in graph.outputs() {
        let value = new.want(output.value, outside(graph.ty(output.value).dtype))?;
        new.graph.add_output(&output.name, value);
    }
    new.graph.compact();
    Ok(new.graph)
}

struct Rebuilt<'a> {
    old: &'a Graph,
    graph: Graph,
    half: DType,
    /// Inputs and results, by value of the old graph, as they come.
    values: Vec<Option<ValueId>>,
    /// Weights, and the others cast.
    others: HashMap<(ValueId, DType), ValueId>,
}

impl Rebuilt<'_> {
    /// Adds each weight in the types in which it is wanted, in the order of the old graph.
    fn add_weights(&mut self, plan: &Plan) {
        let old = self.old;
        let mut wanted: Vec<Vec<DType>> = vec![Vec::new(); old.value_count()];
        for (id, node) in old.nodes() {
            node.op.visit_operands(&mut |v| wanted[v.index()].push(self.operand_type(node, v, plan.is_half(id))));
        }
        old.outputs().iter().for_each(|o| wanted[o.value.index()].push(old.ty(o.value).dtype));
        for (id, value, weight) in old.weights() {
            for &dtype in &wanted[id.index()] {
                let graph = &mut self.graph;
                self.others
                    .entry((id, dtype))
                    .or_insert_with(|| graph.add_weight(&value.name, weight.cast(dtype), value.origin.clone()));
            }
        }
    }

    /// The type in which an operator wants an operand.
    fn operand_type(&self, node: &Node, operand: ValueId, half: bool) -> DType {
        match self.old.ty(operand).dtype {
            DType::F32 if attention_bias(&node.op) == Some(operand) => {
                let new = self.values[operand.index()];
                new.map_or(DType::F32, |new| self.graph.ty(new).dtype)
            }
            DType::F32 if half => self.half,
            other => other,
        }
    }

    fn add_node(&mut self, node: &Node, half: bool) -> Result<(), BuildError> {
        let mut op = node.op.clone();
        let mut failed = None;
        op.visit_operands_mut(&mut |operand| {
            match self.want(*operand, self.operand_type(node, *operand, half)) {
                Ok(new) => *operand = new,
                Err(error) => failed = Some(error),
            };
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Op::Cast(Cast { to: to @ DType::F32, .. }) = &mut op
            && half
        {
            *to = self.half;
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
