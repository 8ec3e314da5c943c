//! The fields of an InnoDB page that are read here. All integers are big-endian.
//!
//! | offset | bytes | what | since |
//! |---|---|---|---|
//! | 0 | 4 | checksum; in `full_crc32` files the key version (0: not encrypted) | |
//! | 4 | 4 | page number | |
//! | 8 | 8 | previous and next page | |
//! | 16 | 8 | LSN of the last change | |
//! | 24 | 2 | page type; in `full_crc32` files with bit 15 set: stored bytes / 256 | |
//! | 26 | 4 | MariaDB, encrypted, old layout: key version | 10.1 |
//! | 30 | 4 | MariaDB, encrypted, old layout: sum of the encrypted page | 10.1 |
//! | 26 | 8 | MariaDB, page_compressed, old layout: algorithm | 10.1 |
//! | 38 | 2 | the same: bytes of the payload | 10.1 |
//! | 40 | | the same: the payload, a whole page; if encrypted 2 bytes algorithm, payload at 42 | 10.1 |
//! | 26 | 1 | MySQL, compressed: version | 5.7 |
//! | 27 | 1 | the same: algorithm | 5.7 |
//! | 28 | 2 | MySQL, compressed or encrypted: the type it had before | 5.7 |
//! | 30 | 2 | MySQL, compressed: bytes from 38 on before | 5.7 |
//! | 32 | 2 | the same: bytes from 38 on that are stored | 5.7 |
//! | 34 | 4 | space id | 4.1 |
//! | end-8 | 4 | old layout: second checksum; `full_crc32`: low half of the LSN | |
//! | end-4 | 4 | old layout: low half of the LSN; `full_crc32`: checksum | |
//!
//! On page 0, and every other page that describes extents:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 38 | 4 | space id (page 0 only, as all up to the flags) |
//! | 46 | 4 | pages in the tablespace |
//! | 50 | 4 | pages from this one on were never initialised |
//! | 54 | 4 | flags |
//! | 150 | | extent descriptors |
//!
//! Sources: MariaDB `fil0fil.h`, `fsp0fsp.h`, `fil0crypt.cc`; MySQL `fil0types.h`, `os0enc.cc`.

#![deny(clippy::arithmetic_side_effects)]

/// See the table at the top of this file.
pub const CHECKSUM: usize = 0;
/// See above.
pub const KEY_VERSION_FULL_CRC32: usize = 0;
/// See above.
pub const PAGE_NUMBER: usize = 4;
/// See above.
pub const LSN: usize = 16;
/// See above.
pub const LSN_LOW: usize = LSN + 4;
/// See above.
pub const PAGE_TYPE: usize = 24;
/// See above.
pub const KEY_VERSION: usize = 26;
/// See above.
pub const ENCRYPTED_SUM: usize = 30;
/// See above.
pub const MARIADB_ALGORITHM: usize = 26;
/// See above.
pub const MARIADB_PAYLOAD_BYTES: usize = 38;
/// See above.
pub const MARIADB_PAYLOAD: usize = 40;
/// See above.
pub const MARIADB_ENCRYPTED_ALGORITHM: usize = 40;
/// See above.
pub const MARIADB_ENCRYPTED_PAYLOAD: usize = 42;
/// See above.
pub const MYSQL_VERSION: usize = 26;
/// See above.
pub const MYSQL_ALGORITHM: usize = 27;
/// See above.
pub const MYSQL_ORIGINAL_TYPE: usize = 28;
/// See above.
pub const MYSQL_ORIGINAL_BYTES: usize = 30;
/// See above.
pub const MYSQL_STORED_BYTES: usize = 32;
/// See above.
pub const SPACE_ID: usize = 34;
/// Where the body begins.
pub const BODY: usize = 38;
/// See above.
pub const FSP_SPACE_ID: usize = 38;
/// See above.
pub const FSP_SIZE: usize = 46;
/// See above.
pub const FSP_FREE_LIMIT: usize = 50;
/// See above.
pub const FSP_FLAGS: usize = 54;
/// See above.
pub const EXTENT_DESCRIPTORS: usize = 150;

/// The page that MySQL compressed transparently.
pub const TYPE_COMPRESSED: u16 = 14;
/// The page that MySQL encrypted.
pub const TYPE_ENCRYPTED: u16 = 15;
/// The page that MySQL compressed and encrypted.
pub const TYPE_COMPRESSED_AND_ENCRYPTED: u16 = 16;
/// The R-tree page that MySQL encrypted.
pub const TYPE_ENCRYPTED_RTREE: u16 = 17;
/// Page 0.
pub const TYPE_FSP_HDR: u16 = 8;
/// A page of an R-tree.
pub const TYPE_RTREE: u16 = 17_854;
/// The page that MariaDB compressed, old layout.
pub const TYPE_PAGE_COMPRESSED: u16 = 34_354;
/// The page that MariaDB compressed and encrypted, old layout.
pub const TYPE_PAGE_COMPRESSED_ENCRYPTED: u16 = 37_401;
/// In the type field of `full_crc32` files: the rest is the stored size.
pub const TYPE_COMPRESSED_MARK: u16 = 1 << 15;

/// Two bytes at `offset`; 0 past the end of a page too short for it.
#[must_use]
pub fn read_u16(page: &[u8], offset: usize) -> u16 {
    let bytes = page.get(offset..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// Four bytes at `offset`; 0 past the end of a page too short for it.
#[must_use]
pub fn read_u32(page: &[u8], offset: usize) -> u32 {
    let bytes = page.get(offset..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Eight bytes at `offset`; 0 past the end of a page too short for it.
#[must_use]
pub fn read_u64(page: &[u8], offset: usize) -> u64 {
    let bytes = page.get(offset..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The first half of the trailer.
#[must_use]
pub fn trailer_first(page: &[u8]) -> u32 {
    read_u32(page, page.len().saturating_sub(8))
}

/// The second half of the trailer.
#[must_use]
pub fn trailer_second(page: &[u8]) -> u32 {
    read_u32(page, page.len().saturating_sub(4))
}
