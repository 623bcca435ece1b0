//! Running a graph node by node.

use std::borrow::Cow;

use planish_ir::handle::Handle;
use planish_ir::{Bindings, Graph, Node, TensorType, ValueId};

use crate::{EvalError, Tensor, bind, evaluate_op};

/// The outputs of a graph under their names, in order, from its inputs under the names of their
/// values.
///
/// # Errors
/// When the inputs do not fit the graph (see [`bind`]), a weight cannot be read, or a node cannot
/// be computed.
pub fn evaluate(graph: &Graph, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, EvalError> {
    evaluate_with(graph, inputs, &mut |_, _| {})
}

/// As [`evaluate`]; `watch` sees every input and every result of a node that the outputs depend
/// on, in the order of the graph, before it is freed.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_with(
    graph: &Graph,
    inputs: &[(&str, Tensor)],
    watch: &mut dyn FnMut(ValueId, &Tensor),
) -> Result<Vec<(String, Tensor)>, EvalError> {
    let mut bindings = bind(graph, inputs)?;
    let (nodes, uses) = live(graph);
    let mut run = Run { graph, uses, tensors: vec![None; graph.value_count()] };
    for &id in graph.inputs() {
        if let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == graph.value(id).name) {
            watch(id, tensor);
            run.tensors[id.index()] = Some(Cow::Borrowed(tensor));
        }
    }
    for node in nodes {
        run.node(node, &mut bindings, watch)?;
    }
    graph.outputs().iter().map(|o| Ok((o.name.clone(), run.take(o.value)?))).collect()
}

/// The nodes that outputs depend on, in order, and how often these and the outputs use each value.
fn live(graph: &Graph) -> (Vec<&Node>, Vec<usize>) {
    let mut uses = vec![0; graph.value_count()];
    graph.outputs().iter().for_each(|o| uses[o.value.index()] += 1);
    let all: Vec<&Node> = graph.nodes().map(|(_, node)| node).collect();
    let mut nodes: Vec<&Node> = Vec::new();
    for node in all.into_iter().rev() {
        if node.outputs.iter().any(|v| uses[v.index()] > 0) {
            node.op.visit_operands(&mut |v| uses[v.index()] += 1);
            nodes.push(node);
        }
    }
    nodes.reverse();
    (nodes, uses)
}

struct Run<'a> {
    graph: &'a Graph,
    /// How often each value will still be used; indexed as `tensors`.
    uses: Vec<usize>,
    /// The values that are known and will still be used; indexed by `ValueId::index`.
    tensors: Vec<Option<Cow<'a, Tensor>>>,
}

impl Run<'_> {
    fn node(
        &mut self,
        node: &Node,
        bindings: &mut Bindings,
        watch: &mut dyn FnMut(ValueId, &Tensor),
    ) -> Result<(), EvalError> {
        let operands = node.op.operands();
        operands.iter().try_for_each(|&v| self.load(v))?;
        let tensors = &self.tensors;
        let operand = |v: ValueId| match &tensors[v.index()] {
            Some(tensor) => tensor.as_ref(),
            None => unreachable!("every operand is loaded"),
        };
        let results = evaluate_op(&node.op, &operand, bindings).map_err(|source| {
            let first = node.outputs.first().map(|&v| self.graph.value(v));
            EvalError::Node {
                name: first.map(|v| v.name.clone()).unwrap_or_default(),
                origin: first.map(|v| v.origin.clone()).unwrap_or_default(),
                source: Box::new(source),
            }
        })?;
        for operand in operands {
            self.release(operand);
        }
        for (&id, tensor) in node.outputs.iter().zip(results) {
            determine(self.graph.ty(id), &tensor, bindings);
            watch(id, &tensor);
            if self.uses[id.index()] > 0 {
                self.tensors[id.index()] = Some(Cow::Owned(tensor));
            }
        }
        Ok(())
    }

    /// Makes sure that a value is known: weights are read.
    fn load(&mut self, id: ValueId) -> Result<(), EvalError> {
        if self.tensors[id.index()].is_some() {
            return Ok(());
        }
        let value = self.graph.value(id);
        let (name, origin) = (value.name.clone(), value.origin.clone());
        let Some(weight) = self.graph.weight(id) else {
            return Err(EvalError::Undefined { name, origin });
        };
        let tensor = Tensor::from_weight(weight).map_err(|source| EvalError::Weight { name, origin, source })?;
        self.tensors[id.index()] = Some(Cow::Owned(tensor));
        Ok(())
    }

    /// Notes one use of a value; frees it after the last one.
    fn release(&mut self, id: ValueId) -> Option<Cow<'_, Tensor>> {
        self.uses[id.index()] -= 1;
        if self.uses[id.index()] == 0 { self.tensors[id.index()].take() } else { None }
    }

    /// A value for an output.
    fn take(&mut self, id: ValueId) -> Result<Tensor, EvalError> {
        self.load(id)?;
        if self.uses[id.index()] > 1 {
            self.uses[id.index()] -= 1;
            return Ok(self.tensors[id.index()].as_deref().cloned().unwrap_or_else(|| unreachable!("it is loaded")));
        }
        Ok(self.release(id).map(Cow::into_owned).unwrap_or_else(|| unreachable!("it is loaded")))
    }
}

/// Takes the sizes that an operator determines: those of symbols that its results are the first to have.
fn determine(ty: &TensorType, tensor: &Tensor, bindings: &mut Bindings) {
    for (dim, &size) in ty.shape.iter().zip(tensor.shape()) {
        if let (Some(symbol), Ok(size)) = (dim.as_symbol(), i64::try_from(size)) {
            bindings.entry(symbol.clone()).or_insert(size);
        }
    }
}
