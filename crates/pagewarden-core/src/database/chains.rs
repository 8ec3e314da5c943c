//! Backups that build on one another, of databases whose server writes each into a file of its own:
//! which fit together, to which states they bring each database, and what is missing.

use serde::{Deserialize, Serialize};

/// All databases of a folder with backups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupChains {
    /// Each with its backups.
    pub databases: Vec<DatabaseChains>,
}

/// The backups of one database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseChains {
    /// Its name.
    pub database: String,
    /// The same for all copies of it, whatever they are called.
    pub family: Option<String>,
    /// Its backups, in the order of the log.
    pub sets: Vec<ChainSet>,
    /// To which states it can be brought, in the order of the log.
    pub restorable: Vec<ChainRange>,
    /// Log that no backup here holds, although later log backups do.
    pub gaps: Vec<ChainGap>,
    /// Statements that bring it to the newest state.
    pub restore: Vec<String>,
}

/// A backup: what RESTORE HEADERONLY and RESTORE FILELISTONLY tell of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainSet {
    /// The files in which it lies: several for a striped one.
    pub files: Vec<String>,
    /// How many files it was striped over.
    pub stripes: u16,
    /// Which backup in these files it is, from 1 on.
    pub position: u32,
    /// What kind of backup.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is called; empty for none.
    pub name: String,
    /// Its own id.
    pub id: Option<String>,
    /// The server that took it.
    pub server: String,
    /// That server's version: `15.0.4382`.
    pub server_version: String,
    /// The version of the database's files.
    pub database_version: u16,
    /// The compatibility level.
    pub compatibility: u8,
    /// When the database was made, by the server's clock: `2026-11-23T09:10:11`.
    pub created: Option<String>,
    /// When the backup began.
    pub started: Option<String>,
    /// When it ended.
    pub finished: Option<String>,
    /// The log in it begins here; positions are written as in `msdb`.
    pub first_lsn: String,
    /// And ends here.
    pub last_lsn: String,
    /// Of the checkpoint it began with.
    pub checkpoint_lsn: String,
    /// That of the full backup before; `0` if there was none. Of a differential one, that of its base.
    pub database_backup_lsn: String,
    /// Of a differential backup, the id of its base.
    pub differential_base: Option<String>,
    /// The history that the database was of.
    pub recovery_fork: Option<String>,
    /// The history before, if a restore began a new one.
    pub first_recovery_fork: Option<String>,
    /// Where that was left.
    pub fork_point_lsn: Option<String>,
    /// It lies in a compressed container.
    pub compressed: bool,
    /// Bytes of the files in which it lies, with all other backups there.
    pub bytes: u64,
    /// The database's files.
    pub database_files: Vec<ChainFile>,
    /// Why no restore can use it; `None` if one can.
    pub unusable: Option<String>,
}

/// A file of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainFile {
    /// Its logical name.
    pub name: String,
    /// Where it lay.
    pub path: String,
    /// It is of the log.
    pub is_log: bool,
    /// Its number.
    pub id: u32,
    /// Its size.
    pub bytes: u64,
    /// Its pages in this backup.
    pub backup_pages: u32,
}

/// States that a database can be brought to: one, or all from one to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainRange {
    /// The first.
    pub from_lsn: String,
    /// The last.
    pub to_lsn: String,
    /// The time of the first, by the server's clock.
    pub from_time: Option<String>,
    /// The time of the last; the same where it is one state.
    pub to_time: Option<String>,
}

/// Log that is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainGap {
    /// The first position that no backup holds.
    pub from_lsn: String,
    /// Here a later log backup begins.
    pub to_lsn: String,
    /// When the last backup before was over.
    pub from_time: Option<String>,
    /// When the backup behind it was begun.
    pub to_time: Option<String>,
    /// The file of the log backup that cannot be applied.
    pub before: String,
}
