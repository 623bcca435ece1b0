//! One file of the hub: what the hub says of it, and its bytes.

use std::time::Duration;

use ureq::http::StatusCode;
use ureq::{Body, http::Response};

use crate::http::{Ask, Redirects, Verb, header};
use crate::name::is_file;
use crate::transfer::{Answer, Facts, Origin, Transfer, is_sha256};
use crate::{HubError, Observer, Repository};

impl Repository<'_> {
    /// Has the cache hold a file.
    pub(crate) fn fetch_file(&self, file: &str, observer: &dyn Observer) -> Result<(), HubError> {
        let place = self.cache.snapshot(&self.commit).join(file);
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
        let origin = RepositoryFile { repository: self, file, etag: &facts.etag };
        Transfer::new(&origin, &self.cache, (file, &facts), observer).settle()?;
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

/// A file of a repository.
struct RepositoryFile<'a> {
    repository: &'a Repository<'a>,
    file: &'a str,
    etag: &'a str,
}

impl Origin for RepositoryFile<'_> {
    fn bytes_from(&self, from: u64, observer: &dyn Observer) -> Result<Answer, HubError> {
        let url = self.repository.url(self.file);
        let ask = Ask { method: Verb::Get, url: &url, range: (from, None), redirects: Redirects::All };
        let response = self.repository.hub.client.send(ask, observer)?;
        let body = |response: Response<Body>| Box::new(response.into_body().into_reader());
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response, from) => Ok(Answer::Rest(body(response))),
            StatusCode::OK if from == 0 => Ok(Answer::Rest(body(response))),
            StatusCode::OK => Ok(Answer::Whole(body(response))),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => Ok(Answer::NoRange),
            _ => Err(self.repository.refused(&response, &url, Some(self.file))),
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        self.repository.hub.client.pause(failures)
    }

    /// Only a checksum tells whether what is there begins the file.
    fn goes_on(&self) -> bool {
        is_sha256(self.etag)
    }

    fn differs(&self, message: String) -> HubError {
        self.repository.differs(self.file, message)
    }

    fn who(&self) -> &'static str {
        "the hub"
    }

    fn variable(&self) -> &'static str {
        "HF_HUB_CACHE"
    }
}

/// Whether an answer has the bytes from one on.
pub(crate) fn starts_at(response: &Response<Body>, from: u64) -> bool {
    let range = header(response, "content-range").and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split('-').next()?.parse().ok()) == Some(from)
}
