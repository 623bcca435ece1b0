//! Models by their names on the Hugging Face hub or by their addresses in object stores and on web servers, where no file or folder has
//! the name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use planish_artifact::draft::Draft;
use planish_artifact::manifest::HubSource;
use planish_artifact::units::bytes_text;
use planish_compiler::source::{SourceModel, WrittenCompanions};
use planish_hub::{Hub, HubName, RangedFile, RemoteModel, Settings, Store, StoreAddress};
use planish_models::{Checkpoint, RemoteFile, RemoteFiles, candidates, wanted, wanted_with};
use planish_runtimes::cache_folder;

use super::downloads::Progress;
use super::note;

/// The ending of weights that are read by ranges.
const WEIGHTS: &str = ".safetensors";

/// The folder of models of object stores and web servers, in that of the caches of planish.
const STORES: &str = "stores";

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

/// Where a model is: what is there under the path, or else the files of the model of that name on the hub or at that address, downloaded
/// if the cache does not have them. What is none of these is left to whoever opens it.
///
/// # Errors
/// When the model cannot be had.
pub(super) fn located(path: &Path) -> Result<Located> {
    let name = path.to_str().and_then(HubName::parse);
    if path.exists() {
        if let Some(name) = name
            && Settings::from_env().and_then(Hub::new).is_ok_and(|hub| hub.has_cached(&name))
        {
            note(&format!("{} here was taken, not the model of this name in the cache of the hub", path.display()));
        }
        return Ok(Located::here(path));
    }
    match Place::of(path)? {
        Some(place) => place.visit(path, download),
        None => Ok(Located::here(path)),
    }
}

/// The same for several models.
///
/// # Errors
/// As of [`located`].
pub(super) fn all_located<'a>(paths: impl Iterator<Item = &'a mut PathBuf>) -> Result<()> {
    for path in paths {
        *path = located(path)?.path;
    }
    Ok(())
}

/// Where a model is that is not here.
enum Place {
    Hub(HubName),
    Store(StoreAddress),
}

impl Place {
    /// The place that a path of nothing here is a name or an address of.
    fn of(path: &Path) -> Result<Option<Self>> {
        let text = path.to_str().unwrap_or_default();
        match HubName::parse(text) {
            Some(name) => Ok(Some(Self::Hub(name))),
            None => Ok(StoreAddress::parse(text)?.map(Self::Store)),
        }
    }

    /// The file that was named.
    fn file(&self) -> Option<&str> {
        match self {
            Self::Hub(name) => name.file.as_deref(),
            Self::Store(address) => address.file(),
        }
    }

    /// Does something with the model that is there.
    fn visit<T>(&self, path: &Path, visit: impl FnOnce(&Visited<'_>) -> Result<T>) -> Result<T> {
        let (settings, progress, file) = (Settings::from_env()?, Progress::new(), self.file());
        let progress = &progress;
        match self {
            Self::Hub(name) => {
                progress.heartbeat.step(&format!("asking for {}", name.repository));
                let visited = || {
                    let hub = Hub::new(settings)?;
                    let repository = hub.repository(name, progress)?;
                    let commit = repository.commit().to_owned();
                    let hub = Some(HubSource { name: name.repository.clone(), commit });
                    visit(&Visited { model: &repository, file, hub, progress })
                };
                visited().with_context(|| {
                    format!("there is no file or folder {} here, and as a name of the hub", path.display())
                })
            }
            Self::Store(address) => {
                progress.heartbeat.step(&format!("asking for {}", address.shown()));
                let caches = cache_folder::of_user();
                let caches =
                    caches.ok_or_else(|| anyhow!("there is no folder for caches: set HOME or XDG_CACHE_HOME"))?;
                let store = Store::new(address, Settings { cache: caches.join(STORES), ..settings })?;
                visit(&Visited { model: &store, file, hub: None, progress })
            }
        }
    }
}

/// A model elsewhere, while something is done with it.
struct Visited<'a> {
    model: &'a dyn RemoteModel,
    file: Option<&'a str>,
    hub: Option<HubSource>,
    progress: &'a Progress,
}

/// A checkpoint elsewhere whose weights are read by ranges.
pub(super) struct Afar {
    /// The checkpoint.
    pub(super) source: SourceModel,
    /// The folder with its other files.
    _draft: Draft,
}

/// A file elsewhere as a weight file.
#[derive(Debug)]
struct Remote(Box<dyn RangedFile>);

impl RemoteFile for Remote {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

/// Opens a checkpoint that is not here, without its weights; `None` for anything else, and for what the cache has whole.
///
/// # Errors
/// When the model cannot be had.
pub(super) fn afar(path: &Path) -> Result<Option<Afar>> {
    if path.exists() {
        return Ok(None);
    }
    match Place::of(path)?.filter(|place| place.file().is_none()) {
        Some(place) => place.visit(path, open_afar),
        None => Ok(None),
    }
}

fn open_afar(visited: &Visited<'_>) -> Result<Option<Afar>> {
    let Visited { model, progress, .. } = visited;
    let is_weights = |file: &String| file.ends_with(WEIGHTS);
    let files = visited.settle(|file| if is_weights(file) { Ok(()) } else { Ok(model.fetch(file, *progress)?) })?;
    if files.iter().all(|file| model.has(file)) || !files.iter().any(is_weights) {
        return Ok(None);
    }
    // A checkpoint is named after such a folder.
    let draft = Draft::temporary("planish-afar")?;
    let folder = model.folder();
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
            let source = model.open(file, *progress)?;
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

impl Visited<'_> {
    /// The files of the model, each of which is passed on once, in an order in which those that name others come before them.
    fn settle(&self, mut fetch: impl FnMut(&String) -> Result<()>) -> Result<Vec<String>> {
        let Self { model, file, progress, .. } = self;
        let folder = model.folder();
        let mut done = Vec::new();
        loop {
            // At first, what is there may be of an older state.
            let here = (!done.is_empty()).then_some(folder.as_path());
            let all = model.files(&candidates(*file, here)?, *progress)?;
            let found = match file {
                Some(file) => wanted_with(file, &all, &folder),
                None => wanted(&all, &folder),
            };
            let files = found.with_context(|| match model.is_of_cache() {
                true => format!("what the cache has of {}", model.name()),
                false => model.name(),
            })?;
            let new: Vec<&String> = files.iter().filter(|file| !done.contains(*file)).collect();
            if new.is_empty() {
                return Ok(files);
            }
            new.iter().try_for_each(|file| fetch(file))?;
            done.extend(new.into_iter().cloned());
        }
    }

    /// Says what is downloaded, once, and where it is much.
    fn announce(&self, file: &str) {
        /// What comes in no time needs no words.
        const MUCH: u64 = 1 << 20;
        let Self { model, progress, .. } = self;
        let missing = model.bytes(file).filter(|_| !model.has(file)).unwrap_or_default();
        progress.bar.inc_length(missing);
        if missing >= MUCH || missing > 0 && !progress.has_come() {
            let state = model.state().map(|state| format!(" ({state})")).unwrap_or_default();
            let what = format!("{file} of {}{state}", model.name());
            let cache = model.cache().display();
            progress.bar.suspend(|| note(&format!("downloading {what}, {}, into {cache}", bytes_text(missing))));
        }
    }
}

fn download(visited: &Visited<'_>) -> Result<Located> {
    let Visited { model, file, hub, progress } = visited;
    visited.settle(|file| {
        visited.announce(file);
        Ok(model.fetch(file, *progress)?)
    })?;
    let folder = model.folder();
    if !progress.has_come() {
        let whose = if hub.is_some() { " of the hub" } else { "" };
        note(&format!("{} is taken from the cache{whose}: {}", model.name(), folder.display()));
    }
    Ok(Located { path: file.map_or(folder.clone(), |file| folder.join(file)), hub: hub.clone() })
}
