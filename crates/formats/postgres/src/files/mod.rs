//! PostgreSQL: data directories, parts of them, and single relation files.
//!
//! | path | what is read |
//! | --- | --- |
//! | a data directory | all of it: `global`, `base/*`, tablespaces, maps, transaction logs |
//! | a folder inside one | the files below that folder |
//! | a relation's file inside one | that file, by the control file of its cluster |
//! | a relation's file elsewhere | that file, by what its own pages show |
//! | an archive, a folder of archives, a stream | see `backup` |
//!
//! Sources: `src/bin/pg_checksums/pg_checksums.c` for what is read,
//! `src/include/storage/relfilenode.h` for the names.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::FORMAT;
use crate::page::{Checksums, LogEnd};
use pagewarden_core::database::{Description, Epoch, Evidence, OpenOptions, Probe, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{Protection, Severity, Unread};

pub(crate) mod archived_log;
pub mod backup;
pub mod catalogue;
pub mod control;
mod evidence;
pub mod frozen;
pub mod incremental;
mod link_maker;
mod log_end;
mod loose;
pub mod maps;
pub mod names;
mod required;
mod settle;
mod small_files;
mod state;
mod structure;
pub mod wal;
mod walk;
pub mod witness;

use backup::label;
pub(super) use link_maker::link_maker;

use control::{CONTROL_BYTES, Control, ControlFault};
use names::RelationFile;
use state::Circumstances;
use wal::replay::Replay;

/// `RELSEG_SIZE` times the block size in every build that is distributed.
const SEGMENT_BYTES: u64 = 1 << 30;
/// Files that only folders of a cluster, or of a backup of one, have.
pub(super) const MARKS: &[&str] = &[
    "PG_VERSION",
    "pg_control",
    "pg_filenode.map",
    "backup_manifest",
    "backup_label",
    // Before PostgreSQL 13 archives have no manifest beside them.
    "base.tar",
    "base.tar.gz",
    "base.tar.lz4",
    "base.tar.zst",
];

pub(super) fn probe(path: &Path, metadata: &Metadata) -> Probe {
    if metadata.is_dir() {
        if is_root(path) || cluster_above(path).is_some() {
            return Probe::Yes;
        }
        return backup::probe(path, true);
    }
    let named = relation_file(path).is_some();
    if named && cluster_above(path).is_some() {
        return Probe::Yes;
    }
    // A copy that lies alone: the name or the first pages must speak for it.
    match loose::looks_like_pages(path) {
        true if named => Probe::Yes,
        true => Probe::Maybe,
        false => backup::probe(path, false),
    }
}

pub(super) fn open(
    path: &Path,
    metadata: &Metadata,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let root = if metadata.is_dir() && is_root(path) {
        Some(path.to_owned())
    } else if metadata.is_dir() || relation_file(path).is_some() {
        cluster_above(path)
    } else {
        None
    };
    match root {
        Some(root) => open_cluster(path, metadata, &root, options, Manifest::Own),
        None if is_backup(path, metadata) => backup::open(path, metadata.is_dir(), options),
        None if metadata.is_file() => loose::open(path, metadata),
        None => Err(Error::unrecognised(
            path,
            "not a PostgreSQL data directory: it has no PG_VERSION and no global folder",
            "name the data directory itself (SHOW data_directory tells it)",
        )),
    }
}

/// An archive of something else is one too: what it lacks is then said, and its bytes are not taken for pages.
fn is_backup(path: &Path, metadata: &Metadata) -> bool {
    match backup::probe(path, metadata.is_dir()) {
        Probe::Yes => true,
        Probe::Maybe => !loose::looks_like_pages(path),
        Probe::No => false,
    }
}

/// What is known of a cluster before its files are listed.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The data directory.
    pub(crate) root: PathBuf,
    /// The control file, if it can be believed.
    pub(crate) control: Result<Control, ControlFault>,
    /// Why the folder is a part of a backup only, if it is.
    pub(crate) part: Option<String>,
    /// Why the control file could not be read, if that was so.
    pub(crate) control_error: Option<String>,
    /// What PG_VERSION says: `15`, `9.6`.
    pub(crate) major: String,
    /// Bytes in a page.
    pub(crate) page_size: usize,
    /// How the server aligns structures.
    pub(crate) max_align: u16,
    /// Pages in a full segment.
    pub(crate) segment_pages: u64,
    /// Whether pages carry checksums.
    pub(crate) checksums: Checksums,
    /// Running, crashed, a backup, or at rest.
    pub(crate) circumstances: Circumstances,
    /// Where the log ends, if that is certain.
    pub(crate) log_end: Option<Arc<dyn LogEnd>>,
    /// The log that recovery has yet to replay, if it has.
    pub(crate) replay: Option<Arc<Replay>>,
    /// A folder with more of the log, if one was named.
    pub(crate) wal: Option<PathBuf>,
    /// Copied file by file out of a running server: a repository's code judges its log and
    /// where its tablespaces are.
    pub(crate) is_of_set: bool,
    /// The log that a backup needs is not asked for.
    pub(crate) no_log: bool,
    /// Whether files are asked what they say of others.
    pub(crate) witness: bool,
    /// Whether tables are compared with their indexes.
    pub(crate) structure: bool,
    /// How long to wait for a checkpoint before evidence from other files of a
    /// running server counts; `None` not to wait.
    pub(crate) settle: Option<Duration>,
}

/// Opens a data directory that was copied file by file from a running server. Its manifest is not asked:
/// if there is one, it is that of another backup, from which that server was made.
pub(super) fn open_copy(
    path: &Path,
    metadata: &Metadata,
    options: &OpenOptions,
) -> Result<Target, Error> {
    open_cluster(path, metadata, path, options, Manifest::OfAnother)
}

/// Whose manifest lies in a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manifest {
    Own,
    OfAnother,
}

fn open_cluster(
    path: &Path,
    metadata: &Metadata,
    root: &Path,
    options: &OpenOptions,
    manifest: Manifest,
) -> Result<Target, Error> {
    // A folder that cannot be listed is no verdict at all.
    fs::read_dir(root).map_err(|source| Error::io("list", root, source))?;
    let major = read_small(&root.join("PG_VERSION"), 64)
        .map(|bytes| sanitised(String::from_utf8_lossy(&bytes).trim()));
    let (control, control_error) = match read_control_settled(root) {
        Ok(control) => (control, None),
        // The pages can be judged all the same.
        Err(error) => {
            let detail = format!("it could not be read: {error}");
            let fault = ControlFault { kind: pagewarden_core::verdict::Kind::Header, detail };
            (Err(fault), Some(error.to_string()))
        }
    };
    // A version file that is lost or wrong must not hide what the catalogues say.
    let by_control = control.as_ref().ok().and_then(Control::major);
    let major = match (by_control, major) {
        (Some(major), _) => major.to_owned(),
        (None, Ok(text)) if !text.is_empty() => text,
        _ => "of unknown version".to_owned(),
    };
    let circumstances = match Circumstances::find(root, control.as_ref().ok()) {
        Circumstances::Unknown if control_error.is_some() => Circumstances::Unreadable,
        found => found,
    };
    let mut cluster = Cluster::new(root, major, control, circumstances);
    if let Ok(control) = &cluster.control {
        let wal = options.wal.as_deref();
        cluster.replay = circumstances.replay(root, &cluster.major, control, wal);
    }
    cluster.control_error = control_error;
    cluster.wal.clone_from(&options.wal);
    cluster.is_of_set = manifest == Manifest::OfAnother;
    cluster.no_log = options.repository.no_log || cluster.is_of_set;
    cluster.part = backup::beside::part_of_set(root);
    cluster.witness = !options.no_witness && cluster.part.is_none();
    cluster.structure = options.structure;
    cluster.settle = options.settle.filter(|_| circumstances.may_change());
    let cluster = Arc::new(cluster);
    let mut description = describe(&cluster, path);
    let steps: Box<dyn Iterator<Item = Step> + Send> = if metadata.is_file() {
        Box::new(walk::one_file(&cluster, path))
    } else if path == root {
        let whole = walk::whole(&cluster);
        // Not where the catalogues cannot be asked.
        if whole.asks_files() {
            description.evidence = with_witnesses(description.evidence);
        }
        // A cluster that was started has outlived its manifest.
        match circumstances {
            Circumstances::Backup if manifest == Manifest::Own => {
                Box::new(whole.chain(backup::directory::against_manifest(root)))
            }
            _ => Box::new(whole),
        }
    } else {
        let part = walk::part(&cluster, path);
        if part.has_no_folders() {
            return Err(Error::unrecognised(
                path,
                "a folder of a PostgreSQL cluster that holds no relation files",
                format!("check the whole cluster: pagewarden check {}", root.display()),
            ));
        }
        Box::new(part)
    };
    let part = cluster.part.clone();
    let part = part.map(|why| Step::Unread(Unread::of_file(String::new(), why)));
    let steps = Box::new(part.into_iter().chain(steps));
    let woken: Box<dyn Fn() -> bool + Send + Sync> = {
        let cluster = Arc::clone(&cluster);
        Box::new(move || {
            Circumstances::find(&cluster.root, cluster.control.as_ref().ok()).may_change()
        })
    };
    Ok(Target { description, steps, woken: Some(woken) })
}

/// What the control file and the circumstances say of a cluster.
fn describe(cluster: &Cluster, path: &Path) -> Description {
    Description {
        part: None,
        path: path.to_owned(),
        format: FORMAT.name,
        engine: format!("PostgreSQL {}", cluster.major),
        page_size: u32::try_from(cluster.page_size).unwrap_or(0),
        setting: match (&cluster.control, cluster.checksums) {
            (Err(_), _) => None,
            (Ok(_), Checksums::On) => Some(Protection::Checksum),
            (Ok(_), Checksums::Off | Checksums::Changing) => Some(Protection::None),
            (Ok(_), Checksums::Pending) => None,
        },
        state: cluster.state_in_words(),
        evidence: evidence_of(cluster.checksums),
        live: cluster.circumstances.may_change(),
        epoch: cluster.control.as_ref().ok().map(|control| Epoch {
            database: format!("{:016x}", control.system_identifier),
            position: control.checkpoint_lsn,
            is_at_rest: cluster.circumstances.is_settled(),
        }),
    }
}

impl Cluster {
    fn new(
        root: &Path,
        major: String,
        control: Result<Control, ControlFault>,
        circumstances: Circumstances,
    ) -> Self {
        let mut cluster = Self {
            root: root.to_owned(),
            major,
            page_size: 8192,
            max_align: crate::page::MAX_ALIGN,
            segment_pages: 0,
            checksums: Checksums::Off,
            circumstances,
            log_end: None,
            replay: None,
            settle: None,
            wal: None,
            is_of_set: false,
            no_log: false,
            witness: true,
            structure: false,
            control_error: None,
            part: None,
            control,
        };
        match &cluster.control {
            Ok(control) => {
                cluster.page_size = control.page_size;
                cluster.max_align = control.max_align;
                cluster.segment_pages = u64::from(control.segment_pages);
                cluster.checksums = control.checksums;
                cluster.log_end = cluster.circumstances.log_end(root, control);
            }
            // Without a control file the pages of a catalogue that every
            // cluster has (pg_database, 1262) must speak for the others.
            Err(_) => {
                let seen = loose::sample(&root.join("global").join("1262"), 0);
                cluster.page_size = seen.page_size.unwrap_or(8192);
                cluster.checksums = if seen.checksums { Checksums::On } else { Checksums::Off };
                cluster.segment_pages = SEGMENT_BYTES / cluster.page_size as u64;
            }
        }
        cluster
    }

    fn state_in_words(&self) -> String {
        let checksums = match (&self.control, self.checksums) {
            (Err(_), Checksums::On) => "checksums found on pages",
            (Err(_), _) => "no checksums found on pages",
            (_, Checksums::On) => "checksums on",
            (_, Checksums::Off) => "checksums off",
            (_, Checksums::Changing) => "checksums being switched",
            (_, Checksums::Pending) => "checksums not known yet",
        };
        let is_told = self.circumstances == Circumstances::Unreadable;
        let is_bad = self.control.is_err() && !is_told;
        let control = if is_bad { ", pg_control unreadable" } else { "" };
        let circumstances = match self.circumstances {
            Circumstances::Backup if self.is_incremental() => {
                "an incremental backup: pg_combinebackup has yet to run"
            }
            other => other.in_words(),
        };
        format!("{checksums}, {circumstances}{control}")
    }

    /// True for a folder that holds changed blocks only, by its label.
    fn is_incremental(&self) -> bool {
        const LABEL_BYTES_MAX: usize = 1 << 16;
        let label = read_small(&self.root.join(label::LABEL), LABEL_BYTES_MAX);
        label.is_ok_and(|label| label::Label::parse(&label).is_incremental)
    }

    /// What a page that fails its test is, in a relation that outlives a crash.
    pub(crate) fn failure(&self) -> Severity {
        self.circumstances.failure()
    }
}

/// Reads and parses `global/pg_control` once. `None`: not there, or not to be
/// believed.
pub(crate) fn read_control(root: &Path) -> Option<Control> {
    let bytes = read_small(&root.join("global").join("pg_control"), CONTROL_BYTES).ok()?;
    Control::parse(&bytes).ok()
}

/// Reads `global/pg_control`, several times if need be: a running server may
/// be writing it just now.
fn read_control_settled(root: &Path) -> std::io::Result<Result<Control, ControlFault>> {
    const TRIES: u32 = 5;
    let path = root.join("global").join("pg_control");
    let mut fault = None;
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        match read_small(&path, CONTROL_BYTES) {
            Ok(bytes) => match Control::parse(&bytes) {
                Ok(control) => return Ok(Ok(control)),
                Err(found) => fault = Some(found),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fault = Some(ControlFault {
                    kind: pagewarden_core::verdict::Kind::Missing,
                    detail: "the file is not there".to_owned(),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Err(fault.unwrap_or(ControlFault {
        kind: pagewarden_core::verdict::Kind::Header,
        detail: "it could not be read".to_owned(),
    })))
}

/// True for a data directory, also one that lost its control file or its
/// version file.
pub(crate) fn is_root(folder: &Path) -> bool {
    let global = folder.join("global");
    let has_version = folder.join("PG_VERSION").is_file();
    if !global.is_dir() {
        // Folders of databases have a version file too.
        return has_version && folder.join("base").is_dir();
    }
    has_version || global.join("pg_control").is_file()
}

/// The data directory that `path` lies in: `base/5/1259`, `base/5`,
/// `pg_tblspc/16385/PG_15_202209061/5/16390`.
fn cluster_above(path: &Path) -> Option<PathBuf> {
    const DEEPEST: usize = 6;
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().skip(1).take(DEEPEST).find(|above| is_root(above)).map(Path::to_owned)
}

fn relation_file(path: &Path) -> Option<RelationFile> {
    RelationFile::parse(path.file_name()?.to_str()?)
}

/// How much "ok" is worth.
fn evidence_of(checksums: Checksums) -> Evidence {
    match checksums {
        Checksums::On | Checksums::Pending => Evidence {
            tested_by: BY_SUMS,
            unseen: "1 damaged page in 65,535; zeroed pages; older versions of a page; pages of another relation; files that are missing or end between two pages; the content of pg_xact, pg_multixact and of the log",
        },
        Checksums::Off | Checksums::Changing => Evidence {
            tested_by: "header rules only",
            unseen: "damage to the content of a page; zeroed pages; older versions of a page; pages of another relation; files that are missing or end between two pages; the content of pg_xact, pg_multixact and of the log",
        },
    }
}

/// The same where files are asked what they say of one another.
fn with_witnesses(evidence: Evidence) -> Evidence {
    match evidence.tested_by {
        BY_SUMS => Evidence {
            tested_by: "16-bit checksums, header rules, and what files say of one another",
            unseen: "1 damaged page in 65,535; zeroed pages and cut ends that no map or index knows; pages of a like relation; most of pg_xact and pg_multixact; the log but for its last checkpoint; settings; exchanged database folders; rows changed before their sum (see --structure); without a seal, older versions of a page",
        },
        _ => Evidence {
            tested_by: "header rules, and what files say of one another",
            unseen: "damage to the content of a page; zeroed pages and cut ends that no map or index knows; pages of a like relation; most of pg_xact and pg_multixact; the log but for its last checkpoint; settings; exchanged database folders; rows changed before their sum (see --structure); older versions of a page",
        },
    }
}

const BY_SUMS: &str = "16-bit checksums and header rules";

/// Text from a file that may hold anything, for showing to people.
fn sanitised(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(16).collect()
}
