//! Why a graph has no value.

use planish_ir::weight::WeightError;
use planish_ir::{Origin, Symbol, TensorType};

/// A graph or an operator cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// An input of the graph was not given.
    #[error("input `{name}` is missing; the graph takes {expected}")]
    MissingInput {
        /// Its name.
        name: String,
        /// The graph's inputs with their types.
        expected: String,
    },
    /// An input was given that the graph does not have.
    #[error("the graph has no input `{name}`; it takes {expected}")]
    UnknownInput {
        /// The name given.
        name: String,
        /// The graph's inputs with their types.
        expected: String,
    },
    /// An input was given twice.
    #[error("input `{name}` is given twice")]
    RepeatedInput {
        /// Its name.
        name: String,
    },
    /// An input has another element type, rank or size than the graph says.
    #[error("input `{name}` is {actual}, expected {ty}{why}; the graph takes {expected}")]
    InputType {
        /// Its name.
        name: String,
        /// The type of the tensor given.
        actual: Box<TensorType>,
        /// The type of the graph's input.
        ty: Box<TensorType>,
        /// Which dimension does not fit, where only one does not; else empty.
        why: String,
        /// The graph's inputs with their types.
        expected: String,
    },
    /// Two inputs disagree on what a symbol stands for.
    #[error("`{symbol}` is {first} by input `{first_input}` and {second} by input `{second_input}`")]
    Symbol {
        /// The symbol.
        symbol: Symbol,
        /// Its size by one input.
        first: i64,
        /// That input.
        first_input: String,
        /// Its size by the other.
        second: i64,
        /// The other input.
        second_input: String,
    },
    /// A weight cannot be read.
    #[error("weight `{name}` ({origin}): {source}")]
    Weight {
        /// The value's name.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// What went wrong.
        source: WeightError,
    },
    /// A weight takes more memory than there is.
    #[error("weight `{name}` ({origin}): {message}")]
    Memory {
        /// The value's name.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// How many bytes it takes, and how many there are.
        message: String,
    },
    /// An operator cannot be computed.
    #[error("`{op}`: {message}")]
    Op {
        /// The operator's name in the text form.
        op: &'static str,
        /// Why.
        message: String,
    },
    /// A node cannot be computed.
    #[error("at `{name}` ({origin}): {source}")]
    Node {
        /// The name of the node's first result.
        name: String,
        /// Where the node came from.
        origin: Origin,
        /// Why.
        source: Box<EvalError>,
    },
    /// A value is used before anything defines it: the graph does not pass the verifier.
    #[error("`{name}` ({origin}) is used before it is defined; verify the graph")]
    Undefined {
        /// The value's name.
        name: String,
        /// Where it came from.
        origin: Origin,
    },
}
