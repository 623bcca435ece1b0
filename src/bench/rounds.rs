//! The order in which cells are measured: visits of all of them in rounds, each round in another seeded order, so that a change
//! in the speed of the machine affects all of them.
//!
//! Cells that are compared with each other are of one group, and are visited in the same rounds until all of them are done.

use super::BenchOptions;
use super::sweep::BenchObserver;

/// The least number of visits before a narrow interval ends a cell: two for each part of the run whose drift is looked at.
pub(super) const LEAST_VISITS: usize = 8;

/// How far a cell is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Progress {
    /// It needs more visits; this share of them was made, from 0 to 1.
    Open(f64),
    /// It needs no more visits. It takes some as long as others of its group need theirs.
    Done,
    /// It takes no more visits.
    Ended,
}

/// What is visited.
pub(super) trait Visited {
    /// How far it is.
    fn progress(&self, options: &BenchOptions) -> Progress;
}

/// Visits cells, of which each has its group in `groups`, until all of them are done or the observer ends it. `tell` is called
/// for each cell once, when its group is done.
pub(super) fn take_turns<T: Visited>(
    cells: &mut [T],
    groups: &[usize],
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
    mut visit: impl FnMut(&mut T),
    mut tell: impl FnMut(&T, &mut dyn BenchObserver),
) {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut told = vec![false; cells.len()];
    let mut share = 0f64;
    loop {
        let progress: Vec<Progress> = cells.iter().map(|cell| cell.progress(options)).collect();
        let is_open = |group: usize| {
            groups.iter().zip(&progress).any(|(own, progress)| *own == group && matches!(progress, Progress::Open(_)))
        };
        for (at, cell) in cells.iter().enumerate() {
            if !told[at] && !is_open(groups[at]) {
                told[at] = true;
                tell(cell, observer);
            }
        }
        let shares = progress.iter().map(|progress| match progress {
            Progress::Open(share) => *share,
            Progress::Done | Progress::Ended => 1.0,
        });
        share = share.max(shares.sum::<f64>() / cells.len().max(1) as f64);
        observer.progress(share);
        let mut open: Vec<usize> =
            (0..cells.len()).filter(|&at| progress[at] != Progress::Ended && is_open(groups[at])).collect();
        if open.is_empty() {
            return;
        }
        random.shuffle(&mut open);
        for at in open {
            if observer.is_ended() {
                return;
            }
            visit(&mut cells[at]);
        }
    }
}
