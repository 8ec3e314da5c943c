//! The file of a pack: one of this machine, or an object of a store, which is read where it is.

use std::fs::{File, Metadata};
use std::io;
use std::num::NonZero;

use pagewarden_core::system::fs::Advice;
use pagewarden_core::system::{Identity, identity_of_open};

use crate::source::file::{open_regular, read_fully};
use crate::source::store::{StorePath, StoredFile};

/// See the module.
#[derive(Debug)]
pub(super) enum PackFile {
    /// Of this machine.
    Here(File),
    /// Of a store.
    Stored(StoredFile),
}

impl PackFile {
    /// Opens it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(super) fn open(place: &StorePath) -> io::Result<Self> {
        match place.local_path() {
            Some(path) => open_regular(path).map(Self::Here),
            None => place.open().map(Self::Stored),
        }
    }

    /// How many bytes it has.
    pub(super) fn length(&self) -> io::Result<u64> {
        match self {
            Self::Here(file) => file.metadata().map(|metadata| metadata.len()),
            Self::Stored(file) => file.length(),
        }
    }

    /// Fills `bytes` from `offset` on; how much there was.
    pub(super) fn read_fully(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = match self {
            Self::Here(file) => return read_fully(file, bytes, offset),
            Self::Stored(file) => file,
        };
        let mut filled = 0_usize;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset.saturating_add(filled as u64))? {
                0 => break,
                count => filled = filled.saturating_add(count),
            }
        }
        Ok(filled)
    }

    /// Says how it will be read. What the system does with that is its matter; a store has none of it.
    pub(super) fn advise(&self, begin: u64, count: Option<NonZero<u64>>, advice: Advice) {
        if let Self::Here(file) = self {
            let _ = pagewarden_core::system::fs::fadvise(file, begin, count, advice);
        }
    }

    /// What the system says of it; nothing of what is in a store.
    pub(super) fn status(&self) -> io::Result<Option<(Metadata, Identity)>> {
        match self {
            Self::Here(file) => Ok(Some((file.metadata()?, identity_of_open(file)?))),
            Self::Stored(_) => Ok(None),
        }
    }
}
