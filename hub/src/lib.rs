//! Models elsewhere: those of the Hugging Face hub, by the names that the hub gives them, and those of object stores and web servers,
//! by their addresses ([`Store`]).
//!
//! Files of the hub are downloaded into the cache of Python's huggingface_hub, in its layout and with its locks, so either finds what the
//! other downloaded. Settings are its environment variables ([`Settings::from_env`]). Only the hub itself gets the token: not the
//! servers that it redirects to.

mod cache;
mod error;
mod fetch;
mod http;
mod listing;
mod name;
mod ranges;
mod settings;
mod stores;
mod transfer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cache::Cache;
use http::Client;
use listing::{Listed, Listing};

pub use error::HubError;
pub use name::HubName;
pub use settings::Settings;
pub use stores::{Store, StoreAddress, without_secrets};

/// What a caller sees while files come.
pub trait Observer {
    /// A file of a size begins to come, and so many of its bytes are there.
    fn begins(&self, file: &str, bytes: Option<u64>, have: u64);
    /// So many bytes more came.
    fn comes(&self, bytes: u64);
    /// So many bytes that came have to come again.
    fn loses(&self, bytes: u64);
    /// Something takes longer, and why.
    fn waits(&self, why: &str);
    /// Something of the cache is taken as it is, because the hub cannot be asked.
    fn takes_cache(&self, why: &HubError, what: &str);
}

/// A model elsewhere: its files, and those of them that are here.
pub trait RemoteModel {
    /// How a person calls it.
    fn name(&self) -> String;

    /// The paths of its files. A server that lists none is asked for each of some others.
    ///
    /// # Errors
    /// When the server cannot be asked.
    fn files(&self, candidates: &[String], observer: &dyn Observer) -> Result<Vec<String>, HubError>;

    /// What of it is taken, such as its revision and its commit; `None` where there is one state.
    fn state(&self) -> Option<String>;

    /// Whether these are the files that the cache has, and not all.
    fn is_of_cache(&self) -> bool;

    /// The folder of the files that are here.
    fn folder(&self) -> PathBuf;

    /// The folder of the caches of all models.
    fn cache(&self) -> &Path;

    /// Whether the cache has a file as it is now.
    fn has(&self, file: &str) -> bool;

    /// How large a file is, where that is known.
    fn bytes(&self, file: &str) -> Option<u64>;

    /// Has the cache hold a file.
    ///
    /// # Errors
    /// When it cannot be downloaded, is not what the server says, or there is no room for it.
    fn fetch(&self, file: &str, observer: &dyn Observer) -> Result<(), HubError>;

    /// A file that is read by ranges.
    ///
    /// # Errors
    /// When the model has no such file, or the server does not say how large it is.
    fn open(&self, file: &str, observer: &dyn Observer) -> Result<Box<dyn RangedFile>, HubError>;
}

/// A file that is read by ranges.
pub trait RangedFile: fmt::Debug + Send + Sync {
    /// Its size in bytes.
    fn bytes(&self) -> u64;

    /// Fills a buffer with the bytes from an offset on.
    ///
    /// # Errors
    /// When they do not come, or the server has no ranges.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A hub.
#[derive(Debug)]
pub struct Hub {
    client: Arc<Client>,
}

impl Hub {
    /// The hub of some settings.
    ///
    /// # Errors
    /// When its address is none.
    pub fn new(settings: Settings) -> Result<Self, HubError> {
        Ok(Self { client: Arc::new(Client::new(settings)?) })
    }

    /// Whether the cache has files of a model.
    #[must_use]
    pub fn has_cached(&self, name: &HubName) -> bool {
        let cache = Cache::new(&self.client.settings().cache, &name.repository);
        cache.commit(name.revision()).is_some_and(|commit| cache.snapshot(&commit).is_dir())
    }

    /// Asks for the files of a model. Where the network is not to be used or not there, they are those that the cache has.
    ///
    /// # Errors
    /// When there is no such model, it may not be seen, or neither the hub nor the cache has it.
    pub fn repository(&self, name: &HubName, observer: &dyn Observer) -> Result<Repository<'_>, HubError> {
        let settings = self.client.settings();
        let cache = Cache::new(&settings.cache, &name.repository);
        let bare = Repository {
            hub: self,
            name: name.clone(),
            cache,
            commit: String::new(),
            files: Vec::new(),
            is_cache: false,
        };
        let named = format!("{} ({})", name.repository, name.revision());
        if let Some(variable) = settings.offline {
            return bare.cached().ok_or_else(|| HubError::Offline {
                name: named,
                cache: settings.cache.clone(),
                variable,
                advice: self.client.advice(),
            });
        }
        match listing::list(&bare, observer) {
            Ok(Listing { commit, files }) => {
                // A cache that cannot be written may have all files; if it does not, the first download says so.
                let _ = bare.cache.note_commit(name.revision(), &commit);
                Ok(Repository { commit, files, ..bare })
            }
            Err(error) if may_be_passing(&error) => match bare.cached() {
                Some(cached) => {
                    observer.takes_cache(&error, &format!("commit {} of the cache", cached.commit));
                    Ok(cached)
                }
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// Whether an error says nothing of the model.
fn may_be_passing(error: &HubError) -> bool {
    matches!(error, HubError::Unreachable { .. } | HubError::Answer { .. })
}

/// The files of a model at one commit.
#[derive(Debug)]
pub struct Repository<'h> {
    hub: &'h Hub,
    name: HubName,
    cache: Cache,
    commit: String,
    files: Vec<Listed>,
    /// Whether these are the files of the cache only.
    is_cache: bool,
}

impl Repository<'_> {
    /// The same with the files that the cache has; `None` where it has none.
    fn cached(&self) -> Option<Self> {
        let commit = self.cache.commit(self.name.revision())?;
        let files: Vec<_> = self.cache.files(&commit).into_iter().map(|name| Listed { name, bytes: None }).collect();
        let (name, cache) = (self.name.clone(), self.cache.clone());
        (!files.is_empty()).then_some(Self { hub: self.hub, name, cache, commit, files, is_cache: true })
    }

    /// The commit, 40 hexadecimal digits.
    #[must_use]
    pub fn commit(&self) -> &str {
        &self.commit
    }

    pub(crate) fn listed(&self, file: &str) -> Option<u64> {
        self.files.iter().find(|other| other.name == file).and_then(|other| other.bytes)
    }

    /// The address of a file.
    fn url(&self, file: &str) -> String {
        let Self { name, commit, hub, .. } = self;
        format!("{}/{}/resolve/{commit}/{}", hub.client.settings().endpoint, name.repository, encoded(file))
    }
}

impl RemoteModel for Repository<'_> {
    fn name(&self) -> String {
        self.name.repository.clone()
    }

    fn files(&self, _: &[String], _: &dyn Observer) -> Result<Vec<String>, HubError> {
        Ok(self.files.iter().map(|file| file.name.clone()).collect())
    }

    fn state(&self) -> Option<String> {
        let commit = self.commit.get(..12).unwrap_or_default();
        Some(format!("{}, commit {commit}", self.name.revision()))
    }

    fn is_of_cache(&self) -> bool {
        self.is_cache
    }

    fn folder(&self) -> PathBuf {
        self.cache.snapshot(&self.commit)
    }

    fn cache(&self) -> &Path {
        &self.cache.root
    }

    fn has(&self, file: &str) -> bool {
        self.folder().join(file).exists()
    }

    fn bytes(&self, file: &str) -> Option<u64> {
        self.listed(file)
    }

    fn fetch(&self, file: &str, observer: &dyn Observer) -> Result<(), HubError> {
        if self.is_cache { Ok(()) } else { self.fetch_file(file, observer) }
    }

    fn open(&self, file: &str, observer: &dyn Observer) -> Result<Box<dyn RangedFile>, HubError> {
        Ok(Box::new(self.open_file(file, observer)?))
    }
}

/// A path with the characters that an address cannot have as they stand in one.
fn encoded(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(one).collect()
}
