//! The scores that a model gives to the tokens that may come next.

use std::borrow::Cow;
use std::cell::OnceCell;

use anyhow::{Result, anyhow, bail};
use planish_artifact::manifest::PartManifest;
use planish_ir::OutputRole;
use planish_runtimes::{BestScores, RuntimeValue};

use super::model::output;

/// The logits of a part.
pub(super) struct Logits {
    /// The name of the output.
    name: String,
    /// How many of the scores are of tokens: fewer than it gives where the vocabulary is padded.
    scored: usize,
}

impl Logits {
    pub(super) fn of(part: &PartManifest) -> Result<Self> {
        let scored = part.padded_logits().map_or(usize::MAX, |vocabulary| vocabulary.size);
        Ok(Self { name: part.given(OutputRole::Logits)?, scored })
    }

    /// The scores of tokens for all columns of each row, out of the outputs of a run: [rows, columns, vocabulary]; and how many
    /// columns there are.
    pub(super) fn all_columns(&self, outputs: &mut Vec<(String, RuntimeValue)>) -> Result<(Vec<f32>, usize)> {
        let (logits, vocabulary) = logits(outputs, self)?;
        let columns = logits.shape()[1];
        Ok((last_columns(&logits, columns, vocabulary)?, columns))
    }
}

/// For each row a score of each token of the vocabulary to be the next: logits, none of them
/// NaN or infinitely large.
pub struct Scores {
    /// `logits`, [rows, columns, width], where the runtime has them and finds the best of them.
    on_device: Option<RuntimeValue>,
    /// [rows, vocabulary]; of a device's when all are needed.
    rows: OnceCell<Vec<f32>>,
    vocabulary: usize,
}

impl Scores {
    /// Those of the last column of the logits, [rows, columns, vocabulary]; those of tokens where there are more.
    pub(super) fn last(outputs: &mut Vec<(String, RuntimeValue)>, of: &Logits) -> Result<Self> {
        let (logits, vocabulary) = logits(outputs, of)?;
        if logits.finds_best() {
            return Ok(Self { on_device: Some(logits), rows: OnceCell::new(), vocabulary });
        }
        let rows = last_columns(&logits, 1, vocabulary)?;
        Ok(Self { on_device: None, rows: rows.into(), vocabulary })
    }

    /// Those of the last `count` columns of the only row, each as a row.
    pub(super) fn columns(outputs: &mut Vec<(String, RuntimeValue)>, count: usize, of: &Logits) -> Result<Self> {
        let (logits, vocabulary) = logits(outputs, of)?;
        if logits.shape()[1] < count {
            bail!(
                "the model gives logits of fewer tokens than it reads; compile it again, without --recipe logits=last"
            );
        }
        let rows = last_columns(&logits, count, vocabulary)?;
        Ok(Self { on_device: None, rows: rows.into(), vocabulary })
    }

    /// Those of rows, [rows, vocabulary].
    #[cfg(test)]
    pub(super) fn of_rows(rows: Vec<f32>, vocabulary: usize) -> Self {
        Self { on_device: None, rows: rows.into(), vocabulary }
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        match &self.on_device {
            Some(logits) => logits.shape()[0],
            None => self.rows.get().map_or(0, Vec::len) / self.vocabulary.max(1),
        }
    }

    /// The scores of a row, by id. Those of a device are all read from there.
    ///
    /// # Errors
    /// When they cannot be read, or are not finite.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> Result<&[f32]> {
        let rows = match (self.rows.get(), &self.on_device) {
            (None, Some(logits)) => {
                let rows = last_columns(logits, 1, self.vocabulary)?;
                self.rows.get_or_init(|| rows)
            }
            (rows, _) => rows.map_or(&[][..], Vec::as_slice),
        };
        Ok(&rows[row * self.vocabulary..][..self.vocabulary])
    }

    /// The `k` best of each row, found by the runtime where they are; `None` where it does not, and rows are to be
    /// [read](Self::row).
    ///
    /// # Errors
    /// When the runtime fails, or a score is not finite.
    pub fn best(&self, k: usize) -> Result<Option<Vec<BestScores>>> {
        let Some(logits) = &self.on_device else { return Ok(None) };
        let best =
            logits.best(self.vocabulary, k).map_err(|reason| anyhow!("the best tokens were not found: {reason}"))?;
        match best.iter().flatten().any(|row| row.log_sum.is_nan()) {
            true => Err(not_finite()),
            false => Ok(best),
        }
    }
}

/// The logits, [rows, columns, width], and how many of the scores are of tokens.
fn logits(outputs: &mut Vec<(String, RuntimeValue)>, of: &Logits) -> Result<(RuntimeValue, usize)> {
    let logits = output(outputs, &of.name)?;
    let (true, &[_, _, width]) = (logits.dtype().is_float(), logits.shape()) else {
        let (dtype, shape) = (logits.dtype(), logits.shape());
        bail!("`logits` is {dtype}{shape:?}; generation takes floats, [rows, columns, vocabulary]");
    };
    Ok((logits, width.min(of.scored)))
}

/// The first scores of the last `count` columns of [rows, columns, width], for all rows.
fn last_columns(logits: &RuntimeValue, count: usize, vocabulary: usize) -> Result<Vec<f32>> {
    let size = |axis: usize| logits.shape().get(axis).copied().unwrap_or(0);
    let (columns, width) = (size(1), size(2));
    let all: Cow<'_, [f32]> = match logits.as_f32() {
        Some(all) => all.into(),
        None => {
            let tensor = logits.to_tensor().ok_or_else(|| anyhow!("`logits` cannot be read from the runtime"))?;
            tensor.to_f64().into_iter().map(|v| v as f32).collect()
        }
    };
    let last =
        all.chunks((columns * width).max(1)).flat_map(|row| row[row.len() - count * width..].chunks(width.max(1)));
    let rows: Vec<f32> = last.flat_map(|scores| &scores[..vocabulary]).copied().collect();
    match rows.iter().any(|score| score.is_nan() || *score == f32::INFINITY) {
        true => Err(not_finite()),
        false => Ok(rows),
    }
}

fn not_finite() -> anyhow::Error {
    anyhow!("the model's logits are not finite; `planish verify` says how it compares with its source")
}
