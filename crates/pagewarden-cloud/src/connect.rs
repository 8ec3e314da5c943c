//! A client for an address, with what the cloud's variables, files and the options say.

use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::Settings;
use crate::address::{Address, Scheme};
use crate::aws_files;
use crate::fault::Secrets;
use crate::http::Connector;

/// Without a byte for so long, a server is taken for one that does not answer.
const SILENCE: &str = "60s";

/// See the module.
///
/// # Errors
/// Why there can be none, and what to do.
pub(crate) fn connect(
    address: &Address,
    settings: &Settings,
    http: Connector,
    secrets: &Secrets,
) -> Result<Arc<dyn ObjectStore>, (String, String)> {
    // One provider for the process; it is there already if a database was spoken to.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = settings.endpoint.as_deref();
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    let bucket = address.bucket.as_str();
    // Repeated by `http` alone, which counts them.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let built = match address.scheme {
        Scheme::S3 => {
            let mut builder = with_aws_files(AmazonS3Builder::from_env(), secrets)
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_http_connector(http);
            if let Some(endpoint) = endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            for (key, value) in configured(AmazonS3ConfigKey::Client, is_plain, settings)? {
                builder = builder.with_config(key, value);
            }
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Scheme::Google => {
            let mut builder = GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_http_connector(http);
            if let Some(endpoint) = endpoint {
                builder = builder.with_base_url(endpoint);
            }
            for (key, value) in configured(GoogleConfigKey::Client, is_plain, settings)? {
                builder = builder.with_config(key, value);
            }
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Scheme::Azure => {
            let mut builder = MicrosoftAzureBuilder::from_env()
                .with_container_name(bucket)
                .with_retry(retry)
                .with_http_connector(http);
            if let Some(endpoint) = endpoint {
                builder = builder.with_endpoint(endpoint.to_owned());
            }
            for (key, value) in configured(AzureConfigKey::Client, is_plain, settings)? {
                builder = builder.with_config(key, value);
            }
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Scheme::Https | Scheme::Http => {
            let mut options = ClientOptions::new();
            for (key, value) in defaults(false) {
                options = options.with_config(key, value);
            }
            for (key, value) in &settings.options {
                options = options.with_config(named(key)?, value);
            }
            let builder = HttpBuilder::new()
                .with_url(address.root())
                .with_client_options(options)
                .with_retry(retry)
                .with_http_connector(http);
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
    };
    built.map_err(|error| {
        let hint = "set the cloud's own variables, as AWS_REGION and AWS_ENDPOINT_URL, or \
                    --storage-option KEY=VALUE";
        (secrets.hide(&error).to_string(), hint.to_owned())
    })
}

/// What a whole request may take depends on the line; only silence is limited.
fn defaults(is_plain: bool) -> Vec<(ClientConfigKey, &'static str)> {
    let mut defaults =
        vec![(ClientConfigKey::Timeout, "365d"), (ClientConfigKey::ReadTimeout, SILENCE)];
    if is_plain {
        defaults.push((ClientConfigKey::AllowHttp, "true"));
    }
    defaults
}

/// What a client is set to: by default, and then by the options.
fn configured<K: FromStr>(
    of_client: fn(ClientConfigKey) -> K,
    is_plain: bool,
    settings: &Settings,
) -> Result<Vec<(K, &str)>, (String, String)> {
    let defaults = defaults(is_plain).into_iter().map(|(key, value)| Ok((of_client(key), value)));
    let options = settings.options.iter().map(|(key, value)| Ok((named(key)?, value.as_str())));
    defaults.chain(options).collect()
}

fn named<K: FromStr>(key: &str) -> Result<K, (String, String)> {
    key.parse().map_err(|_| {
        (
            format!("there is no setting {key} for this kind of address"),
            "as in --storage-option region=eu-central-1, or virtual_hosted_style_request=true"
                .to_owned(),
        )
    })
}

/// Keys and region out of the files of AWS, where no variable says them.
fn with_aws_files(mut builder: AmazonS3Builder, secrets: &Secrets) -> AmazonS3Builder {
    let is_set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    let profile = aws_files::profile();
    if !is_set(&builder, AmazonS3ConfigKey::AccessKeyId)
        && let (Some(key), Some(secret)) = (profile.access_key_id, profile.secret_access_key)
    {
        secrets.add(&secret);
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        if let Some(token) = profile.session_token {
            secrets.add(&token);
            builder = builder.with_token(token);
        }
    }
    let has_region = is_set(&builder, AmazonS3ConfigKey::Region)
        || is_set(&builder, AmazonS3ConfigKey::DefaultRegion);
    match profile.region {
        Some(region) if !has_region => builder.with_region(region),
        _ => builder,
    }
}
