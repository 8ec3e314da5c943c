//! The work on the tablespaces: read, judge, stamp, replace.
//!
//! Threads take whole tablespaces, large ones first, so that a name changes only when its file is
//! complete. A file in which nothing changes is not written.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::files::tablespace::Tablespace;
use crate::page::stamp::{Stamped, Why};
use crate::protect::files::{Entry, Group, Listing, open};
use crate::protect::lock::Locks;
use crate::protect::replace::{Replacement, Tools};
use pagewarden_core::error::Error;
use pagewarden_core::protect::batch::Batch;
use pagewarden_core::protect::disk::{remove, sync_folder};
use pagewarden_core::protect::journal::{Done, Journal, Stamp};
use pagewarden_core::protect::outcome::{Worked, damage};
use pagewarden_core::protect::threads::{Threads, lock};
use pagewarden_core::protect::{PageTally, stretches};
use pagewarden_core::source::buffer::AlignedBuffer;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::system::MetadataExt as _;
use pagewarden_core::verdict::{Finding, Kind};
use pagewarden_core::verify::Progress;

/// Files that wait for their folders to be synced.
pub(super) const BATCH_FILES: usize = 64;
/// Memory of this size asks for huge pages.
const HUGE_BYTES: usize = 2 << 20;

/// What is to be done to all tablespaces of a listing.
pub(super) struct Work<'a> {
    pub(super) tools: Tools<'a>,
    pub(super) progress: &'a dyn Progress,
    pub(super) listing: &'a Listing,
    /// Nothing is written.
    pub(super) dry_run: bool,
    /// Damage does not keep a file from being changed.
    pub(super) skip_damaged: bool,
    /// The folder of a copy that is being made.
    pub(super) copy: Option<&'a Path>,
    /// What keeps servers away while files are replaced.
    pub(super) locks: Option<&'a Locks>,
    /// What an earlier run had finished.
    pub(super) done: Option<Done>,
    pub(super) journal: Option<Mutex<Journal<'a>>>,
    pub(super) batch_files: usize,
}

/// What came out of it.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) worked: Worked,
    /// Pages that were left, by reason.
    pub(super) left: LeftTally,
    /// Files that stay as they are because of damage in them.
    pub(super) files_kept: u64,
    /// Files with another name elsewhere, which keeps the former bytes.
    pub(super) links: u64,
}

/// Pages that were left, by reason.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftTally {
    pub(super) copies: u64,
    pub(super) compressed: u64,
    pub(super) encrypted: u64,
    /// In files that stay as they are.
    pub(super) kept: u64,
}

impl LeftTally {
    fn total(self) -> u64 {
        [self.copies, self.compressed, self.encrypted, self.kept]
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn add(&mut self, why: Why) {
        let count = match why {
            Why::Copy => &mut self.copies,
            Why::Compressed => &mut self.compressed,
            Why::Encrypted => &mut self.encrypted,
        };
        *count = count.saturating_add(1);
    }
}

struct Shared<'a, 'w> {
    work: &'a Work<'w>,
    next: AtomicUsize,
    result: Mutex<Totals>,
    /// Files that have their place, in folders that are not synced: name and path.
    batch: Batch<(String, PathBuf)>,
    threads: Threads<'a>,
}

impl Work<'_> {
    /// Does it. Findings come in the order of the files' names.
    pub(super) fn run(&self) -> Result<Totals, Error> {
        let shared = Shared {
            work: self,
            next: AtomicUsize::new(0),
            result: Mutex::default(),
            batch: Batch::new(self.batch_files, u64::MAX),
            threads: Threads::new(&self.tools.options.stop),
        };
        let count = self.tools.options.jobs.get().min(self.listing.groups.len().max(1));
        let worked = shared.threads.run(count, || shared.work());
        // Also when the run is to stop, or failed: it is little, and need not be done again.
        let settled = shared.settle(&shared.batch.take());
        worked.and(settled)?;
        let mut result = std::mem::take(&mut *lock(&shared.result));
        result.worked.sort_findings();
        Ok(result)
    }

    /// Where what becomes of a file is made.
    fn target(&self, entry: &Entry) -> PathBuf {
        match self.copy {
            Some(folder) => folder.join(&entry.name),
            None => entry.replacement(),
        }
    }
}

impl Shared<'_, '_> {
    fn work(&self) -> Result<(), Error> {
        let mut memory = AlignedBuffer::new(HUGE_BYTES.max(self.work.tools.run_bytes));
        while let Some(group) = self.next() {
            if self.was_done(group) {
                continue;
            }
            open(group, |entry, opened| {
                if self.threads.must_stop() {
                    return Ok(());
                }
                lock(&self.result).worked.files += 1;
                Current::new(self, entry, opened)?.run(memory.bytes_mut())
            })?;
        }
        Ok(())
    }

    fn next(&self) -> Option<&Group> {
        if self.threads.must_stop() {
            return None;
        }
        self.work.listing.groups.get(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// True if an earlier run finished all files of a tablespace, and they are as it left them.
    fn was_done(&self, group: &Group) -> bool {
        let Some(done) = &self.work.done else { return false };
        let is_done = |entry: &Entry| {
            let stamp = std::fs::symlink_metadata(&entry.path).ok();
            let stamp = stamp.map(|metadata| Stamp::of(&metadata));
            stamp.is_some() && done.get(&entry.name) == stamp.as_ref()
        };
        if !group.iter().all(is_done) {
            return false;
        }
        let mut result = lock(&self.result);
        for entry in group {
            result.worked.files += 1;
            result.worked.files_resumed += 1;
            self.work.progress.advance(entry.length);
        }
        true
    }

    /// A file is as it is to be.
    fn finished(&self, entry: &Entry) -> Result<(), Error> {
        if self.work.dry_run || self.work.copy.is_some() {
            return Ok(());
        }
        self.settle(&self.batch.add((entry.name.clone(), entry.path.clone()), entry.length))
    }

    /// Makes the new names durable, and says so.
    fn settle(&self, batch: &[(String, PathBuf)]) -> Result<(), Error> {
        let Tools { disk, options, .. } = self.work.tools;
        let folders: BTreeSet<_> = batch.iter().filter_map(|(_, path)| path.parent()).collect();
        folders.into_iter().try_for_each(|folder| sync_folder(disk, options, folder))?;
        let Some(journal) = &self.work.journal else { return Ok(()) };
        for (name, path) in batch {
            let recorded = std::fs::symlink_metadata(path)
                .and_then(|metadata| lock(journal).record(name, Stamp::of(&metadata)));
            recorded.map_err(|error| Error::io("write the journal of", path, error))?;
        }
        Ok(())
    }
}

/// A file while it is worked on.
struct Current<'a, 'b, 'w> {
    shared: &'a Shared<'b, 'w>,
    entry: &'a Entry,
    opened: &'a Tablespace,
    original: File,
    like: Metadata,
    replacement: Option<Replacement<'b>>,
    /// It stays as it is.
    is_kept: bool,
    tally: PageTally,
    left: LeftTally,
    findings: Vec<Finding>,
    bytes_read: u64,
}

impl<'a, 'b, 'w: 'b> Current<'a, 'b, 'w> {
    fn new(
        shared: &'a Shared<'b, 'w>,
        entry: &'a Entry,
        opened: &'a Tablespace,
    ) -> Result<Self, Error> {
        let failed = |error| Error::io("open", &entry.path, error);
        let original = open_regular(&entry.path).map_err(failed)?;
        let like = original.metadata().map_err(failed)?;
        if like.len() != entry.length {
            return Err(changed_meanwhile(&entry.path));
        }
        Ok(Self {
            shared,
            entry,
            opened,
            original,
            like,
            replacement: None,
            // Where the first page is damaged nothing is certain about the others.
            is_kept: !opened.geometry.first_is_sound,
            tally: PageTally::default(),
            left: LeftTally::default(),
            findings: Vec::new(),
            bytes_read: 0,
        })
    }

    fn work(&self) -> &'b Work<'w> {
        self.shared.work
    }

    fn run(mut self, memory: &mut [u8]) -> Result<(), Error> {
        let result = self.go_through(memory);
        match result {
            Ok(true) => self.end(),
            // Stopped, or failed: it is as it was.
            result => {
                if let Some(replacement) = self.replacement.take() {
                    replacement.discard();
                }
                result.map(drop)
            }
        }
    }

    /// False if it was ended early.
    fn go_through(&mut self, memory: &mut [u8]) -> Result<bool, Error> {
        let work = self.work();
        let page_size = self.opened.geometry.layout.page_size;
        let step = work.tools.pace.step_bytes(work.tools.run_bytes).max(page_size);
        let step = step - step % page_size;
        if work.copy.is_some() && !work.dry_run {
            self.begin(0)?;
        }
        let mut offset = 0;
        while offset < self.entry.length {
            if self.shared.threads.must_stop() {
                return Ok(false);
            }
            let left = usize::try_from(self.entry.length - offset).unwrap_or(usize::MAX);
            let Some(bytes) = memory.get_mut(..left.min(step)) else { return Ok(false) };
            work.tools.pace.pay(bytes.len() as u64, &work.tools.options.stop);
            self.read(bytes, offset)?;
            self.bytes_read += bytes.len() as u64;
            let changed = self.judge(offset, bytes);
            if self.is_kept && !changed.is_empty() && work.copy.is_some() {
                // What was stamped on the way is not wanted.
                self.read(bytes, offset)?;
            }
            self.write(offset, bytes, &changed)?;
            work.progress.advance(bytes.len() as u64);
            offset += bytes.len() as u64;
        }
        // What was begun when the signal came may lack something.
        Ok(!self.shared.threads.must_stop())
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        let count = read_fully(&self.original, bytes, offset)
            .map_err(|error| Error::io("read", &self.entry.path, error))?;
        if count < bytes.len() { Err(changed_meanwhile(&self.entry.path)) } else { Ok(()) }
    }

    /// Stamps a run; gives the stretches that changed.
    fn judge(&mut self, offset: u64, bytes: &mut [u8]) -> Vec<Range<usize>> {
        let page_size = self.opened.geometry.layout.page_size;
        let first_page = self.opened.geometry.first_page;
        let first = first_page.saturating_add(offset / page_size as u64);
        let mut changed: Vec<Range<usize>> = Vec::new();
        let mut damaged = Vec::new();
        let (tally, left) = (&mut self.tally, &mut self.left);
        let length = bytes.len();
        let pages = &self.opened.pages;
        pages.stamp_pages(first, bytes, self.opened.is_encrypted, |at, stamped| match stamped {
            Stamped::Changed => {
                tally.changed += 1;
                stretches::add(&mut changed, at..at + page_size);
            }
            Stamped::Right => tally.right += 1,
            Stamped::Blank if first == 0 && at == 0 => {
                let detail = "all zero, and the first page never is".to_owned();
                damaged.push((at, Kind::Zeroed, detail));
            }
            Stamped::Blank => tally.empty += 1,
            Stamped::Left(why) => left.add(why),
            Stamped::Damaged { kind, detail } => damaged.push((at, kind, detail)),
        });
        let rest = length % page_size;
        if rest > 0 {
            let detail = format!("the file ends {rest} bytes into a page");
            damaged.push((length - rest, Kind::Truncated, detail));
        }
        for (at, kind, detail) in damaged {
            let at = offset + at as u64;
            self.tally.damaged += 1;
            let page = first_page.saturating_add(at / page_size as u64);
            self.findings.push(damage(&self.entry.name, page, at, kind, detail));
        }
        changed
    }

    fn write(&mut self, offset: u64, bytes: &[u8], changed: &[Range<usize>]) -> Result<(), Error> {
        let work = self.work();
        if self.tally.damaged > 0 && !work.skip_damaged {
            self.is_kept = true;
            if let Some(replacement) = self.replacement.take() {
                replacement.discard();
            }
        }
        if work.dry_run || (self.is_kept && self.replacement.is_none()) {
            return Ok(());
        }
        if self.replacement.is_none() && !changed.is_empty() {
            self.begin(offset)?;
        }
        let changed = if self.is_kept { &[] } else { changed };
        match &mut self.replacement {
            Some(replacement) => replacement.write(&self.original, offset, bytes, changed),
            None => Ok(()),
        }
    }

    fn begin(&mut self, offset: u64) -> Result<(), Error> {
        let work = self.work();
        let target = work.target(self.entry);
        self.replacement = Some(Replacement::begin(work.tools, &target, &self.original, offset)?);
        Ok(())
    }

    /// All of it was read.
    fn end(mut self) -> Result<(), Error> {
        let work = self.work();
        if self.is_kept {
            self.left.kept = std::mem::take(&mut self.tally.changed);
        }
        let (mut written, mut verified) = (0, 0);
        if let Some(replacement) = self.replacement.take() {
            written = replacement.bytes_written;
            match self.put_in_place(&replacement) {
                Ok(bytes) => verified = bytes,
                Err(error) => {
                    replacement.discard();
                    return Err(error);
                }
            }
        }
        let is_done = self.tally.damaged == 0;
        let mut result = lock(&self.shared.result);
        self.tally.left = self.left.total();
        result.worked.pages += self.tally;
        result.left.copies += self.left.copies;
        result.left.compressed += self.left.compressed;
        result.left.encrypted += self.left.encrypted;
        result.left.kept += self.left.kept;
        result.worked.bytes_read += self.bytes_read;
        result.worked.bytes_written += written;
        result.worked.bytes_verified += verified;
        result.files_kept += u64::from(self.is_kept);
        result.links += u64::from(written > 0 && work.copy.is_none() && self.like.nlink() > 1);
        result.worked.findings.append(&mut self.findings);
        drop(result);
        if is_done { self.shared.finished(self.entry) } else { Ok(()) }
    }

    /// Makes what was written durable, proves it, and gives it its name; how many bytes were
    /// read back.
    fn put_in_place(&self, replacement: &Replacement<'_>) -> Result<u64, Error> {
        let work = self.work();
        let path = &self.entry.path;
        if work.copy.is_some() {
            let attributes = work.tools.disk.set_attributes(&replacement.written, &self.like);
            attributes.map_err(|error| Error::io("copy to", &replacement.written.path, error))?;
        }
        replacement.sync()?;
        let verified = if work.tools.options.verify { replacement.read_back()? } else { 0 };
        let now = std::fs::symlink_metadata(path);
        let now = now.map_err(|error| Error::io("look at", path, error))?;
        if Stamp::of(&now) != Stamp::of(&self.like) {
            return Err(changed_meanwhile(path));
        }
        if work.copy.is_none() {
            if let Some(locks) = work.locks.filter(|locks| locks.has(path)) {
                locks
                    .hold(path, &replacement.written.file)
                    .map_err(|error| Error::io("lock", &replacement.written.path, error))?;
            }
            work.tools
                .disk
                .rename(&replacement.written.path, path)
                .map_err(|error| Error::io("replace", path, error))?;
        }
        Ok(verified)
    }
}

/// Takes away what interrupted runs left.
pub(super) fn sweep(tools: Tools<'_>, listing: &Listing) -> Result<(), Error> {
    listing.leftovers.iter().try_for_each(|path| remove(tools.disk, path).map(drop))
}

fn changed_meanwhile(path: &Path) -> Error {
    Error::changed(
        path,
        "it changed while it was worked on",
        "see that no server and no other program changes this database",
    )
}
