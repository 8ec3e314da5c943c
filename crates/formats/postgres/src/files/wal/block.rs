//! A record of the log: its header, and which blocks it touches.
//!
//! ```text
//! offset  size  field
//!      0     4  xl_tot_len     whole length
//!      4     4  xl_xid
//!      8     8  xl_prev        address of the record before
//!     16     1  xl_info        high four bits: what, by resource manager
//!     17     1  xl_rmid        resource manager
//!     20     4  xl_crc         CRC-32C of all from 24 on, then of 0 to 19
//!     24        headers of blocks and of the main data, then their content
//! ```
//!
//! Header of a block: id (1, up to 32), fork and flags (1), length of its data
//! (2); with an image its length (2), offset of the hole (2), flags (1) and, if
//! compressed with a hole, the hole's length (2); the relation as tablespace,
//! database and file number (4 each) unless it is that of the block before; the
//! block number (4). Other ids: 255 main data with a length of one byte, 254
//! with one of four, 253 replication origin (2), 252 top-level transaction (4).
//! Contents follow in the order of the headers, the main data last.
//!
//! Source: `src/include/access/xlogrecord.h`, the same from 9.5 on but for the
//! flags of images, which [`Dialect`] knows.

use crate::files::control::{u32_at, u64_at};

/// Bytes in the header of a record.
pub const RECORD_HEADER_BYTES: usize = 24;
/// As much of a record as [`touched`] may need: its header, 33 headers of
/// blocks at their longest, and short main data behind them.
pub const HEAD_BYTES: usize = 4096;

const BLOCK_ID_MAX: u8 = 32;
const TOP_LEVEL_TRANSACTION: u8 = 252;
const ORIGIN: u8 = 253;
const MAIN_LONG: u8 = 254;
const MAIN_SHORT: u8 = 255;

const FORK_MASK: u8 = 0x0F;
const HAS_IMAGE: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const WILL_INIT: u8 = 0x40;
const SAME_RELATION: u8 = 0x80;
const IMAGE_HAS_HOLE: u8 = 0x01;

/// `RM_XLOG_ID`, the log's own records.
pub const OF_LOG: u8 = 0;
/// `RM_XACT_ID`, ends of transactions, with the files that they drop.
pub const OF_TRANSACTIONS: u8 = 1;
/// `XLOG_XACT_OPMASK`: what `info` says of a transaction, without what the record holds besides.
pub const TRANSACTION_OPERATION: u8 = 0x70;
/// `RM_SMGR_ID`, creation and truncation of files.
pub const OF_STORAGE: u8 = 2;
/// `RM_CLOG_ID`, the log of transactions' status.
pub const OF_STATUS: u8 = 3;
/// `RM_DBASE_ID`, creation and removal of databases.
pub const OF_DATABASES: u8 = 4;
/// `RM_TBLSPC_ID`, creation and removal of tablespaces.
pub const OF_TABLESPACES: u8 = 5;
/// `RM_MULTIXACT_ID`, multixacts.
pub const OF_MULTIXACTS: u8 = 6;
/// `RM_RELMAP_ID`, maps of catalogues: its main data begins with the database.
pub const OF_MAPS: u8 = 7;
/// `RM_LOGICALMSG_ID`, the last of the managers that every server has.
pub const LAST_MANAGER: u8 = 21;
/// `XLOG_SWITCH`: the rest of the segment is empty.
pub const SWITCH: u8 = 0x40;
/// `XLOG_BACKUP_END`: its main data is the address where the backup began.
pub const BACKUP_END: u8 = 0x50;
/// `XLOG_CHECKPOINT_SHUTDOWN`: its main data is the checkpoint.
pub const CHECKPOINT_SHUTDOWN: u8 = 0x00;
/// `XLOG_CHECKPOINT_ONLINE`: the same of one that was made while the server ran.
pub const CHECKPOINT_ONLINE: u8 = 0x10;
/// `XLOG_PARAMETER_CHANGE`: settings that standbys must know, `wal_level` among them.
pub const PARAMETER_CHANGE: u8 = 0x60;
/// `XLOG_SMGR_CREATE`: relation, then fork.
pub const STORAGE_CREATE: u8 = 0x10;
/// `CLOG_TRUNCATE`: old transactions are forgotten.
pub const STATUS_TRUNCATE: u8 = 0x10;
/// `XLOG_MULTIXACT_TRUNCATE_ID`: old multixacts are forgotten.
pub const MULTIXACTS_TRUNCATE: u8 = 0x30;
/// `XLOG_SMGR_TRUNCATE`: block, then relation.
pub const STORAGE_TRUNCATE: u8 = 0x20;

/// What differs between versions of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// The flag of an image that replay restores; `None`: it restores all.
    apply: Option<u8>,
    /// Flags of compressed images.
    compressed: u8,
    /// True if the flags say how an image is compressed; else it is by pglz.
    names_method: bool,
}

impl Dialect {
    /// The dialect of a version, by the magic of its pages; `None` if that
    /// version is not known.
    #[must_use]
    pub fn of_magic(magic: u16) -> Option<Self> {
        match magic {
            // 9.6
            0xD093 => Some(Self { apply: None, compressed: 0x02, names_method: false }),
            // 10 to 14: images may be there to compare with only.
            0xD097 | 0xD098 | 0xD101 | 0xD106 | 0xD10D => {
                Some(Self { apply: Some(0x04), compressed: 0x02, names_method: false })
            }
            // 15 to 18: three ways of compression.
            0xD110 | 0xD113 | 0xD116 | 0xD118 => {
                Some(Self { apply: Some(0x02), compressed: 0x04 | 0x08 | 0x10, names_method: true })
            }
            _ => None,
        }
    }

    /// How an image with these flags is compressed; `None` for flags that no server sets.
    fn method(self, flags: u8) -> Option<Method> {
        Some(match flags & self.compressed {
            0 => Method::Plain,
            0x04 if self.names_method => Method::Pglz,
            0x08 => Method::Lz4,
            0x10 => Method::Zstd,
            _ if !self.names_method => Method::Pglz,
            _ => return None,
        })
    }
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The length of the record, this header included.
    pub total: u32,
    /// The transaction that wrote it; 0 for none.
    pub transaction: u32,
    /// Where the record before begins.
    pub previous: u64,
    /// What it is, and flags.
    pub info: u8,
    /// Who wrote it.
    pub manager: u8,
    /// Its checksum.
    pub crc: u32,
}

impl RecordHeader {
    /// Reads the header; `None` if `record` is shorter than one.
    #[must_use]
    pub fn read(record: &[u8]) -> Option<Self> {
        Some(Self {
            total: u32_at(record, 0)?,
            transaction: u32_at(record, 4)?,
            previous: u64_at(record, 8)?,
            info: *record.get(16)?,
            manager: *record.get(17)?,
            crc: u32_at(record, 20)?,
        })
    }

    /// The resource manager's own part of `info`.
    #[must_use]
    pub fn operation(&self) -> u8 {
        self.info & 0xF0
    }
}

/// A relation as the log names it: tablespace, database and file number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locator {
    /// The tablespace's oid: 1663 is that of `base`, 1664 that of `global`.
    pub tablespace: u32,
    /// The database's oid; 0 for relations of the whole cluster.
    pub database: u32,
    /// The file number.
    pub number: u32,
}

impl Locator {
    /// Reads three numbers at `at`.
    #[must_use]
    pub fn read(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            tablespace: u32_at(bytes, at)?,
            database: u32_at(bytes, at.checked_add(4)?)?,
            number: u32_at(bytes, at.checked_add(8)?)?,
        })
    }
}

/// A block that a record touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touched {
    /// The relation.
    pub locator: Locator,
    /// The fork, by its number: 0 main, 1 free space, 2 visibility, 3 init.
    pub fork: u8,
    /// The block.
    pub block: u32,
    /// True if replay does not read the block but overwrites it.
    pub overwritten: bool,
    /// The image that replay restores, if that is how.
    pub image: Option<Image>,
    /// Bytes of content that the header of the block announces, the image first.
    content: usize,
}

/// How a record holds the image of a whole page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Bytes in the record.
    pub length: u16,
    /// Where the hole is that was left out.
    pub hole_offset: u16,
    /// How long the hole is; `None`: as long as the page lacks, where nothing is compressed.
    pub hole_length: Option<u16>,
    /// How it is compressed.
    pub method: Method,
}

/// How an image is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Plain,
    /// PostgreSQL's own.
    Pglz,
    /// LZ4, one block.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// The images of whole pages in a record that is here with all its bytes, each with its block.
/// `None`: this is not how a record is made up.
pub fn images(record: &[u8], dialect: Dialect) -> Option<Vec<(Touched, &[u8])>> {
    let mut blocks = Vec::new();
    let main = touched(record, dialect, |touched| blocks.push(touched))?;
    let total = usize::try_from(RecordHeader::read(record)?.total).ok()?;
    // An empty main data may be long main data that is not here, but then neither are images.
    let contents = blocks.iter().try_fold(main.len(), |sum, one| sum.checked_add(one.content))?;
    let mut at = total.checked_sub(contents)?;
    let mut images = Vec::new();
    for block in blocks {
        if let Some(image) = block.image {
            let end = at.checked_add(usize::from(image.length))?;
            images.push((block, record.get(at..end)?));
        }
        at = at.checked_add(block.content)?;
    }
    Some(images)
}

/// Calls `each` for every block that a record touches and returns the record's
/// main data, empty if `head` does not hold all of it. `head` is the record's
/// beginning, [`HEAD_BYTES`] or all of it. `None`: this is not how a record is
/// made up, whatever its CRC says.
pub fn touched(head: &[u8], dialect: Dialect, mut each: impl FnMut(Touched)) -> Option<&[u8]> {
    let total = usize::try_from(RecordHeader::read(head)?.total).ok()?;
    let mut cursor = Cursor { bytes: head, at: RECORD_HEADER_BYTES };
    let mut content = 0_usize;
    let mut main = 0_usize;
    let mut relation = None;
    // Headers end where what is left is as long as the contents they announce.
    while total.checked_sub(cursor.at)? > content {
        let announced = match cursor.u8()? {
            MAIN_SHORT => {
                main = usize::from(cursor.u8()?);
                main
            }
            MAIN_LONG => {
                main = usize::try_from(cursor.u32()?).ok()?;
                main
            }
            ORIGIN => {
                cursor.u16()?;
                continue;
            }
            TOP_LEVEL_TRANSACTION => {
                cursor.u32()?;
                continue;
            }
            0..=BLOCK_ID_MAX => {
                let (touched, announced) = block_header(&mut cursor, dialect, relation)?;
                relation = Some(touched.locator);
                each(touched);
                announced
            }
            _ => return None,
        };
        content = content.checked_add(announced)?;
    }
    if total.checked_sub(cursor.at)? != content {
        return None;
    }
    Some(head.get(total.checked_sub(main)?..total).unwrap_or_default())
}

/// Reads the header of a block behind its id: what it is, and how much content
/// it announces.
fn block_header(
    cursor: &mut Cursor<'_>,
    dialect: Dialect,
    before: Option<Locator>,
) -> Option<(Touched, usize)> {
    let flags = cursor.u8()?;
    let data = cursor.u16()?;
    if (flags & HAS_DATA != 0) != (data > 0) {
        return None;
    }
    let mut content = usize::from(data);
    let mut restored = None;
    if flags & HAS_IMAGE != 0 {
        let length = cursor.u16()?;
        let hole_offset = cursor.u16()?;
        let image = cursor.u8()?;
        let method = dialect.method(image)?;
        let hole_length = match (image & IMAGE_HAS_HOLE != 0, method) {
            (false, _) => Some(0),
            (true, Method::Plain) => None,
            (true, _) => Some(cursor.u16()?),
        };
        content = content.checked_add(usize::from(length))?;
        let is_restored = dialect.apply.is_none_or(|apply| image & apply != 0);
        restored = is_restored.then_some(Image { length, hole_offset, hole_length, method });
    }
    let locator = if flags & SAME_RELATION == 0 {
        let locator = Locator::read(cursor.bytes, cursor.at)?;
        cursor.at = cursor.at.checked_add(12)?;
        locator
    } else {
        before?
    };
    let touched = Touched {
        locator,
        fork: flags & FORK_MASK,
        block: cursor.u32()?,
        overwritten: restored.is_some() || flags & WILL_INIT != 0,
        image: restored,
        content,
    };
    Some((touched, content))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn u8(&mut self) -> Option<u8> {
        let value = *self.bytes.get(self.at)?;
        self.at = self.at.checked_add(1)?;
        Some(value)
    }

    fn u16(&mut self) -> Option<u16> {
        let value = u16::from_le_bytes(*self.bytes.get(self.at..)?.first_chunk()?);
        self.at = self.at.checked_add(2)?;
        Some(value)
    }

    fn u32(&mut self) -> Option<u32> {
        let value = u32_at(self.bytes, self.at)?;
        self.at = self.at.checked_add(4)?;
        Some(value)
    }
}
