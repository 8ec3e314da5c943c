//! Reads a seal. It may be damaged itself: its root hash is tested first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::page::Fingerprint;
use crate::seal::{FOOTER_BYTES, HASH_BYTES, Header, MAGIC, PROLOGUE_BYTES, VERSION};
use crate::source::file::read_fully;
use crate::source::store::StorePath;
use crate::verdict::PageNo;

const HEADER_BYTES_MAX: u32 = 1 << 20;
/// Names of ten million files.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// An LSN takes ten bytes at most.
const LSN_BYTES_MAX: u64 = 10;
/// Pages of a section that is read at once: a segment of 1 GiB has 131,072 of
/// 8 KiB.
const PAGES_MAX: u64 = 1 << 24;

/// A seal that was read, but for its sections.
#[derive(Debug)]
pub struct Sealed {
    path: PathBuf,
    file: File,
    /// What it says of itself.
    pub header: Header,
    /// Files by their names.
    pub files: BTreeMap<String, SealedFile>,
}

/// One file in a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedFile {
    /// Its length in bytes.
    pub length: u64,
    /// The number of its first page.
    pub first_page: PageNo,
    /// Pages that were sealed.
    pub pages: u64,
    section: u64,
    lsn_bytes: u32,
}

impl Sealed {
    /// Opens a seal and tests its root hash, which reads it once.
    ///
    /// # Errors
    /// It cannot be read, is no seal, of a later version, or damaged.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_in(&path.into())
    }

    /// The same of a seal in a store, of which a copy without a name is made.
    ///
    /// # Errors
    /// As [`Sealed::open`].
    pub fn open_in(place: &StorePath) -> Result<Self, Error> {
        let path = place.path();
        let refuse = |why: &str| {
            Error::damaged(path, format!("not a seal that can be believed: {why}"), HINT)
        };
        let read = |source| Error::io("read", path, source);
        let file = place.as_file().map_err(|source| Error::io("open", path, source))?;
        let length = file.metadata().map_err(read)?.len();
        let footer_at = length.checked_sub(FOOTER_BYTES as u64);
        let Some(footer_at) = footer_at.filter(|at| *at >= PROLOGUE_BYTES as u64) else {
            return Err(refuse("it is too short"));
        };
        let prologue = exactly(&file, 0, PROLOGUE_BYTES).map_err(read)?;
        let footer = exactly(&file, footer_at, FOOTER_BYTES).map_err(read)?;
        if prologue.first_chunk() != Some(&MAGIC) {
            return Err(refuse("it does not begin like one"));
        }
        match u32_at(&prologue, 8) {
            Some(VERSION) => {}
            Some(version) => {
                let why = format!("it is of version {version}, of which {VERSION} is known");
                return Err(refuse(&why));
            }
            None => return Err(refuse("it is too short")),
        }
        if footer.last_chunk() != Some(&MAGIC) {
            return Err(refuse("it does not end like one: it was cut off"));
        }
        let root = footer.get(24..56).unwrap_or_default();
        if hash_of(&file, length.saturating_sub(40)).map_err(read)?.as_bytes() != root {
            return Err(refuse("its root hash does not match its content"));
        }
        let header_bytes = u32_at(&prologue, 12).filter(|bytes| *bytes <= HEADER_BYTES_MAX);
        let header = header_bytes
            .and_then(|bytes| exactly(&file, PROLOGUE_BYTES as u64, bytes as usize).ok())
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| refuse("its header is not understood"))?;
        let index = index(&file, footer_at, &footer).map_err(|error| refuse(&error.to_string()))?;
        let files = files(&index).ok_or_else(|| refuse("its index is not understood"))?;
        Ok(Self { path: path.to_owned(), file, header, files })
    }

    /// The file of the seal.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fingerprints of a file's pages; those of empty ones have a hash of 0.
    ///
    /// # Errors
    /// The seal cannot be read, or this section of it is not understood.
    pub fn pages(&self, sealed: &SealedFile) -> Result<Vec<Fingerprint>, Error> {
        self.section(sealed).map_err(|source| Error::io("read", &self.path, source))
    }

    fn section(&self, sealed: &SealedFile) -> io::Result<Vec<Fingerprint>> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a section is not understood");
        if sealed.pages > PAGES_MAX {
            return Err(wrong());
        }
        let pages = usize::try_from(sealed.pages).map_err(io::Error::other)?;
        let lsns = exactly(&self.file, sealed.section, sealed.lsn_bytes as usize)?;
        let hashes_at = sealed.section.saturating_add(u64::from(sealed.lsn_bytes));
        let hashes = exactly(&self.file, hashes_at, pages.saturating_mul(HASH_BYTES))?;
        let room = sealed.pages.saturating_mul(LSN_BYTES_MAX);
        let lsns = zstd::bulk::decompress(&lsns, usize::try_from(room).unwrap_or(usize::MAX))?;
        let lsns = unpacked_lsns(&lsns).filter(|lsns| lsns.len() == pages).ok_or_else(wrong)?;
        let hashes = hashes.chunks_exact(HASH_BYTES).filter_map(|hash| hash.first_chunk());
        Ok(lsns
            .into_iter()
            .zip(hashes)
            .map(|(lsn, hash)| Fingerprint { lsn, hash: u64::from_le_bytes(*hash) })
            .collect())
    }
}

const HINT: &str = "make a new one of a database that is known to be sound: check --seal FILE";

/// The hash of the first `bytes` of a file.
fn hash_of(file: &File, bytes: u64) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut source = file.try_clone()?.take(bytes);
    io::Seek::rewind(&mut source.get_ref())?;
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(buffer.get(..count).unwrap_or_default()),
        };
    }
}

fn index(file: &File, footer_at: u64, footer: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "its index lies outside of it");
    let begin = u64_at(footer, 0).ok_or_else(wrong)?;
    let bytes = u64_at(footer, 16).filter(|bytes| *bytes <= INDEX_BYTES_MAX).ok_or_else(wrong)?;
    let packed = footer_at.checked_sub(begin).filter(|bytes| *bytes <= INDEX_BYTES_MAX);
    let packed = usize::try_from(packed.ok_or_else(wrong)?).map_err(io::Error::other)?;
    let packed = exactly(file, begin, packed)?;
    zstd::bulk::decompress(&packed, usize::try_from(bytes).map_err(io::Error::other)?)
}

fn files(mut index: &[u8]) -> Option<BTreeMap<String, SealedFile>> {
    let mut files = BTreeMap::new();
    let number = |index: &mut &[u8]| {
        let (number, rest) = index.split_first_chunk()?;
        *index = rest;
        Some(u64::from_le_bytes(*number))
    };
    while let Some((length, rest)) = index.split_first_chunk() {
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        index = rest;
        let name = String::from_utf8(name.to_vec()).ok()?;
        let sealed = SealedFile {
            length: number(&mut index)?,
            first_page: PageNo(number(&mut index)?),
            pages: number(&mut index)?,
            section: number(&mut index)?,
            lsn_bytes: {
                let (bytes, rest) = index.split_first_chunk()?;
                index = rest;
                u32::from_le_bytes(*bytes)
            },
        };
        files.insert(name, sealed);
    }
    index.is_empty().then_some(files)
}

fn unpacked_lsns(mut packed: &[u8]) -> Option<Vec<u64>> {
    let mut lsns = Vec::new();
    let mut last = 0_u64;
    while !packed.is_empty() {
        let mut zigzag = 0_u64;
        let mut shift = 0_u32;
        loop {
            let (byte, rest) = packed.split_first()?;
            packed = rest;
            zigzag |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift = shift.checked_add(7)?;
        }
        let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        last = last.wrapping_add(difference);
        lsns.push(last);
    }
    Some(lsns)
}

fn exactly(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    // Nothing is allocated for what the file does not hold.
    let end = offset.checked_add(length as u64);
    if end.is_none_or(|end| end > file.metadata().map_or(0, |metadata| metadata.len())) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0_u8; length];
    match read_fully(file, &mut bytes, offset)? {
        count if count == length => Ok(bytes),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
