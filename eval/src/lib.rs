//! The reference interpreter: the oracle of tests, of constant folding and of verification.
//!
//! [`evaluate`] runs a graph, [`evaluate_with`] shows every value to a caller, [`evaluate_op`]
//! applies one operator. An [`Interpreter`] runs graphs with what a caller sets: [`Limits`], a [`Reader`] of what operators of
//! ONNX contain in its encoding, and a [`Communicator`] that collectives exchange tensors by. The operators' docs in `planish_ir::ops` are the specification; what they
//! leave open is said here:
//!
//! - **Floats** compute in `f64`, with transcendental functions from `libm`, and are rounded to
//!   nearest even once an operator: also where it is a sum, a softmax, a normalization or a whole
//!   attention.
//! - **Integers** are exact. A result out of range, a division by zero and a negative exponent are
//!   errors, as is an index out of range. Only `cast` drops bits, as ONNX says.
//! - **Not-a-number** passes through `relu`, `min`, `max` and `reduce_max`.
//!
//! Results are the same on any number of threads: sums have a fixed order. On processors with
//! other vector units, matrix products can differ in the last bit of the `f64` sum.
//!
//! Memory follows the largest tensors: a weight is read when a node first needs it, and each
//! tensor is freed after its last use. The size of a value is checked before it is computed: what does not fit
//! in memory, or is beyond the [`Limits`] of an [`Interpreter`], is an error.
//!
//! ```
//! use planish_eval::{Tensor, evaluate};
//! use planish_ir::text;
//!
//! let graph = text::parse(
//!     r#"graph "doc" {
//!       input %x: f32[batch_size, 2]
//!       weight @w = dense([1.0, 1.0, 2.0, 0.5]) : f32[2, 2]
//!       %y = linear(%x, @w) : f32[batch_size, 2]
//!       output y = %y
//!     }"#,
//!     &text::no_files,
//! )?;
//! let x = Tensor::new(vec![1, 2], vec![3f32, 4.0]).ok_or("2 elements")?;
//! let outputs = evaluate(&graph, &[("x", x)])?;
//! assert_eq!(outputs, [("y".to_owned(), Tensor::new(vec![1, 2], vec![7f32, 8.0]).ok_or("2 elements")?)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bind;
mod element;
mod error;
mod interpreter;
mod limits;
mod ops;
mod product;
mod ranks;
mod reader;
mod streamed;
mod strided;
mod tensor;

pub use bind::{bind, bind_types};
pub use error::EvalError;
pub use interpreter::{Interpreter, evaluate, evaluate_with};
pub use limits::Limits;
pub use ops::{Codes, Communicator, evaluate_op};
pub use reader::Reader;
pub use streamed::weight_times_vector;
pub use tensor::{Data, Tensor};
