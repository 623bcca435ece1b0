//! Compaction: a copy of a graph without its dead nodes and weights.

use std::collections::{HashMap, HashSet};

use crate::graph::{Def, Node, Value};
use crate::handle::{Arena, Handle};
use crate::names::Names;
use crate::{Dim, Graph, NodeId, Symbol, ValueId};

impl Graph {
    /// Rebuilds the arenas with only what the outputs need, operators that determine sizes included;
    /// inputs stay with their names, and other names that were given twice are made unique anew.
    /// Returns how many nodes and weights were dropped. Where nothing has changed since the last time, it does nothing.
    pub fn compact(&mut self) -> usize {
        if self.is_compact {
            return 0;
        }
        let (live, kept) = self.live();
        let mut dropped = self.order.len() - kept.len();
        let old = std::mem::take(self);
        let count = live.iter().filter(|live| **live).count() + old.inputs.len();
        self.values = Arena::with_capacity(count);
        self.nodes = Arena::with_capacity(kept.len());
        self.names = Names::with_capacity(count);
        self.name = old.name;
        self.interface = old.interface;

        let mut values: Vec<Option<Value>> = old.values.into_items().into_iter().map(Some).collect();
        let mut moved: Vec<Option<ValueId>> = vec![None; values.len()];
        for id in old.inputs {
            if let Some(Value { name, ty, def, origin, .. }) = values[id.index()].take() {
                let value = self.push_value(name, ty, def, origin);
                self.inputs.push(value);
                moved[id.index()] = Some(value);
            }
        }
        for index in 0..values.len() {
            if let Some(value) = values[index].take_if(|value| matches!(value.def, Def::Weight(_))) {
                if live[index] {
                    moved[index] = Some(self.move_value(value));
                } else {
                    dropped += 1;
                }
            }
        }
        let mut nodes: Vec<Option<Node>> = old.nodes.into_items().into_iter().map(Some).collect();
        for id in kept {
            let Some(Node { mut op, mut outputs }) = nodes[id.index()].take() else { continue };
            op.visit_operands_mut(&mut |v| *v = moved[v.index()].unwrap_or(*v));
            let node = NodeId::from_index(self.nodes.len());
            for (index, output) in outputs.iter_mut().enumerate() {
                if let Some(value) = values[output.index()].take() {
                    let new = self.move_value(Value { def: Def::Node { node, index }, ..value });
                    moved[output.index()] = Some(new);
                    *output = new;
                }
            }
            self.order.push(self.nodes.push(Node { op, outputs }));
        }
        self.outputs = old.outputs;
        self.outputs.iter_mut().for_each(|o| o.value = moved[o.value.index()].unwrap_or(o.value));
        self.is_compact = true;
        dropped
    }

    /// The nodes that the outputs need, operators that determine sizes included, in order.
    #[must_use]
    pub fn needed_nodes(&self) -> Vec<NodeId> {
        self.live().1
    }

    /// Which values the outputs need, by index, and the nodes that compute them, in order.
    fn live(&self) -> (Vec<bool>, Vec<NodeId>) {
        let mut live = vec![false; self.values.len()];
        self.outputs.iter().for_each(|o| live[o.value.index()] = true);
        let determined = self.determined();
        let mut sizes: HashSet<Symbol> = HashSet::new();
        let mut kept = Vec::with_capacity(self.order.len());
        for &id in self.order.iter().rev() {
            let node = &self.nodes[id];
            let own = determined.get(&id).is_some_and(|symbols| symbols.iter().any(|s| sizes.contains(s)));
            if own || node.outputs.iter().any(|v| live[v.index()]) {
                node.op.visit_operands(&mut |v| live[v.index()] = true);
                if !determined.is_empty() {
                    node.op.visit_dims(&mut |dim| sizes.extend(dim.symbols().cloned()));
                }
                node.outputs.iter().for_each(|v| live[v.index()] = true);
                kept.push(id);
            }
        }
        kept.reverse();
        (live, kept)
    }

    /// The sizes that operators determine, each at the first that has it.
    fn determined(&self) -> HashMap<NodeId, Vec<Symbol>> {
        let dims = self.inputs.iter().flat_map(|v| self.values[*v].ty.dims());
        let mut seen: HashSet<Symbol> = dims.flat_map(Dim::symbols).cloned().collect();
        let mut determined = HashMap::new();
        for &id in &self.order {
            let new: Vec<Symbol> =
                self.nodes[id].op.determined_symbols().filter(|s| seen.insert((*s).clone())).cloned().collect();
            if !new.is_empty() {
                determined.insert(id, new);
            }
        }
        determined
    }

    fn move_value(&mut self, value: Value) -> ValueId {
        let Value { name, given, ty, def, origin } = value;
        self.push_value(given.map_or(name, String::from), ty, def, origin)
    }
}
