//! The text form: what `--debug print=PASS` shows and filetests are written in. It round-trips.
//!
//! ```text
//! graph "name" {
//!   input %ids: i64[batch_size, 8]
//!   weight @table = stored("model.safetensors", 64) : f32[100, 16]
//!   %x = embedding(@table, %ids) : f32[batch_size, 8, 16]
//!   output last_hidden_state = %x
//! }
//! ```
//!
//! A statement a line; lines that begin with `//` are comments. [`grammar`] has the rest.

mod forms;
mod grammar;
mod parse;
mod print;
pub(crate) mod syntax;

use std::sync::Arc;

pub use forms::Form;
pub use grammar::grammar;
pub use parse::{Files, NoFile, ParseError, parse};

use crate::{SpellingError, WeightSource};

/// Resolves no file name: for texts without stored weights.
///
/// # Errors
/// Always.
pub fn no_files(name: &str) -> Result<Arc<dyn WeightSource>, NoFile> {
    Err(NoFile(format!("the file `{name}` was not given")))
}

impl std::str::FromStr for crate::Dim {
    type Err = SpellingError;
    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, SpellingError> {
        Ok(syntax::dim(text)?)
    }
}
