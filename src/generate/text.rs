//! Text to token ids and back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokenizers::{PostProcessor, Tokenizer, TruncationParams};

use super::guard::{Bounds, caught, watched};

/// The name of the tokenizer's file in an artifact or checkpoint.
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// What a tokenizer may take to be read. The largest published ones are read in some seconds and take some hundred
/// megabytes.
const READING: Bounds = Bounds { time: Duration::from_secs(120), memory: 4 << 30 };

/// What it may take for a text.
const TEXT: Bounds = Bounds { time: Duration::from_secs(60), memory: 1 << 30 };

/// An artifact's tokenizer.
pub struct TextTokenizer {
    tokenizer: Arc<Tokenizer>,
    path: String,
}

impl TextTokenizer {
    /// Reads `tokenizer.json` of an artifact. The padding and truncation that it says are left out, as the transformers
    /// library does unless it is asked for them: they are of the data that the tokenizer was made for.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn open(artifact: &Path) -> Result<Self> {
        let path = artifact.join(TOKENIZER);
        if !path.exists() {
            bail!("{} has no {TOKENIZER}, so text cannot become token ids; give those with --ids", artifact.display());
        }
        let name = path.display().to_string();
        let read = move || {
            let mut tokenizer = Tokenizer::from_file(&path).map_err(|e| anyhow!("{e}"))?;
            tokenizer.with_truncation(None).map_err(|e| anyhow!("{e}"))?;
            tokenizer.with_padding(None);
            Ok(Arc::new(tokenizer))
        };
        let tokenizer = watched("the tokenizer", READING, read).with_context(|| format!("cannot read {name}"))?;
        Ok(Self { tokenizer, path: name })
    }

    /// The same for texts of so many tokens at most: what is longer is cut at the end, special tokens
    /// stay.
    ///
    /// # Errors
    /// When special tokens leave no room.
    pub(crate) fn cut_to(mut self, length: usize) -> Result<Self> {
        let special = self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        if length <= special {
            bail!("{length} tokens leave no room for a text beside the {special} special ones of {}", self.path);
        }
        let truncation = TruncationParams { max_length: length, ..TruncationParams::default() };
        let tokenizer = Arc::make_mut(&mut self.tokenizer);
        tokenizer.with_truncation(Some(truncation)).map_err(|e| anyhow!("{}: {e}", self.path))?;
        Ok(self)
    }

    /// The ids of a text, with the special tokens that the tokenizer puts around it or, where
    /// `complete`, only with those in it.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str, complete: bool) -> Result<Vec<i64>> {
        let (tokenizer, text) = (Arc::clone(&self.tokenizer), text.to_owned());
        self.watched(move || {
            let encoding = tokenizer.encode(text, !complete).map_err(|e| anyhow!("{e}"))?;
            Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
        })
    }

    /// The text of ids, without special tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, ids: &[i64]) -> Result<String> {
        let ids = ids.iter().map(|id| u32::try_from(*id)).collect::<Result<Vec<_>, _>>()?;
        let tokenizer = Arc::clone(&self.tokenizer);
        self.watched(move || tokenizer.decode(&ids, true).map_err(|e| anyhow!("{e}")))
    }

    /// A function of one id after the other that returns what each adds to the text: nothing while
    /// a character is incomplete.
    pub fn stream(&self) -> impl FnMut(i64) -> Result<String> {
        let mut stream = self.tokenizer.decode_stream(true);
        move |id| {
            let id = u32::try_from(id)?;
            let piece = caught(|| stream.step(id).map_err(|e| anyhow!("{e}")));
            Ok(piece.with_context(|| format!("the tokenizer {} failed", self.path))?.unwrap_or_default())
        }
    }

    fn watched<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        watched(&format!("the tokenizer {}", self.path), TEXT, work)
    }
}
