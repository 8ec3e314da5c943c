//! Files of the log and the headers of their pages.
//!
//! The log is one long stretch of bytes, addressed by LSN, cut into segments
//! (files, 16 MiB unless chosen otherwise) and pages (8 KiB unless built
//! otherwise). Every page has a header, the first of a file a long one:
//!
//! ```text
//! offset  size  field
//!      0     2  xlp_magic      changes with every version of the format
//!      2     2  xlp_info       1 continues a record, 2 long header, 4 no backup
//!                              was running (of no use to us; gone after 18),
//!                              8 replaces a record that was never finished
//!      4     4  xlp_tli        timeline
//!      8     8  xlp_pageaddr   address of this page
//!     16     4  xlp_rem_len    bytes still to come of the continued record
//!     20     4  (padding)
//!     24     8  xlp_sysid      system identifier of the cluster
//!     32     4  xlp_seg_size
//!     36     4  xlp_xlog_blcksz
//! ```
//!
//! A file is named by timeline, and number of the segment in two parts, eight
//! hexadecimal digits each. Source: `src/include/access/xlog_internal.h`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::files::control::{Control, u32_at, u64_at};
use crate::page::MAX_ALIGN;
use pagewarden_core::source::file::open_regular;

/// Bytes in the header of most pages.
pub const HEADER_BYTES: usize = 24;
/// Bytes in the header of a segment's first page.
pub const LONG_HEADER_BYTES: usize = HEADER_BYTES + 16;
const _: () = assert!(LONG_HEADER_BYTES == 40);

/// Pages of the log that a server can be built with.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=1 << 16;

const CONTINUES: u16 = 0x0001;
const LONG: u16 = 0x0002;
const WITHOUT_BACKUP: u16 = 0x0004;
const REPLACES: u16 = 0x0008;

/// The header of a page of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHeader {
    /// Tells the version of the format.
    pub magic: u16,
    /// Flag bits.
    pub info: u16,
    /// The timeline it was written in.
    pub timeline: u32,
    /// Its own address.
    pub address: u64,
    /// Bytes still to come of a record that began before this page.
    pub remaining: u32,
    /// What the first page of a file says beyond.
    pub identity: Option<Identity>,
}

/// Which cluster a file of the log belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's system identifier.
    pub system_identifier: u64,
    /// Bytes in a segment.
    pub segment_bytes: u32,
    /// Bytes in a page of the log.
    pub page_bytes: u32,
}

impl PageHeader {
    /// Reads the header; `None` if `page` is shorter than it, or has flags
    /// that no version knows.
    #[must_use]
    pub fn read(page: &[u8]) -> Option<Self> {
        let magic_and_info = u32_at(page, 0)?;
        let info = u16::try_from(magic_and_info >> 16).ok()?;
        if info & !(CONTINUES | LONG | WITHOUT_BACKUP | REPLACES) != 0 {
            return None;
        }
        let identity = match info & LONG {
            0 => None,
            _ => Some(Identity {
                system_identifier: u64_at(page, 24)?,
                segment_bytes: u32_at(page, 32)?,
                page_bytes: u32_at(page, 36)?,
            }),
        };
        Some(Self {
            magic: u16::try_from(magic_and_info & 0xFFFF).ok()?,
            info,
            timeline: u32_at(page, 4)?,
            address: u64_at(page, 8)?,
            remaining: u32_at(page, 16)?,
            identity,
        })
    }

    /// Its own length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        if self.info & LONG == 0 { HEADER_BYTES } else { LONG_HEADER_BYTES }
    }

    /// True if the page begins inside a record.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.info & CONTINUES != 0
    }

    /// True if a new record stands where the rest of one ought to, which was
    /// lost in a crash.
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.info & REPLACES != 0
    }
}

/// What the name of a file of the log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// The timeline.
    pub timeline: u32,
    /// The address of its first byte.
    pub begin: u64,
}

impl SegmentName {
    /// Reads a file name; `None` if it is none of a whole segment.
    #[must_use]
    pub fn parse(name: &str, segment_bytes: u32) -> Option<Self> {
        let is_segment =
            name.len() == 24 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
        if !is_segment {
            return None;
        }
        let part = |range| u32::from_str_radix(name.get(range)?, 16).ok();
        let log = u64::from(part(8..16)?);
        let segment = u64::from(part(16..24)?).checked_mul(u64::from(segment_bytes))?;
        let begin = log.checked_mul(1 << 32)?.checked_add(segment)?;
        Some(Self { timeline: part(0..8)?, begin })
    }

    /// The name of the file.
    #[must_use]
    pub fn file_name(&self, segment_bytes: u32) -> String {
        let segment = (self.begin & 0xFFFF_FFFF) / u64::from(segment_bytes.max(1));
        format!("{:08X}{:08X}{segment:08X}", self.timeline, self.begin >> 32)
    }
}

/// Segments that lie in no folder under their own names.
pub trait LooseSegments: fmt::Debug + Send + Sync {
    /// Opens one.
    ///
    /// # Errors
    /// `NotFound` where there is none of this name, or why it has no bytes.
    fn open(&self, name: SegmentName) -> io::Result<File>;

    /// All there are.
    fn names(&self) -> Vec<SegmentName>;
}

/// Taken out of an archive.
impl LooseSegments for BTreeMap<SegmentName, File> {
    fn open(&self, name: SegmentName) -> io::Result<File> {
        self.get(&name).map_or_else(|| Err(io::ErrorKind::NotFound.into()), File::try_clone)
    }

    fn names(&self) -> Vec<SegmentName> {
        self.keys().copied().collect()
    }
}

/// Where the files of a log are, and what they must say of themselves.
#[derive(Debug, Clone)]
pub struct Segments {
    /// Folders to look in, the first one first.
    pub folders: Vec<PathBuf>,
    /// Segments that lie in no folder, because they come from an archive.
    pub loose: Option<Arc<dyn LooseSegments>>,
    /// The timeline that is followed.
    pub timeline: u32,
    /// What the first page of each must say.
    pub identity: Identity,
}

impl Segments {
    /// The log of the cluster with this control file.
    ///
    /// # Errors
    /// Why its log cannot be read, in words.
    pub fn of(control: &Control, timeline: u32, folders: Vec<PathBuf>) -> Result<Self, String> {
        if control.max_align != MAX_ALIGN {
            return Err("the log of a 32-bit server is not read".to_owned());
        }
        let page_bytes = control.wal_page_bytes;
        if !page_bytes.is_power_of_two() || !PAGE_BYTES.contains(&page_bytes) {
            return Err(format!("pages of the log of {page_bytes} bytes are impossible"));
        }
        let identity = Identity {
            system_identifier: control.system_identifier,
            segment_bytes: control.wal_segment_bytes,
            page_bytes,
        };
        Ok(Self { folders, loose: None, timeline, identity })
    }

    /// The segment that holds an address.
    #[must_use]
    pub fn segment_of(&self, address: u64) -> SegmentName {
        let begin = address - address % self.segment_bytes();
        SegmentName { timeline: self.timeline, begin }
    }

    /// The name of the file that holds an address.
    #[must_use]
    pub fn name_of(&self, address: u64) -> String {
        self.segment_of(address).file_name(self.identity.segment_bytes)
    }

    /// Bytes in a segment; never 0.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.identity.segment_bytes.max(1))
    }

    /// Opens the file that holds an address.
    ///
    /// # Errors
    /// `NotFound` where no folder has it, or what the system says of it.
    pub fn open(&self, address: u64) -> io::Result<File> {
        let name = self.name_of(address);
        let mut result = Err(io::ErrorKind::NotFound.into());
        for folder in &self.folders {
            match open_regular(&folder.join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => {
                    result = other;
                    if result.is_ok() {
                        break;
                    }
                }
            }
        }
        match &self.loose {
            Some(loose) if result.is_err() => loose.open(self.segment_of(address)),
            _ => result,
        }
    }

    /// All whole segments there are, of any timeline, as their names say.
    pub fn listed(&self) -> impl Iterator<Item = SegmentName> + '_ {
        self.folders
            .iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flat_map(Iterator::flatten)
            .filter_map(|entry| {
                SegmentName::parse(entry.file_name().to_str()?, self.identity.segment_bytes)
            })
            .chain(self.loose.iter().flat_map(|loose| loose.names()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_names_say_where_a_segment_begins() {
        let begin = |name, bytes| SegmentName::parse(name, bytes).map(|name| name.begin);
        assert_eq!(begin("000000010000000000000001", 16 << 20), Some(0x100_0000));
        assert_eq!(begin("0000000A00000002000000FF", 16 << 20), Some(0x2_FF00_0000));
        assert_eq!(begin("000000010000000000000003", 64 << 20), Some(0xC00_0000));
        for name in [
            "000000010000000000000001.partial",
            "00000001.history",
            "archive_status",
            "",
            "00000001000000000000000g",
            "0000000100000000000000a1",
        ] {
            assert_eq!(begin(name, 16 << 20), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn file_name_that_was_written_is_read_back(
            timeline: u32,
            number in 0..=u64::from(u32::MAX),
            shift in 20..=30_u32,
        ) {
            let segment_bytes = 1_u32 << shift;
            let name = SegmentName { timeline, begin: number << shift };
            let text = name.file_name(segment_bytes);
            prop_assert_eq!(SegmentName::parse(&text, segment_bytes), Some(name));
        }
    }
}
