//! What an error of a store means, and what to type next.

use super::Inner;
use super::address::Kind;
use super::connector::{Failure, Refusal, is_metadata};
use crate::HubError;

impl Inner {
    /// Whether the server lists what it has.
    pub(super) fn lists(&self) -> bool {
        self.address.kind != Kind::Web
    }

    /// The error of a folder that does not have what it needs.
    pub(super) fn no(&self, why: &str) -> HubError {
        HubError::Store { address: self.address.shown().to_owned(), message: why.to_owned() }
    }

    /// The address of a file of the folder.
    pub(super) fn url(&self, file: &str) -> String {
        match self.address.file() {
            Some(own) if own == file => self.address.shown().to_owned(),
            Some(own) => format!("{}{file}", self.address.shown().trim_end_matches(own)),
            None => format!("{}/{file}", self.address.shown().trim_end_matches('/')),
        }
    }

    /// The error that an error of the crate is, of a file or of the folder.
    pub(super) fn told(&self, error: &object_store::Error, file: Option<&str>) -> HubError {
        let kind = self.address.kind;
        let address = file.map_or_else(|| self.address.shown().to_owned(), |file| self.url(file));
        let (host, refusal) = match Failure::of(error) {
            None => {
                let message = format!("{}; {}", innermost(error), kind.copy());
                return HubError::Store { address, message };
            }
            Some(Failure::Network { host, .. }) => (host, None),
            Some(Failure::Status(refusal)) => (&refusal.host, Some(refusal)),
        };
        if is_metadata(host) {
            let message = format!("there are no credentials: {}", kind.login());
            return HubError::Store { address, message };
        }
        match (refusal, Failure::of(error)) {
            (Some(refusal), _) => self.refused(address, refusal, file.is_some()),
            (None, failure) => {
                let endpoint =
                    kind.endpoint().map(|name| format!("check {name} where it is set, or ")).unwrap_or_default();
                let reason = failure.map(ToString::to_string).unwrap_or_default();
                HubError::Unreachable { host: host.clone(), reason, advice: format!("{endpoint}{}", kind.copy()) }
            }
        }
    }

    fn refused(&self, address: String, refusal: &Refusal, is_file: bool) -> HubError {
        let kind = self.address.kind;
        let Refusal { host, status, code, message, region, .. } = refusal;
        let said = match (code, message) {
            (Some(code), Some(message)) => format!(" ({code}: {message})"),
            (Some(code), None) => format!(" ({code})"),
            _ => String::new(),
        };
        let code = code.as_deref().unwrap_or_default();
        let message = match (status.as_u16(), code) {
            (404, "NoSuchBucket" | "ContainerNotFound") => {
                let bucket = self.address.url.host_str().unwrap_or_default();
                let endpoint = kind.endpoint().map(|name| format!(", and {name} where it is set")).unwrap_or_default();
                format!("{host} has no bucket {bucket}: check its name{endpoint}")
            }
            (404 | 410, _) if is_file => "there is no such file; check the address".to_owned(),
            (404 | 410, _) => format!("{host} answers {status}{said}; check the address"),
            (301 | 307, _) | (400, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")
                if kind == Kind::S3 =>
            {
                let region = region.as_deref().unwrap_or("REGION");
                format!("the bucket is in another region{said}: set AWS_REGION={region}")
            }
            (401 | 403, _) | (400, "ExpiredToken" | "InvalidToken") => {
                format!("{host} refuses the credentials{said}: {}", kind.login())
            }
            (412, _) => "it changed while it was read; try again".to_owned(),
            // What may be otherwise in a moment.
            (408 | 429 | 500.., _) => {
                return HubError::Answer {
                    url: address,
                    message: format!("{host} answers {status}{said}; try again later"),
                };
            }
            _ => format!("{host} answers {status}{said}; check the address, or {}", kind.copy()),
        };
        HubError::Store { address, message }
    }
}

/// What an error says in the end: those around it repeat it.
fn innermost(error: &object_store::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
