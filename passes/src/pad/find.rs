//! Finding the vocabulary of a graph: the tables that token ids are looked up in, and the heads that
//! score tokens.

use std::collections::{HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, BinaryKind, Cast, Embedding, Linear, Reshape, Unary, UnaryKind};
use planish_ir::{Graph, Op, OutputRole, ValueId};

/// A linear layer that scores tokens.
pub(crate) struct Head {
    /// The place of the output that it ends in.
    pub(super) output: usize,
    /// The layer.
    pub(crate) linear: Linear,
    /// What it gives.
    pub(crate) scores: ValueId,
    /// What is computed from that element by element up to the output: the results in this order.
    pub(super) after: Vec<ValueId>,
    /// The number of tokens.
    pub(super) size: usize,
}

/// What makes up the vocabulary of a graph.
pub(crate) struct Found {
    /// Weights [tokens, features] that token ids are looked up in.
    pub(crate) tables: Vec<ValueId>,
    /// What scores tokens.
    pub(crate) heads: Vec<Head>,
}

impl Found {
    /// The number of tokens, and whether they are scored: of the vocabulary that is scored, where there are two.
    pub(super) fn vocabulary(&self, graph: &Graph) -> Option<(usize, bool)> {
        let scored = self.heads.first().map(|head| (head.size, true));
        let read = || self.tables.iter().map(|table| rows(graph, *table)).max();
        scored.or_else(|| read().map(|size| (size, false)))
    }

    pub(crate) fn of(graph: &Graph) -> Self {
        let uses = graph.use_counts();
        let outputs = 0..graph.outputs().len();
        let mut heads: Vec<Head> = outputs.filter_map(|output| linear_before(graph, &uses, output)).collect();
        let tied: HashSet<ValueId> = heads.iter().map(|head| head.linear.weight).collect();

        let mut lookups: HashMap<ValueId, usize> = HashMap::new();
        let mut tables = Vec::new();
        for (_, node) in graph.nodes() {
            let Op::Embedding(Embedding { weight, ids }) = &node.op else { continue };
            if graph.weight(*weight).is_none() {
                continue;
            }
            *lookups.entry(*weight).or_default() += 1;
            if (tied.contains(weight) || are_tokens(graph, *ids)) && !tables.contains(weight) {
                tables.push(*weight);
            }
        }
        // A head that shares no table gives logits.
        let role = |head: &Head| graph.interface.output(&graph.outputs()[head.output].name);
        let sizes: HashSet<usize> = tables.iter().map(|table| rows(graph, *table)).collect();
        heads.retain(|head| {
            tables.contains(&head.linear.weight) || role(head) == OutputRole::Logits && sizes.contains(&head.size)
        });

        // What else a weight is used for would need it as it was: two tensors instead of one.
        let scoring = |weight: ValueId| heads.iter().filter(|head| head.linear.weight == weight).count();
        let only = |weight: ValueId| uses[weight.index()] == lookups.get(&weight).unwrap_or(&0) + scoring(weight);
        let others: HashSet<ValueId> =
            tables.iter().copied().chain(heads.iter().map(|head| head.linear.weight)).filter(|w| !only(*w)).collect();
        tables.retain(|table| !others.contains(table));
        heads.retain(|head| !others.contains(&head.linear.weight));
        Self { tables, heads }
    }
}

/// The first dimension of a weight.
fn rows(graph: &Graph, weight: ValueId) -> usize {
    graph.weight(weight).and_then(|weight| weight.shape().first().copied()).unwrap_or(0)
}

/// Whether ids are those of an input of tokens.
fn are_tokens(graph: &Graph, mut ids: ValueId) -> bool {
    while let Some(Op::Cast(Cast { x, .. }) | Op::Reshape(Reshape { x, .. })) = graph.producer(ids).map(|node| &node.op)
    {
        ids = *x;
    }
    graph.inputs().contains(&ids) && graph.interface.input(&graph.value(ids).name).is_token_ids()
}

/// The linear layer of known weights that an output comes from, element by element. What is between
/// the two nothing else uses.
fn linear_before(graph: &Graph, uses: &[usize], output: usize) -> Option<Head> {
    let mut after = Vec::new();
    let mut value = graph.outputs()[output].value;
    loop {
        let op = &graph.producer(value).filter(|_| uses[value.index()] == 1)?.op;
        if let Op::Linear(linear) = op {
            let known = |weight: ValueId| graph.weight(weight).is_some();
            let size = graph.weight(linear.weight)?.shape()[usize::from(linear.transposed.0)];
            after.reverse();
            let head = Head { output, linear: linear.clone(), scores: value, after, size };
            return linear.bias.is_none_or(known).then_some(head);
        }
        after.push(value);
        value = before(graph, op).filter(|x| graph.ty(*x).shape == graph.ty(value).shape)?;
    }
}

/// What an operator that works element by element, with known weights besides, is applied to. None
/// of them makes a number of 0 that is not finite.
fn before(graph: &Graph, op: &Op) -> Option<ValueId> {
    match op {
        Op::Cast(Cast { x, to }) if to.is_float() => Some(*x),
        Op::Unary(Unary { kind: UnaryKind::Tanh | UnaryKind::Neg, x }) => Some(*x),
        Op::Binary(Binary { kind: BinaryKind::Add | BinaryKind::Mul, a, b }) => match graph.weight(*a) {
            Some(_) => Some(*b),
            None => graph.weight(*b).map(|_| *a),
        },
        Op::Binary(Binary { kind: BinaryKind::Sub | BinaryKind::Div, a, b }) => graph.weight(*b).map(|_| *a),
        _ => None,
    }
}
