//! Texts that a model compares every picture with, as inputs of its runs.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Result, ensure};
use planish_artifact::chain::Chain;
use planish_eval::Tensor;

use crate::pieces::Piece;
use crate::texts::Text;
use crate::tokens::Tokens;
use crate::{DataOptions, TextModel};

/// How texts that are compared with pictures become token ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComparedTexts {
    /// The most tokens of a text; as many as the model takes where absent.
    pub max_length: Option<NonZeroUsize>,
    /// The number of tokens that every text is filled up to, where the model reads padding; not more than it takes.
    pub filled_to: Option<usize>,
}

impl ComparedTexts {
    /// Texts as inputs, a row each; `folder` has the tokenizer.
    ///
    /// # Errors
    /// When the model takes no texts, the tokenizer is missing or fails, or a text has no token.
    pub fn inputs(
        &self,
        texts: Vec<String>,
        chain: &Chain<'_>,
        model: TextModel,
        folder: &Path,
    ) -> Result<Vec<(String, Tensor)>> {
        let options = DataOptions { max_length: self.max_length, reads_all: true, ..DataOptions::default() };
        let tokens = Tokens::new(&chain.inputs(), model, folder, &options)?;
        let tokens = match self.filled_to {
            Some(width) => tokens.filled_to(width, folder)?,
            None => tokens,
        };
        let read = tokens.all(texts.into_iter().map(Text::One).collect())?;
        for (text, piece) in &read {
            if let Text::One(text) = text {
                ensure!(!piece.ids.is_empty(), "the tokenizer of {} makes no token of \"{text}\"", folder.display());
            }
        }
        let pieces: Vec<(usize, &Piece)> =
            read.iter().map(|(_, piece)| piece).enumerate().map(|(at, piece)| (at + 1, piece)).collect();
        Ok(tokens.inputs(&pieces)?.inputs)
    }
}
