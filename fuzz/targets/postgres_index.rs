//! Pages of indexes, visibility maps and heaps: arbitrary bytes, also behind a
//! header and in front of a special space that fit.
//!
//! The first byte of the input chooses how the page is read and what is put right.

use pagewarden::formats::postgres::files::witness::{Method, heap, visibility_map};

const PAGE_BYTES: usize = 8192;
const METHODS: [(Method, u16); 6] = [
    (Method::Btree, 8176),
    (Method::Hash, 8176),
    (Method::Gist, 8176),
    (Method::Gin, 8184),
    (Method::SpGist, 8184),
    (Method::Brin, 8184),
];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut page = bytes.to_vec();
    let (method, special) = METHODS[usize::from(mode & 7) % METHODS.len()];
    if mode & 8 == 0 && page.len() > 32 {
        // The end of the input is the end of the page.
        let rest = page.split_off(page.len() - 16);
        page.resize(PAGE_BYTES - 16, 0);
        page.extend(rest);
        page[16..18].copy_from_slice(&special.to_le_bytes());
    }
    let mut count = 0_usize;
    method.visit(&page, |_| count += 1);
    assert!(count <= page.len() * page.len());
    let mut last = None;
    visibility_map::visit(&page, u32::from(mode >> 4), |block, _| {
        assert!(last.is_none_or(|last| last < block));
        last = Some(block);
    });
    let pointers = heap::line_pointers(&page).count();
    assert!(pointers <= usize::from(heap::count(&page)));
    for number in 0..=heap::count(&page) {
        assert_eq!(heap::line_pointer(&page, number).is_some(), number > 0);
    }
}
