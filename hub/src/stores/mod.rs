//! Models in object stores and on web servers, by the addresses of their folders and files.
//!
//! The crate `object_store` signs and reads requests, and the client of the hub makes them (connector.rs). The cache has the layout of the
//! hub's, with one snapshot for each folder, in which a link says by its target which state of an object it is.

mod address;
mod connector;
mod object;
mod open;
mod told;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use tokio::runtime::Runtime;

use crate::cache::Cache;
use crate::http::Client;
use crate::name::is_file;
use crate::transfer::{Facts, Transfer};
use crate::{HubError, Observer, RangedFile, RemoteModel, Settings, may_be_passing};

pub use address::{StoreAddress, without_secrets};
use connector::Failure;
use object::{Object, StoreFile};

/// The snapshot of a folder: there is one, of its state when it was asked for last.
const SNAPSHOT: &str = "latest";

/// The most objects that a folder may have.
const MOST_OBJECTS: usize = 100_000;

/// A folder of an object store or of a web server.
#[derive(Debug)]
pub struct Store {
    inner: Arc<Inner>,
    cache: Cache,
    /// What is known of objects, by their paths in the folder: nothing where there is none.
    objects: Mutex<BTreeMap<String, Option<Object>>>,
    /// Whether the store cannot be asked, and the cache is taken.
    is_cache: AtomicBool,
}

/// What asks a store.
#[derive(Debug)]
struct Inner {
    address: StoreAddress,
    store: Box<dyn ObjectStore>,
    client: Arc<Client>,
    /// Where requests are waited for: the client blocks, so nothing else goes on in it.
    runtime: Runtime,
}

impl Inner {
    /// Asks, and asks again what may be otherwise in a moment.
    fn ask<T, F>(&self, observer: &dyn Observer, ask: impl Fn() -> F) -> object_store::Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let host = self.address.url.host_str().unwrap_or_default();
        self.client.retried(host, observer, || {
            let answer = self.runtime.block_on(ask());
            let passing = answer.as_ref().err().and_then(|error| Failure::of(error)?.passing());
            (answer, passing)
        })
    }

    /// The path of a file in the store.
    fn path(&self, file: &str) -> object_store::path::Path {
        self.address.path(file)
    }
}

impl Store {
    /// The folder of an address. Nothing is asked yet. Of the settings, those of the hub itself count for nothing.
    ///
    /// # Errors
    /// When the environment lacks what the address needs, or has what cannot be used.
    pub fn new(address: &StoreAddress, settings: Settings) -> Result<Self, HubError> {
        let cache = settings.cache.clone();
        let opened = open::open(address, Settings { token: None, ..settings })?;
        let cache = Cache::new(&cache, &opened.key);
        let inner =
            Inner { address: address.clone(), store: opened.store, client: opened.client, runtime: opened.runtime };
        Ok(Self { inner: Arc::new(inner), cache, objects: Mutex::default(), is_cache: AtomicBool::new(false) })
    }

    /// Asks which objects the folder has, once.
    fn list(&self, observer: &dyn Observer) -> Result<(), HubError> {
        if !self.known().is_empty() {
            return Ok(());
        }
        let Inner { address, store, .. } = &*self.inner;
        let folder = Some(&address.folder);
        let listed = self.inner.ask(observer, || async {
            if address.file().is_some() {
                return Ok(store.list_with_delimiter(folder).await?.objects);
            }
            let listed: Vec<_> = store.list(folder).take(MOST_OBJECTS + 1).collect().await;
            listed.into_iter().collect()
        });
        let listed: Vec<ObjectMeta> = listed.map_err(|error| self.inner.told(&error, None))?;
        if listed.is_empty() {
            return Err(self.inner.no("there is no object below it; check the bucket and the folder"));
        }
        if listed.len() > MOST_OBJECTS {
            return Err(self
                .inner
                .no(&format!("there are more than {MOST_OBJECTS} objects below it; name a folder in it")));
        }
        let within = |object: &ObjectMeta| {
            let path: Vec<_> =
                object.location.prefix_match(&address.folder)?.map(|part| part.as_ref().to_owned()).collect();
            Some((path.join("/"), Some(Object::of(object)))).filter(|(file, _)| is_file(file))
        };
        *self.known() = listed.iter().filter_map(within).collect();
        // What is not there, or is another one now, is not to be found.
        for file in self.cache.files(SNAPSHOT) {
            let object = self.known().get(&file).cloned().flatten();
            self.cache.forget_others(SNAPSHOT, &file, object.map(|object| object.key(&file)).as_deref())?;
        }
        Ok(())
    }

    /// Asks for files that may be there.
    fn probe(&self, candidates: &[String], observer: &dyn Observer) -> Result<(), HubError> {
        let mut refused = None;
        for file in candidates {
            if self.known().contains_key(file) {
                continue;
            }
            let path = self.inner.path(file);
            // A signature is for one method.
            let options = match self.inner.address.is_signed() {
                true => GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() },
                false => GetOptions { head: true, ..GetOptions::default() },
            };
            let object = match self.inner.ask(observer, || self.inner.store.get_opts(&path, options.clone())) {
                Ok(answer) => Some(Object::of(&answer.meta)),
                Err(error) => match Failure::of(&error).and_then(Failure::status) {
                    Some(404 | 410) => None,
                    // Who may not list a bucket is refused what is not there.
                    Some(401 | 403) => {
                        refused = Some(self.inner.told(&error, Some(file)));
                        // What the cache has of it may be right.
                        self.known().insert(file.clone(), None);
                        continue;
                    }
                    _ => return Err(self.inner.told(&error, Some(file))),
                },
            };
            self.cache.forget_others(SNAPSHOT, file, object.as_ref().map(|object| object.key(file)).as_deref())?;
            self.known().insert(file.clone(), object);
        }
        match refused {
            Some(error) if self.known().values().all(Option::is_none) => Err(error),
            _ => Ok(()),
        }
    }

    /// What is known of a file.
    fn object(&self, file: &str, observer: &dyn Observer) -> Result<Object, HubError> {
        if !self.inner.lists() {
            self.probe(&[file.to_owned()], observer)?;
        }
        let object = self.known().get(file).cloned().flatten();
        object.ok_or_else(|| self.inner.no(&format!("there is no file {file}")))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Option<Object>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteModel for Store {
    fn name(&self) -> String {
        self.inner.address.shown().to_owned()
    }

    fn state(&self) -> Option<String> {
        None
    }

    fn files(&self, candidates: &[String], observer: &dyn Observer) -> Result<Vec<String>, HubError> {
        if !self.is_of_cache() {
            let asked = if self.inner.lists() { self.list(observer) } else { self.probe(candidates, observer) };
            match asked {
                Ok(()) => {
                    let there = |(file, object): (&String, &Option<Object>)| object.as_ref().map(|_| file.clone());
                    return Ok(self.known().iter().filter_map(there).collect());
                }
                Err(error) if may_be_passing(&error) && !self.cache.files(SNAPSHOT).is_empty() => {
                    observer.takes_cache(&error, "what the cache has");
                    self.is_cache.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.cache.files(SNAPSHOT))
    }

    fn is_of_cache(&self) -> bool {
        self.is_cache.load(Ordering::Relaxed)
    }

    fn folder(&self) -> PathBuf {
        self.cache.snapshot(SNAPSHOT)
    }

    fn cache(&self) -> &Path {
        &self.cache.root
    }

    fn has(&self, file: &str) -> bool {
        self.folder().join(file).exists()
    }

    fn bytes(&self, file: &str) -> Option<u64> {
        self.known().get(file).and_then(|object| object.as_ref().map(|object| object.bytes))
    }

    fn fetch(&self, file: &str, observer: &dyn Observer) -> Result<(), HubError> {
        if self.is_of_cache() {
            return Ok(());
        }
        let object = self.object(file, observer)?;
        if self.has(file) {
            return Ok(());
        }
        let facts = Facts { etag: object.key(file), bytes: Some(object.bytes) };
        let origin = StoreFile::new(&self.inner, file, object);
        Transfer::new(&origin, &self.cache, (file, &facts), observer).settle()?;
        self.cache.link(SNAPSHOT, file, &facts.etag)
    }

    fn open(&self, file: &str, observer: &dyn Observer) -> Result<Box<dyn RangedFile>, HubError> {
        let object = self.object(file, observer)?;
        Ok(Box::new(StoreFile::new(&self.inner, file, object)))
    }
}
