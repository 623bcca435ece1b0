//! What `planish bench` prints on standard error while it prepares and measures.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use planish_ir::Graph;

use super::signals::{asked_to_finish, finish_at_interrupt};
use super::{note, warn};
use crate::bench::{BenchObserver, Measured, PrepareObserver};
use crate::calibrate::CalibrationObserver;
use crate::compile::Observer;

/// Progress on standard error: a bar on a terminal, elsewhere a line a cell.
pub(super) struct Console {
    terminal: bool,
    pub(super) bar: ProgressBar,
}

impl Console {
    pub(super) fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) = ProgressStyle::with_template("measuring {bar:30} {percent}%, {eta}") {
            bar.set_style(style);
        }
        Self { terminal, bar }
    }
}

impl BenchObserver for Console {
    fn progress(&mut self, share: f64) {
        self.bar.set_position((share * 1000.0) as u64);
    }

    fn measured(&mut self, cell: Measured<'_>) {
        if !self.terminal {
            // Standard error may be closed; the figures are what counts.
            let _ = writeln!(io::stderr(), "{cell}");
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
#[derive(Default)]
pub(super) struct Preparing(Mutex<BTreeSet<String>>);

impl Preparing {
    fn once(&self, text: &str, say: fn(&str)) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
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
    fn begin_writing(&self, _: u64) {}
    fn written(&self, _: u64) {}
    fn end_writing(&self) {}
}

impl CalibrationObserver for Preparing {
    fn warning(&self, text: &str) {
        self.once(text, warn);
    }

    fn progress(&self, _: usize, _: usize) {}
}

impl PrepareObserver for Preparing {
    fn left_out(&self, text: &str) {
        self.once(text, warn);
    }
}
