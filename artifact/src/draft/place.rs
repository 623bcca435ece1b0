//! The place of an artifact: which folder it is, what may be replaced there, and where its drafts are.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use super::leftovers;
use crate::manifest::Manifest;
use crate::{CARD, MANIFEST};

/// How many names of files an error lists.
const LISTED: usize = 5;

/// What filesystems of Linux have in their root and users did not put there.
const LOST_AND_FOUND: &str = "lost+found";

/// The prefix of the names of drafts that are in the folder that they replace.
const INSIDE: &str = ".planish-";

/// Where an artifact goes.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder as it was named, absolute.
    pub(super) named: PathBuf,
    /// The folder that this names: behind symbolic links.
    pub(super) folder: PathBuf,
    /// The folder of the drafts.
    pub(super) drafts: PathBuf,
    /// What the names of drafts begin with.
    pub(super) prefix: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A folder that can be exchanged with another, or nothing yet.
    Folder,
    /// The current folder: who is in it expects files to appear there.
    Current,
    /// The root of a mount, which cannot be renamed.
    Mount,
}

impl Place {
    /// Finds what a path names, and makes good what killed runs to the same place have left there.
    ///
    /// # Errors
    /// When no artifact can be at the path.
    pub(super) fn find(path: &Path) -> Result<Self> {
        let named = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
        let target = match named.canonicalize() {
            Ok(target) => target,
            Err(_) if named.is_symlink() => bail!(
                "{} is a link to {}, which is not there; make that folder, or choose another output with -o",
                named.display(),
                fs::read_link(&named).unwrap_or_default().display()
            ),
            Err(_) => named.clone(),
        };
        let Some(parent) = target.parent() else {
            bail!("{} cannot be an output folder; name one with -o", named.display());
        };
        let kind = if std::env::current_dir().is_ok_and(|cwd| cwd == target) {
            Kind::Current
        } else if is_mount(&target, parent) {
            Kind::Mount
        } else {
            Kind::Folder
        };
        Self::of_kind(named, target, kind)
    }

    pub(super) fn of_kind(named: PathBuf, target: PathBuf, kind: Kind) -> Result<Self> {
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            bail!("{} cannot be an output folder; name one with -o", named.display());
        };
        let (drafts, prefix) = match kind {
            Kind::Folder => (parent.to_owned(), format!(".{}.planish-", name.to_string_lossy())),
            // What takes its place file by file has to be on the same filesystem.
            Kind::Current | Kind::Mount => (target.clone(), INSIDE.to_owned()),
        };
        let place = Self { drafts, prefix, kind, named, folder: target };
        place.clean_up();
        Ok(place)
    }

    /// Makes good what killed runs have left.
    pub(super) fn clean_up(&self) {
        leftovers::clean_up(&self.drafts, &self.prefix, &self.folder);
        if !self.is_fixed() {
            // The runs may have been started in the folder.
            leftovers::clean_up(&self.folder, INSIDE, &self.folder);
        }
    }

    /// Whether an artifact takes this place file by file, since the folder itself has to stay.
    pub(super) fn is_fixed(&self) -> bool {
        self.kind != Kind::Folder
    }

    /// Whether something in the folder has nothing to do with what is published there.
    pub(super) fn is_apart(&self, name: &OsStr) -> bool {
        let lost_and_found = self.kind == Kind::Mount && name == LOST_AND_FOUND;
        lost_and_found || self.is_fixed() && leftovers::id(&self.prefix, name).is_some()
    }

    /// Whether something new may take this place: that of nothing, of an empty folder, or of an artifact in which
    /// every entry is planish's; with `force` of any folder, but the current one is never emptied, and none that
    /// something is mounted in is replaced.
    ///
    /// # Errors
    /// When it may not, with what is there.
    pub(super) fn check_replaceable(&self, force: bool) -> Result<()> {
        let identity = || fs::symlink_metadata(&self.folder).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        loop {
            let looked_at = identity();
            let verdict = self.judge(force);
            // Another process may have put another folder there meanwhile.
            if verdict.is_ok() || identity() == looked_at {
                return verdict;
            }
        }
    }

    fn judge(&self, force: bool) -> Result<()> {
        let target = self.named.display();
        let Ok(metadata) = fs::symlink_metadata(&self.folder) else { return Ok(()) };
        if !metadata.is_dir() {
            bail!("{target} exists and is not a folder; choose another output with -o");
        }
        if self.kind != Kind::Current && std::env::current_dir().is_ok_and(|cwd| cwd.starts_with(&self.folder)) {
            bail!("{target} contains the current folder and is not replaced; choose another output with -o");
        }
        if let Some(mount) = mount_inside(&self.folder) {
            bail!(
                "{target} holds the mount point {}, which cannot be moved aside; unmount it, or choose another output \
                 with -o",
                mount.display()
            );
        }
        let (force, or_force) = match self.kind {
            Kind::Current => (false, "; --force does not empty the current folder"),
            Kind::Folder | Kind::Mount => (force, ", or replace the folder with --force"),
        };
        if force {
            return Ok(());
        }
        let context = || format!("cannot read the folder {target}");
        let entries = fs::read_dir(&self.folder).with_context(context)?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(context)?;
        entries.retain(|entry| !self.is_apart(&entry.file_name()));
        if entries.is_empty() {
            return Ok(());
        }
        let Ok(manifest) = Manifest::read(&self.folder) else {
            bail!(
                "{target} exists and was not written by planish (it has no {MANIFEST} that this version reads); choose \
                 another output with -o{or_force}"
            )
        };
        let own: Vec<&str> = manifest.file_names().collect();
        let names = entries.iter().map(|entry| entry.file_name());
        let mut others = names.map(|name| strangers(&self.folder, Path::new(&name), &own));
        let mut others = others
            .try_fold(Vec::new(), |all, found| Ok::<_, io::Error>([all, found?].concat()))
            .with_context(context)?;
        others.extend(manifest.has_changed_card(&self.folder).then(|| format!("{CARD}, which was changed")));
        if others.is_empty() {
            return Ok(());
        }
        others.sort();
        let more = others.len().saturating_sub(LISTED);
        others.truncate(LISTED);
        bail!(
            "{target} holds what was not written by planish: {}{}; move it elsewhere, choose another output with \
             -o{or_force}",
            others.join(", "),
            if more > 0 { format!(" and {more} more") } else { String::new() }
        )
    }
}

/// What there is at a path inside of a folder and is none of the files of some names: the path, or paths after it where it
/// is a folder of such files.
fn strangers(folder: &Path, path: &Path, own: &[&str]) -> io::Result<Vec<String>> {
    let at = folder.join(path);
    let is_folder = fs::symlink_metadata(&at)?.is_dir();
    let known = |name: &&str| if is_folder { Path::new(name).starts_with(path) } else { Path::new(name) == path };
    if !own.iter().any(known) || own.iter().any(|name| is_folder && Path::new(name) == path) {
        return Ok(vec![path.to_string_lossy().into_owned()]);
    }
    let mut all = Vec::new();
    if is_folder {
        for entry in fs::read_dir(at)? {
            all.extend(strangers(folder, &path.join(entry?.file_name()), own)?);
        }
    }
    Ok(all)
}

/// What is mounted somewhere inside of a folder, where the system lists mounts.
fn mount_inside(folder: &Path) -> Option<PathBuf> {
    let mounts = planish_files::read(Path::new("/proc/self/mountinfo"), &planish_files::Kind::SYSTEM).ok()?;
    let mut places = mounts.split(|byte| *byte == b'\n').filter_map(mount_point);
    places.find(|place| place != folder && place.starts_with(folder))
}

/// The place of a mount, the fifth field of its line. Blanks and backslashes in it are written as `\` and three octal digits.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let mut field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::new();
    while let Some((first, rest)) = field.split_first() {
        let octal = rest.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                field = &rest[3..];
            }
            None => {
                path.push(*first);
                field = rest;
            }
        }
    }
    Some(OsString::from_vec(path).into())
}

/// Whether a folder is the root of a mount, of another filesystem or bound to this place.
fn is_mount(folder: &Path, parent: &Path) -> bool {
    let root = StatxAttributes::MOUNT_ROOT;
    let attributes = statx(CWD, folder, AtFlags::empty(), StatxFlags::empty()).ok();
    let known = attributes.filter(|found| found.stx_attributes_mask.contains(root));
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    // Kernels before 5.8 do not say: of them only other filesystems are seen.
    let other = || device(folder).is_ok_and(|own| device(parent).is_ok_and(|outside| outside != own));
    known.map_or_else(other, |found| found.stx_attributes.contains(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_mounts() {
        let place = |line: &str| mount_point(line.as_bytes());
        let line = r"36 35 98:0 /mnt1 /mnt/a\040b\134 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(place(line), Some(PathBuf::from(r"/mnt/a b\")));
        assert_eq!(place(r"36 35 98:0 / /tail\04 rw"), Some(PathBuf::from(r"/tail\04")));
        assert_eq!(place(""), None);
        assert_eq!(mount_inside(Path::new("/nowhere")), None);
    }
}
