//! Bounds of time and memory for libraries that read files by unknown authors.
//!
//! Templates are programs and tokenizers are rules: a few bytes of either can ask for any amount of memory or time, and
//! the libraries that follow them check little of what they read. So they run on a thread of their own that is watched.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// What some work may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How long it may run.
    pub time: Duration,
    /// By how many bytes the resident memory of the process may grow meanwhile. Checked on Linux only.
    pub memory: u64,
}

/// The stack of a watched thread. Recursion of a template's or tokenizer's depth ends within it; pages that are not
/// touched take no memory.
const STACK_BYTES: usize = 512 << 20;

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// The most characters of an error that a file can word itself.
const MESSAGE_LENGTH: usize = 400;

/// Does some work, called `what` in errors, on a thread of its own. A panic of it is an error. Work beyond its bounds
/// is an error too; its thread goes on until the process ends, as nothing can stop it.
///
/// # Errors
/// When the work fails, panics, or takes more than it may, or no thread can be started.
pub fn watched<T: Send + 'static>(
    what: &str,
    bounds: Bounds,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = sync_channel(1);
    let (start, memory) = (Instant::now(), resident_bytes());
    let run = move || {
        // The receiver is gone where the work took too long.
        let _ = sender.send(caught(work));
    };
    thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(run)
        .with_context(|| format!("cannot start a thread for {what}"))?;
    loop {
        match receiver.recv_timeout(INTERVAL) {
            Ok(done) => return done.with_context(|| format!("{what} failed")),
            Err(RecvTimeoutError::Disconnected) => bail!("{what} failed: its thread ended"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if start.elapsed() > bounds.time {
            bail!("{what} does not end: stopped after {} s", bounds.time.as_secs());
        }
        let grown = resident_bytes().zip(memory).map_or(0, |(now, before)| now.saturating_sub(before));
        if grown > bounds.memory {
            bail!("{what} takes too much memory: stopped at {} MB", grown / 1_000_000);
        }
    }
}

/// Does some work; a panic of it is an error, and prints nothing.
///
/// # Errors
/// When the work fails or panics.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    planish_files::caught(work)
        .unwrap_or_else(|panic| Err(anyhow!("the library that reads it failed: {}", one_line(&panic))))
}

/// A message without line breaks, and of bounded length.
pub fn one_line(message: &str) -> String {
    let mut line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MESSAGE_LENGTH) {
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// The resident memory of this process, where the system tells it.
fn resident_bytes() -> Option<u64> {
    let status = planish_files::read_system("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { time: Duration::from_millis(300), memory: 64 << 20 };

    #[test]
    fn work_within_bounds_gives_its_result_or_error() {
        assert_eq!(watched("work", BOUNDS, || Ok(7)).unwrap(), 7);
        let error = watched::<()>("work", BOUNDS, || bail!("no")).unwrap_err();
        assert_eq!(format!("{error:#}"), "work failed: no");
    }

    #[test]
    fn panics_time_and_memory_are_errors() {
        let error = |done: Result<()>| format!("{:#}", done.unwrap_err());
        let panics = watched("work", BOUNDS, || panic!("index\n out of {}", "bounds"));
        assert_eq!(error(panics), "work failed: the library that reads it failed: index out of bounds");
        assert_eq!(error(caught(|| panic!("no"))), "the library that reads it failed: no");
        let endless = watched("work", BOUNDS, || {
            loop {
                thread::sleep(INTERVAL);
            }
        });
        assert_eq!(error(endless), "work does not end: stopped after 0 s");
        if resident_bytes().is_none() {
            return;
        }
        let patient = Bounds { time: Duration::from_secs(60), ..BOUNDS };
        let greedy = watched("work", patient, || {
            let mut held: Vec<Vec<u8>> = Vec::new();
            // It ends by itself, should nobody watch.
            while held.len() < 300 {
                held.push(vec![1; 1 << 20]);
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_secs(60));
            Ok(())
        });
        assert!(error(greedy).starts_with("work takes too much memory: stopped at "));
    }

    #[test]
    fn messages_are_one_short_line() {
        assert_eq!(one_line("a\n  b\tc "), "a b c");
        assert_eq!(one_line(&"é".repeat(1000)), "é".repeat(MESSAGE_LENGTH) + " ...");
    }
}
