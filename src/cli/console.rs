//! What a person sees while a model is compiled.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::units::bytes_text;
use planish_compiler::compile::Observer;
use planish_compiler::quantize::QuantizeProgress;
use planish_ir::Graph;
use planish_passes::PASSES;

use super::heartbeat::Heartbeat;
use super::terminal::{bars, say};
use super::{note, warn};

const WRITING: &str = "writing {bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta}";

/// Warnings and progress for a person; of the progress in a pipe one line after each long silence.
pub(super) struct Console {
    print_after: Option<String>,
    /// The passes that ran.
    ran: Mutex<BTreeSet<String>>,
    bar: ProgressBar,
    heartbeat: Heartbeat,
}

impl Console {
    pub(super) fn new(print_after: Option<String>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        let heartbeat = Heartbeat::of_pipe();
        heartbeat.step("loading");
        Self { print_after, ran: Mutex::default(), bar, heartbeat }
    }

    /// Names the passes that ran, if the pass of `--debug print=PASS` did not.
    pub(super) fn note_missing_pass(&self) {
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = self.print_after.as_ref().filter(|pass| !ran.contains(*pass)) {
            let all = PASSES.iter().map(|pass| pass.name).filter(|name| ran.contains(*name));
            let all = all.collect::<Vec<_>>().join(", ");
            let all = if all.is_empty() { "no pass ran".to_owned() } else { format!("these passes ran: {all}") };
            note(&format!("--debug print={pass} printed no graph, because pass {pass} did not run; {all}"));
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
        self.heartbeat.done("running passes", &format!("{pass} done"));
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
        self.heartbeat.done("quantizing", &progress.to_string());
    }

    fn begin_writing(&self, total: u64) {
        if let Ok(style) = ProgressStyle::with_template(WRITING) {
            self.bar.set_style(style);
        }
        self.bar.set_position(0);
        self.bar.set_length(total);
        self.heartbeat.step("writing");
    }

    fn written(&self, bytes: u64) {
        self.bar.inc(bytes);
        let (written, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
        self.heartbeat.done("writing", &format!("{} of {}", bytes_text(written), bytes_text(total)));
    }

    fn end_writing(&self) {
        self.bar.finish_and_clear();
        self.heartbeat.idle();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn silences_while_codes_are_chosen_are_broken() {
        let (say, said) = mpsc::channel();
        let heartbeat = Heartbeat::new(Duration::from_millis(20), move |text| _ = say.send(text.to_owned()));
        let bar = ProgressBar::hidden();
        let console = Console { print_after: None, ran: Mutex::default(), bar, heartbeat };
        console.quantizing(&QuantizeProgress { samples: [8, 8], inputs: [1, 4], left: Some(Duration::from_secs(90)) });
        let text = said.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(text, "quantizing, sample 8 of 8, layers of 1 of 4 inputs, 90 s left: 0 s so far");
        console.end_writing();
        while said.try_recv().is_ok() {}
        assert!(said.recv_timeout(Duration::from_millis(100)).is_err(), "what is written is done");
    }
}
