//! The unfinished files and folders of this process. A signal removes them, but never a finished file in their place.
//!
//! One lock decides between the two. What is made is entered under it, what is finished takes its place under
//! it, and a signal removes what is unfinished and ends the process under it. So a signal that comes while
//! something takes its place waits until that is done, and nothing takes its place once a signal has begun to
//! remove.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the name of a folder ends in while it is being removed. Threads that write into it find no folder under its name.
pub(crate) const REMOVED: &str = ".removed";

/// How often a folder is tried to be removed that has changed its name: each thread can be at making one file in it.
const REMOVALS: usize = 100;

/// What this process has begun.
pub static PROCESS: Registry = Registry::new();

/// What was begun, and whether some of it was finished.
#[derive(Debug)]
pub struct Registry(Mutex<Work>);

#[derive(Debug)]
struct Work {
    /// Files and folders that are not in their place.
    unfinished: Vec<PathBuf>,
    /// Whether something is in its place: the command has done what it was asked for.
    placed: bool,
    /// Whether a signal came after that.
    late: bool,
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Work { unfinished: Vec::new(), placed: false, late: false }))
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a file or folder by `make`, which returns its path, and removes it when the result is dropped
    /// or a signal ends the process.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn make<T>(
        &'static self,
        make: impl FnOnce() -> io::Result<(PathBuf, T)>,
    ) -> io::Result<(Unfinished, T)> {
        let mut work = self.work();
        let (path, made) = make()?;
        work.unfinished.push(path.clone());
        Ok((Unfinished { registry: self, path }, made))
    }

    /// What a signal does: removes what is unfinished and ends the process by `end`. Where something is in its
    /// place the first signal does nothing, since the command is all but done.
    pub fn interrupt(&self, end: impl FnOnce()) {
        let mut work = self.work();
        if work.placed && !std::mem::replace(&mut work.late, true) {
            return;
        }
        work.unfinished.iter().for_each(|path| remove(path));
        // The lock is held until the process is gone.
        end();
    }

    /// What is in its place was a step: a signal ends the command, which is not all but done.
    pub fn goes_on(&self) {
        self.work().placed = false;
    }

    /// Waits for a signal that has begun to end the process: what the command says after this is not cut off
    /// by one that came before.
    pub fn settle(&self) {
        drop(self.work());
    }
}

/// A file or folder that is not in its place yet.
#[derive(Debug)]
pub(crate) struct Unfinished {
    registry: &'static Registry,
    path: PathBuf,
}

impl Unfinished {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place by `place`. Signals wait meanwhile, so `place` is quick: it renames.
    ///
    /// # Errors
    /// Those of `place`, which has changed nothing then.
    pub(crate) fn place<T, E>(&self, place: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut work = self.registry.work();
        let placed = place()?;
        work.placed = true;
        Ok(placed)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        remove(&self.path);
        self.registry.work().unfinished.retain(|path| *path != self.path);
    }
}

/// Removes a file or folder, if it is there. What cannot be removed is left to the next run.
fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => remove_folder(path),
        Ok(_) => drop(fs::remove_file(path)),
        Err(_) => {}
    }
}

/// Removes a folder that other threads may be writing into, or removing too.
fn remove_folder(path: &Path) {
    let mut renamed = path.as_os_str().to_owned();
    renamed.push(REMOVED);
    let renamed = if fs::rename(path, &renamed).is_ok() { Path::new(&renamed) } else { path };
    for _ in 0..REMOVALS {
        match fs::remove_dir_all(renamed) {
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Long enough for a thread to do what it must not.
    const A_WHILE: Duration = Duration::from_millis(200);

    fn registry() -> &'static Registry {
        Box::leak(Box::new(Registry::new()))
    }

    fn begun(registry: &'static Registry, path: &Path) -> Unfinished {
        registry.make(|| fs::write(path, "new").map(|()| (path.to_owned(), ()))).unwrap().0
    }

    /// Whether a signal ends the process.
    fn ends(registry: &Registry) -> bool {
        let mut ended = false;
        registry.interrupt(|| ended = true);
        ended
    }

    #[test]
    fn a_signal_removes_what_is_unfinished_only() {
        let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
        let [first, second, kept] = ["first", "second", "kept"].map(|name| folder.path().join(name));
        let (_first, second) = (begun(registry, &first), begun(registry, &second));
        drop(second);
        fs::write(&kept, "").unwrap();
        assert!(ends(registry));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(kept.exists() && !first.exists());
    }

    #[test]
    fn the_first_signal_after_the_end_is_late_and_the_second_ends() {
        let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
        let (draft, target) = (folder.path().join("draft"), folder.path().join("target"));
        let begun = begun(registry, &draft);
        begun.place(|| fs::rename(&draft, &target)).unwrap();
        assert!(!ends(registry));
        assert!(target.exists());
        assert!(ends(registry));
        assert!(target.exists());
    }

    #[test]
    fn what_fails_to_take_its_place_is_unfinished() {
        let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
        let draft = folder.path().join("draft");
        let begun = begun(registry, &draft);
        begun.place(|| fs::rename(&draft, folder.path().join("no/target"))).unwrap_err();
        assert!(ends(registry));
        assert!(!draft.exists());
    }

    #[test]
    fn a_signal_waits_while_something_takes_its_place() {
        let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
        let (draft, target) = (folder.path().join("draft"), folder.path().join("target"));
        let begun = begun(registry, &draft);
        let (ended, waiting) = channel();
        let signal = begun.place(|| {
            let signal = thread::spawn(move || ended.send(ends(registry)).unwrap());
            assert_eq!(waiting.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
            fs::rename(&draft, &target).map(|()| signal)
        });
        assert_eq!(waiting.recv(), Ok(false), "it came too late");
        signal.unwrap().join().unwrap();
        assert_eq!(fs::read_to_string(target).unwrap(), "new");
    }

    #[test]
    fn nothing_takes_its_place_once_a_signal_has_begun_to_remove() {
        let (folder, registry) = (tempfile::tempdir().unwrap(), registry());
        let (draft, target) = (folder.path().join("draft"), folder.path().join("target"));
        let begun = begun(registry, &draft);
        let (removed, is_removed) = channel();
        // As the process that ends, this never gives the lock back.
        thread::spawn(move || {
            registry.interrupt(|| {
                removed.send(()).unwrap();
                loop {
                    thread::park();
                }
            });
        });
        is_removed.recv().unwrap();
        let (done, is_done) = channel();
        let place = target.clone();
        thread::spawn(move || {
            let placed = begun.place(|| fs::write(place, "half"));
            registry.settle();
            done.send(placed).unwrap();
        });
        assert!(is_done.recv_timeout(A_WHILE).is_err());
        assert!(!draft.exists() && !target.exists());
    }

    #[test]
    fn folders_are_removed_while_threads_write_into_them() {
        let (place, registry) = (tempfile::tempdir().unwrap(), registry());
        for _ in 0..50 {
            let folder = place.path().join("draft");
            let _draft = registry.make(|| fs::create_dir(&folder).map(|()| (folder.clone(), ()))).unwrap();
            let ended = AtomicBool::new(false);
            thread::scope(|scope| {
                for writer in 0..2 {
                    let (folder, ended) = (&folder, &ended);
                    scope.spawn(move || {
                        let mut number = 0;
                        while fs::write(folder.join(format!("{writer}-{number}")), "").is_ok() {
                            number += 1;
                        }
                        // It writes until there is no folder of the name.
                        assert!(ended.load(Ordering::SeqCst) || !folder.exists());
                    });
                }
                thread::sleep(Duration::from_micros(300));
                registry.interrupt(|| ended.store(true, Ordering::SeqCst));
            });
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }
}
