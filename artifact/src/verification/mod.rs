//! What a manifest says of the comparison of an artifact with its source: the report, the tolerances, the form of logits.

mod logits;
mod report;
mod tolerances;

pub use logits::{FillerError, LogitsForm, of_tokens};
pub use report::{CaseReport, Figures, OutputReport, ReferenceKind, Report, Skipped};
pub use tolerances::{Basis, Tolerances, has_4_bits, has_blocks, is_quantized, of_codes};
