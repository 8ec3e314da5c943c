//! What can be known of a damaged page by the design of its format alone: a reckoning byte by
//! byte, which knows no more of the checker than the documents of the format say.

use pagewarden::formats::innodb::checksum::{crc32, zip_crc32};
use pagewarden::formats::innodb::page::compression::{unpack_mariadb, unpack_mysql};
use pagewarden::formats::innodb::page::fields::{
    ENCRYPTED_SUM, EXTENT_DESCRIPTORS, FSP_FREE_LIMIT, KEY_VERSION, MARIADB_PAYLOAD_BYTES,
    MYSQL_STORED_BYTES, PAGE_NUMBER, PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED, TYPE_COMPRESSED_MARK,
    TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16, read_u32,
};
use pagewarden::formats::innodb::page::layout::{Form, Layout};

/// What protects a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A sum at both ends, or a zip page's one: crc32 or innodb.
    Plain,
    /// The marks of algorithm none.
    Unprotected,
    /// Old layout or zip, encrypted by MariaDB: the sum of the encrypted page.
    Encrypted,
    /// Old layout, compressed by MariaDB: the page inside. Where the payload ends.
    Compressed(usize),
    /// Compressed by MySQL: the same.
    MySqlCompressed(usize),
    /// MySQL's encryption, without the key.
    Locked,
    /// MariaDB's compression and encryption, without the key. Where the payload ends.
    LockedCompressed(usize),
    /// Old layout, compressed by lzo, which is not unpacked.
    Lzo,
    /// `full_crc32`.
    Full,
    /// `full_crc32`, encrypted.
    FullEncrypted,
    /// `full_crc32`, compressed. Where what is stored ends.
    FullCompressed(usize),
}

impl Class {
    pub fn of(layout: &Layout, page: &[u8]) -> Self {
        let page_type = read_u16(page, PAGE_TYPE);
        if layout.form == Form::FullCrc32 {
            let stored = usize::from(page_type & !TYPE_COMPRESSED_MARK) * 256;
            return if page_type & TYPE_COMPRESSED_MARK != 0 && layout.may_be_page_compressed {
                Self::FullCompressed(stored)
            } else if read_u32(page, 0) != 0 {
                Self::FullEncrypted
            } else {
                Self::Full
            };
        }
        let payload = |at| usize::from(read_u16(page, at));
        match page_type {
            15..=17 => Self::Locked,
            TYPE_COMPRESSED => Self::MySqlCompressed(38 + payload(MYSQL_STORED_BYTES)),
            TYPE_PAGE_COMPRESSED if page[33] == 3 => Self::Lzo,
            TYPE_PAGE_COMPRESSED => Self::Compressed(40 + payload(MARIADB_PAYLOAD_BYTES)),
            TYPE_PAGE_COMPRESSED_ENCRYPTED => {
                Self::LockedCompressed(42 + payload(MARIADB_PAYLOAD_BYTES))
            }
            _ if read_u32(page, 0) == 0xdead_beef => Self::Unprotected,
            // MySQL leaves other things in these bytes of zip pages.
            _ if read_u32(page, KEY_VERSION) != 0
                && [crc32(page), zip_crc32(page)].contains(&read_u32(page, ENCRYPTED_SUM)) =>
            {
                Self::Encrypted
            }
            _ => Self::Plain,
        }
    }

    /// The whole page has one sum, and nothing of it is in the clear that says whose it is.
    pub fn hides_its_tablespace(self) -> bool {
        matches!(self, Self::FullEncrypted | Self::FullCompressed(_))
    }

    /// Only a key says more than number and tablespace.
    pub fn is_locked(self) -> bool {
        matches!(self, Self::Locked | Self::LockedCompressed(_))
    }
}

/// What is said of a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    Nothing,
    Suspect,
    Damage,
}

impl Seen {
    fn if_damage(is_seen: bool) -> Self {
        if is_seen { Self::Damage } else { Self::Nothing }
    }
}

/// A tablespace as it is when one of its pages is damaged.
pub struct Theory<'a> {
    pub layout: &'a Layout,
    /// With the damage.
    pub file: &'a [u8],
    /// Pages before the first one of this file.
    pub first_page: usize,
    /// The system tablespace has pages in use that were never written.
    pub is_system: bool,
}

impl Theory<'_> {
    /// What a check says of a page that was changed.
    pub fn seen(&self, index: usize, before: &[u8], after: &[u8]) -> Seen {
        if before == after {
            return Seen::Nothing;
        }
        if self.is_blank(after) {
            let is_missed = match (self.first_page, index) {
                (0, 0) => true,
                _ if self.is_system => self.is_fixed(index) && self.is_used(index),
                _ => self.is_used(index),
            };
            return Seen::if_damage(is_missed);
        }
        let class = Class::of(self.layout, before);
        let mut changed = (0..before.len()).filter(|at| before[*at] != after[*at]);
        if !class.is_locked() && self.says_that_it_is_locked(after) {
            return match changed.any(is_place) {
                true => Seen::Damage,
                false if read_u16(after, PAGE_TYPE) != TYPE_PAGE_COMPRESSED_ENCRYPTED => {
                    Seen::Nothing
                }
                false if self.locked_sums_are_believed() => Seen::Suspect,
                false => Seen::Nothing,
            };
        }
        changed.map(|at| self.byte(class, at, before, after)).max().unwrap_or(Seen::Nothing)
    }

    /// A page of the system tablespace that is never zero while it is in use: the first ones, and
    /// the rollback segments that page 5 names.
    fn is_fixed(&self, index: usize) -> bool {
        let size = self.layout.page_size;
        let Some(transactions) = self.file.get(5 * size..6 * size) else { return false };
        let slots = transactions[38 + 18..].chunks_exact(8).take(128);
        let mut slots = slots.map(|slot| (read_u32(slot, 0), read_u32(slot, 4)));
        self.first_page == 0
            && ((1..=12).contains(&index)
                || slots.any(|(space, page)| space == 0 && page as usize == index))
    }

    /// What one changed byte gives away.
    fn byte(&self, class: Class, at: usize, before: &[u8], after: &[u8]) -> Seen {
        let size = before.len();
        let is_type = (PAGE_TYPE..PAGE_TYPE + 2).contains(&at);
        let is_zip = self.layout.form == Form::Zip;
        let is_lsn_low = (20..24).contains(&at) || at >= size - 4;
        match class {
            _ if is_place(at) => Seen::Damage,
            Class::Full | Class::FullEncrypted => Seen::Damage,
            Class::FullCompressed(end) => Seen::if_damage(at < end),
            Class::Plain if is_zip => {
                Seen::if_damage(!(16..24).contains(&at) && !(26..34).contains(&at))
            }
            Class::Plain => Seen::if_damage(!(26..34).contains(&at)),
            Class::Unprotected if is_zip => Seen::if_damage(at < 4),
            Class::Unprotected if is_type => self.type_of_unprotected(read_u16(after, PAGE_TYPE)),
            Class::Unprotected => {
                Seen::if_damage(at < 4 || (size - 8..size - 4).contains(&at) || is_lsn_low)
            }
            Class::Encrypted => match at {
                0..4 => Seen::Nothing,
                16..24 if is_zip => Seen::Nothing,
                // Without a version it would not be encrypted.
                26..30 => Seen::if_damage(read_u32(after, KEY_VERSION) == 0),
                _ => Seen::if_damage(is_zip || !(size - 8..size - 4).contains(&at)),
            },
            Class::Compressed(end) => match at {
                0..40 => Seen::Damage,
                _ if at >= end => Seen::Nothing,
                // Streams have bits that change nothing.
                _ => Seen::if_damage(unpack_mariadb(before) != unpack_mariadb(after)),
            },
            Class::MySqlCompressed(end) => match at {
                26 => Seen::Nothing,
                0..38 => Seen::Damage,
                _ if at >= end => Seen::Nothing,
                _ => Seen::if_damage(unpack_mysql(before) != unpack_mysql(after)),
            },
            Class::Lzo => match at {
                0..4 | 24..34 => Seen::Damage,
                38..40 => {
                    let length = usize::from(read_u16(after, MARIADB_PAYLOAD_BYTES));
                    Seen::if_damage(length == 0 || length > size - 40)
                }
                _ => Seen::Nothing,
            },
            Class::Locked => Seen::if_damage(is_type && !self.is_locked_type(after)),
            Class::LockedCompressed(end) => match at {
                0..4 | 26..30 => Seen::Nothing,
                24..26 => Seen::Damage,
                _ if at >= end.min(size - 8) => Seen::Nothing,
                _ if self.locked_sums_are_believed() => Seen::Suspect,
                _ => Seen::Nothing,
            },
        }
    }

    /// A type that says what a page is packed by; what it packs is not there.
    fn type_of_unprotected(&self, page_type: u16) -> Seen {
        Seen::if_damage(matches!(page_type, TYPE_COMPRESSED | TYPE_PAGE_COMPRESSED))
    }

    fn is_locked_type(&self, page: &[u8]) -> bool {
        let page_type = read_u16(page, PAGE_TYPE);
        match self.layout.form {
            Form::FullCrc32 => false,
            Form::Zip => matches!(page_type, 15 | 17),
            Form::Old => matches!(page_type, 15..=17),
        }
    }

    /// By a type that such a tablespace may have.
    fn says_that_it_is_locked(&self, page: &[u8]) -> bool {
        let is_old = self.layout.form == Form::Old;
        let is_compressed_too = read_u16(page, PAGE_TYPE) == TYPE_PAGE_COMPRESSED_ENCRYPTED;
        (self.layout.may_be_encrypted && self.is_locked_type(page))
            || (is_old && self.layout.may_be_page_compressed && is_compressed_too)
    }

    /// No server reads the sums of such pages, so that they count only where nearly all of the
    /// first pages have one that fits.
    fn locked_sums_are_believed(&self) -> bool {
        let first = self.file.chunks_exact(self.layout.page_size).take(4);
        let locked = first.filter(|it| read_u16(it, PAGE_TYPE) == TYPE_PAGE_COMPRESSED_ENCRYPTED);
        let (fit, not): (Vec<_>, Vec<_>) = locked.partition(|page| {
            let mut whole = page.to_vec();
            let end = 42 + usize::from(read_u16(page, MARIADB_PAYLOAD_BYTES));
            whole.iter_mut().skip(end).for_each(|byte| *byte = 0);
            crc32(&whole) == read_u32(page, ENCRYPTED_SUM)
        });
        fit.len() > 3 * not.len()
    }

    fn is_blank(&self, page: &[u8]) -> bool {
        let tolerated = if self.layout.form == Form::Old { 26..34 } else { 0..0 };
        page.iter().enumerate().all(|(at, byte)| *byte == 0 || tolerated.contains(&at))
    }

    /// By the extent map, as far as it is there.
    pub fn is_used(&self, index: usize) -> bool {
        let size = self.layout.page_size;
        let number = index + self.first_page;
        let map = number / size * size;
        let Some(at) = map.checked_sub(self.first_page) else { return false };
        let page = &self.file[at * size..][..size];
        let limit = read_u32(&self.file[..size], FSP_FREE_LIMIT) as usize;
        if self.is_blank(page) || (self.first_page == 0 && number >= limit) {
            return false;
        }
        let extent_pages = self.layout.extent_pages();
        let length = 24 + extent_pages / 4;
        let descriptor = &page[EXTENT_DESCRIPTORS + (number - map) / extent_pages * length..];
        let bit = number % extent_pages * 2;
        let is_free = descriptor[24 + bit / 8] >> (bit % 8) & 1 == 1;
        (2..=5).contains(&read_u32(descriptor, 20)) && !is_free
    }
}

fn is_place(at: usize) -> bool {
    (PAGE_NUMBER..PAGE_NUMBER + 4).contains(&at) || (SPACE_ID..SPACE_ID + 4).contains(&at)
}
