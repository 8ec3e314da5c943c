//! Cyclic redundancy checks whose bits are read low bit first: CRC-32C, CRC-32 and CRC-64/NVME.
//!
//! They differ in their polynomial and share their code. A sum goes on over more bytes in one of these
//! ways:
//!
//! | way | where | bytes in a step |
//! |---|---|---|
//! | `tables` | everywhere, and for a few bytes | 8 |
//! | `pclmul`, `pmull` | x86-64 and aarch64 that multiply without carry | 64 |
//! | `avx512` | x86-64 with AVX-512 and VPCLMULQDQ | 256 |
//! | `castagnoli` | CRC-32C alone, on processors with instructions for it | 8, or 512 |
//!
//! **Bits.** Bit `i` of a word of 64 bits stands for `x^(63 - i)`. A sum of 32 bits is the low half of its
//! state, and a factor modulo its polynomial is the high half of a word. So the product of two words,
//! taken as 128 bits, has one `x` too many in both widths: the factors are powers of `x` less by one.
//!
//! **Folding.** A lane of 128 bits moves over `d` bits of message as `low * x^(d + 64) + high * x^d`, where
//! each power is taken modulo the polynomial and what the lane comes to is added. The lane that is left at
//! the end is 16 bytes of message that have the same sum; they go through the tables. (Intel's paper
//! "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction".)

#![deny(clippy::arithmetic_side_effects)]
#![allow(unsafe_code)]

use std::marker::PhantomData;

mod castagnoli;
mod tables;

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod fused;
#[cfg(target_arch = "x86_64")]
mod pclmul;
#[cfg(target_arch = "aarch64")]
mod pmull;

pub use castagnoli::crc32c_of_parts;

/// One of the checks of this module. A sum begins with all bits set, and all its bits are turned at the
/// end.
pub trait Check: 'static {
    /// The polynomial without its highest power, low bit first.
    const POLYNOMIAL: u64;
    /// Bits of a sum: 32 or 64.
    const BITS: u32;
    /// A sum.
    type Sum;

    /// The state of a sum behind `bytes`.
    fn advance(state: u64, bytes: &[u8]) -> u64;
    /// The state that ends with `sum`.
    fn state_of(sum: Self::Sum) -> u64;
    /// The sum that ends with `state`.
    fn sum_of(state: u64) -> Self::Sum;
}

/// CRC-32C: InnoDB's pages and log, PostgreSQL's log, maps and control file, our marker's torn mode.
#[derive(Debug)]
pub enum Castagnoli {}

/// The CRC-32 of zlib and gzip: Aria, Parquet, binary logs and xbstream.
#[derive(Debug)]
pub enum IsoHdlc {}

/// The CRC-64 of NVMe: packs, and our marker.
#[derive(Debug)]
pub enum Nvme {}

impl Check for Castagnoli {
    const POLYNOMIAL: u64 = CRC32C_POLYNOMIAL as u64;
    const BITS: u32 = u32::BITS;
    type Sum = u32;

    fn advance(state: u64, bytes: &[u8]) -> u64 {
        castagnoli::advance(low_half(state), bytes)
            .map_or_else(|| by_any::<Self>(state, bytes), u64::from)
    }

    fn state_of(sum: u32) -> u64 {
        u64::from(!sum)
    }

    fn sum_of(state: u64) -> u32 {
        !low_half(state)
    }
}

impl Check for IsoHdlc {
    const POLYNOMIAL: u64 = CRC32_POLYNOMIAL as u64;
    const BITS: u32 = u32::BITS;
    type Sum = u32;

    fn advance(state: u64, bytes: &[u8]) -> u64 {
        by_any::<Self>(state, bytes)
    }

    fn state_of(sum: u32) -> u64 {
        u64::from(!sum)
    }

    fn sum_of(state: u64) -> u32 {
        !low_half(state)
    }
}

impl Check for Nvme {
    const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;
    const BITS: u32 = u64::BITS;
    type Sum = u64;

    fn advance(state: u64, bytes: &[u8]) -> u64 {
        by_any::<Self>(state, bytes)
    }

    fn state_of(sum: u64) -> u64 {
        !sum
    }

    fn sum_of(state: u64) -> u64 {
        !state
    }
}

/// A sum of bytes that come in pieces.
#[derive(Debug)]
pub struct Crc<C> {
    state: u64,
    check: PhantomData<C>,
}

/// CRC-32C of bytes that come in pieces.
pub type Crc32c = Crc<Castagnoli>;
/// CRC-32 of bytes that come in pieces.
pub type Crc32 = Crc<IsoHdlc>;
/// CRC-64/NVME of bytes that come in pieces.
pub type Crc64 = Crc<Nvme>;

impl<C: Check> Crc<C> {
    /// Of nothing yet.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { state: u64::MAX >> u64::BITS.saturating_sub(C::BITS), check: PhantomData }
    }

    /// Goes on behind bytes whose sum is `sum`.
    #[must_use]
    pub fn after(sum: C::Sum) -> Self {
        Self { state: C::state_of(sum), check: PhantomData }
    }

    /// Goes on with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state = C::advance(self.state, bytes);
    }

    /// The sum of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> C::Sum {
        C::sum_of(self.state)
    }
}

/// CRC-32C by the fastest way of the processor.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    Castagnoli::sum_of(Castagnoli::advance(u64::from(u32::MAX), bytes))
}

/// CRC-32 by the fastest way of the processor.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    IsoHdlc::sum_of(IsoHdlc::advance(u64::from(u32::MAX), bytes))
}

/// CRC-64/NVME by the fastest way of the processor.
#[must_use]
pub fn crc64(bytes: &[u8]) -> u64 {
    Nvme::sum_of(Nvme::advance(u64::MAX, bytes))
}

/// CRC-32C bit by bit: the reference of [`crc32c`].
#[must_use]
pub fn crc32c_plain(bytes: &[u8]) -> u32 {
    Castagnoli::sum_of(bit_by_bit::<Castagnoli>(u64::from(u32::MAX), bytes))
}

/// The polynomial of CRC-32C, low bit first.
pub const CRC32C_POLYNOMIAL: u32 = 0x82F6_3B78;

/// The polynomial of CRC-32, low bit first.
pub const CRC32_POLYNOMIAL: u32 = 0xEDB8_8320;

/// The state of a CRC-32C one zero bit further.
#[must_use]
pub const fn crc32c_step(state: u32) -> u32 {
    (state >> 1) ^ if state & 1 == 1 { CRC32C_POLYNOMIAL } else { 0 }
}

/// Fewer bytes than this are done before folding has begun. They have a whole vector in them, wherever they lie.
const FOLDED_MIN: usize = 72;

/// Over `bytes` by what every check can use.
fn by_any<C: Check>(state: u64, bytes: &[u8]) -> u64 {
    if bytes.len() < FOLDED_MIN {
        return tables::advance::<C>(state, bytes);
    }
    match folded::<C>(state, bytes) {
        Some((lane, rest)) => C::advance(C::advance(0, &lane), rest),
        None => tables::advance::<C>(state, bytes),
    }
}

/// The 16 bytes that have, behind a state of zero, the sum of `bytes` behind `state`, but for the few that
/// are left at the end; `None` where the processor cannot, and for fewer than [`FOLDED_MIN`].
fn folded<C: Check>(state: u64, bytes: &[u8]) -> Option<([u8; LANE_BYTES], &[u8])> {
    #[cfg(target_arch = "x86_64")]
    if avx512::available() {
        // SAFETY: the processor has what the function asks for.
        return unsafe { avx512::fold::<C>(state, bytes) };
    } else if pclmul::available() {
        // SAFETY: the processor has what the function asks for.
        return unsafe { pclmul::fold::<C>(state, bytes) };
    }
    #[cfg(target_arch = "aarch64")]
    if pmull::available() {
        // SAFETY: the processor has what the function asks for.
        return unsafe { pmull::fold::<C>(state, bytes) };
    }
    let _ = (state, bytes);
    None
}

/// Bytes that are folded at once.
const LANE_BYTES: usize = 16;

#[allow(clippy::cast_possible_truncation)]
const fn low_half(state: u64) -> u32 {
    state as u32
}

fn bit_by_bit<C: Check>(state: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(state, |state, byte| (0..8).fold(state ^ u64::from(*byte), |it, _| step::<C>(it)))
}

/// The state one zero bit further, which is a factor `x`.
const fn step<C: Check>(state: u64) -> u64 {
    (state >> 1) ^ if state & 1 == 1 { C::POLYNOMIAL } else { 0 }
}

/// The product of two sums modulo the polynomial.
const fn multiply<C: Check>(a: u64, mut b: u64) -> u64 {
    let mut product = 0;
    let mut bits_left = C::BITS;
    while let Some(bit) = bits_left.checked_sub(1) {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = step::<C>(b);
        bits_left = bit;
    }
    product
}

/// `x^exponent` modulo the polynomial, as the factor of a word.
const fn power<C: Check>(mut exponent: usize) -> u64 {
    let one = 1 << C::BITS.saturating_sub(1);
    let (mut product, mut square) = (one, step::<C>(one));
    while exponent > 0 {
        if exponent & 1 == 1 {
            product = multiply::<C>(product, square);
        }
        square = multiply::<C>(square, square);
        exponent >>= 1;
    }
    product << u64::BITS.saturating_sub(C::BITS)
}

/// The factors of the low and the high half of a lane that moves over `bytes` of message.
const fn distance<C: Check>(bytes: usize) -> [u64; 2] {
    let bits = bytes.saturating_mul(8);
    [power::<C>(bits.saturating_add(63)), power::<C>(bits.saturating_sub(1))]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::noise;

    /// A sum whose bits are taken one by one, and every way there is on this processor.
    fn every_way_agrees<C: Check>() {
        let bytes = noise(70_000, 1);
        for begin in 0..66 {
            for length in (0..700).step_by(if begin < 17 { 1 } else { 13 }).chain([4096, 16_338]) {
                let part = &bytes[begin..][..length];
                let expected = bit_by_bit::<C>(77, part);
                let case = || format!("{length} bytes from {begin}");
                assert_eq!(tables::advance::<C>(77, part), expected, "{}", case());
                assert_eq!(by_any::<C>(77, part), expected, "{}", case());
                assert_eq!(C::advance(77, part), expected, "{}", case());
                for (name, folding) in foldings::<C>() {
                    let Some((lane, rest)) = folding(77, part) else {
                        assert!(length < FOLDED_MIN, "{name} did not take {}", case());
                        continue;
                    };
                    assert!(rest.len() < LANE_BYTES, "{name} left {}", case());
                    let state = tables::advance::<C>(tables::advance::<C>(0, &lane), rest);
                    assert_eq!(state, expected, "{name}, {}", case());
                }
            }
        }
    }

    type Folding = fn(u64, &[u8]) -> Option<([u8; LANE_BYTES], &[u8])>;

    /// Says which there are not.
    fn foldings<C: Check>() -> Vec<(&'static str, Folding)> {
        #[allow(unused_mut)]
        let mut all: Vec<(&str, bool, Folding)> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        all.extend([
            // SAFETY: called only where the processor has what the function asks for.
            ("avx512", avx512::available(), (|s, b| unsafe { avx512::fold::<C>(s, b) }) as Folding),
            // SAFETY: called only where the processor has what the function asks for.
            ("pclmul", pclmul::available(), |s, b| unsafe { pclmul::fold::<C>(s, b) }),
        ]);
        #[cfg(target_arch = "aarch64")]
        // SAFETY: called only where the processor has what the function asks for.
        all.push(("pmull", pmull::available(), |s, b| unsafe { pmull::fold::<C>(s, b) }));
        all.retain(|(_, available, _)| *available);
        all.into_iter().map(|(name, _, folding)| (name, folding)).collect()
    }

    #[test]
    fn every_way_to_a_crc32c_agrees() {
        every_way_agrees::<Castagnoli>();
    }

    #[test]
    fn every_way_to_a_crc32_agrees() {
        every_way_agrees::<IsoHdlc>();
    }

    #[test]
    fn every_way_to_a_crc64_agrees() {
        every_way_agrees::<Nvme>();
    }

    /// The check values of the catalogue of parametrised CRC algorithms.
    #[test]
    fn known_answers_hold() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc64(b"123456789"), 0xAE8B_1486_0A79_9888);
        assert_eq!(crc32c_plain(b"123456789"), 0xE306_9283);
    }

    proptest! {
        #[test]
        fn crc_of_pieces_is_that_of_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 0..4),
        ) {
            let whole = pieces.concat();
            let (mut a, mut b, mut c) = (Crc32c::new(), Crc32::new(), Crc64::new());
            for piece in &pieces {
                a.update(piece);
                b = Crc32::after(b.finish());
                b.update(piece);
                c.update(piece);
            }
            prop_assert_eq!(a.finish(), crc32c(&whole));
            prop_assert_eq!(b.finish(), crc32(&whole));
            prop_assert_eq!(c.finish(), crc64(&whole));
        }
    }
}
