//! The way through a cluster: folder by folder, relation by relation.
//!
//! Only one folder's names are in memory at a time, packed small: clusters of
//! a million relations are real.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::files::evidence::{Evidence, ForkPlace};
use crate::files::incremental::{self, HeaderError};
use crate::files::log_end::is_still_at_rest;
use crate::files::names::{Fork, RelationFile, is_known_without_pages};
use crate::files::required::{self, What};
use crate::files::settle::{Hole, Waiting};
use crate::files::wal::block::Locator;
use crate::files::wal::replay::{self, Replay, ReplayOfFork};
use crate::files::{Cluster, catalogue, structure};
use crate::page::{PostgresPages, Recovery};
use pagewarden_core::database::{PageFile, Relation, Segment, Step};
use pagewarden_core::page::PageFormat;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Unread};

mod folders;
mod map;

/// Every file of the cluster.
pub(super) fn whole(cluster: &Arc<Cluster>) -> Walk {
    Walk::new(cluster, cluster.root.clone(), |_| true, true)
}

/// The files below one folder of the cluster.
pub(super) fn part(cluster: &Arc<Cluster>, below: &Path) -> Walk {
    let base = as_listed(cluster, below);
    let (place, listed) = (absolute(below), base.clone());
    let wanted =
        |folder: &Path| folder.starts_with(&listed) || absolute(folder).starts_with(&place);
    Walk::new(cluster, base, wanted, false)
}

/// One relation file of the cluster.
pub(super) fn one_file(cluster: &Arc<Cluster>, path: &Path) -> Walk {
    let folder = absolute(path).parent().map(Path::to_owned).unwrap_or_default();
    let base = as_listed(cluster, &folder);
    let mut walk = Walk::new(cluster, base, |found| absolute(found) == folder, false);
    walk.only = path.file_name().and_then(|name| RelationFile::parse(name.to_str()?));
    walk
}

/// A folder of the cluster by the name under which the walk comes upon it,
/// however it was named: through a link, or from inside as `.`.
fn as_listed(cluster: &Cluster, folder: &Path) -> PathBuf {
    match absolute(folder).strip_prefix(absolute(&cluster.root)) {
        Ok(inside) => cluster.root.join(inside),
        Err(_) => folder.to_owned(),
    }
}

fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A folder that holds relations.
#[derive(Debug, Clone)]
struct Folder {
    path: PathBuf,
    /// The tablespace's oid as `pg_filenode_relation` wants it.
    tablespace: u32,
    /// The database's oid, from the folder's name; `None` for `global`.
    database: Option<u32>,
}

/// Which pages a file of an incremental backup holds, see [`PageFile::selection`].
type Selection = Option<Arc<[u32]>>;

/// What `pg_filenode_relation` takes for a database's default tablespace.
const DEFAULT_TABLESPACE: u32 = 0;

/// Long enough for a server to finish what it is doing to a small file.
const A_MOMENT: Duration = Duration::from_millis(50);

/// A relation's file as listed.
type Listed = (RelationFile, u64);

/// See the module.
pub(super) struct Walk {
    cluster: Arc<Cluster>,
    /// What names in the report are relative to.
    base: PathBuf,
    /// Tablespaces that lie beside the data directory, with the link that leads to them
    /// once they are restored.
    beside: Vec<(PathBuf, PathBuf)>,
    folders: VecDeque<Folder>,
    current: Option<(Folder, std::iter::Peekable<std::vec::IntoIter<Listed>>)>,
    /// File numbers of unlogged relations in the current folder, sorted.
    unlogged: Vec<u32>,
    ready: VecDeque<Step>,
    seen_folders: HashSet<(u64, u64)>,
    /// Files of which it was said that they are missing or empty.
    told: HashSet<PathBuf>,
    only: Option<RelationFile>,
    /// How many notes there were.
    notes: u32,
    /// It was said that a server has been started.
    said_woken: bool,
    /// What waits for a checkpoint.
    waiting: Waiting,
    /// What files say of one another.
    evidence: Evidence,
    at_barrier: bool,
    /// What `--structure` finds, once it has begun.
    structure: Option<Box<dyn Iterator<Item = Step> + Send>>,
}

/// Enough to show what lies about: a user who fills a folder with foreign files
/// must not fill memory and the report with them.
const NOTES_MAX: u32 = 100;

impl Walk {
    fn new(
        cluster: &Arc<Cluster>,
        base: PathBuf,
        wanted: impl Fn(&Path) -> bool,
        with_logs: bool,
    ) -> Self {
        let mut walk = Self {
            cluster: Arc::clone(cluster),
            base,
            beside: Vec::new(),
            folders: VecDeque::new(),
            current: None,
            unlogged: Vec::new(),
            ready: VecDeque::new(),
            seen_folders: HashSet::new(),
            told: HashSet::new(),
            only: None,
            notes: 0,
            said_woken: false,
            waiting: Waiting::default(),
            evidence: Evidence::open(cluster, with_logs),
            at_barrier: false,
            structure: None,
        };
        if walk.is_switched_off() {
            return walk;
        }
        walk.check_control();
        if cluster.structure && walk.evidence.structure().is_none() {
            walk.ready.push_back(structure::not_done());
        }
        walk.find_folders();
        walk.folders.retain(|folder| wanted(&folder.path));
        if with_logs {
            walk.check_transaction_logs();
            walk.check_what_a_server_needs();
            walk.check_databases();
        }
        walk
    }

    /// True if files are asked what they say of one another.
    pub(super) fn asks_files(&self) -> bool {
        self.evidence.is_asked()
    }

    /// True if nothing that was asked for holds relations.
    pub(super) fn has_no_folders(&self) -> bool {
        self.folders.is_empty()
    }

    /// The name that a path has in the report. Behind a tablespace's link the
    /// places count, not the words.
    fn relative(&self, path: &Path) -> String {
        let by_place = || {
            let folder = fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?);
            let shown = folder.strip_prefix(absolute(&self.base)).ok()?;
            Some(shown.to_owned())
        };
        let restored = self
            .beside
            .iter()
            .find_map(|(place, link)| Some(link.join(path.strip_prefix(place).ok()?)));
        let path = restored.as_deref().unwrap_or(path);
        let shown = match path.strip_prefix(&self.base) {
            Ok(shown) => shown.to_owned(),
            Err(_) => by_place().unwrap_or_else(|| path.to_owned()),
        };
        shown.to_string_lossy().into_owned()
    }

    /// True for what lies in the part of the cluster that was named: nothing
    /// else is judged.
    fn is_named(&self, path: &Path) -> bool {
        let is_beside = self.beside.iter().any(|(place, _)| path.starts_with(place));
        is_beside
            || path.starts_with(&self.base)
            || absolute(path).starts_with(absolute(&self.base))
    }

    fn note(&mut self, path: &Path, text: impl Into<String>) {
        if !self.is_named(path) {
            return;
        }
        self.notes = self.notes.saturating_add(1);
        let (file, text) = match self.notes {
            ..NOTES_MAX => (self.relative(path), text.into()),
            NOTES_MAX => (String::new(), "more notes like these were left out".to_owned()),
            _ => return,
        };
        self.ready.push_back(Step::Note(Note { file, text }));
    }

    fn unread(&mut self, path: &Path, length: u64, error: &impl ToString) {
        if !self.is_named(path) {
            return;
        }
        self.ready.push_back(Step::Unread(Unread::stretch(
            self.relative(path),
            ByteOffset(0),
            length,
            error.to_string(),
        )));
    }

    fn finding(&mut self, path: &Path, severity: Severity, kind: Kind, detail: String, hint: &str) {
        if !self.is_named(path) {
            return;
        }
        let finding = Finding::of_file(&self.relative(path), severity, kind, detail);
        self.ready.push_back(Step::Finding(finding.with_hint(hint)));
    }

    /// True for the old cluster after `pg_upgrade --link` or `--swap`, which renames the
    /// control file so that no server starts on it: its files are those of the new one.
    fn is_switched_off(&mut self) -> bool {
        let global = self.cluster.root.join("global");
        let is_gone = self.cluster.control.as_ref().is_err_and(|fault| fault.kind == Kind::Missing);
        let is_old = is_gone && global.join("pg_control.old").is_file();
        if is_old {
            let error = "pg_upgrade has switched this cluster off (--link or --swap renames \
                         the control file to pg_control.old): its files belong to the new \
                         cluster, check that one; nothing of this one was judged";
            self.unread(&global.join("pg_control"), 0, &error);
        }
        is_old
    }

    fn check_control(&mut self) {
        let path = self.cluster.root.join("global").join("pg_control");
        match self.cluster.control.clone() {
            Err(_) if self.cluster.control_error.is_some() && self.is_named(&path) => {
                let error = self.cluster.control_error.clone().unwrap_or_default();
                self.unread(&path, 0, &error);
                self.note(&path, "what only the control file tells was not tested: the version, the \
                    end of the log, and what files say of one another; block size and checksum \
                    setting were taken from the pages themselves");
            }
            Err(fault) if !self.is_named(&path) => self.ready.push_back(Step::Note(Note {
                file: String::new(),
                text: format!(
                    "the control file of this cluster cannot be believed: {}; block size and checksum setting were taken from the pages themselves",
                    fault.detail
                ),
            })),
            Err(fault) => self.finding(
                &path,
                Severity::Damage,
                fault.kind,
                format!("the control file cannot be believed: {}", fault.detail),
                "restore pg_control from a backup of the same cluster; block size and checksum setting were taken from the pages themselves",
            ),
            Ok(control) => {
                if control.guessed {
                    self.note(&path, format!(
                        "control file version {} is unknown; its fields were found by their values",
                        control.version
                    ));
                }
                if self.cluster.checksums == crate::page::Checksums::Changing {
                    self.note(&path, "checksums are being switched on or off: pages without a matching sum count as unprotected");
                }
            }
        }
    }

    /// Transaction status and multixact logs hold no page headers and no
    /// checksums; what can be said is whether their length is possible.
    fn check_transaction_logs(&mut self) {
        const PAGES_PER_SEGMENT: u64 = 32;
        let page_size = self.cluster.page_size as u64;
        for log in
            ["pg_xact", "pg_clog", "pg_commit_ts", "pg_multixact/offsets", "pg_multixact/members"]
        {
            let folder = self.cluster.root.join(log);
            if !folder.is_dir() {
                continue;
            }
            for (name, path) in self.list_sorted(&folder) {
                let is_segment = name.len() >= 4 && name.bytes().all(|b| b.is_ascii_hexdigit());
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                if !is_segment || !metadata.is_file() {
                    continue;
                }
                let length = metadata.len();
                if !length.is_multiple_of(page_size) || length > PAGES_PER_SEGMENT * page_size {
                    self.finding(
                        &path,
                        self.cluster.failure(),
                        Kind::Truncated,
                        format!("{length} bytes, which is no whole number of pages up to {PAGES_PER_SEGMENT}"),
                        "restore this file from a backup of the same moment",
                    );
                }
            }
        }
    }

    /// What no page speaks of and no server opens the cluster without.
    fn check_what_a_server_needs(&mut self) {
        if !self.cluster.witness {
            return;
        }
        let cluster = Arc::clone(&self.cluster);
        for lack in required::lacks(&cluster, self.evidence.books(), cluster.wal.as_deref()) {
            match lack.what {
                What::Finding { severity, kind, detail, hint } => {
                    self.finding(&lack.path, severity, kind, detail, hint);
                    self.told.insert(lack.path);
                }
                What::Unread(error) => self.unread(&lack.path, 0, &error),
                What::Note(text) => self.note(&lack.path, text),
            }
        }
    }

    /// Databases that the catalogue lists must have a folder.
    fn check_databases(&mut self) {
        for (path, mut finding) in self.evidence.missing_folders() {
            finding.place.file = self.relative(&path);
            let hint = "restore the folder from a backup of the same cluster";
            self.ready.push_back(Step::Finding(finding.with_hint(hint)));
        }
    }

    /// False once a server has been started since the catalogues were read: what files
    /// say of one another proves nothing then.
    fn is_still_at_rest(&mut self) -> bool {
        let Ok(control) = &self.cluster.control else { return true };
        let is_at_rest = !self.cluster.circumstances.is_settled()
            || is_still_at_rest(&self.cluster.root, control.checkpoint_lsn);
        if !is_at_rest && !std::mem::replace(&mut self.said_woken, true) {
            let text = "a server was started during the check: what files say of one another \
                        was not asked any more; check again";
            self.ready.push_back(Step::Note(Note { file: String::new(), text: text.to_owned() }));
        }
        is_at_rest
    }

    /// Relations that the catalogue lists must have a file.
    fn check_required(&mut self, folder: &Folder, files: &[Listed]) {
        if !self.is_still_at_rest() {
            return;
        }
        let found = self.evidence.of_folder(folder.tablespace, folder.database, files);
        if let Some(gap) = found.gap {
            self.unread(&folder.path, 0, &gap);
        }
        for (file, mut finding) in found.missing {
            let path = folder.path.join(file.name());
            if self.told.contains(&path) {
                continue;
            }
            finding.place.file = self.relative(&path);
            let place =
                ForkPlace { tablespace: folder.tablespace, database: folder.database, file };
            let advice = self.evidence.identify(place).and_then(|identity| identity.advice);
            let hint = advice.as_deref().unwrap_or("restore it from a backup of the same cluster");
            self.ready.push_back(Step::Finding(finding.with_hint(hint)));
        }
        if let Some(note) = found.note {
            self.note(&folder.path, note);
        }
    }

    /// Opens the next folder.
    fn open_folder(&mut self, folder: Folder) {
        let entries = match fs::read_dir(&folder.path) {
            Ok(entries) => entries,
            Err(error) => {
                if !self.may_have_vanished(&error) {
                    self.unread(&folder.path, 0, &error);
                }
                return;
            }
        };
        let mut files = self.list(&folder, entries);
        if self.only.is_none() {
            self.check_map(&folder, !files.is_empty());
        }
        files.sort_unstable();
        self.unlogged = files
            .iter()
            .filter(|(file, _)| file.fork == Fork::Init)
            .map(|(file, _)| file.number)
            .collect();
        self.unlogged.dedup();
        if self.only.is_none() {
            self.check_required(&folder, &files);
        }
        self.current = Some((folder, files.into_iter().peekable()));
    }

    /// The relations' files in a folder; notes what is none.
    fn list(&mut self, folder: &Folder, entries: fs::ReadDir) -> Vec<Listed> {
        const FOREIGN_MAX: usize = 20;
        let mut files = Vec::new();
        let mut foreign = Vec::new();
        let mut foreign_count = 0_usize;
        let mut set_aside = |path: PathBuf, text: &'static str| {
            foreign_count = foreign_count.saturating_add(1);
            if foreign.len() < FOREIGN_MAX {
                foreign.push((path, text));
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.unread(&folder.path, 0, &error);
                    break;
                }
            };
            let path = entry.path();
            let name = entry.file_name();
            let Some(parsed) = name.to_str().and_then(RelationFile::parse) else {
                let known = name.to_str().is_some_and(is_known_without_pages);
                if !known {
                    set_aside(path, "not a relation's name, left alone");
                }
                continue;
            };
            if self.only.is_some_and(|only| !same_relation(only, parsed))
                && parsed.fork != Fork::Init
            {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => files.push((parsed, metadata.len())),
                Ok(metadata) if metadata.is_symlink() => {
                    self.unread(&path, 0, &"a symbolic link, not followed");
                    // Not missing: a server follows it.
                    self.told.insert(path);
                }
                Ok(_) => set_aside(path, "named like a relation but no regular file, left alone"),
                Err(error) if self.may_have_vanished(&error) => {}
                Err(error) => self.unread(&path, 0, &error),
            }
        }
        let more = foreign_count.saturating_sub(foreign.len());
        for (path, text) in foreign {
            self.note(&path, text);
        }
        if more > 0 {
            self.note(&folder.path, format!("{more} more entries that are no relations"));
        }
        files
    }

    /// True if a running server has removed this, not only what it leads to.
    fn has_vanished(&self, path: &Path, error: &std::io::Error) -> bool {
        self.may_have_vanished(error) && fs::symlink_metadata(path).is_err()
    }

    fn may_have_vanished(&self, error: &std::io::Error) -> bool {
        error.kind() == std::io::ErrorKind::NotFound && self.cluster.circumstances.may_change()
    }

    /// Takes the files of the next relation fork off the list and turns them
    /// into steps.
    fn next_relation(&mut self) -> bool {
        let Some((folder, files)) = &mut self.current else { return false };
        let Some(first) = files.next() else {
            self.current = None;
            return false;
        };
        let mut group = vec![first];
        while let Some(next) = files.next_if(|(next, _)| same_relation(first.0, *next)) {
            group.push(next);
        }
        let folder = folder.clone();
        if self.only.is_some_and(|only| !same_relation(only, first.0)) {
            return true;
        }
        for listed in &group {
            self.check_length(&folder, *listed);
        }
        self.check_segments(&folder, &group);
        self.push_files(&folder, &group);
        true
    }

    fn push_files(&mut self, folder: &Folder, group: &[Listed]) {
        let Some((first, _)) = group.first() else { return };
        let page_size = self.cluster.page_size as u64;
        let segment_pages = self.cluster.segment_pages;
        let first_page =
            |file: &RelationFile| PageNo(u64::from(file.segment).saturating_mul(segment_pages));
        let relation = Arc::new(Relation {
            page_size: self.cluster.page_size,
            segments: group
                .iter()
                .filter(|(file, _)| !file.is_incremental)
                .map(|(file, length)| Segment {
                    path: folder.path.join(file.name()),
                    first_page: first_page(file),
                    pages: length / page_size,
                })
                .collect(),
        });
        let place =
            ForkPlace { tablespace: folder.tablespace, database: folder.database, file: *first };
        let failure = self.failure_at(place);
        let format = self.format_for(folder, *first, failure);
        let identity = self.evidence.identify(place);
        let hint: Option<Arc<str>> = match &identity {
            Some(identity) => identity.advice.clone(),
            None => Some(hint_for(folder.tablespace, folder.database, first.number).into()),
        };
        for (file, length) in group {
            if self.only.is_some_and(|only| only != *file) {
                continue;
            }
            let path = folder.path.join(file.name());
            let (first_offset, selection) = match self.selection(*file, &path, *length) {
                Ok(selection) => selection,
                Err(None) => continue,
                Err(Some(step)) => {
                    self.ready.push_back(*step);
                    continue;
                }
            };
            let name = self.relative(&path);
            let mut page_file = PageFile {
                first_offset,
                first_page: first_page(file),
                // A server extends a file by whole pages, but a crash or a
                // full disk can leave part of one behind.
                partial_page: failure.min(if self.cluster.circumstances.may_change() {
                    Severity::Suspect
                } else {
                    Severity::Damage
                }),
                selection,
                relation: Some(Arc::clone(&relation)),
                hint: hint.clone(),
                database: identity.as_ref().and_then(|identity| identity.database.clone()),
                object: identity.as_ref().map(|identity| Arc::clone(&identity.object)),
                ..PageFile::of(name, path, *length, Arc::clone(&format))
            };
            page_file.witnesses = self.evidence.witnesses(
                ForkPlace { file: *file, ..place },
                &page_file,
                identity.as_ref(),
            );
            self.ready.push_back(Step::File(page_file));
        }
    }

    /// Where the pages of a file begin, and for a file of an incremental backup which pages it
    /// holds. An error says why the file is not read; it is empty for a file without pages.
    fn selection(
        &self,
        file: RelationFile,
        path: &Path,
        length: u64,
    ) -> Result<(ByteOffset, Selection), Option<Box<Step>>> {
        if !file.is_incremental {
            return Ok((ByteOffset(0), None));
        }
        let name = self.relative(path);
        let wrong = |kind, detail: String| {
            let detail = format!("no file of changed blocks: {detail}");
            Some(Box::new(Step::Finding(Finding::of_file(&name, Severity::Damage, kind, detail))))
        };
        let page_size = self.cluster.page_size;
        let header = pagewarden_core::source::file::open_regular(path)
            .map_err(HeaderError::Io)
            .and_then(|file| {
                let mut source = std::io::BufReader::new(file);
                incremental::Header::read(&mut source, page_size, self.cluster.segment_pages)
            });
        match header {
            Ok(header) if header.file_bytes(page_size) != length => {
                let expected = header.file_bytes(page_size);
                let kind = if length < expected { Kind::Truncated } else { Kind::Header };
                Err(wrong(kind, format!("{length} bytes, by its header {expected}")))
            }
            Ok(header) if header.numbers.is_empty() => Err(None),
            Ok(header) => Ok((ByteOffset(header.header_bytes), Some(header.numbers.into()))),
            Err(HeaderError::Wrong(kind, detail)) => Err(wrong(kind, detail)),
            Err(HeaderError::Io(error)) => Err(Some(Box::new(Step::Unread(Unread::stretch(
                name,
                ByteOffset(0),
                length,
                error.to_string(),
            ))))),
        }
    }

    fn is_unlogged(&self, file: RelationFile) -> bool {
        file.fork != Fork::Init && self.unlogged.binary_search(&file.number).is_ok()
    }

    fn failure_of(&self, file: RelationFile) -> Severity {
        let failure = self.cluster.failure();
        let discarded = file.session.is_some()
            // Recovery resets unlogged relations to their init fork.
            || (self.is_unlogged(file) && failure != Severity::Damage);
        if discarded { Severity::Notice } else { failure }
    }

    /// The same, where a crash may have left the file behind half written: then
    /// no catalogue lists it.
    fn failure_at(&mut self, place: ForkPlace) -> Severity {
        let failure = self.failure_of(place.file);
        if failure == Severity::Damage && self.evidence.is_orphan(place) {
            return Severity::Suspect;
        }
        failure
    }

    fn format_for(
        &self,
        folder: &Folder,
        file: RelationFile,
        failure: Severity,
    ) -> Arc<dyn PageFormat> {
        let own_lsns =
            file.fork == Fork::FreeSpace || file.session.is_some() || self.is_unlogged(file);
        let replay = self.cluster.replay.as_ref();
        let replay = replay.filter(|_| failure == Severity::Suspect);
        Arc::new(PostgresPages {
            page_size: self.cluster.page_size,
            max_align: self.cluster.max_align,
            checksums: self.cluster.checksums,
            failure,
            recovery: replay.and_then(|replay| recovery_of(replay, folder, file)),
            log_end: if own_lsns { None } else { self.cluster.log_end.clone() },
            is_logged: !own_lsns && file.fork != Fork::Visibility,
        })
    }

    /// A file that is longer than a segment: a server reads none of the rest.
    fn check_length(&mut self, folder: &Folder, (file, length): Listed) {
        let full = self.cluster.segment_pages.saturating_mul(self.cluster.page_size as u64);
        if length > full && !file.is_incremental {
            let detail = format!(
                "the file is longer than a segment: {length} bytes, and a server reads the first {full}; pages behind them are those of the next segment by their numbers"
            );
            let hint = "see which program wrote to it; the pages of the relation itself are judged as always";
            let severity = self.cluster.circumstances.cross_file();
            self.finding(&folder.path.join(file.name()), severity, Kind::Structure, detail, hint);
        }
    }

    /// Looks for holes in a relation: a segment that is not there, or that is
    /// shorter than full although another with content follows.
    fn check_segments(&mut self, folder: &Folder, group: &[Listed]) {
        let Some((first, _)) = group.first() else { return };
        // Of an incremental backup, the manifest knows what must be there.
        let is_incremental = group.iter().any(|(file, _)| file.is_incremental);
        let is_elsewhere = is_incremental || self.cluster.part.is_some();
        if first.session.is_some() || self.is_unlogged(*first) || is_elsewhere {
            return;
        }
        if first.segment > 0 {
            let due = RelationFile { segment: 0, ..*first };
            self.check_pair(folder, None, (*first, 1), due);
        }
        for pair in group.windows(2) {
            if let [earlier, later] = pair {
                let due =
                    RelationFile { segment: earlier.0.segment.saturating_add(1), ..earlier.0 };
                self.check_pair(folder, Some(*earlier), *later, due);
            }
        }
    }

    /// Looks at two segments that follow one another on the list; `due` is
    /// the one that ought to follow `earlier`.
    fn check_pair(
        &mut self,
        folder: &Folder,
        earlier: Option<Listed>,
        later: Listed,
        due: RelationFile,
    ) {
        let page_size = self.cluster.page_size as u64;
        let full = self.cluster.segment_pages.saturating_mul(page_size);
        let path_of = |file: RelationFile| folder.path.join(file.name());
        let (file, kind, detail, end) = if later.0 == due {
            let Some((short, length)) = earlier.filter(|(_, length)| *length < full) else {
                return;
            };
            if later.1 == 0 {
                return;
            }
            let detail = format!(
                "the file ends after {length} of {full} bytes although segment {} has content",
                later.0.segment
            );
            (short, Kind::Truncated, detail, Some(length))
        } else {
            let detail =
                format!("segment {} of this relation is here, this one is not", later.0.segment);
            (due, Kind::Missing, detail, None)
        };
        let mut finding = Finding::of_file(
            &self.relative(&path_of(file)),
            self.cluster.circumstances.cross_file(),
            kind,
            detail,
        );
        // Dropping a relation empties or removes its first segment before the
        // others: what a crash in between leaves looks like this, and no
        // catalogue lists it any more.
        let may_be_a_remnant = earlier.is_none_or(|(_, length)| length == 0);
        if may_be_a_remnant {
            finding.severity = Severity::Suspect;
        }
        if let Some(length) = end {
            let pages_before = u64::from(file.segment).saturating_mul(self.cluster.segment_pages);
            finding.place.page = Some(PageNo(pages_before.saturating_add(length / page_size)));
            finding.place.offset = Some(ByteOffset(length));
        }
        let place = ForkPlace { tablespace: folder.tablespace, database: folder.database, file };
        let hint = match self.evidence.identify(place) {
            Some(identity) => {
                finding.database = identity.database.as_deref().map(str::to_owned);
                finding.object = Some(identity.object.as_ref().to_owned());
                "restore it from a backup of the same cluster".to_owned()
            }
            None => hint_for(folder.tablespace, folder.database, file.number),
        };
        let hole = Hole {
            finding: finding.with_hint(hint),
            segment: path_of(file),
            behind: path_of(later.0),
            full,
            may_be_a_remnant,
        };
        if !self.cluster.circumstances.may_change() {
            self.ready.push_back(Step::Finding(hole.finding));
            return;
        }
        // A running server may just be extending or dropping the relation.
        std::thread::sleep(A_MOMENT);
        match self.cluster.settle {
            _ if hole.is_closed() => {}
            Some(_) => self.waiting.add(hole),
            None => self.ready.push_back(Step::Finding(hole.finding)),
        }
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if self.current.is_some() {
                self.next_relation();
            } else if let Some(folder) = self.folders.pop_front() {
                self.open_folder(folder);
            } else if self.evidence.is_asked() {
                // What pages say of others is known when all were seen.
                if !std::mem::replace(&mut self.at_barrier, true) {
                    return Some(Step::Barrier);
                }
                let subject = self.evidence.structure().filter(|_| self.cluster.structure);
                let concluded = self.evidence.conclude();
                if self.is_still_at_rest() {
                    self.ready.extend(concluded);
                    self.structure =
                        subject.map(|subject| Box::new(structure::steps(subject)) as _);
                }
            } else if let Some(steps) = &mut self.structure {
                match steps.next() {
                    // A server may have come to life.
                    Some(step @ Step::Passed(_)) => return Some(step),
                    Some(step) if self.is_still_at_rest() => return Some(step),
                    Some(_) | None => self.structure = None,
                }
            } else {
                let patience = self.cluster.settle?;
                self.ready.extend(self.waiting.next(&self.cluster, patience));
                return self.ready.pop_front();
            }
        }
    }
}

/// What recovery does to pages of a fork. `None` for maps, which are changed
/// without the log and rebuilt by the server.
fn recovery_of(
    replay: &Arc<Replay>,
    folder: &Folder,
    file: RelationFile,
) -> Option<Arc<dyn Recovery>> {
    let fork = match file.fork {
        Fork::Main => replay::MAIN,
        Fork::Init => replay::INIT,
        Fork::FreeSpace | Fork::Visibility => return None,
    };
    let locator = Locator {
        tablespace: match folder.tablespace {
            DEFAULT_TABLESPACE => catalogue::DEFAULT_TABLESPACE,
            tablespace => tablespace,
        },
        database: folder.database.unwrap_or(0),
        number: file.number,
    };
    Some(Arc::new(ReplayOfFork::new(Arc::clone(replay), locator, fork)))
}

fn same_relation(a: RelationFile, b: RelationFile) -> bool {
    (a.number, a.session, a.fork) == (b.number, b.session, b.fork)
}

/// How to name a relation.
pub(super) fn hint_for(tablespace: u32, database: Option<u32>, number: u32) -> String {
    let ask = format!("SELECT pg_filenode_relation({tablespace}, {number})");
    match database {
        Some(database) => {
            format!("to name the relation, in the database with oid {database}: {ask}")
        }
        None => format!("to name the relation, in any database: {ask}"),
    }
}
