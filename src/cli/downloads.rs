//! What a person sees of models that are downloaded.

use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::units::bytes_text;
use planish_hub::{HubError, Observer};

use super::heartbeat::Heartbeat;
use super::note;
use super::terminal::bars;

const DOWNLOADING: &str = "downloading {bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} {msg}";

/// Shows a person what comes: a bar on a terminal, and in a pipe a line after each long silence.
pub(super) struct Progress {
    pub(super) bar: ProgressBar,
    pub(super) heartbeat: Heartbeat,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        if let Ok(style) = ProgressStyle::with_template(DOWNLOADING) {
            bar.set_style(style);
        }
        Self { bar, heartbeat: Heartbeat::of_pipe() }
    }

    pub(super) fn has_come(&self) -> bool {
        self.bar.position() > 0
    }

    fn tell(&self) {
        let (have, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        self.heartbeat.done("downloading", &format!("{} of {}", bytes_text(have), bytes_text(all)));
    }
}

impl Observer for Progress {
    fn begins(&self, file: &str, _bytes: Option<u64>, have: u64) {
        self.bar.set_message(file.to_owned());
        self.bar.inc(have);
        self.tell();
    }

    fn comes(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.tell();
    }

    fn loses(&self, bytes: u64) {
        self.bar.set_position(self.bar.position().saturating_sub(bytes));
    }

    fn waits(&self, why: &str) {
        self.bar.suspend(|| note(why));
        self.heartbeat.said();
    }

    fn takes_cache(&self, why: &HubError, what: &str) {
        let text = format!("{why}; {what} is taken");
        self.bar.suspend(|| super::warn(&text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
