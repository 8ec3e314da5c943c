//! The fixed parts of a pack, to and from bytes. See the parent module for the
//! whole.

use crate::pack::codec::Codec;
use crate::pack::{BEGIN, PackError, SPAN_BYTES, VERSION, VERSION_PLAIN, crc};

/// Bytes of the header in version 1, before the dictionary.
const HEADER_BYTES_PLAIN: usize = 36;
/// From version 2 on: the root of the base is in it.
pub(super) const HEADER_BYTES_MAX: usize = HEADER_BYTES_PLAIN + 32;
/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = 120;
/// Bytes of a span's head, before its blocks' entries.
pub(super) const SPAN_HEAD_BYTES: usize = 24;
/// Bytes of a file's record before the entry.
pub(super) const FILE_HEAD_BYTES: usize = 20;
/// Bytes that say how a block is stored.
pub(super) const BLOCK_ENTRY_BYTES: usize = 12;
/// Spans in a leaf of the index.
pub(super) const LEAF_SPANS: u64 = 64;
/// Pagewarden writes no longer dictionary.
const DICTIONARY_BYTES_MAX: u32 = 1 << 20;
/// A block's stored length has three bytes.
const STORED_BYTES_MAX: u32 = (1 << 24) - 1;

const BLOCK_BYTES_MIN: u32 = 4 << 10;
const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// Takes numbers off the front of bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn hash(&mut self) -> Option<[u8; 32]> {
        self.array()
    }
}

/// What a pack begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// 1 or 2.
    pub(super) version: u32,
    pub(super) block_bytes: u32,
    pub(super) dictionary_bytes: u32,
    pub(super) dictionary_crc: u64,
    /// The root of the pack that a delta builds on.
    pub(super) base: Option<[u8; 32]>,
}

impl Header {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = BEGIN.as_bytes().to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.block_bytes.to_le_bytes());
        bytes.extend(self.dictionary_bytes.to_le_bytes());
        bytes.extend(self.dictionary_crc.to_le_bytes());
        if self.version > VERSION_PLAIN {
            bytes.extend(self.base.unwrap_or_default());
        }
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes
    }

    /// Bytes of it, before the dictionary.
    pub(super) fn bytes(self) -> u64 {
        header_bytes(self.version) as u64
    }

    /// # Errors
    /// It is no pack, or none that can be read.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, PackError> {
        const DAMAGED: PackError = PackError::Damaged { part: "header", offset: 0 };
        if !bytes.starts_with(BEGIN.as_bytes()) {
            return Err(PackError::NotAPack);
        }
        let mut fields = Fields(bytes.get(BEGIN.len()..).unwrap_or_default());
        let version = fields.u32().ok_or(PackError::Cut)?;
        if !(VERSION_PLAIN..=VERSION).contains(&version) {
            return Err(PackError::Version(version));
        }
        let mut read = || {
            let header = Self {
                version,
                block_bytes: fields.u32()?,
                dictionary_bytes: fields.u32()?,
                dictionary_crc: fields.u64()?,
                base: None,
            };
            let base = if version > VERSION_PLAIN { fields.hash()? } else { [0; 32] };
            Some((Self { base: (base != [0; 32]).then_some(base), ..header }, fields.u64()?))
        };
        let (header, sum) = read().ok_or(PackError::Cut)?;
        let covered = header_bytes(version).saturating_sub(size_of::<u64>());
        if crc(bytes.get(..covered).unwrap_or_default()) != sum {
            return Err(DAMAGED);
        }
        if !is_block_size(header.block_bytes) {
            return Err(PackError::Hostile("its blocks have an impossible size"));
        }
        if header.dictionary_bytes > DICTIONARY_BYTES_MAX {
            return Err(PackError::Hostile("its dictionary is too long"));
        }
        Ok(header)
    }
}

fn header_bytes(version: u32) -> usize {
    if version > VERSION_PLAIN { HEADER_BYTES_MAX } else { HEADER_BYTES_PLAIN }
}

/// True for what blocks may have.
pub(super) fn is_block_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes)
}

/// A part of the pack that is compressed as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) begin: u64,
    pub(super) stored_bytes: u64,
    pub(super) bytes: u64,
    /// Of what is stored.
    pub(super) crc: u64,
}

/// What a pack ends with: where the index begins (8), two sections of where it
/// begins, bytes stored, bytes it expands to and CRC of what is stored (8 each),
/// the root (32), CRC of all these (8), "PWPACK\r\n" (8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index: u64,
    pub(super) table: Section,
    pub(super) report: Section,
    pub(super) root: [u8; 32],
}

impl Footer {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.index.to_le_bytes().to_vec();
        for section in [self.table, self.report] {
            for number in [section.begin, section.stored_bytes, section.bytes, section.crc] {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes.extend(self.root);
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes.extend(BEGIN.as_bytes());
        bytes
    }

    /// Reads the last bytes of a pack of this length.
    ///
    /// # Errors
    /// It does not end so, or the parts do not lie one behind the other.
    pub(super) fn parse(bytes: &[u8], pack_bytes: u64) -> Result<Self, PackError> {
        let begin = pack_bytes.saturating_sub(FOOTER_BYTES as u64);
        let mut fields = Fields(bytes);
        let section = |fields: &mut Fields<'_>| {
            Some(Section {
                begin: fields.u64()?,
                stored_bytes: fields.u64()?,
                bytes: fields.u64()?,
                crc: fields.u64()?,
            })
        };
        let mut read = || {
            let footer = Self {
                index: fields.u64()?,
                table: section(&mut fields)?,
                report: section(&mut fields)?,
                root: fields.hash()?,
            };
            Some((footer, fields.u64()?))
        };
        let (footer, sum) = read().ok_or(PackError::Cut)?;
        if fields.0 != BEGIN.as_bytes() {
            return Err(PackError::Cut);
        }
        let covered = bytes.get(..FOOTER_BYTES - 16).unwrap_or_default();
        if crc(covered) != sum {
            return Err(PackError::Damaged { part: "footer", offset: begin });
        }
        let ends =
            |section: Section, end| section.begin.checked_add(section.stored_bytes) == Some(end);
        if footer.index < HEADER_BYTES_PLAIN as u64
            || footer.index > footer.table.begin
            || !ends(footer.table, footer.report.begin)
            || !ends(footer.report, begin)
        {
            return Err(PackError::Hostile("its parts do not lie one behind the other"));
        }
        Ok(footer)
    }
}

/// How a block is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub(super) codec: Codec,
    pub(super) stored_bytes: u32,
    /// Of what it expands to.
    pub(super) crc: u64,
}

impl BlockEntry {
    pub(super) fn to_bytes(self) -> [u8; BLOCK_ENTRY_BYTES] {
        let mut bytes = [0; BLOCK_ENTRY_BYTES];
        let stored = self.stored_bytes & STORED_BYTES_MAX | u32::from(self.codec.code()) << 24;
        let (head, sum) = bytes.split_at_mut(4);
        head.copy_from_slice(&stored.to_le_bytes());
        sum.copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let stored = fields.u32()?;
        let codec = Codec::of_code(u8::try_from(stored >> 24).ok()?)?;
        Some(Self { codec, stored_bytes: stored & STORED_BYTES_MAX, crc: fields.u64()? })
    }
}

/// The most blocks that a span can have.
pub(super) const SPAN_BLOCKS_MAX: u32 = BLOCK_BYTES_MAX / BLOCK_BYTES_MIN;
const _: () = assert!(BLOCK_BYTES_MAX as usize == SPAN_BYTES);

/// A record's first fields: its sum comes from what is given, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordHead {
    /// Bytes of the entry that follows; number of the file; sum of all.
    File { entry_bytes: u32, file: u32, crc: u64 },
    /// Entries of blocks that follow; number of the file, and of the span in it.
    Span { blocks: u32, file: u32, span: u32, crc: u64 },
}

impl RecordHead {
    /// Reads the head of a record; `None` if no record begins so.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        match fields.take(4)? {
            b"FILE" => Some(Self::File {
                entry_bytes: fields.u32()?,
                file: fields.u32()?,
                crc: fields.u64()?,
            }),
            b"SPAN" => Some(Self::Span {
                blocks: fields.u32()?,
                file: fields.u32()?,
                span: fields.u32()?,
                crc: fields.u64()?,
            }),
            _ => None,
        }
    }
}

/// The head of a span's record, with its blocks' entries.
pub(super) fn span_head(file: u32, span: u32, entries: &[BlockEntry]) -> Vec<u8> {
    let mut begin = b"SPAN".to_vec();
    for number in [u32::try_from(entries.len()).unwrap_or(0), file, span] {
        begin.extend(number.to_le_bytes());
    }
    let entries: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
    let sum = crc(&[begin.as_slice(), &entries].concat());
    begin.extend(sum.to_le_bytes());
    begin.extend(entries);
    begin
}

/// A record that says which file comes.
pub(super) fn file_record(file: u32, entry: &[u8]) -> Vec<u8> {
    let mut begin = b"FILE".to_vec();
    for number in [u32::try_from(entry.len()).unwrap_or(0), file] {
        begin.extend(number.to_le_bytes());
    }
    let sum = crc(&[begin.as_slice(), entry].concat());
    begin.extend(sum.to_le_bytes());
    begin.extend(entry);
    begin
}

/// How many spans a file of this length has.
pub(super) fn span_count(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(SPAN_BYTES as u64)
}

/// Bytes of that span of a file of this length.
pub(super) fn span_bytes(file_bytes: u64, span: u64) -> usize {
    let rest = file_bytes.saturating_sub(span.saturating_mul(SPAN_BYTES as u64));
    usize::try_from(rest).unwrap_or(SPAN_BYTES).min(SPAN_BYTES)
}
