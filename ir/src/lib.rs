//! The graph that planish compiles: typed values in a static single assignment form, a closed set
//! of operators, symbolic shapes, lazy weights, a verifier and a text form.
//!
//! ```
//! use planish_ir::text;
//!
//! let graph = text::parse(
//!     r#"graph "doc" {
//!       input %x: f32[batch_size, 4]
//!       %y = relu(%x) : f32[batch_size, 4]
//!       output y = %y
//!     }"#,
//!     &text::no_files,
//! )?;
//! planish_ir::verify(&graph)?;
//! assert_eq!(text::parse(&graph.to_string(), &text::no_files)?.to_string(), graph.to_string());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod compact;
pub mod cost;
mod dim;
mod dtype;
mod graph;
pub mod handle;
pub mod interface;
mod named;
mod names;
pub mod ops;
mod origin;
mod rewrite;
mod round;
mod spelling;
pub mod text;
mod ty;
mod verify;
pub mod weight;

pub use attention::{AttentionChoice, AttentionForm, AttentionKernels, AttentionSizes, choose_attention};
pub use dim::{Bindings, Dim, Shape, Symbol, TensorType};
pub use dtype::DType;
pub use graph::{BuildError, Def, Graph, Node, Output, Value};
pub use handle::{NodeId, ValueId};
pub use interface::{InputRole, Interface, OutputRole, PartInterface, PartRole, SymbolRole};
pub use ops::Op;
pub use origin::Origin;
pub use rewrite::{Rewriter, Step};
pub use round::{bf16_from_f64, f16_from_f64};
pub use spelling::SpellingError;
pub use ty::Type;
pub use verify::{VerifyError, Violation, verify};
pub use weight::{Weight, WeightSource};
