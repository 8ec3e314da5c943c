//! `pg_filenode.map` of real clusters.

use pagewarden::formats::postgres::files::control::u32_at;
use pagewarden::formats::postgres::files::maps::check;
use pagewarden::verdict::Kind;

use crate::fixtures::{VERSIONS, bytes, table};

const MAPS: [&str; 2] = ["filenode.global.map", "filenode.database.map"];

#[test]
fn maps_of_every_version_pass_and_hold_the_mappings_their_server_told() {
    for version in VERSIONS {
        let rows = table(version, "maps.tsv");
        for name in MAPS {
            let map = bytes(version, name);
            assert_eq!(check(&map), Ok(()), "{version}/{name}");
            for row in rows.iter().filter(|row| row.text("file") == name) {
                let number = |column| row.number(column).map(|n| u32::try_from(n).unwrap());
                let count = u32_at(&map, 4).unwrap() as usize;
                let mapped = (0..count).find(|n| u32_at(&map, 8 + 8 * n) == number("oid"));
                let file = mapped.and_then(|n| u32_at(&map, 12 + 8 * n));
                assert_eq!(file, number("filenode"), "{version}/{name}: {row:?}");
            }
        }
    }
}

#[test]
fn every_bit_flip_up_to_the_crc_is_found() {
    for version in VERSIONS {
        for name in MAPS {
            let mut map = bytes(version, name);
            // Up to 15 four bytes of padding follow the CRC.
            let covered = if map.len() == 512 { 508 } else { 524 };
            for bit in 0..map.len() * 8 {
                map[bit / 8] ^= 1 << (bit % 8);
                let found = check(&map).is_err();
                assert_eq!(found, bit / 8 < covered, "{version}/{name}: bit {bit}");
                map[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn map_of_another_length_is_truncated_and_one_of_zeroes_is_no_map() {
    for version in VERSIONS {
        let map = bytes(version, MAPS[0]);
        for length in 0..map.len() {
            // 16 and later have a longer map than 15 and earlier.
            if length == 512 {
                assert!(check(&map[..length]).is_err());
                continue;
            }
            let (kind, _) = check(&map[..length]).unwrap_err();
            let expected = if length < 4 { Kind::Header } else { Kind::Truncated };
            assert_eq!(kind, expected, "{version}: {length} bytes");
        }
        let (kind, detail) = check(&vec![0; map.len()]).unwrap_err();
        assert_eq!((kind, detail.as_str()), (Kind::Header, "it is all zero"));
    }
}
