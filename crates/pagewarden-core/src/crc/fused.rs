//! CRC-32C for processors whose carry-less multiplication is slow and whose `crc32` instruction is
//! fast: both work at once, each on half of the bytes.
//!
//! | lines of 64 bytes, for a block of `STEPS` | |
//! |---|---|
//! | `4 * STEPS` | eight streams of `32 * STEPS` bytes, a `crc32` chain each |
//! | `4 * STEPS + 4` | four vectors, each folded over the other three onto its next line |
//! | one or more | folded the same way; the first takes up what the chains ended with |
//!
//! AMD's Zen 5 begins a multiplication of 64 bytes every other cycle, and folding 64 bytes takes
//! two: 16 bytes a cycle, however many vectors take turns. Two `crc32` instructions can begin in
//! each cycle, another 16 bytes, and each takes three: six chains are the least. Measured in one
//! thread on pages of 16K, GB/s, medians of 15 rounds of `pagewarden-bench kernel`:
//!
//! | pages in | multiplying only, by the crate `crc-fast` | this |
//! |---|---|---|
//! | 32 KiB | 67 | 108 |
//! | 256 KiB | 69 | 119 |
//! | 1 MiB | 67 | 110 |
//! | memory | 30 | 24 |
//!
//! The streams lie so that all addresses are one register and a constant; with distances that were
//! known only at run time a quarter was lost. Without fetching ahead it is a little faster in the
//! first cache and slower everywhere else.
//!
//! On other processors the share of each would have to be another, so it is not used there.
//!
//! **Folding.** All bits are low bit first: bit `i` of a number of `n` bits stands for
//! `x^(n - 1 - i)`. Then the product of a 64-bit half of a line and a 32-bit constant, taken as 128
//! bits, has a factor `x^33` too many, and that of two 32-bit numbers, taken as 64 bits, one of
//! `x` too few. [`folding`] and [`carrying`] make up for that.
//!
//! The idea of using both: Peter Cawley, "Faster CRC32-C on x86".

#![allow(unsafe_code)]
#![allow(clippy::arithmetic_side_effects, reason = "constants, and lengths of what is in memory")]

use std::arch::x86_64::{
    __cpuid, __m128i, __m512i, _MM_HINT_T0, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_prefetch, _mm_set_epi64x, _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256,
    _mm256_xor_si256, _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_clmulepi64_epi128,
    _mm512_extracti64x4_epi64, _mm512_load_si512, _mm512_loadu_si512, _mm512_maskz_mov_epi64,
    _mm512_set_epi64, _mm512_setzero_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};
use std::sync::LazyLock;

use super::castagnoli::chain;
use super::{Castagnoli, low_half};

const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const LANE_BITS: usize = 128;
/// `crc32` chains side by side.
const STREAM_COUNT: usize = 8;
/// What a chain takes in a step.
const STREAM_STEP_BYTES: usize = 32;
/// Vectors that take turns.
const VECTOR_COUNT: usize = 4;

/// Steps of a block: as many as fit in a page of 16K, 8K, 4K. Longer pages are several blocks.
const STEPS_16K: usize = 31;
const STEPS_8K: usize = 15;
const STEPS_4K: usize = 7;

/// The fewest bytes that certainly have the lines of the smallest block, wherever they begin.
const BYTES_MIN: usize = (lines_min(STEPS_4K) + 1) * LINE_BYTES;

/// The fewest lines for a block of `steps` steps.
const fn lines_min(steps: usize) -> usize {
    steps * (STREAM_COUNT * STREAM_STEP_BYTES / LINE_BYTES + VECTOR_COUNT) + VECTOR_COUNT + 1
}

/// What is left of a page without its first and last line has room for its block.
const _: () = {
    assert!(page_bytes(STEPS_16K) == 16_384 && lines_min(STEPS_16K) <= 16_384 / LINE_BYTES - 2);
    assert!(page_bytes(STEPS_8K) == 8192 && lines_min(STEPS_8K) <= 8192 / LINE_BYTES - 2);
    assert!(page_bytes(STEPS_4K) == 4096 && lines_min(STEPS_4K) <= 4096 / LINE_BYTES - 2);
};

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE_BYTES]);

/// Whether this processor has the instructions.
pub fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

/// Whether this is the fastest way on this processor. Asked once, then remembered.
pub fn is_fastest() -> bool {
    static IS_FASTEST: LazyLock<bool> = LazyLock::new(|| available() && is_zen5());
    *IS_FASTEST
}

/// AMD's family 1Ah. Facts from AMD's "Processor Programming Reference", `CPUID_Fn00000001_EAX`.
fn is_zen5() -> bool {
    const ZEN5: u32 = 0x1A;
    #[allow(unused_unsafe, reason = "newer compilers call it safe")]
    // SAFETY: every processor of 64 bits has the instruction and these two leaves.
    let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1)) };
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let family = (version.eax >> 8 & 0xf) + (version.eax >> 20 & 0xff);
    name.as_flattened() == b"AuthenticAMD" && family == ZEN5
}

/// The state behind `bytes`; `None` of lengths for which there are faster ways.
///
/// # Safety
/// The processor must have what [`available`] asks for.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
pub fn advance(state: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() < BYTES_MIN {
        return None;
    }
    // SAFETY: any bytes are a line.
    let (head, mut lines, tail) = unsafe { bytes.align_to::<Line>() };
    let mut state = chain(state, head);
    let block = lines_min(STEPS_16K);
    while lines.len() >= 2 * block {
        let (now, later) = lines.split_at(block);
        state = take_block::<STEPS_16K>(state, now)?;
        lines = later;
    }
    state = match lines.len() {
        count if count >= block => take_block::<STEPS_16K>(state, lines)?,
        count if count >= lines_min(STEPS_8K) => take_block::<STEPS_8K>(state, lines)?,
        _ => take_block::<STEPS_4K>(state, lines)?,
    };
    Some(chain(state, tail))
}

/// CRC-32C of each of `COUNT` equal parts of a page that are made of lines; the last `LEFT_OUT`
/// bytes of the page, a few words, are in none. `None` of other pages.
///
/// One vector is enough: what the next part needs does not wait for what this one does.
///
/// # Safety
/// The processor must have what [`available`] asks for.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
pub fn crc32c_of_parts<const COUNT: usize, const LEFT_OUT: usize>(
    page: &[u8],
) -> Option<[u32; COUNT]> {
    const WORD_BYTES: usize = 8;
    const { assert!(LEFT_OUT.is_multiple_of(WORD_BYTES) && LEFT_OUT < LINE_BYTES) };
    let begin = |word: usize| {
        let mut words = [0; LINE_BYTES / WORD_BYTES];
        if let Some(word) = words.get_mut(word) {
            *word = u64::from(u32::MAX);
        }
        words
    };
    let part_bytes = page.len() / COUNT;
    let over_one = folding_vector(const { folding(LINE_BITS) });
    let mut crcs = [0; COUNT];
    for (crc, index) in crcs.iter_mut().zip(0..COUNT) {
        // Bytes of zero in front of where a CRC begins change nothing: so the last part is as long
        // as the others.
        let before = if index + 1 == COUNT { LEFT_OUT } else { 0 };
        let at = (index * part_bytes).checked_sub(before)?;
        let (lines, []) = page.get(at..at + part_bytes)?.as_chunks() else { return None };
        let (first, lines) = lines.split_first()?;
        let words = before / WORD_BYTES;
        let first = _mm512_maskz_mov_epi64(u8::MAX << words, load_anywhere(first));
        let mut vector = _mm512_xor_si512(first, vector_of(&begin(words)));
        for line in lines {
            vector = fold(vector, over_one, load_anywhere(line));
        }
        *crc = !reduce(vector);
    }
    Some(crcs)
}

/// Goes on from `state` over `lines`; `None` if they are too few for a block.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn take_block<const STEPS: usize>(state: u32, lines: &[Line]) -> Option<u32> {
    if lines.len() < lines_min(STEPS) {
        return None;
    }
    let (streams, lines) = lines.split_at(lines_of_streams(STEPS));
    let (first, lines) = lines.split_first_chunk::<VECTOR_COUNT>()?;
    let (groups, rest) = lines.split_at(STEPS * VECTOR_COUNT);
    let mut chains = [0; STREAM_COUNT];
    chains[0] = u64::from(state);
    let mut vectors = [_mm512_setzero_si512(); VECTOR_COUNT];
    for (vector, line) in vectors.iter_mut().zip(first) {
        *vector = load(line);
    }
    let over_others = folding_vector(const { folding(VECTOR_COUNT * LINE_BITS) });
    for (group, at) in groups.as_chunks::<VECTOR_COUNT>().0.iter().zip(0..STEPS) {
        for (vector, line) in vectors.iter_mut().zip(group) {
            *vector = fold(*vector, over_others, load(line));
        }
        let begin = streams.as_ptr().cast::<u8>();
        fetch_ahead(begin.wrapping_add(page_bytes(STEPS) + at * VECTOR_COUNT * LINE_BYTES));
        for word in 0..STREAM_STEP_BYTES / 8 {
            for (chain, stream) in chains.iter_mut().zip(0..STREAM_COUNT) {
                let offset = (stream * STEPS + at) * STREAM_STEP_BYTES + word * 8;
                // SAFETY: the largest offset is that of the last eight bytes of `streams`, which
                // has STREAM_COUNT times STEPS times STREAM_STEP_BYTES of them; an array of bytes
                // asks for no alignment.
                let bytes = unsafe { begin.add(offset).cast::<[u8; 8]>().read() };
                *chain = _mm_crc32_u64(*chain, u64::from_le_bytes(bytes));
            }
        }
    }
    let mut carry = carried::<STEPS>(&chains);
    let mut next = |line: &Line| {
        let with_carry = _mm512_xor_si512(load(line), carry);
        carry = _mm512_setzero_si512();
        with_carry
    };
    let (groups, rest) = rest.as_chunks::<VECTOR_COUNT>();
    for group in groups {
        for (vector, line) in vectors.iter_mut().zip(group) {
            *vector = fold(*vector, over_others, next(line));
        }
    }
    let [a, b, c, last] = vectors;
    let mut all = fold(a, folding_vector(const { folding(3 * LINE_BITS) }), last);
    all = fold(b, folding_vector(const { folding(2 * LINE_BITS) }), all);
    let over_one = folding_vector(const { folding(LINE_BITS) });
    all = fold(c, over_one, all);
    for line in rest {
        all = fold(all, over_one, next(line));
    }
    Some(reduce(all))
}

/// The processor sees by itself where the vectors go on, but not eight streams as short as these:
/// those of the page behind this one are asked for in time, as many lines as a step takes of them.
#[inline]
fn fetch_ahead(place: *const u8) {
    for line in 0..VECTOR_COUNT {
        // SAFETY: fetching reads nothing, and what is no memory is not fetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(line * LINE_BYTES).cast()) };
    }
}

/// The page size that a block is made for.
const fn page_bytes(steps: usize) -> usize {
    (steps + 1) * (STREAM_COUNT * STREAM_STEP_BYTES + VECTOR_COUNT * LINE_BYTES)
}

const fn lines_of_streams(steps: usize) -> usize {
    steps * STREAM_COUNT * STREAM_STEP_BYTES / LINE_BYTES
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &Line) -> __m512i {
    // SAFETY: a line has the 64 bytes read, and their alignment.
    unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_anywhere(line: &[u8; LINE_BYTES]) -> __m512i {
    // SAFETY: there are the 64 bytes read, and no alignment is asked for.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}

/// `vector` where `next` is.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(vector: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    const XOR_OF_THREE: i32 = 0x96;
    let low = _mm512_clmulepi64_epi128::<0x00>(vector, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(vector, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, next)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn folding_vector([low, high]: [u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(high.cast_signed(), low.cast_signed()))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn vector_of(words: &[u64; 8]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = words.map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// What the chains ended with, to be added to the first line behind the vectors.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn carried<const STEPS: usize>(chains: &[u64; STREAM_COUNT]) -> __m512i {
    let factors = vector_of(const { &carrying(STEPS) });
    let products = fold(vector_of(chains), factors, _mm512_setzero_si512());
    _mm512_zextsi128_si512(xor_of_lanes(products))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor_of_lanes(vector: __m512i) -> __m128i {
    let high = _mm512_extracti64x4_epi64::<1>(vector);
    let half = _mm256_xor_si256(_mm512_castsi512_si256(vector), high);
    _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}

/// The state behind the line that `vector` stands for.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn reduce(vector: __m512i) -> u32 {
    const LAST_LANE: u8 = 0b1100_0000;
    // The last lane is where the others go.
    let last = _mm512_maskz_mov_epi64(LAST_LANE, vector);
    let lane = xor_of_lanes(fold(vector, vector_of(const { &folding_of_lanes() }), last));
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane).cast_unsigned());
    low_half(_mm_crc32_u64(state, _mm_extract_epi64::<1>(lane).cast_unsigned()))
}

/// Factors for the halves of a lane that goes this many bits further.
const fn folding(bits: usize) -> [u64; 2] {
    [power(bits + 31), power(bits - 33)]
}

const fn folding_of_lanes() -> [u64; 8] {
    let [a, b] = folding(3 * LANE_BITS);
    let [c, d] = folding(2 * LANE_BITS);
    let [e, f] = folding(LANE_BITS);
    [a, b, c, d, e, f, 0, 0]
}

/// Factors for what each chain of a block ends with: over the streams behind it and the lines of
/// the vectors.
const fn carrying(steps: usize) -> [u64; STREAM_COUNT] {
    const fn over(steps: usize, streams: usize) -> u64 {
        let bits = streams * steps * STREAM_STEP_BYTES * 8;
        power(31 + bits + (steps + 1) * VECTOR_COUNT * LINE_BITS)
    }
    [
        over(steps, 7),
        over(steps, 6),
        over(steps, 5),
        over(steps, 4),
        over(steps, 3),
        over(steps, 2),
        over(steps, 1),
        over(steps, 0),
    ]
}

/// `x^exponent` modulo the polynomial, as 32 bits.
const fn power(exponent: usize) -> u64 {
    super::power::<Castagnoli>(exponent) >> u32::BITS
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{crc32c_plain, crc32c_step as step, tables};
    use super::*;
    use crate::testing::noise;

    fn fused(bytes: &[u8]) -> Option<u32> {
        // SAFETY: every test asks first.
        unsafe { advance(u32::MAX, bytes) }.map(|state| !state)
    }

    /// Through tables.
    fn expected(bytes: &[u8]) -> Option<u32> {
        let state = tables::advance::<Castagnoli>(u64::from(u32::MAX), bytes);
        (bytes.len() >= BYTES_MIN).then(|| !low_half(state))
    }

    /// Says so where there is nothing to test.
    fn can_run() -> bool {
        let can = available();
        if !can {
            eprintln!("skipped: this processor has no AVX-512 with VPCLMULQDQ");
        }
        can
    }

    /// Every number of lines up to two blocks and more, and every number of bytes before and
    /// behind them.
    #[test]
    fn equals_the_tables_at_every_length_and_alignment() {
        if !can_run() {
            return;
        }
        let bytes = noise(70_000, 11);
        let begin = bytes.as_ptr().align_offset(LINE_BYTES);
        for head in 0..LINE_BYTES {
            for length in (0..33_500).step_by(61).chain([16_338, 16_380, 65_490, 65_532]) {
                let part = &bytes[begin + head..begin + head + length];
                let expected = expected(part);
                assert_eq!(fused(part), expected, "{length} bytes from {head}");
            }
        }
        for length in 0..17_000 {
            let part = &bytes[begin + 38..begin + 38 + length];
            let expected = expected(part);
            assert_eq!(fused(part), expected, "{length} bytes");
        }
    }

    /// One bit set: each place has its own factor, none of which may be wrong or missing.
    #[test]
    fn every_bit_counts_as_the_definition_has_it() {
        if !can_run() {
            return;
        }
        for length in [BYTES_MIN, 8192, 16_384] {
            let mut bytes = vec![0; length];
            // The state behind a set bit, over the zeroes behind it, from the last bit backwards.
            let nothing = crc32c_plain(&bytes);
            let mut differs = step(1);
            for at in (0..length * 8).rev() {
                bytes[at / 8] = 1 << (at % 8);
                assert_eq!(fused(&bytes), Some(nothing ^ differs), "bit {at} of {length} bytes");
                bytes[at / 8] = 0;
                differs = step(differs);
            }
        }
    }

    proptest! {
        #[test]
        fn equals_the_tables_for_any_bytes(
            bytes in vec(any::<u8>(), 0..20_000),
            skipped in 0..200_usize,
        ) {
            if can_run() {
                let part = bytes.get(skipped..).unwrap_or_default();
                prop_assert_eq!(fused(part), expected(part));
            }
        }
    }
}
