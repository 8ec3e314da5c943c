//! A backup, compressed or not.

use std::io;

use super::{Expanded, MAGIC};
use crate::mtf::looks_like_backup;
use crate::stretch::{Stretch, Stretches};

/// A backup's file, in whichever form it is: what a [`Walk`](crate::mtf::Walk)
/// needs.
#[derive(Debug)]
pub enum Container<S> {
    /// The stream as it is; offsets in it are offsets in the file.
    Plain(S),
    /// A compressed backup.
    Compressed(Box<Expanded<S>>),
}

impl<S: Stretches> Container<S> {
    /// The form of a file that begins with these bytes, 512 of them; `None` if it
    /// is no backup, or one whose very first block is damaged. The source gives
    /// them again.
    pub fn of(begin: &[u8], source: S) -> Option<Self> {
        if begin.starts_with(MAGIC) {
            Some(Self::Compressed(Box::new(Expanded::new(source))))
        } else {
            looks_like_backup(begin).then_some(Self::Plain(source))
        }
    }

    /// The container of a compressed backup, for its faults and figures.
    pub fn expanded(&mut self) -> Option<&mut Expanded<S>> {
        match self {
            Self::Plain(_) => None,
            Self::Compressed(expanded) => Some(expanded),
        }
    }
}

impl<S: Stretches> Stretches for Container<S> {
    fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch> {
        match self {
            Self::Plain(source) => source.next_stretch(bytes),
            Self::Compressed(expanded) => expanded.next_stretch(bytes),
        }
    }
}
