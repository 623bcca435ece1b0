//! Windows over texts: how perplexity is measured of texts that are longer than one run.

use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use planish_data::RowInfo;
use planish_eval::Tensor;
use planish_ir::DType;
use serde::{Deserialize, Serialize};

use crate::positions::TextNames;

/// The most bytes of logits that one run gives, where it has several rows.
const LOGITS_BYTES: usize = 64 << 20;

/// The most rows of one run.
const ROWS: usize = 8;

/// The length of a window in tokens, and how far the next one is from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Windows {
    pub(super) length: usize,
    pub(super) stride: usize,
}

/// Names and tensors.
type Named = Vec<(String, Tensor)>;

/// A run of a language model.
pub(super) struct Run {
    pub(super) inputs: Named,
    /// For each row the place of the first token that is predicted, among the tokens of the row; earlier ones are context.
    pub(super) first: Vec<usize>,
    /// What is known of each row; nothing of windows.
    pub(super) rows: Vec<RowInfo>,
}

impl Windows {
    /// The windows of a text: the first token and the end of each, and the first token that it predicts. A text's first token
    /// has nothing before it, and is not predicted, and neither is the first one of a window that overlaps no earlier one. Every
    /// other token is predicted once.
    pub(super) fn of(self, tokens: usize) -> Vec<(usize, usize, usize)> {
        let (mut windows, mut start, mut predicted) = (Vec::new(), 0, 1);
        while predicted < tokens {
            let end = tokens.min(start + self.length);
            let first = predicted.max(start + 1);
            if first < end {
                windows.push((start, end, first));
            }
            predicted = end;
            start += self.stride;
        }
        windows
    }

    /// How many rows one run has at most, for a vocabulary of so many tokens.
    pub(super) fn rows(self, vocabulary: usize) -> NonZeroUsize {
        let row = self.length.saturating_mul(vocabulary).saturating_mul(size_of::<f32>());
        NonZeroUsize::new((LOGITS_BYTES / row.max(1)).min(ROWS)).unwrap_or(NonZeroUsize::MIN)
    }

    /// The runs of a batch: the batch itself where its rows fit a window, else the windows of its texts, so many in a run,
    /// padded on the left. `complete` adds the inputs that follow from ids and a mask.
    pub(super) fn runs(
        self,
        mut inputs: Named,
        rows: NonZeroUsize,
        names: &TextNames,
        complete: &dyn Fn(&mut Named) -> Result<()>,
    ) -> Result<Vec<Run>> {
        let ids = names.ids_of(&inputs).context("there are no token ids")?;
        let &[batch, width] = ids.shape() else {
            anyhow::bail!("token ids are {:?}, not [batch, tokens]", ids.shape())
        };
        if width <= self.length {
            complete(&mut inputs)?;
            return Ok(vec![Run { first: vec![1; batch], inputs, rows: Vec::new() }]);
        }
        let (dtype, mask) = (ids.dtype(), names.positions(&inputs));
        let numbers = ids.to_f64();
        let texts = numbers.chunks(width).enumerate().map(|(row, ids)| {
            let holds = |at: &usize| mask.as_ref().is_none_or(|mask| mask.hold(row, *at, width));
            (0..width).filter(holds).map(|at| ids[at]).collect::<Vec<f64>>()
        });
        let texts: Vec<Vec<f64>> = texts.collect();
        let cut = |text: &Vec<f64>| {
            self.of(text.len())
                .into_iter()
                .map(|(start, end, first)| (text[start..end].to_vec(), first - start))
                .collect()
        };
        let windows: Vec<(Vec<f64>, usize)> = texts.iter().flat_map(|text| -> Vec<_> { cut(text) }).collect();
        // Without a mask rows have to be of one length.
        let rows = if mask.is_some() { rows.get() } else { 1 };
        let run = |windows: &[(Vec<f64>, usize)]| {
            let mut inputs = padded(windows, dtype, names, mask.is_some()).context("windows do not fit a tensor")?;
            complete(&mut inputs)?;
            Ok(Run { inputs, first: windows.iter().map(|(_, first)| *first).collect(), rows: Vec::new() })
        };
        windows.chunks(rows).map(run).collect()
    }
}

/// Ids and a mask of rows that are padded on the left.
fn padded(
    windows: &[(Vec<f64>, usize)],
    dtype: DType,
    names: &TextNames,
    masked: bool,
) -> Option<Vec<(String, Tensor)>> {
    let width = windows.iter().map(|(ids, _)| ids.len()).max().unwrap_or(0);
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for (window, _) in windows {
        let padding = || std::iter::repeat_n(0.0, width - window.len());
        ids.extend(padding().chain(window.iter().copied()));
        mask.extend(padding().chain(window.iter().map(|_| 1.0)));
    }
    let shape = vec![windows.len(), width];
    let mut inputs = vec![(names.ids.clone()?, Tensor::from_f64(dtype, shape.clone(), &ids)?)];
    if masked {
        inputs.push((names.mask.clone()?, Tensor::from_f64(DType::I64, shape, &mask)?));
    }
    Some(inputs)
}

/// The ids of a run by row.
pub(super) fn ids(inputs: &[(String, Tensor)], names: &TextNames) -> Vec<Vec<usize>> {
    let Some(ids) = names.ids_of(inputs) else { return Vec::new() };
    let width = ids.shape().get(1).copied().unwrap_or(1).max(1);
    ids.to_f64().chunks(width).map(|row| row.iter().map(|id| *id as usize).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_but_the_first_is_predicted_once() {
        let windows = Windows { length: 4, stride: 2 };
        assert_eq!(windows.of(7), [(0, 4, 1), (2, 6, 4), (4, 7, 6)]);
        assert_eq!(windows.of(4), [(0, 4, 1)]);
        assert!(windows.of(1).is_empty() && windows.of(0).is_empty());
        for (length, stride) in [(1, 1), (2, 1), (4, 4), (5, 3), (8, 2)] {
            for tokens in 0..30 {
                let all = Windows { length, stride }.of(tokens);
                let predicted: Vec<usize> = all.iter().flat_map(|(_, end, first)| *first..*end).collect();
                assert!(all.iter().all(|(start, end, _)| end - start <= length));
                // Where windows do not overlap, the first token of each has nothing before it.
                let expected = (1..tokens).filter(|at| stride < length || at % stride != 0);
                assert_eq!(predicted, expected.collect::<Vec<_>>(), "{length}, {stride}, {tokens}");
            }
        }
    }

    #[test]
    fn windows_hold_the_real_tokens_padded_on_the_left() {
        let tensor = |numbers: &[i64]| Tensor::new(vec![2, 5], numbers.to_vec()).unwrap();
        let ids_given = tensor(&[1, 2, 3, 4, 5, 0, 0, 6, 7, 8]);
        let mask = tensor(&[1, 1, 1, 1, 1, 0, 0, 1, 1, 1]);
        let names = TextNames { ids: Some("input_ids".to_owned()), mask: Some("attention_mask".to_owned()) };
        let inputs = vec![("input_ids".to_owned(), ids_given), ("attention_mask".to_owned(), mask)];
        let windows = Windows { length: 3, stride: 2 };
        let rows = NonZeroUsize::new(2).unwrap();
        let complete = |_: &mut Vec<(String, Tensor)>| Ok(());
        let runs = windows.runs(inputs.clone(), rows, &names, &complete).unwrap();
        let seen: Vec<_> = runs.iter().map(|run| (ids(&run.inputs, &names), run.first.clone())).collect();
        assert_eq!(seen, [(vec![vec![1, 2, 3], vec![3, 4, 5]], vec![1, 1]), (vec![vec![6, 7, 8]], vec![1])]);
        let whole = Windows { length: 5, stride: 5 }.runs(inputs.clone(), rows, &names, &complete).unwrap();
        assert_eq!((whole.len(), &whole[0].inputs, &whole[0].first), (1, &inputs, &vec![1, 1]));
        let short = Windows { length: 4, stride: 4 }.runs(inputs, rows, &names, &complete).unwrap();
        assert_eq!(ids(&short[0].inputs, &names), [[1, 2, 3, 4], [0, 6, 7, 8]]);
    }

    #[test]
    fn rows_of_a_run_are_bounded_by_the_memory_of_logits() {
        let windows = Windows { length: 512, stride: 256 };
        assert_eq!(windows.rows(2048).get(), 8);
        assert_eq!(windows.rows(16384).get(), 2);
        assert_eq!(windows.rows(150_000).get(), 1);
    }
}
