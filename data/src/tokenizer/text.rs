//! Text to token ids and back.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use planish_files::Kind;
use tokenizers::normalizers::{Lowercase, Sequence};
use tokenizers::{
    DecodeStreamError, NormalizerWrapper, PostProcessor, PostProcessorWrapper, Tokenizer, TruncationDirection,
    TruncationParams,
};

use super::guard::{Bounds, caught, watched};

/// The name of the tokenizer's file in an artifact or checkpoint.
pub const TOKENIZER: &str = "tokenizer.json";

/// What a tokenizer may take to be read. The largest published ones are read in some seconds and take some hundred
/// megabytes.
const READING: Bounds = Bounds { time: Duration::from_secs(120), memory: 4 << 30 };

/// What it may take for a text.
const TEXT: Bounds = Bounds { time: Duration::from_secs(60), memory: 1 << 30 };

/// What it may take for several short texts, while a model may run in another thread and take memory too.
const TEXTS: Bounds = Bounds { time: Duration::from_secs(60), memory: 8 << 30 };

/// Of a text that is cut to a number of tokens, so many bytes a token are read first, and more while they give fewer tokens.
const BYTES_A_TOKEN: usize = 8;

/// The fewest bytes of a text that are read first.
const FIRST_BYTES: usize = 4096;

/// The most bytes of such a text that are read, for a token and for a text. A tokenizer takes up to 300 times the memory of a
/// text, and a text of which so many bytes are one token is no text.
const MOST_BYTES_A_TOKEN: usize = 64;
const MOST_BYTES: usize = 1 << 20;

/// An artifact's tokenizer.
pub struct TextTokenizer {
    tokenizer: Arc<Tokenizer>,
    path: String,
    /// How many tokens a text is cut to.
    longest: Option<usize>,
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
            let content = planish_files::read(&path, &Kind::TOKENIZER)?;
            let mut tokenizer = Tokenizer::from_bytes(content).map_err(|e| anyhow!("{e}"))?;
            tokenizer.with_truncation(None).map_err(|e| anyhow!("{e}"))?;
            tokenizer.with_padding(None);
            Ok(Arc::new(tokenizer))
        };
        let tokenizer = watched("the tokenizer", READING, read).with_context(|| format!("cannot read {name}"))?;
        Ok(Self { tokenizer, path: name, longest: None })
    }

    /// The same for texts of so many tokens at most: what is longer loses its end, or its beginning if `cuts_left`; special
    /// tokens stay.
    ///
    /// # Errors
    /// When special tokens leave no room.
    pub(crate) fn cut_to(mut self, length: usize, cuts_left: bool) -> Result<Self> {
        let special = self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        if length <= special {
            bail!("{length} tokens leave no room for a text beside the {special} special ones of {}", self.path);
        }
        let direction = if cuts_left { TruncationDirection::Left } else { TruncationDirection::Right };
        let truncation = TruncationParams { max_length: length, direction, ..TruncationParams::default() };
        let tokenizer = Arc::make_mut(&mut self.tokenizer);
        tokenizer.with_truncation(Some(truncation)).map_err(|e| anyhow!("{}: {e}", self.path))?;
        self.longest = Some(length);
        Ok(self)
    }

    /// The same without the special tokens that it puts around a text.
    pub(crate) fn bare(mut self) -> Self {
        Arc::make_mut(&mut self.tokenizer).with_post_processor(None::<PostProcessorWrapper>);
        self
    }

    /// The same that reads texts in lower case, but for tokens of its own that are found before texts are normalized, such as
    /// `[MASK]`: a normalizer before its others, as `Transformer` of the sentence-transformers library has it.
    ///
    /// # Errors
    /// When the tokenizer cannot have it.
    pub(crate) fn lower_cased(mut self) -> Result<Self> {
        let own = match self.tokenizer.get_normalizer() {
            None => Vec::new(),
            Some(NormalizerWrapper::Sequence(all)) => all.as_ref().to_vec(),
            Some(one) => vec![one.clone()],
        };
        if own.iter().any(|one| matches!(one, NormalizerWrapper::Lowercase(_))) {
            return Ok(self);
        }
        let all = [Lowercase.into()].into_iter().chain(own).collect();
        let tokenizer = Arc::make_mut(&mut self.tokenizer);
        tokenizer.with_normalizer(Some(Sequence::new(all))).map_err(|e| anyhow!("{}: {e}", self.path))?;
        Ok(self)
    }

    /// The ids of a text, with the special tokens that the tokenizer puts around it or, where
    /// `complete`, only with those in it.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str, complete: bool) -> Result<Vec<i64>> {
        let cuts_left = |of: &TruncationParams| of.direction == TruncationDirection::Left;
        let Some(longest) = self.longest.filter(|_| !self.tokenizer.get_truncation().is_some_and(cuts_left)) else {
            return self.encode_piece(text, complete).map(|(ids, _)| ids);
        };
        growing(longest, text.len(), |bytes| self.encode_piece(beginning(text, bytes), complete))
    }

    /// The ids of a text, and whether there were more of them.
    fn encode_piece(&self, text: &str, complete: bool) -> Result<(Vec<i64>, bool)> {
        let (tokenizer, text) = (Arc::clone(&self.tokenizer), text.to_owned());
        self.watched(move || {
            let encoding = tokenizer.encode(text, !complete).map_err(|e| anyhow!("{e}"))?;
            let is_cut = !encoding.get_overflowing().is_empty();
            Ok((encoding.get_ids().iter().map(|id| i64::from(*id)).collect(), is_cut))
        })
    }

    /// What some work makes of the tokenizer, within the bounds of a text.
    ///
    /// # Errors
    /// When the work fails, panics, or takes more than it may.
    pub(crate) fn apply<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tokenizer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tokenizer = Arc::clone(&self.tokenizer);
        self.watched(move || work(&tokenizer))
    }

    /// The same within the bounds of several texts.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) fn apply_to_texts<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tokenizer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tokenizer = Arc::clone(&self.tokenizer);
        watched(&format!("the tokenizer {}", self.path), TEXTS, move || work(&tokenizer))
    }

    /// The text of each of some ids alone; the token itself where its text is empty.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn each(&self, ids: Vec<u32>) -> Result<Vec<String>> {
        self.apply(move |tokenizer| {
            let text = |id: &u32| {
                let text = tokenizer.decode(&[*id], false).map_err(|e| anyhow!("{e}"))?;
                Ok(if text.is_empty() { tokenizer.id_to_token(*id).unwrap_or_default() } else { text })
            };
            ids.iter().map(text).collect()
        })
    }

    /// The id of a token; `None` where there is none of that text.
    pub fn id(&self, token: &str) -> Option<i64> {
        self.tokenizer.token_to_id(token).map(i64::from)
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

    /// The text of ids with special tokens, and those tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode_whole(&self, ids: &[i64]) -> Result<(String, Vec<String>)> {
        let ids = ids.iter().map(|id| u32::try_from(*id)).collect::<Result<Vec<_>, _>>()?;
        self.apply(move |tokenizer| {
            let text = tokenizer.decode(&ids, false).map_err(|e| anyhow!("{e}"))?;
            let added = tokenizer.get_added_tokens_decoder().into_values();
            Ok((text, added.filter(|token| token.special).map(|token| token.content).collect()))
        })
    }

    /// The ids of special tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn special_ids(&self) -> Result<BTreeSet<i64>> {
        self.apply(|tokenizer| {
            let added = tokenizer.get_added_tokens_decoder().into_iter();
            Ok(added.filter(|(_, token)| token.special).map(|(id, _)| i64::from(id)).collect())
        })
    }

    /// A function of one id after the other that returns what each adds to the text: nothing while
    /// a character is incomplete. Bytes that are no UTF-8 become replacement characters.
    pub fn stream(&self) -> impl FnMut(i64) -> Result<String> {
        let mut stream = self.tokenizer.decode_stream(true);
        move |id| {
            let id = u32::try_from(id)?;
            let piece = caught(|| match stream.step(id) {
                // Bytes that are no UTF-8 change how those before them are decoded, whose text is given out already.
                Err(e) if e.is::<DecodeStreamError>() => {
                    stream = self.tokenizer.decode_stream(true);
                    let piece = stream.step(id).map_err(|e| anyhow!("{e}"))?;
                    Ok(Some(format!("{}{}", char::REPLACEMENT_CHARACTER, piece.unwrap_or_default())))
                }
                piece => piece.map_err(|e| anyhow!("{e}")),
            });
            Ok(piece.with_context(|| format!("the tokenizer {} failed", self.path))?.unwrap_or_default())
        }
    }

    fn watched<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        watched(&format!("the tokenizer {}", self.path), TEXT, work)
    }
}

/// What `read` makes of so many bytes of a text of `all` bytes, which is cut to `longest` tokens; it says whether these are there.
/// The first call is for few bytes, and others for more follow while there are fewer tokens.
pub(crate) fn growing<T>(longest: usize, all: usize, mut read: impl FnMut(usize) -> Result<(T, bool)>) -> Result<T> {
    let most = most_bytes(longest);
    let mut bytes = longest.saturating_mul(BYTES_A_TOKEN).max(FIRST_BYTES);
    loop {
        bytes = bytes.min(most);
        let (made, is_full) = read(bytes)?;
        if is_full || bytes >= all || bytes == most {
            return Ok(made);
        }
        bytes = bytes.saturating_mul(4);
    }
}

/// The most bytes that are read of a text that is cut to so many tokens.
pub(crate) fn most_bytes(longest: usize) -> usize {
    longest.saturating_mul(MOST_BYTES_A_TOKEN).max(MOST_BYTES)
}

/// So many bytes of a text at most. They end before a blank where there is one in their second half, so that no word is cut.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let piece = &text[..text.floor_char_boundary(bytes)];
    let follows_a_word = |at: usize| piece[..at].chars().next_back().is_some_and(|before| !before.is_whitespace());
    let mut ends = piece.char_indices().rev().take_while(|(at, _)| *at >= bytes / 2);
    ends.find(|(at, c)| c.is_whitespace() && follows_a_word(*at)).map_or(piece, |(at, _)| &piece[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_end_before_blanks() {
        assert_eq!(beginning("one two", 7), "one two");
        assert_eq!(beginning("one two three", 9), "one two");
        assert_eq!(beginning("one two   three", 9), "one two");
        assert_eq!(beginning("a 4567890123", 9), "a 4567890", "the only blank is far from the end");
        assert_eq!(beginning("\u{e4}\u{e4}\u{e4}", 3), "\u{e4}");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_in_a_stream() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "WordLevel", "vocab": {"a": 0, "<0x37>": 1, "<0xFF>": 2}, "unk_token": "a"},
        });
        std::fs::write(folder.path().join(TOKENIZER), tokenizer.to_string()).unwrap();
        let tokenizer = TextTokenizer::open(folder.path()).unwrap();
        let mut step = tokenizer.stream();
        assert_eq!([1, 2, 0, 0].map(|id| step(id).unwrap()), ["7", "", "\u{fffd}a", "a"]);
    }

    #[test]
    fn tokens_found_before_texts_are_normalized_keep_their_case() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": {"type": "NFC"},
            "added_tokens": [{"id": 2, "content": "[MASK]", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}],
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a\u{3c3}": 1, "[MASK]": 2}, "unk_token": "[UNK]"},
        });
        std::fs::write(folder.path().join(TOKENIZER), tokenizer.to_string()).unwrap();
        let lower = TextTokenizer::open(folder.path()).unwrap().lower_cased().unwrap();
        // A sigma at the end of a word becomes the letter that stands elsewhere.
        assert_eq!(lower.encode("A\u{3a3} [MASK]", true).unwrap(), [1, 2]);
    }

    #[test]
    fn a_text_is_cut_as_if_all_of_it_were_read() {
        let folder = tempfile::tempdir().unwrap();
        let vocabulary: serde_json::Map<String, serde_json::Value> =
            (0..10).map(|id| (format!("w{id}"), id.into())).collect();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
        });
        std::fs::write(folder.path().join(TOKENIZER), tokenizer.to_string()).unwrap();
        let whole = TextTokenizer::open(folder.path()).unwrap();
        let cut = TextTokenizer::open(folder.path()).unwrap().cut_to(7, false).unwrap();
        let words = |separator: &str, count: usize| -> String {
            (0..count).map(|word| format!("w{}{separator}", word % 10)).collect()
        };
        // Blanks of 3,000 bytes between words: what is read first has too few.
        for text in [words(" ", 5), words(" ", 100_000), words(&" ".repeat(3_000), 20), "w1".to_owned(), String::new()]
        {
            let expected: Vec<i64> = whole.encode(&text, true).unwrap().into_iter().take(7).collect();
            assert_eq!(cut.encode(&text, true).unwrap(), expected);
        }
        // A word of many megabytes is looked at up to a limit.
        assert_eq!(cut.encode(&"x".repeat(20 << 20), true).unwrap(), [0]);
    }
}
