//! A decoder on a runtime, and its cache of keys and values.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish_eval::{Data, Tensor};
use planish_models::Task;
use planish_runtimes::{Dimension, Model, Port, Runtime, Session, SessionOptions};

use crate::artifact;
use crate::manifest::Manifest;

/// A decoder that generates: rows of tokens, each with the keys and values of those it has read.
pub struct Decoder {
    session: Box<dyn Session>,
    layers: Vec<Layer>,
    takes_positions: bool,
    /// Ids are from 0 to below this.
    vocabulary: i64,
    /// The longest text, prompt included.
    longest: usize,
    caching: bool,
    rows: Vec<Tokens>,
    /// Keys and values as `layers` orders them, each [rows, heads, columns, size].
    cache: Vec<Tensor>,
}

/// A key or a value of a layer in the cache.
struct Layer {
    /// `past_key_values.N.key` or `past_key_values.N.value`.
    past: Port,
    /// `present.N.key` or `present.N.value`.
    present: String,
}

/// A row of tokens.
#[derive(Clone)]
struct Tokens {
    ids: Vec<i64>,
    /// Columns before the first that hold padding.
    padding: usize,
}

/// For each row a score of each token of the vocabulary to be the next: f32 logits, none of them
/// NaN or infinitely large.
pub struct Scores {
    logits: Vec<f32>,
    vocabulary: usize,
}

impl Scores {
    /// The scores of a row, by id.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.logits[row * self.vocabulary..][..self.vocabulary]
    }
}

const PAST: &str = "past_key_values.";

impl Decoder {
    /// Loads an artifact. Without `caching` each step computes all tokens again.
    ///
    /// # Errors
    /// When the folder is no artifact of a decoder, or the runtime does not load it.
    pub fn load(folder: &Path, runtime: &dyn Runtime, threads: usize, caching: bool) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        if manifest.task != Task::TextGeneration.name() {
            let (folder, wanted) = (folder.display(), Task::TextGeneration);
            bail!("{folder} is compiled for {}, it cannot generate; compile a decoder for {wanted}", manifest.task);
        }
        let (model, part) = artifact::model(folder, &manifest)?;
        let options = SessionOptions { threads, ..SessionOptions::compiled() };
        let session = runtime.load(Model::Onnx(&model), &options)?;
        let layer = |port: &Port| {
            let suffix = port.name.strip_prefix(PAST)?;
            Some(Layer { past: port.clone(), present: format!("present.{suffix}") })
        };
        let end = part.inputs.iter().find(|input| input.port.name == "input_ids").and_then(|input| input.end);
        Ok(Self {
            layers: session.inputs().iter().filter_map(layer).collect(),
            takes_positions: session.inputs().iter().any(|port| port.name == "position_ids"),
            vocabulary: end.with_context(|| format!("{} does not say which ids it takes", folder.display()))?,
            longest: manifest.max_sequence_length.unwrap_or(usize::MAX),
            session,
            caching,
            rows: Vec::new(),
            cache: Vec::new(),
        })
    }

    /// How many tokens may follow a prompt: at least one.
    ///
    /// # Errors
    /// When the prompt is empty, has an id that is not in the vocabulary, or leaves no room.
    pub fn room(&self, prompt: &[i64]) -> Result<usize> {
        if prompt.is_empty() {
            bail!("a prompt has no tokens; the model needs at least one to go on from");
        }
        if let Some(id) = prompt.iter().find(|id| !(0..self.vocabulary).contains(*id)) {
            bail!("the prompt's id {id} is not in the vocabulary: ids are from 0 to {}", self.vocabulary - 1);
        }
        let room = self.longest.saturating_sub(prompt.len());
        if room == 0 {
            let (has, takes) = (prompt.len(), self.longest);
            bail!("the prompt has {has} tokens and the model takes {takes}, new ones included; shorten it");
        }
        Ok(room)
    }

    /// Reads prompts, a row each, in place of what it has read before. Each must be one that
    /// [`room`](Self::room) accepts.
    ///
    /// # Errors
    /// When the model fails to run.
    pub fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        let columns = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let row = |ids: &Vec<i64>| Tokens { ids: ids.clone(), padding: columns - ids.len() };
        self.rows = prompts.iter().map(row).collect();
        self.restart()
    }

    /// Goes on with some of the rows, in this order and each as often as it is named, and reads one
    /// more token in each.
    ///
    /// # Errors
    /// When the model fails to run.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores> {
        let same = rows.iter().copied().eq(0..self.rows.len());
        if !same {
            self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        }
        self.rows.iter_mut().zip(ids).for_each(|(row, id)| row.ids.push(*id));
        if !self.caching {
            return self.restart();
        }
        if !same {
            self.cache = self.cache.iter().map(|tensor| gather(tensor, rows)).collect::<Result<_>>()?;
        }
        self.run(1)
    }

    /// Reads all tokens of all rows.
    fn restart(&mut self) -> Result<Scores> {
        let empty = |layer: &Layer| {
            let size = |(axis, dim): (usize, &Dimension)| match dim {
                Dimension::Fixed(size) => *size,
                // Rows, then columns.
                Dimension::Symbolic(_) => [self.rows.len(), 0][usize::from(axis != 0)],
            };
            let shape = layer.past.dims.iter().enumerate().map(size).collect();
            Tensor::zeros(layer.past.dtype, shape).ok_or_else(|| anyhow!("the input `{}` is too large", layer.past))
        };
        self.cache = self.layers.iter().map(empty).collect::<Result<_>>()?;
        self.run(self.rows.first().map_or(0, |row| row.padding + row.ids.len()))
    }

    /// Runs the model on the last columns of all rows.
    fn run(&mut self, columns: usize) -> Result<Scores> {
        let count = self.rows.len();
        let tensor = |elements: Vec<i64>| {
            let columns = elements.len() / count.max(1);
            Tensor::new(vec![count, columns], elements).ok_or_else(|| anyhow!("rows differ in length"))
        };
        let last = |of_row: &dyn Fn(&Tokens) -> Vec<i64>| {
            let tail = |row: &Tokens| {
                let all = of_row(row);
                all[all.len().saturating_sub(columns)..].to_vec()
            };
            tensor(self.rows.iter().flat_map(tail).collect())
        };
        // The mask hides padding: any id and any position do.
        let padded = |row: &Tokens, tokens: &mut dyn Iterator<Item = i64>| {
            std::iter::repeat_n(0, row.padding).chain(tokens).collect::<Vec<_>>()
        };
        let mask = self.rows.iter().flat_map(|row| padded(row, &mut row.ids.iter().map(|_| 1)));
        let mut inputs = vec![
            ("input_ids", last(&|row| padded(row, &mut row.ids.iter().copied()))?),
            ("attention_mask", tensor(mask.collect())?),
        ];
        if self.takes_positions {
            inputs.push(("position_ids", last(&|row| padded(row, &mut (0i64..).take(row.ids.len())))?));
        }
        let past = std::mem::take(&mut self.cache);
        inputs.extend(self.layers.iter().map(|layer| layer.past.name.as_str()).zip(past));
        let mut outputs = self.session.run(&inputs)?;
        let mut take = |name: &str| match outputs.iter().position(|(output, _)| output == name) {
            Some(at) => Ok(outputs.swap_remove(at).1),
            None => Err(anyhow!("the model does not give `{name}`; compile it again")),
        };
        self.cache = self.layers.iter().map(|layer| take(&layer.present)).collect::<Result<_>>()?;
        last_scores(&take("logits")?)
    }
}

/// The scores of the last column of `logits`, [rows, columns, vocabulary].
fn last_scores(logits: &Tensor) -> Result<Scores> {
    let (Some(all), [_, columns, vocabulary]) = (logits.as_f32(), logits.shape()) else {
        bail!("`logits` is {}{:?}; generation takes f32[rows, columns, vocabulary]", logits.dtype(), logits.shape());
    };
    let last = all.chunks((columns * vocabulary).max(1)).flat_map(|row| &row[row.len() - vocabulary..]);
    let scores = Scores { logits: last.copied().collect(), vocabulary: *vocabulary };
    match scores.logits.iter().any(|score| score.is_nan() || *score == f32::INFINITY) {
        true => bail!("the model's logits are not finite; `planish verify` says how it compares with its source"),
        false => Ok(scores),
    }
}

/// Some of the outermost slices of a tensor, each as often as it is named.
fn gather(tensor: &Tensor, rows: &[usize]) -> Result<Tensor> {
    let shape: Vec<usize> = [rows.len()].into_iter().chain(tensor.shape().iter().skip(1).copied()).collect();
    let size: usize = shape.iter().skip(1).product();
    macro_rules! gathered {
        ($($variant:ident),*) => {
            match tensor.data() {
                $(Data::$variant(all) => Data::from(
                    rows.iter().flat_map(|row| &all[row * size..][..size]).copied().collect::<Vec<_>>(),
                ),)*
                _ => bail!("the cache is {}, which is no type of keys and values", tensor.dtype()),
            }
        };
    }
    Tensor::new(shape, gathered!(F16, Bf16, F32)).ok_or_else(|| anyhow!("the cache has no shape"))
}
