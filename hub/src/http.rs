//! Requests to the hub: redirects, who may see the token, and what is tried again.

use std::io;
use std::time::Duration;

use ureq::http::header::{HeaderName, LOCATION, RETRY_AFTER};
use ureq::http::{Method, Request, Response, StatusCode, Uri};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, Error};

use crate::{HubError, Observer, Settings, without_secrets};

/// How often a request is made until an answer counts as final.
const TRIES: u32 = 5;

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 10;

/// The longest that is waited because the hub asks for it.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Which redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// None: a request that is signed is for one address.
    None,
    /// Those to the same server: what a file is stands in an answer that redirects to the server that has its bytes.
    Own,
    All,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Verb,
    pub(crate) url: &'a str,
    /// The bytes that are wanted: from one on, and up to another.
    pub(crate) range: (u64, Option<u64>),
    pub(crate) redirects: Redirects,
}

/// The methods of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Head,
}

/// A client of one hub.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    settings: Settings,
    origin: String,
}

impl Client {
    pub(crate) fn new(settings: Settings) -> Result<Self, HubError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(settings.proxy.clone())
            .accept_encoding("identity")
            .user_agent(concat!("planish/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(settings.timeout))
            .timeout_per_read(Some(settings.timeout))
            .tls_config(TlsConfig::builder().root_certs(settings.roots()).build())
            .build();
        let origin = origin(&settings.endpoint).ok_or_else(|| HubError::Setting {
            variable: "HF_ENDPOINT",
            message: format!("{} is no address", settings.endpoint),
        })?;
        Ok(Self { agent: config.new_agent(), settings, origin })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The answer to a request, whatever its status. What may pass is tried again: 408, 429 and 5xx, and an answer that does
    /// not come in time.
    ///
    /// # Errors
    /// When no answer comes, or it redirects to nowhere.
    pub(crate) fn send(&self, ask: Ask<'_>, observer: &dyn Observer) -> Result<Response<Body>, HubError> {
        let answer = self.retried(host(ask.url), observer, || {
            let answer = self.follow(ask.url, ask.redirects, |url| self.once(url, ask));
            let passing = match &answer {
                Ok(response) => Passing::of_status(response.status(), asked_to_wait(response)),
                Err(failed) => failed.passing(),
            };
            (answer, passing)
        });
        answer.map_err(|failed| self.told(failed))
    }

    /// Asks again as long as what comes may be otherwise in a moment, but not for ever.
    pub(crate) fn retried<T>(
        &self,
        host: &str,
        observer: &dyn Observer,
        mut ask: impl FnMut() -> (T, Option<Passing>),
    ) -> T {
        let mut tried = 0;
        loop {
            tried += 1;
            let (answer, passing) = ask();
            let Some(Passing { why, wait }) = passing else { return answer };
            let wait = wait.unwrap_or_else(|| self.pause(tried));
            if tried >= TRIES || wait > LONGEST_WAIT {
                return answer;
            }
            observer.waits(&format!("{host}: {why}; asking again in {} s", wait.as_secs_f32()));
            std::thread::sleep(wait);
        }
    }

    /// How long to wait after so many failures.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        self.settings.pause.saturating_mul(1 << failures.saturating_sub(1).min(5))
    }

    /// The answer to a request, behind redirects.
    fn follow(
        &self,
        asked: &str,
        redirects: Redirects,
        once: impl Fn(&str) -> Result<Response<Body>, Failed>,
    ) -> Result<Response<Body>, Failed> {
        let mut url = asked.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let response = once(&url)?;
            if redirects == Redirects::None {
                return Ok(response);
            }
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let Some(target) = target.filter(|_| response.status().is_redirection()) else { return Ok(response) };
            let target = absolute(&url, target).ok_or_else(|| {
                Failed::Told(HubError::Answer {
                    url: without_secrets(&url),
                    message: format!("it redirects to {}, which is no address", without_secrets(target)),
                })
            })?;
            if url.starts_with("https://") && !target.starts_with("https://") {
                let message = format!("it redirects to {}, which is not encrypted", without_secrets(&target));
                return Err(Failed::Told(HubError::Answer { url: without_secrets(&url), message }));
            }
            if redirects == Redirects::Own && origin(&target) != origin(&url) {
                return Ok(response);
            }
            url = target;
        }
        let message = format!("there are more than {MOST_REDIRECTS} redirects");
        Err(Failed::Told(HubError::Answer { url: without_secrets(asked), message }))
    }

    /// One request. Only the hub itself gets the token.
    fn once(&self, url: &str, ask: Ask<'_>) -> Result<Response<Body>, Failed> {
        let method = if ask.method == Verb::Head { Method::HEAD } else { Method::GET };
        let mut request = Request::builder().method(method).uri(url);
        if let Some(token) = self.settings.token.as_ref().filter(|_| origin(url).as_deref() == Some(&self.origin)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let (from, end) = ask.range;
        if from > 0 || end.is_some() {
            let last = end.map(|end| end.saturating_sub(1).to_string()).unwrap_or_default();
            request = request.header("range", format!("bytes={from}-{last}"));
        }
        let request = request.body(()).map_err(|error| no_address(url, error))?;
        self.agent.run(request).map_err(|error| Failed::Network(url.to_owned(), error))
    }

    /// The answer to a request of another client, which says all of it but where redirects lead to.
    pub(crate) fn pass(&self, request: Request<Vec<u8>>, redirects: Redirects) -> Result<Response<Body>, Failed> {
        let (parts, body) = request.into_parts();
        let asked = parts.uri.to_string();
        self.follow(&asked, redirects, |url| {
            let mut parts = parts.clone();
            parts.uri = url.parse().map_err(|error| no_address(url, error))?;
            let sent = match body.as_slice() {
                [] => self.agent.run(Request::from_parts(parts, ())),
                body => self.agent.run(Request::from_parts(parts, body)),
            };
            sent.map_err(|error| Failed::Network(url.to_owned(), error))
        })
    }

    fn told(&self, failed: Failed) -> HubError {
        match failed {
            Failed::Told(error) => error,
            Failed::Network(url, error) => {
                let reason = Failed::Network(url.clone(), error).reason();
                HubError::Unreachable { host: host(&url).to_owned(), reason, advice: self.advice() }
            }
        }
    }

    /// What to do without the network.
    pub(crate) fn advice(&self) -> String {
        "fetch the model where there is a network, `hf download OWNER/NAME --local-dir DIR`, copy DIR here and name it"
            .to_owned()
    }
}

fn no_address(url: &str, error: impl std::fmt::Display) -> Failed {
    Failed::Told(HubError::Answer { url: url.to_owned(), message: format!("this is no address: {error}") })
}

/// Why an answer may be another one in a moment.
pub(crate) struct Passing {
    why: String,
    /// How long the server asks to wait.
    wait: Option<Duration>,
}

impl Passing {
    pub(crate) fn of_status(status: StatusCode, wait: Option<Duration>) -> Option<Self> {
        may_pass(status).then(|| Self { why: format!("answers {status}"), wait })
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    Told(HubError),
    Network(String, Error),
}

impl Failed {
    pub(crate) fn passing(&self) -> Option<Passing> {
        let passes = matches!(self, Self::Network(_, error) if may_pass_by(error));
        passes.then(|| Passing { why: self.reason(), wait: None })
    }

    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Told(error) => error.to_string(),
            Self::Network(_, Error::HostNotFound) => "there is no such host, or no network".to_owned(),
            Self::Network(_, Error::ConnectionFailed) => "it takes no connection".to_owned(),
            Self::Network(_, Error::Timeout(_)) => "no answer comes in time".to_owned(),
            Self::Network(_, Error::Io(error)) => error.to_string(),
            Self::Network(_, error) => error.to_string(),
        }
    }
}

/// Whether a status may be another one in a moment.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// Whether a request that failed may succeed in a moment.
fn may_pass_by(error: &Error) -> bool {
    match error {
        Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => false,
        Error::Timeout(_) | Error::Protocol(_) => true,
        // A host that has no address, or that refuses, does so again.
        Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::Interrupted
                | io::ErrorKind::TimedOut
                | io::ErrorKind::WouldBlock
        ),
        _ => false,
    }
}

/// How long a server asks to wait.
pub(crate) fn asked_to_wait(response: &Response<Body>) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// A header of an answer.
pub(crate) fn header<'r>(response: &'r Response<Body>, name: &'static str) -> Option<&'r str> {
    response.headers().get(HeaderName::from_static(name))?.to_str().ok()
}

/// The scheme, the host and the port of an address.
fn origin(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?.as_str().to_ascii_lowercase()))
}

/// The host of an address, with its port.
pub(crate) fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// Where a redirect leads to.
fn absolute(from: &str, target: &str) -> Option<String> {
    let is_address = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    if is_address(target) {
        return Some(target.to_owned());
    }
    let path = target.strip_prefix('/').filter(|path| !path.starts_with('/'))?;
    Some(format!("{}/{path}", origin(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_the_web() {
        let of = |target| absolute("https://hub.co:8/a/b", target);
        assert_eq!(of("/c?d").as_deref(), Some("https://hub.co:8/c?d"));
        assert_eq!(of("https://cdn.co/x").as_deref(), Some("https://cdn.co/x"));
        assert_eq!([of("file:///etc/passwd"), of("//cdn.co/x"), of("x")], [None, None, None]);
    }

    #[test]
    fn another_port_is_another_server() {
        assert_eq!(origin("http://A.b:1/c"), Some("http://a.b:1".to_owned()));
        assert_ne!(origin("http://a.b:1"), origin("http://a.b:2"));
        assert_ne!(origin("http://a.b"), origin("https://a.b"));
        assert_eq!(host("https://a.b:1/c?d"), "a.b:1");
    }
}
