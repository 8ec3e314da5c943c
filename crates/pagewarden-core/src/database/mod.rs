//! What a path is, and which files and pages it has.
//!
//! A target kind looks at a path, says whether it knows it, and opens it: the
//! result is a [`Target`], a description and a lazy list of [`Step`]s. A step
//! is a file of pages with the page format that fits it, or something already
//! seen while listing (a finding, a file that may not be read). Steps are
//! produced one at a time, so that a cluster of a million files costs no more
//! memory than its largest folder.
//!
//! A format is an entry of the registry, a [`Format`]; the library that has the registry finds out which
//! one a path is of.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::database::parts::PartsKind;
use crate::database::repository::{RepositoryKind, RepositoryOptions, RepositoryPart, Sets};
use crate::error::Error;
use crate::page::{PageFormat, Specimen, Unsettled, Witness};
use crate::protect::Engine;
use crate::source::decode::Decoded;
use crate::source::read_ahead::Seats;
use crate::source::store::{Listed, StorePath};
use crate::verdict::{ByteOffset, Finding, Note, PageNo, Protection, Severity, Standing, Unread};

pub mod chains;
pub mod parts;
pub mod repository;
pub mod thread;

/// What is known of a target before its pages are read.
#[derive(Debug, Clone)]
pub struct Description {
    /// The path as it was named.
    pub path: PathBuf,
    /// The name of the target kind: `postgres`, `sqlite` ...
    pub format: &'static str,
    /// The engine and its version, as people say it: `PostgreSQL 15`.
    pub engine: String,
    /// Bytes in a page; 0 where there are none, as in binary logs.
    pub page_size: u32,
    /// What the database itself is set to, where it says so.
    pub setting: Option<Protection>,
    /// A line of circumstances for people: `checksums on, shut down cleanly`.
    pub state: String,
    /// How strong the evidence for a sound page is.
    pub evidence: Evidence,
    /// True while a server may be writing: failing pages are read again, and
    /// files may come and go.
    pub live: bool,
    /// Which state of the database this is, where it can be compared with a seal.
    pub epoch: Option<Epoch>,
    /// What part of a backup repository it is, if it is one.
    pub part: Option<RepositoryPart>,
}

/// How much an "ok" is worth: part of every report, because formats differ
/// widely in what they can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// What pages are tested by.
    pub tested_by: &'static str,
    /// What passes all the same.
    pub unseen: &'static str,
}

/// Which state of a database this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The same for all states of one database.
    pub database: String,
    /// Later states have a greater number.
    pub position: u64,
    /// The database was shut down cleanly: states with the same position are
    /// the same, byte for byte.
    pub is_at_rest: bool,
}

impl Epoch {
    /// True if nothing was written between the two.
    #[must_use]
    pub fn is_same_state(&self, other: &Self) -> bool {
        self.is_at_rest && self == other
    }
}

/// What is learned of a file while it is read. Between the moments when it is listed and when it is
/// opened another file may take its place, and a server may cut it at any time.
#[derive(Debug, Default)]
pub struct Reading {
    /// What the file was that was opened.
    pub opened: OnceLock<Metadata>,
    /// It ended before the length that it had then, at least for a moment.
    pub was_cut: AtomicBool,
}

/// A file of pages, and how to read and judge it. Made by [`PageFile::of`].
#[derive(Debug, Clone)]
pub struct PageFile {
    /// The file, relative to the target's path (or the target's own name
    /// where the target is this file).
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its length when it was listed, for progress; it is asked again when the
    /// file is opened.
    pub listed_bytes: u64,
    /// Where its first page begins: past the headers, where a file begins with some.
    pub first_offset: ByteOffset,
    /// The number of its first page. With a selection, the number from which it counts.
    pub first_page: PageNo,
    /// What its pages must look like.
    pub format: Arc<dyn PageFormat>,
    /// What an incomplete page at the end of the file is.
    pub partial_page: Severity,
    /// All files of the same relation, for a second look at failing pages.
    pub relation: Option<Arc<Relation>>,
    /// Which pages the file holds, where it holds some pages of a larger one, as incremental
    /// backups do: the number of each, counted from `first_page`, ascending. `None`: its pages
    /// are numbered one by one, up to its end.
    pub selection: Option<Arc<[u32]>>,
    /// What to do if this file is damaged.
    pub hint: Option<Arc<str>>,
    /// Its database by name, where it is known.
    pub database: Option<Arc<str>>,
    /// Its relation or table by name, where it is known.
    pub object: Option<Arc<str>>,
    /// Who else sees its pages.
    pub witnesses: Vec<Arc<dyn Witness>>,
    /// Where to write down what is learned while it is read.
    pub reading: Option<Arc<Reading>>,
}

impl PageFile {
    /// A file of pages that are numbered from 0 and begin at byte 0, all of which must be whole.
    /// What else is known of it is in its public fields.
    #[must_use]
    pub fn of(
        name: impl Into<String>,
        path: impl Into<PathBuf>,
        listed_bytes: u64,
        format: Arc<dyn PageFormat>,
    ) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            listed_bytes,
            first_offset: ByteOffset(0),
            first_page: PageNo(0),
            format,
            partial_page: Severity::Damage,
            relation: None,
            selection: None,
            hint: None,
            database: None,
            object: None,
            witnesses: Vec::new(),
            reading: None,
        }
    }

    /// The number of the page at `offset`.
    #[must_use]
    pub fn page_at(&self, offset: ByteOffset) -> PageNo {
        let index = self.pages_to(offset.0);
        let Some(selection) = &self.selection else {
            return self.first_page.plus(index);
        };
        let index = usize::try_from(index).ok().and_then(|index| selection.get(index));
        // Past the last of them there is none; it is no page that fits.
        index.map_or(PageNo(u64::MAX), |index| self.first_page.plus(u64::from(*index)))
    }

    /// Whole pages of a file of `length` bytes.
    #[must_use]
    pub fn page_count(&self, length: u64) -> u64 {
        let held = self.selection.as_ref().map_or(u64::MAX, |selection| selection.len() as u64);
        self.pages_to(length).min(held)
    }

    /// Where the page begins that has `index` others of the file before it.
    #[must_use]
    pub fn offset_of(&self, index: u64) -> ByteOffset {
        let page_size = self.format.page_size() as u64;
        ByteOffset(self.first_offset.0.saturating_add(index.saturating_mul(page_size)))
    }

    /// One past the last of its whole pages, in a file of `length` bytes.
    #[must_use]
    pub fn end(&self, length: u64) -> ByteOffset {
        self.offset_of(self.page_count(length))
    }

    /// Bytes at the end of a file of `length` bytes that make no whole page.
    #[must_use]
    pub fn rest(&self, length: u64) -> u64 {
        length.saturating_sub(self.first_offset.0) % (self.format.page_size() as u64).max(1)
    }

    /// Whole pages between the first one and `offset`.
    fn pages_to(&self, offset: u64) -> u64 {
        let bytes = offset.saturating_sub(self.first_offset.0);
        bytes.checked_div(self.format.page_size() as u64).unwrap_or(0)
    }
}

/// Whole pages of a file that comes as a stream.
#[derive(Debug)]
pub struct StreamedPages {
    /// The file. It is not opened: its path only says where it comes from.
    pub file: Arc<PageFile>,
    /// Where in the file they are. At [`PageFile::first_offset`] the file counts as
    /// one that was opened.
    pub offset: ByteOffset,
    /// The pages, about a mebibyte.
    pub bytes: Vec<u8>,
    /// The number of bytes at their end that are not of the file: they make its last page a whole one.
    pub filler_bytes: u64,
}

impl StreamedPages {
    /// Pages that are whole in their file.
    #[must_use]
    pub fn whole(file: Arc<PageFile>, offset: ByteOffset, bytes: Vec<u8>) -> Self {
        Self { file, offset, bytes, filler_bytes: 0 }
    }
}

/// See [`Settled::judge`].
pub type Judge = Box<dyn Fn(&mut Finding, &Unsettled) + Send + Sync>;

/// What turned out at the end of a stream.
pub struct Settled {
    /// What the target is, in the place of what was thought before.
    pub description: Description,
    /// Its pages carry sums. If not, what only a sum speaks against is fine,
    /// and all pages that passed count as unprotected.
    pub has_sums: bool,
    /// Puts into a finding what the page that failed proves. May take its time:
    /// the first call may read the log.
    pub judge: Judge,
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled").field("description", &self.description).finish_non_exhaustive()
    }
}

/// The files of one relation, in page order.
#[derive(Debug)]
pub struct Relation {
    /// Bytes in a page.
    pub page_size: usize,
    /// The files.
    pub segments: Vec<Segment>,
}

/// One file of a [`Relation`].
#[derive(Debug, Clone)]
pub struct Segment {
    /// Where it is.
    pub path: PathBuf,
    /// The number of its first page.
    pub first_page: PageNo,
    /// Whole pages in it when it was listed.
    pub pages: u64,
}

impl Relation {
    /// How many pages the relation has: one past the last page of its last
    /// segment.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.first_page.plus(last.pages).0)
    }

    /// The file and the byte offset of a page.
    #[must_use]
    pub fn locate(&self, page: PageNo) -> Option<(&Path, ByteOffset)> {
        let behind = self.segments.partition_point(|segment| segment.first_page <= page);
        let segment = self.segments.get(behind.checked_sub(1)?)?;
        let index = page.0.checked_sub(segment.first_page.0)?;
        if index >= segment.pages {
            return None;
        }
        let offset = index.checked_mul(u64::try_from(self.page_size).ok()?)?;
        Some((&segment.path, ByteOffset(offset)))
    }
}

/// Steps that need nothing of those before and after them: a file of a backup, say, with the pages
/// that are in it. They are taken by one thread, while others take what follows, and reported where
/// they stand. Of [`Step`]s there may be findings, notes, unread stretches, pages and passed bytes.
pub struct Apart(Mutex<Box<MakeSteps>>);

/// The steps of an [`Apart`].
pub type StepsApart = Box<dyn Iterator<Item = Step> + Send>;

type MakeSteps = dyn FnOnce(&Arc<Seats>) -> StepsApart + Send;

impl Apart {
    /// These steps.
    pub fn new(steps: impl Iterator<Item = Step> + Send + 'static) -> Self {
        Self::reading_ahead(|_| Box::new(steps))
    }

    /// The steps that `make` makes, which may have threads that read ahead as far as there are seats.
    pub fn reading_ahead(make: impl FnOnce(&Arc<Seats>) -> StepsApart + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(make)))
    }

    /// The steps.
    #[must_use]
    pub fn into_steps(self, seats: &Arc<Seats>) -> StepsApart {
        let make = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        make(seats)
    }
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart").finish_non_exhaustive()
    }
}

/// One thing on the way through a target.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step {
    /// Pages to verify.
    File(PageFile),
    /// Something wrong that was seen while listing.
    Finding(Finding),
    /// Something wrong with a page that was judged already, and counted as
    /// this.
    Overruled(Finding, Standing),
    /// The next step is not asked for before all pages of earlier ones were
    /// judged and seen by their witnesses.
    Barrier,
    /// Something that could not be read.
    Unread(Unread),
    /// A circumstance worth knowing.
    Note(Note),
    /// This number of files is in use and has no reader: the note says which, and what helps.
    Untested(Note, u64),
    /// Pages to judge that were read already.
    Pages(StreamedPages),
    /// This number of bytes was read that are no pages: they count for the rate only.
    Passed(u64),
    /// Steps that may be taken while others are. Nothing that they do is known to the target
    /// before a [`Step::Barrier`] that follows.
    Apart(Apart),
    /// Nothing yet: the target is to be asked again after so long.
    Wait(Duration),
    /// The end of a stream, after which nothing is unsettled.
    Settled(Box<Settled>),
}

/// A path that is known, and the way through it.
pub struct Target {
    /// What it is.
    pub description: Description,
    /// What it consists of, in the order in which it is reported.
    pub steps: Box<dyn Iterator<Item = Step> + Send>,
    /// Asked when a page of a target at rest fails: true if a server has come
    /// to life on it since, so that the page may have been read half written.
    pub woken: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("description", &self.description).finish_non_exhaustive()
    }
}

/// The first of these names that is listed.
#[must_use]
pub fn mark_among(listed: &[Listed], names: &[&str]) -> Option<String> {
    let is_listed = |name: &&&str| listed.iter().any(|one| one.name == **name);
    names.iter().find(is_listed).map(|name| (*name).to_owned())
}

/// What a target kind thinks of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// Not this kind.
    No,
    /// It may be: the name or the layout fits, but no mark proves it.
    Maybe,
    /// It carries this kind's marks.
    Yes,
}

impl Probe {
    /// `Yes` or `No`.
    #[must_use]
    pub fn yes_if(is_it: bool) -> Self {
        if is_it { Self::Yes } else { Self::No }
    }
}

/// What else is known about a target beside its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// A folder with log of the database that is not where its server keeps
    /// it, such as an archive.
    pub wal: Option<PathBuf>,
    /// How long to wait for a running server's next checkpoint, if evidence
    /// from several of its files needs one; `None` not to wait.
    pub settle: Option<Duration>,
    /// Pages are judged one by one only: what files say of one another is not
    /// asked.
    pub no_witness: bool,
    /// Pages are also compared with one another as data structures, as far as the
    /// format can beyond what it always does.
    pub structure: bool,
    /// A file with the keys of encrypted pages.
    pub keyring: Option<PathBuf>,
    /// Packs that a delta builds on.
    pub bases: Vec<PathBuf>,
    /// What is wanted of a backup repository.
    pub repository: RepositoryOptions,
    /// How many threads a database may be read by that reads itself; `None`: as many as there are
    /// processors.
    pub jobs: Option<NonZero<usize>>,
}

/// See [`Format::in_store`].
#[derive(Debug)]
pub struct StoredKind {
    /// Looks at a file that begins with these bytes, as [`Format::probe`] does. Folders are recognised by
    /// [`Format::folder_mark`].
    ///
    /// # Errors
    /// The store did not say.
    pub probe: fn(&StorePath, &[u8]) -> io::Result<Probe>,
    /// True for a folder of the format that can be opened.
    pub reads_folder: fn(&StorePath) -> bool,
    /// Of a file the end is read first: it says where everything is.
    pub end_first: bool,
    /// Opens a file or a folder.
    ///
    /// # Errors
    /// As [`Format::open`].
    pub open: fn(&StorePath, &OpenOptions) -> Result<Target, Error>,
}

/// See [`Format::in_folder`].
#[derive(Debug)]
pub struct FolderKind {
    /// True for the files of one backup.
    pub is_part: fn(&[StorePath]) -> bool,
    /// Opens the backups of a folder, each with its files.
    pub open: fn(&StorePath, &[Vec<StorePath>]) -> Sets,
}

/// See [`Format::with_log`].
pub type OpenWithLog = fn(&[PathBuf], &Path, &OpenOptions) -> Result<Sets, Error>;

/// How much of a stream is looked at to find out what it is.
pub const STREAM_BEGIN_BYTES: usize = 1 << 20;

/// What comes as a stream, decompressed.
#[derive(Debug)]
pub struct StreamKind {
    /// What it is, for people: `a tar archive of a PostgreSQL backup`.
    pub name: &'static str,
    /// Looks at the first bytes, [`STREAM_BEGIN_BYTES`] of them where there are as many.
    pub probe: fn(&[u8]) -> Probe,
    /// Opens it, under the name that it is called by.
    pub open: fn(&Path, Decoded, &OpenOptions) -> Result<Target, Error>,
}

/// How page verification of a format is turned on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnedOn {
    /// By `pagewarden protect`, for the file or folder that was named.
    Here,
    /// By `pagewarden protect`, for a data directory as a whole, never for one file of it.
    ForTheWhole,
    /// By its server, with this statement.
    ByServer(&'static str),
    /// By the program that writes its files, which are never changed: with these options.
    ByWriter(&'static str),
    /// Never: its pages always carry sums.
    Never,
}

/// Who makes a symbolic link below a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkMaker {
    /// The server, or its administrator where it expects that: what the link leads to is part of
    /// the database.
    Server,
    /// The administrator, for the server's messages.
    Logging,
    /// Nothing that is known here.
    Unknown,
}

/// One format in the registry, with what it can do.
pub struct Format {
    /// The name, as in `--format` and in the JSON output.
    pub name: &'static str,
    /// The engine's name, for people.
    pub title: &'static str,
    /// What it covers, for help and documentation.
    pub summary: &'static str,
    /// Endings of names that only files of this format have: a file with such a name is checked even
    /// where its content is no longer recognised.
    pub endings: &'static [&'static str],
    /// What says that a folder of a store, in which this is listed, is one of this format: a data
    /// directory, a backup of one in files of its own. Without [`Format::in_store`], only a folder of this
    /// machine is read as one.
    pub folder_mark: fn(&StorePath, &[Listed]) -> Option<String>,
    /// Looks at a path without opening more than its first bytes.
    pub probe: fn(&Path, &Metadata) -> Probe,
    /// Opens it.
    ///
    /// # Errors
    /// Where no verdict at all can be given.
    pub open: fn(&Path, &Metadata, &OpenOptions) -> Result<Target, Error>,
    /// Opens what comes as a stream that can be read only once; the path is
    /// what it is called. `None`: nothing of this kind can be read so.
    pub stream: Option<StreamKind>,
    /// Reads its files and folders where they are in a store, as far as they are asked for; `None`: what
    /// is no stream is copied to this machine.
    pub in_store: Option<StoredKind>,
    /// Several files may be one target; `None`: never.
    pub parts: Option<PartsKind>,
    /// Tools that keep backups of this format in repositories of their own.
    pub repositories: &'static [RepositoryKind],
    /// What lies in a plain folder and belongs together as the sets of a repository do; `None`: nothing.
    pub in_folder: Option<FolderKind>,
    /// Opens backups with the folder in which their log is archived, as the sets of a repository;
    /// `None`: nothing that is known keeps it so.
    pub with_log: Option<OpenWithLog>,
    /// How page verification is turned on.
    pub turned_on: TurnedOn,
    /// The experiments of `pagewarden cost` that say what its protection costs, the most telling
    /// first.
    pub experiments: &'static [&'static str],
    /// Endings of files beside a database file that are part of it, and what they are.
    pub sidecars: &'static [(&'static str, &'static str)],
    /// Who makes a symbolic link of that name in that folder.
    pub link_maker: fn(&Path) -> LinkMaker,
    /// Pages that the conformance suite and the fuzzer damage; `None`: it has no pages of its own.
    pub specimens: Option<fn() -> Vec<Specimen>>,
    /// How the protection of its databases is changed; `None`: not by this library.
    pub protect: Option<Engine>,
    /// How damaged pages of its databases are repaired; `None`: not yet.
    pub repair: Option<crate::repair::Engine>,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Format").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PageRun, RunVerdict};

    #[derive(Debug)]
    struct Sectors;

    impl PageFormat for Sectors {
        fn page_size(&self) -> usize {
            512
        }

        fn judge(&self, _: PageRun<'_>, _: &mut RunVerdict) {}
    }

    #[test]
    fn pages_are_counted_from_where_they_begin() {
        let mut file = PageFile::of("it", "it", 0, Arc::new(Sectors));
        file.first_offset = ByteOffset(1536);
        file.first_page = PageNo(7);
        assert_eq!(file.page_at(ByteOffset(1536)), PageNo(7));
        assert_eq!(file.page_at(ByteOffset(2560)), PageNo(9));
        assert_eq!((file.page_count(0), file.end(0), file.rest(0)), (0, ByteOffset(1536), 0));
        assert_eq!((file.page_count(2048), file.rest(2048)), (1, 0));
        assert_eq!((file.page_count(2600), file.rest(2600)), (2, 40));
        assert_eq!(file.end(2600), ByteOffset(2560));
        file.selection = Some(Arc::from([0, 5]));
        assert_eq!(file.page_at(ByteOffset(2048)), PageNo(12));
        assert_eq!(file.page_at(ByteOffset(2560)), PageNo(u64::MAX), "no page of the selection");
        assert_eq!((file.page_count(9999), file.end(9999)), (2, ByteOffset(2560)));
    }
}
