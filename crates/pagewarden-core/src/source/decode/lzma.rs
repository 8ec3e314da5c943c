//! A stream in the older .lzma format, read to its end mark.
//!
//! ```text
//! offset  size  field
//!      0     1  properties: 0x5D for the usual ones
//!      1     4  bytes of the dictionary
//!      5     8  length of the content; all bits set if it is not known
//! ```
//!
//! Source: `doc/lzma-file-format.txt` of XZ Utils. There is no sum: a flipped bit mostly becomes other
//! content.

use std::io::{self, BufRead, Read};

use lzma_rust2::LzmaReader;

/// See the module.
pub(super) struct Lzma<R> {
    stream: Option<LzmaReader<R>>,
}

impl<R: BufRead> Lzma<R> {
    /// A stream that begins where `source` stands, if its decoder fits into so much memory.
    ///
    /// # Errors
    /// The header is cut off or none, or the dictionary is larger than that.
    pub(super) fn new(source: R, memory_kib_max: u32) -> io::Result<Self> {
        let mut stream = LzmaReader::new_mem_limit(source, memory_kib_max, None)?;
        stream.set_relaxed_end_condition(false);
        Ok(Self { stream: Some(stream) })
    }
}

impl<R: BufRead> Read for Lzma<R> {
    /// # Errors
    /// The source fails or ends too early, or holds what is no LZMA, also after the stream.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let count = stream.read(bytes)?;
        if count > 0 {
            return Ok(count);
        }
        let Some((mut source, ahead)) = self.stream.take().map(LzmaReader::into_parts) else {
            return Ok(0);
        };
        super::nothing_follows(&mut (ahead.as_slice()).chain(&mut source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4,096 times "page" and a newline, by XZ Utils: `lzma -9`.
    const WHOLE: &[u8] = &[
        0x5D, 0x00, 0x00, 0x80, 0x00, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x38,
        0x18, 0x49, 0x2A, 0xC1, 0xBA, 0x8E, 0xE0, 0xB0, 0x84, 0x44, 0xB0, 0x05, 0xAC, 0x77, 0x4E,
        0xB0, 0xC9, 0xAD, 0x85, 0x8D, 0x2A, 0x70, 0x15, 0xEE, 0x79, 0x7D, 0xBA, 0x4B, 0xB9, 0xB0,
        0xAC, 0x88, 0xBD, 0x08, 0xF2, 0xC0, 0x87, 0x4C, 0x92, 0x66, 0xB6, 0x20, 0xDA, 0x6B, 0x63,
        0x6A, 0x48, 0x97, 0x24, 0xE9, 0x50, 0x2B, 0x5E, 0x3B, 0x15, 0x18, 0xAF, 0x39, 0x10, 0x1F,
        0xD5, 0x18, 0xFF, 0xFD, 0xDF, 0xB0, 0x00,
    ];

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Lzma::new(bytes, 1 << 17)?.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn stream_is_read_and_its_cut_is_an_early_end() {
        assert_eq!(read(WHOLE).unwrap(), b"page\n".repeat(4096));
        for length in 0..WHOLE.len() {
            let kind = read(&WHOLE[..length]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof, "{length}");
        }
    }

    #[test]
    fn what_follows_the_stream_is_no_lzma() {
        let longer = [WHOLE, b"more"].concat();
        assert_eq!(read(&longer).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn dictionary_is_bounded() {
        let mut bytes = WHOLE.to_vec();
        bytes[1..5].fill(0xFF);
        assert!(read(&bytes).is_err());
    }
}
