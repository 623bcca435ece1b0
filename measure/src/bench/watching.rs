//! Observers that pass on a part of what a benchmark says.

use std::cell::RefCell;
use std::collections::BTreeSet;

use planish_check::evaluate::EvaluationObserver;

use super::sweep::{BenchObserver, Measured};

/// Passes each note on once: cells of one runtime have the same to say.
pub(super) struct Once<'a> {
    pub(super) observer: &'a mut dyn BenchObserver,
    pub(super) said: BTreeSet<String>,
}

impl BenchObserver for Once<'_> {
    fn is_ended(&self) -> bool {
        self.observer.is_ended()
    }

    fn begin(&mut self) {
        self.observer.begin();
    }

    fn progress(&mut self, share: f64) {
        self.observer.progress(share);
    }

    fn step(&mut self, text: &str) {
        self.observer.step(text);
    }

    fn measured(&mut self, cell: Measured<'_>) {
        self.observer.measured(cell);
    }

    fn warning(&mut self, text: &str) {
        self.observer.warning(text);
    }

    fn note(&mut self, text: &str) {
        if self.said.insert(text.to_owned()) {
            self.observer.note(text);
        }
    }
}

/// Passes on what is said while outputs are compared, but no figures.
pub(super) struct Checking<'a>(pub(super) &'a mut dyn BenchObserver);

impl BenchObserver for Checking<'_> {
    fn is_ended(&self) -> bool {
        self.0.is_ended()
    }

    fn progress(&mut self, _: f64) {}
    fn measured(&mut self, _: Measured<'_>) {}

    fn step(&mut self, text: &str) {
        self.0.step(text);
    }

    fn warning(&mut self, text: &str) {
        self.0.warning(text);
    }

    fn note(&mut self, text: &str) {
        self.0.note(text);
    }
}

/// Passes on what an evaluation says.
pub(super) struct Watching<'a>(pub(super) RefCell<&'a mut dyn BenchObserver>);

impl EvaluationObserver for Watching<'_> {
    fn warning(&self, text: &str) {
        self.0.borrow_mut().warning(text);
    }

    fn note(&self, text: &str) {
        self.0.borrow_mut().note(text);
    }

    fn progress(&self, done: usize, total: usize) {
        self.0.borrow_mut().step(&format!("comparing on data, {done} of {total} samples"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Notes(Vec<String>);

    impl BenchObserver for Notes {
        fn progress(&mut self, _: f64) {}
        fn measured(&mut self, _: Measured<'_>) {}
        fn warning(&mut self, text: &str) {
            self.0.push(format!("warning: {text}"));
        }
        fn note(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }

    #[test]
    fn a_note_is_said_once() {
        let mut notes = Notes::default();
        let mut once = Once { observer: &mut notes, said: BTreeSet::new() };
        for text in ["a", "b", "a"] {
            once.note(text);
            once.warning("w");
        }
        assert_eq!(notes.0, ["a", "warning: w", "b", "warning: w", "warning: w"]);
    }
}
