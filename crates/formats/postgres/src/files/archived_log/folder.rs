//! A folder in which segments lie one by one, perhaps compressed: what `archive_command`,
//! `pg_receivewal`, Barman (`wals/`) and WAL-G (`wal_005/`) leave, plain or with a folder of 16 digits
//! around those of one timeline and 4 GiB.

use std::fs::File;
use std::io::{self, Read, Write as _};

use crate::files::archived_log::store::{LogArchive, NoSegment, StoredSegment};
use crate::files::wal::block::Dialect;
use crate::files::wal::segment::{LONG_HEADER_BYTES, PageHeader};
use pagewarden_core::source::decode::{Compression, decode, is_open_pgp};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::source::store::{Listed, Seen, StorePath, says_nothing_of_the_bytes};
use pagewarden_core::verdict::Kind;

const NAME_DIGITS: usize = 24;
/// As in `.snappy`.
const CODEC_BYTES_MAX: usize = 8;
const FOLDER_DIGITS: usize = 16;
const HISTORY_DIGITS: usize = 8;
const HISTORY_BYTES_MAX: u64 = 1 << 20;
/// The largest segment that a server can have, and the smallest.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// More files than a petabyte of log has.
const FILES_MAX: usize = 1 << 26;

/// How a stored file becomes the bytes that were archived.
pub(in crate::files) type OpenStored =
    dyn Fn(&StorePath) -> io::Result<Box<dyn Read + Send>> + Send + Sync;

/// See the module.
pub(in crate::files) struct LogFolder {
    /// What the stored paths begin at.
    root: StorePath,
    segments: Vec<StoredSegment>,
    histories: Vec<(u32, Result<String, String>)>,
    /// Segments that are still being received are part of the log.
    takes_partial: bool,
    open: Box<OpenStored>,
}

impl LogFolder {
    /// Lists `folder`, which is `root` or lies below it. `open` reads a stored file; see [`decoded`].
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(in crate::files) fn list(
        root: &StorePath,
        folder: &StorePath,
        open: Box<OpenStored>,
    ) -> io::Result<Self> {
        let root = root.clone();
        let (segments, histories) = (Vec::new(), Vec::new());
        let mut found = Self { root, segments, histories, takes_partial: false, open };
        found.add_all(folder)?;
        Ok(found)
    }

    /// Lists a folder that `archive_command` or `pg_receivewal` fills, with the segments that the latter
    /// is still receiving.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(in crate::files) fn list_received(folder: &StorePath) -> io::Result<Self> {
        let mut found = Self {
            root: folder.clone(),
            segments: Vec::new(),
            histories: Vec::new(),
            takes_partial: true,
            open: Box::new(decoded),
        };
        found.add_all(folder)?;
        Ok(found)
    }

    fn add_all(&mut self, folder: &StorePath) -> io::Result<()> {
        self.add_folder(folder, true)?;
        let order = |it: &StoredSegment| (it.name.clone(), it.is_partial, it.stored_file.clone());
        self.segments.sort_by_cached_key(order);
        // One that was archived twice, perhaps compressed in two ways.
        self.segments.dedup_by(|a, b| a.name == b.name);
        // Only the last of a timeline is still being received: one before others was left behind.
        let timeline = |it: &StoredSegment| it.name.get(..HISTORY_DIGITS).map(str::to_owned);
        let mut later = None;
        for segment in std::mem::take(&mut self.segments).into_iter().rev() {
            let timeline = timeline(&segment);
            if !segment.is_partial || later != timeline {
                self.segments.push(segment);
            }
            later = timeline;
        }
        self.segments.reverse();
        Ok(())
    }

    fn add_folder(&mut self, folder: &StorePath, goes_down: bool) -> io::Result<()> {
        for Listed { name, seen } in folder.list()? {
            let path = folder.join(&name);
            let is_folder = || match seen {
                Seen::Other => path.is_folder(),
                seen => seen == Seen::Folder,
            };
            if self.segments.len() >= FILES_MAX {
                return Err(io::Error::other("more files than a log can have"));
            }
            if goes_down && is_hexadecimal(&name, FOLDER_DIGITS) && is_folder() {
                self.add_folder(&path, false)?;
            } else if let Some((name, is_partial)) = segment_name(&name) {
                if is_partial && !self.takes_partial {
                    continue;
                }
                let (name, stored_file) = (name.to_owned(), path.below(&self.root));
                let stored_bytes = seen.bytes();
                self.segments.push(StoredSegment { name, stored_file, is_partial, stored_bytes });
            } else if let Some(timeline) = history_of(&name) {
                let text = (self.open)(&path).and_then(|stored| {
                    let mut text = String::new();
                    stored.take(HISTORY_BYTES_MAX).read_to_string(&mut text).map(|_| text)
                });
                self.histories.push((timeline, text.map_err(|error| error.to_string())));
            }
        }
        Ok(())
    }
}

impl LogArchive for LogFolder {
    fn segments(&self) -> &[StoredSegment] {
        &self.segments
    }

    fn histories(&self) -> Vec<(u32, Result<String, String>)> {
        self.histories.clone()
    }

    fn open(&self, segment: &StoredSegment) -> Result<File, NoSegment> {
        let stored = (self.open)(&self.root.join(&segment.stored_file));
        match (stored, segment.is_partial) {
            (Ok(mut stored), false) => plain_file(&mut *stored),
            (Ok(mut stored), true) => received_file(&mut *stored),
            // Too little of it has come for a decompressor.
            (Err(error), true) if is_of_the_bytes(&error) => received_file(&mut io::empty()),
            (Err(error), _) => Err(no_segment(&error)),
        }
    }
}

/// A stored file decompressed, by its content. One that begins like nothing that is known is
/// `Unsupported`: it is encrypted, or compressed by a program of the user's own.
///
/// # Errors
/// What the system says, and that.
pub(in crate::files) fn decoded(place: &StorePath) -> io::Result<Box<dyn Read + Send>> {
    let file = place.open()?;
    let bytes = file.length()?;
    let decoded = decode(Box::new(file))?;
    let is_plain = decoded.compression == Compression::None;
    // The header of a plain segment may be damaged; its length is still that of one.
    let is_known = bytes.is_power_of_two() || begins_as_log(&decoded.begin);
    let is_text = decoded.begin.iter().all(u8::is_ascii);
    if is_plain && (is_open_pgp(&decoded.begin) || !is_known && !is_text) {
        let error = match is_open_pgp(&decoded.begin) {
            true => "encrypted with GnuPG, which is not read here",
            false => {
                "it begins like no segment of the log: it is encrypted, or compressed in a way that \
                 is not known here"
            }
        };
        return Err(io::Error::new(io::ErrorKind::Unsupported, error));
    }
    Ok(Box::new(decoded.reader))
}

/// True for the beginning of a segment of a version that is known.
pub(in crate::files) fn begins_as_log(begin: &[u8]) -> bool {
    PageHeader::read(begin).is_some_and(|header| Dialect::of_magic(header.magic).is_some())
}

/// The bytes of a segment in a file without a name.
///
/// # Errors
/// They are not those of a whole segment.
pub(in crate::files) fn plain_file(stored: &mut (dyn Read + Send)) -> Result<File, NoSegment> {
    let (file, bytes, end) = copied(stored)?;
    if let Some(error) = end {
        return Err(no_segment(&error));
    }
    match is_length_of_segment(bytes) {
        true => Ok(file),
        false => {
            let words = format!("it holds {bytes} bytes: no whole segment");
            Err(NoSegment::Damaged(Kind::Truncated, None, words))
        }
    }
}

/// The same of a segment that is still being received: a compressed one has no end yet. What has not
/// come is zero, as in one that is not compressed.
fn received_file(stored: &mut (dyn Read + Send)) -> Result<File, NoSegment> {
    let unread = |error: io::Error| NoSegment::Unread(error.to_string());
    let (file, bytes, end) = copied(stored)?;
    if let Some(error) = end.filter(|error| !is_of_the_bytes(error)) {
        return Err(no_segment(&error));
    }
    let mut begin = [0_u8; LONG_HEADER_BYTES];
    let count = read_fully(&file, &mut begin, 0).map_err(unread)?;
    let identity = PageHeader::read(begin.get(..count).unwrap_or_default())
        .and_then(|header| header.identity)
        .map(|identity| u64::from(identity.segment_bytes));
    let length = identity.filter(|length| is_length_of_segment(*length));
    // Of one that has not begun nothing is known, and nothing is needed.
    let length = length.unwrap_or(SEGMENT_BYTES_MIN).max(bytes);
    file.set_len(length).map_err(unread)?;
    Ok(file)
}

fn is_length_of_segment(bytes: u64) -> bool {
    bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)
}

/// What can be read in a file without a name, its length, and the error that ended it early.
fn copied(stored: &mut (dyn Read + Send)) -> Result<(File, u64, Option<io::Error>), NoSegment> {
    let unread = |error: io::Error| NoSegment::Unread(error.to_string());
    let mut file = tempfile::tempfile().map_err(unread)?;
    let mut piece = vec![0_u8; PIECE_BYTES];
    let mut bytes = 0_u64;
    loop {
        let count = match stored.read(&mut piece) {
            Ok(0) => return Ok((file, bytes, None)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok((file, bytes, Some(error))),
        };
        bytes = bytes.saturating_add(count as u64);
        if bytes > SEGMENT_BYTES_MAX {
            return Ok((file, bytes, None));
        }
        file.write_all(piece.get(..count).unwrap_or_default()).map_err(unread)?;
    }
}

/// What the system refuses was not looked at, nor what nothing here reads; what cannot be decompressed is not what was stored.
pub(in crate::files) fn no_segment(error: &io::Error) -> NoSegment {
    if !is_of_the_bytes(error) {
        return NoSegment::Unread(error.to_string());
    }
    NoSegment::Damaged(Kind::Checksum, None, format!("it cannot be decompressed: {error}"))
}

fn is_of_the_bytes(error: &io::Error) -> bool {
    !says_nothing_of_the_bytes(error) && error.kind() != io::ErrorKind::Unsupported
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

/// The name of the segment that a file holds, whatever it is compressed by, and whether that is still
/// being received: `.partial`, `.gz.partial`. The label of a backup is none.
fn segment_name(name: &str) -> Option<(&str, bool)> {
    let (digits, ending) = name.split_at_checked(NAME_DIGITS)?;
    let (ending, is_partial) = match ending.strip_suffix(".partial") {
        Some(ending) => (ending, true),
        None => (ending, false),
    };
    let is_ending = match ending.strip_prefix('.') {
        None => ending.is_empty(),
        Some(codec) => {
            let is_usual = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
            (1..=CODEC_BYTES_MAX).contains(&codec.len()) && codec.bytes().all(is_usual)
        }
    };
    (is_hexadecimal(digits, NAME_DIGITS) && is_ending).then_some((digits, is_partial))
}

fn history_of(name: &str) -> Option<u32> {
    let (digits, ending) = name.split_at_checked(HISTORY_DIGITS)?;
    let is_history = ending == ".history" || ending.starts_with(".history.");
    (is_hexadecimal(digits, HISTORY_DIGITS) && is_history)
        .then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_are_told_from_others() {
        let name = "0000000A00000002000000FF";
        for ending in ["", ".gz", ".lz4", ".zst", ".br", ".lzma"] {
            assert_eq!(segment_name(&format!("{name}{ending}")), Some((name, false)), "{ending}");
            let partial = format!("{name}{ending}.partial");
            assert_eq!(segment_name(&partial), Some((name, true)), "{ending}");
        }
        for ending in [".partial.gz.partial", ".00000028.backup", "0", ".", "x", ".GZ"] {
            assert_eq!(segment_name(&format!("{name}{ending}")), None, "{ending}");
        }
        assert_eq!(history_of("00000003.history"), Some(3));
        assert_eq!(history_of("0000000B.history.lz4"), Some(11));
        for name in ["00000003.histor", "3.history", "\u{e9}0000003.history", ""] {
            assert_eq!(history_of(name), None, "{name}");
        }
    }
}
