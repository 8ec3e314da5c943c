//! `repair --replay`: sources brought forward to the end of the damaged cluster's log by the server's own redo,
//! each in a temporary folder, where pages are then taken from.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use pagewarden::formats::postgres::files::control::Control;
use pagewarden::repair::{Outcome, Proof, Replayed as Copy, Request};
use pagewarden::words::LsnText;
use pagewarden_scratch::postgres::Cluster;

use crate::commands::restored::{End, RECOVERY_LIMIT, Ready, last_words, ready};

/// More of a control file is never read.
const CONTROL_FILE_BYTES_MAX: u64 = 64 << 10;

/// True if a plan leaves pages that redo might bring forward.
pub fn is_wanted(plan: &Outcome) -> bool {
    let is_open = |proof: Option<Proof>| !matches!(proof, Some(Proof::Exact | Proof::Rebuilt));
    plan.pages.iter().any(|page| is_open(page.proof))
}

/// Copies at the end of the log, each removed with what is given.
#[derive(Debug, Default)]
pub struct Replayed {
    clusters: Vec<(PathBuf, Cluster)>,
    /// Why a source was not brought forward.
    pub warnings: Vec<String>,
}

impl Replayed {
    /// What they are made of, and where they are.
    pub fn copies(&self) -> Vec<Copy> {
        let copy = |(of, cluster): &(PathBuf, Cluster)| Copy {
            of: of.clone(),
            root: cluster.data_dir().to_owned(),
        };
        self.clusters.iter().map(copy).collect()
    }
}

/// Brings every source of a request forward that can be.
///
/// # Errors
/// The database is none of PostgreSQL that can be read, or no source could be brought forward.
pub fn replay(request: &Request, stop: &AtomicBool) -> anyhow::Result<Replayed> {
    let end = end_of(&request.path)?;
    let mut replayed = Replayed::default();
    for place in request.sources.iter().filter(|place| !place.is_running()) {
        let own = request.path.join("pg_wal");
        let at = End::At { lsn: &end, log: &own };
        let brought = ready(place, &request.repository, &request.log, at)
            .and_then(|ready| forward(ready, &end, stop));
        match brought {
            Ok(cluster) => replayed.clusters.push((place.path().to_owned(), cluster)),
            Err(error) => {
                let why = format!("{error:#}").replace('\n', "; ");
                let name = place.path().display();
                replayed.warnings.push(format!("{name} was not brought forward: {why}"));
            }
        }
    }
    if replayed.clusters.is_empty() {
        let why = match replayed.warnings.is_empty() {
            true => "name a base backup or a repository with --from".to_owned(),
            false => replayed.warnings.join("; "),
        };
        anyhow::bail!("no source could be brought forward by redo: {why}");
    }
    Ok(replayed)
}

/// The last record of the cluster's log: the checkpoint of its shutdown.
fn end_of(root: &Path) -> anyhow::Result<String> {
    let path = root.join("global").join("pg_control");
    let hint = "--replay is for PostgreSQL: its own redo brings pages forward";
    let length = std::fs::metadata(&path).with_context(|| hint)?.len();
    anyhow::ensure!(length <= CONTROL_FILE_BYTES_MAX, "{}: no control file", path.display());
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let control = Control::parse(&bytes).map_err(|fault| {
        anyhow::anyhow!("the control file of {} is damaged: {}", root.display(), fault.detail)
    })?;
    Ok(LsnText(control.checkpoint_lsn).to_string())
}

fn forward(mut ready: Ready, end: &str, stop: &AtomicBool) -> anyhow::Result<Cluster> {
    if let Some((name, why)) = ready.restored.losses.iter().next() {
        anyhow::bail!("{name} could not be brought back: {why}");
    }
    let is_over = || stop.load(Ordering::Relaxed);
    let log = ready.cluster.run_to_its_end(RECOVERY_LIMIT, &is_over)?;
    anyhow::ensure!(
        log.contains("recovery stopping after WAL location"),
        "redo did not come to {end}, the end of this cluster's log: {}",
        last_words(&log)
    );
    Ok(ready.cluster)
}
