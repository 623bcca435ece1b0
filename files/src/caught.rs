//! Panics of libraries that read files by unknown authors, as errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is told as an error by who called.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Does some work; a panic of it is an error, and prints nothing.
///
/// # Errors
/// The message of the panic. What the work changed may be half done.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                print(panic);
            }
        }));
    });
    let before = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    done.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_message() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("no")), Err::<(), _>("no".to_owned()));
        assert_eq!(caught(|| panic!("index {}", 3)), Err::<(), _>("index 3".to_owned()));
    }
}
