//! The errors of the interpreter.

use planish_ir::weight::WeightError;
use planish_ir::{Origin, Symbol, TensorType};

use crate::Data;

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
        /// What messages call the operator: [`Op::kind`](planish_ir::Op::kind).
        op: String,
        /// Why.
        message: String,
    },
    /// The interpreter has no kernel for an operator, its operands or its settings, or cannot know a size that it needs.
    #[error("`{op}`: {message}")]
    Unsupported {
        /// What messages call the operator: [`Op::kind`](planish_ir::Op::kind).
        op: String,
        /// What is missing.
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

impl EvalError {
    /// Whether the graph has what the interpreter does not compute. If not, the graph or its inputs are wrong, or a
    /// limit was reached.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } => true,
            Self::Node { source, .. } => source.is_unsupported(),
            Self::InputType { ty, .. } => Data::of(ty.dtype).is_none(),
            Self::Weight { source, .. } => matches!(source, WeightError::Elements { .. }),
            Self::MissingInput { .. }
            | Self::UnknownInput { .. }
            | Self::RepeatedInput { .. }
            | Self::Symbol { .. }
            | Self::Memory { .. }
            | Self::Op { .. }
            | Self::Undefined { .. } => false,
        }
    }
}

/// Why an operator has no value.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The interpreter does not compute it.
    Unsupported(String),
    /// Its operands or settings are wrong, or a limit was reached.
    Invalid(String),
}

impl Failure {
    /// The error of an operator.
    pub(crate) fn at(self, op: &str) -> EvalError {
        let op = op.to_owned();
        match self {
            Self::Unsupported(message) => EvalError::Unsupported { op, message },
            Self::Invalid(message) => EvalError::Op { op, message },
        }
    }

    /// The failure of an operator whose graph failed; `place` says which graph.
    pub(crate) fn inside(error: &EvalError, place: &str) -> Self {
        let message = format!("{place}{error}");
        if error.is_unsupported() { Self::Unsupported(message) } else { Self::Invalid(message) }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Invalid(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::Invalid(message.to_owned())
    }
}
