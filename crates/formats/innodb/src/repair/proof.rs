//! What proves that a copy of a page is the version that the server wrote last.
//!
//! A server writes the log position (LSN) of a page's last change at both ends of the page, and a sum
//! over all of it at one end or both. Within one history an LSN is that of one version. But two
//! directories that were copied from each other, and then each changed by as much, have pages of one
//! LSN that differ. So an LSN counts only with the sum, or with a log that shows the same history.
//!
//! | the damaged page | the copy must have | and |
//! | --- | --- | --- |
//! | LSN and sum at both ends are the copy's | all of them | three of four sectors are the same |
//! | beginning is the copy's, end is not (torn) | LSN and sum of the beginning; in `full_crc32` files the sum is at the end: the same history in its place | the end is not newer; all sectors before the first other one are the same |
//! | end is the copy's, beginning is not (torn) | LSN and sum of the end | the beginning is older, or only damaged; all sectors behind the last other one are the same; the sum covers all that servers write |
//!
//! | stored as | sum at the beginning | LSN and sum at the end |
//! | --- | --- | --- |
//! | old layout, `crc32` | yes | both |
//! | old layout, `innodb` | yes | LSN |
//! | `full_crc32` | no | both; where the page is compressed, the sum, where its stored part ends |
//! | zip, page_compressed in the old layout | not used | none: nothing would show a newer end |
//!
//! What this cannot exclude: a device that wrote neither the beginning nor the end of the last
//! version, and some of its middle.

#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;

use crate::page::fields::{
    CHECKSUM, KEY_VERSION, KEY_VERSION_FULL_CRC32, LSN, PAGE_NUMBER, PAGE_TYPE, SPACE_ID,
    TYPE_COMPRESSED_MARK, read_u16, read_u32, read_u64, trailer_first, trailer_second,
};
use crate::page::is_stored_otherwise;
use crate::page::layout::{Form, Layout};
use pagewarden_core::repair::candidate::Worth;

/// Devices write this much at once, or nothing of it.
const SECTOR: usize = 512;
/// One sector of this number may differ.
const DIFFERENT_SHARE: usize = 4;
const TRAILER_BYTES: usize = 8;
const SUM_BYTES: usize = 4;

/// True if a damaged page says that it is a later version of this very page than a copy of the same
/// moment: then the copy is one of which a write was lost, or the page says a false LSN.
pub(super) fn contradicts(damaged: &[u8], candidate: &[u8], checkpoint: Option<u64>) -> bool {
    let identity = |page: &[u8]| (read_u32(page, PAGE_NUMBER), read_u32(page, SPACE_ID));
    let lsn = read_u64(damaged, LSN);
    identity(damaged) == identity(candidate)
        && lsn > read_u64(candidate, LSN)
        && checkpoint.is_some_and(|checkpoint| lsn <= checkpoint)
}

/// A damaged page and a copy of it that passed its test by a sum.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) layout: &'a Layout,
    pub(super) damaged: &'a [u8],
    pub(super) candidate: &'a [u8],
    /// Where the directory's log ends.
    pub(super) checkpoint: u64,
    /// The positions over which the copy's log is known to be the directory's own.
    pub(super) shared: Range<u64>,
}

impl Pair<'_> {
    /// Judges the copy by what the damaged page still says of its version.
    pub(super) fn judge(&self) -> Worth {
        let lsn = read_u64(self.candidate, LSN);
        let Some(tail) = self.tail() else {
            return Worth::Older(format!(
                "pages stored like this do not say at both ends which version they are, so that only a \
                 copy of the same shutdown is exact; {}",
                self.lsns()
            ));
        };
        let same = |range: &Range<usize>| {
            let one = self.candidate.get(range.clone());
            one.is_some() && one == self.damaged.get(range.clone())
        };
        let has_head = [CHECKSUM..CHECKSUM + SUM_BYTES, LSN..SPACE_ID].iter().all(same);
        let why = match (has_head, same(&tail)) {
            (true, true) if self.is_mostly_the_same() => format!(
                "LSN {lsn} and the checksum are the same at both ends of the damaged page, and most of it is"
            ),
            (true, false) if self.is_torn_behind() => format!(
                "the beginning of the damaged page is this version, of LSN {lsn}; its end is not newer"
            ),
            (false, true) if self.is_torn_before() => format!(
                "the end of the damaged page is this version, with LSN {lsn} and checksum; its beginning \
                 is not newer"
            ),
            _ => return Worth::Older(self.lsns()),
        };
        Worth::Exact(why)
    }

    /// Where the end of a page says which version it is; `None` where it does not.
    fn tail(&self) -> Option<Range<usize>> {
        let end = self.candidate.len();
        let page_type = read_u16(self.candidate, PAGE_TYPE);
        match self.layout.form {
            Form::Zip => None,
            Form::Old if is_stored_otherwise(page_type) => None,
            Form::FullCrc32 if page_type & TYPE_COMPRESSED_MARK != 0 => {
                const UNIT: usize = 256;
                let stored = usize::from(page_type & !TYPE_COMPRESSED_MARK).checked_mul(UNIT)?;
                (stored <= end).then_some(stored.checked_sub(SUM_BYTES)?..stored)
            }
            Form::Old | Form::FullCrc32 => Some(end.checked_sub(TRAILER_BYTES)?..end),
        }
    }

    /// True if the fields at both ends are no ciphertext.
    fn is_in_the_clear(&self) -> bool {
        match self.layout.form {
            Form::Old => read_u32(self.candidate, KEY_VERSION) == 0,
            Form::FullCrc32 => {
                read_u32(self.candidate, KEY_VERSION_FULL_CRC32) == 0
                    && read_u16(self.candidate, PAGE_TYPE) & TYPE_COMPRESSED_MARK == 0
            }
            Form::Zip => false,
        }
    }

    fn sectors(&self) -> impl DoubleEndedIterator<Item = bool> + ExactSizeIterator {
        let pairs = self.damaged.chunks(SECTOR).zip(self.candidate.chunks(SECTOR));
        pairs.map(|(one, two)| one == two)
    }

    fn is_mostly_the_same(&self) -> bool {
        let (same, all) = (self.sectors().filter(|same| *same).count(), self.sectors().len());
        let other = all.saturating_sub(same);
        self.damaged.len() == self.candidate.len() && other.saturating_mul(DIFFERENT_SHARE) <= all
    }

    /// The low half of the LSN at the end of a page.
    fn low_lsn(&self, page: &[u8]) -> u32 {
        match self.layout.form {
            Form::FullCrc32 => trailer_first(page),
            Form::Old | Form::Zip => trailer_second(page),
        }
    }

    /// The beginning is the copy's: the first sectors are, and the end is of no later version.
    fn is_torn_behind(&self) -> bool {
        let lsn = read_u64(self.candidate, LSN);
        let has_sum = self.layout.form == Form::Old;
        let is_one_history = self.shared.start < lsn && lsn <= self.shared.end;
        // The next position behind the copy's that has these low bits.
        let ahead = self.low_lsn(self.damaged).wrapping_sub(self.low_lsn(self.candidate));
        let may_be_newer = lsn
            .checked_add(u64::from(ahead))
            .is_none_or(|next| next > lsn && next <= self.checkpoint);
        // The same low bits, and another sum: nothing says of which version the end is.
        let is_unclear = ahead == 0 && !self.is_mostly_the_same();
        self.is_in_the_clear()
            && self.damaged.len() == self.candidate.len()
            && (has_sum || is_one_history)
            && !may_be_newer
            && !is_unclear
            && self.sectors().next() == Some(true)
    }

    /// The end is the copy's: the last sectors are, and the beginning is of no later version.
    fn is_torn_before(&self) -> bool {
        let (ours, theirs) = (read_u64(self.damaged, LSN), read_u64(self.candidate, LSN));
        let has_sum = match self.layout.form {
            Form::FullCrc32 => true,
            Form::Old => read_u32(self.candidate, CHECKSUM) == trailer_first(self.candidate),
            Form::Zip => false,
        };
        let is_old = ours < theirs || ours == theirs && self.is_mostly_the_same();
        self.is_in_the_clear()
            && self.has_no_unsummed_field()
            && self.damaged.len() == self.candidate.len()
            && has_sum
            && is_old
            && self.sectors().next_back() == Some(true)
    }

    /// In the old layout no sum covers the eight bytes before the tablespace's number. Servers have
    /// nothing there but on the first page of the system tablespace, where they note an LSN when they
    /// are shut down, and on pages of spatial indexes.
    fn has_no_unsummed_field(&self) -> bool {
        let id = (read_u32(self.candidate, SPACE_ID), read_u32(self.candidate, PAGE_NUMBER));
        self.layout.form == Form::FullCrc32
            || id != (0, 0) && read_u64(self.candidate, KEY_VERSION) == 0
    }

    /// What is known of the versions, in words.
    fn lsns(&self) -> String {
        let theirs = read_u64(self.candidate, LSN);
        let ours = read_u64(self.damaged, LSN);
        let is_possible = ours > 0 && ours <= self.checkpoint;
        let ours = match is_possible {
            true => format!("the damaged page says LSN {ours}"),
            false => "the damaged page says no LSN that can be".to_owned(),
        };
        format!(
            "this version has LSN {theirs}, {ours}, and the log ends at {}; what was changed in between is lost",
            self.checkpoint
        )
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;
    use crate::checksum::{crc32, full_crc32};

    const PAGE: usize = 16_384;

    fn page(form: Form, lsn: u64, fill: u8) -> Vec<u8> {
        let mut page = vec![fill; PAGE];
        page[..38].fill(0);
        page[7] = 9;
        page[LSN..LSN + 8].copy_from_slice(&lsn.to_be_bytes());
        page[PAGE_TYPE..PAGE_TYPE + 2].copy_from_slice(&17_855_u16.to_be_bytes());
        let low = lsn.to_be_bytes();
        match form {
            Form::FullCrc32 => {
                page[PAGE - 8..PAGE - 4].copy_from_slice(&low[4..]);
                let sum = full_crc32(&page).to_be_bytes();
                page[PAGE - 4..].copy_from_slice(&sum);
            }
            _ => {
                page[PAGE - 4..].copy_from_slice(&low[4..]);
                let sum = crc32(&page).to_be_bytes();
                page[..4].copy_from_slice(&sum);
                page[PAGE - 8..PAGE - 4].copy_from_slice(&sum);
            }
        }
        page
    }

    fn is_exact(form: Form, damaged: &[u8], candidate: &[u8], shared: Range<u64>) -> bool {
        let layout = Layout::guessed(form, PAGE);
        let pair = Pair { layout: &layout, damaged, candidate, checkpoint: 10_000_000_000, shared };
        matches!(pair.judge(), Worth::Exact(_))
    }

    #[test]
    fn flipped_bits_leave_the_version_to_be_seen_unless_they_hit_it() {
        for form in [Form::Old, Form::FullCrc32] {
            let sound = page(form, 9_000_000_000, 3);
            for at in 0..PAGE * 8 {
                let mut damaged = sound.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                let other = page(form, 9_000_000_000, 4);
                assert!(!is_exact(form, &damaged, &other, 0..0), "{form:?}, {at}");
                let older = page(form, 8_999_999_999, 3);
                assert!(!is_exact(form, &damaged, &older, 0..10_000_000_000), "{form:?}, {at}");
                if (40 * 8..(PAGE - 8) * 8).contains(&at) {
                    assert!(is_exact(form, &damaged, &sound, 0..0), "{form:?}, {at}");
                }
            }
        }
    }

    #[test]
    fn every_mixture_of_two_versions_is_the_newer_or_nothing() {
        for form in [Form::Old, Form::FullCrc32] {
            // Also so far apart that the low halves turn over.
            for before in [8_999_999_000_u64, 9_000_000_000 - (3 << 30), 7] {
                let (old, new) = (page(form, before, 3), page(form, 9_000_000_000, 4));
                for cut in 1..PAGE / SECTOR {
                    let cut = cut * SECTOR;
                    let begun = [&new[..cut], &old[cut..]].concat();
                    let ended = [&old[..cut], &new[cut..]].concat();
                    for damaged in [&begun, &ended] {
                        assert!(
                            !is_exact(form, damaged, &old, 0..10_000_000_000),
                            "{before} {cut}"
                        );
                    }
                    let is_sure = form == Form::Old;
                    assert_eq!(is_exact(form, &begun, &new, 0..0), is_sure);
                    assert!(is_exact(form, &begun, &new, 0..9_000_000_000));
                    assert!(is_exact(form, &ended, &new, 0..0));
                }
            }
        }
    }

    /// Seen on MySQL 9.7: the server notes an LSN there when it is shut down, and the page's own stays.
    #[test]
    fn first_page_of_the_system_tablespace_has_bytes_that_no_sum_covers() {
        let mut sound = page(Form::Old, 9_000_000_000, 3);
        let damaged = [&[0xE7; 512], &sound[512..]].concat();
        let damaged = [&[0; 38], &damaged[38..]].concat();
        assert!(is_exact(Form::Old, &damaged, &sound, 0..0));
        sound[4..8].fill(0);
        assert!(!is_exact(Form::Old, &damaged, &sound, 0..0));
    }

    #[test]
    fn what_says_nothing_proves_nothing() {
        for form in [Form::Old, Form::FullCrc32, Form::Zip] {
            let sound = page(form, 9_000_000_000, 3);
            let mut misplaced = page(form, 9_000_000_000, 7);
            misplaced[7] = 8;
            for damaged in [vec![0; PAGE], vec![0xE7; PAGE], misplaced] {
                assert!(!is_exact(form, &damaged, &sound, 0..10_000_000_000), "{form:?}");
            }
        }
        let zip = page(Form::Zip, 9_000_000_000, 3);
        let mut damaged = zip.clone();
        damaged[5000] ^= 1;
        assert!(!is_exact(Form::Zip, &damaged, &zip, 0..10_000_000_000));
    }
}
