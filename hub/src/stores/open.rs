//! How a store is asked: the variables of the environment, and what makes requests.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ObjectStore, RetryConfig};
use tokio::runtime::{Builder, Runtime};

use super::StoreAddress;
use super::address::Kind;
use super::connector::Connector;
use super::object::digits;
use crate::http::{Client, Redirects};
use crate::{HubError, Settings};

/// How long a server may take that gives credentials to the machines of a cloud: it is near, or not there.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// How many digits tell folders of one name apart in the cache.
const DIGITS: usize = 12;

/// What asks a store.
pub(super) struct Opened {
    pub(super) store: Box<dyn ObjectStore>,
    pub(super) client: Arc<Client>,
    pub(super) runtime: Runtime,
    /// The name of the folder in the cache, of two parts.
    pub(super) key: String,
}

pub(super) fn open(address: &StoreAddress, settings: Settings) -> Result<Opened, HubError> {
    let metadata = Settings { timeout: METADATA_TIMEOUT, proxy: None, ..settings.clone() };
    let (client, metadata) = (Arc::new(Client::new(settings)?), Arc::new(Client::new(metadata)?));
    let redirects = if address.kind == Kind::Web { Redirects::All } else { Redirects::None };
    let connector = Connector { client: Arc::clone(&client), metadata, redirects };
    let (store, server) = store(address, connector).map_err(|error| HubError::Store {
        address: address.shown().to_owned(),
        message: format!("{error}; {}", address.kind.login()),
    })?;
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime =
        runtime.map_err(|source| HubError::Cache { what: "begin to ask for", path: address.shown().into(), source })?;
    Ok(Opened { store, client, runtime, key: key(address, &server) })
}

/// The store of an address by the environment, and the server of another name than the usual.
fn store(address: &StoreAddress, connector: Connector) -> object_store::Result<(Box<dyn ObjectStore>, String)> {
    // The client of the hub asks again.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let url = address.url.as_str();
    match address.kind {
        Kind::S3 => {
            let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry).with_http_connector(connector);
            let server = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
            let server = server.iter().find_map(|key| builder.get_config_value(key)).unwrap_or_default();
            Ok((Box::new(builder.build()?), server))
        }
        Kind::Google => {
            let builder =
                GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry).with_http_connector(connector);
            let server = builder.get_config_value(&GoogleConfigKey::BaseUrl).unwrap_or_default();
            Ok((Box::new(builder.build()?), server))
        }
        Kind::Azure => {
            let builder =
                MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry).with_http_connector(connector);
            let server = [AzureConfigKey::Endpoint, AzureConfigKey::AccountName, AzureConfigKey::UseEmulator];
            let server: Vec<_> = server.iter().filter_map(|key| builder.get_config_value(key)).collect();
            Ok((Box::new(builder.build()?), server.join(" ")))
        }
        Kind::Web => {
            let builder = HttpBuilder::new().with_url(url).with_retry(retry).with_http_connector(connector);
            Ok((Box::new(builder.build()?), String::new()))
        }
    }
}

/// Where the cache has a folder: `SCHEME-BUCKET-DIGITS/NAME`, in characters that any file system takes.
fn key(address: &StoreAddress, server: &str) -> String {
    let plain = |text: &str| -> String {
        let one = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
        let text: String = text.chars().map(one).collect();
        text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    };
    let (url, folder) = (&address.url, &address.folder);
    let place = format!("{}@{}:{}", url.username(), url.host_str().unwrap_or_default(), url.port().unwrap_or_default());
    let digits = digits(&[url.scheme(), &place, server, folder.as_ref()]);
    let digits = digits.get(..DIGITS).unwrap_or_default();
    let bucket = plain(url.host_str().unwrap_or_default());
    format!("{}-{bucket}-{digits}/{}", url.scheme(), plain(address.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_one_name_are_told_apart() {
        let key = |text: &str, server: &str| key(&StoreAddress::parse(text).unwrap().unwrap(), server);
        let first = key("s3://bucket/models/my--model", "");
        assert!(first.starts_with("s3-bucket-") && first.ends_with("/my-model"), "{first}");
        assert_eq!(first, key("s3://bucket/models/my--model/", ""));
        let others = [
            key("s3://bucket/other/my--model", ""),
            key("s3://bucket/models/my--model", "http://127.0.0.1"),
            key("gs://bucket/models/my--model", ""),
        ];
        assert!(!others.contains(&first), "{others:?}");
        assert_eq!(key("https://a.b/x/model.gguf?signature=1", ""), key("https://a.b/x/model.gguf?signature=2", ""));
    }
}
