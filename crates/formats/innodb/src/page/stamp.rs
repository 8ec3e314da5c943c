//! Giving pages the sum `crc32` in the place of an older one.
//!
//! | page | what is done |
//! |---|---|
//! | has `innodb`, `none`, or `crc32` of the other byte order | both fields get `crc32`; of zip pages the one |
//! | has `crc32`, or is of a `full_crc32` file | right already |
//! | compressed by MariaDB or MySQL, with `crc32` inside | right already |
//! | compressed, with another sum inside | left: the sum is in the payload, which would have to be packed anew |
//! | encrypted by MariaDB, under `crc32` | right already |
//! | encrypted otherwise | left: the sum that counts is taken of the page in the clear |
//! | a copy in the doublewrite area | left: it is the copy of another page |
//!
//! A page is stamped only if it is sound, and only if it is certain that it is stored as a
//! server holds it: its fields at both ends belong to the page in the clear, so that a stamp on
//! an encrypted page would damage it.

#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::Ordering;

use super::compression::{Unpacked, unpack_mariadb, unpack_mysql};
use super::fields::{
    CHECKSUM, ENCRYPTED_SUM, KEY_VERSION, PAGE_TYPE, TYPE_COMPRESSED,
    TYPE_COMPRESSED_AND_ENCRYPTED, TYPE_ENCRYPTED, TYPE_ENCRYPTED_RTREE, TYPE_PAGE_COMPRESSED,
    TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16, read_u32, trailer_first,
};
use super::layout::Form;
use super::{Content, InnodbPages, Look, Seal, plain_zip_seal};
use crate::checksum::fold::{new_fold, new_folds};
use crate::checksum::{NO_CHECKSUM_MAGIC, SUM_BYTES, TRAILER_BYTES, crc32, zip_adler32, zip_crc32};
use pagewarden_core::verdict::{Kind, Severity};

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stamped {
    /// It has `crc32` now.
    Changed,
    /// It had before, or has what is better.
    Right,
    /// Never written.
    Blank,
    /// It stays as it is.
    Left(Why),
    /// So does this one.
    Damaged {
        /// What is wrong.
        kind: Kind,
        /// In words.
        detail: String,
    },
}

/// Why a sound page stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A copy in the doublewrite area.
    Copy,
    /// Its older sum is inside what was compressed.
    Compressed,
    /// Its sum is of what was encrypted.
    Encrypted,
}

impl InnodbPages {
    /// Stamps whole pages, of which the first has this number. `each` gets what became of
    /// every one, by where it begins. `is_encrypted` is true of tablespaces with keys.
    pub(crate) fn stamp_pages(
        &self,
        first: u64,
        bytes: &mut [u8],
        is_encrypted: bool,
        mut each: impl FnMut(usize, Stamped),
    ) {
        let page_size = self.layout.page_size.max(1);
        let mut folds = Vec::new();
        if self.layout.form == Form::Old && self.folds.load(Ordering::Relaxed) {
            new_folds(bytes, page_size, &mut folds);
        }
        let mut folds = folds.into_iter();
        let mut at = 0_usize;
        for (page, number) in bytes.chunks_exact_mut(page_size).zip(first..) {
            each(at, self.stamp(number, page, folds.next(), is_encrypted));
            at = at.saturating_add(page_size);
        }
    }

    fn stamp(
        &self,
        number: u64,
        page: &mut [u8],
        fold: Option<u32>,
        is_encrypted: bool,
    ) -> Stamped {
        match self.look(number, page, fold) {
            Look::Blank => Stamped::Blank,
            Look::Sound(..) | Look::Faulty(_) if self.is_copy(number) => Stamped::Left(Why::Copy),
            Look::Faulty(fault) if fault.at_most < Severity::Damage => {
                Stamped::Left(Why::Encrypted)
            }
            Look::Faulty(fault) => {
                let detail = fault.detail.filter(|detail| !detail.is_empty());
                let detail = detail.unwrap_or_else(|| "no sum fits".to_owned());
                Stamped::Damaged { kind: fault.kind, detail }
            }
            Look::Sound(..) => match self.layout.form {
                Form::FullCrc32 => Stamped::Right,
                Form::Zip => self.stamp_zip(page, is_encrypted),
                Form::Old => self.stamp_old(page, fold, is_encrypted),
            },
        }
    }

    /// A sound page of the old layout.
    fn stamp_old(&self, page: &mut [u8], fold: Option<u32>, is_encrypted: bool) -> Stamped {
        let crc = crc32(page);
        let fields = (read_u32(page, CHECKSUM), trailer_first(page));
        if fields == (crc, crc) {
            return Stamped::Right;
        }
        let inner = match read_u16(page, PAGE_TYPE) {
            TYPE_PAGE_COMPRESSED_ENCRYPTED if self.layout.may_be_page_compressed => {
                return Stamped::Left(Why::Encrypted);
            }
            TYPE_ENCRYPTED | TYPE_COMPRESSED_AND_ENCRYPTED | TYPE_ENCRYPTED_RTREE
                if self.layout.may_be_encrypted =>
            {
                return Stamped::Left(Why::Encrypted);
            }
            TYPE_PAGE_COMPRESSED => unpack_mariadb(page),
            TYPE_COMPRESSED => unpack_mysql(page),
            // What is no compressed page is what it seems to be.
            _ => Unpacked::Broken(""),
        };
        match inner {
            Unpacked::Page(inner) => {
                let crc = crc32(&inner);
                if (read_u32(&inner, CHECKSUM), trailer_first(&inner)) == (crc, crc) {
                    return Stamped::Right;
                }
                if matches!(self.plain_seal(&inner, None), Seal::Fits(_) | Seal::None(_)) {
                    return Stamped::Left(Why::Compressed);
                }
            }
            Unpacked::Unsupported => return Stamped::Left(Why::Compressed),
            Unpacked::Broken(_) => {}
        }
        let fold = fold.unwrap_or_else(|| new_fold(page));
        if let Some(stays) = under_key(page, [crc, fold], is_encrypted) {
            return stays;
        }
        // Sound, in the clear, and with another sum.
        debug_assert!(matches!(
            self.plain_seal(page, Some(fold)),
            Seal::Fits(Content::Clear) | Seal::None(_)
        ));
        put(page, CHECKSUM, crc);
        put(page, page.len().saturating_sub(TRAILER_BYTES), crc);
        Stamped::Changed
    }

    /// A sound page of `ROW_FORMAT=COMPRESSED`.
    fn stamp_zip(&self, page: &mut [u8], is_encrypted: bool) -> Stamped {
        let crc = zip_crc32(page);
        if read_u32(page, CHECKSUM) == crc {
            return Stamped::Right;
        }
        let page_type = read_u16(page, PAGE_TYPE);
        if matches!(page_type, TYPE_ENCRYPTED | TYPE_ENCRYPTED_RTREE)
            && self.layout.may_be_encrypted
        {
            return Stamped::Left(Why::Encrypted);
        }
        if let Some(stays) = under_key(page, [crc, zip_adler32(page)], is_encrypted) {
            return stays;
        }
        debug_assert!(matches!(plain_zip_seal(page), Seal::Fits(_) | Seal::None(_)));
        put(page, CHECKSUM, crc);
        Stamped::Changed
    }
}

/// What becomes of a page that MariaDB encrypted in the old layout; `None` for any other.
/// `sums` are those of the page as it is stored, `crc32` first.
///
/// Other pages may have something in the key's field (page 0 of `ibdata1` an LSN, those of
/// R-trees a number): where there is no key in the tablespace, and no sum behind that field, they
/// are as they seem.
fn under_key(page: &[u8], sums: [u32; 2], is_encrypted: bool) -> Option<Stamped> {
    if read_u32(page, KEY_VERSION) == 0 {
        return None;
    }
    let stored = read_u32(page, ENCRYPTED_SUM);
    let [crc, _] = sums;
    if stored == crc {
        return Some(Stamped::Right);
    }
    let is_old = sums.contains(&stored) || stored == NO_CHECKSUM_MAGIC;
    (is_encrypted || is_old).then_some(Stamped::Left(Why::Encrypted))
}

fn put(page: &mut [u8], offset: usize, sum: u32) {
    let field = page.get_mut(offset..).and_then(<[u8]>::first_chunk_mut::<SUM_BYTES>);
    if let Some(field) = field {
        *field = sum.to_be_bytes();
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::checksum::crc32_other_order;
    use crate::checksum::fold::old_fold;
    use crate::page::layout::Layout;
    use crate::page::specimens;
    use pagewarden_core::verdict::PageNo;

    /// What a format says of one page.
    fn stamped(pages: &InnodbPages, number: u64, page: &mut [u8], is_encrypted: bool) -> Stamped {
        let mut found = Vec::new();
        pages.stamp_pages(number, page, is_encrypted, |at, stamped| found.push((at, stamped)));
        let [(0, stamped)] = found.as_slice() else { panic!("{found:?}") };
        stamped.clone()
    }

    /// The specimens of the format: every layout, every sum.
    #[test]
    fn every_kind_of_page_becomes_what_the_table_says() {
        for (name, expected) in [
            ("innodb page, crc32", Stamped::Right),
            ("innodb page, innodb", Stamped::Changed),
            ("innodb page, none", Stamped::Changed),
            ("innodb page, full_crc32", Stamped::Right),
            ("innodb page, full_crc32, page_compressed", Stamped::Right),
            ("innodb page, encrypted by MariaDB", Stamped::Right),
            ("innodb page, page_compressed", Stamped::Right),
            ("innodb page, compressed by MySQL", Stamped::Right),
            ("innodb zip page, crc32", Stamped::Right),
            ("innodb zip page, innodb", Stamped::Changed),
        ] {
            let specimens = specimens::specimens();
            let specimen = specimens.into_iter().find(|one| one.name == name).unwrap();
            let form = match name {
                name if name.contains("zip") => Form::Zip,
                name if name.contains("full") => Form::FullCrc32,
                _ => Form::Old,
            };
            let pages = InnodbPages::new(Layout::guessed(form, specimen.good.len()));
            let mut page = specimen.good.clone();
            assert_eq!(stamped(&pages, specimen.page.0, &mut page, false), expected, "{name}");
            if expected == Stamped::Right {
                assert!(page == specimen.good, "{name}");
                continue;
            }
            // Nothing but the fields of the sum, and the sum is that of the engine.
            let stamp = specimen_stamp(form);
            let mut by_engine = specimen.good.clone();
            stamp(&mut by_engine, specimen.page);
            assert!(page == by_engine, "{name}");
            assert_eq!(stamped(&pages, specimen.page.0, &mut page, false), Stamped::Right);
        }
    }

    fn specimen_stamp(form: Form) -> fn(&mut [u8], PageNo) {
        let name = if form == Form::Zip { "innodb zip page, crc32" } else { "innodb page, crc32" };
        let specimens = specimens::specimens();
        specimens.into_iter().find(|one| one.name == name).unwrap().stamp.unwrap()
    }

    fn page_with(first: impl Fn(&[u8]) -> u32, second: impl Fn(&[u8]) -> u32) -> Vec<u8> {
        let specimens = specimens::specimens();
        let mut page =
            specimens.into_iter().find(|one| one.name == "innodb page, crc32").unwrap().good;
        let sum = first(&page);
        put(&mut page, CHECKSUM, sum);
        let sum = second(&page);
        let at = page.len() - TRAILER_BYTES;
        put(&mut page, at, sum);
        page
    }

    #[test]
    fn older_sums_of_any_age_are_replaced_and_halves_are_damage() {
        let pages = InnodbPages::new(Layout::guessed(Form::Old, 4096));
        let lsn = |page: &[u8]| read_u32(page, 16);
        for mut page in [
            page_with(crc32_other_order, crc32_other_order),
            page_with(new_fold, old_fold),
            page_with(new_fold, lsn),
            page_with(|_| NO_CHECKSUM_MAGIC, |_| NO_CHECKSUM_MAGIC),
        ] {
            assert_eq!(stamped(&pages, 5, &mut page, false), Stamped::Changed);
            assert_eq!(stamped(&pages, 5, &mut page, false), Stamped::Right);
        }
        // What a torn write of a stamp would leave.
        for mut page in [
            page_with(new_fold, crc32),
            page_with(crc32, old_fold),
            page_with(|_| NO_CHECKSUM_MAGIC, crc32),
            page_with(crc32, |_| NO_CHECKSUM_MAGIC),
        ] {
            let before = page.clone();
            let found = stamped(&pages, 5, &mut page, false);
            assert!(matches!(found, Stamped::Damaged { .. }), "{found:?}");
            assert!(page == before);
        }
    }

    /// A stamp on an encrypted page would damage it.
    #[test]
    fn encrypted_pages_are_never_stamped() {
        let pages = InnodbPages::new(Layout::guessed(Form::Old, 4096));
        for sum in [new_fold, |_: &[u8]| NO_CHECKSUM_MAGIC] {
            // The fields of the page in the clear are those of `none`, or of anything.
            for field in [NO_CHECKSUM_MAGIC, 7] {
                let mut page = page_with(|_| field, |_| field);
                put(&mut page, KEY_VERSION, 1);
                let encrypted = sum(&page);
                put(&mut page, ENCRYPTED_SUM, encrypted);
                let before = page.clone();
                let left = Stamped::Left(Why::Encrypted);
                assert_eq!(stamped(&pages, 5, &mut page, true), left);
                assert_eq!(stamped(&pages, 5, &mut page, false), left);
                assert!(page == before);
            }
        }
        // Without a key, and without a sum there, the field says nothing.
        let mut page = page_with(new_fold, old_fold);
        put(&mut page, KEY_VERSION, 9);
        assert_eq!(stamped(&pages, 5, &mut page.clone(), true), Stamped::Left(Why::Encrypted));
        assert_eq!(stamped(&pages, 5, &mut page, false), Stamped::Changed);
    }

    #[test]
    fn misplaced_and_torn_pages_are_damaged_and_blank_ones_empty() {
        let pages = InnodbPages::new(Layout::guessed(Form::Old, 4096));
        let mut page = page_with(new_fold, old_fold);
        let misplaced = stamped(&pages, 6, &mut page, false);
        assert!(matches!(misplaced, Stamped::Damaged { kind: Kind::Misplaced, .. }));
        *page.last_mut().unwrap() ^= 1;
        let torn = stamped(&pages, 5, &mut page, false);
        assert!(matches!(torn, Stamped::Damaged { kind: Kind::Torn, .. }));
        assert_eq!(stamped(&pages, 5, &mut [0; 4096], false), Stamped::Blank);
    }

    #[test]
    fn copies_of_other_pages_are_left() {
        let mut pages = InnodbPages::new(Layout::guessed(Form::Old, 4096));
        pages.doublewrite = std::iter::once(64..128).collect();
        let mut page = page_with(new_fold, old_fold);
        assert_eq!(stamped(&pages, 64, &mut page, false), Stamped::Left(Why::Copy));
        page[100] ^= 1;
        assert_eq!(stamped(&pages, 64, &mut page, false), Stamped::Left(Why::Copy));
    }
}
