//! Texts in the order of their file, some thousand at a time. Within such a chunk texts of about the same length are batches, so
//! that there is little padding. No more than a chunk is in memory.

use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use planish_artifact::chain::Chain;
use planish_eval::Tensor;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{Chunk, KeptText, ReadSample, SampleBatch};
use crate::fixed_batch;
use crate::pieces::Piece;
use crate::texts::{Sample, Text, TextFile};
use crate::tokenizer::TextTokenizer;
use crate::tokens::{Encoded, Tokens};

/// The bytes of texts after which no other text is added to a chunk.
const BYTES: usize = 4 << 20;

/// A batch of so many tokens ends where the next text is shorter than this share of its longest one: it would be padding.
const FULL_TOKENS: usize = 1024;
const SHORT: (usize, usize) = (3, 4);

/// The most texts that a call of the tokenizer reads, and the bytes after which no other text is added.
const CALL_TEXTS: usize = 64;
const CALL_BYTES: usize = 256 << 10;

/// How texts become batches.
#[derive(Clone, Debug)]
pub struct ChunkOptions {
    /// The most tokens of a batch, padding included. A text that is longer is a batch of its own.
    pub batch_tokens: NonZeroUsize,
    /// The most texts of a chunk.
    pub texts: NonZeroUsize,
    /// What is put in front of each text, or of the first one of each pair.
    pub prompt: String,
    /// Whether a pair or a list of words is an error: an embedding is of one text.
    pub is_of_one: bool,
    /// Whether the texts are kept, with the ids and the places of their tokens.
    pub keeps_texts: bool,
    /// Whether pictures run one by one: what is predicted of each pixel takes memory.
    pub one_picture: bool,
    /// Inputs of every run besides what pictures become.
    pub beside: Vec<(String, Tensor)>,
    /// How many threads tokenize.
    pub threads: NonZeroUsize,
}

/// What makes chunks of texts.
pub(super) struct TextChunks<'a> {
    file: &'a TextFile,
    tokens: Tokens,
    chain: &'a Chain<'a>,
    longest: Option<usize>,
    shape: BatchShape,
    options: ChunkOptions,
    pool: ThreadPool,
}

/// How large batches are.
#[derive(Clone, Copy, Debug)]
struct BatchShape {
    /// The most tokens.
    tokens: usize,
    /// The number of rows, where the model fixes it.
    rows: Option<usize>,
    /// The number of columns, where the model fixes it.
    width: Option<usize>,
    /// Whether texts of different lengths can be padded.
    pads: bool,
}

impl BatchShape {
    /// Which texts, by the numbers of their tokens, are in which batch, the longest first; texts of one length stay in order.
    fn plan(self, lengths: &[usize]) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(lengths[*at]));
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for at in order {
            let fits = |batch: &&mut Vec<usize>| {
                let longest = batch.first().map_or(0, |first| lengths[*first]);
                let rows = batch.len() + 1;
                let is_small = match self.rows {
                    Some(fixed) => rows <= fixed,
                    None => {
                        let width = self.width.unwrap_or(longest.max(1));
                        let is_short = self.width.is_none() && lengths[at] * SHORT.1 < longest * SHORT.0;
                        rows * width <= self.tokens && !(is_short && batch.len() * width >= FULL_TOKENS)
                    }
                };
                is_small && (self.pads || lengths[at] == longest)
            };
            match batches.last_mut().filter(fits) {
                Some(batch) => batch.push(at),
                None => batches.push(vec![at]),
            }
        }
        batches
    }
}

impl<'a> TextChunks<'a> {
    pub(super) fn new(
        file: &'a TextFile,
        chain: &'a Chain<'a>,
        (tokens, longest): (Tokens, Option<usize>),
        own: ChunkOptions,
    ) -> Result<Self> {
        let shape = BatchShape {
            tokens: own.batch_tokens.get(),
            rows: fixed_batch(&chain.inputs()),
            width: tokens.width(),
            pads: tokens.masked(),
        };
        let pool = ThreadPoolBuilder::new().num_threads(own.threads.get()).build();
        let pool = pool.context("cannot start the threads of the tokenizer")?;
        Ok(Self { file, tokens, chain, longest, shape, options: own, pool })
    }
}

impl TextChunks<'_> {
    /// The most tokens of a text.
    pub(super) fn longest(&self) -> usize {
        self.tokens.longest()
    }

    /// What texts are tokenized with.
    pub(super) fn tokenizer(&self) -> &TextTokenizer {
        self.tokens.tokenizer()
    }

    /// Whether padding comes before the tokens.
    pub(super) fn is_left(&self) -> bool {
        self.tokens.is_left()
    }

    /// Reads the file from its beginning and passes each chunk to `take`, until that says that it takes no more.
    ///
    /// # Errors
    /// When the file has a bad record or no text, or the tokenizer fails.
    pub(super) fn read(&self, take: &mut dyn FnMut(Chunk) -> bool) -> Result<()> {
        let mut texts = self.file.texts()?;
        let mut first = 0;
        loop {
            let (mut samples, mut bytes) = (Vec::new(), 0);
            while samples.len() < self.options.texts.get() && bytes < BYTES {
                let Some(sample) = texts.next().transpose()? else { break };
                bytes += sample.text.bytes();
                samples.push(sample);
            }
            if samples.is_empty() {
                return Ok(());
            }
            let count = samples.len();
            let chunk = self.chunk(first, samples);
            let place =
                || format!("cannot run on {}, samples {} to {}", self.file.path.display(), first + 1, first + count);
            if !take(chunk.with_context(place)?) {
                return Ok(());
            }
            first += count;
        }
    }

    fn chunk(&self, first: usize, mut samples: Vec<Sample>) -> Result<Chunk> {
        for (at, sample) in samples.iter_mut().enumerate() {
            let Self { options: ChunkOptions { prompt, is_of_one, .. }, .. } = self;
            prepare(&mut sample.text, prompt, *is_of_one).with_context(|| format!("text {}", first + at + 1))?;
        }
        let (texts, pieces) = self.pieces(samples.iter_mut().map(|sample| std::mem::take(&mut sample.text)))?;
        let lengths: Vec<usize> = pieces.iter().map(|piece| piece.ids.len()).collect();
        // Without a mask, padding would be text.
        if let Some(width) = self.shape.width.filter(|_| !self.shape.pads)
            && let Some(at) = lengths.iter().position(|length| *length < width)
        {
            bail!(
                "sample {} has {} tokens; the model takes {width} in each text, and has no mask that tells padding from tokens",
                first + at + 1,
                lengths[at]
            );
        }
        let batch = |rows: Vec<usize>| {
            let fixed = self.shape.rows.unwrap_or(rows.len());
            // A model of a fixed number of rows runs the last text of a smaller batch again.
            let all = rows.iter().chain(rows.last().into_iter().cycle()).take(fixed);
            let numbered: Vec<(usize, &Piece)> = all.map(|at| (first + at + 1, &pieces[*at])).collect();
            let Encoded { mut inputs, .. } = self.tokens.inputs(&numbered)?;
            self.chain.complete(&mut inputs)?;
            self.chain.check(&inputs, self.longest)?;
            let width = self.shape.width.or(rows.iter().map(|at| lengths[*at]).max()).unwrap_or(0);
            Ok(SampleBatch { rows, padded_tokens: fixed * width, inputs })
        };
        let batches = self.shape.plan(&lengths).into_iter().map(batch).collect::<Result<_>>()?;
        let read = samples.into_iter().zip(texts.into_iter().zip(pieces));
        let samples = read.map(|(sample, (text, piece))| self.read_text(sample, text, piece)).collect();
        Ok(Chunk { first, samples, batches })
    }

    /// All texts as token ids; several threads read them.
    fn pieces(&self, texts: impl Iterator<Item = Text>) -> Result<(Vec<Text>, Vec<Piece>)> {
        let (mut calls, mut bytes) = (vec![Vec::new()], 0);
        for text in texts {
            if bytes >= CALL_BYTES || calls.last().is_some_and(|call: &Vec<Text>| call.len() == CALL_TEXTS) {
                calls.push(Vec::new());
                bytes = 0;
            }
            bytes += text.bytes();
            if let Some(call) = calls.last_mut() {
                call.push(text);
            }
        }
        let read = || calls.into_par_iter().map(|call| self.tokens.all(call)).collect::<Result<Vec<_>>>();
        Ok(self.pool.install(read)?.into_iter().flatten().unzip())
    }

    fn read_text(&self, sample: Sample, text: Text, piece: Piece) -> ReadSample {
        let Piece { ids, spans, words, cut, .. } = piece;
        let tokens = ids.len();
        let kept = self.options.keeps_texts.then_some(KeptText { text, ids, spans, words });
        ReadSample { id: sample.id, document: sample.document, tokens, is_cut: cut > 0, kept, picture: None }
    }
}

/// A text as the tokenizer reads it: a prompt comes before it, or before the first one of a pair.
///
/// # Errors
/// When the text is not one, where it has to be, or is a list of words, which has no place for a prompt.
fn prepare(text: &mut Text, prompt: &str, is_of_one: bool) -> Result<()> {
    match text {
        Text::Pair(..) if is_of_one => {
            bail!("it is a pair of texts, and an embedding is of one; name one with --field")
        }
        Text::Words(_) if is_of_one => {
            bail!(
                "it is a list, and an embedding is of one text; give each string as a record of its own, or join the words"
            )
        }
        _ if prompt.is_empty() => {}
        Text::One(text) => text.insert_str(0, prompt),
        Text::Pair(first, _) => *first = format!("{prompt}{first}").into(),
        Text::Words(_) => {
            bail!("it is a list of words, and the prompt `{prompt}` is put in front of a text; join the words")
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: BatchShape = BatchShape { tokens: 12, rows: None, width: None, pads: true };

    #[test]
    fn batches_are_bounded_by_their_padded_tokens() {
        assert_eq!(SHAPE.plan(&[3, 1, 6, 2, 3]), [vec![2, 0], vec![4, 3, 1]]);
        assert_eq!(SHAPE.plan(&[20, 2]), [[0], [1]], "a longer text is a batch of its own");
        assert_eq!(SHAPE.plan(&[0, 0]), [[0, 1]]);
        let large = BatchShape { tokens: 8192, ..SHAPE };
        assert_eq!(large.plan(&[600, 400, 600, 450, 300]), [vec![0, 2, 3], vec![1, 4]], "much shorter texts are apart");
        assert!(SHAPE.plan(&[]).is_empty());
    }

    #[test]
    fn a_prompt_is_put_in_front_of_the_first_text() {
        let prepared = |mut text: Text, prompt: &str, is_of_one: bool| {
            prepare(&mut text, prompt, is_of_one).map(|()| text).map_err(|error| error.to_string())
        };
        let (text, words) = (|| " a ".to_owned(), || Text::Words(vec!["a".to_owned()]));
        let pair = || Text::Pair(text().into(), text());
        assert_eq!(prepared(Text::One(text()), "q:", true), Ok(Text::One("q: a ".to_owned())));
        assert_eq!(prepared(pair(), "q:", false), Ok(Text::Pair("q: a ".into(), text())));
        assert!(prepared(pair(), "", true).unwrap_err().contains("an embedding is of one"));
        assert!(prepared(words(), "", true).unwrap_err().contains("an embedding is of one text"));
        assert!(prepared(words(), "q:", false).unwrap_err().contains("the prompt `q:`"));
        assert_eq!(prepared(words(), "", false), Ok(words()));
    }

    #[test]
    fn a_model_fixes_rows_columns_or_lengths() {
        let rows = BatchShape { rows: Some(2), ..SHAPE };
        assert_eq!(rows.plan(&[9, 9, 9]), [vec![0, 1], vec![2]]);
        let width = BatchShape { width: Some(6), ..SHAPE };
        assert_eq!(width.plan(&[1, 1, 1]), [vec![0, 1], vec![2]]);
        let equal = BatchShape { pads: false, ..SHAPE };
        assert_eq!(equal.plan(&[2, 3, 2]), [vec![1], vec![0, 2]]);
    }
}
