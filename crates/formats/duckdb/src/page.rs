//! The blocks of a DuckDB database.
//!
//! | block | what is judged |
//! |---|---|
//! | in use | its sum: damage if it does not fit; an all-zero block never fits |
//! | free, or behind the last one that the header counts | nothing: DuckDB reads none of it, and a crash may leave anything there; it is in no count |
//! | the same, with a log beside the database | its sum, since the log may put the block in use: a notice if it does not fit, since a crash may leave it so |
//! | any, where the list of free blocks is unreadable | its sum: suspect if it does not fit |
//! | of an encrypted database | nothing: `unverifiable` without the key |
//!
//! What the sum does not detect, by its design: a sound block in the place of another, an older
//! version of a block, words of 8 bytes that change places inside a block.

#![deny(clippy::arithmetic_side_effects)]

use std::fmt;
use std::sync::Arc;

use crate::checksum::{computed_sum, fits, flipped_bit, stamp, stored_sum};
use pagewarden_core::page::{Neighbours, PageFinding, PageFormat, PageRun, RunVerdict, Specimen};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};

/// Which blocks of a database are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUse {
    /// Blocks that the header counts; later ones are in no use.
    pub block_count: u64,
    /// Those of them that are free, ascending; `None` if the list is unreadable.
    pub free: Option<Vec<u64>>,
    /// The block of the list at which it is unreadable: whatever else is free, this one is in use.
    pub broken_list: Option<u64>,
}

impl InUse {
    /// True if a block holds data, false if not, `None` if that is not known.
    #[must_use]
    pub fn has(&self, block: u64) -> Option<bool> {
        if self.broken_list == Some(block) {
            return Some(true);
        }
        if block >= self.block_count {
            return self.free.as_ref().map(|_| false);
        }
        self.free.as_ref().map(|free| free.binary_search(&block).is_err())
    }

    /// One past the last block that is known to hold data.
    #[must_use]
    pub fn end(&self) -> u64 {
        let Some(free) = &self.free else {
            return self.broken_list.map_or(0, |block| block.saturating_add(1));
        };
        // DuckDB cuts free blocks off the end of a file after it has counted them.
        let free = free.iter().rev().filter(|block| **block < self.block_count);
        free.fold(
            self.block_count,
            |end, block| if block.checked_add(1) == Some(end) { *block } else { end },
        )
    }
}

/// Says which blocks are in use by now, while a program has the database open.
pub trait InUseNow: Send + Sync + fmt::Debug {
    /// As [`InUse::has`].
    fn has(&self, block: u64) -> Option<bool>;
}

/// The blocks of one DuckDB database.
#[derive(Debug)]
pub struct DuckDbPages {
    /// Bytes in a block with its sum: a power of two from 16 KiB to 256 KiB.
    pub block_size: usize,
    /// The blocks need a key: nothing can be verified.
    pub is_encrypted: bool,
    /// Which blocks hold data.
    pub in_use: InUse,
    /// There is a log beside the database, which may use blocks that the header calls free.
    pub has_log: bool,
    /// Asked before a block is called damaged; `None` if the file is at rest.
    pub now: Option<Arc<dyn InUseNow>>,
}

const UNKNOWN: &str = "the list of free blocks is unreadable: the block may be free";
const LOGGED: &str =
    "a free block, which a crash may have left half written, or the log put in use";

impl DuckDbPages {
    fn judge_block(&self, number: PageNo, block: &[u8], verdict: &mut RunVerdict) {
        if self.is_encrypted {
            return verdict.pass(Standing::Unverifiable, Protection::Checksum);
        }
        let is_used = self.in_use.has(number.0);
        if is_used == Some(false) && !self.has_log {
            return verdict.skip();
        }
        if fits(block) {
            return verdict.pass(Standing::Ok, Protection::Checksum);
        }
        let is_zero = block.iter().all(|byte| *byte == 0);
        let (severity, detail) = match is_used {
            Some(false) if is_zero => return verdict.empty(),
            Some(false) => (Severity::Notice, Some(LOGGED)),
            None => (Severity::Suspect, Some(UNKNOWN)),
            Some(true) => match self.now.as_ref().map(|now| now.has(number.0)) {
                Some(Some(false)) => return verdict.skip(),
                Some(None) => (Severity::Suspect, Some(UNKNOWN)),
                Some(Some(true)) | None => (Severity::Damage, None),
            },
        };
        let kind = if is_zero { Kind::Zeroed } else { Kind::Checksum };
        let finding = PageFinding {
            stored: stored_sum(block).map(|sum| format!("{sum:016x}")),
            computed: Some(format!("{:016x}", computed_sum(block))),
            detail: detail.map(str::to_owned),
            ..PageFinding::failed(number, severity, kind)
        };
        verdict.fail(Protection::Checksum, finding);
    }
}

impl PageFormat for DuckDbPages {
    fn page_size(&self) -> usize {
        self.block_size
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let blocks = run.bytes.chunks_exact(self.block_size.max(1));
        for (block, index) in blocks.zip(0_u64..) {
            self.judge_block(run.first.plus(index), block, verdict);
        }
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, _: &dyn Neighbours) {
        if finding.kind != Kind::Checksum {
            return;
        }
        if let Some(words) = flip_in_words(page) {
            finding.kind = Kind::BitFlip;
            finding.detail = Some(match finding.detail.take() {
                Some(detail) => format!("{words}; {detail}"),
                None => words,
            });
        }
    }
}

/// The flipped bit that explains a sum that does not fit, for people.
#[must_use]
pub fn flip_in_words(area: &[u8]) -> Option<String> {
    let flip = flipped_bit(area)?;
    let (byte, bit) = (flip.byte, flip.bit);
    Some(match flip.candidates {
        1 => format!("one flipped bit explains it: bit {bit} of byte {byte}"),
        more => format!(
            "one flipped bit explains it: bit {bit} of byte {byte}, or of one of {} other bytes \
             that the sum does not distinguish",
            more.saturating_sub(1)
        ),
    })
}

const SPECIMEN_BYTES: usize = 16_384;

/// Pages for the conformance suite.
pub fn specimens() -> Vec<Specimen> {
    let pages = |is_encrypted| DuckDbPages {
        block_size: SPECIMEN_BYTES,
        is_encrypted,
        in_use: InUse { block_count: u64::MAX, free: Some(Vec::new()), broken_list: None },
        has_log: false,
        now: None,
    };
    let mut good: Vec<u8> = (0..SPECIMEN_BYTES)
        .map(|at| u32::try_from(at).unwrap_or(0).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    stamp(&mut good);
    vec![Specimen {
        name: "duckdb block",
        format: Box::new(pages(false)),
        page: PageNo(2),
        good,
        standing: Standing::Ok,
        stamp: Some(|block, _| stamp(block)),
        blind_bytes: Vec::new(),
        blind_bits: Vec::new(),
        zero: Standing::Damaged,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = SPECIMEN_BYTES;

    fn pages(free: Option<Vec<u64>>) -> DuckDbPages {
        DuckDbPages {
            block_size: SIZE,
            is_encrypted: false,
            in_use: InUse { block_count: 10, free, broken_list: None },
            has_log: false,
            now: None,
        }
    }

    fn judge(format: &DuckDbPages, number: u64, block: &[u8]) -> RunVerdict {
        let mut verdict = RunVerdict::default();
        format.judge(PageRun { first: PageNo(number), bytes: block }, &mut verdict);
        verdict
    }

    fn severity(format: &DuckDbPages, number: u64, block: &[u8]) -> Option<Severity> {
        judge(format, number, block).findings.first().map(|finding| finding.severity)
    }

    #[test]
    fn only_blocks_in_use_are_damage() {
        let noise = [0xA5; SIZE];
        let format = pages(Some(vec![3, 9]));
        assert_eq!(severity(&format, 2, &noise), Some(Severity::Damage));
        for number in [3, 9, 10, 99] {
            let verdict = judge(&format, number, &noise);
            assert_eq!((verdict.counts.total(), verdict.findings.len()), (0, 0), "{number}");
        }
        let logged = DuckDbPages { has_log: true, ..pages(Some(vec![3])) };
        assert_eq!(severity(&logged, 3, &noise), Some(Severity::Notice));
        assert_eq!(judge(&logged, 3, &[0; SIZE]).counts.empty, 1);
        assert_eq!(severity(&pages(None), 3, &noise), Some(Severity::Suspect));
        let locked = DuckDbPages { is_encrypted: true, ..pages(None) };
        assert_eq!(judge(&locked, 3, &noise).counts.unverifiable, 1);
    }

    #[test]
    fn block_that_a_running_program_has_freed_is_no_damage() {
        #[derive(Debug)]
        struct Freed;
        impl InUseNow for Freed {
            fn has(&self, block: u64) -> Option<bool> {
                Some(block != 5)
            }
        }
        let format = DuckDbPages { now: Some(Arc::new(Freed)), ..pages(Some(Vec::new())) };
        assert_eq!(severity(&format, 5, &[0; SIZE]), None);
        assert_eq!(severity(&format, 6, &[0; SIZE]), Some(Severity::Damage));
    }

    #[test]
    fn free_blocks_at_the_end_may_be_cut_off() {
        let end = |free| InUse { block_count: 10, free, broken_list: None }.end();
        assert_eq!(end(Some(vec![])), 10);
        assert_eq!(end(Some(vec![2, 7, 8, 9])), 7);
        assert_eq!(end(Some((0..10).collect())), 0);
        assert_eq!(end(None), 0);
    }
}
