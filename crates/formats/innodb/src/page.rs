//! The pages of an InnoDB tablespace: MySQL, Percona Server, MariaDB.
//!
//! | page | tested by |
//! |---|---|
//! | any | page number, space id where it is in the clear, checksum, the LSN in header and trailer |
//! | all zero | the extent map: not in use, or zeroed |
//! | page_compressed, old layout | the page inside, and the envelope against it |
//! | page_compressed, `full_crc32` | its checksum |
//! | MySQL, compressed transparently | the page inside |
//! | MariaDB, encrypted | the checksum of the encrypted page; page_compressed ones in the old layout need the key |
//! | MySQL, encrypted | with the key the page inside; without it only number and space id |
//! | algorithm `none` | number, space id and the pair of LSNs: `unprotected` |
//! | a copy in the doublewrite area | its checksum, in any layout |
//!
//! Inside one file of the old layout pages with the sums `crc32`, `innodb` and `none` may lie side
//! by side. A page is tried by the one that fitted last first; what comes out is the same for any
//! order. A page type that the tablespace's flags do not allow hides nothing: such a page is tested
//! like any other.
//!
//! What the tests cannot see by the design of the format: an older version of a page; in the
//! old layouts the bytes 26..34, in zip pages the LSN too, behind the payload of a compressed page
//! anything. `fields.rs` has the fields, `checksum/innodb.rs` the sums.

#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checksum::fold::{PAGES_AT_ONCE, new_fold, new_folds, old_fold};
use crate::checksum::{
    NO_CHECKSUM_MAGIC, crc32, crc32_other_order, full_crc32, zip_adler32, zip_crc32,
};
use pagewarden_core::page::{Neighbours, PageFinding, PageFormat, PageRun, RunVerdict};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};

pub mod allocation;
pub mod compression;
pub mod encryption;
mod explain;
pub mod fields;
pub mod index;
pub mod layout;
pub(super) mod specimens;
pub(crate) mod stamp;

use allocation::AllocationMap;
use compression::{Unpacked, set_type, unpack_mariadb, unpack_mariadb_otherwise, unpack_mysql};
use encryption::{Cipher, Opens, is_encrypted_by_mariadb};
use fields::{
    BODY, CHECKSUM, ENCRYPTED_SUM, KEY_VERSION, KEY_VERSION_FULL_CRC32, LSN, LSN_LOW,
    MARIADB_ENCRYPTED_PAYLOAD, MARIADB_PAYLOAD, MARIADB_PAYLOAD_BYTES, MYSQL_ORIGINAL_TYPE,
    MYSQL_STORED_BYTES, PAGE_NUMBER, PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED,
    TYPE_COMPRESSED_AND_ENCRYPTED, TYPE_COMPRESSED_MARK, TYPE_ENCRYPTED, TYPE_ENCRYPTED_RTREE,
    TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, TYPE_RTREE, read_u16, read_u32, read_u64,
    trailer_first, trailer_second,
};
use layout::{Form, Layout};

/// How much findings about pages prove: the target knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Severities {
    /// Of a page that fails its test.
    pub failing: Severity,
    /// Of a page in use that is all zero; `None` where that is nothing to tell.
    pub zeroed: Option<Severity>,
    /// Of a copy in the doublewrite area that fails its test. The server reads it in crash
    /// recovery only, and passes over one that fails.
    pub doublewrite: Severity,
}

impl Severities {
    /// Of a file that a server closed in order.
    #[must_use]
    pub fn at_rest() -> Self {
        Self {
            failing: Severity::Damage,
            zeroed: Some(Severity::Damage),
            doublewrite: Severity::Notice,
        }
    }
}

/// The pages of one tablespace, or of one of its files.
#[derive(Debug)]
pub struct InnodbPages {
    /// Sizes, and where the fields are.
    pub layout: Layout,
    /// The tablespace's number, where it is known.
    pub space_id: Option<u32>,
    /// The number that part of its pages still have, or have already, while it is imported.
    pub import_space_id: Option<u32>,
    /// The pages in use.
    pub allocated: Arc<AllocationMap>,
    /// Pages that are copies of others, of any tablespace.
    pub doublewrite: Vec<Range<u64>>,
    /// What findings prove.
    pub severities: Severities,
    /// Pages that are never zero, beside the first, and what one that is zero proves.
    pub never_zero: (Vec<u64>, Option<Severity>),
    /// What opens encrypted pages.
    pub cipher: Option<Cipher>,
    /// The keys that were given do not open what MariaDB encrypted: no server reads it with them, though
    /// the sums of what is stored fit.
    pub keys_do_not_open: bool,
    /// Pages may have been encrypted since the first one was written, which then has no key.
    pub may_be_encrypted_since: bool,
    /// Pages that MariaDB compressed and encrypted in the old layout have a sum that fits, in this
    /// file. Without the key a page that has none is suspect.
    pub locked_pages_have_sums: bool,
    /// The last page with a sum had the slow one.
    folds: AtomicBool,
}

impl InnodbPages {
    /// Pages of this layout of which no more is known.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            space_id: None,
            import_space_id: None,
            allocated: Arc::default(),
            doublewrite: Vec::new(),
            severities: Severities::at_rest(),
            never_zero: (Vec::new(), None),
            cipher: None,
            keys_do_not_open: false,
            may_be_encrypted_since: false,
            locked_pages_have_sums: false,
            folds: AtomicBool::new(false),
        }
    }
}

/// What a page looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// All zero.
    Blank,
    /// In use, and nothing is wrong.
    Sound(Standing, Protection),
    /// Something is wrong.
    Faulty(Fault),
}

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    kind: Kind,
    protection: Protection,
    stored: Option<u32>,
    computed: Option<u32>,
    detail: Option<String>,
    /// The most that it proves.
    at_most: Severity,
}

impl Fault {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            protection: Protection::Checksum,
            stored: None,
            computed: None,
            detail: Some(detail.into()),
            at_most: Severity::Damage,
        }
    }
}

impl Fault {
    /// For people.
    pub(crate) fn in_words(&self) -> String {
        let kind = self.kind.name();
        match &self.detail {
            Some(detail) if !detail.is_empty() => format!("{kind}: {detail}"),
            _ => kind.to_owned(),
        }
    }
}

/// What a page's own protection says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seal {
    /// A sum fits.
    Fits(Content),
    /// It carries no sum.
    None(Content),
    /// It cannot be tested without a key, or without a library.
    Locked,
    /// No sum fits.
    Broken { stored: Option<u32>, computed: Option<u32>, detail: Option<String> },
    /// It contradicts itself.
    Contradicts(Fault),
}

/// What of a page that nothing speaks against is in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// All that a page has.
    Clear,
    /// Number and space id.
    NumberAndSpace,
    /// The number only.
    Number,
}

impl Seal {
    fn broken(stored: u32, computed: u32) -> Self {
        Self::Broken { stored: Some(stored), computed: Some(computed), detail: None }
    }

    fn broken_because(detail: &str) -> Self {
        Self::Broken { stored: None, computed: None, detail: Some(detail.to_owned()) }
    }
}

impl InnodbPages {
    /// Looks at one page. `fold` is its [`new_fold`], where that is known already.
    pub(crate) fn look(&self, number: u64, page: &[u8], fold: Option<u32>) -> Look {
        if self.is_blank(page) {
            return Look::Blank;
        }
        if self.is_copy(number) {
            return self.look_at_copy(page);
        }
        // No server compresses or encrypts the first page.
        let seal = if number == 0 { self.clear_seal(page, fold) } else { self.seal(page, fold) };
        let (content, standing, protection) = match seal {
            Seal::Fits(content) => (content, Standing::Ok, Protection::Checksum),
            Seal::None(content) => (content, Standing::Unprotected, Protection::None),
            Seal::Locked => (Content::NumberAndSpace, Standing::Unverifiable, Protection::Checksum),
            Seal::Broken { stored, computed, detail } => {
                let fault = Fault::new(Kind::Checksum, "");
                return Look::Faulty(Fault { stored, computed, detail, ..fault });
            }
            Seal::Contradicts(fault) => {
                // What only raises suspicion gives way to what does more.
                let other = (fault.at_most < Severity::Damage)
                    .then(|| self.identity_fault(number, page, Content::NumberAndSpace))
                    .flatten();
                return Look::Faulty(other.unwrap_or(fault));
            }
        };
        match self.identity_fault(number, page, content) {
            Some(fault) => Look::Faulty(Fault { protection, ..fault }),
            None if self.keys_do_not_open
                && number != 0
                && is_encrypted_by_mariadb(self.layout.form, page) =>
            {
                Look::Sound(Standing::Unverifiable, protection)
            }
            None => Look::Sound(standing, protection),
        }
    }

    fn seal(&self, page: &[u8], fold: Option<u32>) -> Seal {
        match self.layout.form {
            Form::Old => self.old_seal(page, fold),
            Form::Zip => self.zip_seal(page),
            Form::FullCrc32 => full_crc32_seal(&self.layout, page),
        }
    }

    /// The seal of a page that is neither compressed nor encrypted, whatever its type says.
    fn clear_seal(&self, page: &[u8], fold: Option<u32>) -> Seal {
        match self.layout.form {
            Form::Old => self.plain_seal(page, fold),
            Form::Zip => plain_zip_seal(page),
            Form::FullCrc32 => full_crc32_seal(&self.layout, page),
        }
    }

    /// True of a page whose own marks or sum say that it has this layout, wherever it lies. `fold` is
    /// its [`new_fold`], where that is known already.
    pub(crate) fn has_fitting_sum(&self, page: &[u8], fold: Option<u32>) -> bool {
        !self.is_blank(page)
            && match self.seal(page, fold) {
                Seal::Fits(_) => true,
                // Two marks at the ends of a page say that it is one; a single mark says little.
                Seal::None(_) => self.layout.form == Form::Old,
                _ => false,
            }
    }

    /// The space id of a page with a sum that fits, or that needs a key, if it is in the clear.
    pub(crate) fn clear_space_id(&self, page: &[u8]) -> Option<u32> {
        let is_clear = !self.is_blank(page)
            && match self.seal(page, None) {
                Seal::Fits(content) => content != Content::Number,
                Seal::None(_) | Seal::Locked => true,
                _ => false,
            };
        is_clear.then(|| read_u32(page, SPACE_ID))
    }

    fn is_copy(&self, number: u64) -> bool {
        self.doublewrite.iter().any(|copies| copies.contains(&number))
    }

    /// Never written. Servers tolerate bytes 26..34 on such pages of the old layout.
    fn is_blank(&self, page: &[u8]) -> bool {
        // Most pages are not, and tell by a glance.
        if read_u32(page, CHECKSUM) != 0 || read_u64(page, LSN) != 0 || trailer_second(page) != 0 {
            return false;
        }
        let (head, rest) = page.split_at_checked(KEY_VERSION).unwrap_or((page, &[]));
        let tolerated = if self.layout.form == Form::Old { SPACE_ID - KEY_VERSION } else { 0 };
        is_zero(head) && is_zero(rest.get(tolerated..).unwrap_or_default())
    }

    /// The page is where it belongs and was written in one piece.
    fn identity_fault(&self, number: u64, page: &[u8], content: Content) -> Option<Fault> {
        let own = read_u32(page, PAGE_NUMBER);
        if u64::from(own) != number {
            return Some(Fault::new(
                Kind::Misplaced,
                format!("by its own number it is page {own}"),
            ));
        }
        if content == Content::Number {
            return None;
        }
        let space = read_u32(page, SPACE_ID);
        let is_imported = self.import_space_id == Some(space);
        if let Some(expected) = self.space_id.filter(|it| *it != space && !is_imported) {
            return Some(Fault::new(
                Kind::Misplaced,
                format!("of tablespace {space} by its own word, and this is {expected}"),
            ));
        }
        if content == Content::NumberAndSpace {
            return None;
        }
        self.torn_detail(page).map(|detail| Fault::new(Kind::Torn, detail))
    }

    /// The low half of the LSN in the trailer, for pages that have it in the clear.
    fn trailer_lsn(&self, page: &[u8]) -> Option<u32> {
        match self.layout.form {
            Form::Old => Some(trailer_second(page)),
            Form::FullCrc32 => Some(trailer_first(page)),
            Form::Zip => None,
        }
    }

    /// Words, if header and trailer disagree on the LSN.
    fn torn_detail(&self, page: &[u8]) -> Option<String> {
        let end = self.trailer_lsn(page)?;
        let begin = read_u32(page, LSN_LOW);
        if begin == end {
            return None;
        }
        // The difference of two LSNs is far below half of what the field holds.
        let which = if begin.wrapping_sub(end) < 1 << 31 { "end" } else { "beginning" };
        Some(format!(
            "the LSN ends with {begin:08x} in the header and with {end:08x} in the trailer: the \
             {which} of the page is the older part"
        ))
    }

    fn old_seal(&self, page: &[u8], fold: Option<u32>) -> Seal {
        let special = match read_u16(page, PAGE_TYPE) {
            TYPE_PAGE_COMPRESSED => self.mariadb_seal(page, unpack_mariadb(page)),
            TYPE_PAGE_COMPRESSED_ENCRYPTED if self.layout.may_be_page_compressed => {
                match self.cipher.as_ref().and_then(|cipher| cipher.decrypt_mariadb(page)) {
                    Some(unpacked) if unpacked != Unpacked::Unsupported => {
                        self.mariadb_seal(page, unpacked)
                    }
                    _ => self.locked_seal(page),
                }
            }
            TYPE_COMPRESSED => self.inner_seal(unpack_mysql(page)),
            TYPE_ENCRYPTED | TYPE_COMPRESSED_AND_ENCRYPTED | TYPE_ENCRYPTED_RTREE
                if self.may_have_encrypted() =>
            {
                self.decrypted_seal(page)
            }
            _ => return self.plain_seal(page, fold),
        };
        match (&special, self.plain_seal(page, fold)) {
            // An ordinary page, whatever its type says.
            (Seal::Broken { .. } | Seal::Contradicts(_), plain @ Seal::Fits(_)) => plain,
            // By its sum an ordinary page whose type was overwritten says less than its payload.
            _ => special,
        }
    }

    /// A page that MariaDB compressed and encrypted, without the key.
    fn locked_seal(&self, page: &[u8]) -> Seal {
        let stored = read_u32(page, ENCRYPTED_SUM);
        if !self.locked_pages_have_sums || stored == NO_CHECKSUM_MAGIC || locked_sum_fits(page) {
            return Seal::Locked;
        }
        Seal::Contradicts(Fault {
            at_most: Severity::Suspect,
            stored: Some(stored),
            ..Fault::new(
                Kind::Checksum,
                "the sum of the encrypted page, which other pages here have, does not fit; only \
                 the key can tell",
            )
        })
    }

    /// A page of the old layout as it was before it was compressed or encrypted.
    fn plain_seal(&self, page: &[u8], fold: Option<u32>) -> Seal {
        let (first, second) = (read_u32(page, CHECKSUM), trailer_first(page));
        if (first, second) == (NO_CHECKSUM_MAGIC, NO_CHECKSUM_MAGIC) {
            return Seal::None(Content::Clear);
        }
        if fold.is_some_and(|fold| folds_fit(page, first, second, fold)) {
            return Seal::Fits(Content::Clear);
        }
        let crc = crc32(page);
        let is_encrypted = read_u32(page, KEY_VERSION) != 0;
        let encrypted_sum = read_u32(page, ENCRYPTED_SUM);
        if (first, second) == (crc, crc) || (is_encrypted && encrypted_sum == crc) {
            self.folds.store(false, Ordering::Relaxed);
            return Seal::Fits(Content::Clear);
        }
        let fold = fold.unwrap_or_else(|| new_fold(page));
        if folds_fit(page, first, second, fold) || (is_encrypted && encrypted_sum == fold) {
            self.folds.store(true, Ordering::Relaxed);
            return Seal::Fits(Content::Clear);
        }
        if is_encrypted && encrypted_sum == NO_CHECKSUM_MAGIC {
            return Seal::None(Content::Clear);
        }
        let other = crc32_other_order(page);
        if (first, second) == (other, other) {
            return Seal::Fits(Content::Clear);
        }
        // Which sum it had is not known; that of the header may still fit.
        let computed = if second == old_fold(page) { fold } else { crc };
        Seal::broken(first, computed)
    }

    /// MySQL may have encrypted pages of this file.
    fn may_have_encrypted(&self) -> bool {
        self.layout.may_be_encrypted || self.may_be_encrypted_since
    }

    fn zip_seal(&self, page: &[u8]) -> Seal {
        let plain = plain_zip_seal(page);
        let page_type = read_u16(page, PAGE_TYPE);
        let is_locked =
            matches!(page_type, TYPE_ENCRYPTED | TYPE_ENCRYPTED_RTREE) && self.may_have_encrypted();
        if !is_locked || matches!(plain, Seal::Fits(_)) {
            return plain;
        }
        let Some(cipher) = &self.cipher else { return Seal::Locked };
        match cipher.decrypt_mysql(page).first() {
            Some(Unpacked::Page(clear)) => plain_zip_seal(clear),
            Some(_) => plain,
            None => Seal::Locked,
        }
    }

    /// The page in a page of MariaDB's page compression, and the envelope.
    fn mariadb_seal(&self, page: &[u8], unpacked: Unpacked) -> Seal {
        let is_marked = read_u32(page, CHECKSUM) == NO_CHECKSUM_MAGIC;
        let inner = match unpacked {
            Unpacked::Page(inner) => inner,
            Unpacked::Unsupported if self.layout.may_be_page_compressed && is_marked => {
                // A flipped bit makes lzo of zlib or lz4.
                let mut others = unpack_mariadb_otherwise(page);
                return match others.any(|it| matches!(self.inner_seal(it), Seal::Fits(_))) {
                    true => Seal::Contradicts(Fault::new(
                        Kind::Header,
                        "it says that it was packed by lzo, and was packed by another algorithm",
                    )),
                    false => Seal::Locked,
                };
            }
            Unpacked::Unsupported => return Seal::broken_because("page_compressed by lzo"),
            Unpacked::Broken(why) => return Seal::broken_because(why),
        };
        let seal = self.inner_seal(Unpacked::Page(inner.clone()));
        if !matches!(seal, Seal::Fits(_) | Seal::None(_)) {
            return seal;
        }
        let of_both = [page, &inner].map(|page| page.get(PAGE_NUMBER..PAGE_TYPE));
        let spaces = [page, &inner].map(|page| read_u32(page, SPACE_ID));
        if of_both[0] != of_both[1] || spaces[0] != spaces[1] {
            return Seal::Contradicts(Fault::new(
                Kind::Header,
                "its header is not that of the page compressed in it",
            ));
        }
        if !is_marked {
            return Seal::Contradicts(Fault::new(
                Kind::Header,
                "its first four bytes are not the mark that page_compressed pages have",
            ));
        }
        seal
    }

    /// An ordinary page that was inside another; its trailer is tested here, for the page around it
    /// ends with padding or ciphertext.
    fn inner_seal(&self, unpacked: Unpacked) -> Seal {
        let inner = match unpacked {
            Unpacked::Page(inner) => inner,
            Unpacked::Unsupported => return Seal::Locked,
            Unpacked::Broken(why) => return Seal::broken_because(why),
        };
        let seal = self.plain_seal(&inner, None);
        match seal {
            Seal::Fits(_) | Seal::None(_) => match (self.torn_detail(&inner), seal) {
                (Some(detail), _) => Seal::Contradicts(Fault::new(Kind::Torn, detail)),
                (None, Seal::None(_)) => Seal::None(Content::NumberAndSpace),
                (None, _) => Seal::Fits(Content::NumberAndSpace),
            },
            Seal::Broken { stored, computed, .. } => {
                Seal::Broken { stored, computed, detail: Some("of the page inside".to_owned()) }
            }
            other => other,
        }
    }

    /// What kind of page it is, if it says so: the type that it had before it was compressed or encrypted.
    pub(crate) fn clear_type(&self, page: &[u8]) -> Option<u16> {
        let page_type = read_u16(page, PAGE_TYPE);
        let inner = |unpacked| match unpacked {
            Unpacked::Page(inner) => Some(read_u16(&inner, PAGE_TYPE)),
            Unpacked::Unsupported | Unpacked::Broken(_) => None,
        };
        match (self.layout.form, page_type) {
            (Form::FullCrc32, _) => (page_type & TYPE_COMPRESSED_MARK == 0).then_some(page_type),
            (_, TYPE_COMPRESSED | TYPE_ENCRYPTED | TYPE_COMPRESSED_AND_ENCRYPTED) => {
                Some(read_u16(page, MYSQL_ORIGINAL_TYPE))
            }
            (_, TYPE_PAGE_COMPRESSED) => inner(unpack_mariadb(page)),
            (_, TYPE_PAGE_COMPRESSED_ENCRYPTED) => {
                inner(self.cipher.as_ref()?.decrypt_mariadb(page)?)
            }
            _ => Some(page_type),
        }
    }

    /// The bytes of a page that count: all but those behind the data of a page that is stored compressed.
    ///
    /// What lies there is left from an earlier page; no server reads it.
    pub(crate) fn counted<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        let end = match (self.layout.form, read_u16(page, PAGE_TYPE)) {
            (Form::FullCrc32, _) => compressed_bytes(&self.layout, page),
            (Form::Old, TYPE_COMPRESSED) => {
                Some(BODY.saturating_add(usize::from(read_u16(page, MYSQL_STORED_BYTES))))
            }
            (Form::Old, TYPE_PAGE_COMPRESSED) => {
                let payload = usize::from(read_u16(page, MARIADB_PAYLOAD_BYTES));
                Some(MARIADB_PAYLOAD.saturating_add(payload))
            }
            _ => None,
        };
        end.and_then(|end| page.get(..end)).unwrap_or(page)
    }

    /// Two versions of a page as they were before MySQL encrypted them, by what the second one says of
    /// itself; `None` if it is not encrypted, or compressed too, or there is no key.
    pub(crate) fn in_the_clear(&self, versions: [&[u8]; 2]) -> Option<[Vec<u8>; 2]> {
        let [_, sound] = versions;
        let page_type = read_u16(sound, PAGE_TYPE);
        let is_one = matches!(page_type, TYPE_ENCRYPTED | TYPE_ENCRYPTED_RTREE);
        let cipher = self.cipher.as_ref().filter(|_| is_one && self.layout.form == Form::Old)?;
        let clear_type = match page_type {
            TYPE_ENCRYPTED => read_u16(sound, MYSQL_ORIGINAL_TYPE),
            _ => TYPE_RTREE,
        };
        let mut clear = versions.map(<[u8]>::to_vec);
        for page in &mut clear {
            let is_decrypted = cipher.decrypt_mysql_body(page.get_mut(BODY..)?);
            if read_u16(page, PAGE_TYPE) == page_type {
                set_type(page, clear_type);
            }
            // What says how it is encrypted; no sum covers it.
            page.get_mut(KEY_VERSION..SPACE_ID)?.fill(0);
            is_decrypted.then_some(())?;
        }
        Some(clear)
    }

    /// A page of an index that passes its test, as it was before it was encrypted; `None` if there is no
    /// key that opens it, or if it is compressed, too.
    pub(crate) fn decrypted(&self, page: &[u8]) -> Option<Vec<u8>> {
        match &self.cipher {
            Some(cipher @ Cipher::MariaDb { .. }) => {
                let (form, space) = (self.layout.form, self.space_id?);
                let opens = cipher.opens_index(form, space, page)?;
                (opens == Opens::Chained).then(|| cipher.decrypt_mariadb_page(form, space, page))?
            }
            _ => self.in_the_clear([page, page]).map(|[_, clear]| clear),
        }
    }

    /// A page that MySQL encrypted.
    fn decrypted_seal(&self, page: &[u8]) -> Seal {
        let Some(cipher) = &self.cipher else { return Seal::Locked };
        let mut last = Seal::Locked;
        for unpacked in cipher.decrypt_mysql(page) {
            last = self.inner_seal(unpacked);
            if matches!(last, Seal::Fits(_) | Seal::None(_)) {
                break;
            }
        }
        last
    }

    /// A copy in the doublewrite area: a page of any tablespace, in any layout.
    fn look_at_copy(&self, page: &[u8]) -> Look {
        const ZIP_SIZES: [usize; 5] = [1024, 2048, 4096, 8192, 16_384];
        let guess = |form| Layout::guessed(form, self.layout.page_size);
        let old = self.plain_seal(page, None);
        let is_zip = |size: &usize| {
            page.get(..*size).is_some_and(|part| matches!(plain_zip_seal(part), Seal::Fits(_)))
        };
        let fits = |seal: &Seal| matches!(seal, Seal::Fits(_));
        if fits(&old)
            || fits(&full_crc32_seal(&guess(Form::FullCrc32), page))
            || fits(&self.inner_seal(unpack_mariadb(page)))
            || fits(&self.inner_seal(unpack_mysql(page)))
            || ZIP_SIZES.iter().any(is_zip)
        {
            return Look::Sound(Standing::Ok, Protection::Checksum);
        }
        let page_type = read_u16(page, PAGE_TYPE);
        match old {
            Seal::None(_) => Look::Sound(Standing::Unprotected, Protection::None),
            // Compressed pages have the mark at their beginning only.
            _ if read_u32(page, CHECKSUM) == NO_CHECKSUM_MAGIC => {
                Look::Sound(Standing::Unprotected, Protection::None)
            }
            _ if is_stored_otherwise(page_type) && page_type != TYPE_COMPRESSED => {
                Look::Sound(Standing::Unverifiable, Protection::Checksum)
            }
            Seal::Broken { stored, computed, .. } => Look::Faulty(Fault {
                stored,
                computed,
                ..Fault::new(
                    Kind::Checksum,
                    "a copy in the doublewrite area, which is read in crash recovery only",
                )
            }),
            _ => Look::Sound(Standing::Unverifiable, Protection::Checksum),
        }
    }

    fn judge_page(&self, number: PageNo, page: &[u8], fold: Option<u32>, verdict: &mut RunVerdict) {
        match self.look(number.0, page, fold) {
            // No copy is in use: the key to one is not missing.
            Look::Sound(Standing::Unverifiable, _) if self.is_copy(number.0) => verdict.skip(),
            Look::Sound(standing, protection) => verdict.pass(standing, protection),
            Look::Blank => match self.zeroed(number) {
                Some(severity) => verdict.fail(
                    Protection::Checksum,
                    PageFinding::failed(number, severity, Kind::Zeroed)
                        .with_detail(self.zeroed_words(number)),
                ),
                None => verdict.empty(),
            },
            Look::Faulty(fault) => {
                let severity = if self.is_copy(number.0) {
                    self.severities.doublewrite
                } else {
                    self.severities.failing
                };
                let severity = severity.min(fault.at_most);
                let finding = PageFinding {
                    stored: fault.stored.map(|sum| format!("{sum:08x}")),
                    computed: fault.computed.map(|sum| format!("{sum:08x}")),
                    detail: fault.detail,
                    ..PageFinding::failed(number, severity, fault.kind)
                };
                verdict.fail(fault.protection, finding);
            }
        }
    }

    fn zeroed(&self, number: PageNo) -> Option<Severity> {
        // A place for copies that was not used yet.
        if self.is_copy(number.0) {
            return None;
        }
        if number.0 == 0 {
            return Some(self.severities.failing);
        }
        if self.never_zero.0.contains(&number.0) {
            return self.never_zero.1;
        }
        let severity = self.severities.zeroed?;
        self.allocated.contains(number.0).then_some(severity)
    }
}

impl InnodbPages {
    fn zeroed_words(&self, number: PageNo) -> String {
        if number.0 == 0 {
            "all zero, and the first page never is".to_owned()
        } else if self.never_zero.0.contains(&number.0) {
            format!("all zero, and {} never is", what_is(number.0))
        } else {
            "all zero, and in use by the extent map".to_owned()
        }
    }
}

/// What a page of the system tablespace that is never zero holds.
fn what_is(page: u64) -> &'static str {
    match page {
        1 => "the bitmap of the change buffer",
        2 => "the page of segments",
        3 => "the header of the change buffer",
        4 => "the root of the change buffer",
        5 => "the page of the transaction system",
        6 => "the first rollback segment",
        7 => "the header of the dictionary",
        _ => "a rollback segment, or the root of an index of the server's own,",
    }
}

/// True of the types that say that a page is compressed or encrypted.
pub(crate) fn is_stored_otherwise(page_type: u16) -> bool {
    matches!(
        page_type,
        TYPE_COMPRESSED
            | TYPE_ENCRYPTED
            | TYPE_COMPRESSED_AND_ENCRYPTED
            | TYPE_ENCRYPTED_RTREE
            | TYPE_PAGE_COMPRESSED
            | TYPE_PAGE_COMPRESSED_ENCRYPTED
    )
}

fn folds_fit(page: &[u8], first: u32, second: u32, fold: u32) -> bool {
    // Before 4.0.14 the trailer began with the high half of the LSN.
    first == fold && (second == old_fold(page) || second == read_u32(page, LSN))
}

/// True if a page that MariaDB compressed and encrypted in the old layout has a sum that fits: it
/// was taken when all behind the payload was zero, which need not have been written.
pub(crate) fn locked_sum_fits(page: &[u8]) -> bool {
    let length = usize::from(read_u16(page, MARIADB_PAYLOAD_BYTES));
    let mut whole = page.to_vec();
    if let Some(rest) = whole.get_mut(MARIADB_ENCRYPTED_PAYLOAD.saturating_add(length)..) {
        rest.fill(0);
    }
    crc32(&whole) == read_u32(page, ENCRYPTED_SUM)
}

/// A zip page that is not encrypted by MySQL.
fn plain_zip_seal(page: &[u8]) -> Seal {
    let stored = read_u32(page, CHECKSUM);
    if stored == NO_CHECKSUM_MAGIC {
        return Seal::None(Content::NumberAndSpace);
    }
    let crc = zip_crc32(page);
    let is_encrypted = read_u32(page, KEY_VERSION) != 0;
    let encrypted_sum = read_u32(page, ENCRYPTED_SUM);
    if stored == crc || (is_encrypted && encrypted_sum == crc) {
        return Seal::Fits(Content::NumberAndSpace);
    }
    let adler = zip_adler32(page);
    if stored == adler || (is_encrypted && encrypted_sum == adler) {
        return Seal::Fits(Content::NumberAndSpace);
    }
    if is_encrypted && encrypted_sum == NO_CHECKSUM_MAGIC {
        return Seal::None(Content::NumberAndSpace);
    }
    Seal::broken(stored, crc)
}

/// How much of a page of a `full_crc32` file is stored, if its type says that it was compressed.
fn compressed_bytes(layout: &Layout, page: &[u8]) -> Option<usize> {
    const UNIT: usize = 256;
    let page_type = read_u16(page, PAGE_TYPE);
    if page_type & TYPE_COMPRESSED_MARK == 0 || !layout.may_be_page_compressed {
        return None;
    }
    let bytes = usize::from(page_type & !TYPE_COMPRESSED_MARK).saturating_mul(UNIT);
    (bytes > 0 && bytes < page.len()).then_some(bytes)
}

fn full_crc32_seal(layout: &Layout, page: &[u8]) -> Seal {
    let compressed = compressed_bytes(layout, page);
    let stored_part = page.get(..compressed.unwrap_or(page.len())).unwrap_or(page);
    let stored = trailer_second(stored_part);
    let computed = full_crc32(stored_part);
    if stored != computed {
        return Seal::broken(stored, computed);
    }
    let is_clear = compressed.is_none() && read_u32(page, KEY_VERSION_FULL_CRC32) == 0;
    Seal::Fits(if is_clear { Content::Clear } else { Content::Number })
}

fn is_zero(bytes: &[u8]) -> bool {
    let (groups, rest) = bytes.as_chunks::<64>();
    // A group at a time, so that it becomes a vector instruction.
    groups.iter().all(|group| group.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

impl PageFormat for InnodbPages {
    /// MariaDB, whose form this is, writes zeroes over pages that come free.
    fn may_become_zero(&self) -> bool {
        self.layout.form == Form::FullCrc32
    }

    fn page_size(&self) -> usize {
        self.layout.page_size
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let page_size = self.layout.page_size.max(1);
        let mut folds = Vec::new();
        if self.layout.form == Form::Old && self.folds.load(Ordering::Relaxed) {
            new_folds(run.bytes, page_size, &mut folds);
        }
        let mut folds = folds.into_iter();
        for (page, index) in run.bytes.chunks_exact(page_size).zip(0_u64..) {
            self.judge_page(run.first.plus(index), page, folds.next(), verdict);
        }
    }

    fn bytes_at_once(&self) -> usize {
        let folds = self.layout.form == Form::Old && self.folds.load(Ordering::Relaxed);
        if folds { PAGES_AT_ONCE.saturating_mul(self.layout.page_size) } else { 0 }
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        self.refine(page, finding, neighbours);
    }
}

#[cfg(test)]
mod tests;
