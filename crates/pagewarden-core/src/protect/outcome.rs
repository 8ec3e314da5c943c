//! What comes out of a run, and what its threads gather for it.

use std::time::Duration;

use crate::protect::plan::Cost;
use crate::verdict::{ByteOffset, Finding, Kind, PageNo, Protection, Severity};

/// Pages that were looked at, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageTally {
    /// They carry what they are to carry now.
    pub changed: u64,
    /// They did before.
    pub right: u64,
    /// Never written: nothing to protect.
    pub empty: u64,
    /// Damaged, and left as they are.
    pub damaged: u64,
    /// Sound, but stored in a way that allows no change: left as they are.
    pub left: u64,
}

impl PageTally {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.changed, self.right, self.empty, self.damaged, self.left]
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl std::ops::AddAssign for PageTally {
    fn add_assign(&mut self, other: Self) {
        self.changed = self.changed.saturating_add(other.changed);
        self.right = self.right.saturating_add(other.right);
        self.empty = self.empty.saturating_add(other.empty);
        self.damaged = self.damaged.saturating_add(other.damaged);
        self.left = self.left.saturating_add(other.left);
    }
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The engine and its version.
    pub engine: String,
    /// How pages were protected before.
    pub before: Protection,
    /// How they were to be protected.
    pub wanted: Protection,
    /// How they are now: `wanted`, unless damage or a signal kept it from that.
    /// Of a copy, where one was made.
    pub after: Protection,
    /// Files of pages that were looked at.
    pub files: u64,
    /// Files that an earlier, interrupted run had finished.
    pub files_resumed: u64,
    /// Their pages, but for those of resumed files.
    pub pages: PageTally,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written to files of pages.
    pub bytes_written: u64,
    /// Bytes read back from the device after they were written.
    pub bytes_verified: u64,
    /// Damaged pages, in the order of the files.
    pub findings: Vec<Finding>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What fitting the other database instead would cost, where two were named.
    pub costs: Option<[Cost; 2]>,
    /// True if a signal ended the run before it was done.
    pub stopped: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// Of a database that nothing was done to yet.
    pub fn of(engine: String, before: Protection, wanted: Protection) -> Self {
        Self {
            engine,
            before,
            wanted,
            after: before,
            files: 0,
            files_resumed: 0,
            pages: PageTally::default(),
            bytes_read: 0,
            bytes_written: 0,
            bytes_verified: 0,
            findings: Vec::new(),
            warnings: Vec::new(),
            costs: None,
            stopped: false,
            elapsed: Duration::ZERO,
        }
    }

    /// Adds what the threads have done.
    pub fn add(&mut self, worked: Worked) {
        let sums = [
            (&mut self.files, worked.files),
            (&mut self.files_resumed, worked.files_resumed),
            (&mut self.bytes_read, worked.bytes_read),
            (&mut self.bytes_written, worked.bytes_written),
            (&mut self.bytes_verified, worked.bytes_verified),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.pages += worked.pages;
        self.findings.extend(worked.findings);
    }
}

/// What the threads of a run have done; the fields are those of [`Outcome`].
#[derive(Debug, Default)]
pub struct Worked {
    /// Files that were done.
    pub files: u64,
    /// Those that an earlier run had done.
    pub files_resumed: u64,
    /// Their pages.
    pub pages: PageTally,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Bytes that were read back.
    pub bytes_verified: u64,
    /// What was wrong.
    pub findings: Vec<Finding>,
}

impl Worked {
    /// Threads find in any order; what is reported is in that of the files' names.
    pub fn sort_findings(&mut self) {
        self.findings.sort_by(|a, b| {
            let key = |finding: &Finding| finding.place.page.map(|page| page.0);
            (&a.place.file, key(a)).cmp(&(&b.place.file, key(b)))
        });
    }
}

/// A damaged page, which begins at `offset` in its file.
pub fn damage(file: &str, page: u64, offset: u64, kind: Kind, detail: String) -> Finding {
    Finding::of_file(file, Severity::Damage, kind, detail)
        .at(Some(PageNo(page)), Some(ByteOffset(offset)))
}
