//! Files of the hub that are read by ranges, and not downloaded.

use std::io::{self, Read};
use std::sync::Arc;

use ureq::http::StatusCode;

use crate::fetch::starts_at;
use crate::http::{Ask, Client, Redirects, Verb};
use crate::{HubError, Observer, RangedFile, Repository};

/// How often a range is asked for that breaks off.
const TRIES: u32 = 5;

/// A file of the hub.
#[derive(Debug)]
pub(crate) struct HubFile {
    client: Arc<Client>,
    url: String,
    bytes: u64,
}

/// Sees nothing.
pub(crate) struct Silent;

impl Observer for Silent {
    fn begins(&self, _file: &str, _bytes: Option<u64>, _have: u64) {}
    fn comes(&self, _bytes: u64) {}
    fn loses(&self, _bytes: u64) {}
    fn waits(&self, _why: &str) {}
    fn takes_cache(&self, _why: &HubError, _what: &str) {}
}

impl Repository<'_> {
    pub(crate) fn open_file(&self, file: &str, observer: &dyn Observer) -> Result<HubFile, HubError> {
        let facts = self.facts(file, observer)?;
        let bytes = facts.bytes.or(self.listed(file));
        let bytes = bytes.ok_or_else(|| self.differs(file, "the hub does not say how large it is".to_owned()))?;
        Ok(HubFile { client: Arc::clone(&self.hub.client), url: self.url(file), bytes })
    }
}

impl RangedFile for HubFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut have = 0;
        let mut failures = 0;
        while have < buffer.len() {
            let (before, rest) = (have, &mut buffer[have..]);
            match self.part(offset + have as u64, rest) {
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Other => return Err(error),
                Err(error) if failures + 1 >= TRIES => return Err(error),
                Err(_) => {}
            }
            failures = if have > before { 0 } else { failures + 1 };
            if failures > 0 {
                std::thread::sleep(self.client.pause(failures));
            }
        }
        Ok(())
    }
}

impl HubFile {
    /// Asks once; how many bytes came before the transfer broke, if it did.
    fn part(&self, from: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let range = (from, Some(from.saturating_add(buffer.len() as u64)));
        let ask = Ask { method: Verb::Get, url: &self.url, range, redirects: Redirects::All };
        let response = self.client.send(ask, &Silent).map_err(io::Error::other)?;
        if response.status() != StatusCode::PARTIAL_CONTENT || !starts_at(&response, from) {
            let why = format!("{}: the server answers {} to a request for a range", self.url, response.status());
            return Err(io::Error::other(why));
        }
        let mut body = response.into_body().into_reader();
        let mut have = 0;
        while have < buffer.len() {
            match body.read(&mut buffer[have..]) {
                Ok(0) => return if have > 0 { Ok(have) } else { Err(io::ErrorKind::UnexpectedEof.into()) },
                Ok(count) => have += count,
                Err(_) if have > 0 => return Ok(have),
                Err(error) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)),
            }
        }
        Ok(have)
    }
}
