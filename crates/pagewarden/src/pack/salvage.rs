//! What is sound of a pack that was cut or altered.
//!
//! A pack without its end is read by its records, one behind the other, up to the
//! first that is not what was written. One whose end is sound is read by its index,
//! and by its records where a part of the index is damaged. A block counts if it
//! has its sum; what does not is a hole, and is named.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use pagewarden_core::system::FileExt as _;

use crate::error::Error;
use crate::pack::chain::{Search, base_of, unreadable};
use crate::pack::codec::is_zero;
use crate::pack::file::PackFile;
use crate::pack::layout::{
    BLOCK_ENTRY_BYTES, BlockEntry, FILE_HEAD_BYTES, Fields, Header, RecordHead, SPAN_BLOCKS_MAX,
    SPAN_HEAD_BYTES, file_record, span_bytes, span_count, span_head,
};
use crate::pack::read::{Contents, Pack, Recorded, SpanPlace, read_header, read_range};
use crate::pack::restore::{
    Restoring, ToDevice, dress, finish_folders, make_folders, refuse_names,
};
use crate::pack::table::{Entry, Names, UNKNOWN_BYTES, What};
use crate::pack::tree::{file_hash, span_hash};
use crate::pack::{PackError, SPAN_BYTES, crc};
use crate::source::rate::RateLimiter;
use crate::source::store::StorePath;

/// No entry is longer: two paths, each with two bytes for its length, and numbers.
const ENTRY_BYTES_MAX: u32 = 2 * (u16::MAX as u32) + 200;
/// What files are called of which something is missing.
const PARTIAL: &str = ".partial";

/// A part of a file that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The file, as the pack calls it.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
}

/// What became of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvagedFiles {
    /// Files that are whole.
    pub whole: u64,
    /// Files of which something is missing; they end in `.partial`.
    pub partial: u64,
    /// Bytes that were written or are zeroes.
    pub bytes: u64,
    /// What is lost.
    pub missing: Vec<Missing>,
    /// What else is wrong.
    pub problems: Vec<String>,
}

/// A pack that may be damaged anywhere.
#[derive(Debug)]
pub struct Salvaged {
    pack: Pack,
    /// The hashes of the files are known, and how long they are.
    has_table: bool,
    /// Of each file without a table, the spans that have records, in order.
    recorded: HashMap<usize, Vec<u64>>,
    /// Its only file came as a stream, and it is not known how long that was.
    is_open_ended: bool,
    problems: Vec<String>,
}

impl Salvaged {
    /// Opens what there is of a pack. A delta finds its bases as by
    /// [`open_chain`](crate::pack::open_chain); without one it holds what changed.
    ///
    /// # Errors
    /// It is no pack, or not even its beginning is sound, or a base that was named
    /// is another.
    pub fn open(place: &StorePath, named: &[StorePath]) -> Result<Self, Error> {
        let path = place.path();
        let failed = |error| unreadable(path, error);
        let file = PackFile::open(place).map_err(|error| Error::io("open", path, error))?;
        let length = file.length().map_err(|error| Error::io("open", path, error))?;
        let header = read_header(&file, length).map_err(failed)?;
        let mut records = Records::read(&file, length, header).map_err(failed)?;
        let mut problems = std::mem::take(&mut records.problems);
        let mut recorded: HashMap<usize, Vec<u64>> = HashMap::new();
        let mut is_open_ended = false;
        let (mut pack, has_table) = match Pack::open_in(place) {
            Ok(pack) => (pack.with_records(records.found), true),
            Err(error) if error.is_not_read() => return Err(failed(error)),
            Err(error) => {
                problems.insert(0, error.to_string());
                if records.entries.is_empty() {
                    return Err(failed(error));
                }
                for (number, span) in records.found.keys() {
                    let number = usize::try_from(*number).unwrap_or(usize::MAX);
                    recorded.entry(number).or_default().push(u64::from(*span));
                }
                recorded.values_mut().for_each(|spans| spans.sort_unstable());
                is_open_ended = records.close_stream();
                let Records { entries, dictionary, found, end, .. } = records;
                problems.push(format!("its records end at byte {end}"));
                let recorded = Recorded { header, dictionary, entries, found };
                let pack = Pack::of_records(file, recorded);
                (pack.map_err(|error| Error::io("read", path, error))?, false)
            }
        };
        if let Some(root) = pack.base_root() {
            match base_of(place, root, named, Search::Beside) {
                Ok(base) => pack = pack.with_base(base).map_err(failed)?,
                Err(error) if named.is_empty() => problems.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(Self { pack, has_table, recorded, is_open_ended, problems })
    }

    /// The pack, as far as it can be read.
    #[must_use]
    pub fn pack(&self) -> &Pack {
        &self.pack
    }

    /// True if it has an end that says what must be there.
    #[must_use]
    pub fn has_table(&self) -> bool {
        self.has_table
    }

    /// Writes what is sound of the wanted files.
    ///
    /// # Errors
    /// Something cannot be written. [`io::ErrorKind::Interrupted`] if it was stopped.
    pub fn restore(&self, restoring: &Restoring<'_>) -> Result<SalvagedFiles, Error> {
        let entries = || self.pack.entries().iter().enumerate();
        let wanted = || entries().filter(|(_, entry)| (restoring.wanted)(entry));
        let folders =
            || wanted().map(|(_, entry)| entry).filter(|entry| entry.what == What::Folder);
        refuse_names(wanted().map(|(_, entry)| entry))?;
        make_folders(restoring.places, folders())?;
        let mut files = SalvagedFiles { problems: self.problems.clone(), ..Default::default() };
        if !self.has_table {
            files.problems.push(
                "with its table the hashes of the files are lost: blocks were tested by their own sums alone"
                    .to_owned(),
            );
        }
        let pace = RateLimiter::new(restoring.rate);
        let mut contents = self.pack.contents();
        for (number, entry) in wanted().filter(|(_, entry)| entry.what != What::Folder) {
            let mut one = OneFile::new(self, number, entry, restoring, &pace);
            one.write(&mut contents)?;
            one.finish(&mut files)?;
        }
        restoring.places.make_links()?;
        finish_folders(restoring.places, folders(), &ToDevice::Each)?;
        Ok(files)
    }

    /// The spans of a file that may be there, in order.
    fn spans(&self, number: usize, entry: &Entry) -> Vec<u64> {
        if self.has_table {
            return (0..span_count(entry.bytes())).collect();
        }
        let spans = self.recorded.get(&number).cloned().unwrap_or_default();
        spans.into_iter().filter(|span| *span < span_count(entry.bytes())).collect()
    }
}

/// A file of which something may be missing.
struct OneFile<'a> {
    salvaged: &'a Salvaged,
    number: usize,
    entry: &'a Entry,
    restoring: &'a Restoring<'a>,
    pace: &'a RateLimiter,
    path: PathBuf,
    file: Option<File>,
    /// Begin and end of what is lost.
    lost: Vec<(u64, u64)>,
    hashes: Vec<[u8; 32]>,
    bytes: u64,
}

impl<'a> OneFile<'a> {
    fn new(
        salvaged: &'a Salvaged,
        number: usize,
        entry: &'a Entry,
        restoring: &'a Restoring<'a>,
        pace: &'a RateLimiter,
    ) -> Self {
        Self {
            salvaged,
            number,
            entry,
            restoring,
            pace,
            path: restoring.places.path(&entry.name),
            file: None,
            lost: Vec::new(),
            hashes: Vec::new(),
            bytes: 0,
        }
    }

    fn io_error(&self, action: &'static str, error: io::Error) -> Error {
        Error::io(action, &self.path, error)
    }

    fn write(&mut self, contents: &mut Contents<'_>) -> Result<(), Error> {
        let length = self.entry.bytes();
        let mut next = 0_u64;
        let mut buffer = Vec::new();
        for span in self.salvaged.spans(self.number, self.entry) {
            if self.restoring.stop.load(Ordering::Relaxed) {
                return Err(self.io_error("unpack", io::ErrorKind::Interrupted.into()));
            }
            let begin = span.saturating_mul(SPAN_BYTES as u64);
            let bytes = span_bytes(length, span);
            self.lose(next, begin);
            match contents.span(self.number, span, &mut buffer) {
                Ok(damaged) if damaged.is_empty() => {
                    self.put(begin, &buffer)?;
                    self.hashes.push(span_hash(span, span_count(length), &buffer));
                }
                Err(error) if error.is_not_read() => return Err(unreadable(&self.path, error)),
                _ => self.write_blocks(span, bytes, contents)?,
            }
            next = begin.saturating_add(bytes as u64);
            self.restoring.progress.advance(bytes as u64);
        }
        self.lose(next, length);
        Ok(())
    }

    /// The blocks of a span that are sound.
    fn write_blocks(
        &mut self,
        span: u64,
        bytes: usize,
        contents: &mut Contents<'_>,
    ) -> Result<(), Error> {
        let block_bytes = self.salvaged.pack.block_bytes();
        let first = span.saturating_mul((SPAN_BYTES / block_bytes) as u64);
        let mut block = Vec::new();
        for index in 0..bytes.div_ceil(block_bytes) as u64 {
            let number = first.saturating_add(index);
            let begin = number.saturating_mul(block_bytes as u64);
            match contents.block(self.number, number, &mut block) {
                Ok(()) => self.put(begin, &block)?,
                Err(error) if error.is_not_read() => return Err(unreadable(&self.path, error)),
                Err(_) => {
                    let end = begin.saturating_add(block_bytes as u64).min(self.entry.bytes());
                    self.lose(begin, end);
                }
            }
        }
        Ok(())
    }

    fn lose(&mut self, begin: u64, end: u64) {
        match self.lost.last_mut() {
            _ if begin >= end => {}
            Some(last) if last.1 == begin => last.1 = end,
            _ => self.lost.push((begin, end)),
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.open()?;
        if is_zero(bytes) {
            return Ok(());
        }
        self.pace.pay(bytes.len() as u64, self.restoring.stop);
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(bytes, offset).map_err(|error| self.io_error("write", error))
    }

    fn open(&mut self) -> Result<(), Error> {
        if self.file.is_none() {
            if let Some(parent) = self.path.parent() {
                fs::create_dir_all(parent).map_err(|error| Error::io("create", parent, error))?;
            }
            let file = File::create_new(&self.path);
            self.file = Some(file.map_err(|error| self.io_error("create", error))?);
        }
        Ok(())
    }

    fn finish(mut self, files: &mut SalvagedFiles) -> Result<(), Error> {
        let What::File { bytes, hash, .. } = self.entry.what else { return Ok(()) };
        let is_other =
            self.lost.is_empty() && self.salvaged.has_table && file_hash(&self.hashes) != hash;
        let shown = self.entry.name.display();
        if is_other {
            files.problems.push(format!("{shown}: its BLAKE3 hash is not that of what was packed"));
        }
        if self.salvaged.is_open_ended {
            files.problems.push(format!("{shown}: how long it was is not known"));
        }
        let is_whole = self.lost.is_empty() && !is_other && !self.salvaged.is_open_ended;
        let missing = self.lost.iter().map(|(begin, end)| Missing {
            file: self.entry.name.clone(),
            offset: *begin,
            bytes: end.saturating_sub(*begin),
        });
        files.missing.extend(missing);
        files.bytes = files.bytes.saturating_add(self.bytes);
        if !is_whole && self.bytes == 0 {
            // Nothing of it is there, and it is named.
            return Ok(());
        }
        self.open()?;
        let Some(file) = &self.file else { return Ok(()) };
        match file.set_len(bytes) {
            Err(error) if is_whole => return Err(self.io_error("finish", error)),
            // A length that no file can have is part of what is wrong.
            Err(error) => files.problems.push(format!("{shown}: {error}")),
            Ok(()) => {}
        }
        dress(file, self.entry.attributes)
            .and_then(|()| file.sync_all())
            .map_err(|error| self.io_error("finish", error))?;
        if is_whole {
            files.whole = files.whole.saturating_add(1);
            return Ok(());
        }
        files.partial = files.partial.saturating_add(1);
        let mut name = self.path.clone().into_os_string();
        name.push(PARTIAL);
        let name = PathBuf::from(name);
        if fs::symlink_metadata(&name).is_ok() {
            let error = io::Error::other("a file of the pack has that name already");
            return Err(Error::io("make", &name, error));
        }
        fs::rename(&self.path, &name).map_err(|error| Error::io("make", &name, error))
    }
}

/// What the records of a pack say, up to the first that is damaged.
struct Records {
    entries: Vec<Entry>,
    dictionary: Vec<u8>,
    found: HashMap<(u32, u32), SpanPlace>,
    /// Where they end.
    end: u64,
    problems: Vec<String>,
}

impl Records {
    fn read(file: &PackFile, pack_bytes: u64, header: Header) -> Result<Self, PackError> {
        let begin = header.bytes();
        let count = u64::from(header.dictionary_bytes);
        let available = pack_bytes.saturating_sub(begin).min(count);
        let mut records = Self {
            entries: Vec::new(),
            dictionary: read_range(file, begin, available)?,
            found: HashMap::new(),
            end: begin.saturating_add(count),
            problems: Vec::new(),
        };
        if crc(&records.dictionary) != header.dictionary_crc {
            records
                .problems
                .push("its dictionary is damaged: blocks that use it are lost".to_owned());
            records.dictionary = Vec::new();
        }
        let mut names = Names::default();
        while records.next(file, pack_bytes, &mut names)?.is_some() {}
        Ok(records)
    }

    /// Takes the next record; `None` if what comes is none.
    fn next(
        &mut self,
        file: &PackFile,
        pack_bytes: u64,
        names: &mut Names,
    ) -> Result<Option<()>, PackError> {
        let left = pack_bytes.saturating_sub(self.end);
        let head = read_range(file, self.end, left.min(SPAN_HEAD_BYTES as u64))?;
        let (head_bytes, count) = match RecordHead::parse(&head) {
            Some(RecordHead::File { entry_bytes, .. }) if entry_bytes <= ENTRY_BYTES_MAX => {
                (FILE_HEAD_BYTES as u64, u64::from(entry_bytes))
            }
            Some(RecordHead::Span { blocks, .. }) if blocks <= SPAN_BLOCKS_MAX => {
                (SPAN_HEAD_BYTES as u64, u64::from(blocks).saturating_mul(BLOCK_ENTRY_BYTES as u64))
            }
            _ => return Ok(None),
        };
        let record_bytes = head_bytes.saturating_add(count);
        if record_bytes > left {
            return Ok(None);
        }
        let record = read_range(file, self.end, record_bytes)?;
        let begin = usize::try_from(head_bytes).map_err(io::Error::other)?;
        let rest = record.get(begin..).unwrap_or_default();
        let taken = match RecordHead::parse(&head) {
            Some(RecordHead::File { file, .. }) => self.take_file(file, rest, &record, names),
            Some(RecordHead::Span { file, span, .. }) => self.take_span(file, span, rest, &record),
            None => None,
        };
        let Some(stored) = taken else { return Ok(None) };
        self.end = self.end.saturating_add(record_bytes).saturating_add(stored);
        Ok(Some(()))
    }

    fn take_file(
        &mut self,
        file: u32,
        rest: &[u8],
        record: &[u8],
        names: &mut Names,
    ) -> Option<u64> {
        if file_record(file, rest) != record {
            return None;
        }
        let entry = Entry::parse(&mut Fields(rest), false)?;
        let number = usize::try_from(file).ok()?;
        if number == self.entries.len() {
            names.add(&entry).ok()?;
            self.entries.push(entry);
            return Some(0);
        }
        // A stream's again, now that it is known how long that was.
        let first = self.entries.get_mut(number)?;
        if first.bytes() != UNKNOWN_BYTES || first.name != entry.name {
            return None;
        }
        *first = entry;
        Some(0)
    }

    fn take_span(&mut self, file: u32, span: u32, rest: &[u8], record: &[u8]) -> Option<u64> {
        let mut fields = Fields(rest);
        let mut blocks = Vec::new();
        while !fields.0.is_empty() {
            blocks.push(BlockEntry::parse(&mut fields)?);
        }
        if span_head(file, span, &blocks) != record {
            return None;
        }
        let stored =
            blocks.iter().fold(0_u64, |sum, block| sum.saturating_add(block.stored_bytes.into()));
        let place = SpanPlace { begin: self.end, blocks: blocks.into() };
        // The first one counts: nothing is ever written twice.
        self.found.entry((file, span)).or_insert(place);
        Some(stored)
    }

    /// Gives a stream without a length that of what is there; true if there is one.
    fn close_stream(&mut self) -> bool {
        let Some(entry) = self.entries.first_mut() else { return false };
        let What::File { bytes, .. } = &mut entry.what else { return false };
        if *bytes != UNKNOWN_BYTES {
            return false;
        }
        // The last block may have been shorter: then it is lost.
        let spans = self.found.keys().filter(|(file, _)| *file == 0).map(|(_, span)| *span);
        let last = spans.max().map_or(0, |span| u64::from(span).saturating_add(1));
        *bytes = last.saturating_mul(SPAN_BYTES as u64);
        true
    }
}
