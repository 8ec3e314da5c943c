//! What a server needs before it can open a cluster and read every row, and that no
//! page speaks of: folders, version files, mapped catalogues, the status of
//! transactions, the checkpoint record, tablespaces.
//!
//! | asked for | by |
//! | --- | --- |
//! | folders that a server does not start without | a list, made by removing each and starting servers of 15 and 18 |
//! | `PG_VERSION` | the control file's catalogue version; one for each database that `pg_database` lists |
//! | files of mapped catalogues | every `pg_filenode.map` |
//! | segments of `pg_xact` and `pg_multixact` | oldest and next numbers of the control file and of `pg_database` |
//! | what `pg_xact` says | rows of `pg_class` that know who committed |
//! | the checkpoint record | its position in the control file |
//! | tablespaces | `pg_tablespace` |
//!
//! Asked of a cluster that was shut down cleanly, and as far as that is possible of a
//! standby that was. Elsewhere recovery may yet make what is missing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::formats::postgres::files::catalogue::pages::GapReason;
use crate::formats::postgres::files::catalogue::relations::Certainty;
use crate::formats::postgres::files::catalogue::{
    Catalogue, DEFAULT_TABLESPACE, Database, Databases, GLOBAL_TABLESPACE,
};
use crate::formats::postgres::files::control::{Control, Ids};
use crate::formats::postgres::files::evidence::names::Books;
use crate::formats::postgres::files::state::Circumstances;
use crate::formats::postgres::files::wal::reader::{LogReader, Stop};
use crate::formats::postgres::files::wal::segment::Segments;
use crate::formats::postgres::files::{Cluster, maps, small_files};
use crate::source::file::read_small;
use crate::source::file::{open_regular, read_at};
use crate::verdict::{Kind, Severity};

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

/// Folders that a server makes anew, or does without, where there is none; behind a link
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
    if matches!(cluster.circumstances, Circumstances::Backup | Circumstances::Crashed) {
        lacks.what_recovery_needs();
    }
    let is_at_rest = cluster.circumstances == Circumstances::AtRest;
    if !is_at_rest && cluster.circumstances != Circumstances::StandbyAtRest {
        return lacks.found;
    }
    lacks.folders();
    lacks.small_files();
    if let Ok(control) = &cluster.control {
        lacks.checkpoint(control, wal);
        if let Some(ids) = &control.ids {
            lacks.transactions(ids, books);
            lacks.multixacts(ids, books);
        }
    }
    if let Some(catalogue) = books.catalogue().filter(|_| is_at_rest) {
        lacks.mapped(&cluster.root.join("global"));
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

    fn unread(&mut self, path: &Path, error: impl Into<String>) {
        self.found.push(Lack { path: path.to_owned(), what: What::Unread(error.into()) });
    }

    /// What no replay of the log makes anew. Of a part of a set the rest lies elsewhere.
    fn what_recovery_needs(&mut self) {
        let root = &self.cluster.root;
        if self.cluster.part.is_some() {
            return;
        }
        let is_there = |name: &str| match fs::read_dir(root.join(name)) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        let folders = [["pg_xact", "pg_clog"], ["pg_multixact/offsets"; 2]];
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
        for name in FOLDERS.into_iter().chain([status, log]).chain(shared) {
            let path = self.cluster.root.join(name);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => self.listed(&path),
                Ok(_) => self.finding(&path, Kind::Missing, "it is no folder, and must be one"),
                Err(error) if fs::symlink_metadata(&path).is_ok() => {
                    self.unread(&path, format!("cannot be reached: {error}"));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let detail = "the folder is not there, and no server starts without it";
                    self.finding(&path, Kind::Missing, detail);
                }
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

    /// The record that a server reads first.
    fn checkpoint(&mut self, control: &Control, wal: Option<&Path>) {
        let root = &self.cluster.root;
        let own = match self.cluster.major.as_str() {
            "9.6" => root.join("pg_xlog"),
            _ => root.join("pg_wal"),
        };
        if !own.is_dir() {
            // Said already.
            return;
        }
        let folders = [own.clone()].into_iter().chain(wal.map(Path::to_owned)).collect();
        let Ok(segments) = Segments::of(control, control.timeline, folders) else { return };
        let name = segments.name_of(control.checkpoint_lsn);
        let path = own.join(&name);
        if let Err(error) = segments.open(control.checkpoint_lsn)
            && error.kind() != ErrorKind::NotFound
        {
            return self.unread(&path, error.to_string());
        }
        let is_there = path.exists();
        let mut reader = LogReader::new(segments, control.checkpoint_lsn, None, 0);
        let stop = match reader.next_record() {
            Ok(record) if record.begin == control.checkpoint_lsn => return,
            Ok(_) => Stop::End,
            Err(stop) => stop,
        };
        let lsn = control.checkpoint_lsn;
        let at = format!("{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF);
        let (kind, detail) = match stop {
            Stop::Gap(words) if !is_there => (
                Kind::Missing,
                format!(
                    "it holds the checkpoint record at {at}, which a server reads first: {words}"
                ),
            ),
            Stop::Gap(words) => (
                Kind::Header,
                format!(
                    "the checkpoint record at {at}, which a server reads first, cannot be read: {words}"
                ),
            ),
            Stop::End => (
                Kind::Header,
                format!("there is no checkpoint record at {at}, where the control file says it is"),
            ),
        };
        // One that recovers from an archive may find its log there.
        let recovers = ["standby.signal", "recovery.signal", "recovery.conf"]
            .iter()
            .any(|name| root.join(name).exists());
        match recovers {
            true => self.finding_of(&path, Severity::Suspect, kind, detail),
            false => self.finding(&path, kind, detail),
        }
    }

    /// `pg_xact`: two bits a transaction.
    fn transactions(&mut self, ids: &Ids, books: &Books) {
        const A_BYTE: u64 = 4;
        let folder = match self.cluster.major.as_str() {
            "9.6" => "pg_clog",
            _ => "pg_xact",
        };
        let oldest = later(ids.oldest_xid, frozen(books, |(xid, _)| xid));
        let pages = Pages {
            a_page: self.cluster.page_size as u64 * A_BYTE,
            oldest,
            next: ids.next_xid,
            enough: Some(MANY),
        };
        self.status_pages(folder, &pages);
    }

    /// `pg_multixact`: the number of a multixact's first member in four bytes, and its
    /// members in groups of four in 20 bytes.
    fn multixacts(&mut self, ids: &Ids, books: &Books) {
        let page_bytes = self.cluster.page_size as u64;
        let oldest = later(ids.oldest_multi, frozen(books, |(_, multi)| multi));
        let offsets =
            Pages { a_page: page_bytes / 4, oldest, next: ids.next_multi, enough: Some(1) };
        self.status_pages("pg_multixact/offsets", &offsets);
        let first = match oldest == ids.next_multi {
            true => Some(ids.next_member),
            false => self.first_member(oldest, page_bytes),
        };
        let Some(first) = first else { return };
        let members = Pages {
            a_page: page_bytes / 20 * 4,
            oldest: first,
            next: ids.next_member,
            enough: Some(1),
        };
        self.status_pages("pg_multixact/members", &members);
    }

    /// The number of a multixact's first member.
    fn first_member(&self, multi: u32, page_bytes: u64) -> Option<u32> {
        let at = u64::from(multi) * 4;
        let segment = at / (page_bytes * PAGES_A_SEGMENT);
        let path = self.cluster.root.join("pg_multixact/offsets").join(format!("{segment:04X}"));
        let mut bytes = [0_u8; 4];
        let file = open_regular(&path).ok()?;
        let read = read_at(&file, &mut bytes, at % (page_bytes * PAGES_A_SEGMENT)).ok()?;
        // 0 is none that was recorded.
        (read == 4).then(|| u32::from_le_bytes(bytes)).filter(|first| *first != 0)
    }

    /// Pages that hold a number from the oldest to before the next one must be there,
    /// and that of the next one if it is not the first of its page: a server reads it
    /// when it starts.
    fn status_pages(&mut self, folder: &str, pages: &Pages) {
        let root = self.cluster.root.join(folder);
        if !root.is_dir() {
            return;
        }
        let page_bytes = self.cluster.page_size as u64;
        let mut told = None;
        for page in pages.wanted() {
            let segment = page / PAGES_A_SEGMENT;
            let path = root.join(format!("{segment:04X}"));
            if told == Some(segment) {
                continue;
            }
            let offset = page % PAGES_A_SEGMENT * page_bytes;
            let length = match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => metadata.len(),
                Ok(_) => 0,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    told = Some(segment);
                    let detail = format!(
                        "the control file says that numbers {} to {} are in use, and this segment holds some of them",
                        pages.oldest, pages.next
                    );
                    self.finding(&path, Kind::Missing, detail);
                    continue;
                }
                Err(error) => {
                    told = Some(segment);
                    self.unread(&path, error.to_string());
                    continue;
                }
            };
            if length < offset + page_bytes {
                told = Some(segment);
                let detail = format!(
                    "the file ends after {length} bytes, and numbers {} to {} are in use, by the control file",
                    pages.oldest, pages.next
                );
                self.finding(&path, Kind::Truncated, detail);
            } else if pages.holds_enough(page) {
                match is_zero(&path, offset, self.cluster.page_size) {
                    Ok(true) => {
                        told = Some(segment);
                        let detail = format!(
                            "page {} of this file is all zero, and numbers of it are in use, by the control file",
                            page % PAGES_A_SEGMENT
                        );
                        self.finding_of(&path, Severity::Suspect, Kind::Zeroed, detail);
                    }
                    Ok(false) => {}
                    Err(error) => {
                        told = Some(segment);
                        self.unread(&path, error.to_string());
                    }
                }
            }
        }
    }

    /// Each file that a sound map names must be there.
    fn mapped(&mut self, folder: &Path) {
        let Ok(map) = read_small(&folder.join("pg_filenode.map"), maps::MAP_BYTES_MAX) else {
            return;
        };
        for (oid, number) in maps::mappings(&map) {
            let path = folder.join(number.to_string());
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.len() == 0 && NEVER_EMPTY.contains(&oid) => {
                    let detail = format!(
                        "the file is empty; pg_filenode.map names it for the catalogue with oid {oid}"
                    );
                    self.finding(&path, Kind::Truncated, detail);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
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
            if database.certainty != Certainty::Certain || database.is_half_dropped {
                continue;
            }
            let folder = catalogue.folder(database.tablespace, database.oid);
            if !folder.is_dir() {
                continue;
            }
            self.version(&folder);
            self.committed_rows(catalogue, database);
            let map = folder.join("pg_filenode.map");
            match fs::metadata(&map) {
                Ok(_) => self.mapped(&folder),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let detail =
                        "the relation map of a database that pg_database lists is not there";
                    self.finding(&map, Kind::Missing, detail);
                }
                Err(error) => self.unread(&map, error.to_string()),
            }
        }
    }

    /// What rows of `pg_class` know of transactions, the log of their status must say too.
    fn committed_rows(&mut self, catalogue: &Catalogue, database: &Database) {
        const FIRST_TRANSACTION: u32 = 3;
        const A_SEGMENT: u64 = PAGES_A_SEGMENT * 4;
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

    /// Each tablespace that is listed.
    fn tablespaces(&mut self, catalogue: &Catalogue, books: &Books) {
        let (mut listed, _) = catalogue.tablespaces(books.moment());
        listed.sort_unstable();
        listed.dedup();
        for tablespace in listed {
            if matches!(tablespace.oid, DEFAULT_TABLESPACE | GLOBAL_TABLESPACE) {
                continue;
            }
            let link = self.cluster.root.join("pg_tblspc").join(tablespace.oid.to_string());
            if let Err(error) = fs::symlink_metadata(&link) {
                let name = &tablespace.name;
                match (error.kind(), tablespace.certainty) {
                    (ErrorKind::NotFound, Certainty::Certain) => {
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
/// `SLRU_PAGES_PER_SEGMENT`.
const PAGES_A_SEGMENT: u64 = 32;
/// A page with fewer numbers in use may hold none that ended: they may have been those
/// that ran when the server crashed.
const MANY: u64 = 64;

/// Pages of a log of status by number; numbers begin anew behind the highest.
struct Pages {
    /// Numbers in a page.
    a_page: u64,
    oldest: u32,
    next: u32,
    /// A page with so many numbers in use is not all zero; `None` if it may be.
    enough: Option<u64>,
}

impl Pages {
    /// Numbers of the pages that must be there.
    fn wanted(&self) -> impl Iterator<Item = u64> {
        let a_page = self.a_page.max(1);
        let count = u64::from(self.next.wrapping_sub(self.oldest));
        let first = u64::from(self.oldest);
        // The page of the next number too, unless it is yet to be made.
        let end = first + count + u64::from(!u64::from(self.next).is_multiple_of(a_page));
        let all = (1_u64 << 32).div_ceil(a_page);
        let pages = if end > first { first / a_page..(end - 1) / a_page + 1 } else { 0..0 };
        pages.map(move |page| page % all)
    }

    /// True if so many numbers of a page are in use that it is not all zero.
    fn holds_enough(&self, page: u64) -> bool {
        let Some(enough) = self.enough else { return false };
        let begin = page * self.a_page;
        let used = self.next.wrapping_sub(self.oldest);
        let is_used = |number: u64| {
            u32::try_from(number).is_ok_and(|number| number.wrapping_sub(self.oldest) < used)
        };
        // What is in use of a page is one stretch, but where numbers begin anew.
        let step = enough.max(1);
        let first = (begin..begin + self.a_page).find(|number| is_used(*number));
        first.is_some_and(|first| {
            let last = first + step - 1;
            last < begin + self.a_page && is_used(last)
        })
    }
}

/// The later of two numbers that begin anew behind the highest.
fn later(a: u32, b: Option<u32>) -> u32 {
    match b {
        Some(b) if b.wrapping_sub(a).cast_signed() > 0 => b,
        _ => a,
    }
}

/// The oldest number that any database still needs, by `pg_database`; `None` if that is
/// not known for sure.
fn frozen(books: &Books, of: impl Fn((u32, u32)) -> u32) -> Option<u32> {
    let databases = books.databases();
    if !databases.gaps.is_empty() {
        return None;
    }
    let numbers = databases.listed.iter().map(|database| of(database.frozen));
    numbers.reduce(|a, b| if b.wrapping_sub(a).cast_signed() < 0 { b } else { a })
}

fn is_zero(path: &Path, offset: u64, bytes: usize) -> std::io::Result<bool> {
    let mut page = vec![0_u8; bytes];
    let read = read_at(&open_regular(path)?, &mut page, offset)?;
    Ok(read == bytes && page.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(oldest: u32, next: u32) -> Vec<u64> {
        Pages { a_page: 100, oldest, next, enough: None }.wanted().collect()
    }

    #[test]
    fn pages_from_the_oldest_to_the_next_number_must_be_there() {
        assert_eq!(wanted(3, 730), [0, 1, 2, 3, 4, 5, 6, 7]);
        // The next number is the first of its page, which is yet to be made.
        assert_eq!(wanted(250, 400), [2, 3]);
        assert_eq!(wanted(250, 401), [2, 3, 4]);
        // Nothing in use: the page of the next number is read all the same.
        assert_eq!(wanted(1, 1), [0]);
        assert_eq!(wanted(0, 0), [] as [u64; 0]);
    }

    #[test]
    fn numbers_begin_anew_behind_the_highest() {
        let last = u64::from(u32::MAX) / 100;
        assert_eq!(wanted(u32::MAX - 10, 50), [last, 0]);
        assert_eq!(later(u32::MAX - 10, Some(5)), 5);
        assert_eq!(later(5, Some(u32::MAX - 10)), 5);
    }

    #[test]
    fn page_with_few_numbers_may_hold_none_that_ended() {
        let pages = Pages { a_page: 1000, oldest: 3, next: 2010, enough: Some(64) };
        assert!(pages.holds_enough(0) && pages.holds_enough(1));
        assert!(!pages.holds_enough(2) && !pages.holds_enough(3));
        let pages = Pages { enough: Some(1), ..pages };
        assert!(pages.holds_enough(2) && !pages.holds_enough(3));
    }
}
