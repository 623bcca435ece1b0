//! The times of nodes over several runs, and the modules that nodes belong to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use planish_compiler::source::modules::{Layers, Modules, NodeNames, of_name};
use planish_ir::cost::{Cost, Costs};
use planish_ir::{Graph, NodeId, Origin};
use planish_runtimes::{NodeRun, RunProfile};

use super::{NodeTime, TimeShare, mean};

/// Finds the modules of nodes by their names.
pub(super) struct Located<'a> {
    modules: &'a Modules,
    nodes: HashMap<&'a str, NodeId>,
    costs: HashMap<NodeId, Cost>,
}

impl<'a> Located<'a> {
    /// By the names of the results and of the nodes of the graph that a runtime loaded, whose nodes have these costs.
    pub(super) fn new(graph: &'a Graph, modules: &'a Modules, names: &'a NodeNames, costs: &Costs) -> Self {
        let mut nodes: HashMap<&str, NodeId> = HashMap::new();
        for (id, node) in graph.nodes() {
            for value in &node.outputs {
                let value = graph.value(*value);
                if let Origin::Node { name, .. } = &value.origin {
                    nodes.entry(name.as_ref()).or_insert(id);
                }
                nodes.entry(value.name.as_str()).or_insert(id);
            }
        }
        for (name, result) in &names.results {
            if let Some(&node) = nodes.get(result.as_str()) {
                nodes.entry(name).or_insert(node);
            }
        }
        Self { modules, nodes, costs: costs.nodes.iter().copied().collect() }
    }

    /// What a node of the runtime costs that has the name of one of the graph.
    fn cost(&self, name: &str) -> Option<(NodeId, Cost)> {
        let node = *self.nodes.get(name)?;
        Some((node, *self.costs.get(&node)?))
    }

    /// The module of a node of the runtime. A node that the runtime made has the name of one that it replaced with
    /// something after it, or a name of the runtime's own: then it belongs to the module of the node in front of it.
    fn module(&self, name: &str, before: &str) -> String {
        let ends = name.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>().into_iter().rev();
        let mut shorter = [name.len()].into_iter().chain(ends).filter_map(|end| name.get(..end));
        let known = shorter.find_map(|name| self.nodes.get(name));
        match known {
            Some(node) => self.modules.module(*node).to_owned(),
            None => of_name(name).unwrap_or_else(|| before.to_owned()),
        }
    }
}

/// The nodes of runs with the means of their times.
pub(super) struct NodeTimes {
    nodes: Vec<NodeTime>,
    layers: Layers,
}

impl NodeTimes {
    pub(super) fn of(runs: &[RunProfile], located: &Located<'_>) -> Self {
        let mut places: HashMap<(&str, usize), usize> = HashMap::new();
        // For each node the first run of it, and its own and its whole time in each run.
        let mut all: Vec<(&NodeRun, Vec<[Duration; 2]>)> = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            for node in &run.nodes {
                let place = *places.entry((&node.name, node.index)).or_insert_with(|| {
                    all.push((node, vec![[Duration::ZERO; 2]; runs.len()]));
                    all.len() - 1
                });
                // A node of a loop runs several times in a run.
                let [own, total] = &mut all[place].1[at];
                *own += node.own;
                *total += node.total;
            }
        }
        let mut before = String::new();
        // A runtime may compute a node in several steps: its cost stands at the first.
        let mut counted = HashSet::new();
        let one = |(node, times): (&NodeRun, Vec<[Duration; 2]>)| {
            let module = located.module(&node.name, &before);
            before.clone_from(&module);
            let [self_ms, total_ms] = [0, 1].map(|which| mean(&times.iter().map(|t| t[which]).collect::<Vec<_>>()));
            let NodeRun { name, operator, provider, .. } = node.clone();
            let cost = located.cost(&name).filter(|(id, _)| counted.insert(*id)).map(|(_, cost)| cost);
            let [flops, bytes] = [cost.map(|cost| cost.flops), cost.map(|cost| cost.bytes())];
            NodeTime { name, operator, provider, module, self_ms, total_ms, flops, bytes }
        };
        let nodes: Vec<NodeTime> = all.into_iter().map(one).collect();
        let layers = Layers::of(nodes.iter().map(|node| node.module.as_str()));
        Self { nodes, layers }
    }

    /// The nodes in the order in which they first start.
    pub(super) fn nodes(&self) -> &[NodeTime] {
        &self.nodes
    }

    /// The time of each layer, with its floating-point operations where they are known.
    pub(super) fn layers(&self, flops: &BTreeMap<String, u64>) -> Vec<TimeShare> {
        let mut layers = self.grouped(|node| self.layers.of_module(&node.module));
        for layer in &mut layers {
            let name = layer.name.clone();
            let own = sum(self.nodes.iter().filter(|node| node.module == name).map(|node| node.self_ms));
            // Of each node of a layer the own time counts: nodes inside it are nodes of a layer themselves.
            (layer.total_ms, layer.self_ms) = (layer.self_ms, own);
            (layer.flops, layer.bytes) = (flops.get(&name).copied().filter(|flops| *flops > 0), None);
        }
        layers
    }

    /// The time of each operator, the longest first.
    pub(super) fn operators(&self) -> Vec<TimeShare> {
        let mut operators = self.grouped(|node| &node.operator);
        operators.sort_by(|a, b| b.self_ms.total_cmp(&a.self_ms));
        operators
    }

    /// The sums of the times of nodes by name, in the order in which the names come first.
    fn grouped<'a>(&'a self, name: impl Fn(&'a NodeTime) -> &'a str) -> Vec<TimeShare> {
        let all = sum(self.nodes.iter().map(|node| node.self_ms));
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut shares: Vec<TimeShare> = Vec::new();
        for node in &self.nodes {
            let name = name(node);
            let place = *places.entry(name).or_insert_with(|| {
                shares.push(TimeShare { name: name.to_owned(), ..TimeShare::default() });
                shares.len() - 1
            });
            let share = &mut shares[place];
            share.nodes += 1;
            share.self_ms += node.self_ms;
            share.total_ms += node.total_ms;
            for (sum, own) in [(&mut share.flops, node.flops), (&mut share.bytes, node.bytes)] {
                if let Some(own) = own {
                    *sum = Some(sum.unwrap_or(0).saturating_add(own));
                }
            }
        }
        for share in &mut shares {
            share.share = share.self_ms / all.max(f64::MIN_POSITIVE);
        }
        shares
    }
}

/// The sum; of nothing 0, where `Iterator::sum` gives a negative zero.
pub(super) fn sum(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(0.0, |sum, time| sum + time)
}
