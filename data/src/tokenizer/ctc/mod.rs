//! From frames to text by connectionist temporal classification (Graves et al. 2006): of the tokens of all frames those that repeat
//! the one before are one, and blanks are none.

mod frames;
mod vocabulary;

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow, bail};

pub use frames::{fewest_samples, frame_places, frame_samples, frame_seconds};

use super::TextTokenizer;
use super::tokens::padding_token;
use vocabulary::Vocabulary;

/// A text with the frames that it was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The text.
    pub text: String,
    /// Its characters or tokens in order, those between words too.
    pub characters: Vec<Timed>,
    /// Its words in order.
    pub words: Vec<Timed>,
}

/// A part of a text, and the frames that it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The part.
    pub text: String,
    /// Frames.
    pub frames: Range<usize>,
}

/// What makes texts of the tokens of frames.
pub struct CtcDecoder(Kind);

enum Kind {
    /// Characters, in vocab.json: `Wav2Vec2CTCTokenizer` of the transformers library.
    Characters(Vocabulary),
    /// Pieces of words, in tokenizer.json, and the id of the blank: `ParakeetTokenizer` of the transformers library.
    Pieces(TextTokenizer, i64),
}

impl CtcDecoder {
    /// Reads vocab.json, or tokenizer.json where there is no such file, of an artifact or checkpoint, with what is said of it beside
    /// it. `language` is one of a vocabulary of several; where it is absent, the one of tokenizer_config.json counts.
    ///
    /// # Errors
    /// When there is neither file, one cannot be read, or it has no such language.
    pub fn open(folder: &Path, language: Option<&str>) -> Result<Self> {
        if let Some(vocabulary) = Vocabulary::open(folder, language)? {
            return Ok(Self(Kind::Characters(vocabulary)));
        }
        if !folder.join(super::TOKENIZER).exists() {
            bail!(
                "{} has neither vocab.json nor {}, so frames cannot become text; copy these files from the checkpoint",
                folder.display(),
                super::TOKENIZER
            );
        }
        if let Some(language) = language {
            bail!("{} has no vocab.json, so there is no language {language} to choose", folder.display());
        }
        let tokenizer = TextTokenizer::open(folder)?;
        let Some(blank) = padding_token(&tokenizer, folder)? else {
            bail!("tokenizer_config.json of {} names no `pad_token`, which is the blank", folder.display())
        };
        Ok(Self(Kind::Pieces(tokenizer, blank)))
    }

    /// The text of the likeliest tokens of frames.
    ///
    /// # Errors
    /// When tokenizer.json makes no text of tokens.
    pub fn decode(&self, ids: &[i64]) -> Result<Decoded> {
        match &self.0 {
            Kind::Characters(vocabulary) => Ok(vocabulary.decode(ids)),
            Kind::Pieces(tokenizer, blank) => pieces(tokenizer, *blank, ids),
        }
    }
}

/// Neighbours that are the same as one, with their places.
fn runs<T: PartialEq + Copy>(tokens: &[T]) -> impl Iterator<Item = (T, Range<usize>)> {
    tokens.chunk_by(PartialEq::eq).scan(0, |end, run| {
        let start = *end;
        *end += run.len();
        Some((run[0], start..*end))
    })
}

/// What pieces of words begin with that begin a word.
const WORD: char = '\u{2581}';

fn pieces(tokenizer: &TextTokenizer, blank: i64, ids: &[i64]) -> Result<Decoded> {
    let kept: Vec<(i64, Range<usize>)> = runs(ids).filter(|(id, _)| *id != blank).collect();
    let ids: Vec<i64> = kept.iter().map(|(id, _)| *id).collect();
    let short = ids.into_iter().map(u32::try_from).collect::<Result<Vec<_>, _>>()?;
    let (text, tokens) = tokenizer.apply(move |tokenizer| {
        let text = tokenizer.decode(&short, false).map_err(|e| anyhow!("{e}"))?;
        let tokens = short.iter().map(|id| tokenizer.id_to_token(*id).unwrap_or_default());
        Ok((text, tokens.collect::<Vec<String>>()))
    })?;
    let characters: Vec<Timed> =
        tokens.into_iter().zip(&kept).map(|(text, (_, frames))| Timed { text, frames: frames.clone() }).collect();
    let mut words: Vec<Timed> = Vec::new();
    for piece in &characters {
        let bare = piece.text.trim_start_matches(WORD);
        match words.last_mut() {
            Some(word) if bare.len() == piece.text.len() => {
                word.text.push_str(bare);
                word.frames.end = piece.frames.end;
            }
            _ => words.push(Timed { text: bare.to_owned(), frames: piece.frames.clone() }),
        }
    }
    words.retain(|word| !word.text.is_empty());
    Ok(Decoded { text, characters, words })
}

/// The likeliest token of each frame: of scores [frames, tokens], of which the first `vocabulary` columns are tokens. The first
/// of several equal ones counts.
#[must_use]
pub fn likeliest_tokens(scores: &[f32], columns: usize, vocabulary: usize) -> Vec<i64> {
    let best = |row: &[f32]| {
        let tokens = row.iter().take(vocabulary).enumerate();
        let best =
            tokens.fold((0, f32::NEG_INFINITY), |best, (id, score)| if *score > best.1 { (id, *score) } else { best });
        i64::try_from(best.0).unwrap_or(i64::MAX)
    };
    scores.chunks_exact(columns.max(1)).map(best).collect()
}

#[cfg(test)]
mod tests;
