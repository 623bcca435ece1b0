//! The samples of a data set as batches of a model's inputs.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use planish_artifact::chain::Chain;
use planish_artifact::evaluation::{Coverage, Unit};
use planish_artifact::manifest::Input;
use planish_eval::Tensor;

use super::arrays::Arrays;
use super::checks::{check_masks, check_types};
use super::media::{Pictures, Read};
use super::pieces::{Document, Piece};
use super::shard::Shard;
use super::texts::{Label, Text, Texts};
use super::tokens::{Encoded, Tokens};
use super::written::Writing;
use super::{Content, DataOptions, Dataset, tensors};

/// The inputs of a model, by the names that they are given under.
pub(super) type Wanted<'a> = Vec<(Cow<'a, str>, &'a Input)>;

/// Where samples come from.
pub(super) enum Reader<'a> {
    /// Texts, and what makes inputs of them.
    Texts(Texts<'a>, Box<Tokens>),
    /// Tensors whose first axis counts the samples.
    Rows(Arrays),
    /// Files of tensors, a sample each.
    Files(Vec<PathBuf>),
    /// Pictures, and what makes inputs of them.
    Pictures(Box<Pictures<'a>>),
}

/// Batches of a data set.
pub struct Batches<'a> {
    dataset: &'a Dataset,
    reader: Reader<'a>,
    wanted: Wanted<'a>,
    chain: &'a Chain<'a>,
    longest: Option<usize>,
    batch: usize,
    shard: Option<Shard>,
    /// That of the next batch.
    number: usize,
    /// The first row that was not taken.
    next: usize,
    /// Rows of samples that were read.
    pending: VecDeque<Row>,
    /// The document that rows are made of, where texts are divided.
    document: Option<Document>,
    /// Whether texts are divided into rows.
    divides: bool,
    /// Whether who takes the batches divides them.
    is_windowed: bool,
    /// How many rows are still taken, and how many tokens.
    rows_left: usize,
    tokens_left: Option<usize>,
    /// The tensor with the labels.
    label: Option<String>,
    /// How a decoder writes the texts of samples, of which batches have the first ids.
    writing: Option<Writing>,
    coverage: Coverage,
}

/// Some samples as inputs of a model.
pub struct Batch {
    /// Which ones, from 0 on.
    pub samples: Range<usize>,
    /// The inputs, complete and checked, by the names that they have in the model.
    pub inputs: Vec<(String, Tensor)>,
    /// Which of the decoder's token ids are tokens, where that is known and the model has no input for it.
    pub decoder_mask: Option<Tensor>,
    /// What is known of each row; nothing where the data is tensors.
    pub rows: Vec<RowInfo>,
    /// Where the samples are, for messages.
    pub place: String,
}

/// What is known of a row of a batch of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct RowInfo {
    /// The label of its sample.
    pub label: Option<Label>,
    /// Whether it is the first row of its sample: a pair of texts to embed has two.
    pub is_first: bool,
    /// For each token the word that begins with it.
    pub words: Vec<Option<usize>>,
    /// The first text of a pair.
    pub query: Option<String>,
}

/// A row that is not encoded yet, or is a piece of a document.
struct Row {
    source: Source,
    label: Option<Label>,
    is_first: bool,
    /// The first text of a pair.
    query: Option<String>,
}

enum Source {
    Text(Text),
    Piece(Piece),
}

/// The samples of a batch.
enum Samples {
    Texts(Vec<Row>),
    Rows(Range<usize>),
    Pictures(Vec<Read>),
}

impl<'a> Batches<'a> {
    pub(super) fn new(
        dataset: &'a Dataset,
        reader: Reader<'a>,
        (wanted, chain, longest): (Wanted<'a>, &'a Chain<'a>, Option<usize>),
        batch: usize,
        options: &DataOptions,
    ) -> Self {
        let divides = options.is_whole() && !options.is_windowed;
        Self {
            dataset,
            reader,
            wanted,
            chain,
            longest,
            batch,
            shard: None,
            number: 0,
            next: 0,
            pending: VecDeque::new(),
            document: None,
            divides,
            is_windowed: options.is_windowed,
            rows_left: if divides { options.samples.get() } else { usize::MAX },
            tokens_left: options.tokens.map(usize::from),
            label: options.label.clone(),
            writing: None,
            coverage: Coverage::new(options.unit.unwrap_or(Unit::Lines)),
        }
    }

    /// The same with the first id of each text that a decoder writes.
    pub(super) fn written(mut self, writing: Option<Writing>) -> Self {
        self.writing = writing;
        self
    }

    /// How a decoder writes the texts of batches, which have the first id of each.
    pub fn writing(&self) -> Option<&Writing> {
        self.writing.as_ref()
    }

    /// The batches of one shard only. They are those that all samples are divided into.
    pub fn of(mut self, shard: Option<Shard>) -> Self {
        self.shard = shard;
        self
    }

    /// The number of samples, or the largest that it can be where the data was not read to its end.
    pub fn most(&self) -> usize {
        match (&self.reader, &self.dataset.content) {
            (Reader::Rows(arrays), _) => arrays.samples(),
            (Reader::Files(files), _) => files.len(),
            (Reader::Texts(..) | Reader::Pictures(_), Content::Texts(texts)) => texts.most,
            (Reader::Pictures(_), Content::Pictures(files)) => files.files.len(),
            (Reader::Texts(..) | Reader::Pictures(_), _) => 0,
        }
    }

    /// How many bad records were left out so far.
    pub fn skipped(&self) -> usize {
        match &self.reader {
            Reader::Texts(texts, _) => texts.skipped(),
            Reader::Pictures(pictures) => pictures.skipped(),
            Reader::Rows(_) | Reader::Files(_) => 0,
        }
    }

    /// Whether texts are divided into rows, each of which is a sample.
    pub fn divides(&self) -> bool {
        self.divides
    }

    /// How much of the data was taken; none for tensors. Reads on in the data, to count what was left out.
    pub fn coverage(&mut self) -> Option<Coverage> {
        let texts = match &mut self.reader {
            Reader::Texts(texts, _) => texts,
            Reader::Pictures(pictures) => return Some(pictures.coverage()),
            Reader::Rows(_) | Reader::Files(_) => return None,
        };
        let is_spent = self.tokens_left == Some(0);
        let of_row = |row: &Row| match &row.source {
            Source::Text(text) => text.characters(),
            Source::Piece(piece) => piece.characters,
        };
        let rest = self.document.take().map_or(0, |document| document.rest());
        let pending = self.pending.drain(..).map(|row| of_row(&row)).sum::<u64>() + rest;
        let Coverage { behind_tokens, behind_samples, .. } = &mut self.coverage;
        let mut add = |is_taken: bool, characters: u64| {
            if is_spent && is_taken { behind_tokens.add(characters) } else { behind_samples.add(characters) }
        };
        if self.divides && pending > 0 {
            add(true, pending);
        }
        self.coverage.has_more = !texts.after(add);
        self.coverage.of_split = texts.of_split();
        self.coverage.bad = texts.skipped() as u64;
        Some(self.coverage)
    }

    /// Reads the next sample; false at the end.
    fn read(&mut self) -> Result<bool> {
        let Reader::Texts(texts, tokens) = &mut self.reader else { return Ok(false) };
        if let Some(document) = &mut self.document {
            let is_first = document.is_new();
            match tokens.pieces(document)? {
                None => self.document = None,
                Some(pieces) => {
                    let row = |(at, piece)| Row {
                        source: Source::Piece(piece),
                        label: None,
                        is_first: is_first && at == 0,
                        query: None,
                    };
                    self.pending.extend(pieces.into_iter().enumerate().map(row));
                }
            }
            return Ok(true);
        }
        let Some(sample) = texts.next().transpose()? else { return Ok(false) };
        let label = sample.label;
        let query = if let Text::Pair(query, _) = &sample.text { Some(query.to_string()) } else { None };
        let row = |text, label, is_first, query| Row { source: Source::Text(text), label, is_first, query };
        match sample.text {
            Text::One(text) if self.divides => self.document = Some(Document::new(text)),
            _ if self.divides => bail!("--documents is for texts, and not for pairs or words"),
            Text::Pair(first, second) if tokens.embeds() => {
                self.pending.push_back(row(Text::One(first.to_string()), label, true, query));
                self.pending.push_back(row(Text::One(second), None, false, None));
            }
            text => self.pending.push_back(row(text, label, true, query)),
        }
        Ok(true)
    }

    /// The next samples, with their number; none at the end.
    fn samples(&mut self) -> Result<Option<(Range<usize>, Samples)>> {
        let (samples, count) = match self.reader {
            Reader::Texts(..) => {
                let wanted = if self.tokens_left == Some(0) { 0 } else { self.batch.min(self.rows_left) };
                while self.pending.len() < wanted && self.read()? {}
                let count = wanted.min(self.pending.len());
                self.rows_left -= count;
                (Samples::Texts(self.pending.drain(..count).collect()), count)
            }
            Reader::Pictures(ref mut pictures) => {
                let read = pictures
                    .next(self.batch)
                    .with_context(|| format!("cannot run on {}", self.dataset.path.display()))?;
                let count = read.len();
                (Samples::Pictures(read), count)
            }
            Reader::Rows(_) | Reader::Files(_) => {
                let end = self.most().min(self.next.saturating_add(self.batch));
                (Samples::Rows(self.next..end), end - self.next)
            }
        };
        let range = self.next..self.next + count;
        self.next = range.end;
        Ok((!range.is_empty()).then_some((range, samples)))
    }

    /// Rows as token ids, and what is known of each.
    fn encoded(&mut self, rows: Vec<Row>) -> Result<(Vec<Piece>, Vec<RowInfo>)> {
        let Reader::Texts(_, tokens) = &self.reader else { bail!("texts need a tokenizer") };
        let (mut pieces, mut infos) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for Row { source, label, is_first, query } in rows {
            let mut piece = match source {
                Source::Text(text) => {
                    if self.tokens_left == Some(0) {
                        self.coverage.behind_tokens.add(text.characters());
                        continue;
                    }
                    tokens.piece(&text)?
                }
                Source::Piece(piece) => piece,
            };
            if let Some(left) = &mut self.tokens_left {
                let gone = if self.is_windowed { piece.truncate(*left) } else { 0 };
                *left = left.saturating_sub(piece.ids.len());
                if self.is_windowed && gone + piece.cut > 0 && *left == 0 {
                    self.coverage.behind_tokens.add(gone + piece.cut);
                    piece.cut = 0;
                }
            }
            self.coverage.texts += u64::from(is_first);
            self.coverage.characters += piece.characters;
            if piece.cut > 0 {
                self.coverage.cut.add(piece.cut);
            }
            infos.push(RowInfo { label, is_first, words: std::mem::take(&mut piece.words), query });
            pieces.push(piece);
        }
        Ok((pieces, infos))
    }

    fn batch(&mut self, range: Range<usize>, samples: Samples, place: String) -> Result<Batch> {
        let mut samples_run = range.clone();
        let (Encoded { mut inputs, decoder_mask }, rows) = match samples {
            Samples::Texts(rows) => {
                let (pieces, rows) = self.encoded(rows)?;
                samples_run.end = range.start + rows.len();
                let Reader::Texts(_, tokens) = &self.reader else { bail!("texts need a tokenizer") };
                (tokens.inputs(&(range.start + 1..).zip(&pieces).collect::<Vec<_>>())?, rows)
            }
            Samples::Pictures(read) => {
                let Reader::Pictures(pictures) = &self.reader else { bail!("there are no pictures") };
                let row = |label| RowInfo { label, is_first: true, words: Vec::new(), query: None };
                let (read, rows): (Vec<_>, Vec<_>) =
                    read.into_iter().map(|(picture, named)| (picture, row(named.label))).unzip();
                let mut inputs = pictures.inputs().inputs(read)?;
                inputs.extend(self.writing.as_ref().map(|writing| writing.first(rows.len())).transpose()?);
                (Encoded { inputs, decoder_mask: None }, rows)
            }
            Samples::Rows(samples) => {
                let mut inputs = match &self.reader {
                    Reader::Rows(arrays) => arrays.rows(samples)?,
                    Reader::Files(files) => tensors::read_whole(&files[samples.start])?,
                    Reader::Texts(..) | Reader::Pictures(_) => bail!("these are no rows"),
                };
                let rows = self.labels(&mut inputs)?;
                (Encoded { inputs, decoder_mask: None }, rows)
            }
        };
        // Runs of windows are completed one by one.
        if !self.is_windowed {
            self.chain.complete(&mut inputs)?;
            check_types(&inputs, &self.wanted, matches!(self.reader, Reader::Files(_)))?;
            self.chain.check(&inputs, self.longest)?;
            check_masks(&inputs, &self.wanted, range.start)?;
        }
        Ok(Batch { samples: samples_run, inputs, decoder_mask, rows, place })
    }

    /// Takes the labels out of tensors by the names of inputs.
    fn labels(&self, inputs: &mut Vec<(String, Tensor)>) -> Result<Vec<RowInfo>> {
        let Some(name) = &self.label else { return Ok(Vec::new()) };
        let Some(at) = inputs.iter().position(|(other, _)| other == name) else {
            let names: Vec<String> = inputs.iter().map(|(name, _)| format!("`{name}`")).collect();
            bail!("there is no tensor `{name}` of labels, but {}", names.join(", "));
        };
        let (_, tensor) = inputs.remove(at);
        if tensor.shape().iter().skip(1).any(|size| *size != 1) {
            bail!("the labels `{name}` are {:?}: there is more than one for each sample", tensor.shape());
        }
        let row =
            |label: f64| RowInfo { label: Some(Label::Number(label)), is_first: true, words: Vec::new(), query: None };
        Ok(tensor.to_f64().into_iter().map(row).collect())
    }

    fn advance(&mut self) -> Result<Option<Batch>> {
        loop {
            let Some((range, samples)) = self.samples()? else { return Ok(None) };
            let number = self.number;
            self.number += 1;
            if self.shard.is_none_or(|shard| shard.has(number)) {
                let place = self.place(&range);
                let context = format!("cannot run on {place}");
                return self.batch(range, samples, place).context(context).map(Some);
            }
        }
    }

    /// Where some samples are.
    fn place(&self, samples: &Range<usize>) -> String {
        match &self.reader {
            Reader::Files(files) => files[samples.start].display().to_string(),
            Reader::Texts(..) | Reader::Rows(_) | Reader::Pictures(_) => {
                let (path, split) = (self.dataset.path.display(), self.dataset.split);
                format!("{path}{split}, samples {} to {}", samples.start + 1, samples.end)
            }
        }
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
