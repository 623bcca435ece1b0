//! What a process that runs cases writes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

/// The log of a process, and the message of its last panic.
pub struct Log {
    file: File,
    panicked: Arc<Mutex<String>>,
}

impl Log {
    /// Appends to a file. Panics of this process are kept for [`Log::end`] and not printed.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let panicked = Arc::new(Mutex::new(String::new()));
        let message = Arc::clone(&panicked);
        panic::set_hook(Box::new(move |info| {
            *message.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
        }));
        Ok(Self { file, panicked })
    }

    /// A case begins; `what` says what it is, where it ends the process.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(&mut self, case: u64, what: &str) -> Result<()> {
        forget_peak();
        self.line("begin", case, what)
    }

    /// The case goes on with something else.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn step(&mut self, case: u64, what: &str) -> Result<()> {
        self.line("step", case, what)
    }

    /// Something to be counted, besides how the case ends.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn count(&mut self, case: u64, what: &str) -> Result<()> {
        self.line("count", case, what)
    }

    /// The case ended: with this kind of end, which is a word, and what is to be said of it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn end(&mut self, case: u64, kind: &str, message: &str) -> Result<()> {
        self.line("end", case, &format!("{kind} {} {message}", peak()))
    }

    /// Runs something. A panic is an error with its message.
    ///
    /// # Errors
    /// The message of a panic.
    pub fn caught<T>(&self, run: impl FnOnce() -> T) -> Result<T, String> {
        let ended = panic::catch_unwind(AssertUnwindSafe(run));
        ended.map_err(|_| std::mem::take(&mut *self.panicked.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn line(&mut self, kind: &str, case: u64, text: &str) -> Result<()> {
        Ok(writeln!(self.file, "{kind} {case} {}", text.replace('\n', " "))?)
    }
}

/// Has the system count this process's peak of resident memory anew.
fn forget_peak() {
    // Where that is refused, the peak is that of all cases so far.
    let _ = File::options().write(true).open("/proc/self/clear_refs").and_then(|mut file| file.write_all(b"5"));
}

/// The peak of resident memory in kB, or 0 where the system does not say.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
