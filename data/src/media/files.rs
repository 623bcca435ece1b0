//! Files of pictures or of recordings: one, those of a folder, or those of the folders in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::Medium;

/// A file of a picture or of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PictureFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its path below the folder that was named, or its name.
    pub(crate) name: String,
    /// The name of the inner folder that it is in, where it is in one.
    pub(crate) label: Option<String>,
}

/// Files of one medium, in the order of their names.
pub(crate) struct PictureFiles {
    /// Those that are taken.
    pub(crate) files: Vec<PictureFile>,
    /// How many there are.
    pub(crate) all: usize,
    pub(crate) medium: Medium,
}

impl PictureFiles {
    /// The file that is named, or those of a folder: the pictures or recordings in it, or in the folders in it. Of more than `most`
    /// in several folders each has the same share, as far as it has so many. `None` where a folder has none.
    ///
    /// # Errors
    /// When a folder cannot be read, has both pictures and recordings, or has files and folders of files.
    pub(crate) fn find(path: &Path, most: usize) -> Result<Option<Self>> {
        if !path.is_dir() {
            let file = PictureFile { path: path.to_owned(), name: name_of(path), label: None };
            return Ok(Medium::of(path).map(|medium| Self { files: vec![file], all: 1, medium }));
        }
        let (folders, own): (Vec<PathBuf>, Vec<PathBuf>) = entries(path)?.into_iter().partition(|entry| entry.is_dir());
        let own: Vec<PictureFile> = media(own, None).collect();
        let mut groups = Vec::new();
        for folder in folders {
            let label = name_of(&folder);
            let group: Vec<PictureFile> = media(entries(&folder)?, Some(&label)).collect();
            if !group.is_empty() {
                groups.push(group);
            }
        }
        if let (Some(own), Some(inner)) = (own.first(), groups.first().and_then(|group| group.first())) {
            let what = Medium::of(&own.path).map_or("files", Medium::plural);
            bail!(
                "{} has {what} ({}) and folders of {what} ({}); give a folder of one of both",
                path.display(),
                own.name,
                inner.name
            );
        }
        if !own.is_empty() {
            groups.push(own);
        }
        let all = groups.iter().map(Vec::len).sum();
        let mut every = groups.iter().flatten().filter_map(|file| Some((Medium::of(&file.path)?, &file.name)));
        let Some((medium, first)) = every.next() else { return Ok(None) };
        if let Some((_, other)) = every.find(|(other, _)| *other != medium) {
            bail!("{} has pictures and recordings ({first} and {other}); give a folder of one of both", path.display());
        }
        Ok(Some(Self { files: shared(groups, most), all, medium }))
    }

    /// The names of the inner folders, each once.
    pub(crate) fn labels(&self) -> Vec<&str> {
        let mut labels: Vec<&str> = self.files.iter().filter_map(|file| file.label.as_deref()).collect();
        labels.dedup();
        labels
    }
}

/// The first pictures of each group, the same number of each as far as it has so many.
fn shared(groups: Vec<Vec<PictureFile>>, most: usize) -> Vec<PictureFile> {
    let mut taken = vec![0; groups.len()];
    let mut left = most;
    let mut open: Vec<usize> = (0..groups.len()).collect();
    while left > 0 && !open.is_empty() {
        open.truncate(left);
        let share = left / open.len();
        for group in &open {
            let more = share.min(groups[*group].len() - taken[*group]);
            taken[*group] += more;
            left -= more;
        }
        open.retain(|group| taken[*group] < groups[*group].len());
    }
    groups.into_iter().zip(taken).flat_map(|(group, taken)| group.into_iter().take(taken)).collect()
}

/// What is in a folder, in the order of the names, but what is hidden.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("cannot read {}", folder.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if !name_of(&path).starts_with('.') {
            all.push(path);
        }
    }
    all.sort_unstable();
    Ok(all)
}

fn media(files: Vec<PathBuf>, label: Option<&str>) -> impl Iterator<Item = PictureFile> {
    files.into_iter().filter(|file| Medium::of(file).is_some()).map(move |path| {
        let own = name_of(&path);
        let name = label.map_or_else(|| own.clone(), |label| format!("{label}/{own}"));
        PictureFile { path, name, label: label.map(str::to_owned) }
    })
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path, most: usize) -> Vec<String> {
        let found = PictureFiles::find(folder, most).unwrap();
        found.into_iter().flat_map(|found| found.files).map(|file| file.name).collect()
    }

    #[test]
    fn folders_share_what_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b/1.png", "b/2.PNG", "b/3.jpg", "b/note.txt", "a/9.webp", ".hidden/1.png", "empty/x.txt"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(names(folder.path(), usize::MAX), ["a/9.webp", "b/1.png", "b/2.PNG", "b/3.jpg"]);
        assert_eq!(names(folder.path(), 3), ["a/9.webp", "b/1.png", "b/2.PNG"]);
        assert_eq!(names(folder.path(), 2), ["a/9.webp", "b/1.png"]);
        assert_eq!(names(folder.path(), 1), ["a/9.webp"]);
        assert_eq!(PictureFiles::find(folder.path(), 9).unwrap().unwrap().labels(), ["a", "b"]);
        assert_eq!(names(&folder.path().join("b"), 9), ["1.png", "2.PNG", "3.jpg"]);
        assert!(names(&folder.path().join("empty"), 9).is_empty());
        fs::write(folder.path().join("0.gif"), "").unwrap();
        let error = PictureFiles::find(folder.path(), 9).err().unwrap().to_string();
        assert!(error.contains("has pictures (0.gif) and folders of pictures (a/9.webp)"), "{error}");
    }

    #[test]
    fn a_folder_has_one_medium() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["2.WAV", "1.mp3", "note.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = PictureFiles::find(folder.path(), 9).unwrap().unwrap();
        assert_eq!((found.medium, found.all), (Medium::Recordings, 2));
        assert_eq!(names(folder.path(), 1), ["1.mp3"]);
        fs::write(folder.path().join("0.gif"), "").unwrap();
        let error = PictureFiles::find(folder.path(), 9).err().unwrap().to_string();
        assert!(error.contains("has pictures and recordings (0.gif and 1.mp3)"), "{error}");
    }
}
