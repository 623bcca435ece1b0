//! Publishing into a folder that must stay, entry by entry: a mount point, or the current folder.
//!
//! What is there is moved aside, the manifest first; then the new entries are moved in, the manifest last. So
//! who reads a manifest finds all that it names. What fails in between is undone, and what is killed in between
//! the next run undoes: the draft holds its manifest until all is done, and the entries that it names and does
//! not hold are those that were moved in.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::leftovers::entries_aside;
use crate::MANIFEST;
use crate::manifest::Manifest;

/// How long another process may hold a folder: publishing renames a few files.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often the lock on a folder is tried.
const INTERVAL: Duration = Duration::from_millis(10);

/// Moves the entries of a draft into a folder and what is there, but for what is apart, out of it. Returns the
/// folder that contains the latter, on the filesystem of the draft. `step` is asked before each change.
///
/// # Errors
/// When something cannot be moved; then all is as it was, if that can be done.
pub(super) fn publish(
    draft: &Path,
    target: &Path,
    is_apart: impl Fn(&OsStr) -> bool,
    step: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<PathBuf> {
    let aside = entries_aside(draft);
    let mut old = names(target)?;
    old.retain(|name| !is_apart(name));
    let new = names(draft)?;
    fs::create_dir(&aside)?;
    let mut shift = |from: &Path, name: &OsString, to: &Path| {
        step()?;
        fs::rename(from.join(name), to.join(name))
    };
    let moved = old.iter().rev().try_for_each(|name| shift(target, name, &aside));
    match moved.and_then(|()| new.iter().try_for_each(|name| shift(draft, name, target))) {
        Ok(()) => Ok(aside),
        // The first error says more than one about undoing.
        Err(error) => undo(draft, target).and(Err(error)),
    }
}

/// Undoes what a process that is gone had begun to publish from a draft, or removes what it replaced if it had
/// published all.
///
/// # Errors
/// When something cannot be moved back; nothing is removed then.
pub(super) fn make_good(draft: &Path, target: &Path) -> io::Result<()> {
    let aside = entries_aside(draft);
    if !aside.is_dir() {
        return Ok(());
    }
    let _lock = lock(target)?;
    let published = !draft.join(MANIFEST).exists() && target.join(MANIFEST).exists();
    if published { fs::remove_dir_all(aside) } else { undo(draft, target) }
}

/// Keeps other processes from publishing into a folder at the same time, where the filesystem has locks. The folder is the
/// user's, and other programs may lock it for as long as they like.
///
/// # Errors
/// When another process holds the lock for longer than publishing takes.
pub(super) fn lock(target: &Path) -> io::Result<Option<File>> {
    let Ok(folder) = planish_files::open_folder(target) else { return Ok(None) };
    let start = Instant::now();
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => thread::sleep(INTERVAL),
            Err(TryLockError::WouldBlock) => {
                let message = format!(
                    "another process holds {}: it has locked the folder; wait until that process ends, or choose \
                     another output with -o",
                    target.display()
                );
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
        }
    }
}

/// Moves new entries out of a folder again, and old ones back.
fn undo(draft: &Path, target: &Path) -> io::Result<()> {
    let aside = entries_aside(draft);
    // Without a manifest in the draft nothing of it was moved in.
    if let Ok(manifest) = Manifest::read(draft) {
        for name in manifest.entries() {
            let held = fs::symlink_metadata(draft.join(name)).is_ok();
            if !held && fs::symlink_metadata(target.join(name)).is_ok() {
                fs::rename(target.join(name), draft.join(name))?;
            }
        }
    }
    names(&aside)?.iter().try_for_each(|name| fs::rename(aside.join(name), target.join(name)))?;
    fs::remove_dir(aside)
}

/// The names of the entries of a folder, that of the manifest last.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_by_key(|name| (name == MANIFEST, name.clone()));
    Ok(names)
}
