//! What the ranks of a graph have, and what they exchange.

use planish_ir::{Bindings, Dim, TensorType};

use super::cut::Cut;

/// How a graph is cut for ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of ranks.
    pub ranks: usize,
    /// The weights that the graph uses, in the order in which it first uses them. One that is used in two forms is here twice.
    pub weights: Vec<PlannedWeight>,
    /// The inputs and outputs of which each rank has a part, by name: keys and values of caches.
    pub caches: Vec<(String, Cut)>,
    /// What ranks exchange, in order.
    pub collectives: Vec<PlannedCollective>,
}

/// A weight on the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWeight {
    /// Its name in the graph.
    pub name: String,
    /// Where each rank has a part; absent where each has all of it.
    pub cut: Option<Cut>,
    /// Its bytes.
    pub bytes: u64,
    /// The most bytes of it that a rank has.
    pub rank_bytes: u64,
}

/// A collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCollective {
    /// The value that it gives, by the name in the graph of what it completes.
    pub name: String,
    /// Its operator: `all_reduce` or `all_gather`.
    pub operator: &'static str,
    /// What a rank gives.
    pub tensor: TensorType,
}

impl PlannedCollective {
    /// The bytes that a rank gives, with these sizes; `None` where one is missing.
    #[must_use]
    pub fn bytes(&self, sizes: &Bindings) -> Option<u64> {
        let elements: usize = self.tensor.shape.evaluate(sizes)?.iter().product();
        Some((elements as u64).saturating_mul(self.tensor.dtype.size() as u64))
    }
}

impl PlannedCollective {
    /// The bytes that a rank gives, by the symbols of the graph's inputs; `None` where they leave 64 bits.
    #[must_use]
    pub fn bytes_by_symbol(&self) -> Option<Dim> {
        let size = i64::try_from(self.tensor.dtype.size()).ok()?;
        self.tensor.shape.elements()?.checked_mul(&Dim::constant(size))
    }
}

impl Plan {
    /// The bytes of all weights.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.weights.iter().map(|weight| weight.bytes).sum()
    }

    /// The bytes of the weights of a rank, of the one that has most.
    #[must_use]
    pub fn rank_bytes(&self) -> u64 {
        self.weights.iter().map(|weight| weight.rank_bytes).sum()
    }

    /// The bytes that a rank gives to collectives in a run with these sizes; `None` where a size is missing.
    #[must_use]
    pub fn exchanged(&self, sizes: &Bindings) -> Option<u64> {
        self.collectives.iter().map(|collective| collective.bytes(sizes)).sum()
    }
}
