//! What the flags of a tablespace say of its pages.
//!
//! | | old layout | `full_crc32` |
//! |---|---|---|
//! | mark | bit 4 is 0 | bit 4 is 1 |
//! | page size | bits 6-9: 0 for 16K, else 512 << n | bits 0-3: 512 << n |
//! | `ROW_FORMAT=COMPRESSED` | bits 1-4: physical page 512 << n | never |
//! | page_compressed | bit 16 (MariaDB) | bits 5-7: the algorithm |
//! | encrypted | bit 13 (MySQL) | - |
//! | others | 0 post-antelope, 5 atomic blobs, 10 data directory, 11 shared, 12 temporary, 14 SDI | 8 and up: none on disk |
//!
//! Bit 4 is the highest of the physical page size in the old layout, of which the largest is 5
//! (16K), so that it is never set there.
//!
//! MariaDB 10.1.0 to 10.1.20 wrote a third layout: bit 6 page_compressed, 7-10 its level, 11-12
//! atomic writes, 13-16 page size, 17 data directory. It is recognised by trying page 0 under it.
//!
//! Sources: MariaDB `fsp0types.h`, `fsp0fsp.h`; MySQL `fsp0types.h`.

/// How the pages of a file are laid out and summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// MySQL, and MariaDB before 10.4: a checksum at both ends.
    Old,
    /// `ROW_FORMAT=COMPRESSED`: a checksum at the beginning, no trailer.
    Zip,
    /// MariaDB from 10.4 on: one CRC-32C at the end.
    FullCrc32,
}

impl Form {
    /// The name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Old => "crc32, innodb or none",
            Self::Zip => "ROW_FORMAT=COMPRESSED",
            Self::FullCrc32 => "full_crc32",
        }
    }
}

/// What is the same for all pages of a tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Where the fields are.
    pub form: Form,
    /// Bytes in a page of the file.
    pub page_size: usize,
    /// Bytes in a page of the server: larger than `page_size` in zip files.
    pub logical_page_size: usize,
    /// Pages may be page_compressed (MariaDB).
    pub may_be_page_compressed: bool,
    /// Pages may be encrypted so that they need a key (MySQL).
    pub may_be_encrypted: bool,
    /// Which servers write such flags, where that is known.
    pub writer: Option<Writer>,
    /// The tablespace is a temporary one, of which nothing outlives its server.
    pub is_temporary: bool,
}

/// Which servers write such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Writer {
    /// MariaDB.
    MariaDb,
    /// MySQL 8.0 or later.
    MySql8,
}

/// The page size of a server that was not told otherwise.
const DEFAULT_PAGE_SIZE: usize = 16_384;
/// 512 << 3 to 512 << 7: 4K to 64K.
const PAGE_SHIFTS: std::ops::RangeInclusive<u32> = 3..=7;
/// 512 << 1 to 512 << 5: 1K to 16K.
const ZIP_SHIFTS: std::ops::RangeInclusive<u32> = 1..=5;
const SIZE_UNIT: usize = 512;

const FULL_CRC32: u32 = 1 << 4;
const POST_ANTELOPE: u32 = 1;
const ATOMIC_BLOBS: u32 = 1 << 5;
const SHARED: u32 = 1 << 11;
const TEMPORARY: u32 = 1 << 12;
const ENCRYPTION: u32 = 1 << 13;
const SDI: u32 = 1 << 14;
const PAGE_COMPRESSED: u32 = 1 << 16;
/// Of the old layout: bits that no server sets on disk.
const OLD_NEVER: u32 = !0x1_7fff;
/// Of `full_crc32`: the same.
const FULL_CRC32_NEVER: u32 = !0xff;
const COMPRESSION_ALGORITHM_MAX: u32 = 6;

impl Layout {
    /// A layout of which no more is known than this; pages may be anything.
    #[must_use]
    pub fn guessed(form: Form, page_size: usize) -> Self {
        Self {
            form,
            page_size,
            logical_page_size: if form == Form::Zip { DEFAULT_PAGE_SIZE } else { page_size },
            may_be_page_compressed: true,
            may_be_encrypted: form != Form::FullCrc32,
            writer: (form == Form::FullCrc32).then_some(Writer::MariaDb),
            is_temporary: false,
        }
    }

    /// What the flags mean, if a server could have written them.
    #[must_use]
    pub fn of_flags(flags: u32) -> Option<Self> {
        if flags & FULL_CRC32 != 0 {
            return Self::of_full_crc32_flags(flags);
        }
        if flags & OLD_NEVER != 0 {
            return None;
        }
        let page_size = old_page_size(bits(flags, 6, 4))?;
        let (form, physical) = zip_or_not(flags, page_size)?;
        Some(Self {
            form,
            page_size: physical,
            logical_page_size: page_size,
            may_be_page_compressed: flags & PAGE_COMPRESSED != 0,
            may_be_encrypted: flags & ENCRYPTION != 0,
            writer: if flags & PAGE_COMPRESSED != 0 {
                Some(Writer::MariaDb)
            } else if flags & (SDI | SHARED) != 0 {
                Some(Writer::MySql8)
            } else {
                None
            },
            is_temporary: flags & TEMPORARY != 0,
        })
    }

    /// What the flags mean if MariaDB 10.1.0 to 10.1.20 wrote them.
    #[must_use]
    pub fn of_early_mariadb_flags(flags: u32) -> Option<Self> {
        // Level 0 to 9, and atomic writes 0 to 2.
        if flags >> 18 != 0 || flags & FULL_CRC32 != 0 {
            return None;
        }
        if bits(flags, 7, 4) > 9 || bits(flags, 11, 2) > 2 {
            return None;
        }
        let page_size = old_page_size(bits(flags, 13, 4))?;
        let (form, physical) = zip_or_not(flags, page_size)?;
        Some(Self {
            form,
            page_size: physical,
            logical_page_size: page_size,
            may_be_page_compressed: bits(flags, 6, 1) == 1,
            may_be_encrypted: false,
            writer: Some(Writer::MariaDb),
            is_temporary: false,
        })
    }

    fn of_full_crc32_flags(flags: u32) -> Option<Self> {
        let algorithm = bits(flags, 5, 3);
        if flags & FULL_CRC32_NEVER != 0 || algorithm > COMPRESSION_ALGORITHM_MAX {
            return None;
        }
        let shift = bits(flags, 0, 4);
        let page_size = PAGE_SHIFTS.contains(&shift).then(|| SIZE_UNIT << shift)?;
        Some(Self {
            form: Form::FullCrc32,
            page_size,
            logical_page_size: page_size,
            may_be_page_compressed: algorithm != 0,
            may_be_encrypted: false,
            writer: Some(Writer::MariaDb),
            is_temporary: false,
        })
    }

    /// Pages in an extent.
    #[must_use]
    pub fn extent_pages(&self) -> usize {
        const MEBIBYTE: usize = 1 << 20;
        const PAGES_MIN: usize = 64;
        MEBIBYTE.checked_div(self.logical_page_size).unwrap_or(0).max(PAGES_MIN)
    }
}

fn bits(flags: u32, from: u32, count: u32) -> u32 {
    (flags >> from) & 1_u32.checked_shl(count).map_or(u32::MAX, |end| end.saturating_sub(1))
}

fn old_page_size(shift: u32) -> Option<usize> {
    match shift {
        0 => Some(DEFAULT_PAGE_SIZE),
        // 16K is always written as 0.
        5 => None,
        shift => PAGE_SHIFTS.contains(&shift).then(|| SIZE_UNIT << shift),
    }
}

fn zip_or_not(flags: u32, page_size: usize) -> Option<(Form, usize)> {
    let shift = bits(flags, 1, 4);
    let is_dynamic = flags & ATOMIC_BLOBS != 0;
    if is_dynamic && flags & POST_ANTELOPE == 0 {
        return None;
    }
    if shift == 0 {
        return Some((Form::Old, page_size));
    }
    let physical = ZIP_SHIFTS.contains(&shift).then(|| SIZE_UNIT << shift)?;
    (is_dynamic && physical <= page_size && page_size <= DEFAULT_PAGE_SIZE)
        .then_some((Form::Zip, physical))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_real_files_are_understood() {
        for (flags, form, page_size, logical) in [
            (0x0, Form::Old, 16_384, 16_384),
            (0x21, Form::Old, 16_384, 16_384),
            (0x4021, Form::Old, 16_384, 16_384),
            (0x6021, Form::Old, 16_384, 16_384),
            (0x4800, Form::Old, 16_384, 16_384),
            (0xe1, Form::Old, 4096, 4096),
            (0x100e1, Form::Old, 4096, 4096),
            (0x4121, Form::Old, 8192, 8192),
            (0x41a1, Form::Old, 32_768, 32_768),
            (0x1c0, Form::Old, 65_536, 65_536),
            (0x49c0, Form::Old, 65_536, 65_536),
            (0x23, Form::Zip, 1024, 16_384),
            (0x27, Form::Zip, 4096, 16_384),
            (0x6029, Form::Zip, 8192, 16_384),
            (0x40e7, Form::Zip, 4096, 4096),
            (0x13, Form::FullCrc32, 4096, 4096),
            (0x15, Form::FullCrc32, 16_384, 16_384),
            (0xd5, Form::FullCrc32, 16_384, 16_384),
            (0x17, Form::FullCrc32, 65_536, 65_536),
        ] {
            let layout = Layout::of_flags(flags).unwrap_or_else(|| panic!("{flags:x}"));
            let found = (layout.form, layout.page_size, layout.logical_page_size);
            assert_eq!(found, (form, page_size, logical), "{flags:x}");
        }
        assert!(Layout::of_flags(0x6021).unwrap().may_be_encrypted);
        assert!(!Layout::of_flags(0x4021).unwrap().may_be_encrypted);
        assert!(Layout::of_flags(0x1_0021).unwrap().may_be_page_compressed);
        assert!(!Layout::of_flags(0x15).unwrap().may_be_page_compressed);
        assert!(Layout::of_flags(0x35).unwrap().may_be_page_compressed);
    }

    #[test]
    fn flags_that_no_server_writes_are_refused() {
        // The last is ordinary data where ibdata2 has no page 0.
        for flags in [0xffff_ffff, 0x11, 0x12, 0x18, 0xf5, 0x115, 0x40, 0x2, 0x20, 0x2f_0000] {
            assert_eq!(Layout::of_flags(flags), None, "{flags:x}");
        }
    }

    #[test]
    fn early_mariadb_flags_are_understood() {
        // ROW_FORMAT=DYNAMIC, page_compressed, level 6, 16K.
        let flags = 0x21 | 1 << 6 | 6 << 7;
        assert_eq!(Layout::of_flags(flags), None);
        let layout = Layout::of_early_mariadb_flags(flags).unwrap();
        assert_eq!((layout.form, layout.page_size), (Form::Old, 16_384));
        assert!(layout.may_be_page_compressed);
        let small = Layout::of_early_mariadb_flags(0x21 | 3 << 13).unwrap();
        assert_eq!(small.page_size, 4096);
    }

    #[test]
    fn extents_have_the_pages_that_servers_give_them() {
        let pages = |flags| Layout::of_flags(flags).unwrap().extent_pages();
        assert_eq!([0xe1, 0x121, 0x21, 0x1a1, 0x1e1].map(pages), [256, 128, 64, 64, 64]);
        // Counted in pages of the server.
        assert_eq!(pages(0x23), 64);
    }
}
