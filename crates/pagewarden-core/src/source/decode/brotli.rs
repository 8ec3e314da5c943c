//! A brotli stream (RFC 7932), read to its end. The crate's own reader answers an error but once,
//! passes over what follows the stream, and takes windows up to 1 GiB; this one does not.

use std::io::{self, BufRead, Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// See the module.
pub(super) struct Brotli<R> {
    source: R,
    state: Box<State>,
    ended: bool,
    output_bytes: usize,
}

impl<R: BufRead> Brotli<R> {
    /// A stream that begins where `source` stands.
    pub(super) fn new(source: R) -> Self {
        let alloc = StandardAlloc::default;
        // Strict: the window is 16 MiB at most, as the RFC has it.
        let state = Box::new(State::new_strict(alloc(), alloc(), alloc()));
        Self { source, state, ended: false, output_bytes: 0 }
    }
}

impl<R: BufRead> Read for Brotli<R> {
    /// # Errors
    /// The source fails or ends too early, or holds what is no brotli, also after the stream.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        while !self.ended {
            let input = self.source.fill_buf()?;
            let is_end = input.is_empty();
            let (mut input_left, mut input_offset) = (input.len(), 0);
            let (mut output_left, mut output_offset) = (bytes.len(), 0);
            let result = BrotliDecompressStream(
                &mut input_left,
                &mut input_offset,
                input,
                &mut output_left,
                &mut output_offset,
                bytes,
                &mut self.output_bytes,
                &mut self.state,
            );
            self.source.consume(input_offset);
            match result {
                BrotliResult::ResultFailure => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged brotli data"));
                }
                BrotliResult::ResultSuccess => self.ended = true,
                BrotliResult::NeedsMoreInput if is_end && output_offset == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            }
            if output_offset > 0 {
                return Ok(output_offset);
            }
        }
        super::nothing_follows(&mut self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits from the lowest on, as the RFC writes them.
    #[derive(Default)]
    struct Bits(Vec<bool>);

    impl Bits {
        fn push(&mut self, value: usize, count: u32) {
            self.0.extend((0..count).map(|bit| value >> bit & 1 == 1));
        }

        fn align(&mut self) {
            self.0.resize(self.0.len().next_multiple_of(8), false);
        }

        fn bytes(&self) -> Vec<u8> {
            self.0
                .chunks(8)
                .map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit)))
                .collect()
        }
    }

    /// A stream of blocks that are stored as they are, RFC 7932 section 9.
    fn stored(blocks: &[&[u8]]) -> Vec<u8> {
        let mut bits = Bits::default();
        // A window of 2^16.
        bits.push(0, 1);
        for block in blocks {
            // Not the last; four digits of the length; not compressed.
            bits.push(0, 1);
            bits.push(0, 2);
            bits.push(block.len() - 1, 16);
            bits.push(1, 1);
            bits.align();
            for byte in *block {
                bits.push(usize::from(*byte), 8);
            }
        }
        // The last, and empty.
        bits.push(0b11, 2);
        bits.align();
        bits.bytes()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Brotli::new(bytes).read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn stream_is_read_and_its_cut_is_an_early_end() {
        let whole = stored(&[b"first", &[7; 40_000]]);
        assert_eq!(read(&whole).unwrap(), [b"first".to_vec(), vec![7; 40_000]].concat());
        for length in [0, 1, 5, 1000, whole.len() - 1] {
            let kind = read(&whole[..length]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof, "{length}");
        }
    }

    #[test]
    fn what_follows_the_stream_is_no_brotli() {
        let longer = [stored(&[b"first"]), b"more".to_vec()].concat();
        assert_eq!(read(&longer).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    /// The extension for windows past 16 MiB would take a gigabyte.
    #[test]
    fn large_window_is_refused() {
        let bytes = [0x11, 0x1E, 0x03, 0x00];
        assert_eq!(read(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
