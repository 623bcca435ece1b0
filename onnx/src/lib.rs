//! ONNX graphs into the IR and out of it.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod export;
pub mod files;
pub mod import;
pub mod interface;
mod merge;
pub mod proto;

pub use export::{
    ExportError, ExportOptions, Exported, INLINE_BYTES, NoForm, Placement, export, is_view, oldest_opset,
};
pub use import::{
    ImportError, ImportOptions, Imported, KnownOperand, PartError, PlaceError, Places, WeightFile, import, import_with,
    node_results, read_body, read_operator, weights_outside,
};
pub use merge::{MergeError, OutsideWeights, merge};

/// The opsets of the default domain that graphs can be written for.
pub const OPSETS: std::ops::RangeInclusive<u32> = 17..=28;

/// The opset that graphs are written for unless told otherwise.
pub const DEFAULT_OPSET: u32 = 20;

/// The bytes of weights above which they go into a file of their own unless told otherwise.
pub const EXTERNAL_BYTES: u64 = 1_500_000_000;
