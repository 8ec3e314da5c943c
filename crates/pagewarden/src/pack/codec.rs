//! Blocks, compressed and expanded.

use std::fmt;
use std::io;
use std::sync::Arc;

use zstd::zstd_safe::CParameter;

use crate::pack::crc;
use crate::pack::layout::BlockEntry;

/// What is compressed with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Blocks are stored as they are.
    Raw,
    /// LZ4: expands at the speed of memory, and shrinks little.
    Lz4,
    /// zstd of this level.
    Zstd(i32),
}

/// How a pack is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Bytes in a block: a power of two, 4 KiB to 1 MiB.
    pub block_bytes: u32,
    /// How blocks are compressed.
    pub method: Method,
    /// What blocks of a few pages have in common, for [`Method::Zstd`]; empty
    /// for none.
    pub dictionary: Vec<u8>,
}

/// How a block is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    /// Not at all: it is zeroes.
    Zero,
    Raw,
    Lz4,
    Zstd,
    /// zstd with the pack's dictionary.
    ZstdWithDictionary,
    /// Not here: it is the same as at its place in the file of its name in the
    /// base.
    Base,
}

impl Codec {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Zero => 0,
            Self::Raw => 1,
            Self::Lz4 => 2,
            Self::Zstd => 3,
            Self::ZstdWithDictionary => 4,
            Self::Base => 5,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        [Self::Zero, Self::Raw, Self::Lz4, Self::Zstd, Self::ZstdWithDictionary, Self::Base]
            .into_iter()
            .find(|codec| codec.code() == code)
    }
}

/// A block that shrinks by less than a twentieth is stored as it is: what it
/// would save does not pay for expanding it.
const LEAST_GAIN: usize = 20;

/// At level 3 zstd looks for matches of five bytes in blocks of 128 KiB, and in those of
/// 1 MiB, but of four in those between: in long blocks of digits any four bytes stand
/// somewhere, so that matches are many, save nothing, and cost time to expand.
const LONG_BLOCK_BYTES: u32 = 128 << 10;
const LEAST_MATCH: u32 = 5;

/// Compresses blocks, one thread's.
pub(super) struct Encoder {
    method: Method,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    has_dictionary: bool,
    buffer: Vec<u8>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Encoder {
    pub(super) fn new(settings: &Settings) -> io::Result<Self> {
        let zstd = match settings.method {
            Method::Zstd(level) => Some(zstd_of(level, settings)?),
            Method::Raw | Method::Lz4 => None,
        };
        Ok(Self {
            method: settings.method,
            has_dictionary: zstd.is_some() && !settings.dictionary.is_empty(),
            zstd,
            buffer: Vec::new(),
        })
    }

    /// Adds a block as it is stored to `out`.
    pub(super) fn encode(&mut self, block: &[u8], out: &mut Vec<u8>) -> io::Result<BlockEntry> {
        let entry = |codec, stored: usize, crc| {
            let stored_bytes = u32::try_from(stored).map_err(io::Error::other)?;
            Ok(BlockEntry { codec, stored_bytes, crc })
        };
        let Some(sum) = block_sum(block) else { return entry(Codec::Zero, 0, 0) };
        let most = block.len() - block.len() / LEAST_GAIN;
        // LZ4 does not begin without room for what does not shrink at all.
        let room = match self.method {
            Method::Lz4 => lz4_flex::block::get_maximum_output_size(block.len()),
            _ => most,
        };
        self.buffer.resize(room, 0);
        let stored = match (self.method, &mut self.zstd) {
            (Method::Lz4, _) => lz4_flex::block::compress_into(block, &mut self.buffer)
                .ok()
                .filter(|count| *count <= most),
            // Too little room is how it says that it does not shrink by enough.
            (_, Some(zstd)) => zstd.compress_to_buffer(block, &mut self.buffer).ok(),
            _ => None,
        };
        let Some(bytes) = stored.and_then(|count| self.buffer.get(..count)) else {
            out.extend(block);
            return entry(Codec::Raw, block.len(), sum);
        };
        out.extend(bytes);
        let codec = match self.method {
            Method::Lz4 => Codec::Lz4,
            _ if self.has_dictionary => Codec::ZstdWithDictionary,
            _ => Codec::Zstd,
        };
        entry(codec, bytes.len(), sum)
    }
}

/// A compressor of this level.
fn zstd_of(level: i32, settings: &Settings) -> io::Result<zstd::bulk::Compressor<'static>> {
    let mut zstd = if settings.dictionary.is_empty() {
        zstd::bulk::Compressor::new(level)?
    } else {
        zstd::bulk::Compressor::with_dictionary(level, &settings.dictionary)?
    };
    if level == zstd::DEFAULT_COMPRESSION_LEVEL && settings.block_bytes > LONG_BLOCK_BYTES {
        zstd.set_parameter(CParameter::MinMatch(LEAST_MATCH))?;
    }
    Ok(zstd)
}

/// Expands blocks, one thread's.
pub(super) struct Decoder {
    dictionary: Arc<[u8]>,
    plain: Option<zstd::bulk::Decompressor<'static>>,
    with_dictionary: Option<zstd::bulk::Decompressor<'static>>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    pub(super) fn new(dictionary: Arc<[u8]>) -> Self {
        Self { dictionary, plain: None, with_dictionary: None }
    }

    /// Expands a block into `out`, which it must fill. False if it is not what was
    /// packed.
    pub(super) fn decode(&mut self, entry: BlockEntry, stored: &[u8], out: &mut [u8]) -> bool {
        let count = match entry.codec {
            Codec::Zero => {
                out.fill(0);
                return stored.is_empty();
            }
            Codec::Raw if stored.len() == out.len() => {
                out.copy_from_slice(stored);
                Some(stored.len())
            }
            // A caller that has the base reads the block there, and does not call this.
            Codec::Raw | Codec::Base => None,
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, out).ok(),
            Codec::Zstd => {
                if self.plain.is_none() {
                    self.plain = zstd::bulk::Decompressor::new().ok();
                }
                self.plain.as_mut().and_then(|zstd| zstd.decompress_to_buffer(stored, out).ok())
            }
            Codec::ZstdWithDictionary => {
                if self.with_dictionary.is_none() {
                    let new = zstd::bulk::Decompressor::with_dictionary(&self.dictionary);
                    self.with_dictionary = new.ok();
                }
                let zstd = self.with_dictionary.as_mut();
                zstd.and_then(|zstd| zstd.decompress_to_buffer(stored, out).ok())
            }
        };
        count == Some(out.len()) && crc(out) == entry.crc
    }
}

/// True if there is nothing but zeroes.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    const STRIDE: usize = 64;
    let chunks = bytes.chunks_exact(STRIDE);
    let rest = chunks.remainder().iter().all(|byte| *byte == 0);
    // Without an end before a chunk's, so that it is done by wide registers.
    rest && chunks.into_iter().all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The sum of a block; `None` for one of zeroes, which is not stored.
pub(crate) fn block_sum(block: &[u8]) -> Option<u64> {
    (!is_zero(block)).then(|| crc(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digits of which no two stretches are alike but by chance.
    fn digits(count: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut digit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b"0123456789abcdef"[(state >> 60) as usize]
        };
        (0..count).map(|_| digit()).collect()
    }

    #[test]
    fn long_blocks_of_digits_take_no_more_than_short_ones() {
        let bytes = digits(256 << 10);
        let stored = |block_bytes: u32| {
            let method = Method::Zstd(3);
            let settings = Settings { block_bytes, method, dictionary: Vec::new() };
            let (mut encoder, mut out) = (Encoder::new(&settings).unwrap(), Vec::new());
            for block in bytes.chunks(block_bytes as usize) {
                let begin = out.len();
                let entry = encoder.encode(block, &mut out).unwrap();
                let mut expanded = vec![0; block.len()];
                let mut decoder = Decoder::new(Arc::default());
                assert!(decoder.decode(entry, &out[begin..], &mut expanded));
                assert_eq!(expanded, block);
            }
            out.len()
        };
        let (short, long) = (stored(64 << 10), stored(256 << 10));
        assert!(long <= short + short / 50, "{long} in one block, {short} in four");
    }

    fn encoded(method: Method, block: &[u8]) -> (BlockEntry, Vec<u8>) {
        let settings = Settings { block_bytes: 65_536, method, dictionary: Vec::new() };
        let mut out = Vec::new();
        (Encoder::new(&settings).unwrap().encode(block, &mut out).unwrap(), out)
    }

    /// Both codecs must be seen to shrink what can be: a block that is stored as it is
    /// comes back just as well.
    #[test]
    fn block_of_words_shrinks_by_each_codec() {
        let block: Vec<u8> =
            (0..4096_u32).flat_map(|row| format!("row {row:07} ").into_bytes()).collect();
        for (method, codec) in [(Method::Lz4, Codec::Lz4), (Method::Zstd(3), Codec::Zstd)] {
            let (entry, out) = encoded(method, &block);
            assert_eq!(entry.codec, codec);
            assert!(out.len() < block.len() * 3 / 4, "{codec:?}: {} of {}", out.len(), block.len());
            assert_eq!(entry.stored_bytes as usize, out.len());
        }
    }

    #[test]
    fn noise_is_stored_as_it_is() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u8::try_from(state >> 56).unwrap()
        })
        .take(65_536)
        .collect();
        for method in [Method::Lz4, Method::Zstd(3)] {
            let (entry, out) = encoded(method, &noise);
            assert_eq!((entry.codec, out.as_slice()), (Codec::Raw, noise.as_slice()));
        }
    }
}
