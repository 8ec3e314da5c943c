//! What the cluster's own log, and archives of it, say of the blocks that are to be repaired, from as
//! far back as they reach to the checkpoint of the shutdown.
//!
//! Records name the blocks that they change. What changes blocks without naming them:
//!
//! | record | what it may change |
//! | --- | --- |
//! | a file is created (`XLOG_SMGR_CREATE`) | that relation: its number may have been another's |
//! | a file is cut (`XLOG_SMGR_TRUNCATE`) | its blocks from there on |
//! | a transaction ends, and drops files | those relations |
//! | a database is created, copied, moved or dropped | all of that database |
//! | a tablespace is created or dropped | all of it |
//! | `wal_level` becomes minimal | everything: bulk loads are not logged then |
//! | a manager of an extension, or one that is not known | everything |
//!
//! Sources: `xact.c` (`ParseCommitRecord`), `storage_xlog.h`, `dbcommands_xlog.h`, `tablespace.h`,
//! `xlog_internal.h` (`xl_parameter_change`) of 10 to 18.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::files::archived_log::{self, LogArchive};
use crate::files::control::{Control, is_same_checkpoint, u32_at};
use crate::files::wal::block::{
    CHECKPOINT_ONLINE, CHECKPOINT_SHUTDOWN, Dialect, LAST_MANAGER, Locator, OF_DATABASES, OF_LOG,
    OF_STORAGE, OF_TABLESPACES, OF_TRANSACTIONS, PARAMETER_CHANGE, STORAGE_CREATE,
    STORAGE_TRUNCATE, images, touched,
};
use crate::files::wal::image::restore;
use crate::files::wal::reader::{LogReader, Record, Stop};
use crate::files::wal::segment::Segments;
use crate::repair::length::{Change, Steps};
use pagewarden_core::words::LsnText;

const CHUNK_BYTES: usize = 256 << 10;
/// As much of a record as is kept: the end of a transaction that drops eighty thousand files.
const RECORD_BYTES: usize = 1 << 20;
/// A record with 33 images of the largest pages is smaller.
const IMAGES_BYTES: usize = 4 << 20;

/// `RM_HASH_ID`, `RM_GIST_ID`: their replay changes a page after it has restored its image, which
/// lacks what is known only once the record is written (in GiST the number of the split and the flag
/// that a page on the right follows; `gistRedoClearFollowRight`, `hash_xlog_split_allocate_page`).
const CHANGED_BEHIND_IMAGES: [u8; 2] = [12, 14];

/// `SMGR_TRUNCATE_HEAP`: the main fork is cut, and not a map alone.
const CUTS_MAIN: u32 = 1;

const MINIMAL: &str = "wal_level was minimal, so bulk loads are not in the log,";

/// What is asked of the log.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) blocks: HashSet<Block>,
    /// Relations whose files lack pages: how long they were, and these blocks of their main forks.
    pub(super) relations: HashMap<Locator, Range<u32>>,
}

impl Wanted {
    fn has(&self, block: Block) -> bool {
        let in_range = || {
            let range = self.relations.get(&block.locator);
            block.fork == 0 && range.is_some_and(|range| range.contains(&block.number))
        };
        self.blocks.contains(&block) || in_range()
    }
}

/// A block of a relation's fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) locator: Locator,
    pub(super) fork: u8,
    pub(super) number: u32,
}

/// A record that names a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) begin: u64,
    /// What a page's header says once it was changed by this record.
    pub(super) end: u64,
    pub(super) transaction: u32,
    /// The record holds the whole page, as it was when all of the record was done.
    pub(super) has_image: bool,
}

/// A record that changes what it does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) begin: u64,
    pub(super) reach: Reach,
    pub(super) what: &'static str,
}

/// What an [`Event`] may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// A relation, from this block on.
    Relation(Locator, u32),
    Database(u32),
    Tablespace(u32),
    Everything,
}

/// Log beside the cluster's own.
pub(super) struct Archived<'a> {
    /// Where it is kept.
    pub(super) archives: &'a [Arc<dyn LogArchive>],
    /// From where on it is of use.
    pub(super) since: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    segments: Segments,
    /// The first record that was read begins here or behind.
    pub(super) begin: u64,
    /// Behind the record of the shutdown's checkpoint.
    pub(super) end: u64,
    touches: HashMap<Block, Vec<Touch>>,
    pub(super) events: Vec<Event>,
    /// What it says of the lengths of the wanted relations.
    lengths: HashMap<Locator, Steps>,
    /// Checkpoints by the positions of their records.
    checkpoints: BTreeMap<u64, Vec<u8>>,
}

/// Why a stretch of the log could not be read.
struct Broken {
    at: u64,
    why: String,
}

impl Log {
    /// Reads the log of a cluster that was shut down, for these blocks.
    ///
    /// # Errors
    /// In words, why it does not lead to the checkpoint of the shutdown, or leads on behind it.
    pub(super) fn read(
        root: &Path,
        control: &Control,
        control_bytes: &[u8],
        wanted: &Wanted,
        archived: &Archived<'_>,
    ) -> Result<Self, String> {
        let folder = root.join("pg_wal");
        let mut segments = Segments::of(control, control.timeline, vec![folder])?;
        let own: BTreeSet<u64> = segments.listed().map(|name| name.begin).collect();
        segments.loose = archived_log::segments_of_all(archived.archives, control);
        let segment_bytes = segments.segment_bytes();
        let last = control
            .checkpoint_lsn
            .saturating_sub(control.checkpoint_lsn.checked_rem(segment_bytes).unwrap_or(0));
        let there: BTreeSet<u64> = segments
            .listed()
            .filter(|name| name.timeline == control.timeline)
            .map(|name| name.begin)
            .collect();
        let mut first = last;
        while let Some(before) = first.checked_sub(segment_bytes) {
            // Archives go back for years, and what happened before a copy was made proves nothing.
            let is_wanted = own.contains(&before) || archived.since < first;
            if !there.contains(&before) || !is_wanted {
                break;
            }
            first = before;
        }
        let checkpoint = Control::checkpoint_of(control_bytes)
            .ok_or("the layout of this version's control file is not certain")?;
        loop {
            match Self::read_from(&segments, first, control, checkpoint, wanted) {
                Ok(log) => return Ok(log),
                Err(broken) => {
                    // What comes before a break proves nothing about what comes after it.
                    let inside = broken.at.checked_rem(segment_bytes).unwrap_or(0);
                    let next = broken.at.saturating_sub(inside).saturating_add(segment_bytes);
                    if next > last || next <= first {
                        return Err(broken.why);
                    }
                    first = next;
                }
            }
        }
    }

    fn read_from(
        segments: &Segments,
        first: u64,
        control: &Control,
        checkpoint: &[u8],
        wanted: &Wanted,
    ) -> Result<Self, Broken> {
        let reader = LogReader::new(segments.clone(), first, None, CHUNK_BYTES);
        let mut reader = reader.keeping(RECORD_BYTES);
        let broken = |at: u64, stop: Stop| Broken {
            at,
            why: match stop {
                Stop::End => format!("the log ends at {}, before the last checkpoint", LsnText(at)),
                Stop::Gap(why) => why,
            },
        };
        reader.go_to(first).map_err(|stop| broken(first, stop))?;
        let mut log = Self {
            segments: segments.clone(),
            begin: first,
            end: first,
            touches: HashMap::new(),
            events: Vec::new(),
            lengths: wanted.relations.keys().map(|key| (*key, Steps::default())).collect(),
            checkpoints: BTreeMap::new(),
        };
        let mut at = first;
        loop {
            let record = reader.next_record().map_err(|stop| broken(at, stop))?;
            let begin = record.begin;
            if log.end == first {
                log.begin = begin;
            }
            at = record.end;
            let not_understood = || Broken {
                at,
                why: format!("the record at {} is not understood", LsnText(begin)),
            };
            log.add(&record, wanted).ok_or_else(not_understood)?;
            log.end = record.end;
            if begin >= control.checkpoint_lsn {
                break;
            }
        }
        let last = log.checkpoints.last_key_value();
        let is_last = last.is_some_and(|(position, found)| {
            *position == control.checkpoint_lsn && is_same_checkpoint(found, checkpoint)
        });
        if !is_last {
            let why = "the log does not hold the checkpoint that the control file names";
            return Err(Broken { at, why: why.to_owned() });
        }
        // A record behind the end is one that the control file knows nothing of.
        let next = match reader.next_record() {
            Ok(record) => Some(record.begin),
            Err(Stop::Gap(_)) => None,
            Err(Stop::End) => reader.goes_on().then_some(log.end),
        };
        if let Some(next) = next {
            let why = format!("the log goes on at {}, behind the last checkpoint", LsnText(next));
            return Err(Broken { at: u64::MAX, why });
        }
        Ok(log)
    }

    /// Takes in a record. `None`: it is not understood.
    fn add(&mut self, record: &Record<'_>, wanted: &Wanted) -> Option<()> {
        let main = self.add_blocks(record, wanted)?;
        self.add_event(record, main)
    }

    /// Takes in what it does to wanted blocks. Returns its own data.
    fn add_blocks<'a>(&mut self, record: &Record<'a>, wanted: &Wanted) -> Option<&'a [u8]> {
        let dialect = Dialect::of_magic(record.magic)?;
        let mut found = Vec::new();
        let is_complete = !CHANGED_BEHIND_IMAGES.contains(&record.header.manager);
        let main = touched(record.head, dialect, |touched| {
            let block =
                Block { locator: touched.locator, fork: touched.fork, number: touched.block };
            if wanted.has(block) {
                found.push((block, touched.image.is_some() && is_complete));
            }
            if block.fork == 0
                && let Some(steps) = self.lengths.get_mut(&block.locator)
            {
                steps.add(record.begin, Change::Names(block.number));
            }
        })?;
        for (block, has_image) in found {
            let touch = Touch {
                begin: record.begin,
                end: record.end,
                transaction: record.header.transaction,
                has_image,
            };
            self.touches.entry(block).or_default().push(touch);
        }
        Some(main)
    }

    /// Takes in what it does to whole files, by its own data.
    fn add_event(&mut self, record: &Record<'_>, main: &[u8]) -> Option<()> {
        let operation = record.header.operation();
        let is_whole = u32::try_from(record.head.len()).ok() == Some(record.header.total);
        let event = |reach, what| Event { begin: record.begin, reach, what };
        match (record.header.manager, operation) {
            (OF_LOG, CHECKPOINT_SHUTDOWN | CHECKPOINT_ONLINE) => {
                self.checkpoints.insert(record.begin, main.to_vec());
            }
            (OF_LOG, PARAMETER_CHANGE) if wal_level(main).is_none_or(|level| level == 0) => {
                self.events.push(event(Reach::Everything, MINIMAL));
            }
            (OF_STORAGE, STORAGE_CREATE) => {
                let locator = Locator::read(main, 0)?;
                if u32_at(main, 12)? == 0 {
                    self.resize(locator, record.begin, Change::Created);
                }
                let reach = Reach::Relation(locator, 0);
                self.events.push(event(reach, "its file was created"));
            }
            (OF_STORAGE, STORAGE_TRUNCATE) => {
                let (from, locator) = (u32_at(main, 0)?, Locator::read(main, 4)?);
                if u32_at(main, 16)? & CUTS_MAIN != 0 {
                    self.resize(locator, record.begin, Change::Cut(from));
                }
                let reach = Reach::Relation(locator, from);
                self.events.push(event(reach, "its file was cut"));
            }
            (OF_DATABASES, _) => {
                let reach = Reach::Database(u32_at(main, 0)?);
                self.events.push(event(reach, "its database was created, moved or dropped"));
            }
            (OF_TABLESPACES, _) => {
                let reach = Reach::Tablespace(u32_at(main, 0)?);
                self.events.push(event(reach, "its tablespace was created or dropped"));
            }
            (OF_TRANSACTIONS, _) if !is_whole => {
                self.events.push(event(Reach::Everything, "very many files were dropped"));
            }
            (OF_TRANSACTIONS, _) => {
                for locator in dropped(main, record.header.info)? {
                    self.resize(locator, record.begin, Change::Dropped);
                    self.events.push(event(Reach::Relation(locator, 0), "its file was dropped"));
                }
            }
            (manager, _) if manager > LAST_MANAGER => {
                self.events.push(event(Reach::Everything, "an extension wrote to the log"));
            }
            _ => {}
        }
        Some(())
    }

    fn resize(&mut self, locator: Locator, begin: u64, change: Change) {
        if let Some(steps) = self.lengths.get_mut(&locator) {
            steps.add(begin, change);
        }
    }

    /// What it says of the length of a wanted relation's main fork.
    pub(super) fn lengths(&self, locator: Locator) -> Option<&Steps> {
        self.lengths.get(&locator)
    }

    /// What from a position on may have changed all of a relation, its length too, and is no matter of
    /// that relation alone.
    pub(super) fn wide_event(&self, locator: Locator, since: u64) -> Option<Event> {
        let reaches = |event: &&Event| match event.reach {
            Reach::Relation(..) => false,
            Reach::Database(database) => database == locator.database,
            Reach::Tablespace(tablespace) => tablespace == locator.tablespace,
            Reach::Everything => true,
        };
        self.events.iter().rev().filter(|event| event.begin >= since).find(reaches).copied()
    }

    /// The same of a cluster whose last server ran with `wal_level` minimal.
    pub(super) fn of_minimal_level(mut self) -> Self {
        let last = self.checkpoints.last_key_value().map_or(self.end, |(position, _)| *position);
        let begin = last.saturating_sub(1);
        self.events.push(Event { begin, reach: Reach::Everything, what: MINIMAL });
        self
    }

    /// The records that name a block, in their order.
    pub(super) fn touches(&self, block: Block) -> &[Touch] {
        self.touches.get(&block).map_or(&[], Vec::as_slice)
    }

    /// The last record that may have changed a block without naming it.
    pub(super) fn last_event(&self, block: Block) -> Option<Event> {
        let reaches = |event: &&Event| match event.reach {
            Reach::Relation(locator, from) => locator == block.locator && from <= block.number,
            Reach::Database(database) => database == block.locator.database,
            Reach::Tablespace(tablespace) => tablespace == block.locator.tablespace,
            Reach::Everything => true,
        };
        self.events.iter().rev().find(reaches).copied()
    }

    /// What the record of a checkpoint at this position says.
    pub(super) fn checkpoint_at(&self, position: u64) -> Option<&[u8]> {
        self.checkpoints.get(&position).map(Vec::as_slice)
    }

    /// The page that the record of a touch holds; its checksum is not set.
    pub(super) fn image(&self, block: Block, touch: Touch, page_size: usize) -> Option<Vec<u8>> {
        let reader = LogReader::new(self.segments.clone(), touch.begin, None, CHUNK_BYTES);
        let mut reader = reader.keeping(IMAGES_BYTES);
        let record = reader.next_record().ok().filter(|record| record.begin == touch.begin)?;
        let dialect = Dialect::of_magic(record.magic)?;
        let images = images(record.head, dialect)?;
        let (found, bytes) = images.into_iter().find(|(touched, _)| {
            let found = (touched.locator, touched.fork, touched.block);
            found == (block.locator, block.fork, block.number)
        })?;
        restore(&found.image?, bytes, page_size, record.end)
    }

    /// The name of the segment that holds a position.
    pub(super) fn segment(&self, position: u64) -> String {
        self.segments.name_of(position)
    }

    /// The segments of the log, from the first that was read to that of a position, as name, begin
    /// and length.
    pub(super) fn segments_to(&self, position: u64) -> impl Iterator<Item = (String, u64)> + '_ {
        let bytes = self.segments.segment_bytes();
        let first = self.segments.segment_of(self.begin).begin;
        let begins = std::iter::successors(Some(first), move |begin| begin.checked_add(bytes));
        begins
            .take_while(move |begin| *begin < position)
            .map(|begin| (self.segments.name_of(begin), begin))
    }

    /// Opens the segment that holds a position.
    ///
    /// # Errors
    /// `NotFound` where there is none, or what the system says of it.
    pub(super) fn open(&self, position: u64) -> io::Result<File> {
        self.segments.open(position)
    }

    /// Bytes in a segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.segments.segment_bytes()
    }
}

/// `wal_level` in a record of settings: its fifth word up to 11, the sixth from 12 on, where the
/// processes that send the log were added.
fn wal_level(main: &[u8]) -> Option<u32> {
    match main.len() {
        24 => u32_at(main, 16),
        28 => u32_at(main, 20),
        _ => None,
    }
}

/// The relations that the end of a transaction drops.
fn dropped(main: &[u8], info: u8) -> Option<Vec<Locator>> {
    const OPERATION: u8 = 0x70;
    const HAS_INFO: u8 = 0x80;
    const HAS_DATABASE: u32 = 1;
    const HAS_SUBTRANSACTIONS: u32 = 2;
    const HAS_FILES: u32 = 4;
    // Commit, abort, and both of what was prepared.
    if !matches!(info & OPERATION, 0x00 | 0x20 | 0x30 | 0x40) || info & HAS_INFO == 0 {
        return Some(Vec::new());
    }
    let flags = u32_at(main, 8)?;
    let mut at = 12_usize;
    if flags & HAS_DATABASE != 0 {
        at = at.checked_add(8)?;
    }
    if flags & HAS_SUBTRANSACTIONS != 0 {
        let count = usize::try_from(u32_at(main, at)?).ok()?;
        at = at.checked_add(4)?.checked_add(count.checked_mul(4)?)?;
    }
    if flags & HAS_FILES == 0 {
        return Some(Vec::new());
    }
    let count = usize::try_from(u32_at(main, at)?).ok()?;
    let end = at.checked_add(4)?.checked_add(count.checked_mul(12)?)?;
    main.get(..end)?;
    (0..count)
        .map(|index| Locator::read(main, at.checked_add(4)?.checked_add(index.checked_mul(12)?)?))
        .collect()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
impl Log {
    /// A log that was not read.
    pub(super) fn made_up(range: Range<u64>, touches: &[(Block, Touch)], events: &[Event]) -> Self {
        let identity = crate::files::wal::segment::Identity {
            system_identifier: 1,
            segment_bytes: 16 << 20,
            page_bytes: 8192,
        };
        let segments = Segments { folders: Vec::new(), loose: None, timeline: 1, identity };
        let mut by_block: HashMap<Block, Vec<Touch>> = HashMap::new();
        for (block, touch) in touches {
            by_block.entry(*block).or_default().push(*touch);
        }
        Self {
            segments,
            begin: range.start,
            end: range.end,
            touches: by_block,
            events: events.to_vec(),
            lengths: HashMap::new(),
            checkpoints: BTreeMap::new(),
        }
    }
}
