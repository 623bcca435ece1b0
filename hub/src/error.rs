//! Why a model of the hub is not there.

use std::io;
use std::path::PathBuf;

use planish_files::FileError;

/// A model of the hub could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The hub has no such model, or shows it to others only.
    #[error(
        "{endpoint} has no model {repository} that {whom} may see: check the name, and for a private model {login}"
    )]
    NoRepository {
        /// The address of the hub.
        endpoint: String,
        /// `OWNER/NAME`.
        repository: String,
        /// Who asked.
        whom: &'static str,
        /// How to ask as somebody else.
        login: &'static str,
    },
    /// The model is there for those who accepted its conditions.
    #[error("{repository} is gated: accept its conditions at {endpoint}/{repository}, then {login}")]
    Gated {
        /// The address of the hub.
        endpoint: String,
        /// `OWNER/NAME`.
        repository: String,
        /// How to ask as somebody who did.
        login: &'static str,
    },
    /// The model has no such branch, tag or commit.
    #[error(
        "{repository} has no revision {revision}: its branches and tags are listed at {endpoint}/{repository}/tree/main"
    )]
    NoRevision {
        /// The address of the hub.
        endpoint: String,
        /// `OWNER/NAME`.
        repository: String,
        /// What was asked for.
        revision: String,
    },
    /// The model has no such file.
    #[error("{repository} has no file {file} in revision {revision}")]
    NoFile {
        /// `OWNER/NAME`.
        repository: String,
        /// The path in the repository.
        file: String,
        /// The branch, tag or commit.
        revision: String,
    },
    /// The hub answered something else than what was asked for.
    #[error("{url}: {message}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What the answer is, and what to do.
        message: String,
    },
    /// No answer came.
    #[error("cannot reach {host}: {reason}; {advice}")]
    Unreachable {
        /// The host.
        host: String,
        /// What happened.
        reason: String,
        /// How to come by the model otherwise.
        advice: String,
    },
    /// There is no network by the user's wish, and the cache has no such model.
    #[error("{name} is not in the cache {}, and {variable} forbids to download; unset it, or {advice}", cache.display())]
    Offline {
        /// The model.
        name: String,
        /// The folder of caches.
        cache: PathBuf,
        /// The environment variable.
        variable: &'static str,
        /// How to come by the model otherwise.
        advice: String,
    },
    /// A bucket or a web server has no such thing, or does not give it to this user.
    #[error("{address}: {message}")]
    Store {
        /// The address.
        address: String,
        /// What the answer is, and what to type next.
        message: String,
    },
    /// What was downloaded is not what the hub said it would be.
    #[error("{file} of {repository}: {message}")]
    Content {
        /// `OWNER/NAME`.
        repository: String,
        /// The path in the repository.
        file: String,
        /// What differs, and what to do.
        message: String,
    },
    /// There is no room for a file.
    #[error(
        "no space for {file} in {}: {message}; make room, or set {variable} to a folder on another disk; what was downloaded is \
         kept, and the next run goes on from there",
        cache.display()
    )]
    Full {
        /// The path in the repository.
        file: String,
        /// The folder of caches.
        cache: PathBuf,
        /// How much is missing.
        message: String,
        /// The environment variable that says where the cache is.
        variable: &'static str,
    },
    /// A file of the cache cannot be read or written.
    #[error("cannot {what} {}", path.display())]
    Cache {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file of the cache cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The environment has a value that cannot be used.
    #[error("the environment variable {variable}: {message}")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        message: String,
    },
}
