//! Why statistics cannot be taken or merged.

use super::RowId;

/// Statistics of an input cannot be taken or merged.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// An element is NaN, infinite, or beyond [`LARGEST`](super::LARGEST).
    #[error("column {column} is {value} at token {} of sample {}", .at.token, .at.sample)]
    NotFinite {
        /// The element.
        value: f32,
        /// Its column.
        column: usize,
        /// Its row.
        at: RowId,
    },
    /// Statistics of inputs of another width.
    #[error("it has {found} columns instead of {expected}")]
    Columns {
        /// How many columns there are.
        expected: usize,
        /// How many the other has.
        found: usize,
    },
    /// Counts of a mixture of another number of experts.
    #[error("it has {found} experts instead of {expected}")]
    Experts {
        /// How many experts there are.
        expected: usize,
        /// How many the other has.
        found: usize,
    },
}
