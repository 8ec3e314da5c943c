//! Compressed streams of every form: whatever they hold, what comes out is bounded, and a stream that
//! failed goes on failing.
//!
//! The first byte of the input says which form the rest is taken for.

use std::io::{Cursor, Read as _};

use pagewarden::source::decode::{Compression, decode, decode_as};

const FORMS: [Compression; 9] = [
    Compression::None,
    Compression::Gzip,
    Compression::Lz4,
    Compression::Zstd,
    Compression::Bzip2,
    Compression::Xz,
    Compression::Lzma,
    Compression::Snappy,
    Compression::Brotli,
];
/// Enough to come out of an input of some kilobytes.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let decoded = match FORMS.get(usize::from(*mode)) {
        Some(form) => decode_as(source, *form),
        None => decode(source),
    };
    let Ok(mut decoded) = decoded else { return };
    let mut out = Vec::new();
    let read = decoded.reader.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut out);
    assert!(out.starts_with(&decoded.begin));
    if read.is_err() {
        let more = decoded.reader.by_ref().take(1).read_to_end(&mut out);
        assert!(more.is_err(), "{:?} failed and went on", decoded.compression);
    }
}
