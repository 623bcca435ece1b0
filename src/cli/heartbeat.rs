//! A line from time to time while nothing else is said, where standard error is no terminal: what goes on, and for how long.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::terminal::{is_error_terminal, progress};

/// How long it may be silent.
const SILENCE: Duration = Duration::from_secs(30);

/// Says what goes on after each period of silence, until it is dropped.
pub(super) struct Heartbeat {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    step: String,
    /// How far the step is.
    done: String,
    /// When the step began, and when something was said last.
    begun: Instant,
    said: Instant,
    is_ended: bool,
}

impl Heartbeat {
    /// Calls `say` after each period of silence.
    pub(super) fn new(silence: Duration, mut say: impl FnMut(&str) + Send + 'static) -> Self {
        let now = Instant::now();
        let state =
            Mutex::new(State { step: String::new(), done: String::new(), begun: now, said: now, is_ended: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let own = Arc::clone(&shared);
        // Without a thread nothing is said in between, which is no reason to fail.
        let thread =
            thread::Builder::new().name("heartbeat".to_owned()).spawn(move || own.beat(silence, &mut say)).ok();
        Self { shared, thread }
    }

    /// One for standard error, which says nothing where a terminal shows progress in other ways.
    pub(super) fn of_pipe() -> Self {
        if is_error_terminal() {
            return Self::silent();
        }
        // Standard error may be closed; what the command was asked for is what counts.
        Self::new(SILENCE, progress)
    }

    /// One that progresss nothing.
    fn silent() -> Self {
        let now = Instant::now();
        let state =
            Mutex::new(State { step: String::new(), done: String::new(), begun: now, said: now, is_ended: true });
        Self { shared: Arc::new(Shared { state, changed: Condvar::new() }), thread: None }
    }

    /// Something begins that may take long. A step whose text differs in its numbers only goes on.
    pub(super) fn step(&self, text: &str) {
        let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        self.shared.with(|state| {
            if words(&state.step) != words(text) {
                state.begun = Instant::now();
            }
            text.clone_into(&mut state.step);
            state.done.clear();
        });
    }

    /// A step is so far, in words that may change while it goes on.
    pub(super) fn done(&self, step: &str, done: &str) {
        self.shared.with(|state| {
            if state.step != step {
                state.begun = Instant::now();
                step.clone_into(&mut state.step);
            }
            done.clone_into(&mut state.done);
        });
    }

    /// Nothing goes on that may take long.
    pub(super) fn idle(&self) {
        self.shared.with(|state| state.step.clear());
    }

    /// Something was said.
    pub(super) fn said(&self) {
        self.shared.with(|state| state.said = Instant::now());
    }
}

impl Shared {
    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn beat(&self, silence: Duration, say: &mut dyn FnMut(&str)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_ended {
            let left = (state.said + silence).saturating_duration_since(Instant::now());
            if left.is_zero() {
                if !state.step.is_empty() {
                    let done = if state.done.is_empty() { String::new() } else { format!(", {}", state.done) };
                    say(&format!("{}{done}: {} s so far", state.step, state.begun.elapsed().as_secs()));
                }
                state.said = Instant::now();
            } else {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.shared.with(|state| state.is_ended = true);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_long_silence_is_broken() {
        let (say, said) = mpsc::channel();
        let heartbeat = Heartbeat::new(Duration::from_millis(20), move |text| _ = say.send(text.to_owned()));
        heartbeat.step("measuring, 1 of 2 done");
        heartbeat.step("measuring, 2 of 2 done");
        let text = said.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(text.starts_with("measuring, 2 of 2 done: ") && text.ends_with(" s so far"), "{text}");
        drop(heartbeat);
        while said.try_recv().is_ok() {}
        thread::sleep(Duration::from_millis(50));
        assert!(said.try_recv().is_err(), "nothing is said after its end");
    }

    /// The time is that of the step, whatever is said of how far it is.
    #[test]
    fn a_step_goes_on_while_more_of_it_is_done() {
        let (say, said) = mpsc::channel();
        let heartbeat = Heartbeat::new(Duration::from_millis(300), move |text| _ = say.send(text.to_owned()));
        heartbeat.done("quantizing", "layers of 1 of 2 inputs, 2 min left");
        thread::sleep(Duration::from_millis(1100));
        heartbeat.done("quantizing", "layers of 2 of 2 inputs, 90 s left");
        let last = || {
            let texts = std::iter::from_fn(|| said.recv_timeout(Duration::from_secs(60)).ok());
            texts.take(10).find(|text| text.contains("2 of 2"))
        };
        let text = last().unwrap();
        assert!(text.starts_with("quantizing, layers of 2 of 2 inputs, 90 s left: "), "{text}");
        assert!(!text.contains(": 0 s"), "{text}");
        heartbeat.idle();
        while said.try_recv().is_ok() {}
        assert!(said.recv_timeout(Duration::from_millis(700)).is_err(), "nothing goes on");
    }

    #[test]
    fn who_speaks_is_not_interrupted() {
        let (say, said) = mpsc::channel();
        let heartbeat = Heartbeat::new(Duration::from_secs(3600), move |text| _ = say.send(text.to_owned()));
        heartbeat.step("compiling");
        heartbeat.said();
        drop(heartbeat);
        assert!(said.try_recv().is_err());
    }
}
