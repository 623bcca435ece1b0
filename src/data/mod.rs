//! Data sets that a model is run on, as a stream of batches of its inputs: texts, which the
//! checkpoint's tokenizer reads, or tensors by the names of the inputs.

mod arrays;
mod npy;
mod split;
mod texts;
mod tokens;

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use planish_ir::Dim;
use planish_models::Loaded;

use crate::artifact::manifest::Input;
use crate::chain::Chain;
use arrays::Arrays;
pub use split::Split;
use texts::{Kind, TextFile, Texts};
use tokens::{Encoded, Tokens};

/// How many samples are taken unless told otherwise.
pub const SAMPLES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(511);

/// How many samples a batch has unless told otherwise.
const BATCH: usize = 8;

/// How a data set is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataOptions {
    /// The member of each line's object, or the column, that contains the text; `text` where absent.
    pub field: Option<String>,
    /// Whether bad records of texts are counted and left out; they are errors otherwise.
    pub skip_bad: bool,
    /// How many samples at most, from the beginning.
    pub samples: NonZeroUsize,
    /// How many samples a batch has; 8, or as many as the model fixes, where absent.
    pub batch: Option<NonZeroUsize>,
    /// How many tokens a text is cut to, special ones included; where absent as many as the model
    /// takes, 512 at most.
    pub max_length: Option<NonZeroUsize>,
    /// Which of these samples are taken.
    pub split: Split,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self { field: None, skip_bad: false, samples: SAMPLES, batch: None, max_length: None, split: Split::All }
    }
}

/// Whether texts of a file, by its ending, are members or columns with a name.
pub(crate) fn has_fields(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    !matches!(Kind::of(&ending), None | Some(Kind::Lines))
}

/// Opens a data set and reads its first record.
///
/// # Errors
/// When that is impossible, or the options are not for such data.
pub(crate) fn check(path: &Path, options: &DataOptions) -> Result<()> {
    Dataset::open(path, options).map(drop)
}

/// A data set, the samples that are taken of it.
pub(crate) struct Dataset {
    path: PathBuf,
    split: Split,
    content: Content,
}

enum Content {
    /// Read while they are run.
    Texts(TextFile),
    Arrays(Arrays),
}

impl Dataset {
    /// Opens a file by its ending: a text a line of `.txt`, a member of an object a line of `.jsonl`, a column of
    /// `.csv` and `.parquet`, samples along the first axis of each tensor of `.npz` and `.safetensors`.
    ///
    /// # Errors
    /// When it cannot be read, is not what it should be, or has no sample; also when an option is
    /// given that such a file has no use for.
    pub(crate) fn open(path: &Path, options: &DataOptions) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let kind = Kind::of(&ending);
        if options.field.is_some() && !has_fields(path) {
            bail!("--field is for .jsonl, .csv and .parquet files; {} is not one", path.display());
        }
        let tensors = matches!(ending.as_str(), "npz" | "safetensors");
        if tensors && options.max_length.is_some() {
            bail!("--max-length is for texts; {} contains tensors", path.display());
        }
        if tensors && options.skip_bad {
            bail!("--skip-bad is for texts; {} contains tensors", path.display());
        }
        let (most, split) = (options.samples.get(), options.split);
        let none = || {
            format!(
                "{} has fewer than 5 samples, of which every fifth is to be held out; take more data, or name other data \
                 with --evaluate",
                path.display()
            )
        };
        let content = match (kind, ending.as_str()) {
            (Some(kind), _) => {
                let (field, skip_bad) = (options.field.clone(), options.skip_bad);
                let file = TextFile { path: path.to_owned(), kind, field, skip_bad, most, split };
                // Errors of the first record come before the model is loaded.
                file.texts()?.next().transpose()?.with_context(none)?;
                Content::Texts(file)
            }
            (None, "npz") => Content::Arrays(Arrays::npz(path, most)?.of(split)),
            (None, "safetensors") => Content::Arrays(Arrays::safetensors(path, most)?.of(split)),
            _ => bail!(
                "{} is not a data set: expected .txt (a text a line), .jsonl (an object a line), .csv or .parquet (texts \
                 in a column), .npz or .safetensors (tensors by the names of inputs, samples along the first axis)",
                path.display()
            ),
        };
        match &content {
            Content::Arrays(arrays) if arrays.samples() == 0 => bail!(none()),
            _ => Ok(Self { path: path.to_owned(), split, content }),
        }
    }

    /// The number of samples, or the largest that it can be where the file was not read to its end.
    pub(crate) fn most(&self) -> usize {
        match &self.content {
            Content::Texts(texts) => texts.most,
            Content::Arrays(arrays) => arrays.samples(),
        }
    }

    /// The samples as batches of a model's inputs; `folder` has its tokenizer.
    ///
    /// # Errors
    /// When the model does not take such data, or there is no tokenizer that texts need.
    pub(crate) fn batches<'a>(
        &'a self,
        chain: &'a Chain<'a>,
        model: &'a Loaded,
        folder: &Path,
        options: &DataOptions,
    ) -> Result<Batches<'a>> {
        let wanted = chain.inputs();
        let tokens = match &self.content {
            Content::Texts(_) => Some(Tokens::new(&wanted, model, folder, options).with_context(|| self.unusable())?),
            Content::Arrays(_) => None,
        };
        // Without a mask, padding would be text.
        let one = tokens.as_ref().is_some_and(|tokens| !tokens.masked());
        let batch = options.batch.map(NonZeroUsize::get).or(fixed_batch(&wanted));
        let batch = batch.unwrap_or(if one { 1 } else { BATCH });
        let texts = match &self.content {
            Content::Texts(file) => Some(file.texts()?),
            Content::Arrays(_) => None,
        };
        let longest = model.max_positions;
        Ok(Batches { dataset: self, texts, tokens, wanted, chain, longest, batch, shard: None, number: 0, next: 0 })
    }

    fn unusable(&self) -> String {
        format!("cannot run on {}{}", self.path.display(), self.split)
    }
}

/// The number of rows that the model fixes.
fn fixed_batch(wanted: &[(Cow<'_, str>, &Input)]) -> Option<usize> {
    wanted.iter().filter_map(|(_, input)| usize::try_from(input.value.dims().first()?.as_constant()?).ok()).next()
}

/// Batches of a data set.
pub(crate) struct Batches<'a> {
    dataset: &'a Dataset,
    texts: Option<Texts<'a>>,
    tokens: Option<Tokens>,
    wanted: Vec<(Cow<'a, str>, &'a Input)>,
    chain: &'a Chain<'a>,
    longest: Option<usize>,
    batch: usize,
    shard: Option<Shard>,
    /// That of the next batch.
    number: usize,
    /// The first sample that was not taken.
    next: usize,
}

/// One of several equal parts of the batches of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which one, from 0 on.
    pub index: usize,
    /// How many there are; not 0.
    pub count: usize,
}

impl Shard {
    /// Whether it has a batch, by the number of the batch.
    fn has(self, number: usize) -> bool {
        number % self.count == self.index
    }
}

/// Some samples as inputs of a model.
pub(crate) struct Batch {
    /// Which ones, from 0 on.
    pub(crate) samples: Range<usize>,
    /// The inputs, complete and checked, by the names that they have in the model.
    pub(crate) inputs: Vec<(String, Tensor)>,
    /// Which of the decoder's token ids are tokens, where that is known and the model has no input for it.
    pub(crate) decoder_mask: Option<Tensor>,
}

/// The samples of a batch.
enum Samples {
    Texts(Vec<String>),
    Rows(Range<usize>),
}

impl<'a> Batches<'a> {
    /// The batches of one shard only. They are those that all samples are divided into.
    pub(crate) fn of(mut self, shard: Option<Shard>) -> Self {
        self.shard = shard;
        self
    }

    /// How many bad records were left out so far.
    pub(crate) fn skipped(&self) -> usize {
        self.texts.as_ref().map_or(0, Texts::skipped)
    }

    /// The next samples, with their number; none at the end.
    fn samples(&mut self) -> Result<Option<(Range<usize>, Samples)>> {
        let (samples, count) = match &mut self.texts {
            Some(texts) => {
                let texts = texts.take(self.batch).collect::<Result<Vec<_>>>()?;
                let count = texts.len();
                (Samples::Texts(texts), count)
            }
            None => {
                let end = self.dataset.most().min(self.next.saturating_add(self.batch));
                (Samples::Rows(self.next..end), end - self.next)
            }
        };
        let range = self.next..self.next + count;
        self.next = range.end;
        Ok((!range.is_empty()).then_some((range, samples)))
    }

    fn batch(&self, range: Range<usize>, samples: Samples) -> Result<Batch> {
        let Encoded { mut inputs, decoder_mask } = match (samples, &self.tokens, &self.dataset.content) {
            (Samples::Texts(texts), Some(tokens), _) => tokens.inputs(&texts, range.start)?,
            (Samples::Rows(rows), _, Content::Arrays(arrays)) => {
                Encoded { inputs: arrays.rows(rows)?, decoder_mask: None }
            }
            _ => bail!("texts need a tokenizer"),
        };
        self.chain.complete(&mut inputs)?;
        check_types(&inputs, &self.wanted)?;
        self.chain.check(&inputs, self.longest)?;
        check_masks(&inputs, range.start)?;
        Ok(Batch { samples: range, inputs, decoder_mask })
    }

    fn advance(&mut self) -> Result<Option<Batch>> {
        loop {
            let Some((range, samples)) = self.samples()? else { return Ok(None) };
            let number = self.number;
            self.number += 1;
            if self.shard.is_none_or(|shard| shard.has(number)) {
                let context = || format!("{}, samples {} to {}", self.dataset.unusable(), range.start + 1, range.end);
                return self.batch(range.clone(), samples).with_context(context).map(Some);
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

/// Checks that each sample has a real token.
fn check_masks(inputs: &[(String, Tensor)], first: usize) -> Result<()> {
    for (name, mask) in inputs.iter().filter(|(name, _)| name.ends_with("attention_mask")) {
        let width = mask.shape().iter().skip(1).product::<usize>().max(1);
        if let Some(row) = mask.to_f64().chunks(width).position(|row| row.iter().all(|real| *real == 0.0)) {
            bail!(
                "`{name}` of sample {} is 0 everywhere, so that none of its tokens is real; leave it out",
                first + row + 1
            );
        }
    }
    Ok(())
}

/// Checks element types and sizes.
fn check_types(inputs: &[(String, Tensor)], wanted: &[(Cow<'_, str>, &Input)]) -> Result<()> {
    for (name, tensor) in inputs {
        let Some((_, input)) = wanted.iter().find(|(other, _)| other == name) else { continue };
        let (dims, shape) = (input.value.dims(), tensor.shape());
        let same =
            |(dim, size): (&Dim, &usize)| dim.as_constant().is_none_or(|fixed| usize::try_from(fixed) == Ok(*size));
        let fits = dims.len() == shape.len() && dims.iter().zip(shape).all(same);
        if !fits || input.value.dtype() != Some(tensor.dtype()) {
            bail!("`{name}` is {}{shape:?}, a batch included; the model takes {}", tensor.dtype(), input.value.ty);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
