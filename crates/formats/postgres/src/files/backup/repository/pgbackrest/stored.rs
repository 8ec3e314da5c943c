//! Stored bytes: a range of a file in the repository, with its sums, decrypted and decompressed.

use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use sha1::{Digest as _, Sha1};

use crate::files::backup::repository::pgbackrest::cipher::{Decrypted, Passphrase};
use crate::files::backup::repository::pgbackrest::info::hex;
use pagewarden_core::source::decode::{Lz4Frames, ZSTD_WINDOW_LOG_MAX};
use pagewarden_core::source::store::{StorePath, StoredFile};

/// Read from a file at a time.
const INPUT_BYTES: usize = 64 << 10;

/// How stored files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Gzip,
    Lz4,
    Zstd,
    Bzip2,
}

impl Codec {
    /// By its name in a manifest.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "gz" => Some(Self::Gzip),
            "lz4" => Some(Self::Lz4),
            "zst" => Some(Self::Zstd),
            "bz2" => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Its name in a manifest.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zst",
            Self::Bzip2 => "bz2",
        }
    }

    /// What is added to the names of stored files.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Lz4 => ".lz4",
            Self::Zstd => ".zst",
            Self::Bzip2 => ".bz2",
        }
    }

    /// Decompresses a source; raw gzip is zlib.
    fn decompress(
        self,
        source: Box<dyn Read + Send>,
        raw: bool,
    ) -> io::Result<Box<dyn Read + Send>> {
        let source = BufReader::with_capacity(INPUT_BYTES, source);
        Ok(match self {
            Self::None => Box::new(source),
            Self::Gzip if raw => Box::new(ZlibDecoder::new(source)),
            Self::Gzip => Box::new(MultiGzDecoder::new(source)),
            Self::Lz4 => Box::new(Lz4Frames::new(source)),
            Self::Bzip2 => Box::new(MultiBzDecoder::new(source)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }
}

/// How the bytes of a set's files are to be taken.
#[derive(Debug, Clone)]
pub(super) struct Coding {
    pub(super) codec: Codec,
    pub(super) raw: bool,
    pub(super) passphrase: Option<Passphrase>,
}

impl Coding {
    /// True if the stored bytes are those of the file.
    pub(super) fn changes_nothing(&self) -> bool {
        self.codec == Codec::None && self.passphrase.is_none()
    }

    /// Decrypts and decompresses a source.
    ///
    /// # Errors
    /// What it begins with is not so.
    pub(super) fn decode(&self, source: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        let source: Box<dyn Read + Send> = match &self.passphrase {
            Some(passphrase) => Box::new(Decrypted::new(source, passphrase, self.raw)?),
            None => source,
        };
        self.codec.decompress(source, self.raw)
    }
}

/// What is known of a range that is read.
#[derive(Debug, Default)]
pub(super) struct Taken {
    hash: Sha1,
    /// Bytes of the range that were read.
    bytes: u64,
    /// What the system said when it failed.
    trouble: Option<String>,
}

/// A range of a stored file; see the module. Clones share one position.
#[derive(Debug, Clone)]
pub(super) struct Range {
    file: StoredFile,
    offset: u64,
    bytes: u64,
    taken: Arc<Mutex<Taken>>,
}

/// What came of a range that was read to its end.
#[derive(Debug)]
pub(super) struct Summed {
    /// SHA-1 of its bytes.
    pub(super) hash: String,
    /// Bytes that were there, of those that ought to be.
    pub(super) bytes: u64,
    /// What the system said when it failed.
    pub(super) trouble: Option<String>,
}

impl Range {
    /// A range of a file.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(place: &StorePath, offset: u64, bytes: u64) -> io::Result<Self> {
        let file = place.open()?;
        Ok(Self { file, offset, bytes, taken: Arc::default() })
    }

    /// Bytes of the whole file.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn file_bytes(&self) -> io::Result<u64> {
        self.file.length()
    }

    /// Where it stands in the file.
    pub(super) fn position(&self) -> u64 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.offset.saturating_add(taken.bytes)
    }

    /// Bytes that were not read yet.
    pub(super) fn left(&self) -> u64 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.bytes.saturating_sub(taken.bytes)
    }

    /// Reads what was not read yet, and says what the whole is.
    pub(super) fn sum_up(mut self) -> Summed {
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let mut piece = vec![0; left.min(INPUT_BYTES)];
        // What is wrong is kept in `taken`.
        while matches!(self.read(&mut piece), Ok(1..)) {}
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        Summed {
            hash: hex(&std::mem::take(&mut taken.hash).finalize()),
            bytes: taken.bytes,
            trouble: taken.trouble.take(),
        }
    }
}

impl Read for Range {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.bytes.saturating_sub(taken.bytes);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let room = bytes.get_mut(..length).unwrap_or_default();
        if room.is_empty() {
            return Ok(0);
        }
        let at = self.offset.saturating_add(taken.bytes);
        match self.file.read_at(room, at) {
            Ok(count) => {
                taken.hash.update(room.get(..count).unwrap_or_default());
                taken.bytes = taken.bytes.saturating_add(count as u64);
                Ok(count)
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    taken.trouble = Some(error.to_string());
                }
                Err(error)
            }
        }
    }
}
