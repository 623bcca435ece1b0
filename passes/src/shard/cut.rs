//! How a tensor that is cut lies on the ranks.

use std::ops::Range;

use planish_ir::Dim;

/// Neighbours along an axis that are cut into pieces of the same size, one for each rank; or, with fewer pieces than ranks, one
/// for as many neighbouring ranks as there are copies of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// How many indices of the axis there are, on all ranks together.
    pub size: usize,
    /// How many ranks have each piece: 1 unless there are fewer pieces than ranks.
    pub copies: usize,
}

impl Run {
    /// The size of a piece.
    pub(super) fn piece(self, ranks: usize) -> usize {
        self.size / (ranks / self.copies)
    }

    /// The indices of the piece of a rank.
    fn range(self, ranks: usize, rank: usize) -> Range<usize> {
        let (piece, at) = (self.piece(ranks), rank / self.copies);
        at * piece..(at + 1) * piece
    }
}

/// An axis of a tensor of which each rank has a part: its pieces of the runs that make up the axis, after each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// The axis.
    pub axis: usize,
    /// The runs, in their order along the axis.
    pub runs: Vec<Run>,
}

impl Cut {
    /// A piece for each rank.
    pub(super) fn even(axis: usize, size: usize) -> Self {
        Self::copied(axis, size, 1)
    }

    /// Pieces that several ranks have.
    pub(super) fn copied(axis: usize, size: usize, copies: usize) -> Self {
        Self { axis, runs: vec![Run { size, copies }] }
    }

    /// The same along another axis.
    pub(super) fn along(&self, axis: usize) -> Self {
        Self { axis, runs: self.runs.clone() }
    }

    /// Whether pieces have the same size.
    pub(super) fn fits(&self, ranks: usize) -> bool {
        self.is_in_units(ranks, 1)
    }

    /// Whether pieces have the same size, which is a multiple of a number.
    pub(super) fn is_in_units(&self, ranks: usize, unit: usize) -> bool {
        let whole = |run: &Run| ranks.is_multiple_of(run.copies) && run.size.is_multiple_of(ranks / run.copies * unit);
        unit > 0 && self.runs.iter().all(whole)
    }

    /// Whether no piece is on two ranks.
    pub(super) fn is_apart(&self) -> bool {
        self.runs.iter().all(|run| run.copies == 1)
    }

    /// The size of the axis on all ranks together.
    pub(super) fn size(&self) -> usize {
        self.runs.iter().map(|run| run.size).sum()
    }

    /// The size of the axis on a rank.
    pub(super) fn local(&self, ranks: usize) -> usize {
        self.runs.iter().map(|run| run.piece(ranks)).sum()
    }

    /// The indices of the axis that a rank has, run by run.
    pub(super) fn ranges(&self, ranks: usize, rank: usize) -> Vec<Range<usize>> {
        let mut begin = 0;
        let range = |run: &Run| {
            let Range { start, end } = run.range(ranks, rank);
            begin += run.size;
            begin - run.size + start..begin - run.size + end
        };
        self.runs.iter().map(range).collect()
    }

    /// The runs of consecutive parts of the axis. `None` where a run is in two of them.
    pub(super) fn parts(&self, sizes: &[usize]) -> Option<Vec<Self>> {
        let mut runs = self.runs.iter().copied();
        let mut part = |size: &usize| {
            let (mut of, mut sum) = (Vec::new(), 0);
            while sum < *size {
                let run = runs.next()?;
                sum += run.size;
                of.push(run);
            }
            (sum == *size && !of.is_empty()).then_some(Self { axis: self.axis, runs: of })
        };
        sizes.iter().map(&mut part).collect()
    }

    /// The cut of the same elements under another shape, where ranks then have blocks of an axis too.
    pub(super) fn reshaped(&self, from: &[Dim], to: &[Dim], ranks: usize) -> Option<Self> {
        // The dimensions in front of the axis that become one with it, or from which it is split off.
        let (at, repeat) = (0..=self.axis).rev().find_map(|first| {
            let before = product(&from[..first])?;
            let at = (0..to.len()).rev().find(|at| product(&to[..*at]).as_ref() == Some(&before))?;
            let repeat = product(&from[first..self.axis])?.as_constant()?;
            Some((at, usize::try_from(repeat).ok()?))
        })?;
        let inner = product(&from[self.axis + 1..])?;
        placed(self.runs.repeat(repeat), &inner, to, at, ranks)
    }
}

/// Runs of blocks of `inner` elements as a cut of the dimension `at` of a shape, or of one after it.
fn placed(runs: Vec<Run>, inner: &Dim, to: &[Dim], at: usize, ranks: usize) -> Option<Cut> {
    let (size, rest) = (usize::try_from(to.get(at)?.as_constant()?).ok()?, product(&to[at + 1..])?);
    let total: usize = runs.iter().map(|run| run.size).sum();
    let factor = |a: &Dim, b: &Dim| usize::try_from(a.exact_div(b)?.as_constant()?).ok().filter(|n| *n > 0);
    if let Some(times) = factor(inner, &rest) {
        let runs = runs.iter().map(|run| Run { size: run.size * times, ..*run }).collect();
        return (size == total * times).then_some(Cut { axis: at, runs });
    }
    let by = factor(&rest, inner).filter(|by| size * by == total)?;
    let cut = Cut { axis: at, runs };
    if cut.is_in_units(ranks, by) {
        let runs = cut.runs.iter().map(|run| Run { size: run.size / by, ..*run }).collect();
        return Some(Cut { axis: at, runs });
    }
    // Each index of this dimension is a run.
    let first = *cut.runs.first()?;
    let alike = cut.runs.len() == size && cut.runs.iter().all(|run| *run == first);
    alike.then(|| placed(vec![first], inner, to, at + 1, ranks))?
}

fn product(dims: &[Dim]) -> Option<Dim> {
    dims.iter().try_fold(Dim::constant(1), |product, dim| product.checked_mul(dim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Vec<Dim> {
        let dim = |word: &str| word.parse().map_or_else(|_| Dim::symbol(word), Dim::constant);
        text.split_whitespace().map(dim).collect()
    }

    fn reshaped(axis: usize, sizes: &[usize], from: &str, to: &str, ranks: usize) -> Option<(usize, Vec<usize>)> {
        let runs = sizes.iter().map(|size| Run { size: *size, copies: 1 }).collect();
        let cut = Cut { axis, runs }.reshaped(&shape(from), &shape(to), ranks)?;
        Some((cut.axis, cut.runs.iter().map(|run| run.size).collect()))
    }

    #[test]
    fn heads_are_split_off_and_joined() {
        assert_eq!(reshaped(2, &[32], "b s 32", "b s 4 8", 2), Some((2, vec![4])));
        assert_eq!(reshaped(2, &[4], "b s 4 8", "b s 32", 2), Some((2, vec![32])));
        assert_eq!(reshaped(1, &[32], "b 32 s", "b 4 8 s", 4), Some((1, vec![4])));
        // A head would be on two ranks.
        assert_eq!(reshaped(2, &[32], "b s 32", "b s 4 8", 8), None);
        // Three matrices of heads, in front of the heads or as one axis.
        assert_eq!(reshaped(2, &[32, 32, 32], "b s 96", "b s 3 4 8", 2), Some((3, vec![4])));
        assert_eq!(reshaped(3, &[4], "b s 3 4 8", "b s 96", 2), Some((2, vec![32, 32, 32])));
        // Each head has its query, key and value.
        assert_eq!(reshaped(2, &[96], "b s 96", "b s 4 24", 4), Some((2, vec![4])));
        assert_eq!(reshaped(2, &[32], "b s 32", "b*s 32", 2), None, "another symbol");
        assert_eq!(reshaped(2, &[32], "b s 32", "b s 32 1", 2), Some((2, vec![32])));
        assert_eq!(reshaped(1, &[4], "b 4 s 8", "b 4 s 8", 2), Some((1, vec![4])));
    }

    #[test]
    fn ranks_have_their_pieces_of_each_run() {
        let cut = Cut { axis: 0, runs: vec![Run { size: 8, copies: 1 }, Run { size: 2, copies: 2 }] };
        assert!(cut.fits(4) && !cut.fits(3) && !cut.is_apart());
        assert_eq!((cut.size(), cut.local(4)), (10, 3));
        assert_eq!(cut.ranges(4, 0), [0..2, 8..9]);
        assert_eq!(cut.ranges(4, 3), [6..8, 9..10]);
        assert_eq!(cut.parts(&[8, 2]).unwrap().len(), 2);
        assert_eq!(cut.parts(&[4, 6]), None);
    }
}
