//! The bytes of one file on their way into the cache.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use ring::digest::{Context, SHA256};

use crate::cache::{Cache, Lock, failed, make_parent};
use crate::{HubError, Observer};

/// How many transfers in turn may break without a byte.
const TRIES: u32 = 5;

const CHUNK: usize = 256 << 10;

/// What a server says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The name of its bytes in the cache: for a large file of the hub their SHA-256.
    pub(crate) etag: String,
    pub(crate) bytes: Option<u64>,
}

/// Where the bytes of a file come from.
pub(crate) trait Origin {
    /// Asks for the bytes from one on.
    fn bytes_from(&self, from: u64, observer: &dyn Observer) -> Result<Answer, HubError>;

    /// How long to wait after so many failures.
    fn pause(&self, failures: u32) -> Duration;

    /// Whether what is here of the file begins what is still to come.
    fn goes_on(&self) -> bool;

    /// The error of a file that is not what the server says.
    fn differs(&self, message: String) -> HubError;

    /// Who has the file, such as `the hub`.
    fn who(&self) -> &'static str;

    /// The environment variable that says where the cache is.
    fn variable(&self) -> &'static str;
}

/// What a server sends.
pub(crate) enum Answer {
    /// The bytes that were asked for.
    Rest(Box<dyn Read>),
    /// All bytes of the file in place of those.
    Whole(Box<dyn Read>),
    /// Nothing: there are no such bytes.
    NoRange,
}

/// A file on its way into the cache.
pub(crate) struct Transfer<'a> {
    origin: &'a dyn Origin,
    cache: &'a Cache,
    file: &'a str,
    facts: &'a Facts,
    have: u64,
    observer: &'a dyn Observer,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(
        origin: &'a dyn Origin,
        cache: &'a Cache,
        (file, facts): (&'a str, &'a Facts),
        observer: &'a dyn Observer,
    ) -> Self {
        Self { origin, cache, file, facts, have: 0, observer }
    }

    /// Has the cache hold the bytes, unless it does; somebody else may download the same ones.
    pub(crate) fn settle(self) -> Result<(), HubError> {
        let waits = || self.observer.waits(&format!("another process downloads {}; waiting", self.file));
        let lock = self.cache.lock(&self.facts.etag, &waits)?;
        if self.cache.blob(&self.facts.etag).exists() { Ok(()) } else { self.download(&lock) }
    }

    /// Downloads the bytes of a file, or those that are missing, and checks them.
    fn download(mut self, lock: &Lock) -> Result<(), HubError> {
        let path = self.cache.incomplete(&self.facts.etag, lock);
        make_parent(&path)?;
        let mut options = OpenOptions::new();
        #[allow(clippy::disallowed_methods, reason = "the file is written; what is there already is a part of it")]
        let mut draft = options.read(true).append(true).create(true).open(&path).map_err(failed("open", &path))?;
        let have = draft.metadata().map_err(failed("read", &path))?.len();
        self.check_space(self.facts.bytes.map(|bytes| bytes.saturating_sub(have)))?;
        match self.facts.bytes {
            Some(bytes) if have <= bytes && self.origin.goes_on() => self.have = have,
            _ => draft.set_len(0).map_err(failed("write", &path))?,
        }
        self.observer.begins(self.file, self.facts.bytes, self.have);
        let goes_on = self.have > 0;
        self.run(&mut draft, &path)?;
        let mut checked = self.check(&mut draft, &path);
        if goes_on && checked.is_err() {
            // What was there began another file.
            self.begin_anew(&draft, &path)?;
            self.run(&mut draft, &path)?;
            checked = self.check(&mut draft, &path);
        }
        if let Err(error) = checked {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
            return Err(error);
        }
        let blob = self.cache.blob(&self.facts.etag);
        fs::rename(&path, &blob).map_err(failed("write", &blob))?;
        Ok(())
    }

    /// Refuses to begin what cannot end.
    fn check_space(&self, missing: Option<u64>) -> Result<(), HubError> {
        let Some(missing) = missing else { return Ok(()) };
        let Ok(disk) = rustix::fs::statvfs(&self.cache.root) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if missing > free {
            return Err(self.full(format!("{missing} bytes are to come, and {free} are free")));
        }
        Ok(())
    }

    fn full(&self, message: String) -> HubError {
        let (cache, variable) = (self.cache.root.clone(), self.origin.variable());
        HubError::Full { file: self.file.to_owned(), cache, message, variable }
    }

    /// Forgets what came.
    fn begin_anew(&mut self, draft: &File, path: &Path) -> Result<(), HubError> {
        draft.set_len(0).map_err(failed("write", path))?;
        self.observer.loses(self.have);
        self.have = 0;
        Ok(())
    }

    /// Downloads what is missing; a transfer that breaks goes on where it broke.
    fn run(&mut self, draft: &mut File, path: &Path) -> Result<(), HubError> {
        let (mut failures, mut is_whole) = (0, self.facts.bytes == Some(0));
        let mut farthest = self.have;
        while !is_whole && self.facts.bytes != Some(self.have) {
            let broke = match self.part(draft, path)? {
                Ok(()) if self.facts.bytes.is_none() => {
                    is_whole = true;
                    continue;
                }
                Ok(()) if self.facts.bytes == Some(self.have) => continue,
                Ok(()) => "it ends early".to_owned(),
                Err(error) => error.to_string(),
            };
            // A server without the range sends all again, which is nothing new.
            failures = if self.have > farthest { 1 } else { failures + 1 };
            farthest = farthest.max(self.have);
            if failures >= TRIES {
                let total = self.facts.bytes.map(|bytes| format!(" of {bytes}")).unwrap_or_default();
                let message = format!(
                    "the transfer breaks after {}{total} bytes ({broke}); what came is kept, and the next run goes on from there",
                    self.have
                );
                return Err(self.origin.differs(message));
            }
            let wait = self.origin.pause(failures);
            let after = format!("{}: the transfer breaks after {} bytes ({broke}); going on", self.file, self.have);
            self.observer.waits(&after);
            std::thread::sleep(wait);
        }
        Ok(())
    }

    /// One request for the rest; the inner error is one of the transfer.
    fn part(&mut self, draft: &mut File, path: &Path) -> Result<io::Result<()>, HubError> {
        let mut body = match self.origin.bytes_from(self.have, self.observer)? {
            Answer::Rest(body) => body,
            Answer::Whole(body) => {
                self.begin_anew(draft, path)?;
                body
            }
            Answer::NoRange => {
                self.begin_anew(draft, path)?;
                return Ok(Err(io::Error::other("the server has no such range")));
            }
        };
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match body.read(&mut chunk) {
                Ok(0) => return Ok(Ok(())),
                Ok(count) => count,
                Err(error) => return Ok(Err(error)),
            };
            let now = self.have.saturating_add(count as u64);
            if let Some(bytes) = self.facts.bytes.filter(|bytes| now > *bytes) {
                fs::remove_file(path).map_err(failed("remove", path))?;
                let who = self.origin.who();
                let message =
                    format!("{who} says that it has {bytes} bytes, and more come; try again, or tell who runs {who}");
                return Err(self.origin.differs(message));
            }
            draft.write_all(&chunk[..count]).map_err(|error| self.unwritten(error, path))?;
            self.have = now;
            self.observer.comes(count as u64);
        }
    }

    fn unwritten(&self, error: io::Error, path: &Path) -> HubError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.full(format!("{} bytes are written, and no more fit", self.have))
            }
            _ => failed("write", path)(error),
        }
    }

    /// Checks that the bytes of a large file of the hub are those that it names.
    fn check(&self, draft: &mut File, path: &Path) -> Result<(), HubError> {
        let etag = self.facts.etag.as_str();
        if !is_sha256(etag) {
            return Ok(());
        }
        let mut context = Context::new(&SHA256);
        let mut chunk = vec![0; CHUNK];
        draft.seek(SeekFrom::Start(0)).map_err(failed("read", path))?;
        loop {
            match draft.read(&mut chunk).map_err(failed("read", path))? {
                0 => break,
                count => context.update(&chunk[..count]),
            }
        }
        let found: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        if found == etag {
            return Ok(());
        }
        let who = self.origin.who();
        let message = format!("its SHA-256 is {found}, and {who} says {etag}: what came is removed; try again");
        Err(self.origin.differs(message))
    }
}

/// Whether an ETag is the checksum of a large file. Small ones have git's, of other bytes than theirs.
pub(crate) fn is_sha256(etag: &str) -> bool {
    etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit())
}
