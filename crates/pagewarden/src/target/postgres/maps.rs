//! `pg_filenode.map`: which files hold the catalogues that every session needs
//! before it can read any catalogue.
//!
//! ```text
//! offset  size  field
//!      0     4  magic, 0x592717
//!      4     4  num_mappings
//!      8   8*n  pairs of relation oid and file number; n is 62, from 16 on 64
//!  8+8*n     4  crc, CRC-32C of everything before it
//! ```
//!
//! Source: `src/backend/utils/cache/relmapper.c`; 512 bytes up to 15 (four of
//! them padding), 524 from 16 on, both seen on real clusters.

use crate::target::postgres::control::{crc32c, u32_at};
use crate::verdict::Kind;

/// More than any version writes.
pub const MAP_BYTES_MAX: usize = 1024;

const MAGIC: u32 = 0x0059_2717;
const MAPPINGS: usize = 8;

/// Checks the content of a map; what is wrong with it, if anything.
///
/// # Errors
/// The kind of damage and a sentence.
pub fn check(bytes: &[u8]) -> Result<(), (Kind, String)> {
    if u32_at(bytes, 0) != Some(MAGIC) {
        let what = if bytes.iter().all(|byte| *byte == 0) {
            "it is all zero"
        } else {
            "its magic is wrong"
        };
        return Err((Kind::Header, what.to_owned()));
    }
    let slots = match bytes.len() {
        512 => 62,
        524 => 64,
        length => {
            return Err((Kind::Truncated, format!("it has {length} bytes instead of 512 or 524")));
        }
    };
    let count = u32_at(bytes, 4).unwrap_or(0);
    if usize::try_from(count).is_ok_and(|count| count > slots) {
        return Err((Kind::Header, format!("it claims {count} mappings, of at most {slots}")));
    }
    let crc = MAPPINGS + 8 * slots;
    let stored = u32_at(bytes, crc);
    let computed = bytes.get(..crc).map(crc32c);
    if stored != computed {
        return Err((Kind::Checksum, "its CRC does not match its content".to_owned()));
    }
    Ok(())
}
