//! Texts as inputs of a model.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use planish_ir::{DType, InputRole};
use planish_models::Task;

use super::pieces::{Document, Piece, all, piece, pieces};
use super::texts::Text;
use super::{DataOptions, TextModel, listed};
use crate::inputs::Sampling;
use crate::sentence::SentenceSettings;
use crate::tokenizer::{TOKENIZER, TextTokenizer, padding_token, token};

/// The most tokens of a text where neither the model nor the user says less.
const LONGEST: usize = 512;

/// The most tokens of a text that is read as a whole by a model of any length.
const UNBOUNDED: usize = 1 << 20;

/// What makes inputs of texts.
pub(super) struct Tokens {
    tokenizer: TextTokenizer,
    ids: Column,
    mask: Option<Column>,
    /// Which text of a pair a token is of.
    types: Option<Column>,
    /// Whether both texts of a pair are embedded by themselves.
    embeds: bool,
    /// That of the decoder, with the token that its text begins with.
    decoder: Option<(Column, i64)>,
    pad: i64,
    /// Whether padding comes before the tokens.
    left: bool,
    longest: usize,
    /// Whether the model is a table of vectors of tokens.
    is_static: bool,
    /// The number of token ids that the model has, where it is known.
    vocabulary: Option<i64>,
}

/// Inputs that follow from texts.
pub(super) struct Encoded {
    pub(super) inputs: Vec<(String, Tensor)>,
    /// 1 where the decoder's ids are tokens, 0 where they are padding.
    pub(super) decoder_mask: Option<Tensor>,
}

/// What is needed of an input.
#[derive(Clone)]
struct Column {
    /// Its name.
    name: String,
    dtype: DType,
    /// The number of columns, where the model fixes it.
    width: Option<usize>,
}

impl Column {
    /// The same, of as many columns as another where the model fixes those alone.
    fn as_wide_as(&self, other: &Self) -> Self {
        Self { width: self.width.or(other.width), ..self.clone() }
    }
}

impl Tokens {
    /// For a model that takes these inputs. Texts before a cache are padded on the left, others on the right.
    pub(super) fn new(
        wanted: &[(Cow<'_, str>, &Input)],
        model: TextModel,
        folder: &Path,
        options: &DataOptions,
    ) -> Result<Self> {
        let port = |role: InputRole| -> Result<Option<Column>> {
            let Some((name, input)) = wanted.iter().find(|(_, input)| input.role == role) else { return Ok(None) };
            let Some(dtype) = input.value.dtype() else { bail!("the input `{name}` is {}", input.value.ty) };
            let dims = input.value.dims();
            if dims.len() != 2 {
                bail!(
                    "texts become ids in rows and columns, but the input `{name}` has {} dimensions; give it as .npz or \
                     .safetensors",
                    dims.len()
                );
            }
            let width = dims[1].as_constant();
            let name = name.clone().into_owned();
            Ok(Some(Column { name, dtype, width: width.and_then(|width| usize::try_from(width).ok()) }))
        };
        let Some(ids) = port(InputRole::TokenIds)? else {
            bail!(
                "the model takes no text: its inputs are {}; give them as .npz or .safetensors, {}",
                listed(wanted),
                Sampling::of(wanted).advice()
            );
        };
        // Windows take as many tokens at once as the model does.
        let positions = model.longest.filter(|_| !options.is_windowed);
        let most = positions.unwrap_or(usize::MAX).min(ids.width.unwrap_or(usize::MAX));
        // What the model was made for; of texts that are run to measure something not more than usual.
        let SentenceSettings { max_length: trained, cuts_left, lower_case, is_static, .. } =
            SentenceSettings::read(folder)?;
        let usual = match options.reads_all {
            true => trained.or(model.longest).unwrap_or(if is_static { UNBOUNDED } else { LONGEST }),
            false => trained.unwrap_or(LONGEST).min(LONGEST),
        };
        let longest = match options.max_length.map(usize::from) {
            Some(asked) if asked > most => bail!("--max-length {asked} is more than the {most} tokens of the model"),
            Some(asked) => asked,
            None => usual.min(most),
        };
        if !folder.join(TOKENIZER).is_file() {
            bail!(
                "{} has no {TOKENIZER}, so texts cannot become token ids; add it, or give ids as .npz or .safetensors",
                folder.display()
            );
        }
        let decoder = match port(InputRole::DecoderTokenIds)? {
            Some(port) => {
                let start = token(folder, "decoder_start_token_id")?;
                let start = start.with_context(|| {
                    format!(
                        "neither generation_config.json nor config.json of {} has `decoder_start_token_id`, which the \
                         decoder's text begins with; add it, or give {} as .npz or .safetensors",
                        folder.display(),
                        port.name
                    )
                })?;
                Some((port, start))
            }
            None => None,
        };
        let tokenizer = TextTokenizer::open(folder)?;
        let tokenizer = if is_static { tokenizer.bare() } else { tokenizer };
        let tokenizer = if lower_case { tokenizer.lower_cased()? } else { tokenizer };
        let vocabulary = wanted.iter().find(|(name, _)| *name == ids.name).and_then(|(_, input)| input.end);
        Ok(Self {
            tokenizer: match options.is_whole() && !options.is_windowed {
                true => tokenizer,
                false => tokenizer.cut_to(longest, cuts_left)?,
            },
            ids,
            mask: port(InputRole::Mask)?,
            types: port(InputRole::TokenTypes)?,
            embeds: model.task.is_none_or(Task::embeds),
            decoder,
            // The mask hides it: any id does.
            pad: model.pad.filter(|pad| (0..vocabulary.unwrap_or(i64::MAX)).contains(pad)).unwrap_or(0),
            left: wanted.iter().any(|(_, input)| input.role.cache().is_some()),
            longest,
            is_static,
            vocabulary,
        })
    }

    /// The same with padding up to so many tokens, or as many as the model takes: the padding of the tokenizer, because the model
    /// reads it.
    ///
    /// # Errors
    /// When a file of the folder that may name it cannot be read.
    pub(super) fn filled_to(mut self, width: usize, folder: &Path) -> Result<Self> {
        self.pad = padding_token(&self.tokenizer, folder)?.unwrap_or(self.pad);
        let width = width.min(self.longest);
        self.longest = width;
        self.tokenizer = self.tokenizer.cut_to(width, false)?;
        self.ids.width = self.ids.width.or(Some(width));
        Ok(self)
    }

    /// Whether padding can be told from tokens.
    pub(super) fn masked(&self) -> bool {
        self.mask.is_some()
    }

    /// Whether both texts of a pair are embedded by themselves, a row each.
    pub(super) fn embeds(&self) -> bool {
        self.embeds
    }

    /// A text as token ids.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(super) fn piece(&self, text: &Text) -> Result<Piece> {
        piece(&self.tokenizer, text, self.longest)
    }

    /// Several texts, each with its token ids.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(super) fn all(&self, texts: Vec<Text>) -> Result<Vec<(Text, Piece)>> {
        all(&self.tokenizer, texts, self.longest)
    }

    /// What texts are tokenized with.
    pub(super) fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// The most tokens of a text.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The number of columns of token ids, where the model fixes it.
    pub(super) fn width(&self) -> Option<usize> {
        self.ids.width
    }

    /// Whether padding comes before the tokens.
    pub(super) fn is_left(&self) -> bool {
        self.left
    }

    /// The next part of a document as token ids; none at its end.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(super) fn pieces(&self, document: &mut Document) -> Result<Option<Vec<Piece>>> {
        document.next_chunk().map(|chunk| pieces(&self.tokenizer, chunk, self.longest)).transpose()
    }

    /// The inputs that follow from texts, a row each, with the numbers of their samples. A decoder after an encoder takes the same tokens as the encoder, after the one that its text begins with.
    ///
    /// # Errors
    /// When the tokenizer gave an id that the model does not have.
    pub(super) fn inputs<'a>(&'a self, pieces: &[(usize, &'a Piece)]) -> Result<Encoded> {
        for (sample, piece) in pieces {
            let end = self.vocabulary.unwrap_or(i64::MAX);
            if let Some(id) = piece.ids.iter().find(|id| **id >= end) {
                bail!(
                    "the tokenizer does not fit the model: it gives the token id {id} in sample {sample}, and the \
                     vocabulary of the model has {end} tokens; use the {TOKENIZER} that the model was trained with"
                );
            }
        }
        // A text that the tokenizer makes nothing of is one of padding.
        let padding = [self.pad];
        let row = |(_, piece): &(usize, &'a Piece)| if piece.ids.is_empty() { &padding } else { piece.ids.as_slice() };
        let rows: Vec<&[i64]> = pieces.iter().map(row).collect();
        let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        // The text of a decoder has one more.
        let ones = vec![1; longest + 1];
        let mut inputs = vec![(self.ids.name.clone(), matrix(&self.ids, &rows, self.pad, self.left)?)];
        if let Some(mask) = &self.mask {
            let mask = mask.as_wide_as(&self.ids);
            // A table of vectors has a mean of no tokens: zeros.
            let masks = rows.iter().zip(pieces).map(|(row, (_, piece))| match piece.ids.is_empty() && self.is_static {
                true => &[0][..],
                false => &ones[..row.len()],
            });
            inputs.push((mask.name.clone(), matrix(&mask, &masks.collect::<Vec<_>>(), 0, self.left)?));
        }
        let is_second = |(_, piece): &(usize, &Piece)| piece.types.iter().any(|of| *of != 0);
        if let Some(types) = self.types.as_ref().filter(|_| pieces.iter().any(is_second)) {
            let types = types.as_wide_as(&self.ids);
            let rows: Vec<&[i64]> = pieces.iter().map(|(_, piece)| piece.types.as_slice()).collect();
            inputs.push((types.name.clone(), matrix(&types, &rows, 0, self.left)?));
        }
        let mut decoder_mask = None;
        if let Some((port, start)) = &self.decoder {
            let after = |row: &&[i64]| [*start].into_iter().chain(row.iter().copied()).take(self.longest).collect();
            let rows: Vec<Vec<i64>> = rows.iter().map(after).collect();
            let rows: Vec<&[i64]> = rows.iter().map(Vec::as_slice).collect();
            inputs.push((port.name.clone(), matrix(port, &rows, self.pad, false)?));
            let masks: Vec<&[i64]> = rows.iter().map(|row| &ones[..row.len()]).collect();
            decoder_mask = Some(matrix(port, &masks, 0, false)?);
        }
        Ok(Encoded { inputs, decoder_mask })
    }
}

/// Rows of one length: that of the longest, or the model's.
fn matrix(column: &Column, rows: &[&[i64]], pad: i64, left: bool) -> Result<Tensor> {
    let width = column.width.unwrap_or_else(|| rows.iter().map(|row| row.len()).max().unwrap_or(0));
    let mut numbers = Vec::with_capacity(rows.len() * width);
    for row in rows {
        let row = &row[..row.len().min(width)];
        let padding = std::iter::repeat_n(pad, width - row.len());
        match left {
            true => numbers.extend(padding.chain(row.iter().copied())),
            false => {
                numbers.extend_from_slice(row);
                numbers.extend(padding);
            }
        }
    }
    let shape = vec![rows.len(), width];
    let tensor = match column.dtype {
        DType::I64 => Tensor::new(shape, numbers),
        dtype => Tensor::from_f64(dtype, shape, &numbers.into_iter().map(|number| number as f64).collect::<Vec<_>>()),
    };
    tensor.context("token ids do not fit a tensor")
}
