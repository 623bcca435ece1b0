//! Attention within windows of a grid of tokens, which every second layer shifts (Liu et al. 2021, arXiv:2103.14030): which
//! tokens are in which window, and what is added to the scores of pairs of them.

use planish_ir::ops::{Concat, Expand, Gather};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::patches::dim;

/// Tokens by their places in the grid, row by row; `None` is a place beside the grid, which has zeros.
pub(crate) type Places = Vec<Option<usize>>;

/// Square windows side by side on a grid of tokens that is shifted up and to the left, with what leaves it at the other end.
/// Where they do not divide the grid, there are zeros after its rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Windows {
    /// Rows and columns of tokens.
    pub(crate) grid: [usize; 2],
    /// Rows and columns of a window.
    pub(crate) size: usize,
    /// By how many rows and columns the grid is shifted.
    pub(crate) shift: usize,
}

impl Windows {
    /// The number of windows along rows and columns.
    fn counts(self) -> [usize; 2] {
        self.grid.map(|side| side.div_ceil(self.size))
    }

    /// The number of windows.
    pub(crate) fn count(self) -> usize {
        self.counts().iter().product()
    }

    /// The number of tokens of a window.
    pub(crate) fn tokens(self) -> usize {
        self.size * self.size
    }

    /// Rows and columns with the zeros after them.
    fn padded(self) -> [usize; 2] {
        self.counts().map(|count| count * self.size)
    }

    /// Row and column in the shifted grid of a token of a window.
    fn place(self, window: usize, token: usize) -> [usize; 2] {
        let [_, across] = self.counts();
        let (row, column) = (window / across, window % across);
        [row * self.size + token / self.size, column * self.size + token % self.size]
    }

    /// Which token of the grid each token of each window is: window by window, or where the windows are shifted, as
    /// [`Windows::heads`] needs them, with the first tokens of all windows first.
    pub(crate) fn partition(self) -> Places {
        let of = |window: usize, token: usize| {
            let ([height, width], [tall, wide]) = (self.grid, self.padded());
            let [row, column] = self.place(window, token);
            let (row, column) = ((row + self.shift) % tall, (column + self.shift) % wide);
            (row < height && column < width).then_some(row * width + column)
        };
        let (windows, tokens) = (self.count(), self.tokens());
        match self.shift {
            0 => (0..windows * tokens).map(|at| of(at / tokens, at % tokens)).collect(),
            _ => (0..windows * tokens).map(|at| of(at % windows, at / windows)).collect(),
        }
    }

    /// Where the partition has each token of the grid.
    pub(crate) fn merge(self) -> Places {
        let mut places = vec![None; self.grid[0] * self.grid[1]];
        for (at, token) in self.partition().into_iter().enumerate() {
            if let Some(token) = token {
                places[token] = Some(at);
            }
        }
        places
    }

    /// What is added to the scores of pairs of tokens of a shifted window: `outside` where shifting brought them together
    /// from two ends of the grid, f32[windows, 1, tokens, tokens].
    pub(crate) fn mask(self, outside: f64) -> Option<Weight> {
        let region = |[row, column]: [usize; 2]| {
            let part = |at: usize, end: usize| usize::from(at + self.size >= end) + usize::from(at + self.shift >= end);
            let [tall, wide] = self.padded();
            (part(row, tall), part(column, wide))
        };
        let (windows, tokens) = (self.count(), self.tokens());
        let mut numbers = Vec::with_capacity(windows * tokens * tokens);
        for window in 0..windows {
            let regions: Vec<_> = (0..tokens).map(|token| region(self.place(window, token))).collect();
            for query in &regions {
                numbers.extend(regions.iter().map(|key| if key == query { 0.0 } else { outside }));
            }
        }
        Weight::numbers(DType::F32, vec![windows, 1, tokens, tokens], &numbers)
    }
}

/// The most pairs of tokens that have a number each.
const MAX_PAIRS: usize = 1 << 25;

/// Refuses more pairs of tokens than are computed: those of some tokens with `others` each.
pub(crate) fn check_pairs(b: &Builder<'_>, tokens: usize, others: usize) -> Result<(), ModelError> {
    match tokens.checked_mul(others) {
        Some(pairs) if pairs <= MAX_PAIRS => Ok(()),
        _ => Err(b.config.error(format!(
            "{tokens} tokens with {others} others each are more pairs than {MAX_PAIRS}; set sizes of images, patches and \
             windows to those of the checkpoint"
        ))),
    }
}

/// The row of a table of the distances in a grid of rows and columns, for each pair of tokens: that of the query less
/// that of the key, from the most negative on, row by row.
pub(crate) fn pairs([rows, columns]: [usize; 2]) -> Vec<usize> {
    let tokens = || (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
    let of = |query: [usize; 2], key: [usize; 2]| {
        (query[0] + rows - 1 - key[0]) * (2 * columns - 1) + query[1] + columns - 1 - key[1]
    };
    tokens().flat_map(|query| tokens().map(move |key| of(query, key))).collect()
}

/// Indices as a weight of a shape.
pub(crate) fn indices(b: &mut Builder<'_>, indices: &[usize], shape: &[usize], name: &str) -> ValueId {
    let indices: Vec<i64> = indices.iter().map(|index| i64::try_from(*index).unwrap_or(i64::MAX)).collect();
    let weight = Weight::integers(&indices).reshape(shape);
    let weight = weight.unwrap_or_else(|| unreachable!("there are as many indices as the shape says"));
    b.graph.add_weight(name, weight, Origin::Unknown)
}

/// What a table, [distances, heads], has for each pair of tokens: [heads, tokens, tokens]. `pairs` has the rows of pairs.
pub(crate) fn of_pairs(
    b: &mut Builder<'_>,
    table: ValueId,
    pairs: &[usize],
    module: &str,
) -> Result<ValueId, ModelError> {
    let tokens = pairs.len().isqrt();
    let table = b.transpose(table, &[1, 0], &format!("{module}.by_head"))?;
    let indices = indices(b, pairs, &[tokens, tokens], &format!("{module}.distances"));
    b.emit(Gather { x: table, indices, axis: 1 }, module)
}

/// Tokens in another order, [batch_size, tokens, features] to [batch_size, places, features].
pub(crate) fn order(
    b: &mut Builder<'_>,
    x: ValueId,
    places: &[Option<usize>],
    features: Size,
    module: &str,
) -> Result<ValueId, ModelError> {
    let tokens = b.graph.ty(x).shape.get(1).and_then(Dim::as_constant).and_then(|n| usize::try_from(n).ok());
    let tokens = tokens.unwrap_or_else(|| unreachable!("the number of tokens of a grid is known"));
    if places.len() == tokens && places.iter().enumerate().all(|(at, place)| *place == Some(at)) {
        return Ok(x);
    }
    let mut all = x;
    if places.contains(&None) {
        let zero = b.graph.add_scalar(&format!("{module}.zero"), DType::F32, 0.0);
        let shape = Shape::new([Dim::symbol(BATCH), dim(1), dim(features.value)]);
        let zeros = b.emit(Expand { x: zero, shape }, &format!("{module}.zeros"))?;
        all = b.emit(Concat { parts: vec![x, zeros], axis: 1 }, &format!("{module}.with_zeros"))?;
    }
    let places: Vec<usize> = places.iter().map(|place| place.unwrap_or(tokens)).collect();
    let indices = indices(b, &places, &[places.len()], &format!("{module}.places"));
    b.emit(Gather { x: all, indices, axis: 1 }, module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_side_by_side_have_each_token_once() {
        let windows = Windows { grid: [2, 4], size: 2, shift: 0 };
        let places: Vec<usize> = windows.partition().into_iter().flatten().collect();
        assert_eq!(places, [0, 1, 4, 5, 2, 3, 6, 7]);
        let back: Vec<usize> = windows.merge().into_iter().flatten().collect();
        assert_eq!(back, [0, 1, 4, 5, 2, 3, 6, 7]);
    }

    #[test]
    fn shifted_windows_pad_the_end_of_the_grid_and_know_its_ends() {
        // 3 by 3 tokens in windows of 2 by 2: a row and a column of zeros after them, all shifted by one.
        let windows = Windows { grid: [3, 3], size: 2, shift: 1 };
        assert_eq!((windows.count(), windows.tokens()), (4, 4));
        let first: Places = windows.partition().chunks(4).map(|windows| windows[0]).collect();
        assert_eq!(first, [Some(4), Some(5), Some(7), Some(8)]);
        let last: Places = windows.partition().chunks(4).map(|windows| windows[3]).collect();
        assert_eq!(last, [None, None, None, Some(0)]);
        for (token, place) in windows.merge().into_iter().enumerate() {
            assert_eq!(windows.partition()[place.unwrap()], Some(token));
        }
        let mask = windows.mask(-100.0).unwrap().read_numbers().unwrap();
        // No tokens of the first window are from two ends, all of the last are.
        assert!(mask[..16].iter().all(|number| *number == 0.0));
        let of_last = [0.0, -100.0, -100.0, -100.0, -100.0, 0.0];
        assert_eq!(mask[48..54], of_last);
    }

    #[test]
    fn pairs_are_numbered_by_distance() {
        assert_eq!(pairs([1, 2]), [1, 0, 2, 1]);
        assert_eq!(pairs([2, 1]), [1, 0, 2, 1]);
        let rows = pairs([2, 3]);
        // The first query and the last key, then the other way round.
        assert_eq!((rows[5], rows[30], rows[0]), (0, 14, 7));
    }
}
