//! Running a graph node by node.

use std::borrow::Cow;

use planish_ir::handle::Handle;
use planish_ir::{Bindings, Graph, Node, TensorType, ValueId};

use crate::bind::bind_types;
use crate::error::Failure;
use crate::limits::{Limits, Loops, Memory};
use crate::ops::{Context, apply};
use crate::{Communicator, EvalError, Reader, Tensor, bind};

/// The outputs of a graph under their names, in order, from its inputs under the names of their
/// values.
///
/// # Errors
/// When the inputs do not fit the graph (see [`bind`]), a weight cannot be read, or a node cannot
/// be computed.
pub fn evaluate(graph: &Graph, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, EvalError> {
    Interpreter::default().run(graph, inputs)
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
    Interpreter::default().run_with(graph, inputs, watch)
}

/// Runs graphs, with what a caller gives it to run them with.
#[derive(Clone, Copy, Default)]
pub struct Interpreter<'a> {
    /// Reads what operators of ONNX contain in its encoding; without one, these are not computed.
    pub reader: Option<&'a dyn Reader>,
    /// The ranks that collectives exchange tensors with; without them, these are not computed.
    pub communicator: Option<&'a dyn Communicator>,
    /// Where a run ends.
    pub limits: Limits,
}

impl Interpreter<'_> {
    /// The outputs of a graph under their names, in order, from its inputs under the names of their values.
    ///
    /// # Errors
    /// When the inputs do not fit the graph (see [`bind`]), a weight cannot be read, a node cannot be computed, or a
    /// value is beyond a limit.
    pub fn run(&self, graph: &Graph, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, EvalError> {
        self.run_with(graph, inputs, &mut |_, _| {})
    }

    /// As [`Interpreter::run`]; `watch` sees what that of [`evaluate_with`] does.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    pub fn run_with(
        &self,
        graph: &Graph,
        inputs: &[(&str, Tensor)],
        watch: &mut dyn FnMut(ValueId, &Tensor),
    ) -> Result<Vec<(String, Tensor)>, EvalError> {
        let bindings = bind(graph, inputs)?;
        let find = |id: &ValueId| inputs.iter().find(|(name, _)| *name == graph.value(*id).name).map(|(_, t)| t);
        let ordered: Vec<&Tensor> = graph.inputs().iter().filter_map(find).collect();
        let loops = Loops::new(self.limits);
        let context = Context {
            reader: self.reader,
            communicator: self.communicator,
            memory: Memory::new(self.limits.memory),
            loops: &loops,
            is_read_again: false,
        };
        let results = compute(graph, &ordered, bindings, context, watch)?;
        Ok(graph.outputs().iter().map(|o| o.name.clone()).zip(results).collect())
    }
}

/// The outputs of a graph that an operator has, from its inputs in order.
///
/// # Errors
/// As [`Interpreter::run`].
pub(crate) fn run_inner(graph: &Graph, inputs: &[&Tensor], context: Context<'_>) -> Result<Vec<Tensor>, EvalError> {
    let given = graph.inputs().iter().zip(inputs);
    let given = given.map(|(id, tensor)| (graph.value(*id).name.as_str(), graph.ty(*id), tensor.ty()));
    let bindings = bind_types(graph, &given.collect::<Vec<_>>())?;
    compute(graph, inputs, bindings, context, &mut |_, _| {})
}

fn compute(
    graph: &Graph,
    inputs: &[&Tensor],
    mut bindings: Bindings,
    context: Context<'_>,
    watch: &mut dyn FnMut(ValueId, &Tensor),
) -> Result<Vec<Tensor>, EvalError> {
    let (nodes, uses) = live(graph);
    let mut run = Run { graph, uses, tensors: vec![None; graph.value_count()], context };
    for (&id, tensor) in graph.inputs().iter().zip(inputs) {
        watch(id, tensor);
        run.tensors[id.index()] = Some(Cow::Borrowed(*tensor));
    }
    for node in nodes {
        run.node(node, &mut bindings, watch)?;
    }
    graph.outputs().iter().map(|o| run.take(o.value)).collect()
}

/// The nodes that outputs depend on, in order, and how often these and the outputs use each value.
fn live(graph: &Graph) -> (Vec<&Node>, Vec<usize>) {
    let mut uses = vec![0; graph.value_count()];
    graph.outputs().iter().for_each(|o| uses[o.value.index()] += 1);
    let nodes: Vec<&Node> = graph.needed_nodes().into_iter().map(|id| graph.node(id)).collect();
    nodes.iter().for_each(|node| node.op.visit_operands(&mut |v| uses[v.index()] += 1));
    (nodes, uses)
}

struct Run<'a> {
    graph: &'a Graph,
    /// How often each value will still be used; indexed as `tensors`.
    uses: Vec<usize>,
    /// The values that are known and will still be used; indexed by `ValueId::index`.
    tensors: Vec<Option<Cow<'a, Tensor>>>,
    context: Context<'a>,
}

impl<'a> Run<'a> {
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
        let in_time = self.context.loops.check_time().map_err(|reason| Failure::from(reason).at(node.op.kind()));
        let results = in_time.and_then(|()| apply(&node.op, &operand, bindings, self.context)).map_err(|source| {
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
                self.keep(id, tensor);
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
        let fits = self.context.memory.check(Some(weight.bytes()), || value.ty.to_string());
        fits.map_err(|message| EvalError::Memory { name: name.clone(), origin: origin.clone(), message })?;
        let tensor = Tensor::from_weight(weight).map_err(|source| EvalError::Weight { name, origin, source })?;
        self.keep(id, tensor);
        Ok(())
    }

    fn keep(&mut self, id: ValueId, tensor: Tensor) {
        self.context.memory.hold(tensor.bytes());
        self.tensors[id.index()] = Some(Cow::Owned(tensor));
    }

    /// Notes one use of a value; frees it after the last one.
    fn release(&mut self, id: ValueId) -> Option<Cow<'a, Tensor>> {
        self.uses[id.index()] -= 1;
        if self.uses[id.index()] > 0 {
            return None;
        }
        let tensor = self.tensors[id.index()].take();
        if let Some(Cow::Owned(tensor)) = &tensor {
            self.context.memory.free(tensor.bytes());
        }
        tensor
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
