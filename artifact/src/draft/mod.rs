//! An artifact in the making: a temporary folder that takes its place when it is finished, so that a killed,
//! interrupted or failed run leaves nothing half-made where an artifact is looked for.

mod entries;
mod leftovers;
mod place;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::files::unfinished::{PROCESS, Registry, Unfinished};
use leftovers::{folder_aside, make_folder};
use place::{Kind, Place};

/// How often a place is tried to be taken that other processes keep taking.
const ATTEMPTS: usize = 100;

/// Asked before each change that publishing makes; an error is that of the change. Tests fail, stop and
/// interrupt there.
type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// An artifact in the making. Its folder is locked as long as this lives, so that other processes
/// can tell it from what a killed one has left.
#[derive(Debug)]
pub struct Draft {
    folder: Unfinished,
    place: Place,
    force: bool,
    /// Absent on filesystems without locks.
    _lock: Option<File>,
}

impl Draft {
    /// Whether an artifact may go to `target`: to be asked before work that would be in vain.
    ///
    /// # Errors
    /// When no artifact can be there, or something else is.
    pub fn check(target: &Path, force: bool) -> Result<()> {
        checked(target, force).map(drop)
    }

    /// Makes the temporary folder for an artifact at `target`, and makes good what runs to the
    /// same place have left that were killed. With `force` a folder that contains what planish did not write
    /// may be replaced.
    ///
    /// # Errors
    /// When something else is at `target`, or the folder cannot be made.
    pub fn create(target: &Path, force: bool) -> Result<Self> {
        Self::create_at(&PROCESS, checked(target, force)?, force)
    }

    /// Makes a folder for temporary files in the folder of the system for these; it is never published. `purpose` is
    /// in its name, the rest of which is random. What killed runs left for the same purpose is removed.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn temporary(purpose: &str) -> Result<Self> {
        let parent = std::path::absolute(std::env::temp_dir()).context("TMPDIR names no folder")?;
        let place = Place::of_kind(parent.join(purpose), parent.join(purpose), Kind::Folder)?;
        let (folder, lock) = PROCESS.make(|| make_folder(&place)).with_context(|| {
            format!("cannot make a folder for temporary files in {}; TMPDIR chooses another", parent.display())
        })?;
        Ok(Self { folder, place, force: false, _lock: lock })
    }

    fn create_at(registry: &'static Registry, place: Place, force: bool) -> Result<Self> {
        let parent = place.drafts.display();
        fs::create_dir_all(&place.drafts).with_context(|| format!("cannot make the folder {parent}"))?;
        let (folder, lock) = registry
            .make(|| make_folder(&place))
            .with_context(|| format!("cannot make a folder in {parent}; choose a writable place with -o"))?;
        Ok(Self { folder, place, force, _lock: lock })
    }

    /// Gives it another place in the same folder, which it takes when it is published.
    ///
    /// # Errors
    /// When no artifact can be there, or something else is.
    pub fn rename(&mut self, target: &Path) -> Result<()> {
        let place = checked(target, self.force)?;
        if self.place.is_fixed() || place.is_fixed() || place.drafts != self.place.drafts {
            bail!("{} cannot take the place of {}; name the output with -o", target.display(), self.target().display());
        }
        self.place = place;
        Ok(())
    }

    /// The temporary folder, to be filled.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The place that it will take, as it was named.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.place.named
    }

    /// The same without symbolic links: the folder that the artifact will be.
    #[must_use]
    pub fn resolved_target(&self) -> &Path {
        &self.place.folder
    }

    /// Puts the folder in its place, in one step where the filesystem can exchange two folders; returns that
    /// place. In a folder that has to stay, a mount point or the current one, its entries are replaced instead,
    /// and there is no manifest meanwhile. A signal that comes meanwhile waits.
    ///
    /// # Errors
    /// When it cannot be renamed, or what is there may not be replaced. The old contents are unchanged then.
    pub fn publish(self) -> Result<PathBuf> {
        self.publish_by(&mut || Ok(()))
    }

    fn publish_by(self, step: Step<'_>) -> Result<PathBuf> {
        let place = &self.place;
        let published = match place.is_fixed() {
            true => {
                // A process that publishes there has been killed meanwhile, or is at it.
                place.clean_up();
                let _lock = entries::lock(&place.folder)?;
                self.folder.place(|| {
                    place.check_replaceable(self.force)?;
                    self.replace_entries(step)
                })
            }
            false => self.folder.place(|| self.replace_folder(step)),
        };
        if let Some(replaced) = published? {
            remove(&replaced)?;
        }
        Ok(place.named.clone())
    }

    /// Puts the folder in the place of another. Returns where that is then, if there was one.
    fn replace_folder(&self, step: Step<'_>) -> Result<Option<PathBuf>> {
        let (draft, target) = (self.folder(), &self.place.folder);
        for _ in 0..ATTEMPTS {
            self.place.check_replaceable(self.force)?;
            match step().and_then(|()| fs::rename(draft, target)) {
                Ok(()) => return Ok(None),
                Err(error) if !is_occupied(&error) && !is_unmovable(&error) => {
                    return Err(error).with_context(|| self.failed());
                }
                Err(_) => {}
            }
            let exchange = || Ok(renameat_with(CWD, draft, CWD, target, RenameFlags::EXCHANGE)?);
            let Err(error) = step().and_then(|()| exchange()) else { return Ok(Some(draft.to_owned())) };
            match Errno::from_io_error(&error) {
                // Another process has just taken it away.
                Some(Errno::NOENT) => {}
                Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    if let Some(replaced) = self.replace_in_two_steps(step)? {
                        return Ok(Some(replaced));
                    }
                }
                _ if is_unmovable(&error) => {
                    let _lock = entries::lock(target)?;
                    return self.replace_entries(step);
                }
                _ => return Err(error).with_context(|| self.failed()),
            }
        }
        bail!("{} is replaced by other processes all the time; choose another output with -o", self.target().display())
    }

    /// Moves what is at the place aside and the draft there. Returns nothing where another process
    /// has changed meanwhile what is there. What a kill in between leaves the next run makes good.
    fn replace_in_two_steps(&self, step: Step<'_>) -> Result<Option<PathBuf>> {
        let (draft, target) = (self.folder(), &self.place.folder);
        let aside = folder_aside(draft);
        match step().and_then(|()| fs::rename(target, &aside)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            moved => moved.with_context(|| self.failed())?,
        }
        match step().and_then(|()| fs::rename(draft, target)) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if is_occupied(&error) => remove(&aside).map(|()| None),
            Err(error) => {
                fs::rename(&aside, target).with_context(|| format!("cannot restore {}", aside.display()))?;
                Err(error).with_context(|| self.failed())
            }
        }
    }

    /// Moves the entries of the draft to the place, and what is there aside.
    fn replace_entries(&self, step: Step<'_>) -> Result<Option<PathBuf>> {
        let is_apart = |name: &_| self.place.is_apart(name);
        let moved = entries::publish(self.folder(), &self.place.folder, is_apart, step);
        moved.map(Some).with_context(|| self.failed())
    }

    fn failed(&self) -> String {
        format!("cannot move the finished artifact to {}", self.target().display())
    }
}

/// A place that something new may take.
fn checked(target: &Path, force: bool) -> Result<Place> {
    let place = Place::find(target)?;
    // Who publishes there entry by entry has no manifest there meanwhile.
    let _lock = place.is_fixed().then(|| entries::lock(&place.folder)).transpose()?;
    place.check_replaceable(force)?;
    Ok(place)
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

/// Whether a folder cannot be renamed where it is, as those of images in containers.
fn is_unmovable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::CrossesDevices | io::ErrorKind::ResourceBusy)
}

/// Whether a folder that is not empty is in the way of a rename.
fn is_occupied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}
