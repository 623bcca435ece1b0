//! Tokenizers, and the ids of tokens with a meaning.

pub mod ctc;
pub mod document;
pub mod guard;
mod text;
mod tokens;

pub use text::{TOKENIZER, TextTokenizer};
pub(crate) use text::{beginning, growing, most_bytes};
pub use tokens::class_token;
pub use tokens::end_tokens;
pub use tokens::mask_token;
pub(crate) use tokens::padding_token;
pub use tokens::token;
