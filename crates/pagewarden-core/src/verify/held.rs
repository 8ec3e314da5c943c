//! Findings of a streamed target that wait for its end: only there is it known
//! what its pages were to be tested by, and what a failing one proves.
//!
//! Kept in memory up to 256 KiB and in an unnamed temporary file beyond. In a
//! database whose pages turn out to carry no sums every single page may be
//! here, all for nothing, so that there is a limit past which they are counted
//! only.

use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};

use serde::{Deserialize, Serialize};
use tempfile::SpooledTempFile;

use crate::database::Settled;
use crate::page::Unsettled;
use crate::verdict::{Finding, PageCounts, Severity, Standing};

const IN_MEMORY: usize = 256 << 10;
/// Pages (2 GiB of damage) past which a list of them is of no use.
const LISTED_MAX: u64 = 250_000;

/// A finding that waits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) finding: Finding,
    pub(super) unsettled: Unsettled,
}

/// See the module.
#[derive(Debug)]
pub(super) struct HeldFindings {
    listed: SpooledTempFile,
    listed_count: u64,
    /// Pages past the limit that failed on account of their sums alone.
    more_by_sum: u64,
    /// Other pages past the limit.
    more: u64,
}

impl HeldFindings {
    pub(super) fn new() -> Self {
        Self { listed: SpooledTempFile::new(IN_MEMORY), listed_count: 0, more_by_sum: 0, more: 0 }
    }

    pub(super) fn add(&mut self, held: &Held) -> io::Result<()> {
        if self.listed_count >= LISTED_MAX {
            let more =
                if held.unsettled.by_sum_alone { &mut self.more_by_sum } else { &mut self.more };
            *more += 1;
            return Ok(());
        }
        self.listed_count += 1;
        serde_json::to_writer(&mut self.listed, held)?;
        self.listed.write_all(b"\n")
    }

    /// Hands on what stands, in its order, and counts the pages anew, which
    /// were `Suspect` until now; each is reported, in the same order.
    pub(super) fn settle(
        &mut self,
        settled: &Settled,
        counts: &mut PageCounts,
        found: &mut dyn FnMut(Finding),
        recounted: &mut dyn FnMut(Standing),
    ) -> io::Result<()> {
        let mut held = std::mem::replace(self, Self::new());
        held.listed.flush()?;
        held.listed.seek(SeekFrom::Start(0))?;
        for line in BufReader::new(&mut held.listed).lines() {
            let Held { mut finding, unsettled } = serde_json::from_str(&line?)?;
            counts.remove(Standing::Suspect);
            if unsettled.by_sum_alone && !settled.has_sums {
                counts.add(Standing::Unprotected);
                recounted(Standing::Unprotected);
                continue;
            }
            (settled.judge)(&mut finding, &unsettled);
            counts.add(Standing::of_failed(finding.severity));
            recounted(Standing::of_failed(finding.severity));
            found(finding);
        }
        if !settled.has_sums {
            for _ in 0..held.more_by_sum {
                counts.remove(Standing::Suspect);
                counts.add(Standing::Unprotected);
            }
            held.more_by_sum = 0;
        }
        let more = held.more.saturating_add(held.more_by_sum);
        if more > 0 {
            let detail = format!("{more} more pages failed their test, too many to list them");
            let kind = crate::verdict::Kind::Checksum;
            found(Finding::of_file("", Severity::Suspect, kind, detail));
        }
        Ok(())
    }
}

impl HeldFindings {
    /// Hands on what waits for an end that does not come, unless it looks as if
    /// pages carried no sums at all.
    pub(super) fn give_up(
        &mut self,
        passed: u64,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let mut held = std::mem::replace(self, Self::new());
        if passed < held.listed_count {
            return Ok(());
        }
        held.listed.seek(SeekFrom::Start(0))?;
        for line in BufReader::new(&mut held.listed).lines() {
            found(serde_json::from_str::<Held>(&line?)?.finding);
        }
        Ok(())
    }
}
