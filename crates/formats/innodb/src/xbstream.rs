//! The stream of xtrabackup and mariabackup (`--stream=xbstream`, `mbstream`): a
//! row of chunks, pieces of many files in turn.
//!
//! ```text
//! offset  size  field (integers are little-endian)
//!      0     8  magic "XBSTCK01"
//!      8     1  flags: 1 a reader that does not know the chunk may pass over it
//!      9     1  type: 'P' payload, 'S' payload with holes, 'E' end of a file;
//!               mariabackup: 'N' rename, 'R' removal
//!     10     4  length of the name, n
//!     14     n  name
//! ```
//!
//! An end is no longer than that. Then, of the others:
//!
//! ```text
//!      0     4  'S' only: how many holes
//!      .     8  length of the payload
//!      .     8  offset of the payload in the file, holes counted
//!      .     4  CRC-32 (zlib) of the holes' table and the payload
//!      .    8h  'S' only: for each hole, how many bytes to pass over (4), how many
//!               bytes of payload behind it (4)
//!      .        payload
//! ```
//!
//! Source: `xbstream.h`, `xbstream_write.c` and `xbstream_read.c` of Percona
//! XtraBackup, and streams of mariabackup 10.11.
//!
//! Nothing in a stream is believed: names that would lead out of a folder are
//! passed on with an objection, lengths are read in pieces, and what would need
//! trust to go on is refused.

use std::io::{self, Read};

use pagewarden_core::crc::Crc32;

use pagewarden_core::source::decode::fill;

/// What each chunk begins with.
pub const MAGIC: &[u8; 8] = b"XBSTCK01";
/// Up to the name.
const HEAD_BYTES: usize = 14;
const FLAG_IGNORABLE: u8 = 1;
const NAME_BYTES_MAX: u32 = 512;
const HOLES_MAX: u32 = 1 << 17;
/// No file system holds larger files; an offset beyond it is a trick.
const OFFSET_MAX: u64 = 1 << 60;

/// Why a stream cannot be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The system or the decompressor refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It ends inside of a chunk.
    #[error("the stream is cut off in the middle of a chunk")]
    CutOff,
    /// Something that no honest writer makes.
    #[error("the stream is refused: {0}")]
    Refused(String),
}

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// A piece of a file.
    Payload,
    /// The file is complete.
    End,
    /// Something that is to be done with files and is not needed here.
    Other,
}

/// The head of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What it is.
    pub kind: ChunkKind,
    /// The file, without a leading `./`; what is not UTF-8 in it is replaced.
    pub name: String,
    /// Why the name must not be used.
    pub objection: Option<&'static str>,
    /// Where in the file the payload begins.
    pub offset: u64,
    /// Bytes of payload. They are read with [`Chunks::read_data`].
    pub bytes: u64,
    /// For each hole, how long it is and how much payload follows it; empty where
    /// the payload is one piece.
    pub holes: Vec<(u32, u32)>,
}

/// Reads a stream; see the module.
#[derive(Debug)]
pub struct Chunks<R> {
    source: R,
    data_left: u64,
    /// The sum that the current payload must have, and what it has so far.
    due_sum: u32,
    sum: Crc32,
    ended: bool,
}

/// True if a stream begins with a chunk.
#[must_use]
pub fn looks_like_xbstream(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC)
}

impl<R: Read> Chunks<R> {
    /// A stream that begins where `source` stands.
    pub fn new(source: R) -> Self {
        let sum = Crc32::new();
        Self { source, data_left: 0, due_sum: 0, sum, ended: false }
    }

    /// The next chunk; `None` at the end of the stream. What was not read of the
    /// current payload is passed over.
    ///
    /// # Errors
    /// The stream cannot be read on; every later call ends.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, StreamError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.read_head();
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }

    /// Payload of the current chunk that was not read yet.
    #[must_use]
    pub fn data_left(&self) -> u64 {
        self.data_left
    }

    /// Reads payload until `bytes` is full or the payload ends.
    ///
    /// # Errors
    /// The stream ends or cannot be read.
    pub fn read_data(&mut self, bytes: &mut [u8]) -> Result<usize, StreamError> {
        let limit = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = bytes.get_mut(..limit).unwrap_or_default();
        let count = self.fill(bytes)?;
        self.sum.update(bytes.get(..count).unwrap_or_default());
        self.data_left = self.data_left.saturating_sub(count as u64);
        if count < limit {
            self.ended = true;
            return Err(StreamError::CutOff);
        }
        Ok(count)
    }

    /// The stored and the computed sum of the payload that was just read to its
    /// end, if they differ.
    #[must_use]
    pub fn failing_sum(&self) -> Option<(u32, u32)> {
        let computed = self.sum.finish();
        (self.data_left == 0 && computed != self.due_sum).then_some((self.due_sum, computed))
    }

    fn read_head(&mut self) -> Result<Option<Chunk>, StreamError> {
        let mut buffer = [0_u8; 16 << 10];
        while self.data_left > 0 {
            self.read_data(&mut buffer)?;
        }
        let mut head = [0_u8; HEAD_BYTES];
        match self.fill(&mut head)? {
            0 => return Ok(None),
            HEAD_BYTES => {}
            _ => return Err(StreamError::CutOff),
        }
        let [magic @ .., flags, kind, n0, n1, n2, n3] = head;
        if &magic != MAGIC {
            return Err(refused("a chunk does not begin as one"));
        }
        let name = self.read_name(u32::from_le_bytes([n0, n1, n2, n3]))?;
        match kind {
            b'E' => Ok(Some(named(ChunkKind::End, &name))),
            b'P' | b'S' => self.read_payload_head(&name, kind == b'S').map(Some),
            // The new name follows.
            b'N' => {
                let length = self.number::<4>()?;
                self.read_name(u32::try_from(length).unwrap_or(u32::MAX))?;
                Ok(Some(named(ChunkKind::Other, &name)))
            }
            b'R' => Ok(Some(named(ChunkKind::Other, &name))),
            _ if flags & FLAG_IGNORABLE != 0 => {
                let chunk = self.read_payload_head(&name, false)?;
                Ok(Some(Chunk { kind: ChunkKind::Other, ..chunk }))
            }
            other => Err(refused(format!("a chunk of unknown kind {other}"))),
        }
    }

    fn read_payload_head(&mut self, name: &[u8], has_holes: bool) -> Result<Chunk, StreamError> {
        let holes = if has_holes { self.number::<4>()? } else { 0 };
        let bytes = self.number::<8>()?;
        let offset = self.number::<8>()?;
        let due_sum = self.number::<4>()?;
        if bytes > OFFSET_MAX || offset > OFFSET_MAX {
            return Err(refused("an impossible length"));
        }
        if holes > u64::from(HOLES_MAX) {
            return Err(refused(format!("{holes} holes in one chunk")));
        }
        self.sum = Crc32::new();
        let mut table = Vec::new();
        for _ in 0..holes {
            let mut hole = [0_u8; 8];
            if self.fill(&mut hole)? < hole.len() {
                return Err(StreamError::CutOff);
            }
            self.sum.update(&hole);
            let [s0, s1, s2, s3, l0, l1, l2, l3] = hole;
            table
                .push((u32::from_le_bytes([s0, s1, s2, s3]), u32::from_le_bytes([l0, l1, l2, l3])));
        }
        self.due_sum = u32::try_from(due_sum).unwrap_or(0);
        self.data_left = bytes;
        Ok(Chunk { offset, bytes, holes: table, ..named(ChunkKind::Payload, name) })
    }

    fn read_name(&mut self, length: u32) -> Result<Vec<u8>, StreamError> {
        if length > NAME_BYTES_MAX {
            return Err(refused(format!("a name of {length} bytes")));
        }
        let mut name = vec![0_u8; usize::try_from(length).unwrap_or(0)];
        if self.fill(&mut name)? < name.len() {
            return Err(StreamError::CutOff);
        }
        Ok(name)
    }

    /// A little-endian number of `BYTES` bytes.
    fn number<const BYTES: usize>(&mut self) -> Result<u64, StreamError> {
        let mut field = [0_u8; BYTES];
        if self.fill(&mut field)? < BYTES {
            return Err(StreamError::CutOff);
        }
        Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Reads until `bytes` is full or the source ends.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, StreamError> {
        fill(&mut self.source, bytes).map_err(|error| {
            self.ended = true;
            match error.kind() {
                io::ErrorKind::UnexpectedEof => StreamError::CutOff,
                _ => error.into(),
            }
        })
    }
}

fn named(kind: ChunkKind, name: &[u8]) -> Chunk {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let objection = if name.is_empty() || name.contains(&0) {
        Some("no name")
    } else if name.starts_with(b"/") {
        Some("an absolute name")
    } else if name.split(|byte| *byte == b'/').any(|part| part == b"..") {
        Some("a name that leads out of its folder")
    } else {
        None
    };
    let name = String::from_utf8_lossy(name).into_owned();
    Chunk { kind, name, objection, offset: 0, bytes: 0, holes: Vec::new() }
}

fn refused(what: impl Into<String>) -> StreamError {
    StreamError::Refused(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u8, name: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0, kind]);
        bytes.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes
    }

    fn payload(name: &str, offset: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes = head(b'P', name);
        bytes.extend((data.len() as u64).to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(pagewarden_core::crc::crc32(data).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn chunks_of_several_files_come_in_their_order() {
        let stream = [
            payload("./a/t.ibd", 0, b"first"),
            payload("b", 0, b""),
            payload("./a/t.ibd", 5, b"second"),
            head(b'E', "./a/t.ibd"),
        ]
        .concat();
        let mut chunks = Chunks::new(stream.as_slice());
        let mut seen = Vec::new();
        while let Some(chunk) = chunks.next_chunk().unwrap() {
            let mut data = vec![0; 100];
            let count = chunks.read_data(&mut data).unwrap();
            assert!(chunk.kind == ChunkKind::End || chunks.failing_sum().is_none());
            data.truncate(count);
            seen.push((chunk.name, chunk.kind, chunk.offset, data));
        }
        let payload = ChunkKind::Payload;
        assert_eq!(
            seen,
            [
                ("a/t.ibd".to_owned(), payload, 0, b"first".to_vec()),
                ("b".to_owned(), payload, 0, vec![]),
                ("a/t.ibd".to_owned(), payload, 5, b"second".to_vec()),
                ("a/t.ibd".to_owned(), ChunkKind::End, 0, vec![]),
            ]
        );
        assert!(chunks.next_chunk().unwrap().is_none());
    }

    #[test]
    fn payload_that_was_changed_on_its_way_fails_its_sum() {
        let mut stream = payload("t", 0, b"content");
        let last = stream.len() - 1;
        stream[last] ^= 1;
        let mut chunks = Chunks::new(stream.as_slice());
        chunks.next_chunk().unwrap().unwrap();
        let mut data = [0; 7];
        chunks.read_data(&mut data).unwrap();
        assert!(chunks.failing_sum().is_some());
    }

    #[test]
    fn stream_that_is_cut_off_says_so_unless_between_chunks() {
        let stream = [payload("t", 0, b"content"), head(b'E', "t")].concat();
        let whole = [stream.len(), 14 + 1 + 20 + 7, 0];
        for length in 0..stream.len() {
            let mut chunks = Chunks::new(&stream[..length]);
            let outcome = loop {
                match chunks.next_chunk() {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(StreamError::CutOff) => break false,
                    Err(other) => panic!("{length}: {other}"),
                }
            };
            assert_eq!(outcome, whole.contains(&length), "{length}");
        }
    }

    #[test]
    fn tricks_are_refused() {
        let name_too_long = {
            let mut bytes = head(b'P', "");
            bytes[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
            bytes
        };
        let mut too_long = payload("t", u64::MAX, b"");
        for bytes in [name_too_long, std::mem::take(&mut too_long), head(b'?', "t"), vec![b'x'; 99]]
        {
            assert!(matches!(
                Chunks::new(bytes.as_slice()).next_chunk(),
                Err(StreamError::Refused(_))
            ));
        }
        for name in ["../x", "/x", "a/../../x", ""] {
            let stream = payload(name, 0, b"");
            let chunk = Chunks::new(stream.as_slice()).next_chunk().unwrap().unwrap();
            assert!(chunk.objection.is_some(), "{name}");
        }
    }
}
