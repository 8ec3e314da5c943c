//! The PostgreSQL page checksum (data checksums, 9.3 and later).
//!
//! A page is read as rows of 32 little-endian words; every column ("lane") is hashed on its own:
//!
//! | step | what happens |
//! |---|---|
//! | start | lane `i` is `LANE_BASIS[i]` |
//! | each row | `mixed = lane ^ word`, then `lane = mixed * 16777619 ^ (mixed >> 17)` |
//! | end | two more rows of zeroes |
//! | fold | XOR of the 32 lanes: the page's 32-bit hash |
//! | reduce | `((hash ^ block) % 65535) + 1`: the value of `pd_checksum`, so never 0 |
//!
//! Two bytes of the page are not hashed as they are: `pd_checksum` itself (offset 8, 2 bytes) counts
//! as zero. Because a word enters by XOR, a field that counts as zero is the same as a starting lane
//! that has the field XORed in beforehand. So no kernel here masks, copies or writes the page: the
//! field goes into the starting value of lane 2.
//!
//! The block number is the block's place in the whole relation, not in its 1 GiB segment file.
//!
//! All 32 lanes are serial chains of a multiplication and two XORs, so one page alone is bound by
//! latency on wide vectors. The vector kernels therefore hash several pages side by side.
//!
//! Facts from PostgreSQL's public source (`src/include/storage/checksum_impl.h`), settled by pages
//! of real servers: the modulus is 65535. Words are read as little-endian everywhere; the pages of a
//! big-endian server are not supported.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod aarch64;
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
mod x86;

use std::sync::OnceLock;

/// The starting values of the 32 lanes: arbitrary, fixed by PostgreSQL.
pub const LANE_BASIS: [u32; LANE_COUNT] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

const LANE_COUNT: usize = 32;
const WORD_BYTES: usize = size_of::<u32>();
const ROW_BYTES: usize = LANE_COUNT * WORD_BYTES;
/// The multiplier of the 32-bit FNV hash.
const FNV_PRIME: u32 = 16_777_619;
const FNV_SHIFT: u32 = 17;
/// Rows of zeroes that mix the last real row into all bits.
const CLOSING_ROW_COUNT: usize = 2;
const CHECKSUM_MODULUS: u32 = 65_535;

/// Where `pd_checksum` lies in the page header: after the eight bytes of `pd_lsn`.
const CHECKSUM_FIELD_OFFSET: usize = 8;
/// The lane whose first word holds `pd_checksum`, in its low half.
const CHECKSUM_FIELD_LANE: usize = CHECKSUM_FIELD_OFFSET / WORD_BYTES;

const PAGE_SIZE_MIN: usize = 1024;
const PAGE_SIZE_MAX: usize = 32_768;

const _: () = {
    assert!(ROW_BYTES == 128);
    assert!(PAGE_SIZE_MIN.is_multiple_of(ROW_BYTES));
    // The field fills the low half of a little-endian word.
    assert!(CHECKSUM_FIELD_OFFSET.is_multiple_of(WORD_BYTES) && CHECKSUM_FIELD_LANE == 2);
};

/// One implementation of the page hash. All give the same result; they differ in the instructions
/// they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Plain Rust, whatever vectors the build's target has. Always available; the reference of all
    /// others.
    Plain,
    /// x86 with SSE4.1.
    Sse41,
    /// x86 with AVX2.
    Avx2,
    /// x86 with the AVX-512 foundation.
    Avx512,
    /// 64-bit Arm with Advanced SIMD.
    Neon,
}

impl Kernel {
    /// Every kernel this version knows, slowest first, whether or not this processor has it.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &[Self::Plain, Self::Sse41, Self::Avx2, Self::Avx512, Self::Neon]
    }

    /// The fastest kernel of this processor. Asked once, then remembered.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| {
            let fastest = Self::all().iter().rev().copied().find(|kernel| kernel.available());
            fastest.unwrap_or(Self::Plain)
        })
    }

    /// A short lower-case name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "portable",
            Self::Sse41 => "sse4.1",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Whether this build and this processor can run it.
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Self::Plain => true,
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Self::Sse41 => x86::sse41::available(),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Self::Avx2 => x86::avx2::available(),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Self::Avx512 => x86::avx512::available(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => aarch64::neon::available(),
            #[allow(unreachable_patterns, reason = "which arms exist depends on the target")]
            _ => false,
        }
    }
}

/// 32-bit hash of each page of `pages`, before the block number is mixed in, by the fastest kernel
/// of this processor.
///
/// The two bytes of `pd_checksum` count as zero. `pages` needs no alignment.
///
/// `page_size` must be a power of two from 1024 to 32768, `pages.len()` a multiple of it and
/// `hashes.len()` the number of pages. A debug build panics when the caller breaks this. A release
/// build hashes as many whole pages as both slices hold, leaves the rest of `hashes` as it was, and
/// hashes nothing at all with another `page_size`.
pub fn hash_pages(pages: &[u8], page_size: usize, hashes: &mut [u32]) {
    hash_pages_with(Kernel::best(), pages, page_size, hashes);
}

/// [`hash_pages`] by a given kernel; by [`Kernel::Plain`] if `kernel` is not available.
pub fn hash_pages_with(kernel: Kernel, pages: &[u8], page_size: usize, hashes: &mut [u32]) {
    let page_size_known =
        page_size.is_power_of_two() && (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_size);
    debug_assert!(page_size_known, "page size {page_size}");
    if !page_size_known {
        return;
    }
    debug_assert_eq!(pages.len(), hashes.len() * page_size, "one hash per whole page");

    let done = match kernel {
        Kernel::Plain => false,
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Kernel::Sse41 => x86::sse41::hash_pages(pages, page_size, hashes),
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Kernel::Avx2 => x86::avx2::hash_pages(pages, page_size, hashes),
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Kernel::Avx512 => x86::avx512::hash_pages(pages, page_size, hashes),
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Kernel::Neon => aarch64::neon::hash_pages(pages, page_size, hashes),
        #[allow(unreachable_patterns, reason = "which arms exist depends on the target")]
        _ => false,
    };
    if !done {
        for (page, hash) in pages.chunks_exact(page_size).zip(hashes) {
            *hash = hash_page_plain(page);
        }
    }
}

/// The checksum that `pd_checksum` holds for a page with this hash at this block: never 0.
#[must_use]
pub fn checksum(hash: u32, block: u32) -> u16 {
    ((hash ^ block) % CHECKSUM_MODULUS) as u16 + 1
}

/// The blocks below `block_count` at which a page with this hash would carry the checksum `stored`:
/// the places where a moved page may come from. Empty if `stored` is 0.
///
/// The order is that of `hash ^ block`, not of the blocks. Work is one step for each 65,535 blocks
/// (65,538 steps for all blocks there can be), as the arithmetic of [`checksum`] is inverted; about
/// one block in 65,535 matches any page by chance.
pub fn blocks_matching(hash: u32, stored: u16, block_count: u32) -> impl Iterator<Item = u32> {
    let modulus = u64::from(CHECKSUM_MODULUS);
    // Blocks below the next power of two differ from the hash only in the bits of this mask, which
    // bounds the values that hash ^ block can take.
    let low_bits = u32::MAX.checked_shr(block_count.leading_zeros()).unwrap_or(0);
    let value_min = u64::from(hash & !low_bits);
    let value_max = u64::from(hash | low_bits);

    let steps = stored.checked_sub(1).map(|remainder| {
        let remainder = u64::from(remainder);
        let step_first = value_min.saturating_sub(remainder).div_ceil(modulus);
        (step_first..).map(move |step| remainder + step * modulus)
    });
    steps
        .into_iter()
        .flatten()
        .take_while(move |value| *value <= value_max)
        .filter_map(move |value| u32::try_from(value).ok())
        .map(move |value| value ^ hash)
        .filter(move |block| *block < block_count)
}

/// The reference, and the kernel of processors without any of the vectors.
fn hash_page_plain(page: &[u8]) -> u32 {
    let mut lanes = LANE_BASIS;
    lanes[CHECKSUM_FIELD_LANE] ^= checksum_field(page);
    for row in page.as_chunks::<ROW_BYTES>().0 {
        mix_row(&mut lanes, row);
    }
    for _ in 0..CLOSING_ROW_COUNT {
        mix_row(&mut lanes, &[0; ROW_BYTES]);
    }
    lanes.iter().fold(0, |hash, lane| hash ^ lane)
}

/// Never inlined: on its own the loop becomes vector code on every target, inlined into the walk over
/// the rows it is at times unrolled to 32 scalar chains, at half the speed.
#[inline(never)]
fn mix_row(lanes: &mut [u32; LANE_COUNT], row: &[u8; ROW_BYTES]) {
    for (lane, word) in lanes.iter_mut().zip(row.as_chunks::<WORD_BYTES>().0) {
        *lane = mix(*lane, u32::from_le_bytes(*word));
    }
}

#[inline]
const fn mix(lane: u32, word: u32) -> u32 {
    let mixed = lane ^ word;
    mixed.wrapping_mul(FNV_PRIME) ^ (mixed >> FNV_SHIFT)
}

/// `pd_checksum` of a page; 0 for a page too short to have one, which no caller passes.
#[inline]
fn checksum_field(page: &[u8]) -> u32 {
    let field = page.get(CHECKSUM_FIELD_OFFSET..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |bytes| u32::from(u16::from_le_bytes(*bytes)))
}

/// Writes `available` and `hash_pages` of one vector kernel, from the few operations that differ.
///
/// The last argument names the pages hashed side by side. The surrounding module supplies, all with
/// `#[target_feature]`: `Vector`, `VECTOR_BYTES`, `prefetch` (of what lies ahead of a row), `load`, `zero`,
/// `lift_field` (a vector with the field in [`CHECKSUM_FIELD_LANE`], zero elsewhere), `xor`, `mix` and
/// `fold` (XOR of a vector's words).
///
/// It is a macro because trait methods cannot be inlined into functions with more target features,
/// and because each page needs variables of its own: lanes in an array of pages are at times left in
/// memory by the compiler, at two thirds of the speed.
macro_rules! vector_kernel {
    ($feature:tt, $detect:ident, [$($page:ident),+]) => {
        const PAGES_AT_ONCE: usize = [$(stringify!($page)),+].len();
        const VECTOR_COUNT: usize = ROW_BYTES / VECTOR_BYTES;
        type Lanes = [Vector; VECTOR_COUNT];

        /// Whether this processor has the instructions.
        pub(in super::super) fn available() -> bool {
            std::arch::$detect!($feature)
        }

        /// Hashes what `super::super::hash_pages` hashes; false, and nothing done, if not available.
        pub(in super::super) fn hash_pages(
            pages: &[u8],
            page_size: usize,
            hashes: &mut [u32],
        ) -> bool {
            let available = available();
            if available {
                // SAFETY: the processor has the feature, which is all the function asks for.
                unsafe { hash_all(pages, page_size, hashes) };
            }
            available
        }

        #[target_feature(enable = $feature)]
        fn hash_all(pages: &[u8], page_size: usize, hashes: &mut [u32]) {
            let group_bytes = page_size * PAGES_AT_ONCE;
            let (hash_groups, _) = hashes.as_chunks_mut::<PAGES_AT_ONCE>();
            let grouped = (pages.len() / group_bytes).min(hash_groups.len()) * PAGES_AT_ONCE;
            for (group, hashes) in pages.chunks_exact(group_bytes).zip(hash_groups) {
                hash_group(group, page_size, hashes);
            }
            for (page, hash) in pages.chunks_exact(page_size).zip(hashes).skip(grouped) {
                hash_one(page, hash);
            }
        }

        /// Walks the rows of all pages of the group at once, so that their chains overlap.
        #[target_feature(enable = $feature)]
        fn hash_group(group: &[u8], page_size: usize, hashes: &mut [u32; PAGES_AT_ONCE]) {
            let mut pages = group.chunks_exact(page_size);
            $(
                let page = pages.next().unwrap_or_default();
                let mut $page = (start(page), page.as_chunks::<ROW_BYTES>().0);
            )+
            for row in 0..page_size / ROW_BYTES {
                $(
                    if let Some(row) = $page.1.get(row) {
                        prefetch(row);
                        mix_row(&mut $page.0, row);
                    }
                )+
            }
            *hashes = [$(close($page.0)),+];
        }

        #[target_feature(enable = $feature)]
        fn hash_one(page: &[u8], hash: &mut u32) {
            let mut lanes = start(page);
            for row in page.as_chunks::<ROW_BYTES>().0 {
                mix_row(&mut lanes, row);
            }
            *hash = close(lanes);
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn start(page: &[u8]) -> Lanes {
            let mut lanes = [zero(); VECTOR_COUNT];
            for (lanes, bytes) in lanes.iter_mut().zip(BASIS_BYTES.as_chunks::<VECTOR_BYTES>().0) {
                *lanes = load(bytes);
            }
            lanes[0] = xor(lanes[0], lift_field(checksum_field(page)));
            lanes
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn mix_row(lanes: &mut Lanes, row: &[u8; ROW_BYTES]) {
            for (lanes, bytes) in lanes.iter_mut().zip(row.as_chunks::<VECTOR_BYTES>().0) {
                *lanes = mix(xor(*lanes, load(bytes)));
            }
        }

        /// The closing rows and the fold.
        #[inline]
        #[target_feature(enable = $feature)]
        fn close(lanes: Lanes) -> u32 {
            let mut folded = zero();
            for lanes in lanes {
                // Without this wall the optimiser merges the arithmetic below with the loop before
                // it and keeps several values for each lane, more than there are registers.
                let mut lanes = black_box(lanes);
                for _ in 0..CLOSING_ROW_COUNT {
                    lanes = mix(lanes);
                }
                folded = xor(folded, lanes);
            }
            fold(folded)
        }
    };
}
use vector_kernel;

/// [`LANE_BASIS`] as the bytes of a row, for the loads of the vector kernels.
const BASIS_BYTES: [u8; ROW_BYTES] = {
    let mut bytes = [0; ROW_BYTES];
    let mut words = bytes.as_chunks_mut::<WORD_BYTES>().0;
    let mut lanes = LANE_BASIS.as_slice();
    while let (Some((word, words_left)), Some((lane, lanes_left))) =
        (words.split_first_mut(), lanes.split_first())
    {
        *word = lane.to_le_bytes();
        words = words_left;
        lanes = lanes_left;
    }
    bytes
};

/// The reference hash was settled by every page of a cluster of a real server, where it agreed with the
/// server's own offline check; the known answers here were computed from it after that.
#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_SIZES: [usize; 6] = [1024, 2048, 4096, 8192, 16_384, 32_768];

    /// Bytes without a pattern (xorshift64), so that no two words of a page are alike.
    fn noise(seed: u64, count: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        std::iter::repeat_with(next).flatten().take(count).collect()
    }

    fn hash_one(kernel: Kernel, page: &[u8]) -> u32 {
        let mut hashes = [0];
        hash_pages_with(kernel, page, page.len(), &mut hashes);
        hashes[0]
    }

    fn available_kernels() -> impl Iterator<Item = Kernel> {
        Kernel::all().iter().copied().filter(|kernel| kernel.available())
    }

    #[test]
    fn hashes_of_known_pages_stay_as_they_are() {
        // (page size, hash of zeroes, of 0xFF bytes, of noise)
        let known = [
            (1024, 0xD9BE_B298, 0xA07A_60F2, 0x26F0_C6AB),
            (2048, 0x0C56_0F39, 0x789A_3CE0, 0xC20B_98E2),
            (4096, 0x7C9F_AF9B, 0xCDAC_8DED, 0xE23B_91BC),
            (8192, 0x54AF_71FA, 0x0C7B_01A0, 0x197B_49E0),
            (16_384, 0x8A5D_09A8, 0xE110_347C, 0x2B71_898E),
            (32_768, 0x06A3_34CE, 0x8358_D00C, 0x5BD1_C23D),
        ];
        for kernel in available_kernels() {
            for (page_size, zeroes, ones, noisy) in known {
                let found = (
                    page_size,
                    hash_one(kernel, &vec![0; page_size]),
                    hash_one(kernel, &vec![0xFF; page_size]),
                    hash_one(kernel, &noise(2026, page_size)),
                );
                assert_eq!(found, (page_size, zeroes, ones, noisy), "{}", kernel.name());
            }
        }
    }

    #[test]
    fn every_kernel_agrees_with_plain_for_every_size_count_and_alignment() {
        const COUNT_MAX: usize = 20;
        for page_size in PAGE_SIZES {
            for offset in [0, 1, 7] {
                let buffer = noise(page_size as u64 + 99, offset + COUNT_MAX * page_size);
                let pages = &buffer[offset..];
                let mut expected = vec![0; COUNT_MAX];
                hash_pages_with(Kernel::Plain, pages, page_size, &mut expected);
                for kernel in available_kernels() {
                    for count in 0..=COUNT_MAX {
                        let mut hashes = vec![0; count];
                        hash_pages_with(
                            kernel,
                            &pages[..count * page_size],
                            page_size,
                            &mut hashes,
                        );
                        assert_eq!(
                            hashes,
                            expected[..count],
                            "{} size {page_size} offset {offset} count {count}",
                            kernel.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_dispatched_kernel_is_the_best_available_one() {
        assert!(Kernel::Plain.available());
        assert!(Kernel::best().available());
        let pages = noise(5, 7 * 8192);
        let (mut dispatched, mut plain) = ([0; 7], [0; 7]);
        hash_pages(&pages, 8192, &mut dispatched);
        hash_pages_with(Kernel::Plain, &pages, 8192, &mut plain);
        assert_eq!(dispatched, plain);
    }

    /// What cannot run here must still give the right answer, not none.
    #[test]
    fn an_unavailable_kernel_falls_back_to_plain() {
        let page = noise(6, 8192);
        for kernel in Kernel::all() {
            assert_eq!(hash_one(*kernel, &page), hash_one(Kernel::Plain, &page), "{kernel:?}");
        }
    }

    #[test]
    fn only_the_checksum_field_is_left_out() {
        for kernel in available_kernels() {
            // Several pages, so that the group of the vector kernels is tested and not its rest.
            let mut pages = noise(7, 4 * 1024);
            let mut before = [0; 4];
            hash_pages_with(kernel, &pages, 1024, &mut before);
            for byte in 0..pages.len() {
                for bit in 0..8 {
                    pages[byte] ^= 1 << bit;
                    let mut after = [0; 4];
                    hash_pages_with(kernel, &pages, 1024, &mut after);
                    pages[byte] ^= 1 << bit;
                    let in_field = [8, 9].contains(&(byte % 1024));
                    for page in 0..4 {
                        let changed = before[page] != after[page];
                        let expected = page == byte / 1024 && !in_field;
                        assert_eq!(
                            changed, expected,
                            "{kernel:?} byte {byte} bit {bit} page {page}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn checksum_is_never_zero_and_wraps_at_65535() {
        assert_eq!(checksum(0, 0), 1);
        assert_eq!(checksum(65_534, 0), 65_535);
        assert_eq!(checksum(65_535, 0), 1);
        assert_eq!(checksum(u32::MAX, 0), 1);
        assert_eq!(checksum(u32::MAX, 1), 65_535);
        assert_eq!(checksum(0x1234_5678, 0x1234_5678), 1);
        assert!((0..200_000).all(|block| checksum(0xFFFF_0000, block) != 0));
    }

    #[test]
    fn blocks_matching_finds_what_trying_every_block_finds() {
        for hash in [0, 1, 0xFFFF, 0x0001_0000, 0x8000_0001, 0xDEAD_BEEF, u32::MAX] {
            for block_count in [0, 1, 2, 3, 65_535, 65_536, 131_072, 300_001] {
                for stored in [0, 1, 2, 32_768, 65_534, 65_535, checksum(hash, block_count / 2)] {
                    let mut found: Vec<u32> = blocks_matching(hash, stored, block_count).collect();
                    found.sort_unstable();
                    let tried: Vec<u32> =
                        (0..block_count).filter(|b| checksum(hash, *b) == stored).collect();
                    assert_eq!(found, tried, "hash {hash:#x} stored {stored} of {block_count}");
                }
            }
        }
    }

    #[test]
    fn blocks_matching_covers_all_blocks_there_can_be() {
        for hash in [0, 0x7FFF_FFFF, 0xDEAD_BEEF, u32::MAX] {
            for stored in [1, 2, 40_000, 65_535] {
                let found: Vec<u32> = blocks_matching(hash, stored, u32::MAX).collect();
                assert!(found.iter().all(|block| checksum(hash, *block) == stored));
                assert!(found.is_sorted_by_key(|block| block ^ hash));
                // 2^32 is 65,537 times 65,535 plus 1: the first remainder occurs once more.
                let everywhere = if stored == 1 { 65_538 } else { 65_537 };
                let beyond = usize::from(checksum(hash, u32::MAX) == stored);
                assert_eq!(found.len(), everywhere - beyond, "hash {hash:#x} stored {stored}");
            }
        }
    }

    /// The contract for wrong lengths in a release build; a debug build panics first.
    #[cfg(not(debug_assertions))]
    #[test]
    fn wrong_lengths_hash_what_both_slices_hold() {
        let pages = noise(8, 6 * 1024 + 100);
        for kernel in available_kernels() {
            let mut expected = [0; 6];
            hash_pages_with(Kernel::Plain, &pages, 1024, &mut expected);
            for count in 0..10 {
                let mut hashes = vec![42; count];
                hash_pages_with(kernel, &pages, 1024, &mut hashes);
                let known = count.min(6);
                assert_eq!(hashes[..known], expected[..known], "{kernel:?} {count}");
                assert!(hashes[known..].iter().all(|hash| *hash == 42), "{kernel:?} {count}");
            }
            for page_size in [0, 1, 128, 1000, 1152, 65_536, usize::MAX] {
                let mut hashes = [42; 2];
                hash_pages_with(kernel, &pages, page_size, &mut hashes);
                assert_eq!(hashes, [42; 2], "{kernel:?} {page_size}");
            }
        }
    }
}
