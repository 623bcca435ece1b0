//! Why a text is not the value that it was read as.

/// A text is not the value that it was read as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpellingError {
    /// There is no element type of this name.
    #[error("unknown element type `{0}`")]
    DType(String),
    /// It is not a type.
    #[error("`{0}` is not a type")]
    Type(String),
    /// It is none of the names of an enum.
    #[error("`{text}` is none of {}", names.join(", "))]
    Name {
        /// The text.
        text: String,
        /// The names.
        names: &'static [&'static str],
    },
    /// There is no packing of this name.
    #[error("`{0}` is not a packing")]
    Packing(String),
    /// A part of it is not written as it should be: what, and how.
    #[error("{0}")]
    Syntax(String),
}

impl From<String> for SpellingError {
    fn from(reason: String) -> Self {
        Self::Syntax(reason)
    }
}

impl From<SpellingError> for String {
    fn from(error: SpellingError) -> Self {
        error.to_string()
    }
}
