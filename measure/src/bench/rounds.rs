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
/// once for each cell that is done, when it takes no more visits.
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
            let is_last = match progress[at] {
                Progress::Open(_) => false,
                Progress::Done => !is_open(groups[at]) || observer.is_ended(),
                Progress::Ended => true,
            };
            if is_last && !told[at] {
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
        if open.is_empty() || observer.is_ended() {
            return;
        }
        random.shuffle(&mut open);
        for at in open {
            if !observer.is_ended() {
                visit(&mut cells[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::Measured;
    use super::*;

    /// A cell that is done after `done` visits and takes `most` at most.
    struct Counted {
        visits: usize,
        done: usize,
        most: usize,
    }

    impl Visited for Counted {
        fn progress(&self, _: &BenchOptions) -> Progress {
            match self.visits {
                visits if visits >= self.most => Progress::Ended,
                visits if visits >= self.done => Progress::Done,
                visits => Progress::Open(visits as f64 / self.done as f64),
            }
        }
    }

    /// Ends the benchmark once so many visits were made.
    struct Ending<'a>(&'a RefCell<usize>, usize);

    impl BenchObserver for Ending<'_> {
        fn progress(&mut self, _: f64) {}
        fn measured(&mut self, _: Measured<'_>) {}
        fn warning(&mut self, _: &str) {}
        fn note(&mut self, _: &str) {}
        fn is_ended(&self) -> bool {
            *self.0.borrow() >= self.1
        }
    }

    /// The visits of each cell, and the cells in the order in which they were told, with their visits then.
    fn turns(cells: &[(usize, usize)], groups: &[usize], most: usize) -> (Vec<usize>, Vec<(usize, usize)>) {
        let mut cells: Vec<Counted> = cells.iter().map(|&(done, most)| Counted { visits: 0, done, most }).collect();
        let (count, mut told) = (RefCell::new(0), Vec::new());
        let visit = |cell: &mut Counted| {
            cell.visits += 1;
            *count.borrow_mut() += 1;
        };
        let tell = |cell: &Counted, _: &mut dyn BenchObserver| told.push((cell.done, cell.visits));
        take_turns(&mut cells, groups, &BenchOptions::default(), &mut Ending(&count, most), visit, tell);
        (cells.iter().map(|cell| cell.visits).collect(), told)
    }

    #[test]
    fn cells_of_a_group_stay_together_until_all_are_done() {
        // The first one takes part until the second one is done, the third one has had its time before, the last one is alone.
        let (visits, told) = turns(&[(2, 100), (9, 100), (3, 4), (1, 100)], &[0, 0, 0, 1], usize::MAX);
        assert_eq!(visits, [9, 9, 4, 1]);
        assert_eq!(told, [(1, 1), (3, 4), (2, 9), (9, 9)]);
    }

    #[test]
    fn what_is_done_is_told_when_the_benchmark_is_ended() {
        let (visits, told) = turns(&[(2, 100), (9, 100)], &[0, 0], 8);
        assert_eq!((visits, told), (vec![4, 4], vec![(2, 4)]));
        assert_eq!(turns(&[(2, 100)], &[0], 0), (vec![0], Vec::new()));
    }
}
