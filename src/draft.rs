//! An artifact in the making: a folder beside its place that takes the place when it is finished,
//! so that a killed or failed run leaves nothing half-made where an artifact is looked for.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::artifact::check_replaceable;

/// How often a place is tried to be taken that other processes keep taking.
const ATTEMPTS: usize = 100;

/// The folders of this process's drafts.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the drafts of this process: before it ends by a signal.
pub(crate) fn remove_unfinished() {
    let folders = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    // What cannot be removed is left to the next run.
    folders.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
}

/// An artifact in the making. Its folder is locked as long as this lives, so that other processes
/// can tell it from what a killed one has left.
#[derive(Debug)]
pub struct Draft {
    folder: PathBuf,
    target: PathBuf,
    force: bool,
    /// Absent on filesystems without locks.
    _lock: Option<File>,
}

impl Draft {
    /// Makes the temporary folder for an artifact at `target`, and cleans up after runs to the
    /// same place that were killed. With `force` a folder that holds what planish did not write
    /// may be replaced.
    ///
    /// # Errors
    /// When something else is at `target`, or the folder cannot be made.
    pub fn create(target: &Path, force: bool) -> Result<Self> {
        let target = std::path::absolute(target).with_context(|| format!("cannot resolve {}", target.display()))?;
        let (parent, name) = match (target.parent(), target.file_name()) {
            (Some(parent), Some(name)) => (parent, name.to_string_lossy().into_owned()),
            _ => bail!("{} cannot be an output folder; name one with -o", target.display()),
        };
        clean_up(parent, &name, &target);
        check_replaceable(&target, force)?;
        fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {}", parent.display()))?;
        let (folder, lock) = make_folder(parent, &name).with_context(|| {
            format!("cannot make a folder in {}; choose a writable place with -o", parent.display())
        })?;
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(folder.clone());
        Ok(Self { folder, target, force, _lock: lock })
    }

    /// The temporary folder, to be filled.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The place that it will take.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Puts the folder in its place, in one step where the filesystem can exchange two folders;
    /// returns that place.
    ///
    /// # Errors
    /// When it cannot be renamed, or what stands there may not be replaced.
    pub fn publish(self) -> Result<PathBuf> {
        let context = || format!("cannot move the finished artifact to {}", self.target.display());
        for _ in 0..ATTEMPTS {
            check_replaceable(&self.target, self.force)?;
            match fs::rename(&self.folder, &self.target) {
                Ok(()) => return Ok(self.target.clone()),
                Err(error) if !is_occupied(&error) => return Err(error).with_context(context),
                Err(_) => {}
            }
            match renameat_with(CWD, &self.folder, CWD, &self.target, RenameFlags::EXCHANGE) {
                Ok(()) => {
                    remove(&self.folder)?;
                    return Ok(self.target.clone());
                }
                // Another process has just taken it away.
                Err(Errno::NOENT) => {}
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    if self.replace_in_two_steps()? {
                        return Ok(self.target.clone());
                    }
                }
                Err(error) => return Err(io::Error::from(error)).with_context(context),
            }
        }
        bail!("{} is replaced by other processes all the time; choose another output with -o", self.target.display())
    }

    /// Moves what is at the place aside and the draft there. Returns false where another process
    /// has changed meanwhile what is there. [`clean_up`] restores what a kill in between leaves.
    fn replace_in_two_steps(&self) -> Result<bool> {
        let context = || format!("cannot move the finished artifact to {}", self.target.display());
        let aside = aside(&self.folder);
        match fs::rename(&self.target, &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            moved => moved.with_context(context)?,
        }
        let placed = match fs::rename(&self.folder, &self.target) {
            Ok(()) => true,
            Err(error) if is_occupied(&error) => false,
            Err(error) => {
                fs::rename(&aside, &self.target).with_context(|| format!("cannot restore {}", aside.display()))?;
                return Err(error).with_context(context);
            }
        };
        remove(&aside)?;
        Ok(placed)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|folder| *folder != self.folder);
        // After publishing nothing is there. What cannot be removed is left to the next run.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes what was replaced; another process may do so at the same time.
fn remove(replaced: &Path) -> Result<()> {
    match fs::remove_dir_all(replaced) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| {
            format!("the artifact is in its place, but {}, which it replaced, cannot be removed", replaced.display())
        }),
        _ => Ok(()),
    }
}

/// Whether a folder that is not empty is in the way of a rename.
fn is_occupied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

fn prefix(name: &str) -> String {
    format!(".{name}.planish-")
}

/// The ending of the folder that holds what is replaced in two steps.
const ASIDE: &str = ".old";

fn aside(draft: &Path) -> PathBuf {
    let mut aside = OsString::from(draft);
    aside.push(ASIDE);
    aside.into()
}

/// Makes a locked folder for a draft, under a name that nothing has.
fn make_folder(parent: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    loop {
        let folder = parent.join(format!("{}{:016x}", prefix(name), fastrand::u64(..)));
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
    let file = match File::open(folder) {
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

/// Removes drafts of the same artifact whose process is gone, and moves back what such a process
/// had moved aside if nothing is in its place.
fn clean_up(parent: &Path, name: &str, target: &Path) {
    let prefix = prefix(name);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = file_name.strip_prefix(&prefix) else { continue };
        let id = rest.strip_suffix(ASIDE).unwrap_or(rest);
        if id.len() != 16 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            continue;
        }
        // What cannot be removed or moved is left to the next run.
        match lock(&parent.join(format!("{prefix}{id}"))) {
            Lock::Held(_) | Lock::Gone if id != rest && fs::symlink_metadata(target).is_err() => {
                let _ = fs::rename(entry.path(), target);
            }
            Lock::Held(_) => drop(fs::remove_dir_all(entry.path())),
            Lock::Gone if id != rest => drop(fs::remove_dir_all(entry.path())),
            Lock::Gone | Lock::Busy | Lock::Unsupported => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A folder with a file that says what it is.
    fn marked(folder: PathBuf, mark: &str) {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mark"), mark).unwrap();
    }

    #[test]
    fn without_exchange_folders_are_replaced_in_two_steps() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        let draft = Draft::create(&target, true).unwrap();
        marked(draft.folder().to_owned(), "new");
        assert!(!draft.replace_in_two_steps().unwrap(), "there is nothing to replace");
        marked(target.clone(), "old");
        assert!(draft.replace_in_two_steps().unwrap());
        drop(draft);
        assert_eq!(names(place.path()), ["out"]);
        assert_eq!(fs::read_to_string(target.join("mark")).unwrap(), "new");
    }

    #[test]
    fn a_kill_between_the_two_steps_is_made_good() {
        let place = tempfile::tempdir().unwrap();
        let (target, left) = (place.path().join("out"), ".out.planish-0123456789abcdef");
        marked(place.path().join(left), "unfinished");
        marked(place.path().join(format!("{left}.old")), "old");
        let error = Draft::create(&target, false).unwrap_err();
        assert!(error.to_string().contains("was not written by planish"), "{error}");
        assert_eq!(fs::read_to_string(target.join("mark")).unwrap(), "old");
        assert!(Draft::create(&target, false).is_err());
        assert_eq!(names(place.path()), ["out"]);
        // A kill after both steps.
        marked(place.path().join(format!("{left}.old")), "older");
        assert!(Draft::create(&target, false).is_err());
        assert_eq!((names(place.path()), names(&target)), (vec!["out".to_owned()], vec!["mark".to_owned()]));
    }

    #[test]
    fn drafts_of_the_living_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        let first = Draft::create(&target, false).unwrap();
        // As between the two steps.
        marked(aside(first.folder()), "old");
        let second = Draft::create(&target, false).unwrap();
        assert!(first.folder().is_dir() && aside(first.folder()).is_dir() && !target.exists());
        assert_ne!(first.folder(), second.folder());
        assert_eq!(second.publish().unwrap(), target);
        drop(first);
        drop(Draft::create(&target, false).unwrap());
        assert_eq!(names(place.path()), ["out"]);
    }
}
