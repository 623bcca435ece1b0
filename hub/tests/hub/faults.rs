//! What goes wrong with a hub or with transfers.

use std::fs;
use std::os::unix::fs::symlink;

use planish_hub::{Hub, HubName, RemoteModel, Settings};

use crate::{Seen, WEIGHTS, fetch, fetch_with, large, model, settings};
use planish_testing::hub::{COMMIT, Fault, Server, sha256};

fn status(path: &'static str, times: usize, status: u16, headers: &'static str) -> Fault {
    Fault::Status { path, times, status, headers }
}

/// The error of fetching the weights.
fn why(faults: &[Fault]) -> String {
    let cache = tempfile::tempdir().unwrap();
    fetch(&Server::start(&model(), faults), cache.path(), &[WEIGHTS]).unwrap_err().to_string()
}

#[test]
fn what_is_not_there_is_named() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let why = |name: &str, file: &str| {
        let settings = settings(&server.endpoint, cache.path());
        fetch_with(settings, name, &[file], &Seen::default()).unwrap_err().to_string()
    };
    let other = why("owner/other", "a");
    assert!(other.contains("has no model owner/other") && other.contains("check the name"), "{other}");
    let revision = why("owner/name@v9", "a");
    assert!(
        revision.starts_with("owner/name has no revision v9: its branches and tags are listed at http"),
        "{revision}"
    );
    assert_eq!(why("owner/name", "none.json"), "owner/name has no file none.json in revision main");
}

#[test]
fn a_gated_model_says_where_its_conditions_are() {
    for code in [401, 403] {
        let error = why(&[status("/resolve/", 99, code, "X-Error-Code: GatedRepo\r\n")]);
        assert!(error.starts_with("owner/name is gated: accept its conditions at http://127.0.0.1:"), "{error}");
        assert!(error.ends_with("/owner/name, then log in with `hf auth login`, or set HF_TOKEN"), "{error}");
    }
}

#[test]
fn what_may_pass_is_asked_again() {
    let faults =
        [status("/api/", 2, 500, ""), status("/resolve/", 1, 429, "Retry-After: 0\r\n"), status("/bytes/", 2, 503, "")];
    let (server, cache, seen) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch_with(settings(&server.endpoint, cache.path()), "owner/name", &[WEIGHTS], &seen).unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
    let waited = seen.waited.lock().unwrap();
    assert_eq!(waited.len(), 5);
    assert!(waited[2].contains("answers 429") && waited[2].ends_with("asking again in 0 s"), "{}", waited[2]);
}

#[test]
fn what_does_not_pass_is_told() {
    assert!(
        why(&[status("/api/", 99, 500, "X-Error-Message: down for repair\r\n")])
            .contains("answers 500: down for repair")
    );
    // Longer than anybody waits.
    let error = why(&[status("/api/", 1, 429, "Retry-After: 3600\r\n")]);
    assert!(error.contains("takes no more requests for now (429): wait some minutes, or log in"), "{error}");
    let redirect = why(&[status("/api/", 99, 302, "Location: ftp://elsewhere/x\r\n")]);
    assert!(redirect.contains("it redirects to ftp://elsewhere/x, which is no address"), "{redirect}");
    assert!(why(&[status("/api/", 99, 302, "Location: /api/again\r\n")]).contains("there are more than 10 redirects"));
    assert!(why(&[status("/resolve/", 99, 200, "")]).contains("no header X-Repo-Commit; is HF_ENDPOINT a hub?"));
    assert!(why(&[status("/api/", 99, 200, "")]).contains("the answer is not that of a hub"));
}

#[test]
fn a_transfer_that_breaks_goes_on() {
    let faults = [Fault::Breaks { file: WEIGHTS, times: 3, after: 10_000 }];
    let (server, cache) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap());
    let folder = fetch(&server, cache.path(), &[WEIGHTS]).unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
    let ranges: Vec<_> = server.headers("/bytes/", "range").into_iter().flatten().collect();
    assert_eq!(ranges, ["bytes=10000-", "bytes=20000-", "bytes=30000-"]);
}

#[test]
fn the_next_run_goes_on_where_one_ended() {
    let faults =
        [Fault::Breaks { file: WEIGHTS, times: 1, after: 20_000 }, Fault::Breaks { file: WEIGHTS, times: 4, after: 0 }];
    let (server, cache) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap());
    let error = fetch(&server, cache.path(), &[WEIGHTS]).unwrap_err().to_string();
    assert!(
        error.contains("model.safetensors of owner/name: the transfer breaks after 20000 of 50000 bytes"),
        "{error}"
    );
    assert!(error.ends_with("what came is kept, and the next run goes on from there"), "{error}");
    let seen = Seen::default();
    let folder = fetch_with(settings(&server.endpoint, cache.path()), "owner/name", &[WEIGHTS], &seen).unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
    assert_eq!((*seen.had.lock().unwrap(), *seen.came.lock().unwrap()), (20_000, 30_000));
}

#[test]
fn a_server_without_ranges_sends_all_again() {
    let faults = [Fault::Breaks { file: WEIGHTS, times: 1, after: 10_000 }, Fault::NoRanges];
    let (server, cache, seen) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap(), Seen::default());
    let folder = fetch_with(settings(&server.endpoint, cache.path()), "owner/name", &[WEIGHTS], &seen);
    // Ten thousand bytes came in vain.
    assert_eq!(fs::read(folder.unwrap().join(WEIGHTS)).unwrap(), large(50_000));
    assert_eq!((*seen.came.lock().unwrap(), *seen.lost.lock().unwrap()), (60_000, 10_000));
}

#[test]
fn sizes_that_differ_are_refused() {
    let size = |listed, told| why(&[Fault::Size { file: WEIGHTS, listed, told }]);
    let two = size(Some(7), None);
    assert!(two.ends_with("the hub lists it with 7 bytes, and says 50000 when asked for it"), "{two}");
    let more = size(Some(40_000), Some(40_000));
    assert!(more.contains("the hub says that it has 40000 bytes, and more come"), "{more}");
    let fewer = size(Some(60_000), Some(60_000));
    assert!(fewer.contains("breaks after") && fewer.contains("of 60000 bytes"), "{fewer}");
}

#[test]
fn other_bytes_are_refused_and_removed() {
    let faults = [Fault::Bytes { file: WEIGHTS }];
    let (server, cache) = (Server::start(&model(), &faults), tempfile::tempdir().unwrap());
    let error = fetch(&server, cache.path(), &[WEIGHTS]).unwrap_err().to_string();
    assert!(error.contains("its SHA-256 is ") && error.ends_with("what came is removed; try again"), "{error}");
    assert_eq!(fs::read_dir(cache.path().join("models--owner--name/blobs")).unwrap().count(), 0);
}

/// As another program, or a process on a file system without locks, may leave it.
#[test]
fn a_wrong_beginning_is_not_kept() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let blobs = cache.path().join("models--owner--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(format!("{}.incomplete", sha256(&large(50_000)))), [7; 20_000]).unwrap();
    let folder = fetch(&server, cache.path(), &[WEIGHTS]).unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), large(50_000));
}

#[test]
fn a_refused_token_is_told() {
    let (server, cache) = (
        Server::start(&model(), &[status("/api/", 99, 401, "X-Error-Message: Invalid credentials\r\n")]),
        tempfile::tempdir().unwrap(),
    );
    let with = Settings { token: Some("hf_old".to_owned()), ..settings(&server.endpoint, cache.path()) };
    let error = fetch_with(with, "owner/name", &[WEIGHTS], &Seen::default()).unwrap_err().to_string();
    assert!(
        error.contains("refuses the token (401: Invalid credentials)") && error.ends_with("or unset HF_TOKEN"),
        "{error}"
    );
}

#[test]
fn a_full_disk_is_told() {
    let (server, cache) = (Server::start(&model(), &[]), tempfile::tempdir().unwrap());
    let blobs = cache.path().join("models--owner--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let sha = sha256(&large(50_000));
    symlink("/dev/full", blobs.join(format!("{sha}.incomplete"))).unwrap();
    let error = fetch(&server, cache.path(), &[WEIGHTS]).unwrap_err().to_string();
    assert!(error.starts_with("no space for model.safetensors in "), "{error}");
    assert!(error.contains("0 bytes are written, and no more fit; make room, or set HF_HUB_CACHE"), "{error}");
    // More than any disk has.
    let huge = 1 << 60;
    let error = why(&[Fault::Size { file: WEIGHTS, listed: Some(huge), told: Some(huge) }]);
    assert!(error.contains(&format!("{huge} bytes are to come, and ")), "{error}");
}

#[test]
fn a_hub_cannot_write_outside_of_the_cache() {
    let (server, cache) = (Server::start(&[("../evil", b"x".to_vec())], &[]), tempfile::tempdir().unwrap());
    let error = fetch(&server, cache.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("it lists a file \"../evil\", which is no path below a folder"), "{error}");
    for etag in ["../../x", ".", "a/b", ""] {
        let headers: &'static str = Box::leak(format!("X-Repo-Commit: {}\r\nETag: \"{etag}\"\r\n", COMMIT).into());
        let error = why(&[status("/resolve/", 99, 200, headers)]);
        assert!(error.contains("no header ETag that names bytes"), "{error}");
    }
}

#[test]
fn an_address_that_is_none_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let hub = Hub::new(Settings { endpoint: "http://".to_owned(), ..settings("", cache.path()) });
    assert!(hub.unwrap_err().to_string().contains("HF_ENDPOINT"));
    assert!(HubName::parse("http://127.0.0.1/a/b").is_none());
}

#[test]
fn ranges_come_whole_or_not_at_all() {
    let read = |faults: &[Fault], offset: u64, count: usize| {
        let (server, cache) = (Server::start(&model(), faults), tempfile::tempdir().unwrap());
        let hub = Hub::new(settings(&server.endpoint, cache.path())).unwrap();
        let repository = hub.repository(&HubName::parse("owner/name").unwrap(), &Seen::default()).unwrap();
        let file = repository.open(WEIGHTS, &Seen::default()).unwrap();
        assert_eq!(file.bytes(), 50_000);
        let mut buffer = vec![0; count];
        file.read_at(offset, &mut buffer).map(|()| buffer).map_err(|error| error.to_string())
    };
    let expected = &large(50_000)[7..30_007];
    assert_eq!(read(&[], 7, 30_000).unwrap(), expected);
    let breaks = Fault::Breaks { file: WEIGHTS, times: 2, after: 10_000 };
    assert_eq!(read(&[breaks, status("/bytes/", 1, 503, "")], 7, 30_000).unwrap(), expected);
    assert!(read(&[Fault::Breaks { file: WEIGHTS, times: 99, after: 0 }], 7, 30_000).is_err());
    assert!(read(&[], 49_999, 2).is_err());
    assert!(read(&[Fault::NoRanges], 7, 10).unwrap_err().contains("answers 200 "));
}
