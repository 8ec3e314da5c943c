//! The freelist, asked for one page.
//!
//! | trunk page | bytes | |
//! |---|---|---|
//! | 0 | 4 | number of the next trunk page, 0 in the last one |
//! | 4 | 4 | number of leaves |
//! | 8 | 4 each | page numbers of the leaves |
//!
//! Facts from SQLite's public documentation (`fileformat2.html`).

use pagewarden::formats::sqlite::page::header::DatabaseHeader;

/// True if `wanted` is a leaf of the freelist. `read` fills a page, or says that it is not sound.
pub fn contain(
    page_size: usize,
    wanted: u32,
    mut read: impl FnMut(u32, &mut [u8]) -> bool,
) -> bool {
    let mut page = vec![0; page_size];
    if wanted < 2 || !read(1, &mut page) {
        return false;
    }
    let Some(header) = DatabaseHeader::parse(&page) else { return false };
    let mut trunk = header.first_trunk;
    // Each trunk page counts, so a chain in a circle ends.
    for _ in 0..header.free_page_count {
        if trunk < 2 || trunk == wanted || !read(trunk, &mut page) {
            return false;
        }
        let (entries, _) = page.as_chunks::<4>();
        let Some(([next, count], leaves)) = entries.split_first_chunk::<2>() else { return false };
        let count = usize::try_from(u32::from_be_bytes(*count)).unwrap_or(usize::MAX);
        if leaves.iter().take(count).any(|leaf| u32::from_be_bytes(*leaf) == wanted) {
            return true;
        }
        trunk = u32::from_be_bytes(*next);
    }
    false
}
