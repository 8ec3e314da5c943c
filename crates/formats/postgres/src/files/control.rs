//! `global/pg_control`: what the cluster is and in which state.
//!
//! 8,192 bytes on disk, of which the structure takes the first 300 or so. Its
//! layout differs by version; the offsets below were read from real clusters
//! of 9.6 to 18 (`fixtures/postgres/*/pg_control`); those of 19 come from its
//! beta's `src/include/catalog/pg_control.h`, for want of a server to run.
//!
//! ```text
//! offset  size  field
//!      0     8  system_identifier
//!      8     4  pg_control_version
//!     12     4  catalog_version_no
//!     16     4  state
//!     24     8  time
//!     32     8  checkPoint, the position of the latest checkpoint record
//!   [ 40     8  prevCheckPoint, up to version 10 ]
//!      c        checkPointCopy: redo position (8), timeline (4), previous
//!               timeline (4), fullPageWrites (1) ...
//! c+s-24     8  its time, followed by three transaction numbers
//!    c+s     8  unloggedLSN
//!  c+s+8     8  minRecoveryPoint
//! c+s+16     4  minRecoveryPointTLI
//! c+s+24     8  backupStartPoint
//!    b-8     8  floatFormat, the number 1234567.0
//!      b     4  blcksz, then relseg_size, xlog_blcksz, xlog_seg_size
//!      d     4  data_checksum_version
//!      x     4  crc, CRC-32C of everything before it
//! ```

use crate::page::{Checksums, MAX_ALIGN, PAGE_SIZES};
use pagewarden_core::crc::crc32c;
use pagewarden_core::verdict::Kind;

mod build;
pub use build::Build;

/// Bytes that a server reads of the file; the rest is padding.
pub const CONTROL_BYTES: usize = 8192;

/// Where a version keeps its fields: see the module's table.
struct Layout {
    version: u32,
    checkpoint_copy: usize,
    checkpoint_bytes: usize,
    block_size: usize,
    checksum_version: usize,
    crc: usize,
}

#[rustfmt::skip]
const LAYOUTS: &[Layout] = &[
    // 9.6
    Layout { version: 960, checkpoint_copy: 48, checkpoint_bytes: 80, block_size: 216, checksum_version: 252, crc: 256 },
    // 10: authentication nonce
    Layout { version: 1002, checkpoint_copy: 48, checkpoint_bytes: 80, block_size: 216, checksum_version: 252, crc: 288 },
    // 11: prevCheckPoint is gone
    Layout { version: 1100, checkpoint_copy: 40, checkpoint_bytes: 80, block_size: 208, checksum_version: 244, crc: 280 },
    // 12
    Layout { version: 1201, checkpoint_copy: 40, checkpoint_bytes: 88, block_size: 216, checksum_version: 252, crc: 288 },
    // 13 to 16
    Layout { version: 1300, checkpoint_copy: 40, checkpoint_bytes: 88, block_size: 216, checksum_version: 252, crc: 288 },
    // 17
    Layout { version: 1700, checkpoint_copy: 40, checkpoint_bytes: 88, block_size: 216, checksum_version: 252, crc: 288 },
    // 18: default_char_signedness
    Layout { version: 1800, checkpoint_copy: 40, checkpoint_bytes: 88, block_size: 216, checksum_version: 252, crc: 292 },
    // 19 beta
    Layout { version: 1902, checkpoint_copy: 40, checkpoint_bytes: 96, block_size: 224, checksum_version: 264, crc: 304 },
];

/// Where the structure of an unknown version may end.
const CRC_SEARCH: std::ops::Range<usize> = 128..512;
/// `FLOATFORMAT_VALUE`: a landmark just before the block size.
const FLOAT_FORMAT: f64 = 1_234_567.0;

/// What the cluster was doing when the file was last written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterState {
    /// 0: never started.
    StartingUp,
    /// 1: shut down cleanly.
    ShutDown,
    /// 2: a standby, shut down cleanly.
    ShutDownInRecovery,
    /// 3: was shutting down.
    ShuttingDown,
    /// 4: was recovering from a crash.
    InCrashRecovery,
    /// 5: a standby, running.
    InArchiveRecovery,
    /// 6: running.
    InProduction,
    /// A number that no known version uses.
    Other(u32),
}

impl ClusterState {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::StartingUp,
            1 => Self::ShutDown,
            2 => Self::ShutDownInRecovery,
            3 => Self::ShuttingDown,
            4 => Self::InCrashRecovery,
            5 => Self::InArchiveRecovery,
            6 => Self::InProduction,
            other => Self::Other(other),
        }
    }
}

/// What `pg_control` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Tells one cluster from another.
    pub system_identifier: u64,
    /// `pg_control_version`.
    pub version: u32,
    /// `catalog_version_no`, part of the name of tablespace folders.
    pub catalog_version: u32,
    /// What the cluster was doing.
    pub state: ClusterState,
    /// Position of the latest checkpoint record.
    pub checkpoint_lsn: u64,
    /// Where replay would start.
    pub redo_lsn: u64,
    /// The timeline of the latest checkpoint.
    pub timeline: u32,
    /// Whether the log holds full-page images, as of the latest checkpoint.
    pub full_page_writes: bool,
    /// When that checkpoint began, by the server's clock, in seconds since 1970.
    pub checkpoint_time: u64,
    /// How far replay must come before a standby is consistent.
    pub min_recovery_lsn: u64,
    /// The timeline of that position.
    pub min_recovery_timeline: u32,
    /// Not 0 while a restored backup is not consistent yet.
    pub backup_start_lsn: u64,
    /// Which transactions and multixacts are in use; `None` for versions whose layout of
    /// it is not known.
    pub ids: Option<Ids>,
    /// How the server aligns structures.
    pub max_align: u16,
    /// Bytes in a page.
    pub page_size: usize,
    /// Pages in a full segment of a relation.
    pub segment_pages: u32,
    /// Bytes in a page of the log.
    pub wal_page_bytes: u32,
    /// Bytes in a segment of the log.
    pub wal_segment_bytes: u32,
    /// Whether pages carry checksums.
    pub checksums: Checksums,
    /// True if the version is none we know and the fields were found by their
    /// values.
    pub guessed: bool,
}

/// Numbers that the latest checkpoint found in use, of 9.6 to 18: in its record, behind
/// the redo position, the timelines and `fullPageWrites`.
///
/// ```text
/// 9.6-11  12-18
///     24     24   next transaction (4; from 12 on 8, with its epoch)
///     32     36   nextMulti
///     36     40   nextMultiOffset
///     40     44   oldestXid
///     48     52   oldestMulti
/// ```
///
/// Source: `CheckPoint` in `src/include/catalog/pg_control.h` of each version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The transaction to be given out next.
    pub next_xid: u32,
    /// The oldest transaction whose status may be asked for.
    pub oldest_xid: u32,
    /// The multixact to be given out next.
    pub next_multi: u32,
    /// The number of its first member.
    pub next_member: u32,
    /// The oldest multixact that may be asked for.
    pub oldest_multi: u32,
}

impl Ids {
    fn read(bytes: &[u8], layout: &Layout) -> Option<Self> {
        let end = layout.checkpoint_copy.checked_add(layout.checkpoint_bytes)?;
        Self::of_checkpoint(bytes.get(layout.checkpoint_copy..end)?)
    }

    /// Those of a checkpoint, as its record or a control file has it; `None` for a length that
    /// none of 9.6 to 18 writes.
    #[must_use]
    pub fn of_checkpoint(checkpoint: &[u8]) -> Option<Self> {
        let multi = match checkpoint.len() {
            80 => 32,
            88 => 36,
            _ => return None,
        };
        let at = |offset: usize| u32_at(checkpoint, offset);
        Some(Self {
            next_xid: at(24)?,
            next_multi: at(multi)?,
            next_member: at(multi + 4)?,
            oldest_xid: at(multi + 8)?,
            oldest_multi: at(multi + 16)?,
        })
    }
}

/// Why `pg_control` cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlFault {
    /// `truncated`, `header` or `checksum`.
    pub kind: Kind,
    /// In words.
    pub detail: String,
}

impl ControlFault {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl Control {
    /// Reads the file's content.
    ///
    /// # Errors
    /// Why it cannot be believed: too short, a checksum that does not match,
    /// or values that no server can have.
    pub fn parse(bytes: &[u8]) -> Result<Self, ControlFault> {
        if bytes.iter().all(|byte| *byte == 0) {
            let what = if bytes.is_empty() { "empty" } else { "all zero" };
            return Err(ControlFault::new(Kind::Header, format!("the file is {what}")));
        }
        let version = u32_at(bytes, 8).ok_or_else(too_short)?;
        let known = LAYOUTS.iter().find(|layout| layout.version == version);
        let found;
        let layout = match known {
            Some(layout) if crc_matches(bytes, layout.crc) => layout,
            _ => {
                found =
                    find_layout(bytes, version).ok_or_else(|| no_layout(bytes, version, known))?;
                &found
            }
        };
        let guessed = known.is_none();
        Self::read(bytes, layout, guessed).ok_or_else(too_short)?.checked()
    }

    fn read(bytes: &[u8], layout: &Layout, guessed: bool) -> Option<Self> {
        let after_copy = layout.checkpoint_copy.checked_add(layout.checkpoint_bytes)?;
        let block_size = layout.block_size;
        // maxAlign stands right before floatFormat, which is aligned to 8.
        let max_align = [12, 16]
            .into_iter()
            .filter_map(|back| u32_at(bytes, block_size.checked_sub(back)?))
            .find(|align| matches!(align, 4 | 8))
            .and_then(|align| u16::try_from(align).ok());
        Some(Self {
            system_identifier: u64_at(bytes, 0)?,
            version: u32_at(bytes, 8)?,
            catalog_version: u32_at(bytes, 12)?,
            state: ClusterState::from_number(u32_at(bytes, 16)?),
            checkpoint_lsn: u64_at(bytes, 32)?,
            redo_lsn: u64_at(bytes, layout.checkpoint_copy)?,
            timeline: u32_at(bytes, layout.checkpoint_copy.checked_add(8)?)?,
            full_page_writes: *bytes.get(layout.checkpoint_copy.checked_add(16)?)? != 0,
            checkpoint_time: u64_at(bytes, after_copy.checked_sub(24)?)?,
            min_recovery_lsn: u64_at(bytes, after_copy.checked_add(8)?)?,
            min_recovery_timeline: u32_at(bytes, after_copy.checked_add(16)?)?,
            backup_start_lsn: u64_at(bytes, after_copy.checked_add(24)?)?,
            ids: Ids::read(bytes, layout),
            max_align: max_align.unwrap_or(MAX_ALIGN),
            page_size: usize::try_from(u32_at(bytes, block_size)?).ok()?,
            segment_pages: u32_at(bytes, block_size.checked_add(4)?)?,
            wal_page_bytes: u32_at(bytes, block_size.checked_add(8)?)?,
            wal_segment_bytes: u32_at(bytes, block_size.checked_add(12)?)?,
            checksums: match u32_at(bytes, layout.checksum_version)? {
                0 => Checksums::Off,
                1 => Checksums::On,
                _ => Checksums::Changing,
            },
            guessed,
        })
    }

    /// The time of a checkpoint, as a control file and a record of the log have it, in seconds since 1970.
    #[must_use]
    pub fn time_of_checkpoint(checkpoint: &[u8]) -> Option<u64> {
        u64_at(checkpoint, checkpoint.len().checked_sub(24)?)
    }

    /// The latest checkpoint as its record in the log has it: `checkPointCopy`. `None` for a
    /// file that cannot be believed, and for a version whose layout is not certain.
    #[must_use]
    pub fn checkpoint_of(bytes: &[u8]) -> Option<&[u8]> {
        let version = u32_at(bytes, 8)?;
        let layout = LAYOUTS.iter().find(|layout| layout.version == version)?;
        let end = layout.checkpoint_copy.checked_add(layout.checkpoint_bytes)?;
        bytes.get(layout.checkpoint_copy..end).filter(|_| crc_matches(bytes, layout.crc))
    }

    /// The `wal_level` of the last server: 0 is minimal. `None` where that is not known.
    #[must_use]
    pub fn wal_level_of(bytes: &[u8]) -> Option<u32> {
        // Behind the checkpoint: unloggedLSN (8), minRecoveryPoint (8), its timeline (4 of 8),
        // backupStartPoint (8), backupEndPoint (8), backupEndRequired (1 of 4).
        const WAL_LEVEL: usize = 44;
        let version = u32_at(bytes, 8)?;
        let layout = LAYOUTS.iter().find(|layout| layout.version == version)?;
        let at = layout.checkpoint_copy.checked_add(layout.checkpoint_bytes)?;
        u32_at(bytes, at.checked_add(WAL_LEVEL)?)
    }

    /// What `PG_VERSION` of this cluster must say, by its catalogue version; `None` for
    /// one that was never released.
    #[must_use]
    pub fn major(&self) -> Option<&'static str> {
        self.release().map(|(major, _)| major)
    }

    /// The release that this catalogue is of, and the version of control files that it
    /// writes; `None` for one that was never released.
    #[must_use]
    pub fn release(&self) -> Option<(&'static str, u32)> {
        // CATALOG_VERSION_NO of `src/include/catalog/catversion.h` at each release, and
        // PG_CONTROL_VERSION.
        const RELEASED: [(u32, &str, u32); 10] = [
            (201_608_131, "9.6", 960),
            (201_707_211, "10", 1002),
            (201_809_051, "11", 1100),
            (201_909_212, "12", 1201),
            (202_007_201, "13", 1300),
            (202_107_181, "14", 1300),
            (202_209_061, "15", 1300),
            (202_307_071, "16", 1300),
            (202_406_281, "17", 1700),
            (202_506_291, "18", 1800),
        ];
        let found = RELEASED.iter().find(|(catalog, _, _)| *catalog == self.catalog_version);
        found.map(|(_, major, version)| (*major, *version))
    }

    /// Refuses values that no server can have, whatever the checksum says.
    fn checked(self) -> Result<Self, ControlFault> {
        let impossible = |what: &str, value: u64| {
            ControlFault::new(Kind::Header, format!("{what} is {value}, which is impossible"))
        };
        if !PAGE_SIZES.contains(&self.page_size) {
            return Err(impossible("the block size", self.page_size as u64));
        }
        if self.segment_pages == 0 {
            return Err(impossible("the segment size", 0));
        }
        // 1 MiB to 1 GiB, a power of two.
        let wal = self.wal_segment_bytes;
        if !wal.is_power_of_two() || !(1 << 20..=1 << 30).contains(&wal) {
            return Err(impossible("the WAL segment size", u64::from(wal)));
        }
        Ok(self)
    }
}

/// In a checkpoint: the next transaction, up to 11 with its epoch before it. Not compared:
/// in a standby's control file it is that of the newest checkpoint that was seen.
const NEXT_TRANSACTION: std::ops::Range<usize> = 20..32;

/// True if two checkpoints are the same one: a record's, and that in a control file.
#[must_use]
pub fn is_same_checkpoint(one: &[u8], other: &[u8]) -> bool {
    let masked = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.get_mut(NEXT_TRANSACTION).unwrap_or_default().fill(0);
        bytes
    };
    one.len() == other.len() && one.len() >= NEXT_TRANSACTION.end && masked(one) == masked(other)
}

/// The largest part of the file that devices write whole: the structure of every
/// version lies in it.
pub const CONTROL_SECTOR_BYTES: usize = 512;

/// The first sector of a control file of 9.6 to 18 with the checksum setting
/// `on`; everything else in it is as it was.
///
/// # Errors
/// The file cannot be believed, or is of a version whose layout is not certain.
pub fn with_checksums(bytes: &[u8], on: bool) -> Result<[u8; CONTROL_SECTOR_BYTES], ControlFault> {
    let control = Control::parse(bytes)?;
    let layout = LAYOUTS
        .iter()
        .find(|layout| layout.version == control.version && layout.version < ONLINE_SWITCHING)
        .ok_or_else(|| {
            let text = format!("control version {} is none of 9.6 to 18", control.version);
            ControlFault::new(Kind::Header, text)
        })?;
    let mut sector = *bytes.first_chunk().ok_or_else(too_short)?;
    put_u32(&mut sector, layout.checksum_version, u32::from(on)).ok_or_else(too_short)?;
    let crc = crc32c(sector.get(..layout.crc).ok_or_else(too_short)?);
    put_u32(&mut sector, layout.crc, crc).ok_or_else(too_short)?;
    Ok(sector)
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_le_bytes();
    Some(())
}

/// From 19 on a running server switches checksums, and the setting has states
/// between on and off.
pub const ONLINE_SWITCHING: u32 = 1900;

fn too_short() -> ControlFault {
    ControlFault::new(Kind::Truncated, "the file is too short for its structure")
}

fn no_layout(bytes: &[u8], version: u32, known: Option<&Layout>) -> ControlFault {
    match known {
        Some(layout) if bytes.len() < layout.crc.saturating_add(4) => too_short(),
        Some(_) => ControlFault::new(Kind::Checksum, "its CRC does not match its content"),
        None => ControlFault::new(
            Kind::Header,
            format!("control version {version} is unknown and no CRC in it matches"),
        ),
    }
}

/// Finds the fields of a layout we have no table for: the CRC by trying every
/// place, the block size by the landmark before it.
fn find_layout(bytes: &[u8], version: u32) -> Option<Layout> {
    let crc = CRC_SEARCH.step_by(4).find(|at| crc_matches(bytes, *at))?;
    let landmark = FLOAT_FORMAT.to_le_bytes();
    let float = (0..crc).step_by(4).find(|at| {
        at.checked_add(8).and_then(|end| bytes.get(*at..end)).is_some_and(|found| found == landmark)
    })?;
    let block_size = float.checked_add(8)?;
    // Between the two: relseg_size to float8ByVal, with one field more from 19.
    let distance = if version >= 1900 { 40 } else { 36 };
    Some(Layout {
        version,
        checkpoint_copy: if version >= 1100 { 40 } else { 48 },
        // Only the redo position is certain; what follows the copy is placed
        // by the block size, whose distance to it has been the same since 12.
        checkpoint_bytes: block_size.checked_sub(if version >= 1100 { 128 } else { 136 })?,
        block_size,
        checksum_version: block_size.checked_add(distance)?,
        crc,
    })
}

fn crc_matches(bytes: &[u8], at: usize) -> bool {
    let (Some(covered), Some(stored)) = (bytes.get(..at), u32_at(bytes, at)) else { return false };
    crc32c(covered) == stored
}

/// The little-endian number at `at`; `None` beyond the end.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The little-endian number at `at`; `None` beyond the end.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The control files of real servers, by their paths, with their layouts.
    fn golden() -> Vec<(String, Vec<u8>, &'static Layout)> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/postgres");
        let mut controls = Vec::new();
        for version in std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.path()) {
            for entry in std::fs::read_dir(version).into_iter().flatten().flatten() {
                if !entry.file_name().to_string_lossy().starts_with("control.") {
                    continue;
                }
                let bytes = std::fs::read(entry.path()).unwrap();
                let version = u32_at(&bytes, 8);
                let layout = LAYOUTS.iter().find(|layout| Some(layout.version) == version);
                controls.push((entry.path().display().to_string(), bytes, layout.unwrap()));
            }
        }
        assert!(!controls.is_empty(), "no control files below {root}");
        controls
    }

    fn set_crc(bytes: &mut [u8], at: usize) {
        let crc = crc32c(&bytes[..at]).to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&crc);
    }

    #[test]
    fn every_flipped_bit_of_a_control_file_is_seen() {
        for (path, mut bytes, layout) in golden() {
            let sound = Control::parse(&bytes);
            assert!(sound.is_ok(), "{path}: {sound:?}");
            let end = layout.crc + 4;
            // All behind the CRC is padding, which no server reads.
            for at in 0..end + 8 {
                for bit in 0..8 {
                    bytes[at] ^= 1 << bit;
                    let flipped = Control::parse(&bytes);
                    assert_eq!(flipped.is_err(), at < end, "{path}: bit {bit} of {at}");
                    bytes[at] ^= 1 << bit;
                }
            }
            for length in 0..end {
                assert!(Control::parse(&bytes[..length]).is_err(), "{path}: {length} bytes");
            }
        }
    }

    /// Real control files of both settings exist: what is made of the one must
    /// be believed, and differ from it in the setting and the CRC only.
    #[test]
    fn setting_is_changed_and_nothing_else() {
        for (path, bytes, layout) in golden() {
            let before = Control::parse(&bytes).unwrap();
            let on = before.checksums == Checksums::Off;
            let changed = with_checksums(&bytes, on);
            if layout.version >= ONLINE_SWITCHING {
                assert!(changed.is_err(), "{path}");
                continue;
            }
            let mut after = bytes.clone();
            after[..CONTROL_SECTOR_BYTES].copy_from_slice(&changed.unwrap());
            let checksums = if on { Checksums::On } else { Checksums::Off };
            assert_eq!(Control::parse(&after), Ok(Control { checksums, ..before }), "{path}");
            for at in (0..bytes.len()).filter(|at| bytes[*at] != after[*at]) {
                let in_field = |begin: usize| (begin..begin + 4).contains(&at);
                assert!(in_field(layout.checksum_version) || in_field(layout.crc), "{path}: {at}");
            }
            // There and back again.
            let back = with_checksums(&after, !on).unwrap();
            assert_eq!(back, bytes[..CONTROL_SECTOR_BYTES], "{path}");
        }
    }

    /// A version to come is read by its landmarks: here those that are known,
    /// under a number that is not.
    #[test]
    fn unknown_version_is_read_by_its_landmarks() {
        for (path, mut bytes, layout) in golden() {
            let known = Control::parse(&bytes).unwrap();
            let version = layout.version + 1;
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            set_crc(&mut bytes, layout.crc);
            let guessed = Control::parse(&bytes);
            assert_eq!(guessed, Ok(Control { version, guessed: true, ..known }), "{path}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_control_file(
            bytes in prop::collection::vec(any::<u8>(), 0..1024),
            layout in prop::option::of(prop::sample::select((0..LAYOUTS.len()).collect::<Vec<_>>())),
        ) {
            let mut bytes = bytes;
            if let (Some(layout), true) = (layout, bytes.len() >= 12) {
                bytes[8..12].copy_from_slice(&LAYOUTS[layout].version.to_le_bytes());
            }
            prop_assert!(Control::parse(&bytes).is_err());
        }

        /// With a CRC that fits, any value gets as far as to the reader.
        #[test]
        fn control_file_with_arbitrary_values_gives_possible_ones(
            choice: prop::sample::Index,
            patches in prop::collection::vec((0..300_usize, any::<u32>()), 1..8),
            length in prop_oneof![0..CONTROL_BYTES, Just(CONTROL_BYTES)],
        ) {
            let all = golden();
            let (_, bytes, layout) = choice.get(&all);
            let mut bytes = bytes.clone();
            for (at, value) in patches {
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            set_crc(&mut bytes, layout.crc);
            bytes.truncate(length);
            if let Ok(control) = Control::parse(&bytes) {
                prop_assert!(PAGE_SIZES.contains(&control.page_size));
                prop_assert!(matches!(control.max_align, 4 | 8));
                prop_assert!(control.segment_pages > 0);
                prop_assert!(control.wal_segment_bytes.is_power_of_two());
            }
        }
    }
}
