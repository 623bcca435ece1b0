//! TensorRT's messages.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

use trtx_sys::{RustLoggerBridge, create_rust_logger_bridge, destroy_rust_logger_bridge, get_logger_interface};

/// How much a message matters; TensorRT's own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// TensorRT failed in itself.
    Internal,
    /// Something is wrong.
    Error,
    /// Something is assumed or ignored.
    Warning,
    /// What it does.
    Info,
    /// How it does that.
    Verbose,
}

/// A message of TensorRT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub severity: Severity,
    /// Its text, as TensorRT wrote it.
    pub text: String,
}

/// What the messages have in common that follow other errors on a machine without a CUDA driver.
const NO_DRIVER: &str = "(cudaError 35: ";

/// How many errors and how many warnings are kept at most: a session may run for long.
const MOST: usize = 1000;

/// What begins the message that lists the layers of an engine.
const LAYERS: &str = "Layers:\n";

#[derive(Default)]
struct Messages {
    /// Errors since they were asked for last, in order.
    errors: Mutex<Vec<Message>>,
    /// Warnings, in order.
    warnings: Mutex<Vec<Message>>,
    /// The list of layers, where one was written.
    layers: Mutex<Option<String>>,
}

/// Keeps TensorRT's errors and warnings. TensorRT's objects hold a pointer to it, so it is dropped after them.
pub(super) struct Logger {
    bridge: *mut RustLoggerBridge,
    /// At a fixed address, which the bridge knows.
    messages: Box<Messages>,
}

impl Logger {
    pub(super) fn new() -> Self {
        let messages = Box::<Messages>::default();
        let data: *const Messages = &raw const *messages;
        // SAFETY: `receive` takes what is given here; the messages live longer than the bridge.
        let bridge = unsafe { create_rust_logger_bridge(receive, data.cast_mut().cast()) };
        Self { bridge, messages }
    }

    /// TensorRT's `ILogger*`; null when there was no memory.
    pub(super) fn interface(&self) -> *mut c_void {
        // SAFETY: the bridge is null, which is allowed, or lives.
        unsafe { get_logger_interface(self.bridge) }
    }

    /// The warnings so far.
    pub(super) fn warnings(&self) -> Vec<Message> {
        lock(&self.messages.warnings).clone()
    }

    /// The list of layers of the engine that was built last, if it was written.
    pub(super) fn layers(&self) -> Option<String> {
        lock(&self.messages.layers).clone()
    }

    /// The errors since this was asked last as one text, or what is said where there is none.
    pub(super) fn errors(&self, otherwise: &str) -> String {
        let errors = std::mem::take(&mut *lock(&self.messages.errors));
        let texts = errors.iter().map(|message| message.text.trim());
        let (driver, own): (Vec<&str>, Vec<&str>) = texts.partition(|text| text.contains(NO_DRIVER));
        match (own.is_empty(), driver.is_empty()) {
            (false, _) => own.join("; "),
            (true, false) => driver.join("; "),
            (true, true) => otherwise.to_owned(),
        }
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        // SAFETY: made by `create_rust_logger_bridge`, destroyed once; null is allowed.
        unsafe { destroy_rust_logger_bridge(self.bridge) };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Called by TensorRT, from any of its threads.
unsafe extern "C" fn receive(data: *mut c_void, severity: i32, text: *const c_char) {
    if text.is_null() {
        return;
    }
    // SAFETY: `data` is the messages of a logger that lives as long as TensorRT may call this.
    let messages = unsafe { &*data.cast::<Messages>() };
    // SAFETY: TensorRT's texts end in zero.
    let text = unsafe { CStr::from_ptr(text) };
    let severity = match severity {
        0 => Severity::Internal,
        1 => Severity::Error,
        2 => Severity::Warning,
        3 => Severity::Info,
        _ => Severity::Verbose,
    };
    if severity <= Severity::Warning {
        let text = text.to_string_lossy().into_owned();
        let mut kept = lock(if severity <= Severity::Error { &messages.errors } else { &messages.warnings });
        if kept.len() < MOST {
            kept.push(Message { severity, text });
        }
    } else if text.to_bytes().starts_with(LAYERS.as_bytes()) {
        *lock(&messages.layers) = Some(text.to_string_lossy().into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_warnings_leave_room_for_an_error() {
        let logger = Logger::new();
        let data: *const Messages = &raw const *logger.messages;
        let send = |severity, text: &CStr| {
            // SAFETY: the messages of a logger that lives, and a text that ends in zero.
            unsafe { receive(data.cast_mut().cast(), severity, text.as_ptr()) };
        };
        (0..2 * MOST).for_each(|_| send(2, c"something is assumed"));
        send(1, c"something is wrong");
        assert_eq!(logger.warnings().len(), MOST);
        assert_eq!(logger.errors("nothing"), "something is wrong");
        assert_eq!(logger.errors("nothing"), "nothing");
    }
}
