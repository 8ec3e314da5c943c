//! The page marker of our own SQLite VFS (`ext/sqlite`): SQL Server's PAGE_VERIFY in 24 reserved
//! bytes at the end of every page, or in 16.
//!
//! The marker is the last 16 bytes of the page. Where 24 are reserved, the 8 before it are the
//! balance: they hold no data, and count as zero in every sum. The VFS sets them in frames of a
//! write-ahead log, so that SQLite's own running sum comes out as SQLite computed it without the
//! marker.
//!
//! | bytes of the marker | what they are |
//! |---|---|
//! | `0 .. 2` | the tag `PW` |
//! | `2` | in the high half 1 where 16 bytes are reserved and 2 where 24 are, the page's own mode in the low half |
//! | `3` | on page 1 the setting, the mode of pages to be written; 0 elsewhere |
//! | `4 .. 8` | database number: random, not 0, the same on all pages of a database |
//! | `8 .. 16` | digest |
//!
//! Numbers are little-endian. The digest is the page's sum XOR `mix(page number, database number)`;
//! it is 1 where that is 0. The mix is one-to-one, so the same content never passes under another
//! number, and the number that a page was made for can be had back from it.
//!
//! | mode | sum |
//! |---|---|
//! | 1 NONE | CRC-64/NVME of the first 8 bytes of the marker |
//! | 2 TORN_PAGE_DETECTION | 2 to 8 parts of at least 512 bytes; the highest 64 / parts bits of each part's CRC-32C, the first part lowest. A page of 512 bytes has one part, and CRC-64/NVME |
//! | 3 CHECKSUM | CRC-64/NVME of all bytes in front of the digest |
//!
//! A page of zeroes has no tag and fails in every mode. What cannot be seen: an older version of
//! the same page; in the torn mode one torn part of 256; without a mode, the content.

#![deny(clippy::arithmetic_side_effects)]

use std::num::NonZeroU32;

use pagewarden_core::verdict::PageNo;

mod crc64;
mod parts;

/// Bytes of the marker, at the end of the page.
pub const MARKER_BYTES: usize = 16;

const DIGEST_BYTES: usize = 8;
const TAG: [u8; 2] = *b"PW";
/// The balance is as long as a step of SQLite's sum.
const BALANCE_BYTES: usize = 8;
const PART_BYTES_MIN: usize = 512;
const PART_COUNT_MAX: usize = 8;

/// How a page is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The marker alone: neither zeroed nor misplaced.
    None,
    /// A few bits for each part of the page.
    Torn,
    /// 64 bits for all of it.
    Checksum,
}

impl Mode {
    /// The word that SQL Server uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Torn => "TORN_PAGE_DETECTION",
            Self::Checksum => "CHECKSUM",
        }
    }

    /// The mode of that name, in any case.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::None, Self::Torn, Self::Checksum]
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(name))
    }

    fn code(self) -> u8 {
        match self {
            Self::None => 1,
            Self::Torn => 2,
            Self::Checksum => 3,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        [Self::None, Self::Torn, Self::Checksum].into_iter().find(|mode| mode.code() == code)
    }
}

/// What is reserved at the end of each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// 16 bytes: the marker.
    Marker,
    /// 24 bytes: the balance, and the marker behind it.
    BalanceAndMarker,
}

impl Room {
    /// How many bytes that is.
    #[must_use]
    pub fn bytes(self) -> u8 {
        match self {
            Self::Marker => 16,
            Self::BalanceAndMarker => 24,
        }
    }

    /// The one of `bytes` bytes.
    #[must_use]
    pub fn of_bytes(bytes: u8) -> Option<Self> {
        [Self::Marker, Self::BalanceAndMarker].into_iter().find(|room| room.bytes() == bytes)
    }

    fn code(self) -> u8 {
        match self {
            Self::Marker => 0x10,
            Self::BalanceAndMarker => 0x20,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        [Self::Marker, Self::BalanceAndMarker].into_iter().find(|room| room.code() == code)
    }
}

/// What a page's marker says, apart from the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// How this page is verified.
    pub mode: Mode,
    /// How pages are to be written; on page 1 only.
    pub setting: Option<Mode>,
    /// The database that the page belongs to.
    pub database: NonZeroU32,
    /// What the marker's page has reserved.
    pub room: Room,
}

impl Marker {
    /// Reads a marker; `None` if these bytes are not one. What it says is only true of a page that
    /// [`verify`] passes.
    #[must_use]
    pub fn read(page: &[u8]) -> Option<Self> {
        let [tag_a, tag_b, mode, setting, a, b, c, d, ..] = *page.last_chunk::<MARKER_BYTES>()?;
        if [tag_a, tag_b] != TAG {
            return None;
        }
        let setting = if setting == 0 { None } else { Some(Mode::of_code(setting)?) };
        Some(Self {
            mode: Mode::of_code(mode & 0x0f)?,
            setting,
            database: NonZeroU32::new(u32::from_le_bytes([a, b, c, d]))?,
            room: Room::of_code(mode & 0xf0)?,
        })
    }

    fn head(self) -> [u8; DIGEST_BYTES] {
        let [tag_a, tag_b] = TAG;
        let [a, b, c, d] = self.database.get().to_le_bytes();
        let mode = self.room.code() | self.mode.code();
        [tag_a, tag_b, mode, self.setting.map_or(0, Mode::code), a, b, c, d]
    }
}

/// The digest that `page` carries; zero for a page too short to carry one.
#[must_use]
pub fn stored_digest(page: &[u8]) -> u64 {
    page.last_chunk::<DIGEST_BYTES>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The digest that belongs to `page` under `number`, by what its marker says.
#[must_use]
pub fn digest(page: &[u8], marker: Marker, number: PageNo) -> u64 {
    let digest = sum(page, marker) ^ mix(marker.database, number);
    if digest == 0 { 1 } else { digest }
}

/// Writes a marker that makes `page` pass under `number`, and leaves the balance as it is. Slices too
/// short for one stay as they are.
pub fn stamp(page: &mut [u8], number: PageNo, marker: Marker) {
    let Some((head, _)) = page.last_chunk_mut::<MARKER_BYTES>().map(|tail| tail.split_at_mut(8))
    else {
        return;
    };
    head.copy_from_slice(&marker.head());
    let digest = digest(page, marker, number);
    if let Some(tail) = page.last_chunk_mut::<DIGEST_BYTES>() {
        *tail = digest.to_le_bytes();
    }
}

/// The bytes that hold no data and count as zero; `None` where nothing is reserved for them.
#[must_use]
pub fn balance_of(page: &mut [u8], room: Room) -> Option<&mut [u8; BALANCE_BYTES]> {
    let before = page.len().checked_sub(MARKER_BYTES)?;
    let before = page.get_mut(..before).filter(|_| room == Room::BalanceAndMarker)?;
    before.last_chunk_mut()
}

/// The marker of `page`, if the page passes by it under `number`.
#[must_use]
pub fn verify(page: &[u8], number: PageNo) -> Option<Marker> {
    let marker = Marker::read(page)?;
    (stored_digest(page) == digest(page, marker, number)).then_some(marker)
}

/// Why a page fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// All bytes are zero.
    Zeroed,
    /// The page passes under another number.
    Misplaced(PageNo),
    /// One flipped bit: the byte's offset in the page, and the bit, 0 the lowest.
    FlippedBit {
        /// The byte's offset in the page.
        byte: usize,
        /// The bit in that byte, 0 the lowest.
        bit: u32,
    },
    /// Some parts of the page fit the marker and these do not: the first byte of each.
    Torn {
        /// Where each failing part begins.
        parts: Vec<usize>,
        /// Bytes in a part.
        part_bytes: usize,
    },
    /// There is no marker at the end.
    NoMarker,
    /// The digest does not fit.
    Mismatch,
}

/// Why `page` fails under `number`; `None` if it passes.
#[must_use]
pub fn fault(page: &[u8], number: PageNo) -> Option<Fault> {
    let Some(marker) = Marker::read(page) else {
        let is_zeroed = page.iter().all(|byte| *byte == 0);
        let flip = || flipped_head_bit(page, number).unwrap_or(Fault::NoMarker);
        return Some(if is_zeroed { Fault::Zeroed } else { flip() });
    };
    let sum = sum(page, marker);
    let (stored, computed) = (stored_digest(page), digest(page, marker, number));
    if stored == computed {
        return None;
    }
    // The database number is in the mix and on the page: it vouches for the page number.
    let (database, made_for) = unmix(stored ^ sum);
    if database == marker.database.get() && made_for != 0 {
        return Some(Fault::Misplaced(PageNo(u64::from(made_for))));
    }
    if let Some(flip) = flipped_head_bit(page, number) {
        return Some(flip);
    }
    if let Some((byte, bit)) = flipped_bit(page, marker.mode, stored ^ computed) {
        return Some(Fault::FlippedBit { byte, bit });
    }
    if marker.mode == Mode::Torn {
        let (count, part_bytes) = parts(page.len());
        let failing = failing_parts(stored ^ computed, count, part_bytes);
        if failing.len() < count {
            return Some(Fault::Torn { parts: failing, part_bytes });
        }
    }
    Some(Fault::Mismatch)
}

/// One flipped bit in front of the digest, which may have made another marker of it or none.
fn flipped_head_bit(page: &[u8], number: PageNo) -> Option<Fault> {
    let begin = page.len().checked_sub(MARKER_BYTES)?;
    let mut page = page.to_vec();
    for byte in begin..begin.saturating_add(MARKER_BYTES - DIGEST_BYTES) {
        for bit in 0..u8::BITS {
            let value = 1_u8.wrapping_shl(bit);
            *page.get_mut(byte)? ^= value;
            if verify(&page, number).is_some() {
                return Some(Fault::FlippedBit { byte, bit });
            }
            *page.get_mut(byte)? ^= value;
        }
    }
    None
}

fn sum(page: &[u8], marker: Marker) -> u64 {
    let balance = match marker.room {
        Room::Marker => [0; BALANCE_BYTES],
        Room::BalanceAndMarker => page
            .last_chunk::<{ BALANCE_BYTES + MARKER_BYTES }>()
            .and_then(|reserved| reserved.first_chunk().copied())
            .unwrap_or_default(),
    };
    match marker.mode {
        Mode::None => {
            let head = page.last_chunk::<MARKER_BYTES>().and_then(|tail| tail.first_chunk());
            crc64::of_word(head.copied().unwrap_or_default())
        }
        // Of so few bytes as a part has, the shorter CRC takes less time.
        Mode::Torn if parts(page.len()).0 > 1 => {
            parts::of_page(page) ^ parts::share_of(balance, page.len())
        }
        _ => crc64::of_page(page) ^ crc64::share_of(balance),
    }
}

/// The bytes that a page's sum covers.
fn covered(page: &[u8], mode: Mode) -> &[u8] {
    let end = page.len().saturating_sub(DIGEST_BYTES);
    let begin = if mode == Mode::None { end.saturating_sub(DIGEST_BYTES) } else { 0 };
    page.get(begin..end).unwrap_or(&[])
}

/// How many parts a page has in the torn mode, and the bytes of each.
fn parts(page_bytes: usize) -> (usize, usize) {
    let count = (page_bytes / PART_BYTES_MIN).clamp(1, PART_COUNT_MAX);
    (count, page_bytes.checked_div(count).unwrap_or(0).max(1))
}

fn part_bits(count: usize) -> u32 {
    u32::try_from(count).ok().and_then(|count| 64_u32.checked_div(count)).unwrap_or(64)
}

fn failing_parts(difference: u64, count: usize, part_bytes: usize) -> Vec<usize> {
    let bits = part_bits(count);
    let mask = u64::MAX >> 64_u32.saturating_sub(bits);
    (0..count)
        .zip(0_u32..)
        .filter(|(_, index)| difference.wrapping_shr(index.saturating_mul(bits)) & mask != 0)
        .map(|(part, _)| part.saturating_mul(part_bytes))
        .collect()
}

/// The one flipped bit that turns the right digest into one that differs by `difference`. A match
/// by chance is excluded where the sum has 64 bits: fewer than 2^20 are tried.
fn flipped_bit(page: &[u8], mode: Mode, difference: u64) -> Option<(usize, u32)> {
    let content = covered(page, mode);
    if mode == Mode::Torn && parts(page.len()).0 > 1 {
        return None;
    }
    let end = page.len().checked_sub(DIGEST_BYTES)?;
    if difference.is_power_of_two() {
        let place = difference.trailing_zeros();
        return Some((end.checked_add(usize::try_from(place / 8).ok()?)?, place % 8));
    }
    // What the last bit of the content adds to the CRC; each bit before it, one step more.
    let mut effect = crc64::POLYNOMIAL;
    for back in 0..content.len().checked_mul(8)? {
        if effect == difference {
            let byte = end.checked_sub(1)?.checked_sub(back / 8)?;
            let bit = 7_usize.checked_sub(back % 8)?;
            return Some((byte, u32::try_from(bit).ok()?));
        }
        effect = (effect >> 1) ^ if effect & 1 == 1 { crc64::POLYNOMIAL } else { 0 };
    }
    None
}

/// One-to-one on 64 bits, so that no two pages of any two databases share a value. The steps are
/// those of SplitMix64's output function.
fn mix(database: NonZeroU32, number: PageNo) -> u64 {
    let mut bits = u64::from(database.get()) << 32 ^ number.0;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The database and page numbers that were mixed.
fn unmix(mixed: u64) -> (u32, u32) {
    let mut bits = mixed ^ mixed >> 31 ^ mixed >> 62;
    bits = bits.wrapping_mul(0x3196_42b2_d24d_8ec3);
    bits = bits ^ bits >> 27 ^ bits >> 54;
    bits = bits.wrapping_mul(0x96de_1b17_3f11_9089);
    bits = bits ^ bits >> 30 ^ bits >> 60;
    let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 3] = [Mode::None, Mode::Torn, Mode::Checksum];
    const SIZES: [usize; 5] = [512, 1024, 4096, 8192, 65_536];

    fn marker(mode: Mode) -> Marker {
        marker_in(mode, Room::Marker)
    }

    fn marker_in(mode: Mode, room: Room) -> Marker {
        Marker { mode, setting: None, database: NonZeroU32::new(0xd1ce_5eed).unwrap(), room }
    }

    fn page(size: usize, seed: u32, number: u64, mode: Mode) -> Vec<u8> {
        let mut state = seed;
        let mut page: Vec<u8> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        stamp(&mut page, PageNo(number), marker(mode));
        page
    }

    /// The CRC written out bit by bit, and the digest put together from it.
    #[test]
    fn digest_is_what_the_layout_says() {
        let slow_crc = |bytes: &[u8]| {
            !bytes.iter().fold(u64::MAX, |crc, byte| {
                (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
                    (crc >> 1) ^ if crc & 1 == 1 { crc64::POLYNOMIAL } else { 0 }
                })
            })
        };
        assert_eq!(slow_crc(b"123456789"), 0xae8b_1486_0a79_9888);
        for size in SIZES {
            let page = page(size, 5, 77, Mode::Checksum);
            assert_eq!(page[size - 16..size - 8], [b'P', b'W', 0x13, 0, 0xed, 0x5e, 0xce, 0xd1]);
            let mixed = mix(NonZeroU32::new(0xd1ce_5eed).unwrap(), PageNo(77));
            assert_eq!(stored_digest(&page), slow_crc(&page[..size - 8]) ^ mixed);
        }
        let slow_crc_32 = |bytes: &[u8]| {
            u64::from(!bytes.iter().fold(u32::MAX, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
                })
            }))
        };
        assert_eq!(slow_crc_32(b"123456789"), 0xe306_9283);
        let torn = page(1024, 5, 77, Mode::Torn);
        let sum = slow_crc_32(&torn[..512]) | slow_crc_32(&torn[512..1016]) << 32;
        assert_eq!(stored_digest(&torn) ^ mix(marker(Mode::Torn).database, PageNo(77)), sum);
    }

    #[test]
    fn stamped_page_passes_and_says_what_was_put_in() {
        for size in SIZES {
            for mode in MODES {
                let setting = Some(Mode::Torn);
                let marker = Marker { setting, ..marker(mode) };
                let mut page = page(size, 1, 1, mode);
                stamp(&mut page, PageNo(1), marker);
                assert_eq!(verify(&page, PageNo(1)), Some(marker));
                assert_eq!(fault(&page, PageNo(1)), None);
            }
        }
    }

    #[test]
    fn misplaced_page_names_its_own_number_in_every_mode() {
        for size in SIZES {
            for mode in MODES {
                let page = page(size, 9, 1234, mode);
                for wrong in [1, 1233, 1235, u64::from(u32::MAX)] {
                    assert_eq!(fault(&page, PageNo(wrong)), Some(Fault::Misplaced(PageNo(1234))));
                }
            }
        }
    }

    #[test]
    fn zeroed_page_fails_in_every_mode() {
        for size in SIZES {
            assert_eq!(fault(&vec![0; size], PageNo(3)), Some(Fault::Zeroed));
        }
    }

    /// Also those that make another mode of the marker, or none.
    #[test]
    fn every_flipped_bit_of_a_checksum_page_is_named() {
        let mut page = page(1024, 7, 8, Mode::Checksum);
        for byte in 0..page.len() {
            for bit in 0..8 {
                page[byte] ^= 1 << bit;
                assert_eq!(verify(&page, PageNo(8)), None);
                let found = fault(&page, PageNo(8)).unwrap();
                assert_eq!(found, Fault::FlippedBit { byte, bit });
                page[byte] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn none_sees_every_flip_of_its_marker_and_nothing_of_the_content() {
        let mut page = page(512, 7, 8, Mode::None);
        for byte in 0..page.len() {
            for bit in 0..8 {
                page[byte] ^= 1 << bit;
                assert_eq!(verify(&page, PageNo(8)).is_some(), byte < 512 - 16);
                page[byte] ^= 1 << bit;
            }
        }
    }

    /// A page that is new but for some parts: the failing ones are those, less the one in 256 that
    /// has the same few bits.
    #[test]
    fn torn_page_names_the_stale_parts() {
        for (size, missed_max) in [(1024, 0), (4096, 80), (65_536, 80)] {
            let (count, part_bytes) = parts(size);
            let mut missed = 0;
            for seed in 0..1000_u32 {
                let old = page(size, seed.wrapping_mul(0x9e37_79b9), 4, Mode::Torn);
                let mut torn = page(size, !seed, 4, Mode::Torn);
                let mut stale = Vec::new();
                for part in (0..count - 1).filter(|part| seed >> part & 1 == 1) {
                    let range = part * part_bytes..(part + 1) * part_bytes;
                    torn[range.clone()].copy_from_slice(&old[range.clone()]);
                    stale.push(range.start);
                }
                match fault(&torn, PageNo(4)) {
                    Some(Fault::Torn { parts, part_bytes: bytes }) => {
                        assert_eq!(bytes, part_bytes);
                        assert!(parts.iter().all(|part| stale.contains(part)));
                        missed += stale.len() - parts.len();
                    }
                    None => missed += stale.len(),
                    other => panic!("{other:?}"),
                }
            }
            assert!(missed <= missed_max, "{missed} of some 3500");
            assert_eq!(missed == 0, missed_max == 0, "one in 256 is missed");
        }
    }

    /// Whatever stands in it, and the rest of the page is covered all the same.
    #[test]
    fn balance_counts_as_zero_in_every_mode() {
        for size in SIZES {
            for mode in MODES {
                let marker = marker_in(mode, Room::BalanceAndMarker);
                let mut page = page(size, 3, 6, mode);
                balance_of(&mut page, marker.room).unwrap().fill(0);
                stamp(&mut page, PageNo(6), marker);
                let digest = stored_digest(&page);
                for byte in [1, 0x80, 0xff, b'P'] {
                    balance_of(&mut page, marker.room).unwrap().fill(byte);
                    assert_eq!(verify(&page, PageNo(6)), Some(marker));
                    stamp(&mut page, PageNo(6), marker);
                    assert_eq!(stored_digest(&page), digest);
                }
                if mode != Mode::Checksum {
                    continue;
                }
                for byte in [0, size / 2, size - 25, size - 16, size - 1] {
                    page[byte] ^= 4;
                    let flipped = Fault::FlippedBit { byte, bit: 2 };
                    assert_eq!(fault(&page, PageNo(6)), Some(flipped), "{size} {byte}");
                    page[byte] ^= 4;
                }
            }
        }
        assert!(balance_of(&mut [0; 23], Room::BalanceAndMarker).is_none());
        assert!(balance_of(&mut [0; 512], Room::Marker).is_none());
    }

    #[test]
    fn mix_is_undone() {
        for (database, number) in [(1, 1), (7, 0), (u32::MAX, u32::MAX), (0xd1ce_5eed, 262_145)] {
            let mixed = mix(NonZeroU32::new(database).unwrap(), PageNo(u64::from(number)));
            assert_eq!(unmix(mixed), (database, number));
        }
    }

    #[test]
    fn page_of_another_database_says_so() {
        let mut page = page(512, 3, 5, Mode::Checksum);
        let other = Marker { database: NonZeroU32::new(2).unwrap(), ..marker(Mode::Checksum) };
        stamp(&mut page, PageNo(5), other);
        assert_eq!(verify(&page, PageNo(5)).map(|marker| marker.database.get()), Some(2));
    }

    #[test]
    fn short_slices_are_no_pages() {
        for size in 0..MARKER_BYTES {
            let mut bytes = vec![1; size];
            stamp(&mut bytes, PageNo(2), marker(Mode::Checksum));
            assert_eq!(bytes, vec![1; size]);
            assert_eq!(verify(&bytes, PageNo(2)), None);
            assert!(fault(&bytes, PageNo(2)).is_some());
        }
    }
}
