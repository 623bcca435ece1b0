//! How far the choice of codes with data is, and how long the rest takes.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, Instant};

use crate::calibrate::CalibrationObserver;
use crate::compile::Observer;

/// How far the choice of codes with data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantizeProgress {
    /// How many samples were run, and how many there are to run; a sample counts as often as it is run.
    pub samples: [usize; 2],
    /// How many inputs of linear layers are done, whose layers have their codes, and how many there are.
    pub inputs: [usize; 2],
    /// How long the rest takes, if that is known.
    pub left: Option<Duration>,
}

impl fmt::Display for QuantizeProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples: [run, samples], inputs: [done, inputs], left } = self;
        write!(f, "sample {run} of {samples}, layers of {done} of {inputs} inputs")?;
        match left.map(|left| left.as_secs()) {
            Some(seconds @ 0..120) => write!(f, ", {seconds} s left"),
            Some(seconds @ 120..7200) => write!(f, ", {} min left", seconds.div_ceil(60)),
            Some(seconds) => write!(f, ", {} h left", seconds.div_ceil(3600)),
            None => Ok(()),
        }
    }
}

/// The operations in a second that layers are taken to have until the first one was measured.
const OPERATIONS: f64 = 2e10;

/// Follows the choice of codes: samples and layers take their own times.
pub(super) struct Progress<'a> {
    observer: &'a dyn Observer,
    state: RefCell<State>,
}

struct State {
    samples: [usize; 2],
    inputs: [usize; 2],
    /// The operations that layers take: those that are done, and all.
    operations: [f64; 2],
    sampling: Duration,
    choosing: Duration,
    /// When the last of them ended.
    last: Instant,
}

impl State {
    fn left(&self) -> Option<Duration> {
        let [run, samples] = self.samples;
        let [done, all] = self.operations;
        if run == 0 {
            return None;
        }
        let sampling = self.sampling.as_secs_f64() / run as f64 * (samples - run.min(samples)) as f64;
        let one = if done > 0.0 { self.choosing.as_secs_f64() / done } else { 1.0 / OPERATIONS };
        Duration::try_from_secs_f64(sampling + (all - done).max(0.0) * one).ok()
    }
}

impl<'a> Progress<'a> {
    /// For so many inputs, whose layers take so many operations.
    pub(super) fn new(observer: &'a dyn Observer, inputs: usize, operations: f64) -> Self {
        let (samples, inputs, operations) = ([0, 0], [0, inputs], [0.0, operations]);
        let (sampling, choosing) = (Duration::ZERO, Duration::ZERO);
        let state = State { samples, inputs, operations, sampling, choosing, last: Instant::now() };
        Self { observer, state: RefCell::new(state) }
    }

    /// The layers of an input, which take so many operations, have their codes.
    pub(super) fn chosen(&self, operations: f64) {
        self.step(|state, spent| {
            state.inputs[0] += 1;
            state.operations[0] += operations;
            state.choosing += spent;
        });
    }

    fn step(&self, f: impl FnOnce(&mut State, Duration)) {
        let mut state = self.state.borrow_mut();
        let spent = state.last.elapsed();
        f(&mut state, spent);
        state.last = Instant::now();
        let (samples, inputs, left) = (state.samples, state.inputs, state.left());
        self.observer.quantizing(&QuantizeProgress { samples, inputs, left });
    }
}

/// A warning may be given twice, because the model was loaded before.
impl CalibrationObserver for Progress<'_> {
    fn warning(&self, text: &str) {
        self.observer.warning(text);
    }

    fn progress(&self, done: usize, total: usize) {
        self.step(|state, spent| {
            // Nothing was run before the first of a group.
            if done > state.samples[0] {
                state.sampling += spent;
            }
            state.samples = [done, total];
        });
    }
}

/// The operations that the layers of an input take with GPTQ, by the columns of the input and the features of all layers.
pub(super) fn operations(columns: usize, features: usize) -> f64 {
    let columns = columns as f64;
    columns.powi(3) + features as f64 * columns.powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_comes_from_what_was_measured() {
        let state = |samples, operations| State {
            samples,
            inputs: [1, 4],
            operations,
            sampling: Duration::from_secs(10),
            choosing: Duration::from_secs(30),
            last: Instant::now(),
        };
        assert_eq!(state([0, 8], [0.0, 4e10]).left(), None);
        // A second for each sample, and two for the operations.
        assert_eq!(state([10, 18], [0.0, 4e10]).left(), Some(Duration::from_secs(10)));
        assert_eq!(state([10, 18], [1e10, 4e10]).left(), Some(Duration::from_secs(98)));
        assert_eq!(state([18, 18], [4e10, 4e10]).left(), Some(Duration::ZERO));
        let shown = |seconds| {
            let left = Some(Duration::from_secs(seconds));
            QuantizeProgress { samples: [3, 8], inputs: [1, 4], left }.to_string()
        };
        assert_eq!(shown(90), "sample 3 of 8, layers of 1 of 4 inputs, 90 s left");
        assert!(shown(200).ends_with("4 min left") && shown(10_000).ends_with("3 h left"));
    }
}
