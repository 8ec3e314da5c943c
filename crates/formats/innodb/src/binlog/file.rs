//! One file of a binary log, read event by event.
//!
//! An event whose sum does not fit is damage; its length leads on. One whose length is not right is
//! damage, too: the next event is looked for, which must say of itself where it ends, and have its sum.

use std::fs::File;
use std::io;
use std::path::Path;

use pagewarden_core::crc::Crc32;

use super::event::{
    BEGIN_ENCRYPTION, DESCRIPTION, Description, ENCRYPTED_MAGIC, HEADER_BYTES, Header, MAGIC,
    ROTATE, STOP, SUM_BYTES, ends_transaction, next_file, without_use,
};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::Kind;

/// Of an event so much is looked at; a description has some hundred bytes.
const BEGIN_BYTES: u64 = 4096;
const PIECE_BYTES: usize = 1 << 20;
/// At most this number of bytes for each of the file, and [`PIECE_BYTES`], are summed in search of
/// events behind a fault: a file made to harm would have its rest summed at every byte.
const SEARCHED_MAX: u64 = 16;
/// Faults of a file that are reported one by one.
const FAULTS_MAX: usize = 1000;

/// What a file turned out to be.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// The server's version.
    pub(super) server: String,
    /// Events have sums.
    pub(super) has_sums: Option<bool>,
    pub(super) is_in_use: bool,
    pub(super) is_relay_log: bool,
    pub(super) faults: Vec<Fault>,
    /// Faults beyond those.
    pub(super) more_faults: u64,
    /// From here on it is encrypted.
    pub(super) encrypted_from: Option<u64>,
    /// The last event begins here and is not whole.
    pub(super) torn_from: Option<u64>,
    /// How it ends.
    pub(super) end: End,
    /// What is sound of it.
    pub(super) stretches: Vec<Stretch>,
    /// Of the positions that were asked for, those at which an event ends or the first begins, in order.
    pub(super) bounds: Vec<u64>,
}

/// How a file ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum End {
    /// With any event: the server did not end it.
    #[default]
    Open,
    /// The server was stopped.
    Stopped,
    /// It goes on in this file.
    Rotated(String),
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: u64,
    pub(super) kind: Kind,
    pub(super) stored: Option<String>,
    pub(super) computed: Option<String>,
    pub(super) words: String,
}

/// Events that follow one another without a fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) begin: u64,
    /// Behind its last event.
    pub(super) end: u64,
    /// The times of its first and last transaction.
    pub(super) first_time: Option<u32>,
    pub(super) last_time: Option<u32>,
    /// Behind its last transaction.
    pub(super) last_commit: Option<u64>,
}

/// Reads a file from its beginning to its end. `asked` are positions of which is to be known whether they
/// are between events.
///
/// # Errors
/// It cannot be opened or read.
pub(super) fn scan(path: &Path, asked: &[u64]) -> io::Result<Scan> {
    let file = open_regular(path)?;
    let bytes = file.metadata()?.len();
    let mut reading = Reading {
        file,
        scan: Scan { bytes, ..Scan::default() },
        at: 0,
        asks_for_sums: false,
        searched: 0,
        asked,
    };
    reading.run()?;
    Ok(reading.scan)
}

struct Reading<'a> {
    file: File,
    /// Positions at which a backup goes on.
    asked: &'a [u64],
    scan: Scan,
    at: u64,
    /// The description is damaged: the next event shows whether events have sums.
    asks_for_sums: bool,
    /// Bytes that were summed in search of events.
    searched: u64,
}

impl Reading<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut magic = [0; MAGIC.len()];
        let count = read_fully(&self.file, &mut magic, 0)?;
        self.at = MAGIC.len() as u64;
        if count < magic.len() {
            self.scan.torn_from = Some(0);
            return Ok(());
        }
        if magic == ENCRYPTED_MAGIC {
            self.scan.encrypted_from = Some(0);
            return Ok(());
        }
        if magic != MAGIC {
            self.fault(0, Kind::Header, "it does not begin as a binary log does".to_owned());
        }
        self.begin_stretch();
        while self.at < self.scan.bytes && self.scan.encrypted_from.is_none() {
            if !self.event()? {
                break;
            }
        }
        Ok(())
    }

    /// One event; false where nothing more can be read.
    fn event(&mut self) -> io::Result<bool> {
        let at = self.at;
        let left = self.scan.bytes.saturating_sub(at);
        let begin = self.read(at, left.min(BEGIN_BYTES))?;
        let Some(header) = Header::parse(&begin) else {
            self.scan.torn_from = Some(at);
            return Ok(false);
        };
        let length = u64::from(header.bytes);
        let least =
            HEADER_BYTES as u64 + if self.scan.has_sums == Some(true) { SUM_BYTES } else { 0 };
        let agrees = self.is_relay_log(&header) || header.agrees(at);
        if length > left && agrees && length >= least {
            self.scan.torn_from = Some(at);
            return Ok(false);
        }
        if length == 0 && self.is_zero_from(at)? {
            self.scan.torn_from = Some(at);
            return Ok(false);
        }
        if length < least || length > left {
            let words = format!("an event that claims to have {length} bytes");
            self.fault(at, Kind::Header, words);
            return self.look_for_next();
        }
        if std::mem::take(&mut self.asks_for_sums) {
            let (stored, computed) = self.sum(at, length, &header)?;
            self.scan.has_sums = Some(stored == computed);
        }
        let is_first = self.scan.events == 0;
        let begin = begin.get(..usize::try_from(length).unwrap_or(usize::MAX)).unwrap_or(&begin);
        let is_sound = match self.sums_of(&header, begin) {
            Some(true) => {
                let (stored, computed) = self.sum(at, length, &header)?;
                if stored != computed {
                    if !agrees {
                        let words = format!("an event that claims to have {length} bytes");
                        self.fault(at, Kind::Header, words);
                        return self.look_for_next();
                    }
                    self.bad_sum(at, header, stored, computed);
                }
                stored == computed
            }
            _ if !agrees => {
                let words = format!(
                    "an event that claims to have {length} bytes and to end at {}",
                    header.end
                );
                self.fault(at, Kind::Header, words);
                return self.look_for_next();
            }
            _ => true,
        };
        if is_first && header.kind != DESCRIPTION && is_sound {
            let words = "its first event is not the one that describes it".to_owned();
            self.fault(at, Kind::Structure, words);
            self.asks_for_sums = true;
        }
        self.scan.events = self.scan.events.saturating_add(1);
        self.at = at.saturating_add(length);
        if is_sound && self.asked.contains(&self.at) {
            self.scan.bounds.push(self.at);
        }
        match is_sound {
            true => self.take(&header, begin),
            false => self.begin_stretch(),
        }
        Ok(true)
    }

    fn is_relay_log(&self, header: &Header) -> bool {
        self.scan.is_relay_log
            || self.scan.events == 0 && header.kind == DESCRIPTION && header.is_of_relay_log()
    }

    /// Whether an event has a sum.
    fn sums_of(&self, header: &Header, begin: &[u8]) -> Option<bool> {
        match header.kind {
            // It always has one, where it says how events are summed.
            DESCRIPTION => Some(Description::parse(begin).is_none_or(|it| it.is_summed)),
            _ => self.scan.has_sums,
        }
    }

    /// What is known by a sound event.
    fn take(&mut self, header: &Header, begin: &[u8]) {
        match header.kind {
            DESCRIPTION => {
                if let Some(description) = Description::parse(begin) {
                    self.scan.is_in_use = header.is_in_use();
                    self.scan.is_relay_log |= header.is_of_relay_log();
                    self.scan.server = description.server;
                    self.scan.has_sums = description.has_sums;
                }
            }
            BEGIN_ENCRYPTION => self.scan.encrypted_from = Some(self.at),
            _ => {}
        }
        self.scan.end = match header.kind {
            STOP => End::Stopped,
            ROTATE => {
                next_file(begin, self.scan.has_sums == Some(true)).map_or(End::Open, End::Rotated)
            }
            _ => End::Open,
        };
        let end = self.at;
        let Some(stretch) = self.scan.stretches.last_mut() else { return };
        stretch.end = end;
        if ends_transaction(header.kind, begin) {
            stretch.first_time.get_or_insert(header.time);
            stretch.last_time = Some(stretch.last_time.unwrap_or_default().max(header.time));
            stretch.last_commit = Some(end);
        }
    }

    fn begin_stretch(&mut self) {
        let (begin, end) = (self.at, self.at);
        self.scan.stretches.push(Stretch { begin, end, ..Stretch::default() });
    }

    fn fault(&mut self, at: u64, kind: Kind, words: String) {
        self.add(Fault { at, kind, stored: None, computed: None, words });
    }

    fn bad_sum(&mut self, at: u64, header: Header, stored: u32, computed: u32) {
        let words = format!(
            "an event of kind {} and {} bytes is not what was written",
            header.kind, header.bytes
        );
        let (stored, computed) = (Some(format!("{stored:08x}")), Some(format!("{computed:08x}")));
        self.add(Fault { at, kind: Kind::Checksum, stored, computed, words });
        // Which events have sums is not known from a description that is damaged.
        self.asks_for_sums |= header.kind == DESCRIPTION && self.scan.has_sums.is_none();
    }

    fn add(&mut self, fault: Fault) {
        match self.scan.faults.len() < FAULTS_MAX {
            true => self.scan.faults.push(fault),
            false => self.scan.more_faults = self.scan.more_faults.saturating_add(1),
        }
    }

    fn read(&self, at: u64, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(count).map_err(io::Error::other)?];
        let count = read_fully(&self.file, &mut bytes, at)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// True if nothing was written from here on: a file system that went down leaves this.
    fn is_zero_from(&self, mut at: u64) -> io::Result<bool> {
        while at < self.scan.bytes {
            let piece = self.read(at, PIECE_BYTES as u64)?;
            if piece.is_empty() || piece.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(true)
    }

    /// The sum of an event, as stored and as computed.
    fn sum(&self, at: u64, length: u64, header: &Header) -> io::Result<(u32, u32)> {
        let mut crc = Crc32::new();
        let covered = length.saturating_sub(SUM_BYTES);
        let mut done = 0_u64;
        while done < covered {
            let count = covered.saturating_sub(done).min(PIECE_BYTES as u64);
            let mut piece = self.read(at.saturating_add(done), count)?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if done == 0 && header.kind == DESCRIPTION {
                without_use(&mut piece);
            }
            crc.update(&piece);
            done = done.saturating_add(piece.len() as u64);
        }
        let stored = self.read(at.saturating_add(covered), SUM_BYTES)?;
        let stored = stored.first_chunk::<4>().map_or(0, |sum| u32::from_le_bytes(*sum));
        Ok((stored, crc.finish()))
    }

    /// Goes to the next event behind one whose end is not known; false if there is none.
    fn look_for_next(&mut self) -> io::Result<bool> {
        let mut from = self.at.saturating_add(1);
        self.scan.events = self.scan.events.saturating_add(1);
        self.scan.end = End::Open;
        // The next event is mostly near.
        let mut piece = BEGIN_BYTES;
        // In a relay log no event says where it ends.
        while !self.scan.is_relay_log && from < self.scan.bytes {
            let window = self.read(from, piece)?;
            piece = piece.saturating_mul(4).min(PIECE_BYTES as u64);
            for (index, bytes) in window.windows(HEADER_BYTES).enumerate() {
                let at = from.saturating_add(index as u64);
                let Some(header) = Header::parse(bytes) else { break };
                if self.is_event(at, &header)? {
                    self.at = at;
                    self.begin_stretch();
                    return Ok(true);
                }
            }
            let next = (window.len().saturating_sub(HEADER_BYTES) as u64).saturating_add(1);
            from = from.saturating_add(next);
        }
        self.at = self.scan.bytes;
        Ok(false)
    }

    /// True for an event that says where it ends, and has its sum.
    fn is_event(&mut self, at: u64, header: &Header) -> io::Result<bool> {
        let length = u64::from(header.bytes);
        let most = self.scan.bytes.saturating_mul(SEARCHED_MAX).saturating_add(PIECE_BYTES as u64);
        let fits = length >= HEADER_BYTES as u64 + SUM_BYTES
            && at.saturating_add(length) <= self.scan.bytes
            && header.kind != 0
            && header.agrees(at);
        if !fits {
            return Ok(false);
        }
        if self.scan.has_sums == Some(false) {
            return Ok(true);
        }
        let searched = self.searched.saturating_add(length);
        if searched > most {
            return Ok(false);
        }
        self.searched = searched;
        let (stored, computed) = self.sum(at, length, header)?;
        Ok(stored == computed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Every seventeenth byte begins a header that fits, of an event that has the rest of the file.
    #[test]
    fn search_in_a_file_made_to_harm_ends() {
        const BYTES: usize = 1 << 16;
        let mut bytes = MAGIC.to_vec();
        // The first claims to be shorter than a header.
        bytes.extend([7; HEADER_BYTES]);
        while bytes.len() < BYTES {
            let length = u32::try_from(BYTES - bytes.len()).unwrap();
            bytes.extend([7; 9]);
            bytes.extend(length.to_le_bytes());
            bytes.extend(u32::try_from(BYTES).unwrap().to_le_bytes());
        }
        bytes.truncate(BYTES);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.000001");
        fs::write(&path, &bytes).unwrap();
        let mut reading = Reading {
            file: open_regular(&path).unwrap(),
            scan: Scan { bytes: BYTES as u64, has_sums: Some(true), ..Scan::default() },
            at: 0,
            asks_for_sums: false,
            searched: 0,
            asked: &[],
        };
        reading.run().unwrap();
        assert!(!reading.scan.faults.is_empty());
        let most = BYTES as u64 * SEARCHED_MAX + PIECE_BYTES as u64;
        assert!((most / 2..=most).contains(&reading.searched), "{}", reading.searched);
    }
}
