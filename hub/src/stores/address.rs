//! Addresses of folders and files in object stores and on web servers.

use object_store::path::Path;
use url::Url;

use crate::HubError;
use crate::name::{ADDRESSES, ENDINGS};

/// What kind of server has a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Google,
    Azure,
    /// A web server, which does not list its files.
    Web,
}

impl Kind {
    /// By the scheme of an address.
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" | "s3a" => Some(Self::S3),
            "gs" => Some(Self::Google),
            "az" | "azure" | "adl" | "abfs" | "abfss" => Some(Self::Azure),
            "https" | "http" => Some(Self::Web),
            _ => None,
        }
    }

    /// Who has the files, in an error.
    pub(crate) fn who(self) -> &'static str {
        if self == Self::Web { "the server" } else { "the store" }
    }

    /// What to type where credentials are missing or refused.
    pub(crate) fn login(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (of a profile: eval \"$(aws configure export-credentials --format \
                 env)\"), or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            Self::Google => {
                "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials, or \
                 GOOGLE_SKIP_SIGNATURE=true for a public bucket"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY, or AZURE_USE_AZURE_CLI=true \
                 after `az login`, or AZURE_SKIP_SIGNATURE=true for a public container"
            }
            Self::Web => "planish logs in nowhere: download the files, and name their folder",
        }
    }

    /// How to come by a folder without planish.
    pub(crate) fn copy(self) -> &'static str {
        match self {
            Self::S3 => "copy the folder where there is a network, `aws s3 cp --recursive ADDRESS DIR`, and name DIR",
            Self::Google => {
                "copy the folder where there is a network, `gcloud storage cp -r ADDRESS DIR`, and name DIR"
            }
            Self::Azure => {
                "copy the folder where there is a network, `azcopy copy --recursive ADDRESS DIR`, and name DIR"
            }
            Self::Web => "download the files where there is a network, and name their folder",
        }
    }

    /// The variable that names another server of the kind.
    pub(crate) fn endpoint(self) -> Option<&'static str> {
        match self {
            Self::S3 => Some("AWS_ENDPOINT_URL"),
            Self::Google => Some("GOOGLE_BASE_URL"),
            Self::Azure => Some("AZURE_STORAGE_ENDPOINT"),
            Self::Web => None,
        }
    }
}

/// The address of a folder in an object store (`s3://`, `gs://`, `az://`, `abfs://`) or on a web server (`https://`), or of a file in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    pub(crate) kind: Kind,
    /// The address without a file, and without a path where it is one of a web server.
    pub(crate) url: Url,
    /// The path of the folder.
    pub(crate) folder: Path,
    file: Option<String>,
    shown: String,
}

impl StoreAddress {
    /// Reads an address; `None` for other texts, and for pages of the Hugging Face hub.
    ///
    /// # Errors
    /// When the text begins as an address and is none.
    pub fn parse(text: &str) -> Result<Option<Self>, HubError> {
        let Some(kind) = text.split_once("://").and_then(|(scheme, _)| Kind::of(scheme)) else { return Ok(None) };
        if ADDRESSES.iter().any(|address| text.starts_with(address)) {
            return Ok(None);
        }
        let mut url = Url::parse(text).map_err(|error| bad(&without_secrets(text), &error.to_string()))?;
        let shown = shown(&url);
        let bad = |why: &str| bad(&shown, why);
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("it names no bucket"));
        }
        if url.fragment().is_some() {
            return Err(bad("it has a #; write %23 for one in a name"));
        }
        if kind == Kind::Web && (!url.username().is_empty() || url.password().is_some()) {
            return Err(bad("it has a name or a password, which no request takes along; leave them out"));
        }
        let path = Path::from_url_path(url.path()).map_err(|error| bad(&error.to_string()))?;
        let file =
            path.filename().filter(|name| ENDINGS.iter().any(|ending| name.ends_with(ending))).map(str::to_owned);
        if url.query().is_some() && (kind != Kind::Web || file.is_none()) {
            return Err(bad("what follows the ? is for an address of one file on a web server; leave it out"));
        }
        let folder = if file.is_some() { path.parent().unwrap_or_default() } else { path };
        if kind == Kind::Web {
            url.set_path("");
        }
        Ok(Some(Self { kind, url, folder, file, shown }))
    }

    /// The file that was named, by its name in its folder.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The address as a person may see it: without what follows a `?`, which may be a signature.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The name of the folder: the last part of its path, or else the bucket or the host.
    pub(crate) fn name(&self) -> &str {
        self.folder.filename().or(self.url.host_str()).unwrap_or("model")
    }

    /// The path of a file of the folder, as a store names it: a request encodes it.
    pub(crate) fn path(&self, file: &str) -> Path {
        let folder = &self.folder;
        let whole = if folder.as_ref().is_empty() { file.to_owned() } else { format!("{folder}/{file}") };
        // What is no such path is not there either.
        Path::parse(whole).unwrap_or_else(|_| folder.clone().join(file))
    }

    /// Whether what follows the `?` is what a request is allowed by.
    pub(crate) fn is_signed(&self) -> bool {
        self.url.query().is_some()
    }
}

fn bad(address: &str, why: &str) -> HubError {
    let message = format!("this is no address: {why}; type s3://BUCKET/FOLDER, gs://, az:// or https://HOST/FOLDER");
    HubError::Store { address: address.to_owned(), message }
}

/// A text that may be an address, without what stands before an `@` in it and what follows a `?`.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, rest)| rest)),
        None => text.to_owned(),
    }
}

/// An address without a password, and without what follows a `?`.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> StoreAddress {
        StoreAddress::parse(text).unwrap().unwrap()
    }

    #[test]
    fn addresses_are_folders_or_files() {
        let folder = parse("s3://bucket/models/tiny%20bert/");
        assert_eq!((folder.kind, folder.folder.as_ref(), folder.file()), (Kind::S3, "models/tiny bert", None));
        assert_eq!(folder.name(), "tiny bert");
        assert_eq!(parse("gs://bucket").name(), "bucket");
        let file = parse("az://container/a/model-Q8_0.gguf");
        assert_eq!((file.kind, file.folder.as_ref(), file.file()), (Kind::Azure, "a", Some("model-Q8_0.gguf")));
        assert_eq!(parse("s3://b/a%20b").path("m~[1] é%.onnx").as_ref(), "a b/m~[1] é%.onnx");
        assert_eq!(parse("s3://b").path("1/m.onnx").as_ref(), "1/m.onnx");
        let signed = parse("https://a.b:8/x/model.onnx?signature=secret");
        assert_eq!((signed.shown(), signed.is_signed()), ("https://a.b:8/x/model.onnx", true));
        assert_eq!(signed.url.as_str(), "https://a.b:8/?signature=secret");
        assert_eq!(parse("abfss://container@account.dfs.core.windows.net/a").kind, Kind::Azure);
    }

    #[test]
    fn paths_and_names_of_the_hub_are_no_addresses() {
        for text in ["", "model.onnx", "owner/name", "/s3/x", "file:///x", "ftp://a/b", "https://huggingface.co/a/b"] {
            assert_eq!(StoreAddress::parse(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn what_begins_as_an_address_and_is_none_says_why() {
        for (text, why) in [
            ("s3://", "it names no bucket"),
            ("s3://bucket/a//b", "empty path segment"),
            ("s3://bucket/a?versionId=1", "what follows the ?"),
            ("https://a.b/folder?x=1", "what follows the ?"),
            ("https://a.b/folder#x", "it has a #"),
            ("https://user:secret@a.b/folder", "it has a name or a password"),
            ("https://user:secret@a.b:99999/folder", "https://a.b:99999/folder: this is no address"),
            ("https://a b/model.onnx?signature=secret", "https://a b/model.onnx: this is no address"),
        ] {
            let error = StoreAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
