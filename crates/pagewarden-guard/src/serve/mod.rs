//! One process that scrubs what is due, reports changes, and answers how things stand.
//!
//! | path | what |
//! | --- | --- |
//! | `/` | a page, without scripts |
//! | `/targets/NAME` | the page of one database |
//! | `/metrics` | figures for Prometheus |
//! | `/healthz` | `ok`, while the schedule is alive |
//! | `/api/v1/status` | the object of `status --json` |
//! | `/api/v1/targets/NAME/findings` | findings with their lives |
//!
//! Every answer comes from the ledger; requests change nothing. A name in `Host` that is not known is
//! refused, so that a page of another site cannot be led here by its name server. Other addresses than
//! those of the loopback interface need a token and TLS, or a proxy that asks who comes.
//!
//! ```text
//! schedule --> a run for each disk --> ledger <-- watch (notifications)
//!                                        ^------- http, route, page
//! ```

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Configuration;
use crate::moment;
use crate::notify::deliver::Post;
use crate::serve::admit::Token;
use crate::serve::http::Server;
use crate::serve::schedule::{Runs, Schedule};

pub mod admit;
mod http;
mod manager;
mod page;
mod route;
#[cfg(test)]
mod scale;
pub mod schedule;
mod watch;

/// How often a thread with nothing to do looks whether to stop.
const NAP: Duration = Duration::from_millis(200);
/// The schedule is alive if it was seen within this.
const ALIVE_SECONDS: i64 = 120;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// A proxy stands before it, and lets in only whom it knows.
    pub behind_proxy: bool,
    /// Names that it is reached by, beside those of the loopback interface.
    pub hosts: Vec<String>,
    /// What requests must have.
    pub token: Option<Token>,
    /// The certificate and its key; plain HTTP without.
    pub tls: Option<Arc<ServerConfig>>,
    /// Where the ledger is.
    pub state: PathBuf,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

/// Reads a certificate, with those that lead to it, and its key, both as PEM.
///
/// # Errors
/// They cannot be read, do not fit each other, or others can read the key.
pub fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    use pagewarden::system::MetadataExt as _;
    let shown = key.display();
    let file = File::open(key).with_context(|| format!("cannot read {shown}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    ensure!(metadata.mode() & 0o007 == 0, "all users can read {shown}\nhint: chmod 600 it");
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| anyhow::anyhow!("cannot read the key in {shown}: {error}"))?;
    let shown = certificate.display();
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| anyhow::anyhow!("cannot read the certificate in {shown}: {error}"))?;
    ensure!(!chain.is_empty(), "there is no certificate in {shown}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let config = config.and_then(|config| config).context("cannot use certificate and key")?;
    Ok(Arc::new(config))
}

/// What all threads share.
struct Shared<'a> {
    settings: Settings,
    configuration: RwLock<Arc<Configuration>>,
    /// When the schedule was seen alive.
    seen: AtomicI64,
    /// Runs that have ended.
    runs_ended: AtomicU64,
    log: &'a (dyn Fn(&str) + Sync),
}

impl Shared<'_> {
    fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&self.configuration.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_configuration(&self, read: Configuration) {
        *self.configuration.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
    }

    fn stops(&self) -> bool {
        self.settings.stop.load(Ordering::Relaxed)
    }

    fn is_alive(&self) -> bool {
        moment::now().saturating_sub(self.seen.load(Ordering::Relaxed)) < ALIVE_SECONDS
    }
}

/// Serves, scrubs and reports until it is asked to stop. `log` takes a line for people.
///
/// # Errors
/// The address cannot be listened on, or may not be; the ledger cannot be opened.
pub fn serve(
    settings: Settings,
    configuration: Configuration,
    runs: &Runs<'_>,
    post: &Post,
    log: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let Settings { listen, behind_proxy, .. } = settings;
    let is_closed = settings.token.is_some() && settings.tls.is_some();
    if !listen.ip().is_loopback() && !behind_proxy && !is_closed {
        bail!(
            "{listen} can be reached from other machines\n\
             hint: listen on 127.0.0.1, or give --token-file, --tls-cert and --tls-key, or put a proxy \
             that asks who comes before it and say --behind-proxy"
        );
    }
    let listening = || format!("cannot listen on {listen}");
    let listener = TcpListener::bind(listen).with_context(listening)?;
    let bound = listener.local_addr().with_context(listening)?;
    let stop = Arc::clone(&settings.stop);
    let server = Server::new(listener, settings.tls.clone(), &stop).with_context(listening)?;
    let shared = Shared {
        settings,
        configuration: RwLock::new(Arc::new(configuration)),
        seen: AtomicI64::new(moment::now()),
        runs_ended: AtomicU64::new(0),
        log,
    };
    let mut schedule = Schedule::new(runs)?;
    let scheme = if shared.settings.tls.is_some() { "https" } else { "http" };
    log(&format!("listening on {scheme}://{bound}/"));
    manager::ready();
    thread::scope(|scope| {
        let shared = &shared;
        scope.spawn(|| server.run(&|asked| route::answer(shared, asked)));
        scope.spawn(move || watch::watch(shared, runs.held, post));
        let mut told = Instant::now();
        let alive_every = manager::alive_every();
        while !shared.stops() {
            schedule.step(scope, shared);
            shared.seen.store(moment::now(), Ordering::Relaxed);
            if alive_every.is_some_and(|every| told.elapsed() >= every) {
                manager::alive();
                told = Instant::now();
            }
            thread::park_timeout(alive_every.map_or(NAP, |every| every.min(NAP)));
        }
        manager::stopping();
    });
    Ok(())
}
