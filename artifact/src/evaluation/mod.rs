//! What a manifest says of an artifact's accuracy on data: the figures, their limits, and how much of the data was read.

mod coverage;
mod interval;
mod labels;
mod pooling;
mod report;
mod require;

pub use coverage::{Coverage, Left, Unit};
pub use interval::{Interval, Z};
pub use labels::{LabelFigure, LabelMetric, Scores};
pub use pooling::Pooling;
pub use report::{Embeddings, Evaluation, OutputFigures, Perplexity, Predictions};
pub use require::{Figure, LimitError, NoFigure, Requirements};
