//! Which operators compute in half precision, and why others do not.

use std::collections::{HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::{DType, Def, Graph, Node, NodeId, Op, ValueId};

use super::choices::choices;
use super::kind::{Fact, Source, attention_bias, by_kind, follows, is_bounded, is_wide, looks_up, source, touches};
use super::reason::{Kept, Reason, asked, evidence};
use super::rebuild::ElementTypes;
use super::{HalfPrecision, Loss};
use crate::QuantizedForm;
use crate::legalize::reshaped;
use crate::processing::is_processing;

/// What operators compute in.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By node, where float32 goes in or comes out.
    types: HashMap<NodeId, Computes>,
    /// Operators that compute in float32 though their kind would not have them.
    pub(super) kept: Vec<Kept>,
    /// For each exception, whether it names anything.
    pub(super) matched: Vec<bool>,
}

/// What an operator computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computes {
    /// Half precision.
    Half,
    /// float32.
    Single,
    /// Whichever its operands have: its results are not floats.
    Operands,
}

/// A plan for a graph that is brought to half precision.
pub(super) struct Planned<'a> {
    pub(super) plan: &'a Plan,
    pub(super) precision: &'a HalfPrecision,
}

impl ElementTypes for Planned<'_> {
    fn outside(&self, dtype: DType) -> DType {
        match dtype {
            DType::F32 if self.precision.half_io => self.precision.half.dtype(),
            _ => dtype,
        }
    }

    fn operand(&self, node: NodeId, op: &Op, operand: ValueId, dtype: DType, now: Option<DType>) -> DType {
        match dtype {
            dtype if dtype == self.precision.half.other().dtype() && !matches!(op, Op::Foreign(_)) => DType::F32,
            DType::F32 if attention_bias(op) == Some(operand) => now.unwrap_or(DType::F32),
            DType::F32 if self.plan.is_half(node) => self.precision.half.dtype(),
            _ => dtype,
        }
    }

    fn cast(&self, node: NodeId, dtype: DType) -> DType {
        match dtype {
            DType::F32 if self.plan.is_half(node) => self.precision.half.dtype(),
            dtype if dtype == self.precision.half.other().dtype() => DType::F32,
            dtype => dtype,
        }
    }
}

impl Plan {
    /// Whether an operator computes in half precision.
    fn is_half(&self, node: NodeId) -> bool {
        self.types.get(&node) == Some(&Computes::Half)
    }

    /// The weights that operators take in half precision.
    pub(super) fn halved_weights(&self, graph: &Graph) -> HashSet<ValueId> {
        let nodes = graph.nodes().filter(|(id, _)| self.is_half(*id)).map(|(_, node)| &node.op);
        let operands = nodes.flat_map(|op| op.operands().into_iter().filter(|v| attention_bias(op) != Some(*v)));
        operands.filter(|operand| graph.weight(*operand).is_some()).collect()
    }

    /// How many operators compute in half precision.
    pub(super) fn halved(&self) -> usize {
        self.types.values().filter(|ty| **ty == Computes::Half).count()
    }
}

pub(super) fn plan(graph: &Graph, precision: &HalfPrecision, form: QuantizedForm, losses: &[(ValueId, Loss)]) -> Plan {
    let mut plan = Plan { matched: vec![false; precision.keep.0.len()], ..Plan::default() };
    let unfit = losses.iter().filter(|(_, loss)| loss.is_unfit(precision.half));
    let unfit: HashMap<ValueId, &Loss> = unfit.map(|(id, loss)| (*id, loss)).collect();
    let mut kept = HashSet::new();
    let choices = choices(graph);
    let mut facts = Fact::of_inputs(graph);
    for (id, node) in graph.nodes() {
        let dtype = graph.ty(node.outputs[0]).dtype;
        if dtype == precision.half.other().dtype() && !matches!(node.op, Op::Foreign(_) | Op::Cast(_)) {
            plan.kept.push(Kept::operator(graph, node, &Reason::OtherHalf(dtype)));
        }
        if !touches(graph, node) {
            continue;
        }
        let source = source(graph, node, &facts);
        let mut ty = by_kind(graph, node, source, precision.max_abs);
        let bias = attention_bias(&node.op);
        let follows_wide = |v: &ValueId| facts[v.index()].wide && Some(*v) != bias;
        let by_itself = ty == Computes::Single && is_wide(graph, &node.op);
        let mut goes_on = false;
        if follows(&node.op) {
            for operand in node.op.operands().iter().filter(|v| follows_wide(v)) {
                ty = if ty == Computes::Half { Computes::Single } else { ty };
                // A factor that comes from integers, such as a mask, does not make data any wider.
                goes_on |= facts[operand.index()].source == Source::Data && !is_bounded(&node.op);
            }
        }
        let fact = Fact { source, wide: by_itself || goes_on, unbounded: false };
        node.outputs.iter().for_each(|output| facts[output.index()] = fact);
        let asked = asked(graph, node, precision, &mut plan.matched);
        if is_quantized(graph, &node.op, form) || is_processing(graph, node) {
            ty = Computes::Single;
            kept.insert(id);
        }
        let of_choice = || choices.get(&id).map(|chosen| Reason::Choice(chosen.clone()));
        if ty == Computes::Half
            && let Some(reason) = asked.or_else(|| evidence(graph, node, precision, &unfit, &facts)).or_else(of_choice)
        {
            ty = Computes::Single;
            let overflows = match &reason {
                Reason::Weight(loss) => loss.overflows > 0,
                Reason::Unbounded(_) => !is_bounded(&node.op),
                _ => false,
            };
            let seen = |output: &&ValueId| precision.observed.contains_key(&graph.value(**output).name);
            node.outputs.iter().filter(|v| !seen(v)).for_each(|v| facts[v.index()].unbounded = overflows);
            kept.insert(id);
            plan.kept.push(Kept::operator(graph, node, &reason));
        }
        if matches!(node.op, Op::Foreign(_)) {
            plan.kept.push(Kept::operator(graph, node, &Reason::PassesThrough));
        }
        plan.types.insert(id, ty);
    }
    sole_use(graph, &mut plan, &kept);
    share_tables(graph, &mut plan);
    follow_operands(graph, precision, &mut plan, &unfit);
    plan
}

/// Whether an operator quantizes, or multiplies with a quantized weight: it computes with codes, and its scales are
/// float32. Targets with operators on codes have such ones of every type, with scales of float32.
fn is_quantized(graph: &Graph, op: &Op, form: QuantizedForm) -> bool {
    match op {
        Op::Quantize(_) | Op::QuantizedLinear(_) => true,
        _ if form == QuantizedForm::Codes => false,
        Op::FakeQuantize(_) => true,
        Op::Linear(_) | Op::Experts(_) => {
            let weights = op.operands().into_iter().filter_map(|operand| graph.weight(operand));
            weights.into_iter().any(|weight| weight.as_dequantized().is_some() || reshaped(weight).is_some())
        }
        _ => false,
    }
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
        let stays = node.op.is_product() || looks_up(graph, &node.op);
        if ty == Computes::Half
            && !stays
            && node.outputs.iter().any(alone)
            && node.outputs.iter().all(|v| wanted[v.index()] == [false, false] || alone(v))
        {
            ty = Computes::Single;
            plan.types.insert(id, ty);
        }
        let bias = attention_bias(&node.op);
        node.op.visit_operands(&mut |operand| {
            match ty {
                _ if Some(operand) == bias => wanted[operand.index()][1] = true,
                Computes::Half => wanted[operand.index()][0] = true,
                Computes::Single if kept.contains(&id) => wanted[operand.index()][0] = true,
                Computes::Single => wanted[operand.index()][1] = true,
                Computes::Operands => {}
            };
        });
    }
}

/// Has tables that are looked up in and that another operator takes in float32, as a tied head does, stay one
/// tensor: the rows are cast instead.
fn share_tables(graph: &Graph, plan: &mut Plan) {
    let single = graph.nodes().filter(|(id, _)| plan.types.get(id) == Some(&Computes::Single));
    let taken: HashSet<ValueId> = single.flat_map(|(_, node)| node.op.operands()).collect();
    for (id, node) in graph.nodes().filter(|(_, node)| looks_up(graph, &node.op)) {
        let table = node.op.operands()[0];
        if plan.is_half(id) && taken.contains(&table) {
            plan.types.insert(id, Computes::Single);
            plan.kept.push(Kept::operator(graph, node, &Reason::Shared(graph.value(table).name.clone())));
        }
    }
}

/// Has comparisons and the like compute in half precision where all their operands are in it.
fn follow_operands(graph: &Graph, precision: &HalfPrecision, plan: &mut Plan, unfit: &HashMap<ValueId, &Loss>) {
    for (id, node) in
        graph.nodes().filter(|(id, _)| plan.types.get(id) == Some(&Computes::Operands)).collect::<Vec<_>>()
    {
        let half = |operand: &ValueId| match graph.value(*operand).def {
            Def::Node { node, .. } => plan.is_half(node),
            Def::Input => precision.half_io,
            Def::Weight(_) => !unfit.contains_key(operand),
        };
        let floats = node.op.operands().into_iter().filter(|v| graph.ty(*v).dtype == DType::F32);
        let ty = if floats.into_iter().all(|v| half(&v)) { Computes::Half } else { Computes::Single };
        plan.types.insert(id, ty);
    }
}
