//! Which values the operators after them take in parts: a walk from the results of a graph to its inputs.

use std::collections::HashMap;

use planish_ir::ops::Linear;
use planish_ir::{Graph, Node, Op, ValueId};

use super::ShardError;
use super::apart::{Need, needs, size};
use super::cut::Cut;
use super::heads::Heads;
use super::tokens::Tokens;

/// How the users of values take them: all in the same parts, or whole.
pub(super) struct Wants(HashMap<ValueId, Option<Cut>>);

impl Wants {
    pub(super) fn of(graph: &Graph, tokens: &Tokens, ranks: usize) -> Result<Self, ShardError> {
        let mut wants = Self(HashMap::new());
        for output in graph.outputs() {
            // A cache may be in parts.
            if graph.interface.output(&output.name).cache().is_none() {
                wants.add((output.value, None));
            }
        }
        let nodes: Vec<&Node> = graph.needed_nodes().into_iter().map(|id| graph.node(id)).collect();
        for node in nodes.into_iter().rev() {
            for need in wants.through(graph, tokens, node, ranks)? {
                wants.add(need);
            }
        }
        Ok(wants)
    }

    /// The cut in which all users take a value.
    pub(super) fn cut(&self, value: ValueId) -> Option<&Cut> {
        self.0.get(&value)?.as_ref()
    }

    fn add(&mut self, (value, cut): Need) {
        let known = self.0.entry(value).or_insert_with(|| cut.clone());
        if *known != cut {
            *known = None;
        }
    }

    /// What a node takes for what its users take.
    fn through(&self, graph: &Graph, tokens: &Tokens, node: &Node, ranks: usize) -> Result<Vec<Need>, ShardError> {
        let whole = || node.op.operands().into_iter().map(|operand| (operand, None)).collect();
        Ok(match &node.op {
            Op::Attention(op) => Heads::of(graph, node, op, ranks)?.needs(op),
            // Each rank scores its own tokens.
            Op::Linear(op) if tokens.is_head(node.outputs[0]) => vec![(op.x, None)],
            Op::Linear(op) if graph.weight(op.weight).is_some() => {
                let x = self.input_of(graph, op, node.outputs[0], ranks);
                vec![(op.x, x)]
            }
            _ => {
                let results: Option<Vec<Cut>> = node.outputs.iter().map(|result| self.cut(*result).cloned()).collect();
                let needs = results.and_then(|results| needs(graph, node, &results, ranks));
                let fit =
                    |needs: &Vec<Need>| needs.iter().all(|(_, cut)| cut.as_ref().is_none_or(|cut| cut.fits(ranks)));
                needs.filter(fit).unwrap_or_else(whole)
            }
        })
    }

    /// The input of a linear layer: whole where its outputs are cut, and else by its features.
    fn input_of(&self, graph: &Graph, op: &Linear, result: ValueId, ranks: usize) -> Option<Cut> {
        let last = graph.ty(op.x).shape.rank() - 1;
        match self.cut(result) {
            Some(cut) if cut.axis == last => None,
            Some(cut) => Some(cut.clone()),
            None => {
                let features = size(&graph.ty(op.x).shape[last])?;
                Some(Cut::even(last, features)).filter(|cut| cut.fits(ranks))
            }
        }
    }
}
