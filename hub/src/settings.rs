//! What the environment says of the hub, by the variables of Python's huggingface_hub.

use std::path::PathBuf;
use std::time::Duration;

use planish_files::Kind;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

use crate::HubError;

/// The hub that is asked where nothing names another.
const ENDPOINT: &str = "https://huggingface.co";

/// How long no byte may come until a transfer counts as broken, where nothing says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

const TOKEN: Kind = Kind { what: "a token of the hub", limit: 64 << 10, advice: "log in again" };
const CERTIFICATES: Kind =
    Kind { what: "a file of certificates", limit: 64 << 20, advice: "give a bundle in the format PEM" };

/// Where the hub is, where its models are cached, and who asks.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of the hub, without a slash at its end.
    pub endpoint: String,
    /// The folder of caches.
    pub cache: PathBuf,
    /// Who asks; nobody where absent.
    pub token: Option<String>,
    /// The variable that forbids to use the network, where one does.
    pub offline: Option<&'static str>,
    /// How long no byte may come until a transfer counts as broken.
    pub timeout: Duration,
    /// How long to wait after the first failure of a request; after each further one twice as long.
    pub pause: Duration,
    /// The way out of this network.
    pub proxy: Option<ureq::Proxy>,
    /// Who vouches for servers; those that browsers trust where absent.
    pub certificates: Option<Vec<Certificate<'static>>>,
}

impl Settings {
    /// Reads the environment: `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_TOKEN_PATH`,
    /// `HF_HUB_DISABLE_IMPLICIT_TOKEN`, `HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`, `HF_HUB_DOWNLOAD_TIMEOUT`, `SSL_CERT_FILE`, and
    /// those of proxies.
    ///
    /// # Errors
    /// When a variable has a value that cannot be used.
    pub fn from_env() -> Result<Self, HubError> {
        Self::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .map(|settings| Self { proxy: ureq::Proxy::try_from_env(), ..settings })
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let bad = |variable, message: String| HubError::Setting { variable, message };
        let path = |name| variable(name).map(|path| expanded(&path, variable));
        let user = || expanded("~/.cache", variable);
        let home = path("HF_HOME").unwrap_or_else(|| path("XDG_CACHE_HOME").unwrap_or_else(user).join("huggingface"));
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE")).unwrap_or_else(|| home.join("hub"));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(bad("HF_ENDPOINT", format!("{endpoint} is no address that begins with https:// or http://")));
        }
        if endpoint.contains('@') {
            return Err(bad(
                "HF_ENDPOINT",
                "it has a name or a password, which no request takes along; use HF_TOKEN".to_owned(),
            ));
        }
        let is_set = |name: &&&str| variable(name).is_some_and(|value| is_true(&value));
        let timeout = match variable("HF_HUB_DOWNLOAD_TIMEOUT").map(|text| text.parse().ok().filter(|s| *s > 0)) {
            None => TIMEOUT,
            Some(Some(seconds)) => Duration::from_secs(seconds),
            Some(None) => return Err(bad("HF_HUB_DOWNLOAD_TIMEOUT", "it is no number of seconds above 0".to_owned())),
        };
        let named = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(|name| Some((name, variable(name)?)));
        let (source, whose, token) = match (named, is_set(&&"HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
            (_, true) => ("HF_TOKEN", String::new(), None),
            (Some((name, token)), false) => (name, String::new(), Some(token)),
            (None, false) => {
                let file = path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
                ("HF_TOKEN_PATH", format!(" in {}", file.display()), planish_files::read_if_there(&file, &TOKEN)?)
            }
        };
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        if token.as_ref().is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            let message = format!(
                "the token{whose} has spaces, or characters outside of ASCII; log in again with `hf auth login`"
            );
            return Err(bad(source, message));
        }
        let bundle = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"].into_iter().find_map(|name| Some((name, path(name)?)));
        let certificates = match bundle {
            Some((name, path)) => {
                let found = certificates(&planish_files::read(&path, &CERTIFICATES)?);
                if found.is_empty() {
                    let message =
                        format!("{} has no certificate in the format PEM, so no server is trusted", path.display());
                    return Err(bad(name, message));
                }
                Some(found)
            }
            None => None,
        };
        let offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].iter().find(is_set).copied();
        Ok(Self { endpoint, cache, token, offline, timeout, pause: Duration::from_secs(1), proxy: None, certificates })
    }

    /// What vouches for servers.
    pub(crate) fn roots(&self) -> RootCerts {
        match &self.certificates {
            Some(certificates) => RootCerts::new_with_certs(certificates),
            None => RootCerts::WebPki,
        }
    }
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let certificate = |item| if let Ok(PemItem::Certificate(found)) = item { Some(found) } else { None };
    parse_pem(pem).filter_map(certificate).collect()
}

/// A path with the folder of the user in place of `~`.
fn expanded(path: &str, variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    match (path.strip_prefix('~'), variable("HOME")) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => (home + rest).into(),
        _ => path.into(),
    }
}

/// Whether a variable is set in the sense of huggingface_hub.
fn is_true(value: &str) -> bool {
    ["1", "ON", "YES", "TRUE"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, HubError> {
        let find =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        Settings::read(&find)
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let cache = |variables: &[(&str, &str)]| read(variables).unwrap().cache;
        assert_eq!(cache(&[("HOME", "/h")]), PathBuf::from("/h/.cache/huggingface/hub"));
        assert_eq!(cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), PathBuf::from("/x/huggingface/hub"));
        assert_eq!(cache(&[("HOME", "/h"), ("HF_HOME", "~/hf")]), PathBuf::from("/h/hf/hub"));
        assert_eq!(cache(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")]), PathBuf::from("/c"));
    }

    #[test]
    fn tokens_come_from_the_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let home = folder.path().to_str().unwrap();
        let token = |variables: &[(&str, &str)]| read(&[&[("HF_HOME", home)], variables].concat()).unwrap().token;
        assert_eq!(token(&[]).as_deref(), Some("hf_file"));
        assert_eq!(token(&[("HF_TOKEN", "hf_own")]).as_deref(), Some("hf_own"));
        assert_eq!(token(&[("HF_TOKEN_PATH", "/nowhere")]), None);
        assert_eq!(token(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        let error = read(&[("HF_TOKEN", "a\nb")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the environment variable HF_TOKEN: the token has spaces, or characters outside of ASCII; log in again with `hf auth login`"
        );
        std::fs::write(folder.path().join("token"), "hf file").unwrap();
        let error = read(&[("HF_HOME", home)]).unwrap_err().to_string();
        assert!(
            error.starts_with("the environment variable HF_TOKEN_PATH: the token in /")
                && error.contains("/token has spaces"),
            "{error}"
        );
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let error = read(&[("SSL_CERT_FILE", empty.to_str().unwrap())]).unwrap_err().to_string();
        assert!(error.contains("SSL_CERT_FILE: ") && error.contains("empty.pem has no certificate"), "{error}");
    }

    #[test]
    fn values_that_cannot_be_used_are_refused() {
        assert_eq!(read(&[("HF_ENDPOINT", "https://a/")]).unwrap().endpoint, "https://a");
        assert_eq!(read(&[("TRANSFORMERS_OFFLINE", "yes")]).unwrap().offline, Some("TRANSFORMERS_OFFLINE"));
        assert_eq!(read(&[("HF_HUB_OFFLINE", "0")]).unwrap().offline, None);
        for (variable, value) in [
            ("HF_ENDPOINT", "a.b"),
            ("HF_ENDPOINT", "http://user:secret@a.b"),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "soon"),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "0"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the environment variable {variable}: ")), "{error}");
        }
    }
}
