//! Files that are one target when they are named together, such as the stripes
//! of a backup.

use crate::database::Target;
use crate::error::Error;
use crate::source::store::StorePath;

/// How the files of one target find each other.
#[derive(Debug)]
pub struct PartsKind {
    /// Which whole a file is a part of, and which part it is; `None` for a file
    /// that is none.
    pub part: fn(&StorePath) -> Option<Part>,
    /// Opens the parts of one whole.
    ///
    /// # Errors
    /// As [`Format::open`](crate::database::Format::open).
    pub open: fn(&[StorePath]) -> Result<Target, Error>,
}

/// A part of a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The same for all parts of one whole.
    pub whole: [u8; 16],
    /// Which of them it is.
    pub number: u16,
}
