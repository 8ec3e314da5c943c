//! What can be wrong with the stream of a backup, in a few words.

use std::fmt;

use super::Type;

/// Something wrong with the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Where in the stream.
    pub offset: u64,
    /// What.
    pub kind: FaultKind,
}

/// What is wrong with the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A block's header does not have the sum in it.
    BlockSum {
        /// The sum in it.
        stored: u16,
        /// The sum it has.
        computed: u16,
    },
    /// A stream's header does not have the sum in it.
    StreamSum {
        /// The sum in it.
        stored: u16,
        /// The sum it has.
        computed: u16,
    },
    /// A header lies where nothing can be read.
    Unreadable,
    /// A header has its sum, and its type or size is impossible: zeroes, perhaps.
    Layout,
    /// A block of a type that is not known. Its streams are walked all the same.
    UnknownBlock(Type),
    /// A stream of a type that is not known. It is passed by its length.
    UnknownStream(Type),
    /// How many bytes were passed until a header had its sum again.
    Skipped(u64),
    /// A data stream whose contents are encrypted or compressed in a way that is
    /// not known; it is passed by its length.
    Encoded,
    /// A data stream of this number of bytes, which are not whole extents, as in all
    /// backups seen. Its header sums up, so that this alone proves nothing.
    Extents(u64),
    /// The configuration of a backup set cannot be understood, though its header
    /// sums up.
    Configuration,
    /// The stream ends inside a block, a stream or an extent.
    Truncated,
    /// The stream ends before the backup set does.
    Unfinished,
    /// How many bytes behind the last backup set are no block.
    Trailing(u64),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockSum { stored, computed } => {
                write!(f, "a block's header says {stored:#06x} and sums up to {computed:#06x}")
            }
            Self::StreamSum { stored, computed } => {
                write!(f, "a stream's header says {stored:#06x} and sums up to {computed:#06x}")
            }
            Self::Unreadable => f.write_str("a header that cannot be read"),
            Self::Layout => f.write_str("a header of an impossible type or size"),
            Self::UnknownBlock(kind) => write!(f, "a block of the unknown type {kind}"),
            Self::UnknownStream(kind) => write!(f, "a stream of the unknown type {kind}"),
            Self::Skipped(bytes) => {
                write!(f, "{bytes} bytes passed in search of the next header that sums up")
            }
            Self::Encoded => f.write_str("a data stream that is encrypted or compressed"),
            Self::Extents(bytes) => {
                write!(f, "a data stream of {bytes} bytes, which are not whole extents")
            }
            Self::Configuration => {
                f.write_str("the description of the database and its files cannot be understood")
            }
            Self::Truncated => f.write_str("the backup is cut off"),
            Self::Unfinished => f.write_str("the backup ends before its backup set does"),
            Self::Trailing(bytes) => {
                write!(f, "{bytes} bytes that are no part of the backup follow its end")
            }
        }
    }
}
