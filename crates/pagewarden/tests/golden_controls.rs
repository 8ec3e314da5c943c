//! `pg_control` of real clusters of 9.6 to 18, one of 19 made by hand, and
//! what damage does to them.

use pagewarden::formats::postgres::files::control::{CONTROL_BYTES, ClusterState, Control};
use pagewarden::formats::postgres::page::Checksums;
use pagewarden::verdict::Kind;

use crate::fixtures::{VERSIONS, bytes, table};

const FILES: [&str; 3] = ["control.on.shutdown", "control.on.crashed", "control.off.shutdown"];

/// CRC-32C a bit at a time, for a second opinion on the product's.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 }
        })
    })
}

/// Where the CRC of a version's file stands.
fn crc_offset(control_version: u32) -> usize {
    match control_version {
        960 => 256,
        1100 => 280,
        1002 | 1201 | 1300 | 1700 => 288,
        1800 => 292,
        1902 => 304,
        other => panic!("control version {other}"),
    }
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn seal(bytes: &mut [u8], crc: usize) {
    let sum = crc32c(&bytes[..crc]);
    put_u32(bytes, crc, sum);
}

#[test]
fn control_file_of_every_version_is_read_as_its_server_shows_it() {
    for version in VERSIONS {
        let rows = table(version, "controls.tsv");
        assert_eq!(rows.len(), FILES.len(), "{version}");
        for row in rows {
            let name = row.text("file");
            let bytes = bytes(version, name);
            assert_eq!(bytes.len(), CONTROL_BYTES);
            let control =
                Control::parse(&bytes).unwrap_or_else(|e| panic!("{version}/{name}: {e:?}"));
            let number = |column| row.number(column).unwrap();
            let state = match number("state") {
                1 => ClusterState::ShutDown,
                6 => ClusterState::InProduction,
                other => panic!("state {other}"),
            };
            assert_eq!(control.state, state, "{version}/{name}");
            assert_eq!(u64::from(control.version), number("control_version"));
            assert_eq!(u64::from(control.catalog_version), number("catalog_version"));
            assert_eq!(control.system_identifier, number("system_identifier"));
            assert_eq!(control.checkpoint_lsn, row.lsn("checkpoint_lsn"), "{version}/{name}");
            assert_eq!(control.redo_lsn, row.lsn("redo_lsn"), "{version}/{name}");
            // The file itself was written when that checkpoint had ended.
            let written = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
            let lasted = written.checked_sub(control.checkpoint_time).unwrap();
            assert!(lasted < 60, "{version}/{name}: {lasted} s");
            assert_eq!(control.page_size as u64, number("block_bytes"));
            assert_eq!(u64::from(control.segment_pages), number("segment_blocks"));
            assert_eq!(u64::from(control.wal_segment_bytes), number("wal_segment_bytes"));
            assert_eq!(control.max_align, 8);
            let expected = match number("data_checksum_version") {
                0 => Checksums::Off,
                _ => Checksums::On,
            };
            assert_eq!(control.checksums, expected, "{version}/{name}");
            // Never a standby, never restored from a backup.
            assert_eq!((control.min_recovery_lsn, control.backup_start_lsn), (0, 0));
            assert!(!control.guessed);
        }
    }
}

/// No server of 19 can be had. The layout is that of its first beta's
/// `pg_control.h`, written down here a second time.
fn control_of_19(checksum_version: u32) -> Vec<u8> {
    let mut bytes = vec![0; CONTROL_BYTES];
    put_u64(&mut bytes, 0, 7_700_000_000_000_000_001);
    put_u32(&mut bytes, 8, 1902);
    put_u32(&mut bytes, 12, 202_605_061);
    put_u32(&mut bytes, 16, 5);
    put_u64(&mut bytes, 24, 1_780_000_000);
    put_u64(&mut bytes, 32, 0x1_2345_6789);
    // The checkpoint's copy: redo first, 96 bytes in all.
    put_u64(&mut bytes, 40, 0x1_2345_6700);
    put_u64(&mut bytes, 136, 1000);
    put_u64(&mut bytes, 144, 0x1_3000_0000);
    put_u64(&mut bytes, 160, 0x1_0000_0028);
    // maxAlign, then floatFormat.
    put_u32(&mut bytes, 208, 8);
    put_u64(&mut bytes, 216, 1_234_567.0_f64.to_bits());
    // blcksz, relseg_size, slru_pages_per_segment or the WAL block size ...
    put_u32(&mut bytes, 224, 8192);
    put_u32(&mut bytes, 228, 131_072);
    put_u32(&mut bytes, 232, 8192);
    put_u32(&mut bytes, 236, 16 << 20);
    put_u32(&mut bytes, 264, checksum_version);
    seal(&mut bytes, 304);
    bytes
}

#[test]
fn control_file_of_19_tells_all_four_states_of_its_checksums() {
    for (number, checksums) in [
        (0, Checksums::Off),
        (1, Checksums::On),
        // In progress, off and on: pages may or may not carry sums.
        (2, Checksums::Changing),
        (3, Checksums::Changing),
    ] {
        let control = Control::parse(&control_of_19(number)).unwrap();
        assert_eq!(control.checksums, checksums, "state {number}");
        assert_eq!(control.state, ClusterState::InArchiveRecovery);
        assert_eq!(control.checkpoint_lsn, 0x1_2345_6789);
        assert_eq!(control.redo_lsn, 0x1_2345_6700);
        assert_eq!(control.min_recovery_lsn, 0x1_3000_0000);
        assert_eq!(control.backup_start_lsn, 0x1_0000_0028);
        assert_eq!(control.page_size, 8192);
        assert_eq!(control.segment_pages, 131_072);
        assert_eq!(control.wal_segment_bytes, 16 << 20);
        assert!(!control.guessed);
    }
}

/// A version between two that are known, or after the newest: the fields are
/// found by their values, and it is said that they were.
#[test]
fn unknown_control_version_is_read_by_its_values() {
    for (version, unknown) in [("12", 1250), ("16", 1350), ("17", 1750), ("18", 1803)] {
        for name in FILES {
            let known = bytes(version, name);
            let mut expected = Control::parse(&known).unwrap();
            let mut bytes = known;
            let crc = crc_offset(expected.version);
            put_u32(&mut bytes, 8, unknown);
            seal(&mut bytes, crc);
            expected.version = unknown;
            expected.guessed = true;
            assert_eq!(Control::parse(&bytes), Ok(expected), "{version}/{name}");
        }
    }
    let mut bytes = control_of_19(1);
    let mut expected = Control::parse(&bytes).unwrap();
    put_u32(&mut bytes, 8, 1905);
    seal(&mut bytes, 304);
    (expected.version, expected.guessed) = (1905, true);
    assert_eq!(Control::parse(&bytes), Ok(expected));
}

#[test]
fn unknown_control_version_without_a_crc_is_not_believed() {
    let mut bytes = bytes("18", FILES[0]);
    put_u32(&mut bytes, 8, 1803);
    let fault = Control::parse(&bytes).unwrap_err();
    assert_eq!(fault.kind, Kind::Header);
    assert!(fault.detail.contains("1803"), "{}", fault.detail);
}

/// Whatever is not covered by the CRC is padding, and changes nothing.
#[test]
fn every_bit_flip_of_the_structure_is_found() {
    for version in VERSIONS {
        for name in FILES {
            let mut bytes = bytes(version, name);
            let sound = Control::parse(&bytes).unwrap();
            let end = crc_offset(sound.version) + 4;
            for bit in 0..400 * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let parsed = Control::parse(&bytes);
                bytes[bit / 8] ^= 1 << (bit % 8);
                if bit / 8 >= end {
                    assert_eq!(parsed.as_ref(), Ok(&sound), "{version}/{name}: bit {bit}");
                } else {
                    let fault = parsed.expect_err("a flipped bit passes");
                    assert!(
                        matches!(fault.kind, Kind::Checksum | Kind::Header),
                        "{version}/{name}: bit {bit}: {fault:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn control_file_cut_at_any_length_is_refused_or_whole() {
    for version in VERSIONS {
        let whole = bytes(version, FILES[0]);
        let sound = Control::parse(&whole).unwrap();
        let end = crc_offset(sound.version) + 4;
        for length in 0..whole.len() {
            match Control::parse(&whole[..length]) {
                Ok(control) => {
                    assert!(length >= end, "{version}: {length} bytes are taken for whole");
                    assert_eq!(control, sound);
                }
                Err(fault) => {
                    assert!(length < end, "{version}: {length}: {fault:?}");
                    let expected = if length == 0 { Kind::Header } else { Kind::Truncated };
                    assert_eq!(fault.kind, expected, "{version}: {length}: {fault:?}");
                }
            }
        }
    }
}

#[test]
fn control_file_of_zeroes_or_noise_is_refused() {
    for length in [0, 1, 12, 300, CONTROL_BYTES, 100_000] {
        let fault = Control::parse(&vec![0; length]).unwrap_err();
        assert_eq!(fault.kind, Kind::Header, "{length}");
    }
    let mut state = 1_u64;
    for _ in 0..2000 {
        let noise: Vec<u8> = (0..512)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_le_bytes()[7]
            })
            .collect();
        assert!(Control::parse(&noise).is_err());
    }
}

/// A CRC proves that the bytes are those that were written, not that a server
/// wrote them.
#[test]
fn impossible_values_are_refused_whatever_the_crc_says() {
    // Block size, segment size, WAL segment size, by their distance from the
    // block size at 216.
    for (distance, values) in [
        (0, &[0, 1, 512, 8191, 65_536, u32::MAX][..]),
        (4, &[0][..]),
        (12, &[0, 1, 1 << 19, (16 << 20) + 1, 1 << 31, u32::MAX][..]),
    ] {
        for value in values {
            let mut bytes = bytes("15", FILES[0]);
            put_u32(&mut bytes, 216 + distance, *value);
            seal(&mut bytes, 288);
            let fault = Control::parse(&bytes).unwrap_err();
            assert_eq!(fault.kind, Kind::Header, "{value} at +{distance}");
        }
    }
}
