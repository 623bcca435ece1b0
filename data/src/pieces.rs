//! Texts as token ids: in one piece, or divided into several from the beginning to the end.

use std::borrow::Cow;

use anyhow::{Result, anyhow, bail};
use tokenizers::{EncodeInput, Encoding, PostProcessor, Tokenizer, TruncationDirection};

use super::texts::Text;
use crate::tokenizer::{TextTokenizer, beginning, growing, most_bytes};

/// The most bytes of a part of a document that is tokenized at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Where a token is in a text: its characters, from `start` on and before `end`. Of words they are those within the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which text of a pair: 0 or 1.
    pub sequence: usize,
    /// The first character.
    pub start: usize,
    /// The character after the last one.
    pub end: usize,
}

/// A text, or a part of one, as token ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Piece {
    pub(super) ids: Vec<i64>,
    /// 0 for the first text of a pair, 1 for the second one.
    pub(super) types: Vec<i64>,
    /// For each token the word that begins with it.
    pub(super) words: Vec<Option<usize>>,
    /// Where each token is in the text; nothing for tokens that the tokenizer puts around it.
    pub(super) spans: Vec<Option<Span>>,
    /// How many characters of the text the tokens up to each one are of.
    pub(super) ends: Vec<u64>,
    /// How many characters of each of the text's sequences the tokens are of.
    sequences: [u64; 2],
    /// The characters that the piece is of.
    pub(super) characters: u64,
    /// The characters of the text after the piece.
    pub(super) cut: u64,
}

impl Piece {
    /// Leaves the first tokens; returns the characters that are no longer there.
    pub(super) fn truncate(&mut self, tokens: usize) -> u64 {
        if tokens >= self.ids.len() {
            return 0;
        }
        self.ids.truncate(tokens);
        self.types.truncate(tokens);
        self.words.truncate(tokens);
        self.spans.truncate(tokens);
        self.ends.truncate(tokens);
        let kept = self.ends.last().copied().unwrap_or(0).min(self.characters);
        let gone = self.characters - kept;
        self.characters = kept;
        gone
    }
}

/// A text as one piece, of so many tokens at most; the tokenizer cuts at that length.
///
/// # Errors
/// When the tokenizer fails.
pub(super) fn piece(tokenizer: &TextTokenizer, text: &Text, longest: usize) -> Result<Piece> {
    let text = text.clone();
    tokenizer.apply(move |tokenizer| read(tokenizer, &text, longest))
}

/// Several texts, each with such a piece.
///
/// # Errors
/// When the tokenizer fails.
pub(super) fn all(tokenizer: &TextTokenizer, texts: Vec<Text>, longest: usize) -> Result<Vec<(Text, Piece)>> {
    tokenizer.apply_to_texts(move |tokenizer| {
        let with_piece = |text: Text| read(tokenizer, &text, longest).map(|piece| (text, piece));
        texts.into_iter().map(with_piece).collect()
    })
}

/// A text as one piece.
fn read(tokenizer: &Tokenizer, text: &Text, longest: usize) -> Result<Piece> {
    if tokenizer.get_truncation().is_some_and(|truncation| truncation.direction == TruncationDirection::Left) {
        return read_end(tokenizer, text, longest);
    }
    let all = text.characters();
    let mut is_bounded = false;
    let mut piece = growing(longest, bytes(text), |most| {
        let bounded = bounded(text, most);
        is_bounded = matches!(bounded, Cow::Owned(_));
        let input: EncodeInput<'_> = match &*bounded {
            Text::One(text) => text.as_str().into(),
            Text::Pair(first, second) => (&**first, second.as_str()).into(),
            Text::Words(words) => words.as_slice().into(),
        };
        let piece = of(&tokenizer.encode_char_offsets(input, true).map_err(|e| anyhow!("{e}"))?);
        let is_full = piece.ids.len() >= longest;
        Ok((piece, is_full))
    })?;
    // What the tokenizer drops at the end, such as spaces, was read too.
    let is_cut = is_bounded || piece.ids.len() >= longest && has_more(text, piece.sequences, &piece.words);
    piece.characters = match text {
        _ if !is_cut => all,
        // Places in words are those within each word.
        Text::Words(words) => {
            let read = piece.words.iter().flatten().max().map_or(0, |last| last + 1);
            words.iter().take(read).map(|word| word.chars().count() as u64).sum()
        }
        _ => piece.characters.min(all),
    };
    piece.cut = all - piece.characters;
    Ok(piece)
}

/// A text as one piece, for a tokenizer that cuts off the beginnings of texts.
fn read_end(tokenizer: &Tokenizer, text: &Text, longest: usize) -> Result<Piece> {
    let (bytes, most) = (bytes(text), most_bytes(longest));
    if bytes > most {
        bail!(
            "a text of {bytes} bytes is longer than the {most} that are read where the beginning of a text is cut off \
             (`truncation_side` of tokenizer_config.json); give the end of the text"
        );
    }
    let input: EncodeInput<'_> = match text {
        Text::One(text) => text.as_str().into(),
        Text::Pair(first, second) => (&**first, second.as_str()).into(),
        Text::Words(words) => words.as_slice().into(),
    };
    let mut piece = of(&tokenizer.encode_char_offsets(input, true).map_err(|e| anyhow!("{e}"))?);
    let all = text.characters();
    let before = |text: &str, sequence: usize| {
        let own = piece.spans.iter().flatten().filter(|span| span.sequence == sequence);
        let start = own.map(|span| span.start).min().unwrap_or(usize::MAX);
        // What the tokenizer drops at the beginning, such as spaces, was read too.
        let is_cut = text.chars().take(start).any(|c| !c.is_whitespace());
        if is_cut { text.chars().take(start).count() as u64 } else { 0 }
    };
    let cut = match text {
        _ if piece.ids.len() < longest => 0,
        Text::One(text) => before(text, 0),
        Text::Pair(first, second) => before(first, 0) + before(second, 1),
        Text::Words(words) => {
            let first = piece.words.iter().flatten().min().copied().unwrap_or(words.len());
            words.iter().take(first).map(|word| word.chars().count() as u64).sum()
        }
    };
    piece.cut = cut.min(all);
    piece.characters = all - piece.cut;
    Ok(piece)
}

/// Whether there is more of a text than spaces after so many characters of each of its sequences, or more words.
fn has_more(text: &Text, read: [u64; 2], words: &[Option<usize>]) -> bool {
    let more = |text: &str, read: u64| text.chars().skip(read as usize).any(|c| !c.is_whitespace());
    match text {
        Text::One(text) => more(text, read[0]),
        Text::Pair(first, second) => more(first, read[0]) || more(second, read[1]),
        Text::Words(all) => words.iter().flatten().max().is_none_or(|last| last + 1 < all.len()),
    }
}

/// The pieces of a part of a document, of so many tokens at most, for a tokenizer that cuts nothing.
///
/// # Errors
/// When the tokenizer fails.
pub(super) fn pieces(tokenizer: &TextTokenizer, chunk: String, longest: usize) -> Result<Vec<Piece>> {
    let all = chunk.chars().count() as u64;
    let mut pieces = tokenizer.apply(move |tokenizer| {
        let special = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let Some(room) = longest.checked_sub(special).filter(|room| *room > 0) else {
            bail!("{longest} tokens leave no room for a text beside the {special} special ones of the tokenizer");
        };
        let mut first = tokenizer.encode_char_offsets(chunk, false).map_err(|e| anyhow!("{e}"))?;
        first.truncate(room, 0, TruncationDirection::Right);
        let others = first.take_overflowing();
        let complete =
            |own: Encoding| tokenizer.post_process(own, None, true).map(|own| of(&own)).map_err(|e| anyhow!("{e}"));
        [first].into_iter().chain(others).map(complete).collect::<Result<Vec<Piece>>>()
    })?;
    let mut before = 0;
    let last = pieces.len().saturating_sub(1);
    for (at, piece) in pieces.iter_mut().enumerate() {
        let end = if at == last { all } else { piece.ends.last().copied().unwrap_or(before).clamp(before, all) };
        piece.characters = end - before;
        before = end;
    }
    Ok(pieces)
}

fn of(encoding: &Encoding) -> Piece {
    let sequences = encoding.get_sequence_ids();
    let (mut word, mut ends, mut total) = (None, [0; 2], Vec::with_capacity(encoding.len()));
    let (mut words, mut spans) = (Vec::with_capacity(encoding.len()), Vec::with_capacity(encoding.len()));
    for (at, own) in encoding.get_word_ids().iter().enumerate() {
        let sequence = sequences.get(at).copied().flatten();
        let own = sequence.and_then(|sequence| Some((sequence, (*own)?)));
        words.push(own.filter(|own| Some(*own) != word).map(|(_, word)| word as usize));
        word = own.or(word);
        let place = sequence.zip(encoding.get_offsets().get(at).copied());
        let span = place.map(|(sequence, (start, end))| Span { sequence: sequence.min(1), start, end });
        if let Some(span) = span {
            ends[span.sequence] = (span.end as u64).max(ends[span.sequence]);
        }
        spans.push(span);
        total.push(ends[0] + ends[1]);
    }
    let numbers = |numbers: &[u32]| numbers.iter().map(|number| i64::from(*number)).collect::<Vec<i64>>();
    Piece {
        ids: numbers(encoding.get_ids()),
        types: numbers(encoding.get_type_ids()),
        words,
        spans,
        sequences: ends,
        characters: total.last().copied().unwrap_or(0),
        ends: total,
        cut: 0,
    }
}

/// The bytes of the longest sequence of a text.
fn bytes(text: &Text) -> usize {
    match text {
        Text::One(text) => text.len(),
        Text::Pair(first, second) => first.len().max(second.len()),
        Text::Words(words) => words.iter().map(String::len).sum(),
    }
}

/// The beginning of a text: so many bytes of each of its sequences at most. A text that has no more is borrowed.
fn bounded(text: &Text, most: usize) -> Cow<'_, Text> {
    if bytes(text) <= most {
        return Cow::Borrowed(text);
    }
    Cow::Owned(match text {
        Text::One(text) => Text::One(beginning(text, most).to_owned()),
        Text::Pair(first, second) => Text::Pair(beginning(first, most).into(), beginning(second, most).to_owned()),
        Text::Words(words) => {
            let mut left = most;
            let fits = |word: &&String| {
                let fits = word.len() <= left;
                left = left.saturating_sub(word.len());
                fits
            };
            Text::Words(words.iter().take_while(fits).cloned().collect())
        }
    })
}

/// A document, of which one part after the other is tokenized.
pub(super) struct Document {
    text: String,
    at: usize,
}

impl Document {
    pub(super) fn new(text: String) -> Self {
        Self { text, at: 0 }
    }

    /// Whether no part was taken yet.
    pub(super) fn is_new(&self) -> bool {
        self.at == 0
    }

    /// The next part: it ends before a line where there is one, else before a space.
    pub(super) fn next_chunk(&mut self) -> Option<String> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = rest.floor_char_boundary(CHUNK_BYTES);
        let end = match end < rest.len() {
            true => {
                let head = &rest[..end];
                let place = head.rfind('\n').filter(|at| *at > 0).or_else(|| head.rfind(' ').filter(|at| *at > 0));
                place.unwrap_or(end)
            }
            false => end,
        };
        let chunk = rest[..end].to_owned();
        self.at += end;
        Some(chunk)
    }

    /// The characters of the parts that were not taken.
    pub(super) fn rest(&self) -> u64 {
        self.text.get(self.at..).unwrap_or_default().chars().count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_divided_between_lines_and_words() {
        let line = "word ".repeat(100) + "\n";
        let text = line.repeat(500);
        let mut document = Document::new(text.clone());
        let mut chunks = Vec::new();
        while let Some(chunk) = document.next_chunk() {
            chunks.push(chunk);
            let taken: usize = chunks.iter().map(String::len).sum();
            assert_eq!(document.rest(), (text.len() - taken) as u64);
        }
        assert_eq!(chunks.concat(), text);
        assert!(chunks.len() > 3 && chunks.iter().skip(1).all(|chunk| chunk.starts_with('\n')));
        // Without a line or a space the place is between two characters.
        let text = "\u{e9}".repeat(CHUNK_BYTES);
        let mut document = Document::new(format!("a{text}"));
        let chunks: Vec<String> = std::iter::from_fn(|| document.next_chunk()).collect();
        assert!(chunks.len() == 3 && chunks.concat().len() == 2 * CHUNK_BYTES + 1);
    }

    #[test]
    fn the_beginning_of_a_text_may_be_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let vocabulary: serde_json::Map<String, serde_json::Value> =
            (0..10).map(|id| (format!("w{id}"), id.into())).collect();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
        });
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let tokenizer = TextTokenizer::open(folder.path()).unwrap().cut_to(2, true).unwrap();
        let read = |text: &str| piece(&tokenizer, &Text::One(text.to_owned()), 2);
        let found = read("w1 w2  w3 w4").unwrap();
        assert_eq!((found.ids, found.cut, found.characters), (vec![3, 4], 7, 5));
        assert_eq!(read("w1 w2 ").unwrap().cut, 0);
        let words = Text::Words(["w1", "w2", "w3"].map(str::to_owned).to_vec());
        let found = piece(&tokenizer, &words, 2).unwrap();
        assert_eq!((found.ids, found.cut), (vec![2, 3], 2));
        let error = format!("{:#}", read(&"w1 ".repeat(400_000)).unwrap_err());
        assert!(error.contains("a text of 1200000 bytes is longer than the 1048576"), "{error}");
    }

    #[test]
    fn the_beginning_of_a_text_is_that_of_its_sequences() {
        let text = |of: &str| of.to_owned();
        assert_eq!(*bounded(&Text::One(text("one two three")), 9), Text::One(text("one two")));
        let pair = Text::Pair("one".into(), text("one two three"));
        assert_eq!((bytes(&pair), &*bounded(&pair, 9)), (13, &Text::Pair("one".into(), text("one two"))));
        let words = Text::Words(vec![text("one"), text("two"), text("three")]);
        assert_eq!((bytes(&words), &*bounded(&words, 7)), (11, &Text::Words(vec![text("one"), text("two")])));
        assert!(matches!(bounded(&words, 11), Cow::Borrowed(_)));
    }
}
