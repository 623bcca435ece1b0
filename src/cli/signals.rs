//! Signals that end a command. The command leaves no partial output, and its exit code names the signal.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use planish_artifact::files::unfinished::PROCESS;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{exit, signal_name};

use super::warn;

/// What shells add to a signal's number for the exit code of the command that it ended.
const EXIT_CODE: i32 = 128;

/// Has SIGHUP, SIGINT and SIGTERM end the process, whatever it does, with the exit codes 129, 130 and 143. What
/// it has begun is removed; what is in its place stays, and with it the command goes on to its end, unless a
/// second signal comes. A signal that the parent process has this one ignore, as `nohup` does, stays ignored.
pub(super) fn handle() {
    let ignored = ignored();
    let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    // Without handlers a signal ends the process all the same, and the next run cleans up.
    let Ok(mut signals) = Signals::new(wanted) else { return };
    let wait = move || {
        for signal in signals.forever() {
            if signal == SIGINT && FINISHING.compare_exchange(READY, ASKED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                continue;
            }
            // Other threads are at work: nothing may be torn down below them, so no exit handlers run.
            PROCESS.interrupt(|| exit(EXIT_CODE + signal));
        }
    };
    if thread::Builder::new().name("signals".to_owned()).spawn(wait).is_err() {
        let name = signal_name(SIGINT).unwrap_or_default();
        warn(&format!("no thread can be started to wait for {name}: only SIGKILL ends the command"));
    }
}

/// Whether a command finishes by itself at the first SIGINT.
static FINISHING: AtomicU8 = AtomicU8::new(NEVER);
/// It does not: SIGINT ends it.
const NEVER: u8 = 0;
/// It does.
const READY: u8 = 1;
/// The first SIGINT has come; the next one ends the command.
const ASKED: u8 = 2;

/// From now on the first SIGINT only has [`asked_to_finish`] say so.
pub(super) fn finish_at_interrupt() {
    FINISHING.store(READY, Ordering::SeqCst);
}

/// From now on a SIGINT ends the command again.
pub(super) fn end_at_interrupt() {
    FINISHING.store(NEVER, Ordering::SeqCst);
}

/// Whether a SIGINT has come since [`finish_at_interrupt`].
pub(super) fn asked_to_finish() -> bool {
    FINISHING.load(Ordering::SeqCst) == ASKED
}

/// The user ended a command, which has shown what was finished.
#[derive(Debug, thiserror::Error)]
#[error("ended by SIGINT: {0}")]
pub(super) struct Interrupted(pub(super) String);

impl Interrupted {
    /// The exit code.
    pub(super) const CODE: u8 = 130;
}

/// The signals that this process ignores, a bit each from 1 on, as Linux lists them.
fn ignored() -> u64 {
    let status = planish_files::read_system("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
