//! A file of arbitrary bytes as an InnoDB tablespace: its first page, its flags, its extent map.
//!
//! The first byte of the input says what is made of page 0.

use std::fs;
use std::num::NonZero;

use pagewarden::database::kind_named;
use pagewarden::formats::innodb::page::fields::{FSP_FLAGS, read_u32};
use pagewarden::formats::innodb::page::layout::Layout;
use pagewarden_fuzz::{check, empty_folder};

use crate::innodb_structure::make_right;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [make, bytes @ ..] = input else { return };
    let mut bytes = bytes.to_vec();
    if make & 1 != 0 && bytes.len() > 64 {
        let flags = [0x21_u32, 0x15, 0x29, 0xe1, 0x13, 0x23, 0x1_0021, 0x6021];
        let flags = flags[usize::from(make >> 5)];
        bytes[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&flags.to_be_bytes());
        let size = Layout::of_flags(flags).map_or(0, |layout| layout.page_size);
        bytes.resize(bytes.len().max(size), 0);
    }
    let flags = read_u32(&bytes, FSP_FLAGS);
    let layout = Layout::of_flags(flags).filter(|layout| bytes.len() >= layout.page_size);
    if let (Some(layout), true) = (layout, make & 2 != 0) {
        let page = &mut bytes[..layout.page_size];
        page[4..8].fill(0);
        make_right(page, layout.form);
    }
    let name = if make & 4 != 0 { "t.ibd" } else { "ibdata1" };
    let path = empty_folder().join(if make & 8 != 0 { "any" } else { name });
    fs::write(&path, &bytes).expect("the folder is ours");
    check(&path, None, NonZero::<usize>::MIN);
    if let Some(report) = check(&path, kind_named("innodb"), NonZero::<usize>::MIN) {
        assert!(report.summary.bytes <= bytes.len() as u64);
        // A stream of backups is known by its first bytes, whatever it is called.
        let is_stream = bytes.starts_with(b"XBSTCK01");
        assert!(is_stream || report.unread.is_empty(), "{:?}", report.unread);
    }
}
