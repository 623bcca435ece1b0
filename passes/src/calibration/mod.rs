//! What calibration measured: the ranges of values, and the statistics of the inputs of linear layers.
//!
//! Everything here merges exactly: whichever way the data is divided, and in whatever order the parts are merged,
//! the result has the same bits.

mod clip;
mod columns;
mod entropy;
mod error;
mod experts;
mod gram;
mod histogram;
mod input;
mod method;
mod range;
mod rows;
mod table;
mod tokens;

pub use columns::{ColumnStatistics, LARGEST, RESOLUTION};
pub use error::StatisticsError;
pub use experts::ExpertUse;
pub use gram::Gram;
pub use histogram::{BINS, Histogram, HistogramParts};
pub use input::InputStatistics;
pub use method::{Grid, RangeMethod, UnknownMethod};
pub use range::Range;
pub use rows::{ROWS, RowId, SampledRow, SampledRows};
pub use table::CalibrationTable;
pub use tokens::TokenRows;

#[cfg(test)]
mod tests;
