//! The same files as objects of a bucket, `s3://bucket/models/tiny`, and on a web server that lists none, `http://HOST/files/tiny`.

use std::fmt::Write as _;
use std::net::TcpStream;

use super::{Fault, State, say, sha256};

/// The folder of the objects.
const FOLDER: &str = "models/tiny/";

/// How many objects a page of a listing has.
const PAGE: usize = 3;

const MODIFIED: &str = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";

impl State {
    /// The answer to a request for a bucket or for the web server's folder; `None` where it is for something else.
    pub(super) fn store(
        &self,
        method: &str,
        path: &str,
        headers: &dyn Fn(&str) -> Option<String>,
        out: &mut TcpStream,
    ) -> Option<Option<()>> {
        let (plain, query) = path.split_once('?').unwrap_or((path, ""));
        if let Some(name) = plain.strip_prefix("/files/tiny/") {
            return Some(self.object(method, name, headers, out));
        }
        // Clients of Google write so all of a key that is no letter or digit.
        let plain = ["%2F/", "%2E.", "%2D-", "%5F_"]
            .iter()
            .fold(plain.to_owned(), |text, code| text.replace(&code[..3], &code[3..]));
        let Some(rest) = plain.strip_prefix("/bucket") else {
            let is_listing = query.contains("list-type=2");
            return is_listing.then(|| refuse(out, method, 404, "NoSuchBucket", "The bucket does not exist"));
        };
        let credentials = headers("authorization").unwrap_or_default();
        if self.token.is_some_and(|key| !credentials.contains(&format!("Credential={key}/"))) {
            return Some(refuse(out, method, 403, "InvalidAccessKeyId", "The key is not in our records"));
        }
        Some(match rest.trim_start_matches('/') {
            "" if rest.len() <= 1 => self.list(method, query, out),
            key => match key.strip_prefix(FOLDER) {
                Some(name) => self.object(method, name, headers, out),
                None => refuse(out, method, 404, "NoSuchKey", "The key does not exist"),
            },
        })
    }

    /// One page of the objects below a prefix.
    fn list(&self, method: &str, query: &str, out: &mut TcpStream) -> Option<()> {
        let value = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.replace("%2F", "/"))
        };
        let (prefix, delimiter) = (value("prefix").unwrap_or_default(), value("delimiter"));
        let first = value("continuation-token").and_then(|token| token.parse().ok()).unwrap_or(0);
        let keys: Vec<(String, &String)> = self.files.keys().map(|name| (format!("{FOLDER}{name}"), name)).collect();
        let below = |key: &str| key.strip_prefix(prefix.as_str()).map(str::to_owned);
        let is_direct = |rest: String| delimiter.as_ref().is_none_or(|delimiter| !rest.contains(delimiter.as_str()));
        let keys: Vec<_> = keys.into_iter().filter(|(key, _)| below(key).is_some_and(is_direct)).collect();
        let mut xml = String::from("<?xml version=\"1.0\"?><ListBucketResult>");
        for (key, name) in keys.iter().skip(first).take(PAGE) {
            let size = self.told(name, true).unwrap_or(self.bytes(name)?.len() as u64 + self.zeros(name));
            let etag = self.etag(name)?;
            let entry = format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;{etag}&quot;</ETag>\
                 <Size>{size}</Size></Contents>"
            );
            xml.write_str(&entry).ok()?;
        }
        if keys.len() > first + PAGE {
            xml.write_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", first + PAGE)).ok()?;
        }
        xml.push_str("</ListBucketResult>");
        say(out, method, 200, "", xml.as_bytes())
    }

    fn object(
        &self,
        method: &str,
        name: &str,
        headers: &dyn Fn(&str) -> Option<String>,
        out: &mut TcpStream,
    ) -> Option<()> {
        if !self.files.contains_key(name) {
            return refuse(out, method, 404, "NoSuchKey", "The key does not exist");
        }
        let etag = format!("\"{}\"", self.etag(name)?);
        if headers("if-match").is_some_and(|wanted| wanted != etag) {
            return refuse(out, method, 412, "PreconditionFailed", "It is another one");
        }
        let own = format!("ETag: {etag}\r\n{MODIFIED}");
        self.transfer(method, name, &own, headers("range").as_deref(), out)
    }

    /// The name of the state of an object.
    fn etag(&self, name: &str) -> Option<String> {
        Some(sha256(&self.bytes(name)?)[..32].to_owned())
    }

    /// The bytes of a file as they are now.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let replaced = self.faults.lock().unwrap().iter().rev().find_map(|fault| match fault {
            Fault::Replaced { file, bytes } if *file == name => Some(bytes.clone()),
            _ => None,
        });
        replaced.or_else(|| Some(self.files.get(name)?.bytes.clone()))
    }
}

fn refuse(out: &mut TcpStream, method: &str, status: u16, code: &str, message: &str) -> Option<()> {
    let xml = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>");
    say(out, method, status, "", xml.as_bytes())
}
