//! How large a model is.

/// The numbers that set the size of a transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Tokens in the vocabulary.
    pub(crate) vocab: usize,
    /// Features of a token.
    pub(crate) hidden: usize,
    /// Layers.
    pub(crate) layers: usize,
    /// Heads of queries.
    pub(crate) heads: usize,
    /// Heads of keys and values.
    pub(crate) kv_heads: usize,
    /// Features of a head; a head's share of the features of a token where absent.
    pub(crate) head_size: Option<usize>,
    /// Features within the feed-forward layer, or within an expert.
    pub(crate) intermediate: usize,
    /// Positions of the longest sequence.
    pub(crate) positions: usize,
    /// The experts of a mixture; absent of a dense model.
    pub(crate) experts: Option<Experts>,
}

impl Size {
    /// Features of a head.
    pub(crate) fn head_size(&self) -> usize {
        self.head_size.unwrap_or(self.hidden / self.heads)
    }
}

/// The feed-forward layers of which each token takes some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Experts {
    /// How many there are.
    pub(crate) all: usize,
    /// How many a token takes.
    pub(crate) taken: usize,
}

impl Experts {
    /// A mixture of one.
    pub(crate) const ONE: Self = Self { all: 1, taken: 1 };
}
