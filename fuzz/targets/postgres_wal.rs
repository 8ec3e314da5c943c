//! The write-ahead log: what was written is read back, record by record, and
//! replay overwrites the blocks that the records say; a log with bytes changed
//! anywhere ends early or has a gap, and is never made of other records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use pagewarden::crc::crc32c;
use pagewarden::formats::postgres::files::wal::block::{
    Dialect, Locator, RECORD_HEADER_BYTES, touched,
};
use pagewarden::formats::postgres::files::wal::reader::{LogReader, Stop};
use pagewarden::formats::postgres::files::wal::replay::{Replay, ReplayOfFork};
use pagewarden::formats::postgres::files::wal::segment::{Identity, Segments};
use pagewarden::formats::postgres::files::wal::span::{Span, Until};
use pagewarden::formats::postgres::page::{Fate, Recovery};
use pagewarden::verdict::PageNo;
use pagewarden_fuzz::empty_folder;

#[derive(Debug, Arbitrary)]
struct Input {
    records: Vec<Record>,
    /// The record whose position is said to be the checkpoint's.
    checkpoint: u8,
    until: Ending,
    chunk_bytes: u16,
    /// Zeroes in the file behind the last record.
    is_padded: bool,
    patches: Vec<(u16, u8)>,
    file_lost: Option<u8>,
    /// Taken for a record as it is.
    head: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
enum Ending {
    Log,
    Backup,
    Position(u16),
}

#[derive(Debug, Arbitrary)]
struct Record {
    info: u8,
    manager: u8,
    blocks: Vec<Block>,
    main: Main,
    /// Not made of blocks, whatever its CRC says.
    raw: Option<Vec<u8>>,
}

#[derive(Debug, Arbitrary)]
struct Block {
    number: u8,
    relation: u8,
    fork: u8,
    is_applied: bool,
    has_hole: bool,
    is_compressed: bool,
    inits: bool,
    same_relation: bool,
    image: Option<u16>,
    data: Option<u8>,
}

#[derive(Debug, Arbitrary)]
enum Main {
    None,
    Short(u8),
    Long(u16),
    /// A relation, or the position of the first record.
    Words([u32; 4]),
    Begin,
}

const PAGE_BYTES: usize = 1024;
const SEGMENT_BYTES: usize = 8 * PAGE_BYTES;
const IDENTITY: Identity = Identity {
    system_identifier: 0x1122_3344_5566_7788,
    segment_bytes: SEGMENT_BYTES as u32,
    page_bytes: PAGE_BYTES as u32,
};
/// Of 16: its images have a flag that says whether they are restored.
const MAGIC: u16 = 0xD113;
/// The second segment.
const ORIGIN: u64 = SEGMENT_BYTES as u64;
const RECORDS_MAX: usize = 40;

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let folder = empty_folder();
    let mut log = Log { bytes: Vec::new(), last: 8 };
    let begin = ORIGIN + 40;
    let mut begins = Vec::new();
    let mut first_touch = BTreeMap::new();
    let mut is_understood = true;
    for record in input.records.iter().take(RECORDS_MAX) {
        let (bytes, blocks) = record.content(begin);
        begins.push((log.append(&bytes, record.info, record.manager), bytes));
        is_understood &= record.raw.is_none() && !record.is_special();
        for (block, overwritten) in blocks {
            first_touch.entry(block).or_insert(overwritten);
        }
    }
    let written = log.bytes.len();
    log.break_page();
    if input.is_padded {
        let whole = log.bytes.len().next_multiple_of(SEGMENT_BYTES);
        log.bytes.resize(whole, 0);
    }
    let mut changed_at = None::<usize>;
    for (at, value) in input.patches.iter().filter(|_| written > 0) {
        let at = usize::from(*at) % written;
        if *value != 0 {
            log.bytes[at] ^= value;
            changed_at = Some(changed_at.map_or(at, |before| before.min(at)));
        }
    }
    let lost = input.file_lost.map(usize::from);
    write_files(folder, &log.bytes, lost);

    let segments = Segments {
        folders: vec![folder.join("none"), folder.to_owned()],
        loose: None,
        timeline: 1,
        identity: IDENTITY,
    };
    let mut reader = LogReader::new(segments.clone(), begin, None, usize::from(input.chunk_bytes));
    let is_whole = changed_at.is_none() && lost.is_none();
    let mut read = 0;
    let stop = loop {
        match reader.next_record() {
            Ok(record) => {
                let (begin, bytes) = &begins[read];
                assert_eq!(record.begin, *begin, "record {read}");
                assert_eq!(record.header.total as usize, bytes.len() + RECORD_HEADER_BYTES);
                let head = &record.head[RECORD_HEADER_BYTES..];
                assert!(bytes.starts_with(head), "record {read}");
                read += 1;
            }
            Err(stop) => break stop,
        }
    };
    if let Stop::Gap(gap) = &stop {
        assert!(!gap.is_empty());
    }
    if is_whole {
        assert_eq!(read, begins.len(), "{stop:?}");
    }
    // It stays where it stopped.
    assert_eq!(reader.next_record().err(), Some(stop));

    let checkpoint = begins.get(usize::from(input.checkpoint)).map_or(0, |record| record.0);
    let until = match input.until {
        Ending::Log => Until::EndOfLog(0),
        Ending::Backup => Until::EndOfBackup,
        Ending::Position(at) => Until::Position(begin + u64::from(at)),
    };
    let span = Span { timeline: 1, begin, checkpoint, until };
    let replay = Arc::new(Replay::new(Ok((segments, span)), None, true));
    let scanned = replay.scanned();
    assert!(scanned.end() >= begin);
    let found: BTreeSet<_> = scanned.overwritten().collect();
    if is_whole && is_understood && matches!(input.until, Ending::Log) {
        let expected: BTreeSet<_> =
            first_touch.iter().filter(|(_, first)| **first).map(|(block, _)| *block).collect();
        assert_eq!(found, expected);
        // Where the next record would begin there is a page, or a file, to show
        // that there is none.
        let next = written.next_multiple_of(8);
        let shows_end = match input.is_padded {
            true => !next.is_multiple_of(SEGMENT_BYTES),
            false => !next.is_multiple_of(PAGE_BYTES),
        };
        if shows_end {
            assert_eq!(scanned.gap().is_none(), checkpoint != 0, "{:?}", scanned.gap());
        }
    }
    for (locator, fork, block) in first_touch.keys() {
        let page = PageNo(u64::from(*block));
        let fork_of = ReplayOfFork::new(Arc::clone(&replay), *locator, *fork);
        let fate = fork_of.fate_of(page, begin);
        let is_overwritten = found.contains(&(*locator, *fork, *block));
        assert_eq!(matches!(fate, Fate::Overwritten(_)), is_overwritten, "{fate:?}");
    }

    for magic in [0xD093, 0xD10D, MAGIC] {
        let dialect = Dialect::of_magic(magic).expect("a version that is known");
        let _ = touched(&input.head, dialect, |_| ());
    }
}

impl Record {
    /// True if replay takes something else from it than blocks, or the reader
    /// goes on elsewhere.
    fn is_special(&self) -> bool {
        matches!(self.manager, 2 | 4 | 5 | 7)
    }

    /// All behind the record's header, and the blocks in the order in which
    /// they are touched, with whether they are overwritten.
    fn content(&self, begin: u64) -> (Vec<u8>, Vec<((Locator, u8, u32), bool)>) {
        if let Some(raw) = &self.raw {
            return (raw.clone(), Vec::new());
        }
        let mut headers = Vec::new();
        let mut contents = Vec::new();
        let mut touched = Vec::new();
        let mut relation = None;
        for (block, id) in self.blocks.iter().take(33).zip(0_u8..) {
            let locator = match relation {
                Some(before) if block.same_relation => before,
                _ => Locator {
                    tablespace: 1663,
                    database: 5,
                    number: 16_384 + u32::from(block.relation % 4),
                },
            };
            let is_same = block.same_relation && relation.is_some();
            let fork = block.fork % 4;
            // Without data the flag is not set, and the length is 0.
            let data_bytes = block.data.filter(|length| *length > 0);
            let flags = fork
                | if block.image.is_some() { 0x10 } else { 0 }
                | if data_bytes.is_some() { 0x20 } else { 0 }
                | if block.inits { 0x40 } else { 0 }
                | if is_same { 0x80 } else { 0 };
            headers.extend([id, flags]);
            headers.extend(u16::from(data_bytes.unwrap_or(0)).to_le_bytes());
            if let Some(image) = block.image {
                let image = image % 9000;
                headers.extend(image.to_le_bytes());
                headers.extend(24_u16.to_le_bytes());
                headers.push(
                    u8::from(block.has_hole)
                        | if block.is_applied { 0x02 } else { 0 }
                        | if block.is_compressed { 0x08 } else { 0 },
                );
                if block.has_hole && block.is_compressed {
                    headers.extend(100_u16.to_le_bytes());
                }
                contents.resize(contents.len() + usize::from(image), 0xEE);
            }
            contents.resize(contents.len() + usize::from(data_bytes.unwrap_or(0)), 0xDD);
            if !is_same {
                for part in [locator.tablespace, locator.database, locator.number] {
                    headers.extend(part.to_le_bytes());
                }
            }
            headers.extend(u32::from(block.number).to_le_bytes());
            relation = Some(locator);
            // Replay's memory is of the main and the init fork.
            if matches!(fork, 0 | 3) {
                let overwritten = block.inits || (block.image.is_some() && block.is_applied);
                touched.push(((locator, fork, u32::from(block.number)), overwritten));
            }
        }
        let main = match &self.main {
            Main::None => Vec::new(),
            Main::Short(length) => vec![0x55; usize::from(*length)],
            Main::Long(length) => vec![0x66; usize::from(*length)],
            Main::Words(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            Main::Begin => begin.to_le_bytes().to_vec(),
        };
        if let Ok(length) = u8::try_from(main.len()) {
            if length > 0 {
                headers.extend([255, length]);
            }
        } else {
            headers.push(254);
            headers.extend(u32::try_from(main.len()).unwrap_or(0).to_le_bytes());
        }
        ([headers, contents, main].concat(), touched)
    }
}

/// A log as a server writes it.
struct Log {
    bytes: Vec<u8>,
    /// Where the last record begins.
    last: u64,
}

impl Log {
    /// Begins a page where one ends.
    fn begin_page(&mut self, remaining: usize) {
        if !self.bytes.len().is_multiple_of(PAGE_BYTES) {
            return;
        }
        let begins_file = self.bytes.len().is_multiple_of(SEGMENT_BYTES);
        let info = u16::from(remaining > 0) | if begins_file { 2 } else { 0 };
        let address = ORIGIN + self.bytes.len() as u64;
        self.bytes.extend(MAGIC.to_le_bytes());
        self.bytes.extend(info.to_le_bytes());
        self.bytes.extend(1_u32.to_le_bytes());
        self.bytes.extend(address.to_le_bytes());
        self.bytes.extend(u32::try_from(remaining).unwrap_or(0).to_le_bytes());
        self.bytes.extend([0; 4]);
        if begins_file {
            self.bytes.extend(IDENTITY.system_identifier.to_le_bytes());
            self.bytes.extend(IDENTITY.segment_bytes.to_le_bytes());
            self.bytes.extend(IDENTITY.page_bytes.to_le_bytes());
        }
    }

    /// The rest of a page behind the last record is zero.
    fn break_page(&mut self) {
        let whole = self.bytes.len().next_multiple_of(PAGE_BYTES);
        self.bytes.resize(whole, 0);
    }

    /// Appends a record; where it begins.
    fn append(&mut self, content: &[u8], info: u8, manager: u8) -> u64 {
        let aligned = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(aligned, 0);
        self.begin_page(0);
        let begin = ORIGIN + self.bytes.len() as u64;
        let total = u32::try_from(content.len() + RECORD_HEADER_BYTES).unwrap_or(0);
        let mut header = Vec::with_capacity(RECORD_HEADER_BYTES);
        header.extend(total.to_le_bytes());
        header.extend(0_u32.to_le_bytes());
        header.extend(self.last.to_le_bytes());
        header.extend([info, manager, 0, 0]);
        let crc = crc32c(&[content, &header].concat());
        header.extend(crc.to_le_bytes());
        let record = [header.as_slice(), content].concat();
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            if rest.len() < record.len() {
                self.begin_page(rest.len());
            }
            let room = PAGE_BYTES - self.bytes.len() % PAGE_BYTES;
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.bytes.extend(now);
            rest = later;
        }
        self.last = begin;
        // What switches to the next segment leaves the rest of its own empty.
        if manager == 0 && info & 0xF0 == 0x40 {
            let whole = self.bytes.len().next_multiple_of(SEGMENT_BYTES);
            while self.bytes.len() < whole {
                self.begin_page(0);
                let page = (self.bytes.len() + 1).next_multiple_of(PAGE_BYTES);
                self.bytes.resize(page, 0);
            }
        }
        begin
    }
}

fn write_files(folder: &Path, bytes: &[u8], lost: Option<usize>) {
    for (segment, index) in bytes.chunks(SEGMENT_BYTES).zip(0..) {
        if lost == Some(index) {
            continue;
        }
        let number = ORIGIN as usize / SEGMENT_BYTES + index;
        let path: PathBuf = folder.join(format!("0000000100000000{number:08X}"));
        fs::write(path, segment).expect("the folder is ours");
    }
}
