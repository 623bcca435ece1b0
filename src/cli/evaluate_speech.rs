//! Recordings written down for `planish evaluate`.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_check::evaluate::{EvaluateOptions, EvaluationObserver};
use planish_generate::{Segment, TranscribeObserver, TranscribeOptions, Transcribed, transcribe};

/// What `planish transcribe` writes of recordings without options of its own, a text each: the segments with a space between them.
pub(super) fn texts(
    artifact: &Artifact,
    recordings: &[(usize, PathBuf)],
    options: &EvaluateOptions,
    observer: &dyn EvaluationObserver,
) -> Result<Vec<String>> {
    let asked = TranscribeOptions {
        batch: options.data.batch.map_or(1, NonZeroUsize::get),
        numbers: recordings.iter().map(|(number, _)| *number).collect(),
        threads: options.threads,
        runtime: options.settings.clone(),
        ..TranscribeOptions::default()
    };
    let texts = RefCell::new(vec![String::new(); recordings.len()]);
    let listener = Listener { texts, done: Cell::new(0), observer };
    observer.progress(0, recordings.len());
    let paths: Vec<PathBuf> = recordings.iter().map(|(_, path)| path.clone()).collect();
    transcribe(artifact, &paths, &asked, &listener)?;
    Ok(listener.texts.into_inner())
}

/// Keeps what is written.
struct Listener<'a> {
    texts: RefCell<Vec<String>>,
    done: Cell<usize>,
    observer: &'a dyn EvaluationObserver,
}

impl TranscribeObserver for Listener<'_> {
    fn warning(&self, text: &str) {
        self.observer.warning(text);
    }

    fn began(&self, _: usize, _: f64) -> Result<()> {
        Ok(())
    }

    fn detected(&self, _: usize, _: &str, _: f64) -> Result<()> {
        Ok(())
    }

    fn segment(&self, recording: usize, segment: &Segment) -> Result<()> {
        let text = &mut self.texts.borrow_mut()[recording];
        if !text.is_empty() && !segment.text.is_empty() {
            text.push(' ');
        }
        text.push_str(&segment.text);
        Ok(())
    }

    fn progress(&self, _: usize, _: f64) -> Result<()> {
        Ok(())
    }

    fn ended(&self, _: usize, _: Transcribed) -> Result<()> {
        self.done.set(self.done.get() + 1);
        self.observer.progress(self.done.get(), self.texts.borrow().len());
        Ok(())
    }
}
