//! Servers on backups that were brought back to a temporary folder: for a restore drill, and to bring single
//! pages forward by the server's own redo.
//!
//! Such a server runs under its own settings: it listens to a private socket only, archives nothing, follows
//! no one, loads no library, and starts no worker that reaches for another server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use pagewarden::database::repository::RepositoryOptions;
use pagewarden::formats::postgres::files::backup::restore::{Restored, restore};
use pagewarden::source::store::StorePath;
use pagewarden_scratch::postgres::{Cluster, Installation};

/// Replay of much log takes long.
pub const RECOVERY_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What keeps the server to itself, and lets it take over whatever the one that was backed up had.
const SETTINGS: [(&str, &str); 13] = [
    ("hot_standby", "off"),
    ("archive_mode", "off"),
    ("wal_level", "logical"),
    ("max_replication_slots", "100"),
    ("max_wal_senders", "0"),
    ("max_prepared_transactions", "1000"),
    ("max_locks_per_transaction", "256"),
    ("max_logical_replication_workers", "0"),
    ("autovacuum", "off"),
    ("shared_preload_libraries", "''"),
    ("session_preload_libraries", "''"),
    ("local_preload_libraries", "''"),
    ("track_counts", "off"),
];

/// A cluster that is ready for recovery.
#[derive(Debug)]
pub struct Ready {
    /// Not started.
    pub cluster: Cluster,
    /// What it was made of.
    pub restored: Restored,
    /// What of the log could not be had.
    pub log_losses: Vec<String>,
}

/// Where recovery is to end.
#[derive(Debug, Clone, Copy)]
pub enum End<'a> {
    /// Where the log ends; the server then takes connections.
    OfTheLog,
    /// Behind the record at this position; the server then shuts down. There is more log in this folder.
    At {
        /// As PostgreSQL writes it.
        lsn: &'a str,
        /// Such as the `pg_wal` of a cluster.
        log: &'a Path,
    },
}

/// Brings a backup back, with the log that is kept beside it or in these folders.
///
/// # Errors
/// It is no backup, its server's programs are not here, or there is no room.
pub fn ready(
    place: &StorePath,
    repository: &RepositoryOptions,
    log: &[StorePath],
    end: End<'_>,
) -> anyhow::Result<Ready> {
    let (cluster, (restored, log_losses)) = Cluster::filled(&SETTINGS, |data| {
        let restored = restore(place, repository, log, data)?;
        let installation = Installation::find(&restored.version).with_context(|| {
            format!(
                "the programs of PostgreSQL {} are not installed here\n\
                 hint: install its server, and run the same command again",
                restored.version
            )
        })?;
        let losses = bring_log(&restored, data, installation.major, end)?;
        Ok((installation, (restored, losses)))
    })?;
    Ok(Ready { cluster, restored, log_losses })
}

/// Puts the log where the server fetches it from. What of it could not be had.
fn bring_log(
    restored: &Restored,
    data: &Path,
    major: u32,
    end: End<'_>,
) -> anyhow::Result<Vec<String>> {
    let folder = data.with_extension("log");
    fs::create_dir(&folder)?;
    let failed = "cannot write the log to a temporary folder";
    let losses = restored.write_log(&folder).context(failed)?;
    let fetch = format!("cp \"{}/%f\" \"%p\"", folder.display()).replace('\'', "''");
    let mut lines = format!("restore_command = '{fetch}'\n");
    match end {
        End::OfTheLog => lines.push_str("recovery_target_timeline = 'latest'\n"),
        End::At { lsn, log } => {
            restored.copy_segments(log, &folder).context(failed)?;
            lines.push_str(&format!(
                "recovery_target_lsn = '{lsn}'\nrecovery_target_inclusive = on\n\
                 recovery_target_action = 'shutdown'\n"
            ));
            if major >= 12 {
                lines.push_str("recovery_target_timeline = 'current'\n");
            }
        }
    }
    match major {
        12.. => {
            fs::write(data.join("recovery.signal"), "")?;
            // Read after postgresql.conf, and so it counts.
            fs::write(data.join("postgresql.auto.conf"), lines)?;
        }
        _ => fs::write(data.join("recovery.conf"), lines)?,
    }
    let told = losses.into_iter();
    Ok(told.map(|(name, why)| format!("{name} of the log cannot be had: {why}")).collect())
}

/// The last line with which a server says why it ended.
pub fn last_words(log: &str) -> &str {
    let mut fatal =
        log.lines().rev().filter(|line| line.contains("FATAL") || line.contains("PANIC"));
    fatal.next().unwrap_or_else(|| log.lines().last().unwrap_or_default())
}
