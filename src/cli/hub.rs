//! Models by their names on the Hugging Face hub, where no file or folder has the name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::draft::Draft;
use planish_artifact::manifest::HubSource;
use planish_artifact::units::bytes_text;
use planish_compiler::source::{SourceModel, WrittenCompanions};
use planish_hub::{Hub, HubError, HubFile, HubName, Observer, Repository, Settings};
use planish_models::{Checkpoint, RemoteFile, RemoteFiles, wanted, wanted_with};

use super::heartbeat::Heartbeat;
use super::terminal::bars;
use super::{Usage, note};

/// The ending of weights that are read by ranges.
const WEIGHTS: &str = ".safetensors";

const DOWNLOADING: &str = "downloading {bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} {msg}";

/// A model that is here.
pub(super) struct Located {
    /// Its file or folder.
    pub(super) path: PathBuf,
    /// The model of the hub that was downloaded; absent for what was here under its path.
    pub(super) hub: Option<HubSource>,
}

impl Located {
    fn here(path: &Path) -> Self {
        Self { path: path.to_owned(), hub: None }
    }
}

/// Where a model is: what is there under the path, or else the files of the model of that name on the hub, downloaded if the cache
/// does not have them. What is neither is left to whoever opens it. A revision may stand apart from the name.
///
/// # Errors
/// When a revision is given for something else, and when the model cannot be had.
pub(super) fn located(path: &Path, revision: Option<&str>) -> Result<Located> {
    let name = path.to_str().and_then(HubName::parse);
    if path.exists() {
        if revision.is_some() {
            let why = format!("--revision is for names of the hub, and {} is here; leave it out", path.display());
            return Err(Usage(why).into());
        }
        if let Some(name) = name
            && Settings::from_env().and_then(Hub::new).is_ok_and(|hub| hub.has_cached(&name))
        {
            note(&format!("{} here was taken, not the model of this name in the cache of the hub", path.display()));
        }
        return Ok(Located::here(path));
    }
    let name = match (name, revision) {
        (Some(name), None) => name,
        (Some(name), Some(revision)) => with_revision(&name, revision)?,
        (None, Some(_)) => {
            let why = format!("--revision is for names of the hub such as OWNER/NAME, and {} is none", path.display());
            return Err(Usage(why).into());
        }
        (None, None) => return Ok(Located::here(path)),
    };
    download(&name).with_context(|| not_here(path))
}

/// The same for several models.
///
/// # Errors
/// As of [`located`].
pub(super) fn all_located<'a>(paths: impl Iterator<Item = &'a mut PathBuf>) -> Result<()> {
    for path in paths {
        *path = located(path, None)?.path;
    }
    Ok(())
}

fn with_revision(name: &HubName, revision: &str) -> Result<HubName, Usage> {
    if name.revision.is_some() {
        return Err(Usage(format!(
            "the name has a revision after @, and --revision {revision} is another; leave one out"
        )));
    }
    let file = name.file.as_ref().map(|file| format!("/{file}")).unwrap_or_default();
    let whole = format!("{}{file}@{revision}", name.repository);
    HubName::parse(&whole).ok_or_else(|| Usage(format!("--revision {revision} is no branch, tag or commit")))
}

/// A checkpoint on the hub whose weights are read by ranges.
pub(super) struct Afar {
    /// The checkpoint.
    pub(super) source: SourceModel,
    /// The folder with its other files.
    _draft: Draft,
}

/// A file of the hub as a weight file.
#[derive(Debug)]
struct Remote(HubFile);

impl RemoteFile for Remote {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

/// Opens a checkpoint that only the hub has, without its weights; `None` for anything else, and for what the cache has whole.
///
/// # Errors
/// When the model cannot be had.
pub(super) fn afar(path: &Path) -> Result<Option<Afar>> {
    let Some(name) = path.to_str().and_then(HubName::parse).filter(|name| name.file.is_none() && !path.exists()) else {
        return Ok(None);
    };
    let context = || not_here(path);
    let hub = Hub::new(Settings::from_env()?)?;
    let progress = Progress::new();
    let repository = hub.repository(&name, &progress).with_context(context)?;
    open_afar(&repository, &name, &progress).with_context(context)
}

fn open_afar(repository: &Repository<'_>, name: &HubName, progress: &Progress) -> Result<Option<Afar>> {
    let is_weights = |file: &String| file.ends_with(WEIGHTS);
    let files = settle(repository, name, |file| {
        if is_weights(file) { Ok(()) } else { Ok(repository.fetch(std::slice::from_ref(file), progress)?) }
    })?;
    if repository.has(&files) || !files.iter().any(is_weights) {
        return Ok(None);
    }
    // A checkpoint is named after such a folder.
    let draft = Draft::temporary("planish-afar")?;
    let folder = repository.folder();
    let place = folder
        .components()
        .rev()
        .take(3)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .fold(draft.folder().to_owned(), |p, c| p.join(c));
    let mut remote = RemoteFiles::new();
    for file in &files {
        let path = place.join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let failed = || format!("cannot write {}", path.display());
        if is_weights(file) {
            let source = repository.open(file, progress)?;
            File::create(&path).and_then(|stand_in| stand_in.set_len(source.bytes())).with_context(failed)?;
            remote.insert(path, Arc::new(Remote(source)));
        } else {
            symlink(folder.join(file), &path).with_context(failed)?;
        }
    }
    progress.heartbeat.step("reading the headers of the weights");
    let checkpoint = Checkpoint::open_remote(&place, remote)?;
    let source = SourceModel::Checkpoint(Box::new(checkpoint), WrittenCompanions::default());
    Ok(Some(Afar { source, _draft: draft }))
}

/// The files of a model, each of which is passed on once, in an order in which those that name others come before them.
fn settle(
    repository: &Repository<'_>,
    name: &HubName,
    mut fetch: impl FnMut(&String) -> Result<()>,
) -> Result<Vec<String>> {
    let all: Vec<String> = repository.files().map(str::to_owned).collect();
    let folder = repository.folder();
    let mut done = Vec::new();
    loop {
        let found = match &name.file {
            Some(file) => wanted_with(file, &all, &folder),
            None => wanted(&all, &folder),
        };
        let files = found.with_context(|| match repository.is_of_cache() {
            true => format!("what the cache has of {}", name.repository),
            false => name.repository.clone(),
        })?;
        let new: Vec<&String> = files.iter().filter(|file| !done.contains(*file)).collect();
        if new.is_empty() {
            return Ok(files);
        }
        new.iter().try_for_each(|file| fetch(file))?;
        done.extend(new.into_iter().cloned());
    }
}

fn not_here(path: &Path) -> String {
    format!("there is no file or folder {} here, and as a name of the hub", path.display())
}

fn download(name: &HubName) -> Result<Located> {
    let hub = Hub::new(Settings::from_env()?)?;
    let progress = Progress::new();
    progress.heartbeat.step(&format!("asking for {}", name.repository));
    let repository = hub.repository(name, &progress)?;
    let folder = repository.folder();
    settle(&repository, name, |file| {
        announce(&repository, name, file, &progress);
        Ok(repository.fetch(std::slice::from_ref(file), &progress)?)
    })?;
    if !progress.has_come() {
        note(&format!("{} is taken from the cache of the hub: {}", name.repository, folder.display()));
    }
    let hub = HubSource { name: name.repository.clone(), commit: repository.commit().to_owned() };
    let path = name.file.as_ref().map_or(folder.clone(), |file| folder.join(file));
    Ok(Located { path, hub: Some(hub) })
}

/// Says what is downloaded, once, and where it is much.
fn announce(repository: &Repository<'_>, name: &HubName, file: &str, progress: &Progress) {
    /// What comes in no time needs no words.
    const MUCH: u64 = 1 << 20;
    let missing = repository.missing_bytes(&[file.to_owned()]);
    progress.bar.inc_length(missing);
    if missing >= MUCH || missing > 0 && !progress.has_come() {
        let commit = repository.commit().get(..12).unwrap_or_default();
        let (revision, cache) = (name.revision(), repository.cache().display());
        let what = format!("{file} of {} ({revision}, commit {commit})", name.repository);
        progress.bar.suspend(|| note(&format!("downloading {what}, {}, into {cache}", bytes_text(missing))));
    }
}

/// Shows a person what comes: a bar on a terminal, and in a pipe a line after each long silence.
struct Progress {
    bar: ProgressBar,
    heartbeat: Heartbeat,
}

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        if let Ok(style) = ProgressStyle::with_template(DOWNLOADING) {
            bar.set_style(style);
        }
        Self { bar, heartbeat: Heartbeat::of_pipe() }
    }

    fn has_come(&self) -> bool {
        self.bar.position() > 0
    }

    fn tell(&self) {
        let (have, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        self.heartbeat.done("downloading", &format!("{} of {}", bytes_text(have), bytes_text(all)));
    }
}

impl Observer for Progress {
    fn begins(&self, file: &str, _bytes: Option<u64>, have: u64) {
        self.bar.set_message(file.to_owned());
        self.bar.inc(have);
        self.tell();
    }

    fn comes(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.tell();
    }

    fn loses(&self, bytes: u64) {
        self.bar.set_position(self.bar.position().saturating_sub(bytes));
    }

    fn waits(&self, why: &str) {
        self.bar.suspend(|| note(why));
        self.heartbeat.said();
    }

    fn takes_cache(&self, why: &HubError, commit: &str) {
        let text = format!("{why}; commit {commit} of the cache is taken");
        self.bar.suspend(|| super::warn(&text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
