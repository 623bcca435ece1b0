//! What C gives, as values of Rust.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::code::Misuse;

/// A text of C; `what` names it.
///
/// # Safety
/// The pointer is NULL, or of a text that ends in a zero byte and lives for `'a`.
unsafe fn bytes<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8], Misuse> {
    if pointer.is_null() {
        return Err(Misuse(format!("{what} is NULL; pass a text that ends in a zero byte")));
    }
    // SAFETY: it is not NULL, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// A path.
///
/// # Safety
/// As of [`bytes`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, what: &str) -> Result<&'a Path, Misuse> {
    // SAFETY: the caller promises it.
    match unsafe { bytes(pointer, what) }? {
        [] => Err(Misuse(format!("{what} is an empty text; pass a path"))),
        path => Ok(Path::new(OsStr::from_bytes(path))),
    }
}

/// A text of UTF-8.
///
/// # Safety
/// As of [`bytes`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Misuse> {
    // SAFETY: the caller promises it.
    let bytes = unsafe { bytes(pointer, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Misuse(format!("{what} is not UTF-8")))
}

/// Elements that lie one after the other; none of them may be a NULL pointer.
///
/// # Safety
/// The pointer is NULL, or of so many aligned elements that live for `'a`.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Misuse> {
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    match (count, pointer.is_null(), bytes) {
        (0, ..) => Ok(&[]),
        (_, true, _) => Err(Misuse(format!("{what} is NULL, and its number of elements is {count}, not 0"))),
        (_, _, None) => Err(Misuse(format!("{what} cannot have {count} elements"))),
        // SAFETY: it is neither NULL nor longer than memory, and the caller promises the rest.
        (_, false, Some(_)) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// The place of a result.
///
/// # Safety
/// The pointer is NULL, or of a place that only this call uses for `'a`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut *mut T, what: &str) -> Result<&'a mut *mut T, Misuse> {
    // SAFETY: the caller promises it.
    let place = unsafe { pointer.as_mut() };
    let place = place.ok_or_else(|| Misuse(format!("{what} is NULL; pass the address of a pointer")))?;
    *place = std::ptr::null_mut();
    Ok(place)
}
