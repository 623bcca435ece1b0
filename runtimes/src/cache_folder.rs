//! The user's folder of caches.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The folder of caches of planish; `None` where the user has none.
#[must_use]
pub fn of_user() -> Option<PathBuf> {
    of(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
}

/// The folder by the two variables of the environment.
pub(crate) fn of(caches: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let caches = caches.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")));
    Some(caches?.join("planish"))
}
