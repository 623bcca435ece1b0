//! What a call returns, and the message of the last one.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};

/// What became of a call: the exit codes of the command `planish`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It did what it was asked for.
    Done = 0,
    /// It failed: a file is missing or malformed, or a model does not take its inputs.
    Failed = 1,
    /// The call cannot be carried out by any files: an argument is NULL, or a recipe asks for what planish does not have.
    Usage = 2,
    /// An artifact is not what its source is.
    VerificationFailed = 3,
    /// A runtime, such as the library of ONNX Runtime, was not found or is too old.
    Unavailable = 4,
}

/// An argument that no call takes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

thread_local! {
    /// The message of the last call of this thread.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

impl Code {
    fn of(error: &anyhow::Error) -> Self {
        if error.chain().any(|cause| cause.is::<Misuse>()) {
            return Self::Usage;
        }
        match planish::cli::exit_code(error) {
            2 => Self::Usage,
            3 => Self::VerificationFailed,
            4 => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

/// Does what a call asks for and keeps the message of its error. A panic is an error.
pub(crate) fn guarded(work: impl FnOnce() -> Result<()>) -> Code {
    let done = caught(work);
    let (code, message) = match &done {
        Ok(()) => (Code::Done, String::new()),
        Err(error) => (Code::of(error), format!("{error:#}")),
    };
    let message = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that is ending has no place for messages.
    let _ = MESSAGE.try_with(|last| last.replace(message));
    code
}

/// What some work gives; its panic is an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(anyhow!(broken(panic.as_ref()))))
}

/// The message of a panic.
fn broken(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
    format!("planish is broken: {text}; please report what was called on which model")
}

/// The message of the last call of this thread; NULL where the thread is ending.
pub(crate) fn message() -> *const c_char {
    MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(std::ptr::null())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the message lives until the next call of this thread.
        unsafe { CStr::from_ptr(message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_an_error_and_the_next_call_clears_it() {
        assert_eq!(guarded(|| panic!("index {} of 3", 7)), Code::Failed);
        assert_eq!(last(), "planish is broken: index 7 of 3; please report what was called on which model");
        assert_eq!(guarded(|| panic!("no number")), Code::Failed);
        assert!(last().starts_with("planish is broken: no number;"), "{}", last());
        assert_eq!(guarded(|| Ok(())), Code::Done);
        assert_eq!(last(), "");
    }

    #[test]
    fn messages_are_of_their_thread_and_have_no_zero_byte() {
        assert_eq!(guarded(|| Err(Misuse("a\0b".to_owned()).into())), Code::Usage);
        assert_eq!(last(), "a\u{fffd}b");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }
}
