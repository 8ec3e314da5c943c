//! Streams that may be compressed: gzip, lz4 frames, zstd, bzip2, xz, LZMA and framed snappy, which
//! are distinguished by their first bytes, and brotli, which has no mark and is taken off only where
//! the caller says so.
//!
//! What comes in is untrusted. Memory is bounded (a zstd window and the dictionaries of xz and LZMA
//! by 128 MiB, a brotli window by 16 MiB, the blocks of the others by their formats), only one layer
//! is taken off, and output that is out of all proportion to the input is refused: no database
//! compresses a thousandfold, but a decompression bomb does.

use std::fmt;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;

mod brotli;
mod lzma;

use brotli::Brotli;
use lzma::Lzma;

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// The lz4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
    /// The bzip2 format.
    Bzip2,
    /// The .xz format.
    Xz,
    /// The older .lzma format, as its writers make it for a stream of unknown length.
    Lzma,
    /// The framing format of snappy.
    Snappy,
    /// RFC 7932. It has no mark: see [`decode_as`].
    Brotli,
}

impl Compression {
    /// The compression of a stream that begins like this.
    #[must_use]
    pub fn of(begin: &[u8]) -> Self {
        match begin {
            [0x1F, 0x8B, ..] => Self::Gzip,
            [0x04, 0x22, 0x4D, 0x18, ..] => Self::Lz4,
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Self::Zstd,
            // The mark of a block, or of the end of an empty stream.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => {
                Self::Bzip2
            }
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            // The usual properties, a dictionary of 64 KiB or a multiple, a length that is not known.
            [0x5D, 0, 0, _, _, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, ..] => Self::Lzma,
            [0xFF, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => Self::Snappy,
            _ => Self::None,
        }
    }

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "not compressed",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Snappy => "snappy",
            Self::Brotli => "brotli",
        }
    }
}

/// Bytes that are looked at to tell what a stream is: a member's header of an
/// archive.
pub const BEGIN_BYTES: usize = 512;

/// Read from the source at a time.
const INPUT_BYTES: usize = 256 << 10;
/// 2 to this power bounds the memory of a zstd window, as in the `zstd`
/// program's own default.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The same bound for dictionaries of xz and LZMA, with what their decoders need besides.
const LZMA_MEMORY_KIB_MAX: u32 = (128 << 10) + (1 << 10);
/// Up to here any ratio is taken: empty pages compress well.
const RATIO_FREE_BYTES: u64 = 4 << 30;
/// Output to input, past that.
const RATIO_MAX: u64 = 1000;

/// True for what begins an OpenPGP message: a packet of a session key, encrypted with a public key (RFC
/// 9580, 5.1, version 3) or a password (5.3, version 4), its length in one or two bytes; or the armour
/// around one.
pub fn is_open_pgp(begin: &[u8]) -> bool {
    matches!(
        begin,
        [0x84 | 0xC1, _, 3, ..]
            | [0x85, _, _, 3, ..]
            | [0xC1, 192..=223, _, 3, ..]
            | [0x8C | 0xC3, _, 4, ..]
    ) || begin.starts_with(b"-----BEGIN PGP")
}

/// A stream, decompressed.
pub struct Decoded {
    /// How it was compressed.
    pub compression: Compression,
    /// Its first bytes, decompressed: at most [`BEGIN_BYTES`], or what was asked of
    /// [`Decoded::look_ahead`].
    pub begin: Vec<u8>,
    /// All of its bytes, decompressed. A compressed stream that is cut off
    /// ends with [`io::ErrorKind::UnexpectedEof`].
    pub reader: Chain<Cursor<Vec<u8>>, Bounded>,
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").field("compression", &self.compression).finish_non_exhaustive()
    }
}

impl Decoded {
    /// The same, with its first `bytes` bytes seen: fewer where it ends, or cannot be read on.
    #[must_use]
    pub fn look_ahead(self, bytes: usize) -> Self {
        let (seen, mut rest) = self.reader.into_inner();
        let mut begin = seen.into_inner();
        let mut more = vec![0; bytes.saturating_sub(begin.len())];
        let (filled, broken) = fill_until_broken(&mut rest, &mut more);
        more.truncate(filled);
        begin.append(&mut more);
        if let Some(error) = broken {
            rest.source = Box::new(Broken(Some(error)));
        }
        Self {
            compression: self.compression,
            reader: Cursor::new(begin.clone()).chain(rest),
            begin,
        }
    }
}

/// What cannot be read on.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof)))
    }
}

/// Looks at the beginning of a stream and takes off its compression.
///
/// # Errors
/// The stream cannot be read, or what it begins with cannot be decompressed.
pub fn decode(mut source: Box<dyn Read + Send>) -> io::Result<Decoded> {
    let mut begin = vec![0_u8; BEGIN_BYTES];
    let count = fill(&mut source, &mut begin)?;
    begin.truncate(count);
    let compression = Compression::of(&begin);
    decode_as(Box::new(Cursor::new(begin).chain(source)), compression)
}

/// Takes off a compression that is known beforehand: brotli's, which has no mark, where the program
/// that wrote the stream has said so by its name.
///
/// # Errors
/// The stream cannot be read, or what it begins with cannot be decompressed.
pub fn decode_as(source: Box<dyn Read + Send>, compression: Compression) -> io::Result<Decoded> {
    let input = Counted { source, count: Arc::default() };
    let input_bytes = Arc::clone(&input.count);
    let input = BufReader::with_capacity(INPUT_BYTES, input);
    let decoder: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(input),
        Compression::Gzip => Box::new(MultiGzDecoder::new(input)),
        Compression::Lz4 => Box::new(Lz4Frames::new(input)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(input)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(input, true, LZMA_MEMORY_KIB_MAX)),
        Compression::Lzma => Box::new(Lzma::new(input, LZMA_MEMORY_KIB_MAX)?),
        Compression::Snappy => Box::new(snap::read::FrameDecoder::new(input)),
        Compression::Brotli => Box::new(Brotli::new(input)),
    };
    let mut reader =
        Bounded { source: Box::new(Once(Some(decoder))), input_bytes, output_bytes: 0 };
    let mut begin = vec![0_u8; BEGIN_BYTES];
    let count = fill(&mut reader, &mut begin)?;
    begin.truncate(count);
    Ok(Decoded { compression, reader: Cursor::new(begin.clone()).chain(reader), begin })
}

/// The end of a stream that is its source's end, too.
fn nothing_follows(source: &mut impl Read) -> io::Result<usize> {
    match fill(source, &mut [0])? {
        0 => Ok(0),
        _ => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "something follows its compressed form"))
        }
    }
}

/// A decoder that is not asked again after an error: what it would do then is not defined, and must
/// not look like the end of a sound stream.
struct Once<R>(Option<R>);

impl<R: Read> Read for Once<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(decoder) = &mut self.0 else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it could not be decompressed"));
        };
        let read = decoder.read(bytes);
        if read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            self.0 = None;
        }
        read
    }
}

/// A decompressor's output, ended by an error where it is out of proportion.
pub struct Bounded {
    source: Box<dyn Read + Send>,
    input_bytes: Arc<AtomicU64>,
    output_bytes: u64,
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("output_bytes", &self.output_bytes).finish_non_exhaustive()
    }
}

impl Read for Bounded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(bytes)?;
        self.output_bytes = self.output_bytes.saturating_add(count as u64);
        let input_bytes = self.input_bytes.load(Ordering::Relaxed);
        if is_out_of_proportion(input_bytes, self.output_bytes) {
            let text = format!(
                "it unpacks to more than {RATIO_MAX} times its size and is refused as a decompression bomb"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(count)
    }
}

fn is_out_of_proportion(input_bytes: u64, output_bytes: u64) -> bool {
    output_bytes > RATIO_FREE_BYTES && output_bytes / RATIO_MAX > input_bytes
}

/// Counts what is taken from a source.
struct Counted<R> {
    source: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(bytes)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Frame after frame. The decoder takes the end of its input between two blocks
/// for the end of a frame, so that a stream that is cut off there would pass.
pub struct Lz4Frames<R: Read> {
    /// A new one for each frame: one that goes on keeps buffers of the size of
    /// the frame before.
    frame: Option<FrameDecoder<Lz4Input<R>>>,
}

impl<R: Read> fmt::Debug for Lz4Frames<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lz4Frames").finish_non_exhaustive()
    }
}

/// The input with a frame's magic number after its end. Where a frame was due,
/// that is none of its own and ends the stream; where a block was due, it is no
/// block's possible length.
struct Lz4Input<R> {
    source: R,
    /// How much of the magic number was given out.
    past_end: usize,
}

const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];

impl<R: Read> Lz4Frames<R> {
    /// Begins to decompress.
    pub fn new(source: R) -> Self {
        Self { frame: Some(FrameDecoder::new(Lz4Input { source, past_end: 0 })) }
    }
}

impl<R: Read> Read for Lz4Input<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.past_end == 0 {
            let count = self.source.read(bytes)?;
            if count > 0 || bytes.is_empty() {
                return Ok(count);
            }
        }
        let mut rest = LZ4_MAGIC.get(self.past_end..).unwrap_or_default();
        let count = rest.read(bytes)?;
        self.past_end = self.past_end.saturating_add(count);
        Ok(count)
    }
}

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(frame) = &mut self.frame else { return Ok(0) };
            let read = frame.read(bytes);
            let ended = frame.get_ref().past_end > 0;
            match read {
                Ok(0) if ended => return Ok(0),
                // A frame's end; another may follow.
                Ok(0) => {
                    self.frame =
                        self.frame.take().map(|frame| FrameDecoder::new(frame.into_inner()));
                }
                _ if ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                other => return other,
            }
        }
    }
}

/// Reads until `bytes` is full or the source ends; how much there was.
pub fn fill(source: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    match fill_until_broken(source, bytes) {
        (filled, None) => Ok(filled),
        (_, Some(error)) => Err(error),
    }
}

/// Reads until `bytes` is full, the source ends or it cannot be read on; how much there was, and why it
/// cannot be read on.
pub fn fill_until_broken(source: &mut impl Read, bytes: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(0);
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn snappy(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.into_inner().unwrap()
    }

    fn plain(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    type Encoder = fn(&[u8]) -> Vec<u8>;
    const FORMS: [(Compression, Encoder); 7] = [
        (Compression::None, plain),
        (Compression::Gzip, gzip),
        (Compression::Lz4, lz4),
        (Compression::Zstd, zstd),
        (Compression::Bzip2, bzip2),
        (Compression::Xz, xz),
        (Compression::Snappy, snappy),
    ];

    fn content() -> Vec<u8> {
        (0_u32..300_000).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    fn decoded(bytes: Vec<u8>) -> io::Result<(Compression, Vec<u8>)> {
        let mut decoded = decode(Box::new(Cursor::new(bytes)))?;
        let mut all = Vec::new();
        decoded.reader.read_to_end(&mut all)?;
        assert_eq!(decoded.begin, all[..all.len().min(BEGIN_BYTES)]);
        Ok((decoded.compression, all))
    }

    #[test]
    fn every_form_is_recognised_and_read() {
        for (compression, encode) in FORMS {
            for bytes in [content(), b"x".to_vec(), Vec::new()] {
                // Of nothing, framed snappy makes nothing.
                let is_nothing = encode(&bytes).is_empty();
                let compression = if is_nothing { Compression::None } else { compression };
                let expected = (compression, bytes.clone());
                assert!(decoded(encode(&bytes)).unwrap() == expected, "{compression:?}");
            }
        }
    }

    /// `cat a.gz b.gz` is a legal file, and so for the others.
    #[test]
    fn several_streams_in_a_row_are_one() {
        for (compression, encode) in FORMS {
            let both = [encode(&content()), encode(b"and more")].concat();
            let expected = [content(), b"and more".to_vec()].concat();
            assert!(decoded(both).unwrap() == (compression, expected), "{compression:?}");
        }
    }

    #[test]
    fn stream_that_is_cut_off_ends_with_unexpected_eof() {
        for (compression, encode) in &FORMS[1..] {
            let whole = encode(&content());
            for length in [whole.len() - 1, whole.len() - 5, whole.len() / 2, 12] {
                let kind = decoded(whole[..length].to_vec()).err().map(|error| error.kind());
                assert_eq!(kind, Some(io::ErrorKind::UnexpectedEof), "{compression:?} {length}");
            }
        }
    }

    /// What comes out of a damaged stream without sums of its own is the archive reader's and the
    /// page format's matter.
    #[test]
    fn damaged_stream_with_a_sum_is_refused() {
        for (compression, encode) in &FORMS[1..] {
            let whole = encode(&content());
            let mut refused = 0;
            for at in (0..whole.len()).step_by(whole.len() / 64) {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x10;
                match decoded(bytes) {
                    // One whose magic is gone is taken for plain bytes.
                    Ok((Compression::None, out)) => assert_eq!(out.len(), whole.len()),
                    // Times and names are in no sum.
                    Ok((Compression::Gzip, out)) => assert!(out == content(), "{at}"),
                    Ok(_) => {}
                    Err(_) => refused += 1,
                }
            }
            assert!(refused > 0, "{compression:?}");
        }
    }

    #[test]
    fn lzma_is_recognised_and_brotli_is_taken_off_where_it_is_named() {
        let mut lzma = vec![0x5D, 0, 0, 0x80, 0];
        lzma.extend([0xFF; 8]);
        assert_eq!(Compression::of(&lzma), Compression::Lzma);
        assert_eq!(decoded(lzma).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // A window of 2^16 and the end.
        let brotli = [0b110];
        assert_eq!(Compression::of(&brotli), Compression::None);
        let mut all = Vec::new();
        let mut decoded = decode_as(Box::new(Cursor::new(brotli)), Compression::Brotli).unwrap();
        decoded.reader.read_to_end(&mut all).unwrap();
        assert_eq!((decoded.compression, all), (Compression::Brotli, Vec::new()));
    }

    /// A decoder that failed must not be taken for one that came to its end.
    #[test]
    fn stream_that_failed_goes_on_failing() {
        for (compression, encode) in &FORMS[1..] {
            let mut bytes = encode(&content());
            bytes.truncate(bytes.len() - 1);
            // Some decompress all of this content at once, and come to nothing.
            let Ok(mut decoded) = decode(Box::new(Cursor::new(bytes))) else { continue };
            let mut all = Vec::new();
            decoded.reader.read_to_end(&mut all).unwrap_err();
            assert!(decoded.reader.read_to_end(&mut all).is_err(), "{compression:?}");
        }
    }

    /// A frame may ask for more memory than a machine has.
    #[test]
    fn zstd_window_is_bounded() {
        // Magic, a descriptor without single segment, and a window of 2^41.
        let bytes = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xF8, 0x01, 0x00, 0x00];
        assert!(decoded(bytes).is_err());
    }

    #[test]
    fn proportion_is_judged_only_past_the_first_gigabytes() {
        assert!(!is_out_of_proportion(1, RATIO_FREE_BYTES));
        assert!(is_out_of_proportion(1 << 20, RATIO_FREE_BYTES + 1));
        assert!(!is_out_of_proportion(8 << 20, RATIO_FREE_BYTES + 1));
    }
}
