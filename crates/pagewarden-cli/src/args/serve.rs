//! `pagewarden serve`.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

use super::scrub::Place;

/// Scrub what is due of the configuration, and show how things stand on a page
///
/// Verifies one database of each disk at a time, in its window, reports changes as the notify tables
/// of the configuration say, and answers on the loopback interface: a page at /, figures for Prometheus
/// at /metrics, and JSON at /api/v1/status and /api/v1/targets/NAME/findings. SIGHUP reads the
/// configuration again, SIGTERM ends it.
///
/// Other addresses than those of the loopback interface need --token-file with --tls-cert and --tls-key,
/// or --behind-proxy.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden serve\n  \
    pagewarden serve --config my.toml --state /srv/pagewarden --listen 127.0.0.1:8080\n  \
    pagewarden serve --listen 0.0.0.0:9750 --host db1.example.org \\\n      \
    --token-file token --tls-cert cert.pem --tls-key key.pem")]
pub struct Serve {
    #[command(flatten)]
    pub place: Place,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9750")]
    pub listen: SocketAddr,

    /// Listen on other addresses than those of the loopback interface: a proxy asks who comes
    #[arg(long)]
    pub behind_proxy: bool,

    /// A name that it is reached by, beside localhost; may be given several times
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// A file with a token of at least 16 bytes, which requests must have: as `Authorization: Bearer
    /// TOKEN`, or as the password that a browser asks for
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Answer by https with this certificate (PEM, with those that lead to it)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// A file with the keys of encrypted InnoDB pages
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,

    /// A file with the passphrase of an encrypted backup repository
    #[arg(long, value_name = "FILE")]
    pub cipher_pass_file: Option<PathBuf>,

    /// Threads that verify pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Write no lines to standard error but errors
    #[arg(short, long)]
    pub quiet: bool,
}
