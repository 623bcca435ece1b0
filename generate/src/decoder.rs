//! A decoder on a runtime, and its cache of keys and values.

use std::num::NonZeroUsize;
use std::ops::Range;

use anyhow::{Result, bail};
use planish_ir::{InputRole, PartRole};
use planish_models::LengthDependence;
use planish_runtimes::{Format, RuntimeValue, Session};

use super::cache::Cache;
use super::eyes::{Eyes, Seen};
use super::model::{LanguageModel, Logits, Parts, Scores, check_prompt, matrix};

/// The most columns of prompts that a run reads unless told otherwise. Longer runs take more memory, and on ONNX Runtime's CPU
/// execution provider little or no less time.
const PROMPT_CHUNK: usize = 512;

/// A decoder: its text begins with the prompt. Prompts are padded on the left.
pub(super) struct Decoder {
    session: Box<dyn Session>,
    /// The names of the inputs of tokens or of their vectors, of their mask, and of their positions where there is one.
    ids: String,
    mask: String,
    positions: Option<String>,
    logits: Logits,
    vocabulary: i64,
    /// The longest text, prompt included.
    longest: usize,
    caching: bool,
    /// The most columns of prompts that a run reads, where that is asked for.
    prompt_chunk: Option<NonZeroUsize>,
    /// Whether a run of several columns after others takes one row only.
    cache_in_place: bool,
    /// The length of a row at which its cache is no longer valid.
    recompute_at: Option<usize>,
    /// The length from which on the keys of a token depend on the length of its row.
    length_dependence: Option<LengthDependence>,
    /// Whether the cache has states, which cannot be shortened.
    has_states: bool,
    /// Whether an engine runs, which is built for prompts of one run.
    is_engine: bool,
    /// What makes vectors of tokens and of images, where the decoder reads these.
    eyes: Option<Eyes>,
    rows: Vec<Tokens>,
    cache: Cache,
}

/// How many tokens may follow a prompt of a decoder with so many ids, of texts that are this long at most.
pub(super) fn room(prompt: &[i64], vocabulary: i64, longest: usize) -> Result<usize> {
    check_prompt(prompt, vocabulary)?;
    match longest.saturating_sub(prompt.len()) {
        0 => {
            let has = prompt.len();
            bail!("the prompt has {has} tokens and the model takes {longest}, new ones included; shorten it")
        }
        room => Ok(room),
    }
}

/// A row of tokens.
#[derive(Clone)]
struct Tokens {
    ids: Vec<i64>,
    /// Columns of padding before the first.
    padding: usize,
    /// What its prompt sees.
    seen: Seen,
}

impl Decoder {
    pub(super) fn load(parts: &Parts<'_>) -> Result<Self> {
        let part = parts.part(PartRole::Model)?;
        let session = parts.session(part)?;
        let manifest = &parts.artifact.manifest;
        let eyes = Eyes::load(parts, part)?;
        let (role, reader) = match &eyes {
            Some(_) => (InputRole::Embeddings, parts.part(PartRole::Embedder)?),
            None => (InputRole::TokenIds, part),
        };
        Ok(Self {
            cache: Cache::new(session.inputs(), part, part, |_| true),
            ids: part.named(role)?,
            mask: part.named(InputRole::Mask)?,
            positions: part.input_of(InputRole::Positions).map(|input| input.value.name.clone()),
            logits: Logits::of(part)?,
            vocabulary: parts.vocabulary(reader)?,
            longest: parts.longest(),
            session,
            caching: parts.loading.caching,
            prompt_chunk: parts.loading.prompt_chunk,
            cache_in_place: manifest.cache_in_place,
            recompute_at: manifest.recompute_at,
            // A manifest without `length_dependence` may have the length at which caches are recomputed.
            length_dependence: manifest.length_dependence.or(manifest.recompute_at.map(LengthDependence::From)),
            has_states: Cache::has_states(part),
            is_engine: parts.runtime.formats().contains(&Format::ENGINE),
            eyes,
            rows: Vec::new(),
        })
    }

    /// Reads all tokens of all rows, in chunks if their keys do not depend on what follows.
    fn restart(&mut self) -> Result<Vec<(String, RuntimeValue)>> {
        self.cache.clear(self.rows.len())?;
        self.read_after(0)
    }

    /// Reads the tokens of all rows after the first `start` columns, which the cache has.
    fn read_after(&mut self, mut start: usize) -> Result<Vec<(String, RuntimeValue)>> {
        let columns = self.columns();
        let longest = self.rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let takes_whole = self.is_engine || self.cache_in_place && self.rows.len() > 1;
        let usual = if takes_whole { columns } else { PROMPT_CHUNK };
        let asked = self.prompt_chunk.map(NonZeroUsize::get);
        let sees_whole = self.eyes.as_ref().is_some_and(Eyes::reads_whole_prompts);
        let chunk = match self.length_dependence {
            _ if !self.caching || sees_whole => columns,
            Some(LengthDependence::From(length)) if longest >= length => columns,
            Some(_) => asked.unwrap_or(usual),
            // A size that is asked for holds, and the text may then differ.
            None => asked.unwrap_or(columns),
        };
        while columns - start > chunk {
            self.run(start..start + chunk)?;
            start += chunk;
        }
        self.run(start..columns)
    }

    /// The columns of all rows, padding included.
    fn columns(&self) -> usize {
        self.rows.first().map_or(0, |row| row.padding + row.ids.len())
    }

    /// Runs the model on columns of all rows; those in front of them are in the cache.
    fn run(&mut self, columns: Range<usize>) -> Result<Vec<(String, RuntimeValue)>> {
        let last = |of_row: &dyn Fn(&Tokens) -> Vec<i64>| {
            let of_columns = |row: &Tokens| of_row(row)[columns.clone()].to_vec();
            matrix(self.rows.len(), self.rows.iter().flat_map(of_columns).collect())
        };
        // The mask hides padding: any id and any position do.
        let padded = |row: &Tokens, tokens: &mut dyn Iterator<Item = i64>| {
            std::iter::repeat_n(0, row.padding).chain(tokens).collect::<Vec<_>>()
        };
        let seen = |row: &Tokens| {
            let mut mask = padded(row, &mut row.ids.iter().map(|_| 1));
            mask.truncate(columns.end);
            mask
        };
        let mask = self.rows.iter().flat_map(seen);
        let ids = last(&|row| padded(row, &mut row.ids.iter().copied()))?;
        let rows: Vec<_> = self.rows.iter().map(|row| (row.ids.as_slice(), row.padding, row.seen)).collect();
        let read = match &mut self.eyes {
            None => ids,
            Some(eyes) => eyes.vectors(ids, &rows, &columns)?,
        };
        let mut tokens = vec![(&self.ids, read), (&self.mask, matrix(self.rows.len(), mask.collect())?)];
        if let Some(eyes) = &self.eyes {
            tokens.extend(eyes.types(&rows, &columns)?);
        }
        if let Some(positions) = &self.positions {
            let coordinates = self.eyes.as_ref().and_then(|eyes| eyes.positions(&rows, &columns));
            let value = match coordinates {
                Some(value) => value?,
                None => last(&|row| padded(row, &mut (0i64..).take(row.ids.len())))?,
            };
            tokens.push((positions, value));
        }
        let tokens = tokens.iter().map(|(name, value)| (name.as_str(), value));
        let inputs: Vec<(&str, &RuntimeValue)> = tokens.chain(self.cache.inputs()).collect();
        let mut outputs = self.session.run_values(&inputs)?;
        if self.caching {
            self.cache.update(&mut outputs)?;
        }
        Ok(outputs)
    }

    /// How many of some tokens after the only row one run reads, so that their keys are as they would be one by one.
    fn at_once(&self, tokens: usize) -> usize {
        let before = self.columns();
        match self.length_dependence {
            Some(LengthDependence::From(length)) if before < length => tokens.min(length - 1 - before).max(1),
            // From that length on, each length has its own frequencies.
            Some(LengthDependence::From(_)) if self.recompute_at.is_none() => 1,
            // The cache was recomputed at that length, and later lengths have the same frequencies.
            _ => tokens,
        }
    }

    /// How many tokens of a prompt the cache has, if they are the first of the only row. The last one is read in any case,
    /// because it gives the scores.
    fn cached(&self, prompt: &[i64]) -> usize {
        let [row] = &self.rows[..] else { return 0 };
        let longest = row.ids.len().max(prompt.len());
        let is_valid = match self.length_dependence {
            Some(LengthDependence::Never) => true,
            Some(LengthDependence::From(length)) => longest < length,
            None => false,
        };
        // Engines keep keys and values in memory that cannot be shortened.
        if !self.caching || self.is_engine || row.padding > 0 || !is_valid {
            return 0;
        }
        let same = row.ids.iter().zip(prompt).take_while(|(own, id)| own == id).count();
        if self.has_states && (same < row.ids.len() || same == prompt.len()) {
            return 0;
        }
        same.min(prompt.len().saturating_sub(1))
    }

    /// Whether the cache is not that of the rows as they are now.
    fn is_outgrown(&self) -> bool {
        // Rows that have not got there, or are beyond, are as well off.
        !self.caching || self.rows.iter().any(|row| Some(row.ids.len()) == self.recompute_at)
    }
}

impl LanguageModel for Decoder {
    fn vocabulary(&self) -> i64 {
        self.vocabulary
    }

    fn beginning(&self, prompt: &[i64]) -> Vec<i64> {
        prompt.to_vec()
    }

    fn room(&self, prompt: &[i64]) -> Result<usize> {
        room(prompt, self.vocabulary, self.longest)
    }

    fn show(&mut self, inputs: Vec<(String, planish_eval::Tensor)>) -> Result<()> {
        match &mut self.eyes {
            Some(eyes) => eyes.see(&inputs),
            None => bail!("the model reads tokens alone"),
        }
    }

    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        let columns = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let seen = match &mut self.eyes {
            Some(eyes) => eyes.share(prompts)?,
            None => vec![Seen::default(); prompts.len()],
        };
        let row = |(ids, seen): (&Vec<i64>, Seen)| Tokens { ids: ids.clone(), padding: columns - ids.len(), seen };
        self.rows = prompts.iter().zip(seen).map(row).collect();
        let mut outputs = self.restart()?;
        Scores::last(&mut outputs, &self.logits)
    }

    fn resume(&mut self, prompt: &[i64]) -> Result<(Scores, usize)> {
        let cached = self.cached(prompt);
        if cached == 0 {
            return Ok((self.start(&[prompt.to_vec()])?, 0));
        }
        if let Some(eyes) = &self.eyes {
            eyes.check(&[prompt.to_vec()])?;
        }
        self.forget(self.columns() - cached)?;
        for row in &mut self.rows {
            row.ids.extend(&prompt[cached..]);
            row.seen.prompt = row.ids.len();
        }
        let mut outputs = self.read_after(cached)?;
        Ok((Scores::last(&mut outputs, &self.logits)?, cached))
    }

    fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores> {
        let same = rows.iter().copied().eq(0..self.rows.len());
        if !same {
            self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        }
        self.rows.iter_mut().zip(ids).for_each(|(row, id)| row.ids.push(*id));
        let mut outputs = if self.is_outgrown() {
            self.restart()?
        } else {
            if !same {
                self.cache.take_rows(rows)?;
            }
            let columns = self.columns();
            self.run(columns - 1..columns)?
        };
        Scores::last(&mut outputs, &self.logits)
    }

    fn read(&mut self, ids: &[i64]) -> Result<Scores> {
        let before = self.columns();
        let ids = &ids[..self.at_once(ids.len())];
        self.rows.iter_mut().for_each(|row| row.ids.extend(ids));
        let mut outputs = match self.is_outgrown() {
            true => self.restart()?,
            false => self.run(before..before + ids.len())?,
        };
        Scores::columns(&mut outputs, ids.len(), &self.logits)
    }

    fn forget(&mut self, tokens: usize) -> Result<()> {
        self.rows.iter_mut().for_each(|row| row.ids.truncate(row.ids.len() - tokens));
        match self.caching && tokens > 0 {
            true => self.cache.keep_columns(self.columns()),
            false => Ok(()),
        }
    }
}
