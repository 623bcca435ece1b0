//! One object: what a store says of it, and its bytes.

use std::io::{self, Read};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};
use ring::digest::{Context, SHA256};

use super::Inner;
use super::connector::Failure;
use crate::ranges::Silent;
use crate::transfer::{Answer, Origin};
use crate::{HubError, Observer, RangedFile};

/// What no other process has: when this one asked first, and its number.
static STARTED: LazyLock<String> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}.{}", now.as_nanos(), std::process::id())
});

/// What a store says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) bytes: u64,
    /// The name of its state, without quotes.
    etag: Option<String>,
    /// Whether two states with that name may differ in some bytes.
    is_weak: bool,
    /// The second in which it was written last; absent where the store does not say.
    modified: Option<i64>,
}

impl Object {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let text = meta.e_tag.as_deref();
        let etag = text.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
        let is_weak = text.is_some_and(|etag| etag.starts_with("W/"));
        Self {
            bytes: meta.size,
            etag: etag.filter(|etag| !etag.is_empty()),
            is_weak,
            // The crate has the beginning of 1970 for what is not said.
            modified: Some(meta.last_modified.timestamp()).filter(|seconds| *seconds != 0),
        }
    }

    /// The name of its bytes in the cache, which another state of it or another object has not.
    /// What the store says neither of is another state in each process: it is fetched each time.
    pub(super) fn key(&self, file: &str) -> String {
        let modified = || self.modified.map_or_else(|| format!("unknown {}", *STARTED), |seconds| seconds.to_string());
        let state = self.etag.clone().unwrap_or_else(modified);
        digits(&[file, &state, &self.bytes.to_string()])
    }

    /// The condition that it is still the same.
    fn condition(&self) -> Option<String> {
        self.etag.as_ref().filter(|_| !self.is_weak).map(|etag| format!("\"{etag}\""))
    }
}

/// 40 hexadecimal digits that stand for texts.
pub(super) fn digits(texts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(text.as_bytes());
        context.update(&[0]);
    }
    context.finish().as_ref().iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

/// An object, by its path in the folder.
#[derive(Debug)]
pub(super) struct StoreFile {
    inner: Arc<Inner>,
    file: String,
    path: Path,
    object: Object,
}

impl StoreFile {
    pub(super) fn new(inner: &Arc<Inner>, file: &str, object: Object) -> Self {
        Self { inner: Arc::clone(inner), file: file.to_owned(), path: inner.path(file), object }
    }

    /// Refuses the answer for another state of the object than the one that was listed.
    fn check(&self, answer: &GetResult) -> Result<(), HubError> {
        let now = Object::of(&answer.meta);
        if now.bytes != self.object.bytes {
            let (listed, told) = (self.object.bytes, now.bytes);
            let who = self.inner.address.kind.who();
            let message = format!("{who} lists it with {listed} bytes, and says {told} when asked for it; try again");
            return Err(self.differs(message));
        }
        let is_same = match (&now.etag, &self.object.etag) {
            (Some(now), Some(listed)) => now == listed,
            _ => now.modified == self.object.modified,
        };
        if !is_same {
            return Err(self.differs("it changed while it was read; try again".to_owned()));
        }
        Ok(())
    }
}

impl Origin for StoreFile {
    fn bytes_from(&self, from: u64, observer: &dyn Observer) -> Result<Answer, HubError> {
        // Without a condition the rest may be of another state.
        if from > 0 && !self.goes_on() {
            return Ok(Answer::NoRange);
        }
        let rest = (from > 0).then_some(GetRange::Offset(from));
        let if_match = rest.as_ref().and_then(|_| self.object.condition());
        let options = GetOptions { range: rest, if_match, ..GetOptions::default() };
        match self.inner.ask(observer, || self.inner.store.get_opts(&self.path, options.clone())) {
            Ok(answer) => {
                self.check(&answer)?;
                let inner = Arc::clone(&self.inner);
                Ok(Answer::Rest(Box::new(Arriving { inner, stream: answer.into_stream(), chunk: Bytes::new() })))
            }
            // A server without ranges, or with other ones than those that were asked for.
            Err(error) if from > 0 && matches!(Failure::of(&error).map(Failure::status), None | Some(Some(416))) => {
                Ok(Answer::NoRange)
            }
            Err(error) => Err(self.inner.told(&error, Some(&self.file))),
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        self.inner.client.pause(failures)
    }

    fn goes_on(&self) -> bool {
        self.object.condition().is_some()
    }

    fn differs(&self, message: String) -> HubError {
        HubError::Content { repository: self.inner.address.shown().to_owned(), file: self.file.clone(), message }
    }

    fn who(&self) -> &'static str {
        self.inner.address.kind.who()
    }

    fn variable(&self) -> &'static str {
        "XDG_CACHE_HOME"
    }
}

impl RangedFile for StoreFile {
    fn bytes(&self) -> u64 {
        self.object.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = GetRange::Bounded(offset..offset.saturating_add(buffer.len() as u64));
        let options = GetOptions { range: Some(range), if_match: self.object.condition(), ..GetOptions::default() };
        let answer = self.inner.ask(&Silent, || async {
            let answer = self.inner.store.get_opts(&self.path, options.clone()).await?;
            let checked = self.check(&answer);
            Ok((checked, answer.bytes().await?))
        });
        let (checked, bytes) = answer.map_err(|error| match Failure::of(&error) {
            Some(_) => io::Error::other(self.inner.told(&error, Some(&self.file))),
            None => io::Error::other(format!(
                "{}: {} gives no ranges of it ({error}); `planish compile` downloads the whole",
                self.inner.url(&self.file),
                self.who()
            )),
        })?;
        checked.map_err(io::Error::other)?;
        if bytes.len() != buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

/// The bytes of an object as they come.
struct Arriving {
    inner: Arc<Inner>,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    chunk: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.inner.runtime.block_on(self.stream.next()) {
                None => return Ok(0),
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => {
                    let why = Failure::of(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    return Err(io::Error::other(why));
                }
            }
        }
        let count = buffer.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
