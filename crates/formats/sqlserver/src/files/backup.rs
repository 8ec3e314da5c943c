//! Backups: every page in them, without a server and without unpacking.
//!
//! A backup is a stream of extents, 64 KiB each, with headers around them. Pages are those of the data
//! files, byte for byte, so that they are judged as there; what differs is what follows from other
//! pages: see `allocation`.
//!
//! | what is wrong | what is reported |
//! |---|---|
//! | a header, a chunk or an index does not fit its sum | damage: `checksum` |
//! | the file ends before its last set does | damage: `truncated` |
//! | the file does not begin with its media header | damage: `header` |
//! | fewer pages came than the set says, and nothing else explains it | damage: `missing` |
//! | the log is not all there, or a block of it fails its test | see `log` |
//! | what the set says of itself at its beginning and at its end | suspect: `header` |
//! | a block is not where it says it was written | suspect: `misplaced` |
//! | the boot page is of another backup than the set | suspect: `header` |
//! | an extent of a differential set that its DIFF map does not name | suspect: `misplaced` |
//! | unknown chunks, encryption, what was lost with a chunk | unread |
//! | another family of the media set was not named | unread, and a notice: `missing` |
//!
//! `offset` is the byte in the file; in a compressed backup that of a page is the byte in the expanded
//! stream. A page may come twice: from SQL Server 2019 on the first extents are written once more at
//! the end. So that a page number means one page, `file` is `x.bak, set 2` for the second set of a file,
//! `x.bak, file 3` where a set has several data files, and `x.bak, again` for what comes twice.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::File;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::FORMAT;
use crate::checksum::{PAGE_BYTES, Page};
use crate::files::allocation::{Interval, StreamAllocations};
use crate::files::strays::Strays;
use crate::files::{evidence_of_backup, file_name, setting_in_words};
use crate::mssqlbak;
use crate::mtf::details::{Configuration, DatabaseFile, Media};
use crate::mtf::{EXTENT_BYTES, block_sum_fits, looks_like_backup};
use crate::page::header::Lsn;
use crate::page::system::{BOOT_PAGE, BootPage, PFS_PAGES, engine};
use crate::page::{Allocation, Allocations, SqlServerPages};
use crate::stretch::{Sectors, Whole};
use pagewarden_core::database::repository::RepositoryPart;
use pagewarden_core::database::{
    Description, PageFile, STREAM_BEGIN_BYTES, Step, StreamedPages, Target,
};
use pagewarden_core::error::Error;
use pagewarden_core::page::Witness;
use pagewarden_core::source::decode::Decoded;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{
    ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity, Unread,
};

pub(crate) mod chains;
pub(crate) mod contents;
mod extents;
mod family;
mod log;
mod order;
mod place;
mod sets;

pub use extents::{Event, Extents, Placed, SetClose, SetEvent};
pub use sets::{SetKind, SetWords};

use chains::Headers;
use family::{Family, SetBegin, Source};
use place::EXTENT_PAGES;

const PAGE: u64 = PAGE_BYTES as u64;
/// Extents that are handed on at a time: a mebibyte.
const CHUNK_EXTENTS: usize = 16;
/// How many first bytes tell what a file is.
pub(super) const HEAD_BYTES: usize = 512;
/// Blocks begin at multiples of this.
const BLOCK_ALIGNMENT: usize = 512;
/// How far is read for a first look before the report begins.
const STEPS_AHEAD: usize = 4096;

/// True for the first bytes of a backup.
#[must_use]
pub fn is_backup(begin: &[u8]) -> bool {
    begin.starts_with(mssqlbak::MAGIC) || looks_like_backup(begin)
}

/// What stands before the first backup set, and behind the last, in all files that were seen, and more.
const SEARCHED_BYTES: usize = 64 << 10;

/// What says to which media set a file belongs, in all files that were seen, and more.
const MEDIA_BYTES: usize = 16 << 10;

/// True for a file in which a block of a backup follows soon, where the first one is damaged.
#[must_use]
pub fn is_backup_without_its_beginning(file: &File) -> bool {
    let mut bytes = vec![0; SEARCHED_BYTES];
    let length = read_fully(file, &mut bytes, 0).unwrap_or(0);
    has_first_block(bytes.get(..length).unwrap_or_default())
}

/// True for a file that ends as backups do. Cut to where its pages begin, one looks like a data file.
#[must_use]
pub fn ends_as_backup(file: &File) -> bool {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let begin = begin_of_end(length);
    let mut bytes = vec![0; usize::try_from(length.saturating_sub(begin)).unwrap_or(0)];
    let read = read_fully(file, &mut bytes, begin).unwrap_or(0);
    has_last_block(bytes.get(..read).unwrap_or_default())
}

fn begin_of_end(length: u64) -> u64 {
    length.saturating_sub(SEARCHED_BYTES as u64).next_multiple_of(BLOCK_ALIGNMENT as u64)
}

fn has_first_block(bytes: &[u8]) -> bool {
    has_block(bytes, &[b"SSET", b"VOLB", b"MSCI", b"MSDA", b"MSTL"])
}

fn has_last_block(bytes: &[u8]) -> bool {
    has_block(bytes, &[b"ESET", b"SFMB"])
}

fn has_block(bytes: &[u8], kinds: &[&[u8; 4]]) -> bool {
    let is_one = |block: &[u8]| kinds.iter().any(|kind| block.starts_with(*kind));
    bytes.chunks(BLOCK_ALIGNMENT).any(|block| is_one(block) && block_sum_fits(block))
}

/// Which media set a file belongs to, and which of its families it is; `None` for what is no part of
/// a backup, or does not say.
#[must_use]
pub fn media(place: &StorePath) -> Option<Media> {
    let Some(path) = place.local_path() else { return stored_media(place) };
    let mut family = family_of(path).ok().flatten()?;
    family.find_media();
    family.media
}

/// As [`media`], of a file of a store: by its first kibibytes where they say it, since each of the bytes
/// is paid for, and those may be kept.
fn stored_media(place: &StorePath) -> Option<Media> {
    let family = |begin: Vec<u8>| {
        let source = Source::Stream(Whole(Box::new(Cursor::new(begin.clone()))));
        let mut family =
            Family::new(file_name(place.path()), place.path().to_owned(), &begin, source);
        family.find_media();
        family.media
    };
    let begin = place.first_bytes(MEDIA_BYTES).ok()?;
    if is_backup(&begin) {
        if let Some(media) = family(begin) {
            return Some(media);
        }
    } else if !has_first_block(&place.first_bytes(SEARCHED_BYTES).ok()?) {
        return None;
    }
    family(place.first_bytes(STREAM_BEGIN_BYTES).ok()?)
}

/// Opens the families of one backup, and goes as far as the first pages, so that the report can begin
/// with what the backup is.
pub fn open(places: &[StorePath]) -> Result<Target, Error> {
    Backup::new(path_of(places), extents(places)?).into_target()
}

/// By which the families are called together.
fn path_of(places: &[StorePath]) -> &Path {
    places.first().map_or(Path::new(""), StorePath::path)
}

/// A caller that takes the pages of a backup set's data files, beside their being judged.
pub struct Taker {
    /// The set, counted from 1 on; others are judged only.
    pub set: u32,
    /// Asked once for each data file of the set: who sees its pages. What is known of the file is
    /// what the backup says of it. Pages whose place is not certain are not shown. Where pages come
    /// twice, the later ones come after the others were seen.
    pub file: TakeFile,
    /// What sets there are, each of them once all of it came.
    pub sets: Arc<Mutex<Vec<SetWords>>>,
}

/// See [`Taker::file`].
pub type TakeFile = Box<dyn FnMut(u16, Option<&DatabaseFile>) -> Option<Arc<dyn Witness>> + Send>;

impl std::fmt::Debug for Taker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taker").field("set", &self.set).finish_non_exhaustive()
    }
}

/// Opens the families of one backup for a caller that takes pages.
///
/// # Errors
/// A file cannot be opened, or is no backup.
pub fn open_with_taker(places: &[StorePath], taker: Taker) -> Result<Target, Error> {
    let mut backup = Backup::new(path_of(places), extents(places)?);
    backup.taker = Some(taker);
    backup.into_target()
}

/// Opens a backup that comes as a stream, for one who takes the files of a set.
///
/// # Errors
/// It is no backup, or cannot be read as far as its first pages.
pub fn open_stream_with_taker(
    path: &Path,
    decoded: Decoded,
    taker: Taker,
) -> Result<(Target, Option<Media>), Error> {
    let family = family_of_stream(path, decoded);
    let media = family.media;
    let mut backup = Backup::new(path, Extents::new(vec![family]));
    backup.taker = Some(taker);
    Ok((backup.into_target()?, media))
}

/// The extents of one backup.
///
/// # Errors
/// A file cannot be opened, or is no backup.
pub fn extents(places: &[StorePath]) -> Result<Extents, Error> {
    let mut families = Vec::new();
    for place in places {
        let family = match place.local_path() {
            Some(path) => family_of(path),
            None => stored_family_of(place),
        };
        let family = family.map_err(|source| Error::io("open", place.path(), source))?;
        let mut family = family.ok_or_else(|| {
            Error::unrecognised(
                place.path(),
                "no SQL Server backup",
                "name the files of one backup, all its stripes together: x1.bak x2.bak",
            )
        })?;
        family.find_media();
        families.push(family);
    }
    name_apart(&mut families);
    Ok(Extents::new(families))
}

/// Opens a backup that comes as a stream.
pub fn open_stream(path: &Path, decoded: Decoded) -> Result<Target, Error> {
    let family = family_of_stream(path, decoded);
    Backup::new(path, Extents::new(vec![family])).into_target()
}

fn family_of_stream(path: &Path, decoded: Decoded) -> Family {
    let begin = decoded.begin.clone();
    let source = Source::Stream(Whole(Box::new(decoded.reader)));
    let mut family = Family::new(file_name(path), path.to_owned(), &begin, source);
    family.find_media();
    family
}

fn family_of(path: &Path) -> io::Result<Option<Family>> {
    let real_path = std::fs::canonicalize(path)?;
    let file = open_regular(&real_path)?;
    let mut head = [0; HEAD_BYTES];
    let length = read_fully(&file, &mut head, 0)?;
    let head = head.get(..length).unwrap_or_default();
    if !is_backup(head) && !is_backup_without_its_beginning(&file) && !ends_as_backup(&file) {
        return Ok(None);
    }
    let _ = pagewarden_core::system::fs::fadvise(
        &file,
        0,
        None,
        pagewarden_core::system::fs::Advice::Sequential,
    );
    let source = Source::File(Sectors::new(file)?);
    Ok(Some(Family::new(file_name(path), real_path, head, source)))
}

/// As [`family_of`], of a file that is read from its beginning to its end.
fn stored_family_of(place: &StorePath) -> io::Result<Option<Family>> {
    let file = place.open()?;
    let begin = place.first_bytes(HEAD_BYTES)?;
    if !is_backup(&begin) && !has_first_block(&place.first_bytes(SEARCHED_BYTES)?) {
        let mut end = vec![0; SEARCHED_BYTES];
        let count = file.read_at(&mut end, begin_of_end(file.length()?))?;
        if !has_last_block(end.get(..count).unwrap_or_default()) {
            return Ok(None);
        }
    }
    let source = Source::Stream(Whole(Box::new(file)));
    let path = place.path();
    Ok(Some(Family::new(file_name(path), path.to_owned(), &begin, source)))
}

/// Files of one name in several folders are called by their paths.
fn name_apart(families: &mut [Family]) {
    let names: Vec<_> = families.iter().map(|family| family.name.clone()).collect();
    for family in families {
        if names.iter().filter(|name| **name == family.name).count() > 1 {
            family.name = family.path.to_string_lossy().trim_start_matches('/').to_owned();
        }
    }
}

/// What is known of one data file of a set.
struct DataFile {
    allocations: Arc<StreamAllocations>,
    strays: Arc<Strays>,
    taker: Option<Arc<dyn Witness>>,
    /// Extents that came for the first time.
    extents: u64,
    /// Extents that came again.
    again: u64,
}

/// Extents that lie one after the other and are judged together.
struct Chunk {
    family: usize,
    file: u16,
    is_certain: bool,
    is_again: bool,
    offset: u64,
    indexes: Vec<u32>,
    bytes: Vec<u8>,
    begins: bool,
}

/// The way through a backup.
struct Backup {
    path: PathBuf,
    extents: Extents,
    ready: VecDeque<Step>,
    chunk: Option<Chunk>,
    files: BTreeMap<u16, DataFile>,
    configuration: Option<Box<Configuration>>,
    checkpoint: Arc<Mutex<Option<Lsn>>>,
    boot: Option<BootPage>,
    /// What the first set is, for the description.
    first: Option<Box<Configuration>>,
    setting: Option<Protection>,
    engine: Option<String>,
    sets: u32,
    begin: SetBegin,
    /// What kind of backup the first set is.
    first_kind: Option<SetKind>,
    is_partial: bool,
    /// What is to be said once all pages of the set were judged.
    after_barrier: Option<Vec<(String, Arc<Strays>)>>,
    taker: Option<Taker>,
    /// Takes what each set says of itself, once all of it came.
    headers: Option<Headers>,
    /// Data of this set comes again.
    comes_again: bool,
    /// Pages were among what came.
    has_pages: bool,
    has_ended: bool,
}

/// Of pages whose place is not known for sure.
#[derive(Debug)]
struct NotKnown;

impl Allocations for NotKnown {
    fn of(&self, _: PageNo) -> Allocation {
        Allocation::Unknown
    }
}

impl Backup {
    fn new(path: &Path, extents: Extents) -> Self {
        let mut backup = Self {
            path: path.to_owned(),
            extents,
            ready: VecDeque::new(),
            chunk: None,
            files: BTreeMap::new(),
            configuration: None,
            checkpoint: Arc::default(),
            boot: None,
            first: None,
            setting: None,
            engine: None,
            sets: 0,
            begin: SetBegin::default(),
            first_kind: None,
            is_partial: false,
            after_barrier: None,
            taker: None,
            headers: None,
            comes_again: false,
            has_pages: false,
            has_ended: false,
        };
        backup.say_absent_families();
        backup
    }

    fn into_target(mut self) -> Result<Target, Error> {
        let mut ahead = VecDeque::new();
        while ahead.len() < STEPS_AHEAD {
            let Some(step) = self.next() else { break };
            let is_enough = matches!(step, Step::Pages(_));
            ahead.push_back(step);
            if is_enough {
                break;
            }
        }
        let description = self.description();
        Ok(Target { description, steps: Box::new(ahead.into_iter().chain(self)), woken: None })
    }

    fn description(&self) -> Description {
        let part = self.headers.is_some().then_some(RepositoryPart::Media);
        let engine = self.engine.clone().or_else(|| {
            self.first.as_ref().map(|configuration| engine(configuration.database_version))
        });
        let mut state = Vec::new();
        let families = &self.extents.families;
        let is_compressed = families.iter().any(|family| family.is_compressed);
        let kind = self.first_kind.map_or("", SetKind::adjective);
        let article = if is_compressed { "a compressed " } else { "a " };
        state.push(format!("{article}{kind}backup"));
        if let Some(configuration) = &self.first {
            state.push(format!("database {}", configuration.database));
            state.extend(configuration.begun.map(|begun| format!("begun {begun}")));
        }
        if let Some(media) = families.first().and_then(|family| family.media)
            && media.families > 1
        {
            state.push(format!("{} of {} stripes", families.len(), media.families));
        }
        state.extend(self.setting.map(|setting| setting_in_words(setting).to_owned()));
        Description {
            part,
            path: self.path.clone(),
            format: FORMAT.name,
            engine: engine.unwrap_or_else(|| "SQL Server".to_owned()),
            page_size: u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX),
            setting: self.setting,
            state: state.join(", "),
            evidence: evidence_of_backup(self.setting),
            live: false,
            epoch: None,
        }
    }

    /// What was not named with the others.
    fn say_absent_families(&mut self) {
        let families = &self.extents.families;
        let Some(media) = families.first().and_then(|family| family.media) else { return };
        for number in 1..=media.families {
            let is_here = families
                .iter()
                .any(|family| family.media.is_some_and(|media| media.family == number));
            if is_here {
                continue;
            }
            let detail = format!(
                "media family {number} of {} of this backup is in another file, which was not \
                 named: which pages are allocated may not be known",
                media.families
            );
            let name = families.first().map_or("", |family| family.name.as_str());
            let finding = Finding::of_file(name, Severity::Notice, Kind::Missing, detail)
                .with_hint("name all files of the backup together: pagewarden check 1.bak 2.bak");
            self.ready.push_back(Step::Finding(finding));
            let absent = format!("media family {number} of {}", media.families);
            let error = format!("it is in another file than {name}, which was not named");
            self.ready.push_back(Step::Unread(Unread::of_file(absent, error)));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Say(step) => {
                // In the order of the file: what came before it first.
                self.hand_on();
                self.ready.push_back(*step);
            }
            Event::Set(set) => {
                self.sets = self.sets.saturating_add(1);
                (self.is_partial, self.comes_again) = (set.is_partial, false);
                self.begin = set.begin;
                self.checkpoint = Arc::default();
                (self.configuration, self.boot) = (None, None);
            }
            Event::Configuration(configuration) => {
                let lsn = configuration.checkpoint_lsn;
                let lsn = Lsn { log_file: lsn.file, block: lsn.block, slot: lsn.slot };
                *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(lsn);
                if self.first.is_none() {
                    self.first = Some(configuration.clone());
                    self.first_kind = Some(SetKind::of(&self.begin, &configuration));
                }
                self.configuration = Some(configuration);
            }
            Event::Extent(placed) => self.take_extent(&placed),
            Event::SetEnd(close) => self.end_set(&close),
        }
    }

    fn take_extent(&mut self, placed: &Placed) {
        if placed.file == 0 {
            self.hand_on();
            let error = "an extent without a page that says where it belongs";
            return self.unread(placed.family, placed.extent.offset, placed.extent.bytes, error);
        }
        if placed.extent.is_salvaged && !placed.is_certain {
            self.hand_on();
            let error = "behind something that was lost: it is not known where pages begin";
            return self.unread(placed.family, placed.extent.offset, placed.extent.bytes, error);
        }
        self.learn(placed);
        self.say_nowhere(placed);
        self.say_double(placed);
        if placed.is_again
            && !std::mem::replace(&mut self.comes_again, true)
            && self.taker.is_some()
        {
            self.hand_on();
            self.ready.push_back(Step::Barrier);
        }
        let is_new = !self.files.contains_key(&placed.file);
        let file = match self.files.entry(placed.file) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(place) => {
                let listed = self.configuration.iter().flat_map(|of| &of.files);
                let mut listed = listed.filter(|file| file.id == u32::from(placed.file));
                let is_taken = !self.is_partial;
                let taker = self.taker.as_mut().filter(|of| is_taken && of.set == self.sets);
                place.insert(DataFile {
                    allocations: Arc::new(StreamAllocations::new(&self.checkpoint)),
                    strays: Arc::new(Strays::new()),
                    taker: taker.and_then(|taker| (taker.file)(placed.file, listed.next())),
                    extents: 0,
                    again: 0,
                })
            }
        };
        let count = if placed.is_again { &mut file.again } else { &mut file.extents };
        *count = count.saturating_add(1);
        learn_allocations(&file.allocations, placed);
        let first = placed.index.saturating_mul(EXTENT_PAGES);
        let pages = placed.bytes.as_chunks::<PAGE_BYTES>().0;
        for (page, slot) in pages.iter().zip(0_u64..) {
            let at = slot.saturating_mul(PAGE);
            let offset = placed.extent.offset.saturating_add(at);
            let begin = usize::try_from(at).unwrap_or(usize::MAX);
            if !placed.extent.is_there(begin..begin.saturating_add(PAGE_BYTES)) {
                self.hand_on();
                if begin < placed.extent.bytes || !placed.extent.holes.is_empty() {
                    self.unread(
                        placed.family,
                        offset,
                        PAGE_BYTES,
                        "lost with what is reported beside",
                    );
                }
                continue;
            }
            let Ok(number) = u32::try_from(first.saturating_add(slot)) else { continue };
            self.add(placed, offset, number, page, is_new && slot == 0);
        }
    }

    /// Where its neighbours say the same as its pages, an extent came twice: the other one lies
    /// where something else belongs, and that is lost.
    fn say_double(&mut self, placed: &Placed) {
        let is_elsewhere = |extent| placed.is_certain && extent != placed.index;
        let Some(extent) = placed.double_of.filter(|extent| !is_elsewhere(*extent)) else { return };
        self.hand_on();
        let first = extent.saturating_mul(EXTENT_PAGES);
        let last = first.saturating_add(EXTENT_PAGES - 1);
        let file = placed.file;
        let detail = format!(
            "the extent of the pages {file}:{first} to {file}:{last} came before in this backup: \
             one of the two lies where another belongs, which is lost"
        );
        let name = self.extents.families.get(placed.family).map_or("", |one| one.name.as_str());
        let mut finding = Finding::of_file(name, Severity::Damage, Kind::Misplaced, detail)
            .with_hint("make another backup while the database is there, and run DBCC CHECKDB");
        finding.place.offset = Some(ByteOffset(placed.extent.offset));
        finding.database = self.configuration.as_ref().map(|of| of.database.clone());
        self.ready.push_back(Step::Finding(finding));
    }

    /// Adds a page to those that are judged together.
    fn add(&mut self, placed: &Placed, offset: u64, number: u32, page: &Page, begins: bool) {
        let is_next = self.chunk.as_ref().is_some_and(|chunk| {
            (chunk.family, chunk.file, chunk.is_certain, chunk.is_again)
                == (placed.family, placed.file, placed.is_certain, placed.is_again)
                && chunk.offset.checked_add(chunk.bytes.len() as u64) == Some(offset)
                && chunk.bytes.len() < CHUNK_EXTENTS.saturating_mul(EXTENT_BYTES)
        });
        if !is_next {
            self.hand_on();
        }
        let chunk = self.chunk.get_or_insert_with(|| Chunk {
            family: placed.family,
            file: placed.file,
            is_certain: placed.is_certain,
            is_again: placed.is_again,
            offset,
            indexes: Vec::new(),
            bytes: Vec::with_capacity(CHUNK_EXTENTS.saturating_mul(EXTENT_BYTES)),
            begins,
        });
        chunk.indexes.push(number);
        chunk.bytes.extend_from_slice(page);
    }

    /// Hands the pages on that were gathered.
    fn hand_on(&mut self) {
        let Some(chunk) = self.chunk.take() else { return };
        self.has_pages = true;
        let Some(file) = self.files.get(&chunk.file) else { return };
        let Some(family) = self.extents.families.get(chunk.family) else { return };
        let allocations: Arc<dyn Allocations> =
            if chunk.is_certain { file.allocations.clone() } else { Arc::new(NotKnown) };
        // A file counts as opened where its pages begin, and that is once: the pages of every other
        // chunk come behind one that is not there.
        let (begin, mut indexes) = match chunk.begins {
            true => (chunk.offset, Vec::new()),
            false => (chunk.offset.saturating_sub(PAGE), vec![0]),
        };
        indexes.extend(chunk.indexes);
        let database = self.configuration.as_ref().map(|of| of.database.as_str().into());
        let name = self.name_of(&family.name, chunk.file, chunk.is_again);
        let format = Arc::new(SqlServerPages {
            file: chunk.file,
            allocations,
            writes_checksums: self
                .boot
                .as_ref()
                .is_some_and(|boot| boot.setting == Protection::Checksum),
        });
        let file = PageFile {
            first_offset: ByteOffset(begin),
            partial_page: Severity::Notice,
            selection: Some(indexes.into()),
            database,
            witnesses: std::iter::once(file.strays.clone() as Arc<dyn Witness>)
                .chain(file.taker.clone().filter(|_| chunk.is_certain))
                .collect(),
            ..PageFile::of(name, family.path.clone(), 0, format)
        };
        let (file, offset) = (Arc::new(file), ByteOffset(chunk.offset));
        self.ready.push_back(Step::Pages(StreamedPages::whole(file, offset, chunk.bytes)));
    }

    /// What the place of pages is called: the file that they lie in, and where one page number may
    /// come more than once, which of them this is.
    fn name_of(&self, family: &str, file: u16, is_again: bool) -> String {
        let mut name = family.to_owned();
        if self.sets > 1 {
            name.push_str(&format!(", set {}", self.sets));
        }
        let files = self.configuration.iter().flat_map(|of| &of.files);
        if file != 1 || files.filter(|file| !file.is_log).count() > 1 {
            name.push_str(&format!(", file {file}"));
        }
        if is_again {
            name.push_str(", again");
        }
        name
    }

    /// Looks for the boot page.
    fn learn(&mut self, placed: &Placed) {
        if placed.file != 1 || placed.index != BOOT_PAGE / EXTENT_PAGES {
            return;
        }
        let slot = usize::try_from(BOOT_PAGE % EXTENT_PAGES).unwrap_or(0);
        let Some(page) = placed.bytes.as_chunks::<PAGE_BYTES>().0.get(slot) else { return };
        if let Some(boot) = BootPage::parse(page) {
            self.setting.get_or_insert(boot.setting);
            self.engine.get_or_insert_with(|| boot.engine());
            let mut checkpoint = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
            checkpoint.get_or_insert(boot.checkpoint);
            drop(checkpoint);
            self.boot = Some(boot);
        }
    }

    fn unread(&mut self, family: usize, offset: u64, bytes: usize, error: &str) {
        let name = self.extents.families.get(family).map_or("", |family| family.name.as_str());
        self.ready.push_back(Step::Unread(Unread::stretch(
            name.to_owned(),
            ByteOffset(offset),
            bytes as u64,
            error.to_owned(),
        )));
    }
}

/// Takes the pages of free space out of an extent.
fn learn_allocations(allocations: &StreamAllocations, placed: &Placed) {
    let first = placed.index.saturating_mul(EXTENT_PAGES);
    for (page, number) in placed.bytes.as_chunks::<PAGE_BYTES>().0.iter().zip(first..) {
        if (number == 1 || (number > 0 && number % PFS_PAGES == 0))
            && let Some(interval) = Interval::parse(page, placed.file, number)
        {
            allocations.learn(number, interval);
        }
    }
}

impl Iterator for Backup {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            // All before the barrier is judged by now.
            if let Some(strays) = self.after_barrier.take() {
                let notes = strays.iter().filter_map(|(name, strays)| strays.note(name));
                self.ready.extend(notes);
                if !self.ready.is_empty() {
                    continue;
                }
            }
            if self.has_ended {
                return None;
            }
            match self.extents.next() {
                Some(event) => self.take(event),
                None => {
                    self.has_ended = true;
                    self.hand_on();
                    if self.first.is_none() && !self.has_pages {
                        let error = "no backup of a SQL Server database was found in it";
                        self.unread(0, 0, 0, error);
                    } else if !self.has_pages && self.first_kind != Some(SetKind::Log) {
                        let text = "there is no page of a data file in it";
                        let file = file_name(&self.path);
                        self.ready.push_back(Step::Note(Note { file, text: text.to_owned() }));
                    }
                }
            }
        }
    }
}
