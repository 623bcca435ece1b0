//! Fusing: from the canonical form to operators that are several in one, for targets that run those. Runs where the
//! operators of the graph stay as they are; elsewhere these passes change nothing, except that layers of codes are packed for
//! target ort.
//!
//! As in raising, a rule that comes near and does not match says why.

mod embeddings;
mod gated;
mod linear;
mod norms;
mod pack;
mod rotary;

use std::collections::HashMap;

use planish_ir::ops::{Activation, Gelu, GeluForm, NormKind, Real, Unary, UnaryKind};
use planish_ir::{Graph, NodeId, Op, Rewriter, ValueId};

pub use embeddings::FUSE_EMBEDDINGS;
pub use gated::FUSE_GATED;
pub use linear::FUSE_LINEAR;
pub use norms::FUSE_NORMS;
pub use pack::PACK_PROJECTIONS;
pub use rotary::FUSE_ROTARY;

use crate::raise::{Explanation, Match};
use crate::rules::{self, Found, Uses, ends};
use crate::{Options, Outcome, Pass, Stage};

/// The passes that fuse, in order.
pub const FUSING: &[&Pass] = &[
    // Sees layers of one operand before activations and residuals join some of them.
    &PACK_PROJECTIONS,
    // Sees sums of embeddings before their norm takes the last of them.
    &FUSE_EMBEDDINGS,
    // Sees sums before layers take what a norm does not need.
    &FUSE_NORMS,
    &FUSE_ROTARY,
    // Sees activations before layers take those that gate nothing.
    &FUSE_GATED,
    &FUSE_LINEAR,
];

/// Adds what was fused, and where a rule came near, to what raising found; `stages` are the passes that ran.
pub fn explain(graph: &Graph, stages: &[Stage], explanation: &mut Explanation) {
    let fused = graph.nodes().filter(|(_, node)| node.op.is_fused()).map(|(_, node)| {
        let value = graph.value(node.outputs[0]);
        Match { operator: node.op.mnemonic(), at: value.name.clone(), origin: value.origin.clone() }
    });
    explanation.matches.extend(fused);
    let of_fusing = stages.iter().filter(|stage| FUSING.iter().any(|pass| pass.name == stage.pass));
    explanation.misses.extend(ends(of_fusing.flat_map(|stage| &stage.notes)));
}

/// Applies a rule everywhere, with how often each value is used in front of it.
fn apply(
    graph: &mut Graph,
    options: &Options,
    rule: &'static str,
    find: impl FnMut(&mut Rewriter<'_>, NodeId, &Uses) -> Found,
) -> Outcome {
    // Dead users of a value would count.
    graph.compact();
    let uses = Uses::of(graph);
    rules::apply(graph, options, rule, uses, find)
}

/// The operator that computes a value.
fn op(graph: &Graph, value: ValueId) -> Option<&Op> {
    graph.producer(value).map(|node| &node.op)
}

/// The operand and the function, where an operator is an activation that is fused.
fn activation(op: &Op) -> Option<(ValueId, Activation)> {
    Some(match op {
        Op::Gelu(Gelu { x, form: GeluForm::Erf }) => (*x, Activation::GeluErf),
        Op::Gelu(Gelu { x, form: GeluForm::Tanh }) => (*x, Activation::GeluTanh),
        Op::Unary(Unary { kind: UnaryKind::Silu, x }) => (*x, Activation::Silu),
        Op::Unary(Unary { kind: UnaryKind::Relu, x }) => (*x, Activation::Relu),
        _ => return None,
    })
}

/// A normalization by weights.
#[derive(Clone)]
struct Norm {
    node: NodeId,
    /// What is normalized.
    x: ValueId,
    /// The result.
    output: ValueId,
    kind: NormKind,
    weight: ValueId,
    bias: Option<ValueId>,
    eps: Real,
}

impl Norm {
    fn of(graph: &Graph, node: NodeId) -> Option<Self> {
        let (x, kind, weight, bias, eps) = match &graph.node(node).op {
            Op::LayerNorm(p) => (p.x, NormKind::Layer, p.weight, p.bias, p.eps),
            Op::RmsNorm(p) => (p.x, NormKind::Rms, p.weight, None, p.eps),
            _ => return None,
        };
        // What is fused stands where the sum does, and weights are there.
        let known = |value: ValueId| graph.weight(value).is_some();
        let output = graph.node(node).outputs[0];
        (known(weight) && bias.is_none_or(known)).then_some(Self { node, x, output, kind, weight, bias, eps })
    }

    /// The first norm of each value.
    fn all(graph: &Graph) -> HashMap<ValueId, Self> {
        let mut all = HashMap::new();
        for norm in graph.nodes().filter_map(|(id, _)| Self::of(graph, id)) {
            all.entry(norm.x).or_insert(norm);
        }
        all
    }
}

/// Norms that are fused into what they normalize: found before, and replaced when the walk comes to them.
struct Norms {
    of: HashMap<ValueId, Norm>,
    /// The results of norms whose sum was fused with them.
    done: HashMap<NodeId, ValueId>,
}

impl Norms {
    fn new(graph: &mut Graph) -> Self {
        graph.compact();
        Self { of: Norm::all(graph), done: HashMap::new() }
    }

    /// The norm of the result of a node.
    fn at(&self, graph: &Graph, node: NodeId) -> Option<Norm> {
        self.of.get(&graph.node(node).outputs[0]).cloned()
    }

    /// What an operator of normalized elements and sum gives in place of the sum.
    fn fused(&mut self, graph: &mut Rewriter<'_>, norm: &Norm, op: impl Into<Op>) -> Found {
        let results = graph.emit_all(op, norm.output)?;
        if graph.ty(results[0]) == graph.ty(norm.output) {
            self.done.insert(norm.node, results[0]);
        }
        Ok(vec![results[1]])
    }
}
