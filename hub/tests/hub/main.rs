//! Downloads from a hub on this machine, and what its faults become.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test"
)]

mod faults;
mod stores;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use planish_hub::{Hub, HubError, HubName, Observer, RemoteModel, Settings};
use planish_testing::hub::{COMMIT, Fault, Server, sha256};

/// What was seen while files came.
#[derive(Default)]
struct Seen {
    waited: Mutex<Vec<String>>,
    cache: Mutex<Vec<String>>,
    came: Mutex<u64>,
    had: Mutex<u64>,
    lost: Mutex<u64>,
}

impl Observer for Seen {
    fn begins(&self, _file: &str, _bytes: Option<u64>, have: u64) {
        *self.had.lock().unwrap() += have;
    }

    fn comes(&self, bytes: u64) {
        *self.came.lock().unwrap() += bytes;
    }

    fn loses(&self, bytes: u64) {
        *self.lost.lock().unwrap() += bytes;
    }

    fn waits(&self, why: &str) {
        self.waited.lock().unwrap().push(why.to_owned());
    }

    fn takes_cache(&self, why: &HubError, _commit: &str) {
        self.cache.lock().unwrap().push(why.to_string());
    }
}

fn settings(endpoint: &str, cache: &Path) -> Settings {
    Settings {
        endpoint: endpoint.to_owned(),
        cache: cache.to_owned(),
        token: None,
        offline: None,
        timeout: Duration::from_secs(20),
        pause: Duration::from_millis(1),
        proxy: None,
        certificates: None,
    }
}

fn fetch_with(settings: Settings, name: &str, files: &[&str], seen: &Seen) -> Result<PathBuf, HubError> {
    let hub = Hub::new(settings)?;
    let repository = hub.repository(&HubName::parse(name).unwrap(), seen)?;
    let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    files.iter().try_for_each(|file| repository.fetch(file, seen))?;
    Ok(repository.folder())
}

fn fetch(server: &Server, cache: &Path, files: &[&str]) -> Result<PathBuf, HubError> {
    fetch_with(settings(&server.endpoint, cache), "owner/name", files, &Seen::default())
}

/// Bytes that do not repeat.
fn large(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from((at * at / 7 + at) % 251).unwrap()).collect()
}

fn model() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("config.json", b"{\"a\": 1}".to_vec()),
        ("1_Pooling/config.json", b"{}".to_vec()),
        ("model.safetensors", large(50_000)),
    ]
}

const WEIGHTS: &str = "model.safetensors";

#[test]
fn files_come_into_the_layout_of_the_cache() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let folder = fetch(&server, cache.path(), &["config.json", "1_Pooling/config.json", WEIGHTS]).unwrap();
    let root = cache.path().join("models--owner--name");
    assert_eq!(folder, root.join("snapshots").join(COMMIT));
    for (name, bytes) in model() {
        assert_eq!(fs::read(folder.join(name)).unwrap(), bytes, "{name}");
    }
    assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    let sha = sha256(&large(50_000));
    assert_eq!(fs::read_link(folder.join(WEIGHTS)).unwrap(), PathBuf::from(format!("../../blobs/{sha}")));
    assert!(cache.path().join(format!(".locks/models--owner--name/{sha}.lock")).is_file());
    // A file of Git has the name that Git gives its bytes.
    let link = fs::read_link(folder.join("1_Pooling/config.json")).unwrap();
    assert_eq!(link, PathBuf::from("../../../blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b"));

    server.forget();
    fetch(&server, cache.path(), &["config.json", WEIGHTS]).unwrap();
    assert_eq!(server.requests(), ["GET /api/models/owner/name/revision/main?blobs=true"], "nothing is asked twice");
}

#[test]
fn only_the_hub_gets_the_token() {
    let (server, cache) = (Server::private(&model(), &[], Some("hf_secret")), tempfile::tempdir().unwrap());
    let with =
        |token: Option<&str>| Settings { token: token.map(str::to_owned), ..settings(&server.endpoint, cache.path()) };
    fetch_with(with(Some("hf_secret")), "owner/name", &[WEIGHTS], &Seen::default()).unwrap();
    let own = server.headers("/owner/name/", "authorization");
    assert!(!own.is_empty() && own.iter().all(|value| value.as_deref() == Some("Bearer hf_secret")), "{own:?}");
    assert_eq!(server.headers("/bytes/", "authorization"), [None]);

    let why = |token| fetch_with(with(token), "owner/name", &[WEIGHTS], &Seen::default()).unwrap_err().to_string();
    let without = why(None);
    assert!(without.contains("has no model owner/name that somebody without a token may see"), "{without}");
    assert!(without.contains("log in with `hf auth login`, or set HF_TOKEN"), "{without}");
    assert!(why(Some("hf_other")).contains("the account of the token"));
}

#[test]
fn a_model_that_was_renamed_is_found() {
    let (server, cache) = (Server::private(&model(), &[], Some("hf_secret")), tempfile::tempdir().unwrap());
    let settings = Settings { token: Some("hf_secret".to_owned()), ..settings(&server.endpoint, cache.path()) };
    let folder = fetch_with(settings, "old/name", &["config.json", WEIGHTS], &Seen::default()).unwrap();
    assert_eq!(folder, cache.path().join("models--old--name/snapshots").join(COMMIT));
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
}

#[test]
fn a_revision_may_be_a_path() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let repository = Hub::new(settings(&server.endpoint, cache.path())).unwrap();
    let name = HubName::parse("owner/name@refs/pr/1").unwrap();
    assert_eq!(repository.repository(&name, &Seen::default()).unwrap().commit(), COMMIT);
    assert!(server.requests()[0].contains("/revision/refs%2Fpr%2F1?"), "{:?}", server.requests());
    let reference = cache.path().join("models--owner--name/refs/refs/pr/1");
    assert_eq!(fs::read_to_string(reference).unwrap(), COMMIT);
}

#[test]
fn without_the_network_the_cache_is_taken() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let seen = Seen::default();
    let offline = || Settings { offline: Some("HF_HUB_OFFLINE"), ..settings(&server.endpoint, cache.path()) };
    let error = fetch_with(offline(), "owner/name", &["config.json"], &seen).unwrap_err().to_string();
    assert!(error.contains("owner/name (main) is not in the cache"), "{error}");
    assert!(
        error.contains("HF_HUB_OFFLINE forbids to download; unset it, or fetch the model where there is a network"),
        "{error}"
    );
    assert_eq!(server.requests(), Vec::<String>::new());

    fetch(&server, cache.path(), &["config.json"]).unwrap();
    server.forget();
    let folder = fetch_with(offline(), "owner/name", &["config.json"], &seen).unwrap();
    assert!(folder.join("config.json").is_file());
    assert_eq!(server.requests(), Vec::<String>::new());

    // A port that nobody listens on.
    let none = "http://127.0.0.1:9";
    let folder = fetch_with(settings(none, cache.path()), "owner/name", &["config.json"], &seen).unwrap();
    assert!(folder.join("config.json").is_file());
    assert!(seen.cache.lock().unwrap()[0].contains("cannot reach 127.0.0.1:9"));
    let error = fetch_with(settings(none, cache.path()), "owner/other", &[], &seen).unwrap_err().to_string();
    assert!(error.starts_with("cannot reach 127.0.0.1:9: ") && error.contains("hf download OWNER/NAME"), "{error}");
}

/// Two processes are as two clients here: locks of files belong to open files.
#[test]
fn two_at_once_download_once() {
    let server = Server::start(&model(), &[Fault::Slow]);
    let cache = tempfile::tempdir().unwrap();
    let get = || fetch(&server, cache.path(), &[WEIGHTS]).unwrap();
    std::thread::scope(|scope| {
        let both = [scope.spawn(get), scope.spawn(get)];
        for one in both {
            assert_eq!(fs::read(one.join().unwrap().join(WEIGHTS)).unwrap(), large(50_000));
        }
    });
    let transfers = server.requests().iter().filter(|request| request.contains("/bytes/")).count();
    assert_eq!(transfers, 1);
}
