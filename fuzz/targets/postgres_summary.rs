//! WAL summaries: arbitrary bytes, also behind the magic number and in front of a
//! sum that fits.

use pagewarden::crc::crc32c;
use pagewarden::formats::postgres::files::witness::summary::{self, Change, SummaryName};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    if let Some(name) = std::str::from_utf8(bytes).ok().and_then(SummaryName::parse) {
        assert!(name.begin < name.end);
    }
    let mut file = Vec::new();
    if mode & 1 == 0 {
        file.extend(0x652B_137B_u32.to_le_bytes());
    }
    file.extend(bytes);
    if mode & 2 == 0 {
        file.extend([0; 24]);
        let crc = crc32c(&file).to_le_bytes();
        file.extend(crc);
    }
    let (mut limits, mut blocks) = (0_usize, 0_usize);
    let result = summary::read(file.as_slice(), |_, _, change| match change {
        Change::Limit(_) => limits += 1,
        Change::Block(_) => blocks += 1,
    });
    if let Err(error) = result {
        assert!(!error.to_string().is_empty());
    }
    assert!(limits * 24 <= file.len() && blocks <= file.len() * 8);
}
