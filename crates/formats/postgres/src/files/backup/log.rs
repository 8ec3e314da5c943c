//! The log that replay of a backup in archives needs, where it is available: in a
//! folder that was named, in `pg_wal.tar` beside the base archive, or in the
//! archive itself.
//!
//! It is looked for when the first page has failed, so that a sound backup costs
//! nothing. An archive is then read once more, and the segments of the log in it
//! are kept in unnamed temporary files, up to a limit.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::files::archived_log::{LogArchive, segments_of};
use crate::files::backup::place::{Role, locate};
use crate::files::catalogue;
use crate::files::control::Control;
use crate::files::names::Fork;
use crate::files::wal::block::Locator;
use crate::files::wal::replay::{self, Replay, ReplayOfFork};
use crate::files::wal::segment::{SegmentName, Segments};
use crate::files::wal::span::Span;
use crate::page::{Fate, RECOVERY_MENDS, Recovery as _, overwritten_in_words};
use pagewarden_core::page::Unsettled;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::source::tar::{Archive, MemberKind};
use pagewarden_core::verdict::{Finding, Severity};

/// The most of a log that is taken out of archives.
const LOG_BYTES_MAX: u64 = 4 << 30;
const PIECE_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct LogAtHand {
    control: Control,
    label: Option<String>,
    folder: Option<PathBuf>,
    archives: Vec<StorePath>,
    /// What a repository keeps.
    archived: Option<Arc<dyn LogArchive>>,
    replay: OnceLock<Arc<Replay>>,
    /// What a store did not give of it.
    fault: OnceLock<String>,
}

impl LogAtHand {
    pub(super) fn new(
        control: Control,
        label: Option<String>,
        folder: Option<PathBuf>,
        archives: Vec<StorePath>,
    ) -> Self {
        let (replay, fault) = (OnceLock::new(), OnceLock::new());
        Self { control, label, folder, archives, archived: None, replay, fault }
    }

    /// The same, with the log of a repository.
    pub(super) fn with_archived(mut self, archived: Option<Arc<dyn LogArchive>>) -> Self {
        self.archived = archived;
        self
    }

    /// Makes a notice of a finding about a page that replay overwrites.
    pub(super) fn tell(&self, finding: &mut Finding, page: &Unsettled) {
        if finding.severity == Severity::Notice {
            return;
        }
        let Some((number, (locator, fork))) = finding.place.page.zip(place_in_log(finding)) else {
            return;
        };
        let replay = self.replay.get_or_init(|| Arc::new(self.read()));
        let fork = ReplayOfFork::new(Arc::clone(replay), locator, fork);
        let Fate::Overwritten(at) = fork.fate_of(number, page.lsn) else {
            if let Some(fault) = self.fault.get() {
                finding.severity = finding.severity.min(Severity::Suspect);
                finding
                    .add_detail(&format!("the log, which may overwrite it, was not read: {fault}"));
            }
            return;
        };
        finding.severity = Severity::Notice;
        finding.add_detail(&overwritten_in_words(at));
        finding.hint = Some(RECOVERY_MENDS.to_owned());
    }

    fn read(&self) -> Replay {
        let log = Span::of_copy(self.label.as_deref(), &self.control).and_then(|span| {
            let folders = self.folder.iter().cloned().collect();
            let mut segments = Segments::of(&self.control, span.timeline, folders)?;
            if let Some(archived) = &self.archived {
                segments.loose = Some(segments_of(archived, &self.control));
                return Ok((segments, span));
            }
            let wanted = segments.segment_of(span.begin);
            let mut loose = Loose { wanted, files: BTreeMap::new(), bytes: 0 };
            for archive in &self.archives {
                // What cannot be read is missing from the log, which says so; but what a store
                // failed to give may be there at the next look.
                let taken = loose.take_from(archive, self.control.wal_segment_bytes);
                if let (None, Err(error)) = (archive.local_path(), taken) {
                    let _ = self.fault.set(format!("{}: {error}", archive.path().display()));
                }
            }
            segments.loose = Some(Arc::new(loose.files));
            Ok((segments, span))
        });
        Replay::new(log, None, self.control.full_page_writes)
    }
}

/// The relation and fork of a page, where recovery writes to it by the log.
fn place_in_log(finding: &Finding) -> Option<(Locator, u8)> {
    let (_, Role::Relation(place)) = locate(&finding.place.file)? else { return None };
    let fork = match place.file.fork {
        Fork::Main => replay::MAIN,
        Fork::Init => replay::INIT,
        Fork::FreeSpace | Fork::Visibility => return None,
    };
    let tablespace = match place.tablespace? {
        0 => catalogue::DEFAULT_TABLESPACE,
        tablespace => tablespace,
    };
    let locator =
        Locator { tablespace, database: place.database.unwrap_or(0), number: place.file.number };
    place.file.session.is_none().then_some((locator, fork))
}

/// The segments of the log in an archive from `begin` on, in files without a name.
///
/// # Errors
/// It cannot be read.
pub(super) fn segments_in(
    archive: &StorePath,
    begin: SegmentName,
    segment_bytes: u32,
) -> io::Result<BTreeMap<String, File>> {
    let mut loose = Loose { wanted: begin, files: BTreeMap::new(), bytes: 0 };
    loose.take_from(archive, segment_bytes)?;
    let named = loose.files.into_iter();
    Ok(named.map(|(name, file)| (name.file_name(segment_bytes), file)).collect())
}

/// Segments taken out of archives.
struct Loose {
    /// The first that is wanted.
    wanted: SegmentName,
    files: BTreeMap<SegmentName, File>,
    bytes: u64,
}

impl Loose {
    fn take_from(&mut self, archive: &StorePath, segment_bytes: u32) -> io::Result<()> {
        let Some(decoded) = super::open_archive(archive)? else { return Ok(()) };
        let mut archive = Archive::new(decoded.reader);
        let mut piece = vec![0_u8; PIECE_BYTES];
        while let Some(member) = archive.next_member().map_err(io::Error::other)? {
            let name = member.name.rsplit('/').next().unwrap_or_default();
            let Some(segment) = SegmentName::parse(name, segment_bytes) else { continue };
            let is_wanted = member.kind == MemberKind::File
                && member.objection.is_none()
                && member.bytes == u64::from(segment_bytes)
                && segment.timeline >= self.wanted.timeline
                && segment.begin >= self.wanted.begin
                && self.bytes.saturating_add(member.bytes) <= LOG_BYTES_MAX
                && !self.files.contains_key(&segment);
            if !is_wanted {
                continue;
            }
            self.bytes = self.bytes.saturating_add(member.bytes);
            let mut file = tempfile::tempfile()?;
            while archive.data_left() > 0 {
                let count = archive.read_data(&mut piece).map_err(io::Error::other)?;
                file.write_all(piece.get(..count).unwrap_or_default())?;
            }
            self.files.insert(segment, file);
        }
        Ok(())
    }
}
