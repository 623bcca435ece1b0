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
    /// Features within the feed-forward layer.
    pub(crate) intermediate: usize,
    /// Positions of the longest sequence.
    pub(crate) positions: usize,
}
