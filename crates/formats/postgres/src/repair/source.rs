//! A copy of the cluster that pages may come from: another data directory that was shut down, a base
//! backup, or the files of a running server. Of one that lies in archives, a repository or a pack the files that are needed were
//! taken out (`stored.rs`).
//!
//! What is refused by name, so that no page of it is ever looked at: another cluster, another
//! timeline, a running or crashed server, an incremental backup, a copy that has a history of its own.
//!
//! That its history is the cluster's is shown by the log: at the position of the copy's last
//! checkpoint the cluster's log must hold the same checkpoint, field by field; and the segments of
//! the log that both still have must be the same, byte for byte, up to there. A clone that was
//! started by itself has another checkpoint, or other moments in its log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::files::backup::label;
use crate::files::control::{ClusterState, Control, is_same_checkpoint};
use crate::files::is_root;
use crate::page::Checksums;
use crate::protect::lock::check_not_running;
use crate::protect::{Cluster, read_control};
use crate::repair::log::Log;
use crate::repair::proof::Copy;
use crate::repair::stored::Stored;
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_fully, read_small};
use pagewarden_core::system::{identity, identity_of_open};
use pagewarden_core::words::{LsnText, utc};

const LABEL_BYTES: usize = 16 << 10;
const COMPARED_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    /// Where its files are.
    root: PathBuf,
    /// What was named.
    shown: PathBuf,
    pub(super) control: Control,
    bytes: Vec<u8>,
    since: u64,
    is_backup: bool,
    is_running: bool,
    /// A server has replayed the log of the cluster on it, to its end.
    pub(super) is_replayed: bool,
    /// What it is, in words.
    pub(super) what: String,
}

/// True if a source is the database itself, by whatever name.
fn is_the_same(metadata: &fs::Metadata, source: &Path, database: &Path) -> io::Result<bool> {
    let own = fs::metadata(database)?;
    Ok(identity(metadata, source)? == identity(&own, database)?)
}

impl Source {
    /// Opens a copy of `cluster`.
    pub(super) fn open(stored: &Stored, cluster: &Cluster) -> Result<Self, Error> {
        let (shown, root) = (stored.shown.as_path(), stored.root.as_path());
        let refuse = |reason: String, hint: &str| Err(Error::refused(shown, reason, hint));
        let metadata = fs::metadata(root).map_err(|error| Error::io("open", shown, error))?;
        if !metadata.is_dir() || !is_root(root) {
            return refuse(
                "no copy of a PostgreSQL cluster".to_owned(),
                "name a data directory (the folder with PG_VERSION in it), a base backup as a folder \
                 or as archives, a backup repository or a pack",
            );
        }
        if is_the_same(&metadata, root, &cluster.root)
            .map_err(|error| Error::io("open", shown, error))?
        {
            return refuse(
                "this is the database that is to be repaired".to_owned(),
                "name a copy of it; its own log is asked in any case",
            );
        }
        let path = root.join("global").join("pg_control");
        let bytes = read_control(&path)?;
        let control = Control::parse(&bytes).map_err(|fault| {
            let reason = format!("the control file of this source is damaged: {}", fault.detail);
            Error::damaged(&path, reason, "name another copy")
        })?;
        if control.system_identifier != cluster.control.system_identifier {
            return refuse(
                format!(
                    "a copy of another cluster: its system identifier is {}, that of {} is {}",
                    control.system_identifier,
                    cluster.root.display(),
                    cluster.control.system_identifier
                ),
                "name a copy of the cluster that is to be repaired",
            );
        }
        let layout = |one: &Control| {
            (one.version, one.catalog_version, one.page_size, one.segment_pages, one.max_align)
        };
        if layout(&control) != layout(&cluster.control) {
            return refuse(
                "a copy of another version, or with another page size".to_owned(),
                "name a copy of the cluster as it is now",
            );
        }
        check_not_running(root)?;
        let source = Self {
            root: root.to_owned(),
            shown: shown.to_owned(),
            since: control.redo_lsn,
            is_backup: false,
            is_running: stored.is_running,
            is_replayed: stored.is_replayed,
            what: String::new(),
            control,
            bytes,
        };
        if source.is_running {
            let source = source.of_running()?;
            source.check_timeline(source.control.timeline, cluster)?;
            return Ok(source);
        }
        let source = match read_small(&root.join(label::LABEL), LABEL_BYTES) {
            Ok(bytes) => source.of_backup(&String::from_utf8_lossy(&bytes))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => source.at_rest()?,
            Err(error) => return Err(Error::io("read", &root.join(label::LABEL), error)),
        };
        source.check_timeline(source.control.timeline, cluster)?;
        Ok(source)
    }

    fn check_timeline(&self, timeline: u32, cluster: &Cluster) -> Result<(), Error> {
        if timeline == cluster.control.timeline {
            return Ok(());
        }
        let reason = format!(
            "a copy of another timeline: it is on {timeline}, {} on {}",
            cluster.root.display(),
            cluster.control.timeline
        );
        Err(Error::refused(&self.shown, reason, "name a copy of the same timeline"))
    }

    /// The data directory of a server that runs: its pages on disk hold all up to its redo position.
    fn of_running(self) -> Result<Self, Error> {
        let kind = match (self.control.state, self.control.backup_start_lsn) {
            (ClusterState::InProduction, _) => "running server",
            (ClusterState::InArchiveRecovery, 0) => "running standby",
            _ => {
                let reason = "the server is not ready: it recovers, starts or stops";
                return Err(Error::refused(&self.shown, reason, "run the same command again"));
            }
        };
        let what = format!("{kind}, as of {} or later", LsnText(self.control.redo_lsn));
        Ok(Self { what, ..self })
    }

    fn at_rest(self) -> Result<Self, Error> {
        let what = match (self.control.state, self.control.backup_start_lsn) {
            (ClusterState::ShutDownInRecovery, 0) if self.is_replayed => {
                "brought forward by the server's own redo, and"
            }
            (ClusterState::ShutDown, 0) => "data directory",
            (ClusterState::ShutDownInRecovery, 0) => "standby",
            _ => {
                return Err(Error::refused(
                    &self.shown,
                    "this source was not shut down cleanly, and is no base backup",
                    "stop its server (pg_ctl stop); after a crash, start it once before",
                ));
            }
        };
        let what = format!("{what} shut down at {}", self.moment());
        Ok(Self { what, ..self })
    }

    fn of_backup(self, text: &str) -> Result<Self, Error> {
        let parsed = label::Label::parse(text.as_bytes());
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::trim))
        };
        let refuse = |reason: &str, hint: &str| Err(Error::refused(&self.shown, reason, hint));
        if parsed.is_incremental {
            return refuse(
                "an incremental backup, which holds only some of the pages",
                "combine it with its full backup first (pg_combinebackup)",
            );
        }
        if value("BACKUP METHOD") == Some("pg_rewind") {
            return refuse("pg_rewind was at work here", "name another copy");
        }
        let file = value("START WAL LOCATION").and_then(|line| line.split_once(" (file "));
        let timeline = file.and_then(|(_, file)| u32::from_str_radix(file.get(..8)?, 16).ok());
        let (Some(since), Some(timeline)) = (parsed.start_lsn, timeline) else {
            return refuse("its backup_label cannot be understood", "name another copy");
        };
        if timeline != self.control.timeline {
            let reason = format!(
                "its backup_label is of timeline {timeline}, its control file of {}",
                self.control.timeline
            );
            return refuse(&reason, "name another copy");
        }
        let of = if value("BACKUP FROM") == Some("standby") { " of a standby" } else { "" };
        let what = format!("base backup{of} that began at {} ({})", LsnText(since), self.time());
        Ok(Self { since, is_backup: true, what, ..self })
    }

    /// Its last checkpoint, for people.
    fn moment(&self) -> String {
        format!("{} ({})", LsnText(self.control.checkpoint_lsn), self.time())
    }

    /// The time of its last checkpoint.
    fn time(&self) -> String {
        utc(UNIX_EPOCH + Duration::from_secs(self.control.checkpoint_time))
    }

    /// What of it matters for a proof.
    ///
    /// # Errors
    /// It has a history of its own.
    pub(super) fn against(
        &self,
        cluster: &Cluster,
        log: Result<&Log, &str>,
    ) -> Result<Copy, Error> {
        let is_at_rest =
            |control: &Control| !self.is_backup && control.state == ClusterState::ShutDown;
        let mut copy = Copy {
            since: self.since,
            is_same_state: is_at_rest(&self.control)
                && is_at_rest(&cluster.control)
                && self.control.checkpoint_lsn == cluster.control.checkpoint_lsn,
            doubt: None,
        };
        if self.control.checksums != Checksums::On || cluster.control.checksums != Checksums::On {
            copy.doubt = Some(
                "checksums are off, so nothing shows that this page is sound in the copy"
                    .to_owned(),
            );
        }
        if self.is_replayed {
            let end = Control::checkpoint_of(&self.bytes);
            let ours = Control::checkpoint_of(&cluster.bytes);
            if !end.zip(ours).is_some_and(|(end, ours)| is_same_checkpoint(end, ours)) {
                return Err(Error::refused(
                    &self.shown,
                    "redo did not bring it to the end of this cluster's log",
                    "name a backup from which on all log is there (--log DIR)",
                ));
            }
        }
        let Ok(log) = log else { return Ok(copy) };
        let position = self.control.checkpoint_lsn;
        if position < log.begin {
            copy.doubt.get_or_insert_with(|| {
                format!(
                    "the copy is as of {}, and the log begins at {}: what happened in between is not known",
                    LsnText(position),
                    LsnText(log.begin)
                )
            });
            return Ok(copy);
        }
        if self.is_running && position >= log.end {
            return match self.has_same_log(log, log.end)? {
                Some(true) => Ok(copy),
                Some(false) => Err(self.own_history(cluster, log.end)),
                None => {
                    let gone = "the server no longer has the segment of the log in which this \
                                cluster was shut down, which would show that its history is the same";
                    copy.doubt.get_or_insert_with(|| gone.to_owned());
                    Ok(copy)
                }
            };
        }
        if position >= log.end {
            let reason = format!(
                "its checkpoint is at {}, and the log of {} ends at {}: it is newer, or has a history of its own",
                LsnText(position),
                cluster.root.display(),
                LsnText(log.end)
            );
            return Err(Error::refused(&self.shown, reason, "name a copy that is no newer"));
        }
        let own = Control::checkpoint_of(&self.bytes);
        let found = log.checkpoint_at(position);
        let is_same = found.zip(own).is_some_and(|(found, own)| is_same_checkpoint(found, own));
        if !is_same || self.has_same_log(log, position)? == Some(false) {
            return Err(self.own_history(cluster, position));
        }
        Ok(copy)
    }

    fn own_history(&self, cluster: &Cluster, position: u64) -> Error {
        let reason = format!(
            "its log up to {} is not that of {}: it has a history of its own",
            LsnText(position),
            cluster.root.display()
        );
        let hint = "a clone that was started by itself is no copy; name another one";
        Error::refused(&self.shown, reason, hint)
    }

    /// Whether the segments of the log that both have are the same up to `end`; `None`: there are none.
    fn has_same_log(&self, log: &Log, end: u64) -> Result<Option<bool>, Error> {
        let mut compared = None;
        for (name, begin) in log.segments_to(end) {
            let theirs = self.root.join("pg_wal").join(&name);
            let ours = Path::new(&name);
            let Ok(theirs_file) = open_regular(&theirs) else { continue };
            let ours_file = log.open(begin).map_err(|error| Error::io("open", ours, error))?;
            let length = end.saturating_sub(begin).min(log.segment_bytes());
            let mut buffers = [vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]];
            let mut offset = 0_u64;
            while offset < length {
                let step = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
                let step = step.min(COMPARED_BYTES);
                let [one, other] = &mut buffers;
                let (Some(one), Some(other)) = (one.get_mut(..step), other.get_mut(..step)) else {
                    break;
                };
                let read = read_fully(&ours_file, one, offset)
                    .map_err(|error| Error::io("read", ours, error))?;
                let count = read_fully(&theirs_file, other, offset)
                    .map_err(|error| Error::io("read", &theirs, error))?;
                if read != step || count != step || one != other {
                    return Ok(Some(false));
                }
                offset = offset.saturating_add(step as u64);
            }
            compared = Some(true);
        }
        Ok(compared)
    }

    /// Its copy of a file, to be compared with the original; `None` where there is none.
    pub(super) fn file(
        &self,
        file: &str,
        original: Option<&fs::File>,
    ) -> io::Result<Option<fs::File>> {
        let opened = match open_regular(&self.path(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // A link of a tablespace in a copy may lead to the original.
        let Some(original) = original else { return Ok(Some(opened)) };
        if identity_of_open(&opened)? == identity_of_open(original)? {
            return Err(io::Error::other("it is the damaged file itself, behind a link"));
        }
        Ok(Some(opened))
    }

    /// The first position of the log that a proof by this copy needs.
    pub(super) fn begin(&self) -> u64 {
        self.since.min(self.control.checkpoint_lsn)
    }

    /// What a file in it is called.
    pub(super) fn name(&self, file: &str) -> String {
        match self.shown == self.root {
            true => self.root.join(file).display().to_string(),
            false => format!("{}: {file}", self.shown.display()),
        }
    }

    /// The path of a file in it.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// What it holds of a file at an offset; `None` where it has no such page.
    pub(super) fn read(
        &self,
        file: &str,
        offset: u64,
        page_size: usize,
        original: &Path,
    ) -> io::Result<Option<Vec<u8>>> {
        let original = original_of(original)?;
        let Some(opened) = self.file(file, original.as_ref())? else { return Ok(None) };
        let mut page = vec![0; page_size];
        let count = read_fully(&opened, &mut page, offset)?;
        Ok((count == page_size).then_some(page))
    }
}

/// A file of the cluster, which may be what is missing.
pub(super) fn original_of(path: &Path) -> io::Result<Option<fs::File>> {
    match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}
