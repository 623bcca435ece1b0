//! The requests of the crate `object_store`, made by the client of the hub.

use std::fmt;
use std::io::Read;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use ureq::http::{Request, Response, StatusCode, Uri};

use crate::http::{Client, Failed, Passing, Redirects, asked_to_wait, header, host};

/// How many bytes are passed on at once.
const CHUNK: usize = 256 << 10;

/// How much of an error is read, in bytes.
const LONGEST_ERROR: u64 = 64 << 10;

/// Makes clients of one store.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) client: Arc<Client>,
    /// Asks the servers that a cloud gives credentials to its machines by, which answer at once or are not there.
    pub(crate) metadata: Arc<Client>,
    pub(crate) redirects: Redirects,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        let body = body.as_bytes().map(|bytes| bytes.to_vec()).unwrap_or_default();
        if self.redirects == Redirects::None
            && let Some(uri) = with_spaces(&parts.uri)
        {
            parts.uri = uri;
        }
        let host = host(&parts.uri.to_string()).to_owned();
        let client = if is_metadata(&host) { &self.metadata } else { &self.client };
        let response = client.pass(Request::from_parts(parts, body), self.redirects);
        let response = response.map_err(|failed| Failure::Network { host: host.clone(), failed }.into_error())?;
        if !response.status().is_success() {
            return Err(Failure::Status(Refusal::of(host, response)).into_error());
        }
        let (parts, body) = response.into_parts();
        let body = Arriving { host, reader: Mutex::new(Box::new(body.into_reader())) };
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// An address whose query has `%20` for spaces, as the signature of the request has, in place of `+`; `None` where there is none.
fn with_spaces(uri: &Uri) -> Option<Uri> {
    let text = uri.to_string();
    let (path, query) = text.split_once('?').filter(|(_, query)| query.contains('+'))?;
    format!("{path}?{}", query.replace('+', "%20")).parse().ok()
}

/// Whether a host gives credentials to the machines of a cloud.
pub(crate) fn is_metadata(host: &str) -> bool {
    host.starts_with("169.254.") || host.starts_with("metadata.google.internal")
}

/// The body of an answer. The mutex makes it one that threads may share, which they do not.
struct Arriving {
    host: String,
    reader: Mutex<Box<dyn Read + Send>>,
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let body = self.get_mut();
        let mut chunk = vec![0; CHUNK];
        let read = match body.reader.get_mut() {
            Ok(reader) => reader.read(&mut chunk),
            Err(poisoned) => poisoned.into_inner().read(&mut chunk),
        };
        Poll::Ready(match read {
            Ok(0) => None,
            Ok(count) => {
                chunk.truncate(count);
                Some(Ok(Frame::data(chunk.into())))
            }
            Err(error) => {
                let failed = Failed::Network(body.host.clone(), ureq::Error::Io(error));
                Some(Err(Failure::Network { host: body.host.clone(), failed }.into_error()))
            }
        })
    }
}

/// Why a request has no answer that is of use.
#[derive(Debug)]
pub(crate) enum Failure {
    Network { host: String, failed: Failed },
    Status(Refusal),
}

/// An answer that is an error.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) host: String,
    pub(crate) status: StatusCode,
    /// What the store calls it.
    pub(crate) code: Option<String>,
    /// What the store says.
    pub(crate) message: Option<String>,
    /// The region that the bucket is in.
    pub(crate) region: Option<String>,
    wait: Option<Duration>,
}

impl Refusal {
    fn of(host: String, response: Response<ureq::Body>) -> Self {
        let (status, wait) = (response.status(), asked_to_wait(&response));
        let region = header(&response, "x-amz-bucket-region").map(str::to_owned);
        let code = header(&response, "x-ms-error-code").map(str::to_owned);
        let mut text = Vec::new();
        // What does not come is not needed.
        let _ = response.into_body().into_reader().take(LONGEST_ERROR).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let code = code.or_else(|| member(&text, "Code"));
        Self { host, status, code, message: member(&text, "Message"), region, wait }
    }
}

/// What is between two tags of XML.
fn member(xml: &str, tag: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
    let (text, _) = rest.split_once(&format!("</{tag}>"))?;
    Some(text.lines().next().unwrap_or_default().trim().to_owned()).filter(|text| !text.is_empty())
}

impl Failure {
    /// The client of the hub asks again, so `object_store` does not.
    fn into_error(self) -> HttpError {
        HttpError::new(HttpErrorKind::Unknown, self)
    }

    /// The failure that an error of the crate comes from.
    pub(crate) fn of(error: &object_store::Error) -> Option<&Self> {
        let mut error: &(dyn std::error::Error + 'static) = error;
        loop {
            if let Some(failure) = error.downcast_ref() {
                return Some(failure);
            }
            error = error.source()?;
        }
    }

    /// Whether it may be otherwise in a moment.
    pub(crate) fn passing(&self) -> Option<Passing> {
        match self {
            Self::Network { failed, .. } => failed.passing(),
            Self::Status(refusal) => Passing::of_status(refusal.status, refusal.wait),
        }
    }

    /// The status of an answer.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Network { .. } => None,
            Self::Status(refusal) => Some(refusal.status.as_u16()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network { failed, .. } => f.write_str(&failed.reason()),
            Self::Status(refusal) => write!(f, "{} answers {}", refusal.host, refusal.status),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_stores_have_a_code() {
        let xml = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>It is\nnot there</Message></Error>";
        assert_eq!(member(xml, "Code").as_deref(), Some("NoSuchKey"));
        assert_eq!(member(xml, "Message").as_deref(), Some("It is"));
        assert_eq!(member(xml, "Region"), None);
        let uri = with_spaces(&"http://a.b/c+d?prefix=a+b%2B".parse().unwrap()).unwrap();
        assert_eq!(uri.to_string(), "http://a.b/c+d?prefix=a%20b%2B");
        assert!(is_metadata("169.254.169.254") && !is_metadata("bucket.s3.amazonaws.com"));
    }
}
