//! Tensor parallelism: a graph becomes one for each of several ranks, which run at the same time and exchange sums.
//!
//! [`plan`] says how a graph that has been raised is cut, and [`shard`] makes the graph of a rank. Both follow values through
//! the graph, whatever model it is of: a value is whole, the same on all ranks, or cut along an axis ([`Cut`]). Users of a
//! value say how they take it (wants.rs): attention by heads, a linear layer by the features that it takes. So the layers
//! before give each rank its outputs, the layer after takes them, and a sum of all ranks makes the result whole.

mod apart;
mod cut;
mod heads;
mod layers;
mod plan;
mod rank;
#[cfg(test)]
mod tests;
mod tokens;
mod wants;

use planish_ir::{BuildError, Graph, Node, Origin};

pub use cut::{Cut, Run};
pub use plan::{Plan, PlannedCollective, PlannedWeight};

/// A graph cannot be cut.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// A number of things that ranks have whole does not divide by the number of ranks.
    #[error("`{operator}` at `{name}` ({origin}) has {number} {what}, which {ranks} ranks cannot share{}", others(.what, *.number, *.ranks))]
    Indivisible {
        /// The operator.
        operator: &'static str,
        /// Its first result.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// What is counted, in words.
        what: &'static str,
        /// How many there are.
        number: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// A rank would have a part of a block of codes, whose scale is one for the block.
    #[error(
        "the codes of `{name}` ({origin}) have a scale for each block, and {ranks} ranks would cut blocks; take fewer ranks"
    )]
    Blocks {
        /// The weight.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// The number of ranks.
        ranks: usize,
    },
    /// A graph has a state of a fixed size.
    #[error(
        "`{operator}` at `{name}` ({origin}) has a state of a fixed size, for which graphs of ranks have no form; leave --tensor-parallel out"
    )]
    State {
        /// The operator.
        operator: &'static str,
        /// Its first result.
        name: String,
        /// Where it came from.
        origin: Origin,
    },
    /// The bytes of a weight cannot be divided without reading it.
    #[error("the weight `{name}` ({origin}) cannot be divided into parts for {ranks} ranks as it is stored")]
    Whole {
        /// Its name.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// The number of ranks.
        ranks: usize,
    },
    /// A graph has nothing that ranks could share.
    #[error("the graph `{graph}` has no linear layers or attention that {ranks} ranks can share")]
    Nothing {
        /// Its name.
        graph: String,
        /// The number of ranks.
        ranks: usize,
    },
    /// There are too few ranks.
    #[error("{0} ranks: tensor parallelism takes 2 or more")]
    Ranks(usize),
    /// A graph has collectives.
    #[error("`{0}` exchanges tensors between ranks already")]
    Collective(String),
    /// An operator does not fit its operands: a bug.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The numbers of ranks that would do.
fn others(what: &str, number: usize, ranks: usize) -> String {
    let divide = (2..=64).filter(|n| number.is_multiple_of(*n)).map(|n| n.to_string()).collect::<Vec<_>>();
    match divide.as_slice() {
        [] => String::new(),
        _ if what.contains("keys") && ranks > number => "; take a multiple of that, or fewer".to_owned(),
        numbers => format!("; take {}", numbers.join(", ")),
    }
}

/// That a node has a number of something that does not divide.
fn at(graph: &Graph, node: &Node, what: &'static str, number: usize, ranks: usize) -> ShardError {
    let value = graph.value(node.outputs[0]);
    let (name, origin) = (value.name.clone(), value.origin.clone());
    ShardError::Indivisible { operator: node.op.mnemonic(), name, origin, what, number, ranks }
}

/// How a graph that has been raised is cut for so many ranks. Nothing is read.
///
/// # Errors
/// When it cannot be cut, and why.
pub fn plan(graph: &Graph, ranks: usize) -> Result<Plan, ShardError> {
    Ok(rank::build(graph, ranks, 0)?.1)
}

/// The graph of a rank, and how all ranks are cut.
///
/// # Errors
/// As [`plan`].
pub fn shard(graph: &Graph, ranks: usize, rank: usize) -> Result<(Graph, Plan), ShardError> {
    rank::build(graph, ranks, rank)
}
