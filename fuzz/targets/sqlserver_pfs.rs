//! System pages of SQL Server of arbitrary bytes: page free space, file header and
//! boot page. The first byte of the input says which they are made to look like.

use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, stamp_checksum, stamp_torn_bits};
use pagewarden::formats::sqlserver::page::header::Lsn;
use pagewarden::formats::sqlserver::page::system::{
    BOOT_PAGE, BootPage, FileHeader, PFS_PAGES, is_allocated, pfs_bytes, pfs_page_of,
};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [mode, file, slot_low, slot_high, bytes @ ..] = input else { return };
    let mut page = [0; PAGE_BYTES];
    let (number, kind) = match mode % 4 {
        0 => (0, 15),
        1 => (BOOT_PAGE, 13),
        2 => (1, 11),
        _ => (u64::from(*slot_low) * PFS_PAGES, 11),
    };
    let length = bytes.len().min(PAGE_BYTES - 96);
    page[96..96 + length].copy_from_slice(&bytes[..length]);
    page[PAGE_BYTES - 2..].copy_from_slice(&[*slot_low, *slot_high]);
    page[..2].copy_from_slice(&[1, kind]);
    page[32..36].copy_from_slice(&u32::try_from(number).expect("it is small").to_le_bytes());
    page[36] = if mode % 4 == 1 { 1 } else { *file };
    if mode & 4 != 0 {
        page[96..100].copy_from_slice(&[0, 0, 0x9C, 0x1F]);
    }
    match mode >> 6 {
        0 => {
            page[5] = 2;
            stamp_checksum(&mut page);
        }
        1 => {
            page[5] = 1;
            stamp_torn_bits(&mut page, 1);
        }
        _ => {}
    }
    let is_name = |name: &Option<String>| {
        name.as_ref().is_none_or(|name| !name.is_empty() && !name.chars().any(char::is_control))
    };
    if let Some(boot) = BootPage::parse(&page) {
        assert!(is_name(&boot.database) && !boot.engine().is_empty());
        assert!(boot.checkpoint >= Lsn::default());
    }
    if let Some(header) = FileHeader::parse(&page) {
        assert!(is_name(&header.name) && header.file == u16::from(*file));
    }
    if let Some(bytes) = pfs_bytes(&page, u16::from(page[36]), number) {
        assert_eq!(bytes.len() as u64, PFS_PAGES);
        assert!(bytes.iter().filter(|byte| is_allocated(**byte)).count() <= bytes.len());
        assert_eq!(pfs_page_of(number), number.max(1));
    }
}
