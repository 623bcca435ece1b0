//! What the hub says of a model: the commit of a revision, and its files.

use std::io::Read;

use planish_files::Kind;
use ureq::http::StatusCode;

use crate::http::{Ask, Redirects, Verb};
use crate::name::{is_commit, is_file};
use crate::{HubError, Observer, Repository};

/// The answer to a request for JSON.
const DOCUMENT: Kind = Kind { what: "an answer of the hub", limit: 64 << 20, advice: "name a folder instead" };

/// What the hub says of a model at a revision.
#[derive(serde::Deserialize)]
struct Document {
    sha: String,
    siblings: Vec<Sibling>,
}

/// A file of a model.
#[derive(serde::Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
}

/// What a revision of a model has.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<Listed>,
}

/// A file of a model: its path, and its size where it is known.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: Option<u64>,
}

/// Asks which commit a revision is, and which files with which sizes it has.
pub(crate) fn list(repository: &Repository<'_>, observer: &dyn Observer) -> Result<Listing, HubError> {
    let (hub, name) = (repository.hub, &repository.name);
    let endpoint = &hub.client.settings().endpoint;
    let revision = name.revision().replace('/', "%2F");
    let url = format!("{endpoint}/api/models/{}/revision/{revision}?blobs=true", name.repository);
    let ask = Ask { method: Verb::Get, url: &url, range: (0, None), redirects: Redirects::All };
    let response = hub.client.send(ask, observer)?;
    if response.status() != StatusCode::OK {
        return Err(repository.refused(&response, &url, None));
    }
    let bad =
        |message: String| HubError::Answer { url: url.clone(), message: format!("{message}; is HF_ENDPOINT a hub?") };
    let mut text = Vec::new();
    let mut body = response.into_body().into_reader().take(DOCUMENT.limit.saturating_add(1));
    body.read_to_end(&mut text).map_err(|error| bad(format!("the answer breaks off: {error}")))?;
    if text.len() as u64 > DOCUMENT.limit {
        return Err(bad(DOCUMENT.too_large("its bytes are")));
    }
    let Document { sha, siblings } =
        serde_json::from_slice(&text).map_err(|error| bad(format!("the answer is not that of a hub: {error}")))?;
    if !is_commit(&sha) {
        return Err(bad("the answer names no commit".to_owned()));
    }
    if let Some(odd) = siblings.iter().find(|sibling| !is_file(&sibling.rfilename)) {
        return Err(bad(format!("it lists a file {:?}, which is no path below a folder", odd.rfilename)));
    }
    let files = siblings.into_iter().map(|sibling| Listed { name: sibling.rfilename, bytes: sibling.size }).collect();
    Ok(Listing { commit: sha, files })
}
