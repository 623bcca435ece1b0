//! Folding what observers give into a table.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use planish_passes::calibration::{StatisticsError, TokenRows};
use planish_passes::{CalibrationTable, InputStatistics};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::run::{Broken, Captured, Choices, Seen, Sink};

/// What was seen so far.
pub(super) struct Statistics {
    /// Threads that fold; those of the process where absent.
    pool: Option<ThreadPool>,
    table: CalibrationTable,
    inputs: BTreeMap<String, BTreeMap<String, InputStatistics>>,
}

impl Captured {
    /// The rows.
    pub(super) fn rows(&self) -> Result<TokenRows<'_>> {
        let elements = self.tensor.as_f32().with_context(|| format!("`{}` is not float32 in memory", self.value))?;
        Ok(TokenRows { elements, columns: self.tensor.shape().last().copied().unwrap_or(1), ids: &self.ids })
    }

    /// The error on what it holds.
    pub(super) fn error(&self, part: &str, error: &StatisticsError) -> anyhow::Error {
        let reason = format!(
            "`{}` of {part} ({}) is an input of a layer that INT8 cannot hold: {error}; check the checkpoint and \
             the data",
            self.value, self.origin
        );
        Broken(reason).into()
    }
}

impl Sink for Statistics {
    fn ranges(&mut self, part: &str, seen: Vec<Seen>) {
        seen.iter().for_each(|seen| self.table.record(part, &seen.value, seen.range));
    }

    /// An input is folded by one thread, token after token.
    fn inputs(&mut self, part: &str, inputs: &[Captured], choices: &[Choices]) -> Result<()> {
        for chosen in choices {
            let mut counts = vec![0; chosen.experts];
            for expert in chosen.kept().flatten() {
                counts.get_mut(*expert).into_iter().for_each(|count| *count += 1);
            }
            self.table.record_choices(part, &chosen.result, &counts)?;
        }
        if inputs.is_empty() {
            return Ok(());
        }
        let known = self.inputs.entry(part.to_owned()).or_default();
        for input in inputs {
            let columns = input.rows()?.columns;
            known.entry(input.value.clone()).or_insert_with(|| InputStatistics::new(columns));
        }
        let own: BTreeMap<&str, (usize, &Captured)> =
            inputs.iter().enumerate().map(|(at, input)| (input.value.as_str(), (at, input))).collect();
        let of_run: Vec<_> =
            known.iter_mut().filter_map(|(value, statistics)| Some((*own.get(value.as_str())?, statistics))).collect();
        let fold = |((at, input), statistics): ((usize, &Captured), &mut InputStatistics)| -> Result<_> {
            Ok(statistics.add(input.rows()?).err().map(|error| (at, error)))
        };
        let folded = || of_run.into_par_iter().map(fold).collect::<Result<Vec<_>>>();
        let failed = match &self.pool {
            Some(pool) => pool.install(folded),
            None => folded(),
        }?;
        // That which is computed first may be the cause of others.
        match failed.into_iter().flatten().min_by_key(|(at, _)| *at) {
            None => Ok(()),
            Some((at, error)) => Err(inputs[at].error(part, &error)),
        }
    }
}

impl Statistics {
    /// Nothing yet, to be folded by so many threads.
    pub(super) fn new(threads: Option<u16>) -> Result<Self> {
        let pool = |threads: u16| ThreadPoolBuilder::new().num_threads(threads.into()).build();
        let pool = threads.map(pool).transpose().context("cannot start threads")?;
        Ok(Self { pool, table: CalibrationTable::default(), inputs: BTreeMap::new() })
    }

    pub(super) fn add_samples(&mut self, count: usize) {
        self.table.add_samples(count);
    }

    /// All that was seen.
    pub(super) fn into_table(mut self) -> Result<CalibrationTable> {
        for (part, values) in self.inputs {
            for (value, statistics) in values {
                self.table.record_input(&part, &value, statistics)?;
            }
        }
        Ok(self.table)
    }
}
