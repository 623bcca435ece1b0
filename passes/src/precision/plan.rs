//! Which operators compute in half precision, and why others do not.

use std::collections::{HashMap, HashSet};
use std::fmt;

use planish_ir::handle::Handle;
use planish_ir::ops::{BinaryKind, ReduceKind, UnaryKind};
use planish_ir::{DType, Def, Graph, Node, NodeId, Op, Origin, ValueId};

use super::rebuild::Types;
use super::{Loss, Precision};

/// What operators compute in.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By node, where float32 goes in or comes out.
    types: HashMap<NodeId, Type>,
    /// Operators that compute in float32 though their kind would not have them.
    pub(super) kept: Vec<Kept>,
    /// For each pattern of what is to be kept, whether anything matched.
    pub(super) matched: Vec<bool>,
}

/// What an operator computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// Half precision.
    Half,
    /// float32.
    Single,
    /// Whichever its operands have: its results are no floats.
    Operands,
}

/// A plan for a graph that is brought to half precision.
pub(super) struct Halved<'a> {
    pub(super) plan: &'a Plan,
    pub(super) precision: &'a Precision,
}

impl Types for Halved<'_> {
    fn outside(&self, dtype: DType) -> DType {
        match dtype {
            DType::F32 if self.precision.half_io => self.precision.half.dtype(),
            _ => dtype,
        }
    }

    fn operand(&self, node: NodeId, op: &Op, operand: ValueId, dtype: DType, now: Option<DType>) -> DType {
        match dtype {
            DType::F32 if attention_bias(op) == Some(operand) => now.unwrap_or(DType::F32),
            DType::F32 if self.plan.is_half(node) => self.precision.half.dtype(),
            _ => dtype,
        }
    }

    fn cast(&self, node: NodeId, dtype: DType) -> DType {
        if dtype == DType::F32 && self.plan.is_half(node) { self.precision.half.dtype() } else { dtype }
    }
}

impl Plan {
    /// Whether an operator computes in half precision.
    fn is_half(&self, node: NodeId) -> bool {
        self.types.get(&node) == Some(&Type::Half)
    }

    /// How many operators compute in half precision.
    pub(super) fn halved(&self) -> usize {
        self.types.values().filter(|ty| **ty == Type::Half).count()
    }
}

/// An operator, or on targets that compute in float32 a weight, that is kept in float32.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The name of its first result, or of the weight.
    pub name: String,
    /// The operator's mnemonic, or `weight`.
    pub operator: &'static str,
    /// Where it came from.
    pub origin: Origin,
    /// Why.
    pub reason: Reason,
}

/// Why something is kept in float32.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A weight that half precision cannot hold.
    Weight(Loss),
    /// A value beyond the limit.
    Activation {
        /// The value, or the scores of an attention.
        name: String,
        /// Its largest magnitude.
        magnitude: f64,
        /// The limit.
        limit: f64,
    },
    /// A value of unknown range, which comes from a weight that overflows.
    Unbounded(String),
    /// It passes through as it is.
    PassesThrough,
    /// It was asked for by this pattern.
    Asked(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Weight(Loss { name, overflows, elements, max_abs, .. }) if *overflows > 0 => {
                write!(
                    f,
                    "{overflows} of {elements} elements of the weight `{name}` overflow; the largest is {max_abs:.3e}"
                )
            }
            Reason::Weight(Loss { name, max_abs, relative_error, .. }) => write!(
                f,
                "the weight `{name}` underflows: its largest element is {max_abs:.3e}, its relative error {relative_error:.1e}"
            ),
            Reason::Activation { name, magnitude, limit } => {
                write!(f, "`{name}` reaches {magnitude:.3e}; at most {limit:.3e} is computed in half precision")
            }
            Reason::Unbounded(name) => write!(
                f,
                "`{name}` comes from a weight that overflows; --calibrate with data says how large it really is"
            ),
            Reason::PassesThrough => f.write_str("it passes through as it is"),
            Reason::Asked(pattern) => write!(f, "asked for by `{pattern}`"),
        }
    }
}

/// What a float32 value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Source {
    /// Weights alone.
    Weights,
    /// Integers and booleans, and weights.
    Integers,
    /// Something that was looked up or given: the data that flows through the model.
    Data,
}

pub(super) fn plan(graph: &Graph, precision: &Precision, losses: &[(ValueId, Loss)]) -> Plan {
    let mut plan = Plan { matched: vec![false; precision.keep.len()], ..Plan::default() };
    let unfit = losses.iter().filter(|(_, loss)| loss.is_unfit(precision.half));
    let unfit: HashMap<ValueId, &Loss> = unfit.map(|(id, loss)| (*id, loss)).collect();
    let mut kept = HashSet::new();
    let mut unbounded = vec![false; graph.value_count()];
    let mut sources = vec![Source::Weights; graph.value_count()];
    graph.inputs().iter().for_each(|id| sources[id.index()] = Source::Data);
    for (id, node) in graph.nodes() {
        if !touches(graph, node) {
            continue;
        }
        let source = source(graph, node, &sources);
        node.outputs.iter().for_each(|output| sources[output.index()] = source);
        let mut ty = by_kind(graph, node, source);
        let asked = asked(graph, node, precision, &mut plan.matched);
        if ty == Type::Half
            && let Some(reason) = asked.or_else(|| evidence(graph, node, precision, &unfit, &unbounded))
        {
            ty = Type::Single;
            let overflows = match &reason {
                Reason::Weight(loss) => loss.overflows > 0,
                Reason::Unbounded(_) => !is_bounded(&node.op),
                Reason::Activation { .. } | Reason::PassesThrough | Reason::Asked(_) => false,
            };
            let seen = |output: &&ValueId| precision.observed.contains_key(&graph.value(**output).name);
            node.outputs.iter().filter(|v| !seen(v)).for_each(|v| unbounded[v.index()] = overflows);
            kept.insert(id);
            let value = graph.value(node.outputs[0]);
            let (name, origin) = (value.name.clone(), value.origin.clone());
            plan.kept.push(Kept { name, operator: node.op.mnemonic(), origin, reason });
        }
        if matches!(node.op, Op::Foreign(_)) {
            let value = graph.value(node.outputs[0]);
            let (name, origin, reason) = (value.name.clone(), value.origin.clone(), Reason::PassesThrough);
            plan.kept.push(Kept { name, operator: node.op.mnemonic(), origin, reason });
        }
        plan.types.insert(id, ty);
    }
    sole_use(graph, &mut plan, &kept);
    follow_operands(graph, precision, &mut plan);
    plan
}

/// Whether a float32 value goes in or comes out.
fn touches(graph: &Graph, node: &Node) -> bool {
    let single = |value: &ValueId| graph.ty(*value).dtype == DType::F32;
    node.op.operands().iter().any(single) || node.outputs.iter().any(single)
}

fn source(graph: &Graph, node: &Node, sources: &[Source]) -> Source {
    let operands = node.op.operands();
    let largest = |values: &[ValueId]| {
        let of = |value: &ValueId| match (&graph.value(*value).def, graph.ty(*value).dtype) {
            (Def::Weight(_), _) => Source::Weights,
            (_, DType::F32) => sources[value.index()],
            _ => Source::Integers,
        };
        values.iter().map(of).fold(Source::Weights, |a, b| if b > a { b } else { a })
    };
    match &node.op {
        Op::Linear(_) | Op::MatMul(_) | Op::Embedding(_) | Op::Attention(_) | Op::Rotary(_) | Op::Foreign(_) => {
            Source::Data
        }
        Op::Iota(_) => Source::Integers,
        // Rows of a table are data, whatever picks them.
        Op::Gather(_) if graph.weight(operands[0]).is_some() => Source::Data,
        Op::Gather(_) => largest(&operands[..1]),
        Op::Cast(p) if graph.ty(p.x).dtype.is_float() && graph.ty(p.x).dtype != DType::F32 => Source::Data,
        _ => largest(&operands),
    }
}

/// What an operator computes in by its kind.
fn by_kind(graph: &Graph, node: &Node, source: Source) -> Type {
    if graph.ty(node.outputs[0]).dtype != DType::F32 && !matches!(node.op, Op::Foreign(_)) {
        return Type::Operands;
    }
    let single = match &node.op {
        _ if source == Source::Integers => true,
        Op::Foreign(_) | Op::Iota(_) | Op::Softmax(_) | Op::CumSum(_) => true,
        // What widens a half type is there for a reason.
        Op::Cast(p) => graph.ty(p.x).dtype != DType::F64,
        Op::Reduce(p) => matches!(p.kind, ReduceKind::Sum | ReduceKind::Mean),
        Op::Binary(p) => p.kind == BinaryKind::Pow,
        Op::Unary(p) => matches!(
            p.kind,
            UnaryKind::Exp | UnaryKind::Log | UnaryKind::Sqrt | UnaryKind::Erf | UnaryKind::Cos | UnaryKind::Sin
        ),
        _ => false,
    };
    if single { Type::Single } else { Type::Half }
}

/// The first pattern that asks for an operator.
fn asked(graph: &Graph, node: &Node, precision: &Precision, matched: &mut [bool]) -> Option<Reason> {
    let mut found = None;
    for (pattern, matched) in precision.keep.iter().zip(matched) {
        let weights = node.op.operands().into_iter().filter(|operand| graph.weight(*operand).is_some());
        if node.outputs.iter().copied().chain(weights).any(|value| is_named(graph, value, pattern)) {
            *matched = true;
            found = found.or_else(|| Some(Reason::Asked(pattern.to_string())));
        }
    }
    found
}

/// Whether the name of a value, or that of where it came from, matches.
pub(super) fn is_named(graph: &Graph, value: ValueId, pattern: &regex::Regex) -> bool {
    let value = graph.value(value);
    let origin = match &value.origin {
        Origin::Tensor { name, .. } | Origin::Node { name, .. } => Some(name),
        Origin::Module(path) => Some(path),
        Origin::Config(_) | Origin::Unknown => None,
    };
    pattern.is_match(&value.name) || origin.is_some_and(|name| pattern.is_match(name))
}

/// What speaks against half precision.
fn evidence(
    graph: &Graph,
    node: &Node,
    precision: &Precision,
    unfit: &HashMap<ValueId, &Loss>,
    unbounded: &[bool],
) -> Option<Reason> {
    let operands = node.op.operands();
    if let Some(operand) = operands.iter().find(|operand| unbounded[operand.index()]) {
        return Some(Reason::Unbounded(graph.value(*operand).name.clone()));
    }
    if let Some(loss) = operands.iter().find_map(|operand| unfit.get(operand)) {
        return Some(Reason::Weight((*loss).clone()));
    }
    let names = node.outputs.iter().chain(&operands).map(|value| graph.value(*value).name.clone());
    let scores = matches!(node.op, Op::Attention(_)).then(|| scores_name(graph, node));
    names.chain(scores).find_map(|name| {
        let magnitude = *precision.observed.get(&name)?;
        let limit = precision.max_abs;
        // What is not a number exceeds every limit.
        (magnitude > limit || magnitude.is_nan()).then_some(Reason::Activation { name, magnitude, limit })
    })
}

/// Whether results are of moderate size, or as far as can be said so, whatever the size of the operands: those
/// that normalize, mix or bound them, and products, whose weights are small as a rule.
fn is_bounded(op: &Op) -> bool {
    match op {
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Softmax(_) | Op::Linear(_) | Op::MatMul(_) => true,
        Op::Unary(p) => matches!(p.kind, UnaryKind::Tanh | UnaryKind::Sigmoid | UnaryKind::Cos | UnaryKind::Sin),
        _ => false,
    }
}

/// The name under which the scores of an attention are observed.
fn scores_name(graph: &Graph, node: &Node) -> String {
    format!("{}/scores", graph.value(node.outputs[0]).name)
}

/// Has operators that only operators use that are in float32 by their kind compute in float32 too, from the last
/// to the first. What is kept takes what it uses as it is, else a table of tokens would be kept with a norm.
fn sole_use(graph: &Graph, plan: &mut Plan, kept: &HashSet<NodeId>) {
    let mut wanted = vec![[false; 2]; graph.value_count()];
    graph.outputs().iter().for_each(|output| wanted[output.value.index()][0] = true);
    let nodes: Vec<(NodeId, &Node)> = graph.nodes().collect();
    for (id, node) in nodes.into_iter().rev() {
        let Some(mut ty) = plan.types.get(&id).copied() else { continue };
        let alone = |value: &ValueId| wanted[value.index()] == [false, true];
        let is_product = matches!(node.op, Op::Linear(_) | Op::MatMul(_) | Op::Attention(_));
        if ty == Type::Half
            && !is_product
            && node.outputs.iter().any(alone)
            && node.outputs.iter().all(|v| wanted[v.index()] == [false, false] || alone(v))
        {
            ty = Type::Single;
            plan.types.insert(id, ty);
        }
        let bias = attention_bias(&node.op);
        node.op.visit_operands(&mut |operand| {
            match ty {
                _ if Some(operand) == bias => wanted[operand.index()][1] = true,
                Type::Half => wanted[operand.index()][0] = true,
                Type::Single if kept.contains(&id) => wanted[operand.index()][0] = true,
                Type::Single => wanted[operand.index()][1] = true,
                Type::Operands => {}
            };
        });
    }
}

/// The bias of an attention, which is added where its softmax is computed: in float32.
fn attention_bias(op: &Op) -> Option<ValueId> {
    match op {
        Op::Attention(p) => p.bias,
        _ => None,
    }
}

/// Has comparisons and the like compute in half precision where all their operands are in it.
fn follow_operands(graph: &Graph, precision: &Precision, plan: &mut Plan) {
    for (id, node) in graph.nodes().filter(|(id, _)| plan.types.get(id) == Some(&Type::Operands)).collect::<Vec<_>>() {
        let half = |operand: &ValueId| match graph.value(*operand).def {
            Def::Node { node, .. } => plan.is_half(node),
            Def::Input => precision.half_io,
            Def::Weight(_) => true,
        };
        let floats = node.op.operands().into_iter().filter(|v| graph.ty(*v).dtype == DType::F32);
        let ty = if floats.into_iter().all(|v| half(&v)) { Type::Half } else { Type::Single };
        plan.types.insert(id, ty);
    }
}
