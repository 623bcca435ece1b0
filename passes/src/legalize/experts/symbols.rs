//! Symbols for sizes that a run determines.

use std::collections::HashSet;

use planish_ir::{Dim, Graph, Symbol};

/// Makes symbols that a graph does not have.
pub(super) struct Symbols {
    taken: HashSet<Symbol>,
    count: usize,
}

impl Symbols {
    pub(super) fn new(graph: &Graph) -> Self {
        let dims =
            graph.values().flat_map(|(_, value)| value.ty.dims().flat_map(Dim::symbols).cloned().collect::<Vec<_>>());
        Self { taken: dims.collect(), count: 0 }
    }

    /// One that was not made before.
    pub(super) fn next(&mut self) -> Dim {
        loop {
            let name = format!("routed_{}", self.count);
            self.count += 1;
            if !self.taken.contains(name.as_str()) {
                return Dim::symbol(&name);
            }
        }
    }
}
