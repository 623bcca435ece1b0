//! Which positions of a batch hold a token, and the parts of an output that belong to them.

use std::borrow::Cow;

use planish_artifact::chain::Chain;
use planish_eval::Tensor;
use planish_ir::InputRole;

/// The names of the inputs of texts, where a model has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextNames {
    /// Token ids.
    pub(crate) ids: Option<String>,
    /// Which positions hold a token.
    pub(crate) mask: Option<String>,
}

impl TextNames {
    /// Those of a model.
    pub(crate) fn of(chain: &Chain<'_>) -> Self {
        let inputs = chain.inputs();
        let named = |role: InputRole| {
            inputs.iter().find(|(_, input)| input.role == role).map(|(name, _)| name.clone().into_owned())
        };
        Self { ids: named(InputRole::TokenIds), mask: named(InputRole::Mask) }
    }

    /// The token ids among the inputs of a run.
    pub(crate) fn ids_of<'a>(&self, inputs: &'a [(String, Tensor)]) -> Option<&'a Tensor> {
        named(inputs, self.ids.as_deref())
    }

    /// The positions that hold a token in a run.
    pub(crate) fn positions(&self, inputs: &[(String, Tensor)]) -> Option<Positions> {
        Positions::of_mask(named(inputs, self.mask.as_deref())?)
    }
}

/// The tensor of a name.
fn named<'a>(inputs: &'a [(String, Tensor)], wanted: Option<&str>) -> Option<&'a Tensor> {
    inputs.iter().find(|(name, _)| Some(name.as_str()) == wanted).map(|(_, tensor)| tensor)
}

/// For each row of a batch, whether each position holds a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Positions(Vec<Vec<bool>>);

impl Positions {
    /// What a mask [batch, tokens] says; `None` where it has another form.
    pub(crate) fn of_mask(mask: &Tensor) -> Option<Self> {
        let &[_, width] = mask.shape() else { return None };
        let rows = mask.to_f64();
        Some(Self(rows.chunks(width.max(1)).map(|row| row.iter().map(|v| *v != 0.0).collect()).collect()))
    }

    /// The positions of a decoder's ids [batch, tokens]: all but the ids of padding that a row ends with. The first one always
    /// counts, because some models begin with the id of padding.
    pub(crate) fn of_decoder(ids: &Tensor, pad: Option<i64>) -> Self {
        let width = ids.shape().get(1).copied().unwrap_or(0).max(1);
        let row = |row: &[f64]| {
            let is_pad = |id: &f64| pad.is_some_and(|pad| *id == pad as f64);
            let padding = row.iter().skip(1).rev().take_while(|id| is_pad(id)).count();
            (0..row.len()).map(|at| at < row.len() - padding).collect()
        };
        Self(ids.to_f64().chunks(width).map(row).collect())
    }

    /// The first positions of each row.
    pub(crate) fn first(&self, count: usize) -> Self {
        Self(self.0.iter().map(|row| row[..count.min(row.len())].to_vec()).collect())
    }

    /// The number of positions of a row that hold a token; absent of a row that is not there.
    pub(crate) fn count_in(&self, row: usize) -> Option<usize> {
        self.0.get(row).map(|row| row.iter().filter(|holds| **holds).count())
    }

    /// The number of positions that hold a token.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().flatten().filter(|holds| **holds).count() as u64
    }

    /// Whether a position of an output with so many of them holds a token. The positions may be more: then they begin with
    /// those that were cached.
    pub(crate) fn hold(&self, row: usize, at: usize, tokens: usize) -> bool {
        let Some(row) = self.0.get(row) else { return true };
        row.len().checked_sub(tokens).is_none_or(|cached| row.get(cached + at).copied().unwrap_or(true))
    }
}

/// An output of the reference and the same output of the artifact.
pub(crate) struct Pair<'a> {
    shape: &'a [usize],
    wanted: Cow<'a, [f32]>,
    given: Cow<'a, [f32]>,
    /// The axis of tokens, and which of them count.
    tokens: Option<(usize, &'a Positions)>,
}

impl<'a> Pair<'a> {
    /// For two tensors of one shape.
    pub(crate) fn new(wanted: &'a Tensor, given: &'a Tensor, tokens: Option<(usize, &'a Positions)>) -> Self {
        let tokens = tokens.filter(|(axis, _)| *axis < wanted.shape().len());
        Self { shape: wanted.shape(), wanted: floats(wanted), given: floats(given), tokens }
    }

    /// Whether all numbers of the reference, and of the artifact, are finite at the positions that count.
    pub(crate) fn finite(&self) -> [bool; 2] {
        let mut all = [true; 2];
        self.for_each(|_, wanted, given| {
            all[0] &= wanted.iter().all(|v| v.is_finite());
            all[1] &= given.iter().all(|v| v.is_finite());
        });
        all
    }

    /// Calls with the place of the row in the batch and the numbers of both sides: for each position that counts, or, in an
    /// output that has nothing for each token, for each row.
    pub(crate) fn for_each(&self, mut call: impl FnMut(usize, &[f32], &[f32])) {
        let size = |dims: &[usize]| dims.iter().product::<usize>();
        let inner = size(self.shape.get(self.tokens.map_or(1, |(axis, _)| axis + 1)..).unwrap_or(&[]));
        let chunks = self.wanted.chunks_exact(inner.max(1)).zip(self.given.chunks_exact(inner.max(1)));
        for (at, (wanted, given)) in chunks.enumerate() {
            let row = match self.tokens {
                None => at,
                Some((axis, positions)) => {
                    let (tokens, middle) = (self.shape[axis], size(&self.shape[1.min(axis)..axis]));
                    let row = at / (tokens * middle).max(1);
                    if !positions.hold(row, at % tokens.max(1), tokens) {
                        continue;
                    }
                    row
                }
            };
            call(row, wanted, given);
        }
    }

    /// Calls with each pair of distributions: the last axis, or, where that is the axis of tokens, the positions that count.
    pub(crate) fn for_each_distribution(&self, mut call: impl FnMut(usize, &[f32], &[f32])) {
        let last = self.shape.len().saturating_sub(1);
        let Some((axis, _)) = self.tokens else {
            let size = self.shape.last().copied().unwrap_or(1).max(1);
            return self.for_each(|row, wanted, given| {
                wanted.chunks_exact(size).zip(given.chunks_exact(size)).for_each(|(w, g)| call(row, w, g));
            });
        };
        if axis != last {
            return self.for_each(call);
        }
        let mut rows: Vec<[Vec<f32>; 2]> = vec![Default::default(); self.shape[0]];
        self.for_each(|row, wanted, given| {
            rows[row][0].extend(wanted);
            rows[row][1].extend(given);
        });
        for (row, [wanted, given]) in rows.iter().enumerate().filter(|(_, [wanted, _])| !wanted.is_empty()) {
            call(row, wanted, given);
        }
    }
}

/// The elements as float32.
pub(crate) fn floats(tensor: &Tensor) -> Cow<'_, [f32]> {
    match tensor.as_f32() {
        Some(elements) => elements.into(),
        None => tensor.to_f64().into_iter().map(|v| v as f32).collect::<Vec<_>>().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(rows: usize, elements: &[i64]) -> Positions {
        let mask = Tensor::new(vec![rows, elements.len() / rows], elements.to_vec()).unwrap();
        Positions::of_mask(&mask).unwrap()
    }

    fn seen(
        shape: &[usize],
        axis: Option<usize>,
        positions: &Positions,
        distributions: bool,
    ) -> Vec<(usize, Vec<f32>)> {
        let numbers: Vec<f32> = (0..shape.iter().product::<usize>()).map(|n| n as f32).collect();
        let tensor = Tensor::new(shape.to_vec(), numbers).unwrap();
        let pair = Pair::new(&tensor, &tensor, axis.map(|axis| (axis, positions)));
        let mut seen = Vec::new();
        let call = |row: usize, wanted: &[f32], given: &[f32]| {
            assert_eq!(wanted, given);
            seen.push((row, wanted.to_vec()));
        };
        if distributions {
            pair.for_each_distribution(call)
        } else {
            pair.for_each(call)
        }
        seen
    }

    #[test]
    fn padding_is_left_out() {
        let positions = mask(2, &[1, 1, 0, 1]);
        assert_eq!(positions.count(), 3);
        let rows = seen(&[2, 2, 2], Some(1), &positions, false);
        assert_eq!(rows, [(0, vec![0.0, 1.0]), (0, vec![2.0, 3.0]), (1, vec![6.0, 7.0])]);
        // In a cache, [batch, heads, tokens, size], heads are before tokens.
        let rows = seen(&[2, 2, 2, 1], Some(2), &positions, false);
        let expected = [(0, 0.0), (0, 1.0), (0, 2.0), (0, 3.0), (1, 5.0), (1, 7.0)];
        assert_eq!(rows, expected.map(|(row, number)| (row, vec![number])));
        // A mask that is longer begins with what was cached.
        let rows = seen(&[1, 1, 1], Some(1), &mask(1, &[0, 0, 1]), false);
        assert_eq!(rows, [(0, vec![0.0])]);
    }

    #[test]
    fn what_has_nothing_for_each_token_counts_by_row() {
        let rows = seen(&[2, 3], None, &mask(2, &[1, 1, 0, 1]), false);
        assert_eq!(rows, [(0, vec![0.0, 1.0, 2.0]), (1, vec![3.0, 4.0, 5.0])]);
    }

    #[test]
    fn a_score_for_each_token_is_one_distribution_of_the_row() {
        let positions = mask(2, &[1, 1, 0, 1]);
        assert_eq!(seen(&[2, 2], Some(1), &positions, true), [(0, vec![0.0, 1.0]), (1, vec![3.0])]);
        assert_eq!(seen(&[2, 2, 1], Some(1), &positions, true).len(), 3);
        let rows = seen(&[2, 1, 2], None, &positions, true);
        assert_eq!(rows, [(0, vec![0.0, 1.0]), (1, vec![2.0, 3.0])]);
    }

    #[test]
    fn a_decoder_begins_with_a_token_and_ends_with_padding() {
        let ids = Tensor::new(vec![2, 4], vec![0i64, 5, 0, 0, 0, 0, 6, 7]).unwrap();
        let positions = Positions::of_decoder(&ids, Some(0));
        assert_eq!(positions, Positions(vec![vec![true, true, false, false], vec![true; 4]]));
        assert_eq!(positions.first(1).count(), 2);
        assert_eq!(Positions::of_decoder(&ids, None).count(), 8);
    }

    #[test]
    fn only_what_counts_has_to_be_finite() {
        let positions = mask(1, &[1, 0]);
        let [wanted, given] =
            [[1.0, f32::NAN], [f32::INFINITY, 1.0]].map(|row| Tensor::new(vec![1, 2], row.to_vec()).unwrap());
        assert_eq!(Pair::new(&wanted, &given, Some((1, &positions))).finite(), [true, false]);
        assert_eq!(Pair::new(&wanted, &wanted, None).finite(), [false, false]);
    }
}
