//! When texts are read and when they are run.

use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context, Result};
use planish_data::chunks::{Chunk, Chunks};

use super::Run;

/// Reads chunks and runs each before the next one is read, for a runtime on the processor: it and the tokenizer have all threads
/// in turn. At the same time they would take the cores from each other, and the threads of the runtime wait for the last of them.
pub(super) fn in_turn(chunks: &Chunks<'_>, run: &mut Run<'_, '_>) -> Result<()> {
    let mut ran = Ok(());
    let read = chunks.read(|chunk| {
        ran = run.chunk(&chunk);
        ran.is_ok()
    });
    ran.and(read)
}

/// Runs chunks while a thread reads the next ones, for a runtime on a GPU: one is run, one waits, and one is read.
pub(super) fn ahead(chunks: &Chunks<'_>, run: &mut Run<'_, '_>) -> Result<()> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Chunk>(1);
        let reader = thread::Builder::new()
            .name("texts".to_owned())
            .spawn_scoped(scope, move || chunks.read(|chunk| sender.send(chunk).is_ok()))
            .context("cannot start a thread that reads texts")?;
        // The receiver is gone with the first error, which ends the reader.
        let ran = receiver.into_iter().try_for_each(|chunk| run.chunk(&chunk));
        let read = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
        ran.and(read)
    })
}
