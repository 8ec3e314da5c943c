//! CRC-32C (Castagnoli), the one sum that several engines use: InnoDB and the markers of SQLite
//! pages for pages, PostgreSQL for its control file, maps and log.

#![deny(clippy::arithmetic_side_effects)]
#![allow(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

#[cfg(target_arch = "x86_64")]
mod fused;

/// CRC-32C, by the fastest kernel of the processor.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if fused::is_fastest() {
        // SAFETY: the processor has what the function asks for.
        if let Some(sum) = unsafe { fused::crc32c(bytes) } {
            return sum;
        }
    }
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of each of `COUNT` equal parts of a page, the last one without the last `LEFT_OUT` bytes
/// of the page; `None` where there is no faster way than one after the other.
pub fn crc32c_of_parts<const COUNT: usize, const LEFT_OUT: usize>(
    page: &[u8],
) -> Option<[u32; COUNT]> {
    #[cfg(target_arch = "x86_64")]
    if fused::available() {
        // SAFETY: the processor has what the function asks for.
        return unsafe { fused::crc32c_of_parts::<COUNT, LEFT_OUT>(page) };
    }
    let _ = page;
    None
}

/// CRC-32C of bytes that come in pieces.
#[derive(Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Of nothing yet.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Goes on with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u32 {
        u32::try_from(self.0.finalize() & 0xFFFF_FFFF).unwrap_or(0)
    }
}

/// The CRC-32C polynomial, low bit first.
pub const POLYNOMIAL: u32 = 0x82F6_3B78;

/// CRC-32C bit by bit: the reference of [`crc32c`].
#[must_use]
pub fn crc32c_plain(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(u32::MAX, |state, byte| (0..8).fold(state ^ u32::from(*byte), |state, _| step(state)))
}

/// One zero bit more.
pub const fn step(state: u32) -> u32 {
    (state >> 1) ^ if state & 1 == 1 { POLYNOMIAL } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::noise;

    #[test]
    fn fast_crc_equals_the_plain_one_at_every_length_and_alignment() {
        let bytes = noise(70_000, 1);
        for begin in 0..17 {
            for length in (0..600).chain([4096, 16_338, 16_380, 65_490]) {
                let part = &bytes[begin..begin + length];
                assert_eq!(crc32c(part), crc32c_plain(part), "{length} bytes from {begin}");
            }
        }
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    proptest! {
        #[test]
        fn crc_of_pieces_is_that_of_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 0..4),
        ) {
            let mut crc = Crc32c::new();
            pieces.iter().for_each(|piece| crc.update(piece));
            prop_assert_eq!(crc.finish(), crc32c(&pieces.concat()));
        }
    }
}
