//! What may be wrong with a container, and how it is said.

use std::fmt;

use crate::xpress::XpressError;

/// Something wrong with the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where in the file.
    pub file_offset: u64,
    /// Where in the expanded stream.
    pub stream_offset: u64,
    /// Bytes of the expanded stream that are lost by it.
    pub lost_bytes: u64,
    /// What.
    pub kind: FaultKind,
}

/// What is wrong with the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The words behind the magic are not those of the backups known. What
    /// follows is read all the same.
    Versions(u32, u32),
    /// A chunk's bytes do not have the sum in its header. They are lost.
    Sum {
        /// The sum in the header.
        stored: u32,
        /// The sum they have.
        computed: u32,
    },
    /// A chunk whose sum fits does not expand. It is lost, but with its sum it may
    /// as well be whole, in a form that is not known.
    Expand(XpressError),
    /// A chunk's header is wrong in this byte (0: kind, 1: size, 2: length), and
    /// the sum and the expanded size say what it must be. Nothing is lost.
    Header(u8),
    /// A chunk of this kind is not known. It is lost, and with it all up to the
    /// next chunk whose sum fits; how much that is can only be assumed.
    Unknown {
        /// Its first byte.
        kind: u8,
        /// Bytes of the file up to the next chunk, or to the end.
        file_bytes: u64,
    },
    /// A chunk lies in a part of the file that cannot be read. It is lost.
    Unreadable,
    /// The file ends inside a chunk.
    Truncated,
    /// An index's entries do not have the sum in its header.
    IndexSum {
        /// The sum in the header.
        stored: u32,
        /// The sum they have.
        computed: u32,
    },
    /// An index's end does not repeat its header.
    IndexEnd,
    /// How many entries of an index name no chunk where there is one. What they must be was
    /// measured on one file, so that this alone proves nothing.
    IndexEntries(u64),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Versions(first, second) => {
                write!(f, "a compressed backup of the unknown versions {first} and {second}")
            }
            Self::Sum { stored, computed } => {
                write!(f, "a chunk's header says {stored:#010x} and it sums up to {computed:#010x}")
            }
            Self::Expand(error) => write!(f, "a chunk does not expand: {error}"),
            Self::Header(0) => f.write_str("a chunk's header is wrong in its kind"),
            Self::Header(1) => f.write_str("a chunk's header is wrong in its size"),
            Self::Header(_) => f.write_str("a chunk's header is wrong in its length"),
            Self::Unknown { kind, file_bytes } => {
                write!(f, "a chunk of the unknown kind {kind:#04x}; {file_bytes} bytes are passed")
            }
            Self::Unreadable => f.write_str("a chunk that cannot be read"),
            Self::Truncated => f.write_str("the file is cut off"),
            Self::IndexSum { stored, computed } => {
                write!(f, "an index says {stored:#010x} and sums up to {computed:#010x}")
            }
            Self::IndexEnd => f.write_str("an index whose end is not as its beginning"),
            Self::IndexEntries(1) => f.write_str("an entry of an index names no chunk's place"),
            Self::IndexEntries(count) => {
                write!(f, "{count} entries of an index name no chunk's place")
            }
        }
    }
}
