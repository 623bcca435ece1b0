//! Operators with graphs of their own. These are read when the types of what they take are known, which need not be
//! the same in each round of a loop.

use std::borrow::Cow;
use std::sync::Arc;

use planish_ir::ops::Setting;
use planish_ir::{DType, Graph, TensorType};

use super::stack::{Stack, piece};
use super::{Maybe, Node, Results, axis, integers, not_computed};
use crate::error::Failure;
use crate::interpreter::run_inner;
use crate::limits::Memory;
use crate::ops::Context;
use crate::{Reader, Tensor};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "If" => {
            let branch = if truth(node.operand(0)?)? { "then_branch" } else { "else_branch" };
            Body::of(node, branch)?.run(&[], node.context.memory).map(Some)
        }
        "Loop" => rounds(node).map(Some),
        "Scan" if node.op.version < 9 => scan_rows(node).map(Some),
        "Scan" => scan(node).map(Some),
        _ => Ok(None),
    }
}

/// A condition of one element.
fn truth(tensor: &Tensor) -> Result<bool, String> {
    match tensor.as_bool() {
        Some([holds]) => Ok(*holds),
        _ => Err(format!("a condition is {}, expected one bool", tensor.ty())),
    }
}

/// A graph that a node has as an attribute.
struct Body<'a> {
    node: &'a Node<'a>,
    attribute: &'static str,
    bytes: &'a Arc<[u8]>,
    reader: &'a dyn Reader,
    /// The types of the values around it that it uses.
    captured: Vec<TensorType>,
    /// The graph as it was read last, and for inputs of which types.
    last: Option<(Vec<TensorType>, Arc<Graph>)>,
}

impl<'a> Body<'a> {
    fn of(node: &'a Node<'a>, attribute: &'static str) -> Result<Self, Failure> {
        let Some(Setting::Graph(bytes)) = node.op.setting(attribute) else {
            return Err(format!("it has no graph `{attribute}`").into());
        };
        let reader = node.context.reader.ok_or_else(|| not_computed(node))?;
        let captured = node.captured.iter().map(|tensor| tensor.ty()).collect();
        Ok(Self { node, attribute, bytes, reader, captured, last: None })
    }

    /// The graph for such inputs.
    fn graph(&mut self, types: Vec<TensorType>) -> Result<Arc<Graph>, String> {
        match &self.last {
            Some((of, graph)) if *of == types => Ok(Arc::clone(graph)),
            _ => {
                let graph = self.reader.body(self.node.op, self.bytes, &types, &self.captured);
                let graph = graph.map_err(|e| format!("its `{}`: {e}", self.attribute))?;
                self.last = Some((types, Arc::clone(&graph)));
                Ok(graph)
            }
        }
    }

    /// Its results for these inputs; `memory` knows of what is held meanwhile.
    fn run(&mut self, inputs: &[&Tensor], memory: Memory) -> Results {
        let graph = self.graph(inputs.iter().map(|tensor| tensor.ty()).collect())?;
        let given = inputs.iter().chain(&self.node.captured).zip(graph.inputs());
        let given: Vec<Cow<'_, Tensor>> = given.map(|(tensor, input)| as_declared(tensor, graph.ty(*input))).collect();
        let context = Context { memory, is_read_again: false, ..self.node.context };
        let given: Vec<&Tensor> = given.iter().map(AsRef::as_ref).collect();
        run_inner(&graph, &given, context).map_err(|e| Failure::inside(&e, &format!("in its `{}`: ", self.attribute)))
    }

    /// The types of its results for inputs of some types, after so many others. Sizes that only a run knows are 0.
    fn results(&mut self, types: Vec<TensorType>, after: usize) -> Result<Vec<Stack>, String> {
        let graph = self.graph(types)?;
        let outputs = graph.outputs().get(after..).ok_or("its graph has too few results")?;
        let of = |ty: &TensorType| {
            let size = |d: &planish_ir::Dim| d.as_constant().and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
            Stack::empty(ty.dtype, ty.shape.iter().map(size).collect())
        };
        outputs.iter().map(|output| of(graph.ty(output.value))).collect()
    }
}

/// A tensor of one element with as many dimensions as a graph's input has.
fn as_declared<'a>(tensor: &'a Tensor, ty: &TensorType) -> Cow<'a, Tensor> {
    let ones = vec![1; ty.shape.rank()];
    if tensor.data().len() == 1 && tensor.shape() != ones {
        tensor.clone().reshaped(ones).map_or(Cow::Borrowed(tensor), Cow::Owned)
    } else {
        Cow::Borrowed(tensor)
    }
}

/// What rounds pass on, and what they gave besides.
struct Progress<'a> {
    state: Vec<Cow<'a, Tensor>>,
    /// None before the first round.
    stacks: Option<Vec<Stack>>,
}

impl<'a> Progress<'a> {
    fn new(state: impl Iterator<Item = Result<&'a Tensor, String>>) -> Result<Self, String> {
        Ok(Self { state: state.map(|t| t.map(Cow::Borrowed)).collect::<Result<_, _>>()?, stacks: None })
    }

    /// The memory that is left besides this.
    fn memory(&self, mut memory: Memory) -> Memory {
        let owned = self.state.iter().filter(|t| matches!(t, Cow::Owned(_))).map(|t| t.bytes());
        owned.chain(self.stacks.iter().flatten().map(Stack::bytes)).for_each(|bytes| memory.hold(bytes));
        memory
    }

    /// Runs a round: `first` are the inputs before what is passed on, `last` those after it. Returns the first
    /// `skipped` results.
    fn round(&mut self, body: &mut Body<'_>, first: &[&Tensor], last: &[&Tensor], skipped: usize) -> Results {
        body.node.context.loops.take_round()?;
        let inputs: Vec<&Tensor> =
            first.iter().copied().chain(self.state.iter().map(AsRef::as_ref)).chain(last.iter().copied()).collect();
        let mut results = body.run(&inputs, self.memory(body.node.context.memory))?;
        let carried = self.state.len();
        if results.len() < skipped + carried {
            return Err(
                format!("its graph has {} results, expected at least {}", results.len(), skipped + carried).into()
            );
        }
        let rest = results.split_off(skipped + carried);
        let state = results.split_off(skipped);
        for (index, (old, new)) in self.state.iter().zip(&state).enumerate() {
            if old.dtype() != new.dtype() {
                return Err(format!("a round passes on {} as value {index}, expected {}", new.ty(), old.dtype()).into());
            }
        }
        self.state = state.into_iter().map(Cow::Owned).collect();
        let memory = self.memory(body.node.context.memory);
        let stacks = match &mut self.stacks {
            Some(stacks) => stacks,
            none => none.insert(like(&rest)?),
        };
        for (stack, row) in stacks.iter_mut().zip(&rest) {
            stack.push(row, memory)?;
        }
        Ok(results)
    }
}

/// Operands are the most rounds that there are, a condition, and what a round passes on to the next; results are what
/// the last one passes on, and what each gives besides, along a new first axis.
fn rounds(node: &Node<'_>) -> Results {
    let limit =
        node.integers(0)?.map(|limit| limit.first().copied().ok_or("its number of rounds is empty")).transpose()?;
    let mut goes_on = node.optional(1).map(truth).transpose()?.unwrap_or(true);
    let mut body = Body::of(node, "body")?;
    let mut progress = Progress::new((2..node.operands.len()).map(|i| node.operand(i)))?;
    let scalar = |data: crate::Data| super::tensor(Vec::new(), data);
    let _running = node.context.loops.begin();
    let mut round = 0i64;
    while goes_on && limit.is_none_or(|limit| round < limit) {
        let (number, condition) = (scalar(vec![round].into())?, scalar(vec![true].into())?);
        let first = progress.round(&mut body, &[&number, &condition], &[], 1)?;
        goes_on = truth(first.first().ok_or("its graph has no condition")?)?;
        round = round.checked_add(1).ok_or("it has a number of rounds that does not fit in 64 bits")?;
    }
    let Progress { state, stacks } = progress;
    let stacks = match stacks {
        Some(stacks) => stacks,
        None => {
            let own = [DType::I64, DType::Bool].map(|dtype| TensorType::new(dtype, planish_ir::Shape::new([])));
            body.results(own.into_iter().chain(state.iter().map(|t| t.ty())).collect(), 1 + state.len())?
        }
    };
    let stacked = stacks.into_iter().map(|stack| stack.along(0, false));
    Ok(state.into_iter().map(|t| Ok(t.into_owned())).chain(stacked).collect::<Result<_, String>>()?)
}

/// A tensor that is cut along an axis, a piece a round.
struct Cut<'a> {
    of: Cow<'a, Tensor>,
    axis: usize,
    backward: bool,
}

/// Runs the rounds of a scan.
fn pieces<'a>(
    body: &mut Body<'_>,
    state: Progress<'a>,
    cuts: &[Cut<'_>],
    rounds: usize,
) -> Result<Progress<'a>, Failure> {
    let mut progress = state;
    let _running = body.node.context.loops.begin();
    for round in 0..rounds {
        let one = |cut: &Cut<'_>| piece(&cut.of, cut.axis, if cut.backward { rounds - 1 - round } else { round });
        let given = cuts.iter().map(one).collect::<Result<Vec<Tensor>, _>>()?;
        progress.round(body, &[], &given.iter().collect::<Vec<_>>(), 0)?;
    }
    if progress.stacks.is_none() {
        // Only the types of what a round gives are of interest.
        let dropped = |cut: &Cut<'_>| {
            let ty = cut.of.ty();
            let dims = ty.shape.iter().enumerate().filter(|(a, _)| *a != cut.axis).map(|(_, d)| d.clone());
            TensorType::new(ty.dtype, planish_ir::Shape::new(dims))
        };
        let types = progress.state.iter().map(|t| t.ty()).chain(cuts.iter().map(dropped)).collect();
        progress.stacks = Some(body.results(types, progress.state.len())?);
    }
    Ok(progress)
}

/// The number of operands that a scan cuts, of so many.
fn cut_operands(node: &Node<'_>, of: usize) -> Result<usize, String> {
    let cut = usize::try_from(node.int("num_scan_inputs", 0)).ok().filter(|n| (1..=of).contains(n));
    cut.ok_or_else(|| "its `num_scan_inputs` is not among its operands".to_owned())
}

/// Whether each of some tensors is taken backward.
fn backward(node: &Node<'_>, name: &str, count: usize) -> Result<Vec<bool>, String> {
    Ok(list(node, name, count)?.into_iter().map(|d| d != 0).collect())
}

/// Integers, one for each of so many tensors; 0 where none are given.
fn list(node: &Node<'_>, name: &str, count: usize) -> Result<Vec<i64>, String> {
    match node.ints(name) {
        Some(given) if given.len() != count => {
            Err(format!("its `{name}` are {} numbers, expected {count}", given.len()))
        }
        given => Ok(given.unwrap_or_else(|| vec![0; count])),
    }
}

/// Operands are what a round passes on to the next, and tensors that are cut, a piece a round; results are what
/// the last one passes on, and what each gives besides, along a new axis.
fn scan(node: &Node<'_>) -> Results {
    let number = cut_operands(node, node.operands.len())?;
    let carried = node.operands.len() - number;
    let (along, turned) = (list(node, "scan_input_axes", number)?, backward(node, "scan_input_directions", number)?);
    let mut cuts = Vec::with_capacity(number);
    for (index, (along, backward)) in along.into_iter().zip(turned).enumerate() {
        let of = node.operand(carried + index)?;
        cuts.push(Cut { of: Cow::Borrowed(of), axis: axis(along, of.shape().len())?, backward });
    }
    let rounds: Vec<usize> = cuts.iter().map(|cut| cut.of.shape()[cut.axis]).collect();
    if rounds.iter().any(|n| *n != rounds[0]) {
        return Err(format!("it cuts operands into different numbers of pieces: {rounds:?}").into());
    }
    let state = Progress::new((0..carried).map(|i| node.operand(i)))?;
    let progress = pieces(&mut Body::of(node, "body")?, state, &cuts, rounds[0])?;
    let stacks = progress.stacks.unwrap_or_default();
    let along = list(node, "scan_output_axes", stacks.len())?;
    let turned = backward(node, "scan_output_directions", stacks.len())?;
    let stacked = stacks.into_iter().zip(along).zip(turned).map(|((stack, along), backward)| {
        let axis = axis(along, stack.rank() + 1)?;
        stack.along(axis, backward)
    });
    Ok(progress.state.into_iter().map(|t| Ok(t.into_owned())).chain(stacked).collect::<Result<_, String>>()?)
}

/// The scan of opset 8: for each row of a batch, over as many elements as its length says; the rest is zero.
fn scan_rows(node: &Node<'_>) -> Results {
    let number = cut_operands(node, node.operands.len().saturating_sub(1))?;
    let carried = node.operands.len() - 1 - number;
    let turned = backward(node, "directions", number)?;
    let operands = (1..node.operands.len()).map(|i| node.operand(i)).collect::<Result<Vec<&Tensor>, _>>()?;
    let cut = operands[carried..].iter().map(|t| match *t.shape() {
        [rows, length, ..] => Ok([rows, length]),
        _ => Err(format!("it cuts {}, expected at least two dimensions", t.ty())),
    });
    let cut: Vec<[usize; 2]> = cut.collect::<Result<_, _>>()?;
    let [rows, longest] = cut[0];
    if cut.iter().any(|c| *c != cut[0]) || operands.iter().any(|t| t.shape().first() != Some(&rows)) || rows == 0 {
        return Err(format!("its operands have different numbers of rows or pieces, or none: {cut:?}").into());
    }
    let lengths = match node.optional(0) {
        Some(lengths) => integers(lengths)?.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>(),
        None => Ok(vec![longest; rows]),
    };
    let lengths = lengths.ok().filter(|l| l.len() == rows && l.iter().all(|&l| l <= longest));
    let lengths = lengths.ok_or("its sequence_lens are not lengths of its operands")?;
    let mut body = Body::of(node, "body")?;
    let (mut states, mut stacks): (Vec<Stack>, Vec<Stack>) = (Vec::new(), Vec::new());
    for (row, &length) in lengths.iter().enumerate() {
        let own = operands.iter().map(|t| piece(t, 0, row)).collect::<Result<Vec<Tensor>, _>>()?;
        let (state, cut) = own.split_at(carried);
        let cuts = cut.iter().zip(&turned).map(|(t, &backward)| Cut { of: Cow::Borrowed(t), axis: 0, backward });
        let state = Progress::new(state.iter().map(Ok))?;
        let progress = pieces(&mut body, state, &cuts.collect::<Vec<_>>(), length)?;
        let mut memory = progress.memory(node.context.memory);
        states.iter().chain(&stacks).for_each(|stack| memory.hold(stack.bytes()));
        let mut given = progress.state.into_iter().map(Cow::into_owned).collect::<Vec<_>>();
        let padded = progress.stacks.unwrap_or_default().into_iter().map(|stack| stack.padded(longest, memory));
        let padded = padded.collect::<Result<Vec<Tensor>, _>>()?;
        for (into, given) in [(&mut states, std::mem::take(&mut given)), (&mut stacks, padded)] {
            if row == 0 {
                into.extend(like(&given)?);
            }
            for (stack, row) in into.iter_mut().zip(&given) {
                stack.push(row, memory)?;
            }
        }
    }
    Ok(states.into_iter().chain(stacks).map(|stack| stack.along(0, false)).collect::<Result<_, _>>()?)
}

/// Empty stacks of tensors of these types and shapes.
fn like(tensors: &[Tensor]) -> Result<Vec<Stack>, String> {
    tensors.iter().map(|t| Stack::empty(t.dtype(), t.shape().to_vec())).collect()
}
