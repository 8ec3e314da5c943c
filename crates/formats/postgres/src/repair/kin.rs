//! Whether a copy's file is that of the relation, or another's under the same name.
//!
//! A page names neither its relation nor its database, and its checksum holds only its block's number.
//! So other pages of the file are asked: one that the cluster has not changed since the copy began must be
//! the same in both, hints aside. One that is not shows that the file is another's, or that the copy
//! failed to write. Where there is no other page, what is left of the damaged one must speak for the
//! candidate: most of its sectors must be the same. And where the damaged page still has a header with
//! an LSN that this cluster may have given it, another one in the candidate is an older version that
//! the copy kept: it failed to write the last one.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashSet;
use std::path::Path;

use crate::page::{Header, PostgresPages};
use crate::repair::fault;
use crate::repair::proof::{Copy, Worth};
use crate::repair::source::Source;
use pagewarden_core::page::PageFormat as _;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::words::{LsnText, counted};

const READ_BYTES: usize = 1 << 20;
/// The unit in which devices lose and mix what is written.
const SECTOR: usize = 512;

/// What the other pages of a file say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kin {
    same: u64,
    other: u64,
}

impl Kin {
    /// Compares a file, whose first block is `first`, with its copy. What cannot be read says nothing.
    pub(super) fn of(
        source: &Source,
        copy: &Copy,
        name: &str,
        path: &Path,
        layout: &PostgresPages,
        first: u64,
        wounded: &HashSet<(String, u64)>,
    ) -> Self {
        let mut kin = Self::default();
        let Ok(original) = open_regular(path) else { return kin };
        let Ok(Some(copied)) = source.file(name, Some(&original)) else { return kin };
        let whole = READ_BYTES.checked_rem(layout.page_size).unwrap_or(0);
        let mut buffers = [vec![0; READ_BYTES.saturating_sub(whole)], vec![]];
        let [ours, theirs] = &mut buffers;
        theirs.resize(ours.len(), 0);
        let mut offset = 0_u64;
        loop {
            let read = read_fully(&original, ours, offset)
                .and_then(|one| Ok(one.min(read_fully(&copied, theirs, offset)?)));
            let Ok(count) = read else { return kin };
            let pages = |bytes: &'_ [u8]| bytes.get(..count).unwrap_or_default().to_vec();
            let (one, other) = (pages(ours), pages(theirs));
            let pairs =
                one.chunks_exact(layout.page_size).zip(other.chunks_exact(layout.page_size));
            for (at, (ours, theirs)) in (0_u64..).zip(pairs) {
                let begin = offset.saturating_add(at.saturating_mul(layout.page_size as u64));
                if !wounded.contains(&(name.to_owned(), begin)) {
                    let page_size = (layout.page_size as u64).max(1);
                    let block = first.saturating_add(begin.checked_div(page_size).unwrap_or(0));
                    kin.add(ours, theirs, u32::try_from(block).unwrap_or(u32::MAX), copy, layout);
                }
            }
            if count < ours.len() {
                return kin;
            }
            offset = offset.saturating_add(count as u64);
        }
    }

    /// True if no page could be compared.
    pub(super) fn is_silent(&self) -> bool {
        self.same == 0 && self.other == 0
    }

    fn add(&mut self, ours: &[u8], theirs: &[u8], block: u32, copy: &Copy, layout: &PostgresPages) {
        let Some(own) = Header::read(ours) else { return };
        if own.upper == 0 || own.lsn > copy.since && !copy.is_same_state {
            return;
        }
        if layout.fingerprint(ours) == layout.fingerprint(theirs) {
            self.same = self.same.saturating_add(1);
        } else if fault(ours, block, layout).is_none() && fault(theirs, block, layout).is_none() {
            self.other = self.other.saturating_add(1);
        }
    }

    /// What a candidate is worth that is exact if it is of this relation; no page of the cluster is
    /// newer than `newest`.
    pub(super) fn judge(
        &self,
        why: String,
        damaged: &[u8],
        candidate: &[u8],
        layout: &PostgresPages,
        newest: u64,
    ) -> Worth {
        if self.other > 0 {
            let pages = counted(self.other, "other page");
            return Worth::Foreign(format!(
                "{pages} of this file differ from the cluster's, though the log did not change them: it is another relation's file, or the copy is damaged"
            ));
        }
        if let Some(lsn) = later_lsn(damaged, candidate, layout).filter(|lsn| *lsn <= newest) {
            return Worth::Older(format!(
                "its LSN is not {}, which the header of the damaged page still shows",
                LsnText(lsn)
            ));
        }
        match self.same > 0 || is_alike(damaged, candidate) {
            true => Worth::Exact(why),
            false => Worth::Older(format!(
                "{why}; but no other page, and nothing that is left of this one, shows that the copy's file is of the same relation"
            )),
        }
    }
}

/// The LSN of a damaged page whose header is sound and whose content is of the candidate's making, if
/// it is a later one.
fn later_lsn(damaged: &[u8], candidate: &[u8], layout: &PostgresPages) -> Option<u64> {
    let (own, other) = (Header::read(damaged)?, Header::read(candidate)?);
    let is_sound = own.upper > 0 && own.fault(layout.page_size, layout.max_align).is_none();
    (is_sound && own.lsn > other.lsn && is_alike(damaged, candidate)).then_some(own.lsn)
}

/// True if more than half of a damaged page is still what a candidate has there. What is zero in
/// both says nothing.
fn is_alike(damaged: &[u8], candidate: &[u8]) -> bool {
    let sectors = damaged.chunks(SECTOR).zip(candidate.chunks(SECTOR));
    let told = sectors.filter(|(_, one)| one.iter().any(|byte| *byte != 0));
    let (same, all) = told.fold((0_usize, 0_usize), |(same, all), (damaged, candidate)| {
        (same.saturating_add(usize::from(damaged == candidate)), all.saturating_add(1))
    });
    same.saturating_mul(2) > all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_page_speaks_for_a_candidate() {
        let candidate: Vec<u8> = (1..=16_u8).flat_map(|sector| [sector; SECTOR]).collect();
        let mut damaged = candidate.clone();
        assert!(is_alike(&damaged, &candidate));
        damaged[..7 * 512].fill(0xEE);
        assert!(is_alike(&damaged, &candidate));
        damaged[..8 * 512].fill(0xEE);
        assert!(!is_alike(&damaged, &candidate));
        // Zeros are no likeness.
        let mut sparse = vec![0; 8192];
        sparse[..512].fill(1);
        assert!(!is_alike(&vec![0; 8192], &sparse));
        assert!(!is_alike(&[], &candidate) && !is_alike(&vec![0; 8192], &vec![0; 8192]));
    }

    fn layout() -> PostgresPages {
        PostgresPages {
            page_size: 8192,
            max_align: 8,
            checksums: crate::page::Checksums::On,
            failure: pagewarden_core::verdict::Severity::Damage,
            recovery: None,
            log_end: None,
            is_logged: true,
        }
    }

    #[test]
    fn later_lsn_on_the_damaged_page_makes_the_candidate_older() {
        let dice = &mut pagewarden_core::testing::recorder::Dice(5);
        let candidate = crate::protect::tests::heap_page(dice);
        let mut damaged = candidate.clone();
        damaged[6000..6100].fill(1);
        let kin = Kin { same: 9, other: 0 };
        let judge =
            |damaged: &[u8]| kin.judge(String::new(), damaged, &candidate, &layout(), u64::MAX);
        assert!(matches!(judge(&damaged), Worth::Exact(_)));
        // A byte of the LSN's low half.
        damaged[7] = damaged[7].wrapping_add(1).max(1);
        let is_later = Header::read(&damaged).unwrap().lsn > Header::read(&candidate).unwrap().lsn;
        assert!(is_later && matches!(judge(&damaged), Worth::Older(_)));
        // Noise has no LSN, and a page that is another one's shows nothing.
        damaged[500..].fill(0xEE);
        assert!(matches!(judge(&damaged), Worth::Exact(_)));
    }

    #[test]
    fn one_page_that_differs_refuses_the_file() {
        let page = vec![1; 8192];
        let judge =
            |same, other| Kin { same, other }.judge(String::new(), &[], &page, &layout(), 0);
        assert!(matches!(judge(5, 0), Worth::Exact(_)));
        assert!(matches!(judge(5, 1), Worth::Foreign(_)));
        assert!(matches!(judge(0, 0), Worth::Older(_)));
    }
}
