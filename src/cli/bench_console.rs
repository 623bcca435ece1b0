//! What `planish bench` prints on standard error while it prepares and measures.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use planish_compiler::calibrate::CalibrationObserver;
use planish_compiler::compile::Observer;
use planish_compiler::quantize::QuantizeProgress;
use planish_ir::Graph;
use planish_measure::bench::{BenchObserver, Measured, PrepareObserver};

use super::heartbeat::Heartbeat;
use super::signals::{asked_to_finish, finish_at_interrupt};
use super::terminal::{bars, is_error_terminal, progress};
use super::{note, warn};

/// Progress on standard error: a bar on a terminal, elsewhere a line a cell, and one after each long silence.
pub(super) struct Console {
    terminal: bool,
    pub(super) bar: ProgressBar,
    heartbeat: Heartbeat,
}

impl Console {
    pub(super) fn new() -> Self {
        let terminal = is_error_terminal();
        let bar = ProgressBar::with_draw_target(Some(1000), bars());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {percent}%, {eta}") {
            bar.set_style(style);
        }
        Self { terminal, bar, heartbeat: Heartbeat::of_pipe() }
    }
}

impl BenchObserver for Console {
    fn progress(&mut self, share: f64) {
        self.bar.set_position((share * 1000.0) as u64);
        self.heartbeat.step(&format!("measuring, {:.0} % done", share * 100.0));
    }

    fn step(&mut self, text: &str) {
        self.bar.set_message(text.to_owned());
        self.bar.tick();
        self.heartbeat.step(text);
    }

    fn measured(&mut self, cell: Measured<'_>) {
        if !self.terminal {
            progress(&cell.to_string());
            self.heartbeat.said();
        }
    }

    fn begin(&mut self) {
        finish_at_interrupt();
    }

    fn is_ended(&self) -> bool {
        asked_to_finish()
    }

    fn warning(&mut self, text: &str) {
        warn(text);
    }

    fn note(&mut self, text: &str) {
        note(text);
    }
}

/// What is said while models are compiled, each text once.
pub(super) struct Preparing {
    said: Mutex<BTreeSet<String>>,
    heartbeat: Heartbeat,
}

impl Preparing {
    pub(super) fn new() -> Self {
        Self { said: Mutex::default(), heartbeat: Heartbeat::of_pipe() }
    }

    fn once(&self, text: &str, say: fn(&str)) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
            say(text);
        }
    }
}

impl Observer for Preparing {
    fn warning(&self, text: &str) {
        self.once(text, warn);
    }

    fn note(&self, text: &str) {
        self.once(text, note);
    }

    fn graph(&self, _: &str, _: &Graph) {}

    fn quantizing(&self, progress: &QuantizeProgress) {
        self.heartbeat.done("quantizing", &progress.to_string());
    }

    fn begin_writing(&self, _: u64) {}
    fn written(&self, _: u64) {}
    fn end_writing(&self) {}
}

impl CalibrationObserver for Preparing {
    fn warning(&self, text: &str) {
        self.once(text, warn);
    }

    fn progress(&self, done: usize, total: usize) {
        self.heartbeat.step(&format!("calibrating, {done} of {total} samples"));
    }
}

impl PrepareObserver for Preparing {
    fn compiling(&self, label: &str) {
        self.heartbeat.step(&format!("compiling {label}"));
    }

    fn searching(&self, text: &str) {
        self.heartbeat.step(text);
    }

    fn left_out(&self, text: &str) {
        self.once(text, warn);
    }
}
