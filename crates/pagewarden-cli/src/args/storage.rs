//! How object storage is spoken to: the part of the command line that all have who read from it.

use clap::Args;

/// What is said of the object storage
#[derive(Debug, Clone, Default, Args)]
pub struct StorageOptions {
    /// The address of the object storage, where it is not the cloud's own: http://127.0.0.1:9000
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,

    /// A setting of the object storage, as in region=eu-central-1; may be given several times
    ///
    /// The names are those of the clouds' own variables without what they begin with. Keys and
    /// tokens are taken from these variables and from the clouds' files only. retries=N: how
    /// often a request is repeated that was answered with 429 or 5xx.
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::parse_setting)]
    pub storage_option: Vec<(String, String)>,
}
