//! The folders of drafts, and what killed processes have left of them.
//!
//! A draft's folder is `PREFIX` and an id of 16 digits. What stood in its place is moved to the same name with an
//! ending, where folders cannot be exchanged. A draft that is being removed has a third ending.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::entries;
use super::place::Place;
use crate::files::unfinished::REMOVED;

/// How many digits the id of a draft has.
const ID_DIGITS: usize = 16;

/// The ending of a folder that was moved aside as a whole.
const FOLDER: &str = ".old";

/// The ending of a folder with what was moved aside entry by entry.
const ENTRIES: &str = ".entries";

/// Where a draft moves a folder that it replaces.
pub(super) fn folder_aside(draft: &Path) -> PathBuf {
    with_ending(draft, FOLDER)
}

/// Where a draft moves what is in a folder that it replaces entry by entry.
pub(super) fn entries_aside(draft: &Path) -> PathBuf {
    with_ending(draft, ENTRIES)
}

fn with_ending(draft: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(draft);
    path.push(ending);
    path.into()
}

/// The id of a draft that a folder belongs to by its name.
pub(super) fn id<'a>(prefix: &str, name: &'a OsStr) -> Option<&'a str> {
    let rest = name.to_str()?.strip_prefix(prefix)?;
    let id = [FOLDER, ENTRIES, REMOVED].iter().find_map(|ending| rest.strip_suffix(ending)).unwrap_or(rest);
    (id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit())).then_some(id)
}

/// Makes a locked folder for a draft, under a name that nothing has. There is no lock on filesystems without.
pub(super) fn make_folder(place: &Place) -> io::Result<(PathBuf, Option<File>)> {
    loop {
        let folder = place.drafts.join(format!("{}{:0ID_DIGITS$x}", place.prefix, fastrand::u64(..)));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        match lock(&folder) {
            Lock::Held(lock) => return Ok((folder, Some(lock))),
            Lock::Unsupported => return Ok((folder, None)),
            // Another process took the folder for a leftover before it was locked.
            Lock::Busy | Lock::Gone => {}
        }
    }
}

/// The lock on a draft's folder. It ends with the process that holds it, in whatever container
/// that runs.
enum Lock {
    Held(File),
    Busy,
    Gone,
    Unsupported,
}

fn lock(folder: &Path) -> Lock {
    let file = match planish_files::open_folder(folder) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Lock::Gone,
        Err(_) => return Lock::Unsupported,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Lock::Busy,
        Err(TryLockError::Error(_)) => return Lock::Unsupported,
    }
    // The folder may have been removed or renamed between opening and locking it.
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata().map(identity), fs::metadata(folder).map(identity)) {
        (Ok(locked), Ok(there)) if locked == there => Lock::Held(file),
        _ => Lock::Gone,
    }
}

/// Removes drafts for `target` in a folder whose process is gone, and moves back what such a process had moved
/// aside, if it did not come to put something in its place.
pub(super) fn clean_up(folder: &Path, prefix: &str, target: &Path) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let ids: BTreeSet<String> = names.filter_map(|name| id(prefix, &name).map(str::to_owned)).collect();
    for id in ids {
        let draft = folder.join(format!("{prefix}{id}"));
        let held = match lock(&draft) {
            Lock::Held(lock) => Some(lock),
            Lock::Gone => None,
            Lock::Busy | Lock::Unsupported => continue,
        };
        // What cannot be removed or moved is left to the next run.
        let _ = fs::remove_dir_all(with_ending(&draft, REMOVED));
        let aside = folder_aside(&draft);
        if fs::symlink_metadata(target).is_err() {
            let _ = fs::rename(&aside, target);
        }
        let _ = fs::remove_dir_all(&aside);
        let made_good = entries::make_good(&draft, target);
        if held.is_some() && made_good.is_ok() {
            let _ = fs::remove_dir_all(&draft);
        }
    }
}
