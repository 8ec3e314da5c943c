//! The blocks that replay of the log overwrites before it reads them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::files::catalogue::Catalogue;
use crate::files::control::{u32_at, u64_at};
use crate::files::wal::block::{
    BACKUP_END, Dialect, Locator, MULTIXACTS_TRUNCATE, OF_DATABASES, OF_LOG, OF_MAPS,
    OF_MULTIXACTS, OF_STATUS, OF_STORAGE, OF_TABLESPACES, STATUS_TRUNCATE, STORAGE_CREATE,
    STORAGE_TRUNCATE, touched,
};
use crate::files::wal::reader::{LogReader, Record, Stop};
use crate::files::wal::segment::Segments;
use crate::files::wal::span::{Span, Until, another_timeline};
use crate::page::{Fate, Recovery};
use pagewarden_core::verdict::PageNo;
use pagewarden_core::words::LsnText;

/// Blocks that are remembered. A full table of 2^21 places of 12 bytes: the log
/// of 14 GiB of pages in 27 MiB. What does not fit is in doubt.
const BLOCKS_MAX: usize = (1 << 21) / 8 * 7;
/// Relations, and databases, that are remembered.
const RELATIONS_MAX: usize = 1 << 16;
/// Bytes of the log that are read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The log that is to be replayed in one cluster, read when the first page asks.
#[derive(Debug)]
pub struct Replay {
    /// Where the log is and how much of it counts, or why that is not known.
    log: Result<(Segments, Span), String>,
    catalogue: Option<Catalogue>,
    /// False where images of pages are not in the log at all.
    full_page_writes: bool,
    scanned: OnceLock<Scanned>,
}

/// What the log says.
#[derive(Debug)]
pub struct Scanned {
    /// What replay does first to a block, by the index of its relation's fork.
    blocks: HashMap<(u32, u32), First>,
    forks: HashMap<(Locator, u8), u32>,
    /// Relations and databases (file number 0) about which the log has more to
    /// say than blocks.
    unclear: HashSet<Locator>,
    /// Databases whose map of catalogues changes; 0 for that of the whole cluster.
    maps: HashSet<u32>,
    /// Tablespaces that are made or dropped.
    tablespaces: HashSet<u32>,
    /// True if old transactions or multixacts are forgotten.
    forgets: bool,
    /// Where the log was read from.
    begin: u64,
    /// Where it ends.
    end: u64,
    /// Where its last record begins.
    last: Option<u64>,
    /// An upper bound for the end, by the files there are.
    newest: u64,
    /// Why it is not the whole log, if it is not.
    gap: Option<String>,
    /// True if there was more than can be remembered.
    full: bool,
}

/// What replay does first to a block: where in the log it overwrites it, in
/// units of 8 bytes from the begin, or one of the marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct First(u32);

impl First {
    /// It reads the block.
    const READ: Self = Self(u32::MAX);
    /// It reads the block, and overwrites it later.
    const READ_THEN_OVERWRITTEN: Self = Self(u32::MAX - 1);
    /// It overwrites the block, farther on than can be said.
    const FAR: Self = Self(u32::MAX - 2);

    fn overwritten(begin: u64, at: u64) -> Self {
        let distance = u32::try_from(at.saturating_sub(begin) / 8).unwrap_or(u32::MAX);
        Self(distance.min(Self::FAR.0))
    }
}

impl Replay {
    /// A span of the log, or why there is none. Reads nothing yet.
    #[must_use]
    pub fn new(
        log: Result<(Segments, Span), String>,
        catalogue: Option<Catalogue>,
        full_page_writes: bool,
    ) -> Self {
        Self { log, catalogue, full_page_writes, scanned: OnceLock::new() }
    }

    /// False if it is not even known which log is to be replayed.
    #[must_use]
    pub fn knows_its_log(&self) -> bool {
        self.log.is_ok()
    }

    /// What the log says, read now if it was not.
    pub fn scanned(&self) -> &Scanned {
        self.scanned.get_or_init(|| match &self.log {
            Ok((segments, span)) => Scanned::read(segments, *span),
            Err(reason) => Scanned { gap: Some(reason.clone()), ..Scanned::new(0) },
        })
    }

    /// True if a server has gone on writing the log since it was read.
    fn has_grown(&self, scanned: &Scanned) -> bool {
        let Ok((segments, Span { until: Until::EndOfLog(_), .. })) = &self.log else {
            return false;
        };
        // One page is enough.
        let mut reader = LogReader::new(segments.clone(), scanned.end, scanned.last, 0);
        reader.next_record().is_ok()
    }

    /// What recovery does to a page of a fork, `lsn` standing in its header.
    fn fate(&self, place: &PlaceInLog, page: PageNo, lsn: u64) -> Fate {
        let Ok(block) = u32::try_from(page.0) else { return Fate::Kept(String::new()) };
        let scanned = self.scanned();
        let first = scanned.first(place.locator, place.fork, block);
        let doubt = |reason: &str| Fate::Unknown(reason.to_owned());
        match first {
            Some(First::READ_THEN_OVERWRITTEN) => {
                return doubt("replay of the log reads it before it overwrites it");
            }
            Some(First::READ) | None => {}
            Some(First::FAR) => return Fate::Overwritten(None),
            Some(First(distance)) => {
                let at = scanned.begin.saturating_add(u64::from(distance).saturating_mul(8));
                return Fate::Overwritten(Some(at));
            }
        }
        if let Some(gap) = &scanned.gap {
            return doubt(gap);
        }
        if scanned.full && first.is_none() {
            return doubt("the log touches more pages than can be remembered");
        }
        if scanned.is_unclear(place.locator) {
            return doubt("the log creates or cuts this relation");
        }
        if place.fork != MAIN {
            return doubt("nothing in the log overwrites it");
        }
        if lsn > scanned.end && lsn <= scanned.newest {
            return doubt("it is newer than the end of the log");
        }
        if self.has_grown(scanned) {
            return doubt("the log is being written");
        }
        let listed = self.catalogue.as_ref().map(|catalogue| {
            *place.established.get_or_init(|| catalogue.establishes(place.locator))
        });
        if listed != Some(true) {
            return doubt(
                "no committed row of a catalogue lists its relation, which may be unfinished or left behind",
            );
        }
        let off = if self.full_page_writes { "" } else { " (full_page_writes is off)" };
        Fate::Kept(format!(
            "nothing in the log from {} to {} overwrites this page{off}",
            LsnText(scanned.begin),
            LsnText(scanned.end)
        ))
    }
}

/// The number of the main fork.
pub const MAIN: u8 = 0;
/// The number of the init fork.
pub const INIT: u8 = 3;

impl Scanned {
    fn new(begin: u64) -> Self {
        Self {
            blocks: HashMap::new(),
            forks: HashMap::new(),
            unclear: HashSet::new(),
            maps: HashSet::new(),
            tablespaces: HashSet::new(),
            forgets: false,
            begin,
            end: begin,
            last: None,
            newest: 0,
            gap: None,
            full: false,
        }
    }

    /// Reads a span of the log.
    fn read(segments: &Segments, span: Span) -> Self {
        let mut scanned = Self::new(span.begin);
        for segment in segments.listed() {
            let end = segment.begin.saturating_add(segments.segment_bytes());
            if segment.timeline == span.timeline {
                scanned.newest = scanned.newest.max(end);
            } else if segment.timeline > span.timeline && end > span.begin {
                scanned.gap = Some(another_timeline());
            }
        }
        if scanned.gap.is_none() {
            scanned.gap = scanned.read_records(segments, span).err();
        }
        scanned
    }

    /// Reads to the end of the log; an error says why it is not the whole log.
    fn read_records(&mut self, segments: &Segments, span: Span) -> Result<(), String> {
        let mut reader = LogReader::new(segments.clone(), span.begin, None, CHUNK_BYTES);
        let mut met_checkpoint = false;
        let stop = loop {
            let record = match reader.next_record() {
                Ok(record) => record,
                Err(stop) => break stop,
            };
            met_checkpoint |= record.begin == span.checkpoint;
            let ends_backup = self.add(&record, span).ok_or_else(|| {
                format!("the record at {} is not understood", LsnText(record.begin))
            })?;
            (self.end, self.last) = (record.end, Some(record.begin));
            let reached = match span.until {
                Until::EndOfLog(_) => false,
                Until::EndOfBackup => ends_backup,
                Until::Position(position) => record.end >= position,
            };
            if reached && met_checkpoint {
                return Ok(());
            }
        };
        let end = LsnText(self.end);
        match (stop, span.until) {
            (Stop::Gap(gap), _) => Err(format!("{gap} (the available log ends at {end})")),
            (Stop::End, _) if !met_checkpoint => {
                Err(format!("the log ends at {end}, before the checkpoint's record"))
            }
            (Stop::End, Until::EndOfLog(least)) if self.end < least => {
                Err(format!("the log ends at {end}, before minRecoveryPoint"))
            }
            (Stop::End, Until::EndOfLog(_)) if reader.goes_on() => {
                Err(format!("the log has a hole at {end}"))
            }
            (Stop::End, Until::EndOfLog(_)) => Ok(()),
            (Stop::End, _) => Err(format!("the log ends at {end}, before the end of the backup")),
        }
    }

    /// Takes in a record; true if it ends the backup that began where `span`
    /// does. `None`: the record is not understood.
    fn add(&mut self, record: &Record<'_>, span: Span) -> Option<bool> {
        let dialect = Dialect::of_magic(record.magic)?;
        let main = touched(record.head, dialect, |touched| {
            if matches!(touched.fork, MAIN | INIT) {
                self.touch(
                    touched.locator,
                    touched.fork,
                    touched.block,
                    touched.overwritten,
                    record.begin,
                );
            }
        })?;
        let operation = record.header.operation();
        match (record.header.manager, operation) {
            (OF_LOG, BACKUP_END) => return Some(u64_at(main, 0) == Some(span.begin)),
            (OF_STORAGE, STORAGE_CREATE) => self.make_unclear(Locator::read(main, 0)?),
            (OF_STORAGE, STORAGE_TRUNCATE) => self.make_unclear(Locator::read(main, 4)?),
            (OF_DATABASES, _) => {
                let database = u32_at(main, 0)?;
                self.make_unclear(Locator { tablespace: 0, database, number: 0 });
            }
            // As many as there are databases and tablespaces.
            (OF_MAPS, _) if self.maps.len() < RELATIONS_MAX => {
                self.maps.insert(u32_at(main, 0)?);
            }
            (OF_TABLESPACES, _) if self.tablespaces.len() < RELATIONS_MAX => {
                self.tablespaces.insert(u32_at(main, 0)?);
            }
            (OF_MAPS | OF_TABLESPACES, _) => self.full = true,
            (OF_STATUS, STATUS_TRUNCATE) | (OF_MULTIXACTS, MULTIXACTS_TRUNCATE) => {
                self.forgets = true;
            }
            _ => {}
        }
        Some(false)
    }

    fn touch(&mut self, locator: Locator, fork: u8, block: u32, overwritten: bool, at: u64) {
        let index = match self.forks.get(&(locator, fork)) {
            Some(index) => *index,
            None if self.forks.len() < RELATIONS_MAX => {
                let index = u32::try_from(self.forks.len()).unwrap_or(u32::MAX);
                self.forks.insert((locator, fork), index);
                index
            }
            None => {
                self.full = true;
                return;
            }
        };
        let room = self.blocks.len() < BLOCKS_MAX;
        match self.blocks.entry((index, block)) {
            Entry::Occupied(mut entry) => {
                if *entry.get() == First::READ && overwritten {
                    entry.insert(First::READ_THEN_OVERWRITTEN);
                }
            }
            Entry::Vacant(entry) if room => {
                let overwritten = overwritten.then(|| First::overwritten(self.begin, at));
                entry.insert(overwritten.unwrap_or(First::READ));
            }
            Entry::Vacant(_) => self.full = true,
        }
    }

    fn make_unclear(&mut self, locator: Locator) {
        if self.unclear.len() < RELATIONS_MAX {
            self.unclear.insert(locator);
        } else {
            self.full = true;
        }
    }

    fn is_unclear(&self, locator: Locator) -> bool {
        let database = Locator { tablespace: 0, number: 0, ..locator };
        self.unclear.contains(&locator) || self.unclear.contains(&database)
    }

    fn first(&self, locator: Locator, fork: u8, block: u32) -> Option<First> {
        let index = self.forks.get(&(locator, fork))?;
        self.blocks.get(&(*index, block)).copied()
    }

    /// True if replay may make or drop this database.
    #[must_use]
    pub fn may_make_database(&self, database: u32) -> bool {
        let folder = Locator { tablespace: 0, database, number: 0 };
        self.full || self.unclear.contains(&folder)
    }

    /// True if replay may make or drop this tablespace.
    #[must_use]
    pub fn may_make_tablespace(&self, tablespace: u32) -> bool {
        self.full || self.tablespaces.contains(&tablespace)
    }

    /// True if replay may make or cut the file of a catalogue, or give it another. Images of
    /// its pages do not: they bring back those pages only.
    #[must_use]
    pub fn may_make_catalogue(&self, locator: Locator) -> bool {
        self.full || self.is_unclear(locator) || self.maps.contains(&locator.database)
    }

    /// True if old transactions or multixacts are forgotten, so that segments of the logs of
    /// their status may have been removed.
    #[must_use]
    pub fn forgets(&self) -> bool {
        self.forgets
    }

    /// Where replay begins; 0 if that is not known.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Where the log ends, as far as it is available.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Why this is not the whole log, if it is not.
    #[must_use]
    pub fn gap(&self) -> Option<&str> {
        self.gap.as_deref()
    }

    /// All blocks that replay overwrites before it reads them.
    pub fn overwritten(&self) -> impl Iterator<Item = (Locator, u8, u32)> + '_ {
        let by_index: HashMap<_, _> =
            self.forks.iter().map(|(fork, index)| (*index, *fork)).collect();
        self.blocks.iter().filter_map(move |((index, block), first)| {
            let (locator, fork) = by_index.get(index)?;
            (first.0 <= First::FAR.0).then_some((*locator, *fork, *block))
        })
    }
}

#[derive(Debug)]
struct PlaceInLog {
    locator: Locator,
    fork: u8,
    /// Whether a catalogue lists it, once that was asked.
    established: OnceLock<bool>,
}

/// What recovery does to the pages of one fork of a relation.
#[derive(Debug)]
pub struct ReplayOfFork {
    replay: Arc<Replay>,
    place: PlaceInLog,
}

impl ReplayOfFork {
    /// For a fork, by its number in the log.
    #[must_use]
    pub fn new(replay: Arc<Replay>, locator: Locator, fork: u8) -> Self {
        Self { replay, place: PlaceInLog { locator, fork, established: OnceLock::new() } }
    }
}

impl Recovery for ReplayOfFork {
    fn fate_of(&self, page: PageNo, lsn: u64) -> Fate {
        self.replay.fate(&self.place, page, lsn)
    }
}
