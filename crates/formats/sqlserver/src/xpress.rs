//! LZ77 with Huffman codes, as [MS-XCA] defines it, one block at a time.
//!
//! A block expands to at most 64 KiB. It begins with the lengths of 512
//! canonical codes, then come symbols and, between them, whole bytes:
//!
//! ```text
//! offset  size  field
//!      0   256  code lengths, 0 (no code) to 15, two a byte: of symbol 2i in
//!               the low four bits, of symbol 2i + 1 in the high ones
//!    256        16-bit little-endian words of codes, first bit highest
//!
//! symbol          meaning
//! 0 to 255        that byte
//! 256 + 16b + n   a match of n + 3 bytes, b + 1 bits long in its distance: b
//!                 bits follow the symbol, the distance is 2^b plus them
//!         n = 15  the length goes on in a byte, 255 in that byte in a word of
//!                 two, 0 in that word in one of four; it stands where the next
//!                 word of codes would be read
//! 256             at the end of the input also: the end
//! ```
//!
//! Source: [MS-XCA] revision 9.0, 2.1.4 and 2.2.4 "LZ77+Huffman". What it leaves
//! open was measured on the chunks of real SQL Server backups: each ends with
//! symbol 256, and the last word read for it is the last of the input. A reader
//! who knows the size need not take symbol 256 for the end before.

#![deny(clippy::arithmetic_side_effects)]

use std::fmt;

/// The most that a block expands to.
pub const OUTPUT_BYTES_MAX: usize = 1 << 16;
/// The code lengths.
pub const TABLE_BYTES: usize = 256;

const SYMBOLS: usize = 512;
const END: u16 = 256;
const CODE_BITS_MAX: u32 = 15;
/// Codes up to here are looked up at once, longer ones by their length: a table
/// for all of them would not stay in the nearest cache.
const QUICK_BITS: u32 = 11;
const QUICK_ENTRIES: usize = 1 << QUICK_BITS;
/// A whole code space, in units of the longest codes.
const CODE_SPACE: u32 = 1 << CODE_BITS_MAX;
const LENGTH_MIN: usize = 3;
/// Copied at once where there is room.
const STRIDE: usize = 16;

/// Why a block cannot be expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XpressError {
    /// More output asked for than a block can have.
    #[error("more than 64 KiB are wanted of one block")]
    OutputSize,
    /// The lengths are of no code, or the input ends within them.
    #[error("its code lengths are of no possible code")]
    CodeLengths,
    /// The input ended before the output was full.
    #[error("it ends too early")]
    Short,
    /// The output is full, and the input does not end there as it should: it goes
    /// on, or lacks the end mark. What stands in the output is what it says.
    #[error("it does not end where it should")]
    Long,
    /// A match reaches back to before the beginning.
    #[error("a match begins before the beginning")]
    Distance,
    /// A match's length is none that is written so, or passes the end.
    #[error("a match has an impossible length")]
    Length,
}

/// Whether bytes can be the beginning of a block: quick to tell, and few that are
/// none can.
#[must_use]
pub fn begins_with_code_lengths(bytes: &[u8]) -> bool {
    let Some(lengths) = bytes.first_chunk::<TABLE_BYTES>() else { return false };
    let mut space = 0_u32;
    for byte in lengths {
        for bits in [byte & 15, byte >> 4] {
            if bits > 0 {
                space = space.wrapping_add(CODE_SPACE >> bits);
            }
        }
        if space > CODE_SPACE {
            return false;
        }
    }
    space == CODE_SPACE
}

/// Expands blocks. It holds the tables of the one before and can be used again.
pub struct Decoder {
    /// By the next [`QUICK_BITS`] bits: the symbol and, in the low four bits,
    /// its code's length; zero for longer codes.
    quick: Box<[u16; QUICK_ENTRIES]>,
    /// Symbols in the order of their codes.
    sorted: [u16; SYMBOLS],
    /// For each length past [`QUICK_BITS`], those that have a code.
    long: [LongCodes; (CODE_BITS_MAX - QUICK_BITS) as usize],
}

/// Codes of one length.
#[derive(Debug, Clone, Copy, Default)]
struct LongCodes {
    bits: u32,
    /// The first code and the end of them, followed by zeroes to 15 bits.
    begin: u32,
    end: u32,
    /// Where their symbols begin.
    sorted_index: u32,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// One without any tables yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            quick: Box::new([0; QUICK_ENTRIES]),
            sorted: [0; SYMBOLS],
            long: [LongCodes::default(); (CODE_BITS_MAX - QUICK_BITS) as usize],
        }
    }

    /// Expands one block, which must fill `output` and end there.
    ///
    /// # Errors
    /// It does not; what stands in `output` then is of no use, but for
    /// [`XpressError::Long`].
    pub fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), XpressError> {
        let bytes = output.len();
        self.decode_to_end(input, output, |size| size == bytes)?;
        Ok(())
    }

    /// Expands one block whose size is not known; returns it. An end mark looks
    /// like a match of three bytes, and words are read ahead, so that the last
    /// few matches of a block may be taken for its end: `may_end` says which
    /// sizes can be.
    ///
    /// # Errors
    /// It has no such end within `output`.
    pub fn decode_to_end(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        may_end: impl Fn(usize) -> bool,
    ) -> Result<usize, XpressError> {
        if output.len() > OUTPUT_BYTES_MAX {
            return Err(XpressError::OutputSize);
        }
        let (lengths, _) =
            input.split_first_chunk::<TABLE_BYTES>().ok_or(XpressError::CodeLengths)?;
        self.build(lengths)?;
        self.expand(&mut Bits::new(input)?, output, may_end)
    }

    /// The tables for codes of these lengths, which must fill the code space.
    fn build(&mut self, lengths: &[u8; TABLE_BYTES]) -> Result<(), XpressError> {
        let mut counts = [0_u32; CODE_BITS_MAX as usize + 1];
        for byte in lengths {
            for bits in [byte & 15, byte >> 4] {
                if let Some(count) = counts.get_mut(usize::from(bits)) {
                    *count = count.wrapping_add(1);
                }
            }
        }
        // Where the symbols and the codes of each length begin.
        let mut indices = [0_u32; CODE_BITS_MAX as usize + 1];
        let (mut index, mut code) = (0_u32, 0_u32);
        let mut long = self.long.iter_mut();
        for ((bits, count), place) in (0_u32..).zip(counts).zip(&mut indices).skip(1) {
            // At most 512 symbols of at most 2^14: far from any overflow.
            let end = code.wrapping_add(count << CODE_BITS_MAX.saturating_sub(bits));
            *place = index;
            if bits > QUICK_BITS
                && let Some(codes) = long.next()
            {
                *codes = LongCodes { bits, begin: code, end, sorted_index: index };
            }
            (index, code) = (index.wrapping_add(count), end);
        }
        if code != CODE_SPACE {
            return Err(XpressError::CodeLengths);
        }
        for (pair, byte) in (0_u16..).step_by(2).zip(lengths) {
            for (symbol, bits) in [(pair, byte & 15), (pair | 1, byte >> 4)] {
                let place = indices.get_mut(usize::from(bits)).filter(|_| bits > 0);
                let Some(place) = place else { continue };
                if let Some(entry) = self.sorted.get_mut(*place as usize) {
                    *entry = symbol;
                }
                *place = place.wrapping_add(1);
            }
        }
        let mut symbols = self.sorted.iter();
        let mut rest = self.quick.as_mut_slice();
        for (bits, count) in (0_u16..).zip(counts).skip(1).take(QUICK_BITS as usize) {
            let each = 1_usize << QUICK_BITS.saturating_sub(u32::from(bits));
            for symbol in symbols.by_ref().take(count as usize) {
                let (entries, others) =
                    rest.split_at_mut_checked(each).ok_or(XpressError::CodeLengths)?;
                entries.fill(symbol << 4 | bits);
                rest = others;
            }
        }
        rest.fill(0);
        Ok(())
    }

    /// Returns the place of the first end mark that may be one.
    fn expand(
        &self,
        bits: &mut Bits<'_>,
        output: &mut [u8],
        may_end: impl Fn(usize) -> bool,
    ) -> Result<usize, XpressError> {
        let mut at = 0_usize;
        loop {
            let symbol = self.symbol(bits);
            if let (Some(place), Ok(byte)) = (output.get_mut(at), u8::try_from(symbol)) {
                *place = byte;
                at = at.wrapping_add(1);
                bits.refill().ok_or(XpressError::Short)?;
                continue;
            }
            bits.refill().ok_or(XpressError::Short)?;
            // The words are read ahead: none may be left.
            if symbol == END && bits.rest().is_empty() && may_end(at) {
                return Ok(at);
            }
            if at == output.len() {
                return Err(XpressError::Long);
            }
            let mut length = usize::from(symbol & 15);
            if length == 15 {
                length = bits.length().ok_or(XpressError::Short)??;
            }
            length = length.saturating_add(LENGTH_MIN);
            let distance_bits = u32::from(symbol >> 4 & 15);
            let distance = bits.distance(distance_bits) as usize;
            bits.refill().ok_or(XpressError::Short)?;
            at = copy(output, at, distance, length)?;
        }
    }

    /// The next symbol, its bits taken.
    #[inline]
    fn symbol(&self, bits: &mut Bits<'_>) -> u16 {
        let quick = bits.register >> (u32::BITS - QUICK_BITS);
        let entry = self.quick.get(quick as usize).copied().unwrap_or_default();
        if entry != 0 {
            bits.take(u32::from(entry & 15));
            return entry >> 4;
        }
        let code = bits.register >> (u32::BITS - CODE_BITS_MAX);
        for codes in &self.long {
            if code < codes.end {
                let unused = CODE_BITS_MAX.saturating_sub(codes.bits);
                let rank = code.wrapping_sub(codes.begin) >> unused;
                let index = codes.sorted_index.wrapping_add(rank);
                bits.take(codes.bits);
                return self.sorted.get(index as usize).copied().unwrap_or_default();
            }
        }
        // The lengths fill the code space: no code is past the last.
        0
    }
}

/// Repeats `length` bytes from `distance` back; returns the place after.
#[inline]
fn copy(
    output: &mut [u8],
    at: usize,
    distance: usize,
    length: usize,
) -> Result<usize, XpressError> {
    let from = at.checked_sub(distance).ok_or(XpressError::Distance)?;
    let end = at.checked_add(length).filter(|end| *end <= output.len());
    let end = end.ok_or(XpressError::Length)?;
    // What is written past the end of the match is overwritten by what follows
    // it, if there is room for that.
    if distance >= STRIDE && end.saturating_add(STRIDE) <= output.len() {
        let (mut from, mut at) = (from, at);
        while at < end {
            let bytes = output.get(from..).and_then(<[u8]>::first_chunk::<STRIDE>).copied();
            let place = output.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<STRIDE>);
            let (Some(bytes), Some(place)) = (bytes, place) else {
                return Err(XpressError::Length);
            };
            *place = bytes;
            (from, at) = (from.wrapping_add(STRIDE), at.wrapping_add(STRIDE));
        }
    } else {
        // A match may run into itself: each round doubles what there is.
        let mut at = at;
        while at < end {
            let count = at.wrapping_sub(from).min(end.wrapping_sub(at));
            output.copy_within(from..from.wrapping_add(count), at);
            at = at.wrapping_add(count);
        }
    }
    Ok(end)
}

/// The words of codes, with the bytes between them. Which word a byte stands
/// before depends on when words are read: whenever fewer than 16 bits are left.
struct Bits<'a> {
    input: &'a [u8],
    /// Where the next word, or byte, stands.
    at: usize,
    /// The next bits, from the highest down.
    register: u32,
    /// How many there are, less 16: below zero a word is due.
    spare: i32,
}

impl<'a> Bits<'a> {
    fn new(input: &'a [u8]) -> Result<Self, XpressError> {
        let mut bits = Self { input, at: TABLE_BYTES, register: 0, spare: 0 };
        let words = (bits.bytes::<2>(), bits.bytes::<2>());
        let (Some(high), Some(low)) = words else { return Err(XpressError::Short) };
        bits.register =
            u32::from(u16::from_le_bytes(high)) << 16 | u32::from(u16::from_le_bytes(low));
        bits.spare = 16;
        Ok(bits)
    }

    #[inline]
    fn bytes<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let bytes = self.input.get(self.at..)?.first_chunk::<COUNT>()?;
        self.at = self.at.wrapping_add(COUNT);
        Some(*bytes)
    }

    fn rest(&self) -> &'a [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// At most 15 bits, of which there are at least 16.
    #[inline]
    fn take(&mut self, count: u32) {
        self.register <<= count;
        self.spare = self.spare.wrapping_sub_unsigned(count);
    }

    #[inline]
    fn refill(&mut self) -> Option<()> {
        if self.spare < 0 {
            let word = u16::from_le_bytes(self.bytes::<2>()?);
            self.register |= u32::from(word) << self.spare.unsigned_abs();
            self.spare = self.spare.wrapping_add(16);
        }
        Some(())
    }

    /// A match's distance, of which all but the highest bit are written.
    #[inline]
    fn distance(&mut self, count: u32) -> u32 {
        // Two steps, since a shift by all bits is none.
        let low = self.register >> 1 >> 31_u32.wrapping_sub(count);
        self.take(count);
        1 << count | low
    }

    /// A match's length, less [`LENGTH_MIN`], past what a symbol can say.
    fn length(&mut self) -> Option<Result<usize, XpressError>> {
        let [byte] = self.bytes::<1>()?;
        if byte != u8::MAX {
            return Some(Ok(usize::from(byte).saturating_add(15)));
        }
        let mut length = u32::from(u16::from_le_bytes(self.bytes::<2>()?));
        if length == 0 {
            length = u32::from_le_bytes(self.bytes::<4>()?);
        }
        // Shorter ones have another form.
        let valid = usize::try_from(length).ok().filter(|length| *length >= 15);
        Some(valid.ok_or(XpressError::Length))
    }
}

#[cfg(test)]
pub(crate) mod tests;
