//! Data sets that a model is run on, as a stream of batches of its inputs: texts, which the
//! checkpoint's tokenizer reads, or tensors by the names of the inputs.

mod arrays;
mod npy;
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
use tokens::Tokens;

/// How many samples are taken unless told otherwise.
pub const SAMPLES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(511);

/// How many samples a batch has unless told otherwise.
const BATCH: usize = 8;

/// The member of a line's object that contains the text, unless told otherwise.
const FIELD: &str = "text";

/// How a data set is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataOptions {
    /// The member of each line's object that contains the text; `text` where absent.
    pub field: Option<String>,
    /// How many samples at most, from the beginning.
    pub samples: NonZeroUsize,
    /// How many samples a batch has; 8, or as many as the model fixes, where absent.
    pub batch: Option<NonZeroUsize>,
    /// How many tokens a text is cut to, special ones included; where absent as many as the model
    /// takes, 512 at most.
    pub max_length: Option<NonZeroUsize>,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self { field: None, samples: SAMPLES, batch: None, max_length: None }
    }
}

/// A data set that was read, the samples that are taken of it.
pub(crate) struct Dataset {
    path: PathBuf,
    content: Content,
}

enum Content {
    Texts(Vec<String>),
    Arrays(Arrays),
}

impl Dataset {
    /// Reads a file by its ending: a text a line of `.txt`, a member of an object a line of `.jsonl`,
    /// samples along the first axis of each tensor of `.npz` and `.safetensors`.
    ///
    /// # Errors
    /// When it cannot be read, is not what it should be, or has no sample; also when an option is
    /// given that such a file has no use for.
    pub(crate) fn open(path: &Path, options: &DataOptions) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if ending != "jsonl" && options.field.is_some() {
            bail!("--field is for .jsonl files; {} is not one", path.display());
        }
        if matches!(ending.as_str(), "npz" | "safetensors") && options.max_length.is_some() {
            bail!("--max-length is for texts; {} contains tensors", path.display());
        }
        let most = options.samples.get();
        let content = match ending.as_str() {
            "txt" => Content::Texts(texts::lines(path, most)?),
            "jsonl" => {
                let field = options.field.as_deref().unwrap_or(FIELD);
                Content::Texts(texts::members(path, field, most)?)
            }
            "npz" => Content::Arrays(Arrays::npz(path, most)?),
            "safetensors" => Content::Arrays(Arrays::safetensors(path, most)?),
            _ => bail!(
                "{} is not a data set: expected .txt (a text a line), .jsonl (an object a line), .npz or .safetensors \
                 (tensors by the names of inputs, samples along the first axis)",
                path.display()
            ),
        };
        Ok(Self { path: path.to_owned(), content })
    }

    /// The number of samples.
    pub(crate) fn samples(&self) -> usize {
        match &self.content {
            Content::Texts(texts) => texts.len(),
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
        Ok(Batches { dataset: self, tokens, wanted, chain, longest: model.max_positions, batch, next: 0 })
    }

    fn unusable(&self) -> String {
        format!("cannot run on {}", self.path.display())
    }
}

/// The number of rows that the model fixes.
fn fixed_batch(wanted: &[(Cow<'_, str>, &Input)]) -> Option<usize> {
    wanted.iter().filter_map(|(_, input)| usize::try_from(input.value.dims().first()?.as_constant()?).ok()).next()
}

/// Batches of a data set.
pub(crate) struct Batches<'a> {
    dataset: &'a Dataset,
    tokens: Option<Tokens>,
    wanted: Vec<(Cow<'a, str>, &'a Input)>,
    chain: &'a Chain<'a>,
    longest: Option<usize>,
    batch: usize,
    /// The first sample that was not taken.
    next: usize,
}

/// Some samples as inputs of a model.
pub(crate) struct Batch {
    /// Which ones, from 0 on.
    pub(crate) samples: Range<usize>,
    /// The inputs, complete and checked, by the names that they have in the model.
    pub(crate) inputs: Vec<(String, Tensor)>,
}

impl Batches<'_> {
    fn inputs(&self, samples: Range<usize>) -> Result<Vec<(String, Tensor)>> {
        let mut inputs = match (&self.dataset.content, &self.tokens) {
            (Content::Texts(texts), Some(tokens)) => tokens.inputs(&texts[samples])?,
            (Content::Arrays(arrays), _) => arrays.rows(samples)?,
            (Content::Texts(_), None) => bail!("texts need a tokenizer"),
        };
        self.chain.complete(&mut inputs)?;
        check_types(&inputs, &self.wanted)?;
        self.chain.check(&inputs, self.longest)?;
        Ok(inputs)
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.dataset.samples().min(self.next.saturating_add(self.batch));
        let samples = self.next..end;
        if samples.is_empty() {
            return None;
        }
        self.next = end;
        let context = || format!("{}, samples {} to {}", self.dataset.unusable(), samples.start + 1, samples.end);
        Some(self.inputs(samples.clone()).with_context(context).map(|inputs| Batch { samples, inputs }))
    }
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
