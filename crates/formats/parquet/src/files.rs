//! What a Parquet file is, and what must be in it.
//!
//! | | |
//! |---|---|
//! | no footer, because the file was cut, or is still written | damage: no reader finds the columns |
//! | a footer that cannot be read, or contradicts itself | damage |
//! | a column chunk out of the file, or in another one | damage, and it is not read |
//! | pages, by their headers | as `page.rs` says; with sizes and values that add up to those of the footer |
//! | indexes | must be of these pages |
//! | an encrypted footer, encrypted columns | cannot be verified without the key |
//! | bytes between all these | named, not judged |
//!
//! Writers finish a file before they name it, and never change it: one that changes while it is read is
//! reported as unread.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::FORMAT;
use crate::page::codec::Codec;
use crate::page::{Content, ParquetPage};
use crate::table;
use pagewarden_core::database::{
    Description, Evidence, OpenOptions, PageFile, Probe, Step, StoredKind, StreamedPages, Target,
};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::open_anything;
use pagewarden_core::source::store::{Seen, StorePath, StoredFile};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity};
use pagewarden_core::words::{bytes, counted, printable};

mod batch;
mod chunk;
pub mod content;
pub mod decoder;
pub mod footer;
pub mod header;
#[cfg(test)]
mod tests;
mod unchanged;
mod window;

use batch::Batch;
use chunk::{Chunk, Walk};
use footer::{Column, Footer, Place};
use unchanged::Unchanged;
use window::Window;

/// How files are called.
pub(super) const ENDINGS: &[&str] = &["parquet", "parq"];
/// At both ends of a file.
pub const MAGIC: [u8; 4] = *b"PAR1";
/// At both ends of a file whose footer is encrypted.
pub const ENCRYPTED_MAGIC: [u8; 4] = *b"PARE";
/// The length of the footer, and the mark.
const TAIL_BYTES: usize = 8;
const MAGIC_BYTES: u64 = 4;
/// Behind the first mark is the header of a page, whose first field is its type, a number.
const PAGE_HEADER_BEGIN: u8 = 0x15;
/// Footers of a hundred thousand columns have some.
const FOOTER_BYTES_MAX: u64 = 1 << 30;
/// What old versions of parquet-mr forget of a column chunk; other readers allow as much.
const SLACK_BYTES: u64 = 100;

const HINT: &str = "take another copy of the file, or write it anew from its source";

/// How its files and tables are read where they are.
pub(super) const IN_STORE: StoredKind =
    StoredKind { probe: probe_stored, reads_folder: |_| true, end_first: true, open: open_stored };

pub(super) fn probe(path: &Path, metadata: &Metadata) -> Probe {
    let place = StorePath::local(path);
    let probe = match metadata.is_file() {
        true => probe_file(&place),
        false => Ok(Probe::yes_if(metadata.is_dir() && table::is_table(&place).is_ok_and(|it| it))),
    };
    probe.unwrap_or(Probe::No)
}

/// The end of a file is asked for only where its name or its beginning fits.
fn probe_stored(place: &StorePath, begin: &[u8]) -> io::Result<Probe> {
    let is_marked = begin.get(..MAGIC.len()).is_some_and(is_mark);
    match is_marked || is_named_parquet(place.path()) {
        true => probe_file(place),
        false => Ok(Probe::No),
    }
}

fn probe_file(place: &StorePath) -> io::Result<Probe> {
    let ends = Ends::read(&open_file(place)?)?;
    let is_named = is_named_parquet(place.path());
    Ok(match ends.bytes {
        // Nothing else tells a file that never came to be from one that is none.
        0 => Probe::yes_if(is_named),
        // The other end may be what was lost.
        _ if ends.proves_one() => Probe::Yes,
        _ if ends.has_one() || is_named => Probe::Maybe,
        _ => Probe::No,
    })
}

fn is_mark(end: &[u8]) -> bool {
    end == MAGIC || end == ENCRYPTED_MAGIC
}

fn is_named_parquet(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending))
}

pub(super) fn open(path: &Path, _: &Metadata, options: &OpenOptions) -> Result<Target, Error> {
    open_stored(&path.into(), options)
}

fn open_stored(place: &StorePath, options: &OpenOptions) -> Result<Target, Error> {
    let path = place.path();
    let failed = |source| Error::io("open", path, source);
    if !matches!(place.look().map_err(failed)?, Seen::File(_)) {
        if table::is_table(place).map_err(failed)? {
            return table::open(place, options);
        }
        return Err(Error::unrecognised(
            path,
            "neither a file nor a table of Delta Lake or Iceberg",
            "name a Parquet file, or the folder that has _delta_log or metadata",
        ));
    }
    let file = open_file(place).map_err(failed)?;
    let ends = Ends::read(&file).map_err(|source| Error::io("read", path, source))?;
    if !ends.has_one() && !is_named_parquet(path) {
        return Err(Error::unrecognised(
            path,
            "neither its beginning nor its end is that of a Parquet file",
            "if it was one, take another copy of it",
        ));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let read =
        ReadOptions { is_local: place.local_path().is_some(), expands_all: options.structure };
    let steps = FileSteps::new(name, path.to_owned(), file, read)
        .map_err(|source| Error::io("read", path, source))?;
    let description = description(path, steps.footer.as_ref());
    Ok(Target { description, steps: Box::new(steps), woken: None })
}

/// Opens a file, behind a link too.
///
/// # Errors
/// As [`StorePath::open`], and for what is no file.
pub fn open_file(place: &StorePath) -> io::Result<StoredFile> {
    let Some(path) = place.local_path() else { return place.open() };
    let file = open_anything(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file.into()),
        false => Err(io::Error::other("not a file")),
    }
}

/// The first and the last bytes of a file.
struct Ends {
    bytes: u64,
    head: Vec<u8>,
    /// The first byte behind that.
    next: Option<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn read(file: &StoredFile) -> io::Result<Self> {
        let bytes = file.length()?;
        let part = |offset: u64, length: usize| {
            let mut part = vec![0; length];
            let count = file.read_fully(&mut part, offset)?;
            part.truncate(count);
            io::Result::Ok(part)
        };
        let mut head = part(0, MAGIC.len().saturating_add(1))?;
        let next = head.get(MAGIC.len()).copied();
        head.truncate(MAGIC.len());
        Ok(Self { bytes, head, next, tail: part(bytes.saturating_sub(8), TAIL_BYTES)? })
    }

    fn mark(&self) -> &[u8] {
        self.tail.get(4..).unwrap_or_default()
    }

    /// A mark with what must be beside it: text may begin or end with the same letters.
    fn proves_one(&self) -> bool {
        let begins = is_mark(&self.head)
            && (self.next == Some(PAGE_HEADER_BEGIN) || self.head == self.mark());
        begins || is_mark(self.mark()) && self.footer().is_some_and(|place| place.bytes > 0)
    }

    fn has_one(&self) -> bool {
        is_mark(&self.head) || is_mark(self.mark())
    }

    /// Where the footer is, by the last bytes.
    fn footer(&self) -> Option<Place> {
        let length = u64::from(u32::from_le_bytes(*self.tail.first_chunk()?));
        let end = self.bytes.checked_sub(to_u64(TAIL_BYTES))?;
        let begin = end.checked_sub(length).filter(|begin| *begin >= MAGIC_BYTES)?;
        Some(Place { begin, bytes: length })
    }
}

fn description(path: &Path, footer: Option<&Footer>) -> Description {
    let mut state = Vec::new();
    if let Some(footer) = footer {
        state.push(counted(to_u64(footer.leaves.len()), "column"));
        state.push(counted(footer.rows, "row"));
        state.push(format!("in {}", counted(to_u64(footer.groups.len()), "row group")));
        if !footer.writer.is_empty() {
            state.push(format!("written by {}", printable(&footer.writer)));
        }
    } else {
        state.push("without a footer that can be read".to_owned());
    }
    Description {
        part: None,
        path: path.to_owned(),
        format: FORMAT.name,
        engine: FORMAT.title.to_owned(),
        // They are of all lengths.
        page_size: 0,
        setting: None,
        state: state.join(", ").replace(" row, in", " row in").replace("rows, in", "rows in"),
        evidence: Evidence {
            tested_by: "CRC-32 of the pages that have one; the others must expand to their length; \
                        sizes and counts of pages, row groups and indexes must add up",
            unseen: "damage in the values of pages without a CRC that still expands; statistics, \
                     names and other words of headers and footer",
        },
        live: false,
        epoch: None,
    }
}

/// How a file is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadOptions {
    /// Its pages may be read by several threads, each page by itself.
    pub(crate) is_local: bool,
    /// Expand pages that have a CRC, too.
    pub(crate) expands_all: bool,
}

/// A file that is being read.
#[derive(Debug)]
struct Reading {
    /// What it is called in the report.
    name: String,
    path: PathBuf,
    window: Window,
    bytes: u64,
    /// Everything else must be before it.
    footer_begin: u64,
    options: ReadOptions,
    /// Pages that were come to.
    pages: u64,
    /// Those that other threads are to read.
    batch: Batch,
}

impl Reading {
    /// Parquet has no numbers for pages: they are counted through the file.
    fn next_page(&mut self) -> PageNo {
        let number = PageNo(self.pages);
        self.pages = self.pages.saturating_add(1);
        number
    }

    fn finding(&self, kind: Kind, detail: impl Into<String>) -> Finding {
        Finding::of_file(&self.name, Severity::Damage, kind, detail.into()).with_hint(HINT)
    }

    fn page_file(&self, format: Arc<ParquetPage>) -> PageFile {
        let mut file = PageFile::of(self.name.clone(), self.path.clone(), self.bytes, format);
        file.hint = Some(HINT.into());
        file
    }
}

/// What is to be said of one file, and its pages.
pub(crate) struct FileSteps {
    reading: Reading,
    footer: Option<Footer>,
    ready: VecDeque<Step>,
    /// Those that are to be read, the first one last.
    chunks: Vec<Chunk>,
    walk: Option<Walk>,
    /// Asked again at the end.
    unchanged: Arc<Unchanged>,
    /// The footer and what it leads to, beside pages.
    passed: u64,
    is_over: bool,
}

impl FileSteps {
    /// The rows of the file by its footer.
    pub(crate) fn rows(&self) -> Option<u64> {
        self.footer.as_ref().map(|footer| footer.rows)
    }

    /// Opens it.
    ///
    /// # Errors
    /// Its ends or its footer cannot be read.
    pub(crate) fn new(
        name: String,
        path: PathBuf,
        file: StoredFile,
        options: ReadOptions,
    ) -> io::Result<Self> {
        let unchanged = Arc::new(Unchanged::since_now(&file)?);
        let ends = Ends::read(&file)?;
        let bytes = ends.bytes;
        let window = Window::new(file);
        let batch = Batch::default();
        let reading =
            Reading { name, path, window, bytes, footer_begin: bytes, options, pages: 0, batch };
        let mut steps = Self {
            reading,
            footer: None,
            ready: VecDeque::new(),
            chunks: Vec::new(),
            walk: None,
            unchanged,
            passed: 0,
            is_over: false,
        };
        steps.open(&ends)?;
        Ok(steps)
    }

    fn say(&mut self, kind: Kind, offset: u64, detail: impl Into<String>) {
        let finding = self.reading.finding(kind, detail).at(None, Some(ByteOffset(offset)));
        self.ready.push_back(Step::Finding(finding));
    }

    fn note(&mut self, text: String) {
        let file = self.reading.name.clone();
        self.ready.push_back(Step::Note(Note { file, text }));
    }

    fn open(&mut self, ends: &Ends) -> io::Result<()> {
        // The file counts as one that was opened, whatever is in it.
        let nothing = ParquetPage {
            header_bytes: 0,
            stored_bytes: 0,
            sum: None,
            content: Content::Encrypted,
            expands_all: false,
        };
        let file = Arc::new(self.reading.page_file(Arc::new(nothing)));
        self.ready.push_back(Step::Pages(StreamedPages::whole(file, ByteOffset(0), Vec::new())));
        if ends.bytes == 0 {
            self.say(Kind::Truncated, 0, "the file is empty: nothing of a Parquet file is there");
            return Ok(());
        }
        let mark = ends.mark();
        if mark == ENCRYPTED_MAGIC {
            let text = "its footer is encrypted: without the key nothing of it can be verified";
            let note = Note { file: self.reading.name.clone(), text: text.to_owned() };
            self.ready.push_back(Step::Untested(note, 1));
            return Ok(());
        }
        if mark != MAGIC {
            let is_zero = !ends.tail.is_empty() && ends.tail.iter().all(|byte| *byte == 0);
            let (kind, detail) = match is_near(mark, &MAGIC) {
                true => (Kind::BitFlip, "one flipped bit in the mark at its end explains it"),
                false if is_zero => (Kind::Zeroed, "the file ends with zeroes"),
                false => (Kind::Truncated, "the file does not end with PAR1"),
            };
            let detail = format!(
                "{detail}: it has no footer, which says where the columns are. It was cut, its end \
                 was written over, or a program is still writing it"
            );
            self.say(kind, ends.bytes, detail);
            return Ok(());
        }
        if ends.head != MAGIC {
            let kind = if is_near(&ends.head, &MAGIC) { Kind::BitFlip } else { Kind::Header };
            self.say(kind, 0, "the file does not begin with PAR1");
        }
        let Some(place) = ends.footer().filter(|place| place.bytes <= FOOTER_BYTES_MAX) else {
            let detail = "the length of the footer, before the last four bytes, is one that the file \
                          has no room for";
            self.say(Kind::Header, ends.bytes.saturating_sub(8), detail);
            return Ok(());
        };
        self.passed = place.bytes.saturating_add(12);
        let length = usize::try_from(place.bytes).unwrap_or(usize::MAX);
        let bytes = self.reading.window.read(place.begin, length)?;
        match Footer::read(&bytes) {
            Ok(footer) => {
                // What it means is asked of a reader whose verdict programs go by.
                if let Err(why) = decoder::schema(&bytes, &footer) {
                    let detail = format!("the footer has a schema that readers refuse: {why}");
                    let finding = self.reading.finding(Kind::Structure, detail);
                    let mut finding = finding.at(None, Some(ByteOffset(place.begin)));
                    finding.severity = Severity::Suspect;
                    self.ready.push_back(Step::Finding(finding));
                }
                self.take_footer(footer, place);
            }
            Err(why) => {
                let detail = format!("the footer cannot be read: {why}");
                self.say(Kind::Header, place.begin, detail);
            }
        }
        Ok(())
    }

    fn take_footer(&mut self, footer: Footer, place: Place) {
        self.reading.footer_begin = place.begin;
        for detail in footer.contradictions() {
            self.say(
                Kind::Structure,
                place.begin,
                format!("the footer contradicts itself: {detail}"),
            );
        }
        let mut known = vec![
            Place { begin: 0, bytes: MAGIC_BYTES },
            Place { begin: place.begin, bytes: place.bytes.saturating_add(8) },
        ];
        let chunks = self.chunks_of(&footer, &mut known);
        let mut end = MAGIC_BYTES;
        let mut sound = Vec::new();
        for chunk in chunks {
            if chunk.place.begin < end && chunk.place.bytes > 0 {
                let detail = "the footer contradicts itself: this column chunk begins inside another \
                              one; it was not read";
                self.say_of_chunk(&chunk, detail);
                continue;
            }
            end = end.max(chunk.place.end());
            sound.push(chunk);
        }
        sound.reverse();
        self.chunks = sound;
        self.name_gaps(known);
        self.footer = Some(footer);
    }

    fn say_of_chunk(&mut self, chunk: &Chunk, detail: &str) {
        let finding = self
            .reading
            .finding(Kind::Structure, detail)
            .at(None, Some(ByteOffset(chunk.place.begin)))
            .about(None, Some(&chunk.name));
        self.ready.push_back(Step::Finding(finding));
    }

    /// The column chunks that are in this file, in the order in which they are there.
    fn chunks_of(&mut self, footer: &Footer, known: &mut Vec<Place>) -> Vec<Chunk> {
        let slack_bytes = if forgets_headers(&footer.writer) { SLACK_BYTES } else { 0 };
        let mut chunks = Vec::new();
        let (mut elsewhere, mut locked, mut unknown) = (0_u64, 0_u64, None);
        for (number, group) in footer.groups.iter().enumerate() {
            for (index, entry) in group.chunks.iter().enumerate() {
                if entry.elsewhere.as_ref().is_some_and(|path| !path.is_empty()) {
                    elsewhere = elsewhere.saturating_add(1);
                    continue;
                }
                locked = locked.saturating_add(u64::from(entry.is_encrypted));
                let Some(column) = &entry.column else { continue };
                let codec = Codec::of(column.codec);
                if codec.is_none() {
                    unknown = Some(column.codec);
                }
                let place = Place { begin: column.begin(), bytes: column.stored_bytes };
                let chunk = Chunk {
                    name: footer.name_of(number, index).into(),
                    place,
                    slack_bytes,
                    // As one that has no decompressor here.
                    codec: codec.unwrap_or(Codec::Lzo),
                    values: column.values,
                    rows: group.rows,
                    width: footer.leaves.get(index).and_then(|leaf| leaf.width),
                    expanded_bytes: Some(column.expanded_bytes).filter(|_| slack_bytes == 0),
                    is_encrypted: entry.is_encrypted,
                    offset_index: entry.offset_index,
                    column_index: entry.column_index,
                    bloom: column.bloom_offset.map(|offset| (offset, column.bloom_bytes)),
                };
                if self.is_inside(&chunk, column, known) {
                    chunks.push(chunk);
                }
            }
        }
        self.say_what_is_not_here(elsewhere, locked, unknown);
        chunks.sort_by_key(|chunk| chunk.place.begin);
        chunks
    }

    /// Says so if a part of a chunk is not inside the file; false if that are its pages.
    fn is_inside(&mut self, chunk: &Chunk, column: &Column, known: &mut Vec<Place>) -> bool {
        let limit = self.reading.footer_begin;
        let has_room = |place: &Place| {
            place.begin >= MAGIC_BYTES && place.begin.checked_add(place.bytes) <= Some(limit)
        };
        let bloom = chunk.bloom.map(|(begin, bytes)| Place { begin, bytes: bytes.unwrap_or(0) });
        let parts = [
            (Some(chunk.place).filter(|place| place.bytes > 0), "its pages are"),
            (chunk.offset_index, "its offset index is"),
            (chunk.column_index, "its column index is"),
            (bloom, "its Bloom filter is"),
        ];
        let mut is_inside = true;
        for (place, what) in parts {
            let Some(place) = place else { continue };
            if has_room(&place) {
                known.push(place);
                continue;
            }
            is_inside &= place != chunk.place;
            let detail = format!(
                "the footer contradicts itself: {what} at bytes {} to {}, the footer begins at {limit}",
                place.begin,
                place.end()
            );
            self.say_of_chunk(chunk, &detail);
        }
        if column.data_offset >= chunk.place.end().saturating_add(chunk.slack_bytes)
            && chunk.place.bytes > 0
        {
            let detail = "the footer contradicts itself: its data pages begin behind its end";
            self.say_of_chunk(chunk, detail);
            is_inside = false;
        }
        is_inside
    }

    fn say_what_is_not_here(&mut self, elsewhere: u64, locked: u64, unknown: Option<i32>) {
        if elsewhere > 0 {
            let chunks = counted(elsewhere, "column chunk");
            self.note(format!(
                "{chunks} that it names are in other files, which are judged when they are named"
            ));
        }
        if locked > 0 {
            let chunks = counted(locked, "column chunk");
            let text =
                format!("{chunks} encrypted: without the key their pages cannot be verified");
            let file = self.reading.name.clone();
            self.ready.push_back(Step::Untested(Note { file, text }, 1));
        }
        if let Some(number) = unknown {
            let text = format!(
                "codec {number} is not known here: pages of it that have no CRC cannot be verified"
            );
            let file = self.reading.name.clone();
            self.ready.push_back(Step::Untested(Note { file, text }, 1));
        }
    }

    /// The bytes that belong to nothing that is known.
    fn name_gaps(&mut self, mut known: Vec<Place>) {
        known.sort_by_key(|place| place.begin);
        let (mut end, mut gaps, mut total, mut first) = (0_u64, 0_u64, 0_u64, None);
        for place in known {
            if place.begin > end {
                gaps = gaps.saturating_add(1);
                total = total.saturating_add(place.begin.saturating_sub(end));
                first = first.or(Some(end));
            }
            end = end.max(place.end());
        }
        if let Some(first) = first {
            self.note(format!(
                "{} in {} belong to no page, index or footer, and were not judged; the first at byte \
                 {first}",
                bytes(total),
                counted(gaps, "place"),
            ));
        }
    }

    /// The file must be as it was.
    fn end(&mut self) {
        self.is_over = true;
        self.ready.push_back(Step::Passed(self.passed));
        self.ready.extend(self.unchanged.look(&self.reading.name, self.reading.window.file()));
    }
}

impl Iterator for FileSteps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            // What was said since was said of what is behind these pages.
            let batch = &mut self.reading.batch;
            if batch.is_full() || !(self.ready.is_empty() || batch.is_empty()) {
                let apart = batch.take(self.reading.window.file(), &self.unchanged);
                return Some(Step::Apart(apart));
            }
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if let Some(mut walk) = self.walk.take() {
                if walk.go_on(&mut self.reading, &mut self.ready) {
                    self.walk = Some(walk);
                }
                continue;
            }
            match self.chunks.pop() {
                Some(chunk) => {
                    let walk = Walk::new(chunk, &mut self.reading, &mut self.ready);
                    self.walk = Some(walk);
                }
                None if self.is_over => return None,
                None => self.end(),
            }
        }
    }
}

/// parquet-mr before 1.2.9 counts the dictionary of a column chunk without its header.
fn forgets_headers(writer: &str) -> bool {
    let Some(rest) = writer.strip_prefix("parquet-mr") else { return false };
    let version = rest.split_whitespace().nth(1).unwrap_or_default();
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    let mut number = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (number(), number(), number()) < (1, 2, 9)
}

/// True if one bit is different.
fn is_near(bytes: &[u8], mark: &[u8]) -> bool {
    let bits: u32 = bytes.iter().zip(mark).map(|(one, other)| (one ^ other).count_ones()).sum();
    bytes.len() == mark.len() && bits == 1
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
