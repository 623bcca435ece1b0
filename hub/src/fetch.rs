//! One file: what the hub says of it, and its bytes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ring::digest::{Context, SHA256};
use ureq::http::StatusCode;
use ureq::{Body, http::Response};

use crate::cache::{Lock, failed, make_parent};
use crate::http::{Ask, Redirects, Verb, header};
use crate::name::is_file;
use crate::{HubError, Observer, Repository};

/// How many transfers in turn may break without a byte.
const TRIES: u32 = 5;

const CHUNK: usize = 256 << 10;

/// What the hub says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The name of its bytes: for a large file their SHA-256.
    pub(crate) etag: String,
    pub(crate) bytes: Option<u64>,
}

impl Repository<'_> {
    /// Has the cache hold a file.
    pub(crate) fn fetch_file(&self, file: &str, observer: &dyn Observer) -> Result<(), HubError> {
        let place = self.folder().join(file);
        if place.exists() {
            return Ok(());
        }
        let facts = self.facts(file, observer)?;
        let listed = self.listed(file);
        if let (Some(listed), Some(bytes)) = (listed, facts.bytes)
            && listed != bytes
        {
            return Err(
                self.differs(file, format!("the hub lists it with {listed} bytes, and says {bytes} when asked for it"))
            );
        }
        let facts = Facts { bytes: facts.bytes.or(listed), ..facts };
        let lock =
            self.cache.lock(&facts.etag, &|| observer.waits(&format!("another process downloads {file}; waiting")))?;
        if !self.cache.blob(&facts.etag).exists() {
            self.download(file, &facts, &lock, observer)?;
        }
        self.cache.link(&self.commit, file, &facts.etag)
    }

    /// Asks what a file is.
    pub(crate) fn facts(&self, file: &str, observer: &dyn Observer) -> Result<Facts, HubError> {
        let url = self.url(file);
        let ask = Ask { method: Verb::Head, url: &url, range: (0, None), redirects: Redirects::Own };
        let response = self.hub.client.send(ask, observer)?;
        if !response.status().is_success() && !response.status().is_redirection() {
            return Err(self.refused(&response, &url, Some(file)));
        }
        let bad =
            |message: &str| HubError::Answer { url: url.clone(), message: format!("{message}; is HF_ENDPOINT a hub?") };
        match header(&response, "x-repo-commit") {
            Some(commit) if commit == self.commit => {}
            Some(other) => return Err(bad(&format!("it is of the commit {other}, and {} was asked for", self.commit))),
            None => return Err(bad("the answer has no header X-Repo-Commit")),
        }
        let etag = header(&response, "x-linked-etag").or_else(|| header(&response, "etag"));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
        let Some(etag) = etag.filter(|etag| is_file(etag) && !etag.contains('/') && !etag.starts_with('.')) else {
            return Err(bad("the answer has no header ETag that names bytes"));
        };
        let length = header(&response, "content-length").filter(|_| response.status().is_success());
        let bytes = header(&response, "x-linked-size").or(length).and_then(|text| text.parse().ok());
        Ok(Facts { etag: etag.to_owned(), bytes })
    }

    /// Downloads the bytes of a file, or those that are missing, and checks them.
    fn download(&self, file: &str, facts: &Facts, lock: &Lock, observer: &dyn Observer) -> Result<(), HubError> {
        let path = self.cache.incomplete(&facts.etag, lock);
        make_parent(&path)?;
        let mut options = OpenOptions::new();
        #[allow(clippy::disallowed_methods, reason = "the file is written; what is there already is a part of it")]
        let mut draft = options.read(true).append(true).create(true).open(&path).map_err(failed("open", &path))?;
        let have = draft.metadata().map_err(failed("read", &path))?.len();
        let mut transfer = Transfer { repository: self, file, facts, have: 0, observer };
        self.check_space(file, facts.bytes.map(|bytes| bytes.saturating_sub(have)))?;
        match facts.bytes {
            // Only a checksum tells whether what is there begins the file.
            Some(bytes) if have <= bytes && is_sha256(&facts.etag) => transfer.have = have,
            _ => draft.set_len(0).map_err(failed("write", &path))?,
        }
        observer.begins(file, facts.bytes, transfer.have);
        let goes_on = transfer.have > 0;
        transfer.run(&mut draft, &path)?;
        let mut checked = transfer.check(&mut draft, &path);
        if goes_on && checked.is_err() {
            // What was there began another file.
            observer.loses(transfer.have);
            draft.set_len(0).map_err(failed("write", &path))?;
            transfer.have = 0;
            transfer.run(&mut draft, &path)?;
            checked = transfer.check(&mut draft, &path);
        }
        if let Err(error) = checked {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
            return Err(error);
        }
        let blob = self.cache.blob(&facts.etag);
        fs::rename(&path, &blob).map_err(failed("write", &blob))?;
        Ok(())
    }

    /// Refuses to begin what cannot end.
    fn check_space(&self, file: &str, missing: Option<u64>) -> Result<(), HubError> {
        let Some(missing) = missing else { return Ok(()) };
        let Ok(disk) = rustix::fs::statvfs(&self.cache.root) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if missing > free {
            return Err(self.full(file, format!("{missing} bytes are to come, and {free} are free")));
        }
        Ok(())
    }

    fn full(&self, file: &str, message: String) -> HubError {
        HubError::Full { file: file.to_owned(), cache: self.cache.root.clone(), message }
    }

    pub(crate) fn differs(&self, file: &str, message: String) -> HubError {
        HubError::Content { repository: self.name.repository.clone(), file: file.to_owned(), message }
    }

    /// The error that an answer is.
    pub(crate) fn refused(&self, response: &Response<Body>, url: &str, file: Option<&str>) -> HubError {
        let (endpoint, repository) = (self.hub.client.settings().endpoint.clone(), self.name.repository.clone());
        let is_known = self.hub.client.settings().token.is_some();
        let login = match is_known {
            true => "use the token (HF_TOKEN, or `hf auth login`) of an account that may",
            false => "log in with `hf auth login`, or set HF_TOKEN",
        };
        let whom = if is_known { "the account of the token" } else { "somebody without a token" };
        let code = header(response, "x-error-code");
        match (response.status().as_u16(), code, file) {
            (_, Some("GatedRepo"), _) => HubError::Gated { endpoint, repository, login },
            (_, Some("RevisionNotFound"), _) => {
                HubError::NoRevision { endpoint, repository, revision: self.name.revision().to_owned() }
            }
            (404, Some("EntryNotFound"), Some(file)) => {
                HubError::NoFile { repository, file: file.to_owned(), revision: self.name.revision().to_owned() }
            }
            (401, None, _) if is_known && header(response, "x-error-message").is_some() => HubError::Answer {
                url: url.to_owned(),
                message: format!(
                    "the hub refuses the token (401: {}): make it anew with `hf auth login`, or unset HF_TOKEN",
                    header(response, "x-error-message").unwrap_or_default()
                ),
            },
            (401 | 403 | 404, ..) => HubError::NoRepository { endpoint, repository, whom, login },
            (429, ..) => HubError::Answer {
                url: url.to_owned(),
                message: format!("the hub takes no more requests for now (429): wait some minutes, or {login}"),
            },
            (status, ..) => {
                let said = header(response, "x-error-message").map(|text| format!(": {text}")).unwrap_or_default();
                HubError::Answer {
                    url: url.to_owned(),
                    message: format!("the hub answers {status}{said}; try again later"),
                }
            }
        }
    }
}

/// The bytes of a file on their way.
struct Transfer<'a> {
    repository: &'a Repository<'a>,
    file: &'a str,
    facts: &'a Facts,
    have: u64,
    observer: &'a dyn Observer,
}

impl Transfer<'_> {
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
                return Err(self.repository.differs(self.file, message));
            }
            let wait = self.repository.hub.client.pause(failures);
            let after = format!("{}: the transfer breaks after {} bytes ({broke}); going on", self.file, self.have);
            self.observer.waits(&after);
            std::thread::sleep(wait);
        }
        Ok(())
    }

    /// One request for the rest; the inner error is one of the transfer.
    fn part(&mut self, draft: &mut File, path: &Path) -> Result<io::Result<()>, HubError> {
        let url = self.repository.url(self.file);
        let ask = Ask { method: Verb::Get, url: &url, range: (self.have, None), redirects: Redirects::All };
        let response = self.repository.hub.client.send(ask, self.observer)?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response, self.have) => {}
            StatusCode::OK if self.have == 0 => {}
            // The whole in place of the rest, or a rest that there is not.
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if self.have > 0 => {
                draft.set_len(0).map_err(failed("write", path))?;
                self.observer.loses(self.have);
                self.have = 0;
                if response.status() != StatusCode::OK {
                    return Ok(Err(io::Error::other("the server has no such range")));
                }
            }
            _ => return Err(self.repository.refused(&response, &url, Some(self.file))),
        }
        let mut body = response.into_body().into_reader();
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
                let message = format!(
                    "the hub says that it has {bytes} bytes, and more come; try again, or tell who runs the hub"
                );
                return Err(self.repository.differs(self.file, message));
            }
            draft.write_all(&chunk[..count]).map_err(|error| self.unwritten(error, path))?;
            self.have = now;
            self.observer.comes(count as u64);
        }
    }

    fn unwritten(&self, error: io::Error, path: &Path) -> HubError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.repository.full(self.file, format!("{} bytes are written, and no more fit", self.have))
            }
            _ => failed("write", path)(error),
        }
    }

    /// Checks that the bytes of a large file are those that the hub names.
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
        let message = format!("its SHA-256 is {found}, and the hub says {etag}: what came is removed; try again");
        Err(self.repository.differs(self.file, message))
    }
}

/// Whether an ETag is the checksum of a large file. Small ones have git's, of other bytes than theirs.
fn is_sha256(etag: &str) -> bool {
    etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether an answer has the bytes from one on.
pub(crate) fn starts_at(response: &Response<Body>, from: u64) -> bool {
    let range = header(response, "content-range").and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split('-').next()?.parse().ok()) == Some(from)
}
