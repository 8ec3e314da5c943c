//! What proves that a page of a copy is the version that the database wrote last.
//!
//! A SQLite database has no log positions and no names of its own, so equal headers alone prove
//! nothing about one page:
//!
//! | history | what is equal all the same |
//! | --- | --- |
//! | a transaction in the write-ahead log mode that does not write page 1 | the change counter, all of page 1 |
//! | the second transaction of a program that keeps the lock (`locking_mode=EXCLUSIVE`) | the same: the counter is raised once |
//! | two copies of one backup, each changed by as many transactions | both counters, and all pages but those that were changed |
//!
//! So first of all the files must be in one state as far as can be seen: as many pages, and every
//! page that is sound in both is the same, byte for byte. Then one of these must hold for the page:
//!
//! | rule | what must be so |
//! | --- | --- |
//! | by time | both files were last written at the same nanosecond, as copies that keep times say; the copy was made clearly later. What changed the page did not come through the file system |
//! | by sum | the damaged page still carries the 64-bit sum that fits the candidate; the database is in rollback mode, where each transaction raises the counter |
//!
//! Sums of torn page detection are no such sum: they are eight sums of eight bits.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::checksum::page_verify::{Marker, Mode, stored_digest};
use crate::checksum::{PageSum, stored_sum};
use crate::files::wal::view::View;
use crate::page::header::{DatabaseHeader, HEADER_BYTES};
use crate::repair::pages::Pages;
use crate::repair::source::Source;
use pagewarden_core::error::Error;
use pagewarden_core::repair::candidate::Worth;
use pagewarden_core::repair::copies::Moment;
use pagewarden_core::system::MetadataExt as _;
use pagewarden_core::words::counted;

/// In a copy of this database, at least one in this number of compared pages is the same.
const KIN_SHARE: u64 = 4;

/// A copy, compared with the database page by page.
#[derive(Debug, Clone)]
pub(super) struct Against {
    pub(super) theirs: DatabaseHeader,
    /// Where page 1 is no wound.
    ours: Option<DatabaseHeader>,
    /// Of pages behind the first that are sound in both.
    same: u64,
    other: u64,
    /// The first of the others.
    first_other: Option<u32>,
    is_as_long: bool,
    first_page: FirstPage,
    is_same_schema: bool,
    is_same_moment: bool,
    /// Something was written to the log that is not known.
    is_log_broken: bool,
}

/// Page 1 of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstPage {
    Same,
    /// Damaged here, but with the sum of the copy's, and the same counters.
    SameBySum,
    Other,
}

impl Against {
    pub(super) fn compare(
        ours: &Pages,
        source: &Source,
        wounded: &HashSet<u32>,
        log: Option<&View>,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::io("read", Path::new(&source.name), error);
        let (mut same, mut other, mut first_other) = (0_u64, 0_u64, None);
        let theirs = &source.pages;
        for number in 2..=ours.count().min(theirs.count()) {
            if wounded.contains(&number) || source.is_suspected(number) {
                continue;
            }
            let (Some(one), Some(two)) =
                (ours.read(number).map_err(failed)?, theirs.read(number).map_err(failed)?)
            else {
                continue;
            };
            if one == two {
                same = same.saturating_add(1);
            } else {
                other = other.saturating_add(1);
                first_other = first_other.or(Some(number));
            }
        }
        let one = ours.read(1).map_err(failed)?.unwrap_or_default();
        let two = theirs.read(1).map_err(failed)?.unwrap_or_default();
        let first_page = if one == two {
            FirstPage::Same
        } else if wounded.contains(&1)
            && has_sum_of(ours, &one, &two)
            && has_counters_of(&one, &two)
        {
            FirstPage::SameBySum
        } else {
            FirstPage::Other
        };
        let moment = |pages: &Pages| -> io::Result<Moment> {
            let metadata = pages.file.metadata()?;
            Ok((metadata.mtime(), metadata.mtime_nsec()))
        };
        let is_same_moment = source.written == Some(moment(ours).map_err(failed)?);
        Ok(Self {
            theirs: source.header,
            ours: DatabaseHeader::parse(&one).filter(|_| !wounded.contains(&1)),
            same,
            other,
            first_other,
            is_as_long: ours.bytes == theirs.bytes,
            first_page,
            is_same_schema: one.get(HEADER_BYTES..) == two.get(HEADER_BYTES..),
            is_same_moment,
            is_log_broken: log.is_some_and(|log| log.is_broken),
        })
    }

    /// Refuses a copy that shares too little with the database to be one of it.
    pub(super) fn check_kin(&self, path: &Path) -> Result<(), Error> {
        let schema = u64::from(self.is_same_schema || self.first_page != FirstPage::Other);
        let same = self.same.saturating_add(schema);
        let all = same.saturating_add(self.other).saturating_add(1 - schema);
        if same.saturating_mul(KIN_SHARE) >= all {
            return Ok(());
        }
        let reason = format!(
            "a copy of another database, or of one that was made anew since: {same} of {all} pages are the same"
        );
        Err(Error::refused(path, reason, "name a copy of the database as it is now"))
    }

    /// What a page of the copy is worth, that passed its own test.
    pub(super) fn worth(&self, ours: &Pages, number: u32, old: &[u8], page: &[u8]) -> Worth {
        let is_first = number == 1;
        if let Some(why) = self.difference(is_first) {
            return Worth::Older(why);
        }
        if self.is_log_broken {
            return Worth::Older(
                "the database's own log is broken: commits may be lost".to_owned(),
            );
        }
        if self.is_same_moment {
            return Worth::Exact(format!(
                "both files were last written at the same nanosecond, and {} are the same",
                counted(self.same, "other page")
            ));
        }
        let rolls_back = self.theirs.write_version == 1 && self.theirs.read_version == 1;
        let is_counted = self.theirs.change_counter == self.theirs.version_valid_for;
        let is_one_state = rolls_back && is_counted && self.first_page != FirstPage::Other;
        if is_one_state && has_sum_of(ours, old, page) {
            return Worth::Exact(format!(
                "the damaged page carries this page's 64-bit checksum; change counter {} in both, and {} are the same",
                self.theirs.change_counter,
                counted(self.same, "other page")
            ));
        }
        Worth::Older(
            "all other pages and both headers are the same, but neither the times of the files nor a \
             checksum on the damaged page shows that this page was not written since"
                .to_owned(),
        )
    }

    /// In what the copy is another state than the database, if it is seen to be.
    fn difference(&self, is_first: bool) -> Option<String> {
        let since = || {
            let counter = self.ours?.change_counter.wrapping_sub(self.theirs.change_counter);
            match i32::try_from(counter) {
                Ok(0) => {
                    Some("by the change counter, the database had no transaction since".into())
                }
                Ok(1..) => Some(format!(
                    "by the change counter, the database had {} since",
                    counted(u64::from(counter), "transaction")
                )),
                _ => Some("by the change counter, the copy is newer or went its own way".into()),
            }
        };
        let what = if !self.is_as_long {
            "the copy has another number of pages".to_owned()
        } else if let Some(page) = self.first_other {
            format!(
                "{} of {} that are sound in both differ, the first is page {page}",
                self.other,
                counted(self.same.saturating_add(self.other), "page")
            )
        } else if self.first_page == FirstPage::Other
            && !is_first
            && (self.ours.is_some() || !self.is_same_moment)
        {
            "the header pages differ".to_owned()
        } else {
            return None;
        };
        Some(since().map_or(what.clone(), |since: String| format!("{what}; {since}")))
    }
}

/// True if the damaged page carries the 64-bit sum that fits the candidate, which has passed.
fn has_sum_of(pages: &Pages, damaged: &[u8], candidate: &[u8]) -> bool {
    if pages.geometry.markers.is_some() {
        let is_summed = |page| Marker::read(page).filter(|marker| marker.mode == Mode::Checksum);
        return is_summed(candidate).is_some()
            && is_summed(damaged) == is_summed(candidate)
            && stored_digest(damaged) == stored_digest(candidate);
    }
    let sum = stored_sum(candidate);
    pages.geometry.has_sums && sum != PageSum(0) && stored_sum(damaged) == sum
}

/// True if both say that the same transaction was the last, and which pages there are. A program
/// without the checksum VFS leaves an old sum, but not old counters.
fn has_counters_of(damaged: &[u8], candidate: &[u8]) -> bool {
    [24..40, 92..96].into_iter().all(|range| {
        damaged.get(range.clone()).is_some_and(|bytes| Some(bytes) == candidate.get(range))
    })
}
