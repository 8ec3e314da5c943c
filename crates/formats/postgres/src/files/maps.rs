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

use crate::files::control::u32_at;
use pagewarden_core::crc::crc32c;
use pagewarden_core::verdict::Kind;

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

/// The file number of a catalogue, by its oid; `None` if this map does not name
/// it, or cannot be believed.
#[must_use]
pub fn file_number(bytes: &[u8], oid: u32) -> Option<u32> {
    mappings(bytes).find(|mapping| mapping.0 == oid).map(|mapping| mapping.1)
}

/// True if the map names this file number, and can be believed.
#[must_use]
pub fn names_file(bytes: &[u8], number: u32) -> bool {
    mappings(bytes).any(|mapping| mapping.1 == number)
}

/// Oids with their file numbers; none if the map cannot be believed.
pub fn mappings(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    let count = check(bytes).ok().and_then(|()| usize::try_from(u32_at(bytes, 4)?).ok());
    let pairs = bytes.get(MAPPINGS..).unwrap_or_default().chunks_exact(8);
    pairs.take(count.unwrap_or(0)).filter_map(|pair| Some((u32_at(pair, 0)?, u32_at(pair, 4)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The maps of real servers, by the path of their file.
    fn golden() -> Vec<(String, Vec<u8>)> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/postgres");
        let mut maps = Vec::new();
        for version in std::fs::read_dir(root).unwrap().flatten() {
            for name in ["filenode.global.map", "filenode.database.map"] {
                let path = version.path().join(name);
                if let Ok(bytes) = std::fs::read(&path) {
                    maps.push((path.display().to_string(), bytes));
                }
            }
        }
        assert!(!maps.is_empty(), "no maps below {root}");
        maps
    }

    #[test]
    fn maps_of_real_servers_pass_and_every_flipped_bit_does_not() {
        for (path, mut bytes) in golden() {
            assert_eq!(check(&bytes), Ok(()), "{path}");
            // The four bytes behind the CRC of the short map are padding.
            let covered = bytes.len() - if bytes.len() == 512 { 4 } else { 0 };
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    bytes[at] ^= 1 << bit;
                    assert_eq!(check(&bytes).is_err(), at < covered, "{path}: bit {bit} of {at}");
                    bytes[at] ^= 1 << bit;
                }
            }
            for length in 0..bytes.len() {
                assert!(check(&bytes[..length]).is_err(), "{path}: {length} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_map(
            mut bytes in prop::collection::vec(any::<u8>(), 0..MAP_BYTES_MAX),
            length in prop::option::of(prop::sample::select(vec![512_usize, 524])),
            has_magic: bool,
            count in prop_oneof![0..70_u32, any::<u32>()],
        ) {
            if let Some(length) = length {
                bytes.resize(length, 0);
            }
            if has_magic && bytes.len() >= MAPPINGS {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[4..MAPPINGS].copy_from_slice(&count.to_le_bytes());
            }
            prop_assert!(check(&bytes).is_err());
        }
    }
}
