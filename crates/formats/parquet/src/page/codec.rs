//! Whether what a page stores expands to as many bytes as its header says.
//!
//! `expanded` keeps nothing of what comes out, `expand` gives it. What a hostile header may cost is bounded: no more comes out than
//! it says, and memory for all of that is taken only where the stored bytes can bring forth as much, or
//! up to `AT_ONCE_BYTES`.

#![deny(clippy::arithmetic_side_effects)]

use std::cell::RefCell;
use std::io::{self, Read};

/// How a column chunk is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    Uncompressed,
    /// Snappy's raw format.
    Snappy,
    /// Gzip, and zlib, which some writers put in its place.
    Gzip,
    /// LZO, for which there is no decompressor here.
    Lzo,
    /// Brotli.
    Brotli,
    /// LZ4 in one of three framings: that of Hadoop, LZ4's own, none.
    Lz4,
    /// Zstandard.
    Zstd,
    /// An LZ4 block.
    Lz4Raw,
}

impl Codec {
    /// By its number in a footer.
    #[must_use]
    pub fn of(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Uncompressed,
            1 => Self::Snappy,
            2 => Self::Gzip,
            3 => Self::Lzo,
            4 => Self::Brotli,
            5 => Self::Lz4,
            6 => Self::Zstd,
            7 => Self::Lz4Raw,
            _ => return None,
        })
    }

    /// As Parquet calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncompressed => "uncompressed",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Lzo => "LZO",
            Self::Brotli => "brotli",
            Self::Lz4 => "LZ4",
            Self::Zstd => "zstd",
            Self::Lz4Raw => "LZ4_RAW",
        }
    }
}

/// What came of expanding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expanded {
    /// To as many bytes as were expected.
    AsExpected,
    /// To more or fewer, or not at all: why.
    No(String),
    /// There is no decompressor for it.
    Unknown,
}

/// Buffers of up to this size are kept by a thread, and taken on the word of a header.
const AT_ONCE_BYTES: usize = 16 << 20;
/// A byte of LZ4 brings forth 255 at most, one of Snappy fewer.
const RATIO_MAX: usize = 255;
const ZSTD_WINDOW_LOG: std::ops::RangeInclusive<u32> = 27..=31;

const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];

thread_local! {
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Expands `stored`, and compares how much comes out with `expected`.
#[must_use]
pub fn expanded(codec: Codec, stored: &[u8], expected: usize) -> Expanded {
    if stored.is_empty() && expected == 0 {
        return Expanded::AsExpected;
    }
    let length = match codec {
        Codec::Lzo => return Expanded::Unknown,
        Codec::Uncompressed => Ok(stored.len()),
        Codec::Snappy => snappy(stored, expected),
        Codec::Gzip => gzip(stored, expected),
        Codec::Zstd => zstd(stored, expected),
        Codec::Brotli => drained(brotli_decompressor::Decompressor::new(stored, 4096), expected),
        Codec::Lz4Raw => lz4_block(stored, expected),
        Codec::Lz4 => lz4_of_any_framing(stored, expected),
    };
    match length {
        Ok(length) if length == expected => Expanded::AsExpected,
        Ok(length) if length > expected => {
            Expanded::No(format!("it expands to more than the {expected} bytes of its header"))
        }
        Ok(length) => {
            Expanded::No(format!("it expands to {length} bytes, its header says {expected}"))
        }
        Err(error) => Expanded::No(format!("{} cannot expand it: {error}", codec.name())),
    }
}

/// Expands `stored`, and gives what comes out.
///
/// # Errors
/// Why it does not expand to `expected` bytes.
pub fn expand(codec: Codec, stored: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    // Where this many come out, they are in the room that a thread keeps, or were counted piece by
    // piece: what is hostile was refused before memory was taken.
    if expected > AT_ONCE_BYTES {
        match expanded(codec, stored, expected) {
            Expanded::AsExpected => {}
            Expanded::No(why) => return Err(why),
            Expanded::Unknown => return Err(no_decompressor(codec)),
        }
    }
    let mut plain = Vec::new();
    let outcome = match codec {
        Codec::Lzo => return Err(no_decompressor(codec)),
        Codec::Uncompressed => {
            plain.extend_from_slice(stored);
            Ok(())
        }
        _ if stored.is_empty() && expected == 0 => Ok(()),
        Codec::Snappy => snappy_into(stored, expected, &mut plain),
        Codec::Gzip if stored.starts_with(&GZIP_MAGIC) => {
            all_of(flate2::read::MultiGzDecoder::new(stored), expected, &mut plain)
        }
        Codec::Gzip => all_of(flate2::read::ZlibDecoder::new(stored), expected, &mut plain),
        Codec::Zstd => zstd_into(stored, expected, &mut plain),
        Codec::Brotli => {
            let decoder = brotli_decompressor::Decompressor::new(stored, 4096);
            all_of(decoder, expected, &mut plain)
        }
        Codec::Lz4Raw => lz4_block_into(stored, expected, &mut plain),
        Codec::Lz4 => lz4_of_any_framing_into(stored, expected, &mut plain),
    };
    match outcome {
        Ok(()) if plain.len() == expected => Ok(plain),
        Ok(()) => Err(format!("it expands to {} bytes, its header says {expected}", plain.len())),
        Err(error) => Err(format!("{} cannot expand it: {error}", codec.name())),
    }
}

fn no_decompressor(codec: Codec) -> String {
    format!("there is no decompressor for {} here", codec.name())
}

fn snappy_into(stored: &[u8], expected: usize, plain: &mut Vec<u8>) -> io::Result<()> {
    if snap::raw::decompress_len(stored).map_err(io::Error::other)? != expected {
        return Err(io::Error::other("another length is stored in it"));
    }
    plain.resize(expected, 0);
    snap::raw::Decoder::new().decompress(stored, plain).map_err(io::Error::other)?;
    Ok(())
}

fn zstd_into(stored: &[u8], expected: usize, plain: &mut Vec<u8>) -> io::Result<()> {
    if expected <= AT_ONCE_BYTES {
        *plain = zstd::bulk::decompress(stored, expected)?;
        return Ok(());
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored)?;
    let log = usize::BITS.saturating_sub(expected.leading_zeros());
    decoder.window_log_max(log.clamp(*ZSTD_WINDOW_LOG.start(), *ZSTD_WINDOW_LOG.end()))?;
    all_of(decoder, expected, plain)
}

fn lz4_block_into(stored: &[u8], expected: usize, plain: &mut Vec<u8>) -> io::Result<()> {
    plain.resize(expected, 0);
    let length = lz4_flex::block::decompress_into(stored, plain).map_err(io::Error::other)?;
    plain.truncate(length);
    Ok(())
}

fn lz4_of_any_framing_into(stored: &[u8], expected: usize, plain: &mut Vec<u8>) -> io::Result<()> {
    if lz4_of_hadoop(stored) == Some(expected) {
        let mut rest = stored;
        let mut cut = || -> Option<()> {
            while !rest.is_empty() {
                let mut left = word(&mut rest)?;
                while left > 0 {
                    let length = word(&mut rest)?;
                    let (part, more) = rest.split_at_checked(length)?;
                    let mut piece = vec![0; left];
                    let count = lz4_flex::block::decompress_into(part, &mut piece).ok()?;
                    plain.extend_from_slice(piece.get(..count)?);
                    left = left.checked_sub(count).filter(|_| count > 0)?;
                    rest = more;
                }
            }
            Some(())
        };
        return cut().ok_or_else(|| io::Error::other("a part of it cannot be expanded"));
    }
    let framed = all_of(lz4_flex::frame::FrameDecoder::new(stored), expected, plain);
    if framed.is_ok() && plain.len() == expected {
        return Ok(());
    }
    plain.clear();
    lz4_block_into(stored, expected, plain)
}

/// All that comes out, up to one byte more than expected.
fn all_of(reader: impl Read, expected: usize, plain: &mut Vec<u8>) -> io::Result<()> {
    plain.reserve_exact(expected.saturating_add(1));
    let limit = u64::try_from(expected).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(limit).read_to_end(plain).map(|_| ())
}

/// False if what is stored says itself that it expands to another length. True where that cannot be
/// seen without expanding it.
#[must_use]
pub fn may_expand_to(codec: Codec, stored: &[u8], expected: usize) -> bool {
    match codec {
        Codec::Uncompressed => stored.len() == expected,
        Codec::Snappy => snap::raw::decompress_len(stored).is_ok_and(|length| length == expected),
        // Its last four bytes, where it is one member.
        Codec::Gzip => {
            let length = stored.last_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            u32::try_from(expected).ok() == length
        }
        Codec::Zstd => match zstd::zstd_safe::get_frame_content_size(stored) {
            Ok(Some(length)) => usize::try_from(length).is_ok_and(|length| length == expected),
            Ok(None) => true,
            Err(_) => false,
        },
        Codec::Brotli | Codec::Lz4 | Codec::Lz4Raw | Codec::Lzo => true,
    }
}

/// Lends room for `length` bytes.
fn with_room<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    if length > AT_ONCE_BYTES {
        return work(&mut vec![0; length]);
    }
    ROOM.with_borrow_mut(|room| {
        if room.len() < length {
            room.resize(length, 0);
        }
        work(room.get_mut(..length).unwrap_or_default())
    })
}

fn can_bring_forth(stored: &[u8], expected: usize) -> io::Result<()> {
    if expected > AT_ONCE_BYTES && expected / RATIO_MAX > stored.len() {
        return Err(io::Error::other("these bytes are too few to become as many"));
    }
    Ok(())
}

fn snappy(stored: &[u8], expected: usize) -> io::Result<usize> {
    let length = snap::raw::decompress_len(stored).map_err(io::Error::other)?;
    if length != expected {
        return Ok(length);
    }
    can_bring_forth(stored, expected)?;
    with_room(expected, |room| snap::raw::Decoder::new().decompress(stored, room))
        .map_err(io::Error::other)
}

fn gzip(stored: &[u8], expected: usize) -> io::Result<usize> {
    if stored.starts_with(&GZIP_MAGIC) {
        return drained(flate2::read::MultiGzDecoder::new(stored), expected);
    }
    drained(flate2::read::ZlibDecoder::new(stored), expected)
}

fn zstd(stored: &[u8], expected: usize) -> io::Result<usize> {
    if expected <= AT_ONCE_BYTES {
        return with_room(expected, |room| zstd::bulk::decompress_to_buffer(stored, room));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored)?;
    let log = usize::BITS.saturating_sub(expected.leading_zeros());
    decoder.window_log_max(log.clamp(*ZSTD_WINDOW_LOG.start(), *ZSTD_WINDOW_LOG.end()))?;
    drained(decoder, expected)
}

fn lz4_block(stored: &[u8], expected: usize) -> io::Result<usize> {
    can_bring_forth(stored, expected)?;
    with_room(expected, |room| lz4_flex::block::decompress_into(stored, room))
        .map_err(io::Error::other)
}

/// Writers never agreed on what "LZ4" means, which is why `LZ4_RAW` took its place.
fn lz4_of_any_framing(stored: &[u8], expected: usize) -> io::Result<usize> {
    if lz4_of_hadoop(stored) == Some(expected) {
        return Ok(expected);
    }
    if let Ok(length) = drained(lz4_flex::frame::FrameDecoder::new(stored), expected)
        && length == expected
    {
        return Ok(length);
    }
    lz4_block(stored, expected)
}

/// Blocks, each behind its length when it is expanded; of which there may be several parts, each
/// behind its stored length.
fn lz4_of_hadoop(stored: &[u8]) -> Option<usize> {
    let mut rest = stored;
    let mut total = 0_usize;
    while !rest.is_empty() {
        let mut left = word(&mut rest)?;
        while left > 0 {
            let stored = word(&mut rest)?;
            let (part, more) = rest.split_at_checked(stored)?;
            can_bring_forth(part, left).ok()?;
            let length =
                with_room(left, |room| lz4_flex::block::decompress_into(part, room)).ok()?;
            left = left.checked_sub(length).filter(|_| length > 0)?;
            total = total.checked_add(length)?;
            rest = more;
        }
    }
    Some(total)
}

fn word(rest: &mut &[u8]) -> Option<usize> {
    let (word, more) = rest.split_first_chunk()?;
    *rest = more;
    usize::try_from(u32::from_be_bytes(*word)).ok()
}

/// How many bytes come out, up to one more than expected.
fn drained(mut reader: impl Read, expected: usize) -> io::Result<usize> {
    let mut piece = [0; 16 << 10];
    let mut total = 0_usize;
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(total),
            Ok(count) => total = total.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if total > expected {
            return Ok(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn stored(codec: Codec, plain: &[u8]) -> Vec<u8> {
        let block = || lz4_flex::block::compress(plain);
        match codec {
            Codec::Snappy => snap::raw::Encoder::new().compress_vec(plain).unwrap(),
            Codec::Zstd => zstd::bulk::compress(plain, 1).unwrap(),
            Codec::Gzip => {
                let mut out =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                out.write_all(plain).unwrap();
                out.finish().unwrap()
            }
            Codec::Lz4Raw => block(),
            Codec::Lz4 => {
                let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes().to_vec();
                [length(plain.len()), length(block().len()), block()].concat()
            }
            _ => plain.to_vec(),
        }
    }

    #[test]
    fn lengths_must_be_those_of_the_header() {
        let plain: Vec<u8> = (0..9000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
        let codecs = [
            Codec::Snappy,
            Codec::Zstd,
            Codec::Gzip,
            Codec::Lz4Raw,
            Codec::Lz4,
            Codec::Uncompressed,
        ];
        for codec in codecs {
            let page = stored(codec, &plain);
            assert_eq!(expanded(codec, &page, 9000), Expanded::AsExpected, "{codec:?}");
            assert!(may_expand_to(codec, &page, 9000), "{codec:?}");
            assert_eq!(expand(codec, &page, 9000).as_ref(), Ok(&plain), "{codec:?}");
            for wrong in [0, 8999, 9001, 1 << 20, usize::MAX >> 1] {
                assert!(matches!(expanded(codec, &page, wrong), Expanded::No(_)), "{codec:?}");
                assert!(expand(codec, &page, wrong).is_err(), "{codec:?}");
            }
            let cut = &page[..page.len() - 1];
            assert!(matches!(expanded(codec, cut, 9000), Expanded::No(_)), "{codec:?}");
            assert!(expand(codec, cut, 9000).is_err(), "{codec:?}");
        }
        let framed = {
            let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
            out.write_all(&plain).unwrap();
            out.finish().unwrap()
        };
        for page in [framed, lz4_flex::block::compress(&plain)] {
            assert_eq!(expanded(Codec::Lz4, &page, 9000), Expanded::AsExpected);
            assert_eq!(expand(Codec::Lz4, &page, 9000).as_ref(), Ok(&plain));
        }
        assert_eq!(expanded(Codec::Lzo, b"lzo", 9), Expanded::Unknown);
    }
}
