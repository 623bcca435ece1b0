//! What a person sees while a model is compiled.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use planish_ir::Graph;
use planish_passes::PASSES;

use super::terminal::{is_error_terminal, say};
use super::{note, warn};
use crate::compile::Observer;
use crate::quantize::QuantizeProgress;

const WRITING: &str = "writing {bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta}";

/// Warnings and progress for a person; nothing of the progress in a pipe.
pub(super) struct Console {
    print_after: Option<String>,
    /// The passes that ran.
    ran: Mutex<BTreeSet<String>>,
    bar: ProgressBar,
}

impl Console {
    pub(super) fn new(print_after: Option<String>) -> Self {
        let terminal = is_error_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        Self { print_after, ran: Mutex::default(), bar }
    }

    /// Names the passes that ran, if the pass of `--print-ir-after` did not.
    pub(super) fn note_missing_pass(&self) {
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = self.print_after.as_ref().filter(|pass| !ran.contains(*pass)) {
            let all = PASSES.iter().map(|pass| pass.name).filter(|name| ran.contains(*name));
            let all = all.collect::<Vec<_>>().join(", ");
            let all = if all.is_empty() { "no pass ran".to_owned() } else { format!("these passes ran: {all}") };
            note(&format!("--print-ir-after {pass} printed no graph, because pass {pass} did not run; {all}"));
        }
    }
}

impl Observer for Console {
    fn warning(&self, text: &str) {
        warn(text);
    }

    fn note(&self, text: &str) {
        note(text);
    }

    fn graph(&self, pass: &str, graph: &Graph) {
        if self.print_after.is_some() {
            self.ran.lock().unwrap_or_else(PoisonError::into_inner).insert(pass.to_owned());
        }
        if self.print_after.as_deref() == Some(pass) {
            // For debugging, beside the command's own output.
            say(&format!("// after {pass}\n{graph}"));
        }
    }

    fn quantizing(&self, progress: &QuantizeProgress) {
        self.bar.set_style(ProgressStyle::default_spinner());
        self.bar.set_message(format!("quantizing: {progress}"));
    }

    fn begin_writing(&self, total: u64) {
        if let Ok(style) = ProgressStyle::with_template(WRITING) {
            self.bar.set_style(style);
        }
        self.bar.set_position(0);
        self.bar.set_length(total);
    }

    fn written(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn end_writing(&self) {
        self.bar.finish_and_clear();
    }
}
