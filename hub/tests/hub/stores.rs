//! Folders of a web server, and what its faults become. Buckets need an environment: tests/end_to_end/stores.rs has them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use planish_hub::{HubError, RemoteModel, Settings, Store, StoreAddress};
use planish_testing::hub::{Fault, Server};

use crate::{Seen, WEIGHTS, large, model, settings};

fn store(server: &Server, cache: &Path, file: &str) -> Store {
    let address = format!("{}/files/tiny/{file}", server.endpoint);
    // The hub itself is not there, and nobody asks for it.
    let settings = Settings { token: Some("hf_secret".to_owned()), ..settings("http://127.0.0.1:1", cache) };
    Store::new(&StoreAddress::parse(&address).unwrap().unwrap(), settings).unwrap()
}

fn fetch(server: &Server, cache: &Path, files: &[&str], seen: &Seen) -> Result<PathBuf, HubError> {
    let store = store(server, cache, "");
    let candidates: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    store.files(&candidates, seen)?;
    candidates.iter().try_for_each(|file| store.fetch(file, seen))?;
    Ok(store.folder())
}

fn why(faults: &[Fault]) -> String {
    let cache = tempfile::tempdir().unwrap();
    let error = fetch(&Server::start(&model(), faults), cache.path(), &[WEIGHTS], &Seen::default());
    error.unwrap_err().to_string()
}

fn status(status: u16, times: usize) -> Fault {
    Fault::Status { path: WEIGHTS, times, status, headers: "" }
}

#[test]
fn files_are_asked_for_by_name() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let asked = ["config.json", "1_Pooling/config.json", WEIGHTS, "vocab.txt"].map(str::to_owned);
    let (folder, seen) = (store(&server, cache.path(), ""), Seen::default());
    let found = folder.files(&asked, &seen).unwrap();
    assert_eq!(found, ["1_Pooling/config.json", "config.json", WEIGHTS]);
    for (name, bytes) in model() {
        folder.fetch(name, &seen).unwrap();
        assert_eq!(fs::read(folder.folder().join(name)).unwrap(), bytes, "{name}");
    }
    assert!(folder.folder().ends_with("snapshots/latest"));
    let missing = folder.fetch("other.json", &seen).unwrap_err().to_string();
    assert!(missing.ends_with("/files/tiny/: there is no file other.json"), "{missing}");
    assert!(server.headers("/files/", "authorization").iter().all(Option::is_none), "no token leaves the hub");

    server.forget();
    fetch(&server, cache.path(), &["config.json", WEIGHTS], &seen).unwrap();
    assert_eq!(server.requests(), ["HEAD /files/tiny/config.json", "HEAD /files/tiny/model.safetensors"]);
}

#[test]
fn what_changed_comes_again() {
    let (server, cache, seen) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch(&server, cache.path(), &["config.json", WEIGHTS], &seen).unwrap();
    server.fail(Fault::Replaced { file: "config.json", bytes: b"{\"a\": 2}".to_vec() });
    server.forget();
    assert_eq!(fetch(&server, cache.path(), &["config.json", WEIGHTS], &seen).unwrap(), folder);
    assert_eq!(fs::read(folder.join("config.json")).unwrap(), b"{\"a\": 2}");
    assert_eq!(server.requests().iter().filter(|request| request.starts_with("GET")).count(), 1);
    let blobs = folder.parent().unwrap().with_file_name("blobs");
    assert_eq!(fs::read_dir(blobs).unwrap().count(), 2, "the old bytes are gone");
}

#[test]
fn a_transfer_that_breaks_goes_on() {
    let breaks = |times| Fault::Breaks { file: WEIGHTS, times, after: 10_000 };
    let (server, cache, seen) = (Server::start(&model(), &[breaks(3)]), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch(&server, cache.path(), &[WEIGHTS], &seen).unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
    assert_eq!(*seen.came.lock().unwrap(), 50_000);
    let ranges: Vec<_> = server.headers("/files/", "range").into_iter().flatten().collect();
    assert_eq!(ranges, ["bytes=10000-", "bytes=20000-", "bytes=30000-"]);

    // The rest of another state is no rest.
    let (server, cache) = (Server::start(&model(), &[breaks(1)]), tempfile::tempdir().unwrap());
    let folder = store(&server, cache.path(), "");
    folder.files(&[WEIGHTS.to_owned()], &seen).unwrap();
    server.fail(Fault::Replaced { file: WEIGHTS, bytes: vec![1; 50_000] });
    let error = folder.fetch(WEIGHTS, &seen).unwrap_err().to_string();
    assert!(error.ends_with("it changed while it was read; try again"), "{error}");
}

#[test]
fn a_server_without_ranges_sends_all_again() {
    let faults = [Fault::Breaks { file: WEIGHTS, times: 1, after: 10_000 }, Fault::NoRanges];
    let (server, cache, seen) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch(&server, cache.path(), &[WEIGHTS], &seen).unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
    let file = store(&server, cache.path(), "").open(WEIGHTS, &seen).unwrap();
    let error = file.read_at(7, &mut [0; 9]).unwrap_err().to_string();
    assert!(error.contains("gives no ranges of it") && error.contains("`planish compile` downloads"), "{error}");
}

#[test]
fn ranges_are_read_whole() {
    let faults = [Fault::Breaks { file: WEIGHTS, times: 2, after: 3 }, status(503, 1)];
    let (server, cache, seen) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap(), Seen::default());
    let file = store(&server, cache.path(), "").open(WEIGHTS, &seen).unwrap();
    let mut buffer = vec![0; 3000];
    file.read_at(7, &mut buffer).unwrap();
    assert_eq!((file.bytes(), buffer.as_slice()), (50_000, &large(50_000)[7..3007]));
}

#[test]
fn what_goes_wrong_is_told() {
    assert!(why(&[status(404, 9)]).ends_with(": there is no file model.safetensors"));
    let refused = why(&[status(403, 9)]);
    assert!(refused.contains("refuses the credentials: planish logs in nowhere: download the files"), "{refused}");
    let later = why(&[status(500, 99)]);
    assert!(later.contains("answers 500 Internal Server Error; try again later"), "{later}");
    assert!(why(&[Fault::Breaks { file: WEIGHTS, times: 99, after: 0 }]).contains("the next run goes on from there"));
    let cache = tempfile::tempdir().unwrap();
    let address = StoreAddress::parse("http://127.0.0.1:1/folder").unwrap().unwrap();
    let away = Store::new(&address, settings("http://127.0.0.1:1", cache.path())).unwrap();
    let away = away.files(&[WEIGHTS.to_owned()], &Seen::default()).unwrap_err().to_string();
    assert!(away.starts_with("cannot reach 127.0.0.1:1: ") && away.contains("download the files where"), "{away}");
}

#[test]
fn what_may_pass_is_asked_again() {
    let (server, cache) = (Server::start(&model(), &[status(503, 2)]), tempfile::tempdir().unwrap());
    let seen = Seen::default();
    fetch(&server, cache.path(), &[WEIGHTS], &seen).unwrap();
    let waited = seen.waited.lock().unwrap();
    assert_eq!(waited.len(), 2);
    assert!(waited[0].contains("answers 503 Service Unavailable; asking again in "), "{}", waited[0]);
}

#[test]
fn without_the_server_the_cache_serves() {
    let (server, cache, seen) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch(&server, cache.path(), &["config.json"], &seen).unwrap();
    server.fail(Fault::Status { path: "/files/", times: 99, status: 500, headers: "" });
    assert_eq!(fetch(&server, cache.path(), &["config.json"], &seen).unwrap(), folder);
    assert!(seen.cache.lock().unwrap()[0].contains("answers 500"));
}

#[test]
fn a_full_disk_is_told() {
    let (server, cache, seen) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch(&server, cache.path(), &[WEIGHTS], &seen).unwrap();
    let blobs = folder.parent().unwrap().with_file_name("blobs");
    let blob = fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&blob).unwrap();
    symlink("/dev/full", blob.with_extension("incomplete")).unwrap();
    let error = fetch(&server, cache.path(), &[WEIGHTS], &seen).unwrap_err().to_string();
    assert!(error.contains("no more fit; make room, or set XDG_CACHE_HOME to a folder on another disk"), "{error}");
}
