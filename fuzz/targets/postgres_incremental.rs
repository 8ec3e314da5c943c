//! Headers of files of changed blocks: arbitrary bytes behind the magic number.
//!
//! The first byte of the input chooses the page size.

use pagewarden::formats::postgres::files::incremental::Header;
use pagewarden::formats::postgres::page::PAGE_SIZES;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let page_size = PAGE_SIZES[usize::from(*mode) % PAGE_SIZES.len()];
    let mut file =
        if mode & 0x80 == 0 { 0xD3AE_1F0D_u32.to_le_bytes().to_vec() } else { Vec::new() };
    file.extend(bytes);
    if mode & 0x40 == 0 {
        file.resize(file.len().next_multiple_of(page_size), 0);
    }
    let segment_pages = (1 << 30) / page_size as u64;
    let mut source = file.as_slice();
    if let Ok(header) = Header::read(&mut source, page_size, segment_pages) {
        assert_eq!(header.header_bytes, (file.len() - source.len()) as u64);
        assert!(header.numbers.is_sorted());
        assert!(header.numbers.iter().all(|number| u64::from(*number) < segment_pages));
        assert!(header.file_bytes(page_size) >= header.header_bytes);
    }
}
