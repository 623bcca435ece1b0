//! Text to token ids and back.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use tokenizers::{PostProcessor, Tokenizer, TruncationParams};

/// The name of the tokenizer's file in an artifact or checkpoint.
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// An artifact's tokenizer.
pub struct Text {
    tokenizer: Tokenizer,
    path: String,
}

impl Text {
    /// Reads `tokenizer.json` of an artifact.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn open(artifact: &Path) -> Result<Self> {
        let path = artifact.join(TOKENIZER);
        if !path.exists() {
            bail!("{} has no {TOKENIZER}, so text cannot become token ids; give those with --ids", artifact.display());
        }
        let tokenizer = Tokenizer::from_file(&path).map_err(|e| anyhow!("cannot read {}: {e}", path.display()))?;
        Ok(Self { tokenizer, path: path.display().to_string() })
    }

    /// The same for texts of so many tokens at most: what is longer is cut at the end, special tokens
    /// stay, and nothing is padded, whatever `tokenizer.json` says.
    ///
    /// # Errors
    /// When special tokens leave no room.
    pub(crate) fn cut_to(mut self, length: usize) -> Result<Self> {
        let special = self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        if length <= special {
            bail!("{length} tokens leave no room for a text beside the {special} special ones of {}", self.path);
        }
        let truncation = TruncationParams { max_length: length, ..TruncationParams::default() };
        self.tokenizer.with_truncation(Some(truncation)).map_err(|e| anyhow!("{}: {e}", self.path))?;
        self.tokenizer.with_padding(None);
        Ok(self)
    }

    /// The ids of a text, with the special tokens that the tokenizer puts around it or, where
    /// `complete`, only with those in it.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str, complete: bool) -> Result<Vec<i64>> {
        let encoding = self.tokenizer.encode(text, !complete).map_err(|e| self.failed(&e))?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }

    /// The text of ids, without special tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, ids: &[i64]) -> Result<String> {
        let ids = ids.iter().map(|id| u32::try_from(*id)).collect::<Result<Vec<_>, _>>()?;
        self.tokenizer.decode(&ids, true).map_err(|e| self.failed(&e))
    }

    /// A function of one id after the other that returns what each adds to the text: nothing while
    /// a character is incomplete.
    pub fn stream(&self) -> impl FnMut(i64) -> Result<String> {
        let mut stream = self.tokenizer.decode_stream(true);
        move |id| {
            let piece = stream.step(u32::try_from(id)?).map_err(|e| self.failed(&e))?;
            Ok(piece.unwrap_or_default())
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        anyhow!("the tokenizer {} failed: {error}", self.path)
    }
}
