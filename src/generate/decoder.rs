//! A decoder on a runtime, and its cache of keys and values.

use anyhow::{Result, bail};
use planish_runtimes::{RuntimeValue, Session};

use super::cache::Cache;
use super::model::{LanguageModel, Parts, Scores, check_prompt, matrix};

/// A decoder: its text begins with the prompt. Prompts are padded on the left.
pub(super) struct Decoder {
    session: Box<dyn Session>,
    takes_positions: bool,
    vocabulary: i64,
    /// How many of the scores that the model gives are of tokens.
    scored: usize,
    /// The longest text, prompt included.
    longest: usize,
    caching: bool,
    /// The length of a row at which its cache is no longer valid.
    recompute_at: Option<usize>,
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
}

impl Decoder {
    pub(super) fn load(parts: &Parts<'_>) -> Result<Self> {
        let session = parts.session("model")?;
        Ok(Self {
            cache: Cache::new(session.inputs(), ""),
            takes_positions: session.inputs().iter().any(|port| port.name == "position_ids"),
            vocabulary: parts.vocabulary("model")?,
            scored: parts.scored("model"),
            longest: parts.longest(),
            session,
            caching: parts.loading.caching,
            recompute_at: parts.artifact.manifest.recompute_at,
            rows: Vec::new(),
        })
    }

    /// Reads all tokens of all rows.
    fn restart(&mut self) -> Result<Scores> {
        self.cache.clear(self.rows.len())?;
        self.run(self.rows.first().map_or(0, |row| row.padding + row.ids.len()))
    }

    /// Runs the model on the last columns of all rows.
    fn run(&mut self, columns: usize) -> Result<Scores> {
        let last = |of_row: &dyn Fn(&Tokens) -> Vec<i64>| {
            let tail = |row: &Tokens| {
                let all = of_row(row);
                all[all.len().saturating_sub(columns)..].to_vec()
            };
            matrix(self.rows.len(), self.rows.iter().flat_map(tail).collect())
        };
        // The mask hides padding: any id and any position do.
        let padded = |row: &Tokens, tokens: &mut dyn Iterator<Item = i64>| {
            std::iter::repeat_n(0, row.padding).chain(tokens).collect::<Vec<_>>()
        };
        let mask = self.rows.iter().flat_map(|row| padded(row, &mut row.ids.iter().map(|_| 1)));
        let mut tokens = vec![
            ("input_ids", last(&|row| padded(row, &mut row.ids.iter().copied()))?),
            ("attention_mask", matrix(self.rows.len(), mask.collect())?),
        ];
        if self.takes_positions {
            tokens.push(("position_ids", last(&|row| padded(row, &mut (0i64..).take(row.ids.len())))?));
        }
        let tokens = tokens.iter().map(|(name, value)| (*name, value));
        let inputs: Vec<(&str, &RuntimeValue)> = tokens.chain(self.cache.inputs()).collect();
        let mut outputs = self.session.run_values(&inputs)?;
        if self.caching {
            self.cache.update(&mut outputs)?;
        }
        Scores::last(&mut outputs, self.scored)
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

    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        let columns = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let row = |ids: &Vec<i64>| Tokens { ids: ids.clone(), padding: columns - ids.len() };
        self.rows = prompts.iter().map(row).collect();
        self.restart()
    }

    fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores> {
        let same = rows.iter().copied().eq(0..self.rows.len());
        if !same {
            self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        }
        self.rows.iter_mut().zip(ids).for_each(|(row, id)| row.ids.push(*id));
        // Rows that have not got there, or are beyond, are as well off.
        let outgrown = self.rows.iter().any(|row| Some(row.ids.len()) == self.recompute_at);
        if outgrown || !self.caching {
            return self.restart();
        }
        if !same {
            self.cache.take_rows(rows)?;
        }
        self.run(1)
    }
}
