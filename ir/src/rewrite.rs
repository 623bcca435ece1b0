//! Rewriting a graph in one walk over its nodes.

use std::collections::HashMap;
use std::ops::Deref;

use crate::handle::Handle;
use crate::{BuildError, Graph, NodeId, Op, ValueId, Weight};

/// What to do with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It stays.
    Keep,
    /// It goes; its results become these values, of the same types, in order.
    Replace(Vec<ValueId>),
}

/// The graph during [`Graph::rewrite`]: reads see what has been rewritten so far, new nodes go
/// before the node under consideration; or after it, see [`Graph::append`].
pub struct Rewriter<'a> {
    graph: &'a mut Graph,
}

impl Deref for Rewriter<'_> {
    type Target = Graph;
    fn deref(&self) -> &Graph {
        self.graph
    }
}

impl Rewriter<'_> {
    /// Emits a node that stands for `like`, with its name and origin; returns its first result,
    /// which every operator has.
    ///
    /// # Errors
    /// When the operands do not fit the operator.
    pub fn emit(&mut self, op: impl Into<Op>, like: ValueId) -> Result<ValueId, BuildError> {
        Ok(self.emit_all(op, like)?[0])
    }

    /// Emits a node that stands for `like`, with its name and origin; returns its results.
    ///
    /// # Errors
    /// When the operands do not fit the operator.
    pub fn emit_all(&mut self, op: impl Into<Op>, like: ValueId) -> Result<Vec<ValueId>, BuildError> {
        let (name, origin) = (self.value(like).name.clone(), self.value(like).origin.clone());
        self.graph.emit_named(op.into(), name, origin)
    }

    /// Emits a node that is a part of what stands for `like`, named `LIKE/OPERATOR`; returns its
    /// results.
    ///
    /// # Errors
    /// When the operands do not fit the operator.
    pub fn emit_part(&mut self, op: impl Into<Op>, like: ValueId) -> Result<Vec<ValueId>, BuildError> {
        let (op, value) = (op.into(), self.value(like));
        let (name, origin) = (format!("{}/{}", value.name, op.mnemonic()), value.origin.clone());
        self.graph.emit_named(op, name, origin)
    }

    /// Emits a node that is a part of what stands for `like`, as [`Rewriter::emit_part`] does; returns its first result,
    /// which every operator has.
    ///
    /// # Errors
    /// When the operands do not fit the operator.
    pub fn part(&mut self, op: impl Into<Op>, like: ValueId) -> Result<ValueId, BuildError> {
        Ok(self.emit_part(op, like)?[0])
    }

    /// Adds a weight that stands for `like`, with its name and origin.
    pub fn weight_like(&mut self, weight: Weight, like: ValueId) -> ValueId {
        let (name, origin) = (self.value(like).name.clone(), self.value(like).origin.clone());
        self.graph.add_weight(&name, weight, origin)
    }

    /// Adds a weight that is a part of what stands for `like`, named `LIKE/const`.
    pub fn weight_part(&mut self, weight: Weight, like: ValueId) -> ValueId {
        let (name, origin) = (format!("{}/const", self.value(like).name), self.value(like).origin.clone());
        self.graph.add_weight(&name, weight, origin)
    }
}

impl Graph {
    /// Walks over the nodes in order and applies `rule` to each, operands already rewritten.
    /// Returns how many nodes were replaced. What is dead afterwards stays until
    /// [`Graph::compact`].
    ///
    /// # Errors
    /// The first error of `rule`; the graph is then incomplete and must be dropped.
    ///
    /// # Panics
    /// When a rule replaces a value by one of another type: a bug in the rule.
    pub fn rewrite<E>(
        &mut self,
        mut rule: impl FnMut(&mut Rewriter<'_>, NodeId) -> Result<Step, E>,
    ) -> Result<usize, E> {
        let old = std::mem::take(&mut self.order);
        let mut replaced: Vec<Option<ValueId>> = vec![None; self.value_count()];
        let mut count = 0;
        for id in old {
            if count > 0 {
                self.node_mut(id).op.visit_operands_mut(&mut |v| {
                    if let Some(Some(new)) = replaced.get(v.index()) {
                        *v = *new;
                    }
                });
            }
            match rule(&mut Rewriter { graph: self }, id)? {
                Step::Keep => self.order.push(id),
                Step::Replace(values) => {
                    count += 1;
                    self.is_compact = false;
                    let outputs = &self.node(id).outputs;
                    assert_eq!(outputs.len(), values.len(), "a rule replaces all results of a node");
                    for (&output, value) in outputs.iter().zip(values) {
                        assert_eq!(self.type_of(output), self.type_of(value), "a rule keeps types");
                        replaced[output.index()] = Some(value);
                    }
                }
            }
        }
        for output in self.outputs_mut() {
            output.value = replaced.get(output.value.index()).copied().flatten().unwrap_or(output.value);
        }
        Ok(count)
    }

    /// A rewriter whose new nodes go after all others.
    pub fn append(&mut self) -> Rewriter<'_> {
        Rewriter { graph: self }
    }

    /// Replaces values by others of the same type wherever nodes or outputs use them.
    pub fn substitute(&mut self, with: &HashMap<ValueId, ValueId>) {
        if with.is_empty() {
            return;
        }
        self.is_compact = false;
        let replace = |v: &mut ValueId| *v = with.get(v).copied().unwrap_or(*v);
        for index in 0..self.order.len() {
            self.node_mut(self.order[index]).op.visit_operands_mut(&mut |v| replace(v));
        }
        self.outputs_mut().iter_mut().for_each(|o| replace(&mut o.value));
    }
}
