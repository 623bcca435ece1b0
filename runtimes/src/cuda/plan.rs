//! What a run of a graph needs, without a device: its memory, and the forms of attention.

use std::collections::{BTreeMap, HashMap};

use planish_ir::{Bindings, Dim, Graph, NodeId, Op, Type, ValueId};

use super::memory::{self, Interval, MemoryPlan};
use super::packing::Packing;
use super::program::family::{self, Family, Shape};
use super::program::{Base, Caches, MOST_BYTES, Program, Room, Style, Target, visit};

/// A buffer of a run, and where it lies in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// The value that it holds, or the operator that needs it.
    pub name: String,
    /// Its bytes.
    pub bytes: usize,
    /// The first step that needs it.
    pub first: usize,
    /// The last step that needs it.
    pub last: usize,
    /// The bytes in front of it in the arena.
    pub offset: usize,
}

/// What a step of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    /// The node that it computes, or a part of it; absent for copies to outputs.
    pub node: Option<NodeId>,
    /// The kernel: the name of a function, `cublasLt` for its products, or `copy`.
    pub kernel: &'static str,
    /// The bytes that it writes for later steps of the same node, which read them again.
    pub scratch: usize,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// The buffers, in the order in which they are first needed.
    pub buffers: Vec<PlannedBuffer>,
    /// The bytes of the arena.
    pub peak: usize,
    /// The bytes of all buffers, if each had memory of its own.
    pub sum: usize,
    /// The most bytes that buffers need in one step.
    pub floor: usize,
    /// The steps.
    pub steps: usize,
    /// The form of each attention, and why it was chosen.
    pub attentions: Vec<String>,
    /// Whether one program serves steps of all lengths of the cache, so that a recorded CUDA graph is replayed, and why; of
    /// the runtime `cuda` and graphs with a cache only.
    pub lengths: Option<String>,
    /// What becomes of the padding of batches whose rows have different lengths; of the runtime `cuda` only.
    pub padding: Option<String>,
}

impl RunPlan {
    fn new(
        names: Vec<String>,
        intervals: &[Interval],
        plan: &MemoryPlan,
        steps: usize,
        attentions: Vec<String>,
        [padding, lengths]: [Option<String>; 2],
    ) -> Self {
        let buffers =
            names.into_iter().zip(intervals).zip(&plan.offsets).filter(|((_, interval), _)| interval.bytes > 0);
        let mut buffers: Vec<PlannedBuffer> = buffers
            .map(|((name, interval), &offset)| {
                let Interval { bytes, first, last } = *interval;
                PlannedBuffer { name, bytes, first, last, offset }
            })
            .collect();
        buffers.sort_by_key(|buffer| buffer.first);
        Self { buffers, peak: plan.peak, sum: plan.sum, floor: plan.floor, steps, attentions, lengths, padding }
    }
}

/// The plan of the runtime `cuda` for a graph of target `cuda`, with the symbols of its inputs bound to sizes. Inputs,
/// outputs and weights have memory of their own, and are not part of it.
///
/// # Errors
/// When the runtime has no kernel for an operator, or a size has no value.
pub fn plan_run(graph: &Graph, bindings: &Bindings) -> Result<RunPlan, String> {
    let target = Target::usual(Style::Fused);
    let program = Program::new(graph, bindings, target, &Caches::default())?;
    let Program { names, intervals, memory, steps, attentions, .. } = program;
    let padding = match Packing::of(graph, &target) {
        Ok(_) => "not computed where it is at the ends of rows: attention is flash on the tokens alone".to_owned(),
        Err(reason) => format!("computed: {reason}"),
    };
    Ok(RunPlan::new(
        names,
        &intervals,
        &memory,
        steps.len(),
        attentions,
        [Some(padding), lengths(graph, bindings, target)],
    ))
}

/// The tokens that a cache has room for after those of a step, where the plan of a step is told.
const ROOM: usize = 64;

/// Whether one program serves steps of all lengths, and why; `None` of a graph without a cache.
fn lengths(graph: &Graph, bindings: &Bindings, target: Target) -> Option<String> {
    Some(match steps(graph, bindings, target)? {
        Ok(family) => {
            let ((stored, all), lengths) = (family.stored_launches(), family.lengths);
            let (first, last) = (lengths.start(), lengths.end());
            format!(
                "one program for {first} to {last} cached tokens: {stored} of {all} launches take arguments from memory"
            )
        }
        Err(reason) => format!("a program for each number of cached tokens: {reason}"),
    })
}

/// The program of steps of all lengths that a cache has room for, or why there is none; `None` of a graph without a cache.
pub(super) fn steps(graph: &Graph, bindings: &Bindings, target: Target) -> Option<Result<Family, String>> {
    let pasts = pasts(graph);
    let symbol = |at: usize| graph.ty(graph.inputs()[at]).shape.get(2).and_then(Dim::as_symbol).cloned();
    let symbol = pasts.iter().position(|past| *past).and_then(symbol)?;
    let mut bindings = bindings.clone();
    let keys = bindings.remove(&symbol).and_then(|keys| usize::try_from(keys).ok())?.max(family::FEWEST);
    let added = family::added(graph, &bindings, &symbol, keys)?;
    let room = Room { capacity: keys + added + ROOM, free: true };
    let room = pasts.iter().map(|past| past.then_some(room)).collect();
    let shape = Shape { bindings, length: symbol, caches: Caches { room, ..Caches::default() }, added };
    Some(Family::of(graph, &shape, target, family::FEWEST))
}

/// Which inputs are the past keys or values of an attention.
pub(super) fn pasts(graph: &Graph) -> Vec<bool> {
    let mut pasts = vec![false; graph.inputs().len()];
    for (_, node) in graph.nodes() {
        let operands = match &node.op {
            Op::Attention(p) => [p.past_key, p.past_value],
            Op::RotaryAppend(p) => [p.past_key, p.past_value],
            _ => continue,
        };
        for value in operands.into_iter().flatten() {
            if let Some(at) = graph.inputs().iter().position(|input| *input == value) {
                pasts[at] = true;
            }
        }
    }
    pasts
}

/// The steps of a run on the runtime `cuda` on a GPU of an architecture, e.g. `sm_90`, for a graph as in [`plan_run`], where the
/// memory of caches has room for what the run adds.
///
/// # Errors
/// As there.
pub fn plan_steps(graph: &Graph, bindings: &Bindings, architecture: &str) -> Result<Vec<PlannedStep>, String> {
    let room = |(input, past): (&ValueId, bool)| {
        let keys = *graph.ty(*input).shape.evaluate(bindings)?.get(2)?;
        past.then_some(Room { capacity: keys + ROOM, free: true })
    };
    let room = graph.inputs().iter().zip(pasts(graph)).map(room).collect();
    let caches = Caches { room, ..Caches::default() };
    let program = Program::new(graph, bindings, Target::of_architecture(Style::Fused, architecture), &caches)?;
    // For each buffer the step that writes it first, and the node of the only steps that use it.
    let mut owners: BTreeMap<usize, (usize, Option<NodeId>)> = BTreeMap::new();
    for (at, (step, node)) in program.steps.iter().zip(&program.origins).enumerate() {
        visit(step, &mut |place| {
            if let Base::Buffer(buffer) = place.base {
                let (_, owner) = owners.entry(buffer).or_insert((at, *node));
                *owner = owner.filter(|owner| Some(*owner) == *node);
            }
        });
    }
    let mut steps: Vec<PlannedStep> = (program.steps.iter().zip(&program.origins))
        .map(|(step, node)| PlannedStep { node: *node, kernel: program.kernel_of(step), scratch: 0 })
        .collect();
    for (buffer, (first, owner)) in owners {
        if owner.is_some() {
            steps[first].scratch += program.intervals[buffer].bytes;
        }
    }
    Ok(steps)
}

/// The plan of any graph that is run node by node: each result of a node is a buffer from the node on to the last one that
/// reads it, and reshapes share that of their operand. Outputs are part of it.
///
/// # Errors
/// When a size has no value.
pub fn plan_nodes(graph: &Graph, bindings: &Bindings) -> Result<RunPlan, String> {
    let mut buffers: HashMap<ValueId, usize> = HashMap::new();
    let (mut names, mut intervals) = (Vec::new(), Vec::new());
    let nodes = graph.needed_nodes();
    for (at, id) in nodes.iter().enumerate() {
        let node = graph.node(*id);
        node.op.visit_operands(&mut |value| {
            if let Some(&buffer) = buffers.get(&value) {
                let interval: &mut Interval = &mut intervals[buffer];
                interval.last = at;
            }
        });
        for &output in &node.outputs {
            if let Op::Reshape(reshape) = &node.op {
                if let Some(&buffer) = buffers.get(&reshape.x) {
                    buffers.insert(output, buffer);
                }
                continue;
            }
            let Type::Tensor(ty) = graph.type_of(output) else { continue };
            let name = &graph.value(output).name;
            let shape =
                ty.shape.evaluate(bindings).ok_or_else(|| format!("the size of `{name}`, {ty}, is not known"))?;
            let bytes = shape.iter().try_fold(ty.dtype.size(), |n, size| n.checked_mul(*size));
            let bytes = bytes.filter(|bytes| *bytes <= MOST_BYTES);
            let bytes = bytes.ok_or_else(|| format!("`{name}`, {ty}, is too large"))?;
            buffers.insert(output, intervals.len());
            names.push(name.clone());
            intervals.push(Interval { bytes, first: at, last: at });
        }
    }
    for output in graph.outputs() {
        if let Some(&buffer) = buffers.get(&output.value) {
            intervals[buffer].last = nodes.len().saturating_sub(1);
        }
    }
    let sum = intervals.iter().fold(0usize, |sum, interval| sum.saturating_add(interval.bytes));
    if sum > MOST_BYTES {
        return Err(format!("the results of all nodes take {sum} bytes together, which no memory has"));
    }
    let plan = memory::plan(&intervals);
    Ok(RunPlan::new(names, &intervals, &plan, nodes.len(), Vec::new(), [None, None]))
}
