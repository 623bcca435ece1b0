//! A hub on 127.0.0.1, with the paths and headers of the real one, and with its faults. A second server has the bytes of large
//! files, as the network of servers of the real one does. Models that were renamed are `old/name`. The files are objects of a bucket too
//! (bucket.rs).

mod bucket;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// The commit of the model.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a server does otherwise than asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the sentence before each")]
pub enum Fault {
    /// So many requests whose path contains the text get a status, with headers.
    Status { path: &'static str, times: usize, status: u16, headers: &'static str },
    /// So many transfers of a file end after some of their bytes.
    Breaks { file: &'static str, times: usize, after: usize },
    /// The listing and the headers of a file tell another size.
    Size { file: &'static str, listed: Option<u64>, told: Option<u64> },
    /// The bytes of a file are others.
    Bytes { file: &'static str },
    /// Ranges are ignored.
    NoRanges,
    /// Bytes come slowly.
    Slow,
    /// The bytes of a file are others since now.
    Replaced { file: &'static str, bytes: Vec<u8> },
    /// So many zeros come after the bytes of a file; all of them at once are never asked for.
    Zeros { file: &'static str, count: u64 },
}

struct Stored {
    bytes: Vec<u8>,
    is_large: bool,
}

/// A request that came; the names of headers are in lower case.
struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
}

/// A hub with one model, `owner/name`.
pub struct Server {
    /// Its address.
    pub endpoint: String,
    state: Arc<State>,
}

struct State {
    files: BTreeMap<String, Stored>,
    faults: Mutex<Vec<Fault>>,
    log: Mutex<Vec<Request>>,
    /// The paths of files, and how many bytes were sent.
    sent: Mutex<Vec<(String, u64)>>,
    other: Mutex<String>,
    /// The token that may see the model.
    token: Option<&'static str>,
}

impl Server {
    /// Begins to serve some files; those of 1000 bytes or more are large.
    #[must_use]
    pub fn start(files: &[(&str, Vec<u8>)], faults: &[Fault]) -> Self {
        Self::private(files, faults, None)
    }

    /// The same for who has a token.
    #[must_use]
    pub fn private(files: &[(&str, Vec<u8>)], faults: &[Fault], token: Option<&'static str>) -> Self {
        let is_long =
            |name: &str| faults.iter().any(|fault| matches!(fault, Fault::Zeros { file, .. } if *file == name));
        let stored = |name: &str, bytes: &Vec<u8>| Stored {
            is_large: bytes.len() >= 1000 || is_long(name),
            bytes: bytes.clone(),
        };
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), stored(name, bytes))).collect();
        let (faults, log) = (Mutex::new(faults.to_vec()), Mutex::default());
        let state = Arc::new(State { files, faults, log, sent: Mutex::default(), other: Mutex::default(), token });
        let (endpoint, other) = (listen(&state), listen(&state));
        *state.other.lock().unwrap() = other;
        Self { endpoint, state }
    }

    /// The requests so far, as `METHOD path`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.state.log.lock().unwrap().iter().map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    /// The value of a header in the requests whose path begins with a text.
    #[must_use]
    pub fn headers(&self, path: &str, header: &str) -> Vec<Option<String>> {
        let log = self.state.log.lock().unwrap();
        log.iter().filter(|request| request.path.starts_with(path)).map(|r| r.headers.get(header).cloned()).collect()
    }

    /// How many bytes of files were sent in answer to requests whose path begins with a text.
    #[must_use]
    pub fn sent(&self, path: &str) -> u64 {
        let log = self.state.sent.lock().unwrap();
        log.iter().filter(|(name, _)| name.starts_with(path)).map(|(_, bytes)| bytes).sum()
    }

    /// Does something otherwise from now on.
    pub fn fail(&self, fault: Fault) {
        self.state.faults.lock().unwrap().push(fault);
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.state.log.lock().unwrap().clear();
    }
}

fn listen(state: &Arc<State>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let state = Arc::clone(state);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            // A client that goes away ends its thread.
            thread::spawn(move || state.serve(stream));
        }
    });
    address
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of bytes, in hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

impl Stored {
    fn etag(&self) -> String {
        if self.is_large {
            return sha256(&self.bytes);
        }
        let blob = [format!("blob {}\0", self.bytes.len()).as_bytes(), &self.bytes].concat();
        hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &blob).as_ref())
    }
}

impl State {
    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        loop {
            let request = read(&mut reader)?;
            let (method, path) = (request.method.clone(), request.path.clone());
            let headers = request.headers.clone();
            self.log.lock().unwrap().push(request);
            self.answer(&method, &path, &|name| headers.get(name).cloned(), &mut out)?;
        }
    }

    fn answer(
        &self,
        method: &str,
        path: &str,
        headers: &dyn Fn(&str) -> Option<String>,
        out: &mut TcpStream,
    ) -> Option<()> {
        let (token, range) = (headers("authorization"), headers("range"));
        let (token, range) = (token.as_deref(), range.as_deref());
        let plain = path.split('?').next()?;
        if let Some((status, headers)) = self.status(plain) {
            return say(out, method, status, headers, b"{\"error\": \"no\"}");
        }
        if let Some(name) = plain.strip_prefix("/bytes/") {
            return self.transfer(method, name, "", range, out);
        }
        if let Some(answered) = self.store(method, path, headers, out) {
            return answered;
        }
        if plain.contains("/old/name/") {
            let now = path.replacen("/old/name/", "/owner/name/", 1);
            return say(out, method, 307, &format!("Location: {now}\r\n"), b"");
        }
        if self.token.is_some_and(|allowed| token != Some(&format!("Bearer {allowed}"))) {
            return say(out, method, 401, "X-Error-Code: RepoNotFound\r\n", b"");
        }
        let revision = |revision: &str| matches!(revision, "main" | "refs%2Fpr%2F1" | COMMIT);
        if let Some(rest) = plain.strip_prefix("/api/models/owner/name/") {
            return match rest.split_once('/') {
                Some(("revision", name)) if revision(name) => say(out, method, 200, "", self.document().as_bytes()),
                Some(("tree", name)) if revision(name) => say(out, method, 200, "", self.tree().as_bytes()),
                _ => say(out, method, 404, "X-Error-Code: RevisionNotFound\r\n", b""),
            };
        }
        let Some(rest) = plain.strip_prefix("/owner/name/resolve/") else {
            return say(out, method, 404, "X-Error-Code: RepoNotFound\r\n", b"");
        };
        let (at, name) = rest.split_once('/')?;
        if !revision(at) {
            return say(out, method, 404, "X-Error-Code: RevisionNotFound\r\n", b"");
        }
        let Some(stored) = self.files.get(name) else {
            return say(out, method, 404, &format!("X-Error-Code: EntryNotFound\r\nX-Repo-Commit: {COMMIT}\r\n"), b"");
        };
        let etag = stored.etag();
        if !stored.is_large {
            return self.transfer(
                method,
                name,
                &format!("ETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\n"),
                range,
                out,
            );
        }
        let bytes = self.told(name, false).unwrap_or(stored.bytes.len() as u64 + self.zeros(name));
        let place = format!("{}/bytes/{name}?signature=secret", self.other.lock().unwrap());
        let headers = format!(
            "Location: {place}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {bytes}\r\nX-Repo-Commit: {COMMIT}\r\nETag: \"x\"\r\n"
        );
        say(out, method, 302, &headers, b"Found")
    }

    /// The bytes of a file, or the end of them.
    fn transfer(
        &self,
        method: &str,
        name: &str,
        headers: &str,
        range: Option<&str>,
        out: &mut TcpStream,
    ) -> Option<()> {
        let mut bytes = self.bytes(name)?;
        if self.has(|fault| matches!(fault, Fault::Bytes { file } if *file == name)) {
            bytes[0] ^= 1;
        }
        let total = bytes.len() as u64 + self.zeros(name);
        let range = range.filter(|_| !self.has(|fault| *fault == Fault::NoRanges));
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (from, last) = match range {
            Some((from, last)) => (from.parse().ok()?, last.parse().unwrap_or(u64::MAX).min(total - 1)),
            None => (0, total - 1),
        };
        if from >= total {
            return say(out, method, 416, &format!("Content-Range: bytes */{total}\r\n"), b"");
        }
        let (status, extra) = match range {
            Some(_) => (206, format!("Content-Range: bytes {from}-{last}/{total}\r\n")),
            None => (200, String::new()),
        };
        let (begin, end) = (usize::try_from(from).unwrap(), usize::try_from(last + 1).unwrap());
        bytes.truncate(end);
        let mut rest = bytes.split_off(begin.min(bytes.len()));
        if method != "HEAD" {
            rest.resize(end - begin, 0);
            let place = format!("/{}{name}", if headers.is_empty() { "bytes/" } else { "owner/name/" });
            self.sent.lock().unwrap().push((place, rest.len() as u64));
        }
        let rest = rest.as_slice();
        let after = if method == "HEAD" { None } else { self.breaks(name) };
        let is_slow = method != "HEAD" && self.has(|fault| *fault == Fault::Slow);
        if after.is_none() && !is_slow {
            return say(out, method, status, &format!("{headers}{extra}"), rest);
        }
        let head = format!("HTTP/1.1 {status} OK\r\nContent-Length: {}\r\n{headers}{extra}\r\n", rest.len());
        out.write_all(head.as_bytes()).ok()?;
        let end = after.unwrap_or(rest.len()).min(rest.len());
        for part in rest[..end].chunks(1000) {
            out.write_all(part).ok()?;
            if is_slow {
                thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        after.is_none().then_some(())
    }

    fn document(&self) -> String {
        let one = |(name, stored): (&String, &Stored)| {
            let size = self.told(name, true).unwrap_or(stored.bytes.len() as u64 + self.zeros(name));
            serde_json::json!({"rfilename": name, "size": size, "blobId": "x"})
        };
        let siblings: Vec<_> = self.files.iter().map(one).collect();
        serde_json::json!({"id": "owner/name", "modelId": "owner/name", "sha": COMMIT, "siblings": siblings})
            .to_string()
    }

    fn tree(&self) -> String {
        let one = |(name, stored): (&String, &Stored)| {
            let mut entry = serde_json::json!({"type": "file", "path": name, "size": stored.bytes.len(), "oid": "x"});
            if stored.is_large {
                entry["lfs"] =
                    serde_json::json!({"oid": stored.etag(), "size": stored.bytes.len(), "pointerSize": 130});
            }
            entry
        };
        serde_json::Value::from(self.files.iter().map(one).collect::<Vec<_>>()).to_string()
    }

    fn has(&self, is: impl Fn(&Fault) -> bool) -> bool {
        self.faults.lock().unwrap().iter().any(is)
    }

    fn status(&self, path: &str) -> Option<(u16, &'static str)> {
        self.faults.lock().unwrap().iter_mut().find_map(|fault| match fault {
            Fault::Status { path: part, times, status, headers } if *times > 0 && path.contains(*part) => {
                *times -= 1;
                Some((*status, *headers))
            }
            _ => None,
        })
    }

    fn zeros(&self, name: &str) -> u64 {
        self.faults
            .lock()
            .unwrap()
            .iter()
            .find_map(|fault| match fault {
                Fault::Zeros { file, count } if *file == name => Some(*count),
                _ => None,
            })
            .unwrap_or(0)
    }

    fn breaks(&self, name: &str) -> Option<usize> {
        self.faults.lock().unwrap().iter_mut().find_map(|fault| match fault {
            Fault::Breaks { file, times, after } if *times > 0 && *file == name => {
                *times -= 1;
                Some(*after)
            }
            _ => None,
        })
    }

    fn told(&self, name: &str, is_list: bool) -> Option<u64> {
        self.faults.lock().unwrap().iter().find_map(|fault| match fault {
            Fault::Size { file, listed, told } if *file == name => {
                if is_list {
                    *listed
                } else {
                    *told
                }
            }
            _ => None,
        })
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    let mut next = || {
        line.clear();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        Some(line.trim_end().to_owned())
    };
    let first = next()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let line = next()?;
        match line.split_once(':') {
            Some((name, value)) => _ = headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => return Some(Request { method, path, headers }),
        }
    }
}

fn say(out: &mut TcpStream, method: &str, status: u16, headers: &str, body: &[u8]) -> Option<()> {
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    let body = if method == "HEAD" { &[][..] } else { body };
    out.write_all(&[head.as_bytes(), body].concat()).ok()
}
