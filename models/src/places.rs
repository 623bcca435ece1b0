//! How the prompts of models that see write images.

use serde::{Deserialize, Serialize};

/// What stands for images in a prompt, as processors of the transformers library put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlaces {
    /// The id of the token that stands for a place of an image, whose vector takes that of the token.
    pub token: i64,
    /// What is written for an image.
    #[serde(flatten)]
    pub form: PlacesForm,
}

/// What is written for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "kebab-case")]
pub enum PlacesForm {
    /// As many tokens as there are places.
    Plain,
    /// The same between tokens that begin and end it, and line breaks around these. Tokens of an image see each other.
    Framed {
        /// The id of the token that begins an image.
        begin: i64,
        /// The id of the token that ends it.
        end: i64,
    },
    /// Rows of tiles, and then the whole image, each after a token that says which.
    Tiles,
    /// All images, then the token that begins texts, the text and a line break. Tokens of a prompt see each other.
    First,
    /// As many tokens as there are squares of patches. Positions have three coordinates: frame, row and column of an image.
    Grid {
        /// The side of a square in patches.
        merge: usize,
    },
}
