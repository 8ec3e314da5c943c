//! What a server needs before it can open a cluster and read every row, and that no
//! page speaks of: folders, version files, mapped catalogues, the status of
//! transactions, the checkpoint record, tablespaces.
//!
//! | asked for | by |
//! | --- | --- |
//! | folders that a server does not start without | a list, made by removing each and starting servers of 14 to 18 |
//! | the control file | what it says, which excludes one another; the checkpoint record |
//! | `PG_VERSION` | the control file's catalogue version; one for each database that `pg_database` lists |
//! | files of mapped catalogues | every `pg_filenode.map` |
//! | segments of `pg_xact` and `pg_multixact` | oldest and next numbers of the control file and of `pg_database` |
//! | what `pg_xact` says | rows of `pg_class` that know who committed |
//! | the checkpoint record | its position in the control file |
//! | tablespaces | `pg_tablespace` |
//!
//! Asked of a cluster that was shut down cleanly, where what is not there is damage. In one
//! that has yet to recover, a lack is suspect, and it is none where replay of the log may
//! make what is missing; the log is read only if something is. A running server has all
//! folders; its files lag behind one another.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::files::backup::label;
use crate::files::catalogue::pages::GapReason;
use crate::files::catalogue::relations::Certainty;
use crate::files::catalogue::{
    Catalogue, DEFAULT_TABLESPACE, Database, Databases, GLOBAL_TABLESPACE,
};
use crate::files::control::Control;
use crate::files::evidence::names::Books;
use crate::files::state::Circumstances;
use crate::files::wal::block::Locator;
use crate::files::wal::replay::Scanned;
use crate::files::{Cluster, maps, small_files};
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{Kind, Severity};

mod ends;
mod start;
mod status;

/// What is not as a server needs it.
#[derive(Debug)]
pub(super) struct Lack {
    /// The file or folder.
    pub(super) path: PathBuf,
    /// What follows from it.
    pub(super) what: What,
}

/// See [`Lack`].
#[derive(Debug)]
pub(super) enum What {
    /// It is proved.
    Finding { severity: Severity, kind: Kind, detail: String, hint: &'static str },
    /// It could not be looked at.
    Unread(String),
    /// Worth knowing.
    Note(String),
}

impl Lack {
    fn is_of_kind(&self, wanted: Kind) -> bool {
        matches!(&self.what, What::Finding { kind, .. } if *kind == wanted)
    }
}

const FROM_BACKUP: &str = "restore it from a backup of the same cluster and the same moment";

/// Folders without which a server of 15 and of 18 does not start, tried one by one. It
/// starts without `pg_subtrans`, `pg_serial`, `pg_snapshots`, `pg_dynshmem`, `pg_stat`,
/// `pg_stat_tmp`, `pg_logical`, `pg_tblspc` and `pg_wal/archive_status`.
const FOLDERS: [&str; 8] = [
    "base",
    "global",
    "pg_commit_ts",
    "pg_multixact/members",
    "pg_multixact/offsets",
    "pg_notify",
    "pg_replslot",
    "pg_twophase",
];

/// Folders that recovery, or the checkpoint at its end, needs besides.
const FOLDERS_OF_RECOVERY: [&str; 4] =
    ["pg_logical/mappings", "pg_logical/snapshots", "pg_subtrans", "pg_tblspc"];

/// Folders in which there may be nothing.
const FOLDERS_THAT_MAY_BE_EMPTY: [&str; 13] = [
    "pg_commit_ts",
    "pg_dynshmem",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_multixact/members",
    "pg_notify",
    "pg_replslot",
    "pg_stat",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
    "pg_wal",
    "pg_xlog",
];

/// Folders that a server at rest makes anew, or does without, where there is none; behind a link
/// that leads nowhere it cannot. `pg_stat_tmp` may be in memory, and gone with it.
const FOLDERS_MADE_ANEW: [&str; 11] = [
    "pg_dynshmem",
    "pg_logical",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_subtrans",
    "pg_tblspc",
    "pg_wal/archive_status",
    "pg_wal/summaries",
];

/// Catalogues that always hold rows, and indexes in the maps, which always have a first
/// page: none of these files is ever empty. `pg_type`, `pg_attribute`, `pg_proc`,
/// `pg_class`, `pg_database`, `pg_authid`; and their indexes.
const NEVER_EMPTY: [u32; 21] = [
    1247, 1249, 1255, 1259, 1262, 1260, 2703, 2704, 2658, 2659, 2690, 2691, 2662, 2663, 3455, 2671,
    2672, 2676, 2677, 2697, 2698,
];

/// Everything that is asked for; see the module.
pub(super) fn lacks(cluster: &Cluster, books: &Books, wal: Option<&Path>) -> Vec<Lack> {
    let mut lacks = Lacks { cluster, found: Vec::new() };
    lacks.version(&cluster.root);
    if let Ok(control) = &cluster.control {
        lacks.control(control);
    }
    if matches!(cluster.circumstances, Circumstances::Backup | Circumstances::Crashed) {
        lacks.what_recovery_needs();
    }
    match cluster.circumstances {
        // Of a part of a set the rest lies elsewhere.
        _ if cluster.part.is_some() => return lacks.found,
        // Nothing more is known without the control file.
        Circumstances::Unknown | Circumstances::Unreadable => return lacks.found,
        _ => lacks.folders(),
    }
    // Of an incremental backup, files are parts of those of the one before.
    if cluster.circumstances.may_change() || cluster.is_incremental() {
        return lacks.found;
    }
    lacks.small_files();
    if cluster.circumstances == Circumstances::Backup {
        lacks.log_of_backup();
    } else if let Ok(control) = &cluster.control {
        let of_record = lacks.checkpoint(control, wal);
        // A standby's control file has numbers that its files may not have yet.
        let ids = match cluster.circumstances {
            Circumstances::AtRest => control.ids,
            _ => of_record,
        };
        if let Some(ids) = &ids {
            lacks.transactions(ids, books);
            lacks.multixacts(ids, books);
        }
        lacks.ends_of_transactions(control, wal);
    }
    if let Some(catalogue) = books.catalogue() {
        lacks.mapped(&cluster.root.join("global"), GLOBAL_TABLESPACE, 0);
        lacks.databases(catalogue, books);
        lacks.tablespaces(catalogue, books);
    }
    lacks.found
}

struct Lacks<'a> {
    cluster: &'a Cluster,
    found: Vec<Lack>,
}

impl Lacks<'_> {
    fn finding(&mut self, path: &Path, kind: Kind, detail: impl Into<String>) {
        // What a standby lacks it may yet get from its primary or an archive.
        let severity = match self.cluster.circumstances {
            Circumstances::AtRest => Severity::Damage,
            _ => Severity::Suspect,
        };
        self.finding_of(path, severity, kind, detail);
    }

    fn finding_of(
        &mut self,
        path: &Path,
        severity: Severity,
        kind: Kind,
        detail: impl Into<String>,
    ) {
        let what = What::Finding { severity, kind, detail: detail.into(), hint: FROM_BACKUP };
        self.found.push(Lack { path: path.to_owned(), what });
    }

    /// True if replay of the log may make what is missing, or may have dropped it: the log says
    /// so, or cannot be read to its end and may lie in an archive.
    fn may_come(&self, is_in_log: impl Fn(&Scanned) -> bool) -> bool {
        let Some(replay) = &self.cluster.replay else { return false };
        let scanned = replay.scanned();
        let is_elsewhere =
            self.recovers_from_archive() || self.cluster.circumstances != Circumstances::Crashed;
        scanned.gap().is_some() && is_elsewhere || is_in_log(scanned)
    }

    /// True for rows that count, as far as that can be known.
    fn is_certain(&self, certainty: Certainty) -> bool {
        match self.cluster.circumstances {
            Circumstances::AtRest => certainty == Certainty::Certain,
            _ => certainty != Certainty::InDoubt,
        }
    }

    fn unread(&mut self, path: &Path, error: impl Into<String>) {
        self.found.push(Lack { path: path.to_owned(), what: What::Unread(error.into()) });
    }

    /// What no replay of the log makes anew.
    fn what_recovery_needs(&mut self) {
        let root = &self.cluster.root;
        let has_content = |entry: fs::DirEntry| !entry.metadata().is_ok_and(|it| it.len() == 0);
        let is_there = |name: &str| match fs::read_dir(root.join(name)) {
            Ok(mut entries) => entries.any(|entry| entry.map_or(true, has_content)),
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        let folders =
            [["pg_xact", "pg_clog"], ["pg_multixact/offsets"; 2], ["pg_multixact/members"; 2]];
        let missing = folders.into_iter().filter(|names| !names.iter().any(|name| is_there(name)));
        for path in missing.map(|[name, _]| root.join(name)).collect::<Vec<_>>() {
            let detail = "no file of it is here, and recovery makes none of those that are needed";
            self.finding(&path, Kind::Missing, detail);
        }
    }

    /// `PG_VERSION` of the cluster or of a database.
    fn version(&mut self, folder: &Path) {
        let path = folder.join("PG_VERSION");
        let text = match read_small(&path, 64) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let detail = "the file is not there, and no server opens the folder without it";
                return self.finding_of(&path, Severity::Damage, Kind::Missing, detail);
            }
            Err(error) => return self.unread(&path, error.to_string()),
        };
        let expected = self.cluster.control.as_ref().ok().and_then(Control::major);
        let is_wrong = match expected {
            Some(major) => text != major,
            None => text.parse::<f32>().is_err(),
        };
        if is_wrong {
            let expected = expected.unwrap_or("a version");
            let found: String = text.chars().take(16).collect();
            let detail = format!("it says {found:?}, and the cluster is of {expected}");
            self.finding_of(&path, Severity::Damage, Kind::Header, detail);
        }
    }

    fn folders(&mut self) {
        // The names before 10.
        let (status, log) = match self.cluster.major.as_str() {
            "9.6" => ("pg_clog", "pg_xlog"),
            _ => ("pg_xact", "pg_wal"),
        };
        let shared = maps_shared_memory(&self.cluster.root).then_some("pg_dynshmem");
        let recovers = matches!(
            self.cluster.circumstances,
            Circumstances::Crashed | Circumstances::StandbyAtRest | Circumstances::Backup
        );
        let of_recovery = FOLDERS_OF_RECOVERY.iter().filter(|_| recovers).copied();
        let needed = FOLDERS.into_iter().chain([status, log]).chain(shared).chain(of_recovery);
        for name in needed {
            let path = self.cluster.root.join(name);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => self.listed(&path),
                Ok(_) => self.finding(&path, Kind::Missing, "it is no folder, and must be one"),
                Err(error) if fs::symlink_metadata(&path).is_ok() => {
                    self.unread(&path, format!("cannot be reached: {error}"));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => self.no_folder(&path, name),
                Err(error) => self.unread(&path, error.to_string()),
            }
        }
        for name in FOLDERS_MADE_ANEW {
            let path = self.cluster.root.join(name);
            if path.is_dir() {
                self.listed(&path);
            }
            let is_link = fs::symlink_metadata(&path).is_ok_and(|data| data.is_symlink());
            if is_link && let Err(error) = fs::metadata(&path) {
                self.unread(&path, format!("a link that cannot be followed: {error}"));
            }
        }
        self.settings();
    }

    /// A folder that is not there. Neither a server nor recovery makes one.
    fn no_folder(&mut self, path: &Path, name: &str) {
        let detail = "the folder is not there, and no server starts without it".to_owned();
        let may_be_lost = FOLDERS_THAT_MAY_BE_EMPTY.contains(&name)
            && self.cluster.circumstances == Circumstances::Backup;
        let (severity, hint) = match may_be_lost {
            // Archives and object stores leave empty folders out.
            true => (Severity::Notice, "if it was empty when the backup was made: make the folder"),
            false => (Severity::Damage, FROM_BACKUP),
        };
        let what = What::Finding { severity, kind: Kind::Missing, detail, hint };
        self.found.push(Lack { path: path.to_owned(), what });
    }

    fn settings(&mut self) {
        let old = self.cluster.root.join("recovery.conf");
        let reads_it = ["9.6", "10", "11"].contains(&self.cluster.major.as_str());
        if !reads_it && old.exists() {
            let what = What::Finding {
                severity: Severity::Suspect,
                kind: Kind::Header,
                detail: "a server of 12 or later does not start where there is such a file"
                    .to_owned(),
                hint: "move what it sets to postgresql.conf, and the file away",
            };
            self.found.push(Lack { path: old, what });
        }
        for name in ["postgresql.conf", "pg_hba.conf"] {
            let settings = self.cluster.root.join(name);
            if fs::symlink_metadata(&settings).is_err() {
                let text = "not in the data directory: it must lie elsewhere, as on Debian, and \
                            was not looked at";
                let what = What::Note(text.to_owned());
                self.found.push(Lack { path: settings, what });
            }
        }
    }

    /// What a folder holds that may not be listed is not known.
    fn listed(&mut self, folder: &Path) {
        if let Err(error) = fs::read_dir(folder) {
            self.unread(folder, error.to_string());
        }
    }

    /// Small files with a sum of their own, and settings.
    fn small_files(&mut self) {
        let root = self.cluster.root.clone();
        for path in entries(&root.join("pg_twophase")) {
            let is_state = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
                matches!(name.len(), 8 | 16) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            if is_state {
                self.small_file(&path, small_files::prepared);
            }
        }
        for slot in entries(&root.join("pg_replslot")) {
            // One that is being made or dropped; a server removes the rest of it.
            if slot.extension().is_some_and(|ending| ending == "tmp") || !slot.is_dir() {
                continue;
            }
            let state = slot.join("state");
            match fs::symlink_metadata(&state) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let detail = "the slot has no state, and no server starts with such a slot";
                    self.finding(&state, Kind::Missing, detail);
                }
                _ => self.small_file(&state, small_files::slot),
            }
        }
        // Without it a server begins anew.
        let origins = root.join("pg_logical/replorigin_checkpoint");
        if fs::symlink_metadata(&origins).is_ok() {
            self.small_file(&origins, small_files::origins);
        }
        for name in ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"] {
            let path = root.join(name);
            if fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                self.small_file(&path, small_files::settings);
            }
        }
    }

    fn small_file(&mut self, path: &Path, fault: fn(&[u8]) -> Option<small_files::Fault>) {
        match read_small(path, small_files::SMALL_BYTES_MAX) {
            Ok(bytes) => {
                if let Some((kind, detail)) = fault(&bytes) {
                    self.finding(path, kind, detail);
                }
            }
            Err(error) => self.unread(path, error.to_string()),
        }
    }

    /// Each file that a sound map names must be there.
    fn mapped(&mut self, folder: &Path, tablespace: u32, database: u32) {
        let Ok(map) = read_small(&folder.join("pg_filenode.map"), maps::MAP_BYTES_MAX) else {
            return;
        };
        for (oid, number) in maps::mappings(&map) {
            let path = folder.join(number.to_string());
            let locator = Locator { tablespace, database, number };
            let is_due = || !self.may_come(|log| log.may_make_catalogue(locator));
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.len() == 0 && NEVER_EMPTY.contains(&oid) => {
                    if !is_due() {
                        continue;
                    }
                    let detail = format!(
                        "the file is empty; pg_filenode.map names it for the catalogue with oid {oid}"
                    );
                    self.finding(&path, Kind::Truncated, detail);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if !is_due() {
                        continue;
                    }
                    let detail = format!(
                        "the file is not there; pg_filenode.map names it for the catalogue with oid {oid}"
                    );
                    self.finding(&path, Kind::Missing, detail);
                }
                Err(error) => self.unread(&path, error.to_string()),
            }
        }
    }

    /// Each database that is listed, but for its folder, which is asked for elsewhere.
    fn databases(&mut self, catalogue: &Catalogue, books: &Books) {
        let Databases { listed, gaps } = books.databases();
        // Pages that fail are damage by themselves.
        let is_blank = gaps.listed.iter().all(|gap| gap.reason == GapReason::Empty);
        if listed.is_empty() && is_blank {
            let global = self.cluster.root.join("global");
            let map = read_small(&global.join("pg_filenode.map"), maps::MAP_BYTES_MAX);
            let number = map.ok().and_then(|map| maps::file_number(&map, PG_DATABASE));
            let Some(path) = number.map(|number| global.join(number.to_string())) else { return };
            if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0) {
                let detail = "no row of pg_database can be read in it, and every cluster has some";
                self.finding(&path, Kind::Zeroed, detail);
            }
        }
        for database in listed {
            if !self.is_certain(database.certainty) || database.is_half_dropped {
                continue;
            }
            let is_at_rest = self.cluster.circumstances == Circumstances::AtRest;
            if !is_at_rest && self.may_come(|log| log.may_make_database(database.oid)) {
                continue;
            }
            let folder = catalogue.folder(database.tablespace, database.oid);
            if !folder.is_dir() {
                if !is_at_rest {
                    self.no_database(&folder, database);
                }
                continue;
            }
            self.version(&folder);
            if is_at_rest {
                self.committed_rows(catalogue, database);
            }
            let map = folder.join("pg_filenode.map");
            match fs::metadata(&map) {
                Ok(_) => self.mapped(&folder, database.tablespace, database.oid),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let detail =
                        "the relation map of a database that pg_database lists is not there";
                    self.finding(&map, Kind::Missing, detail);
                }
                Err(error) => self.unread(&map, error.to_string()),
            }
        }
    }

    /// A database without a folder, in a cluster that has yet to recover: elsewhere the
    /// catalogues are asked for it.
    fn no_database(&mut self, folder: &Path, database: &Database) {
        let link = self.cluster.root.join("pg_tblspc").join(database.tablespace.to_string());
        // A tablespace that cannot be reached, or has no link, is reported itself.
        if database.tablespace != DEFAULT_TABLESPACE && !link.is_dir() {
            return;
        }
        let detail = format!("pg_database lists the database {:?}", database.name);
        self.finding(folder, Kind::Missing, detail);
    }

    /// What rows of `pg_class` know of transactions, the log of their status must say too.
    fn committed_rows(&mut self, catalogue: &Catalogue, database: &Database) {
        const FIRST_TRANSACTION: u32 = 3;
        const A_SEGMENT: u64 = status::PAGES_A_SEGMENT * 4;
        let ids = self.cluster.control.as_ref().ok().and_then(|control| control.ids);
        let Some(ids) = ids else { return };
        let count = ids.next_xid.wrapping_sub(ids.oldest_xid);
        let is_in_use = |transaction: u32| {
            transaction >= FIRST_TRANSACTION && transaction.wrapping_sub(ids.oldest_xid) < count
        };
        let Some(found) = catalogue.contradiction(database, is_in_use) else { return };
        let a_segment = A_SEGMENT * self.cluster.page_size as u64;
        let segment = u64::from(found.transaction) / a_segment;
        let folder = if self.cluster.major == "9.6" { "pg_clog" } else { "pg_xact" };
        let path = self.cluster.root.join(folder).join(format!("{segment:04X}"));
        // One that is missing or cut was reported, and holds nothing that could be wrong.
        if self.found.iter().any(|lack| lack.path == path && !lack.is_of_kind(Kind::Zeroed)) {
            return;
        }
        let shown = found.path.strip_prefix(&self.cluster.root).unwrap_or(&found.path).display();
        let did = if found.committed { "committed" } else { "aborted" };
        let detail = format!(
            "a row in {shown}, block {}, knows that transaction {} {did}, and this log of the status of transactions does not say so",
            found.block, found.transaction
        );
        self.finding(&path, Kind::Structure, detail);
    }

    /// Each tablespace that is listed, but for those whose links a server makes itself, by
    /// the map of a backup.
    fn tablespaces(&mut self, catalogue: &Catalogue, books: &Books) {
        const MAP_BYTES_MAX: usize = 1 << 20;
        if self.cluster.is_of_set {
            return;
        }
        let map = read_small(&self.cluster.root.join("tablespace_map"), MAP_BYTES_MAX);
        let made = label::tablespaces(&map.unwrap_or_default());
        let (mut listed, _) = catalogue.tablespaces(books.moment());
        listed.retain(|tablespace| !made.contains(&tablespace.oid.to_string()));
        listed.sort_unstable();
        listed.dedup();
        for tablespace in listed {
            if matches!(tablespace.oid, DEFAULT_TABLESPACE | GLOBAL_TABLESPACE) {
                continue;
            }
            let link = self.cluster.root.join("pg_tblspc").join(tablespace.oid.to_string());
            if let Err(error) = fs::symlink_metadata(&link) {
                let name = &tablespace.name;
                let is_certain = self.is_certain(tablespace.certainty)
                    && !self.may_come(|log| log.may_make_tablespace(tablespace.oid));
                match (error.kind(), is_certain) {
                    (ErrorKind::NotFound, true) => {
                        let detail = format!(
                            "pg_tablespace lists the tablespace {name:?}, and its link is not there"
                        );
                        self.finding(&link, Kind::Missing, detail);
                    }
                    (ErrorKind::NotFound, _) => {}
                    _ => self.unread(&link, error.to_string()),
                }
            }
        }
    }
}

/// What is in a folder; nothing if it cannot be listed, which is said elsewhere.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// True if the settings ask for shared memory in files, which lie in `pg_dynshmem`: only
/// then a server does not start without that folder.
fn maps_shared_memory(root: &Path) -> bool {
    const SETTINGS_BYTES_MAX: usize = 1 << 20;
    ["postgresql.conf", "postgresql.auto.conf"].iter().any(|name| {
        let settings = read_small(&root.join(name), SETTINGS_BYTES_MAX).unwrap_or_default();
        String::from_utf8_lossy(&settings).lines().any(|line| {
            let line = line.split('#').next().unwrap_or_default();
            line.trim_start().starts_with("dynamic_shared_memory_type") && line.contains("mmap")
        })
    })
}

const PG_DATABASE: u32 = 1262;
