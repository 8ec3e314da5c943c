//! Faults in the files of whole databases at rest, and which evidence finds them: that of each
//! page by itself, or that of pages beside one another.
//!
//! A fault is written into a file, the database is verified by our own library, and the sound
//! bytes are put back. It is asked twice:
//!
//! 1. Pages one by one (`check --no-witness`): does a sum fit, and the number and header that
//!    stand beside it? Of InnoDB also: is a page of zeroes in the list of those in use?
//! 2. All pages together (`check --structure`), with the damaged page stamped anew for its place:
//!    the sum, the number, all that a page says of itself, as if the engine had written just
//!    that. Only what the first question does not find on these same bytes counts. Without the
//!    new stamp there is nothing to ask: pages of which one fails are not compared.

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use pagewarden::database::{self, OpenOptions as How};
use pagewarden::verdict::{Finding, Kind, Severity, Verdict};
use pagewarden::verify::{Kept, Options, verify};

use crate::cost::faults::{Fault, SECTOR_BYTES, TRIES_MAX};
use crate::cost::program;
use crate::stats::random::Random;

mod databases;

pub use databases::{mariadb, postgres, sqlite};

/// Stamps a page for its place. What it had there when it was sound is given, too.
type Stamp = fn(page: &mut [u8], index: usize, sound: &[u8]);

/// A database at rest, and an older state of its files.
pub struct Database {
    path: PathBuf,
    files: Vec<PageFile>,
    stamp: Stamp,
    /// Keeps the files as long as it lives.
    _keeper: Box<dyn Any>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A file whose pages are damaged.
#[derive(Debug)]
struct PageFile {
    path: PathBuf,
    page_bytes: usize,
    now: Vec<u8>,
    /// The same file, before some of its rows were changed. It may be shorter.
    before: Vec<u8>,
}

/// Bytes of a page in the place of others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wound {
    file: usize,
    /// The place of the page in the file, from 0.
    index: usize,
    page: Vec<u8>,
}

/// What found a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// A page by itself.
    pub by_sum: bool,
    /// Pages beside one another, if no page had told by itself.
    pub by_structure: bool,
}

/// A finding, as far as it matters whether it is the same one.
type Found = BTreeSet<(String, Option<u64>, Kind)>;

impl PageFile {
    fn page(&self, index: usize) -> &[u8] {
        self.now.chunks_exact(self.page_bytes).nth(index).unwrap_or_default()
    }

    fn page_before(&self, index: usize) -> Option<&[u8]> {
        self.before.chunks_exact(self.page_bytes).nth(index)
    }

    fn pages(&self) -> usize {
        self.now.len() / self.page_bytes
    }
}

impl Database {
    /// Fails if the database is not sound to begin with, or a page is not stamped as its engine
    /// stamps it: then no answer would mean anything.
    fn new(
        path: PathBuf,
        files: Vec<PageFile>,
        stamp: Stamp,
        keeper: Box<dyn Any>,
    ) -> Result<Self> {
        let database = Self { path, files, stamp, _keeper: keeper };
        for file in &database.files {
            for index in (0..file.pages()).filter(|index| is_in_use(file.page(*index))) {
                let mut page = file.page(index).to_vec();
                stamp(&mut page, index, file.page(index));
                let name = file.path.display();
                ensure!(page == file.page(index), "{name}: page {index} has another stamp");
            }
        }
        ensure!(database.page_count() > 1, "too few pages");
        for is_structure in [false, true] {
            let found = database.check(is_structure)?;
            ensure!(found.is_empty(), "{} is not sound: {found:?}", database.path.display());
        }
        Ok(database)
    }

    /// Pages that may be damaged: those in use.
    #[must_use]
    pub fn page_count(&self) -> usize {
        let in_use =
            |file: &PageFile| (0..file.pages()).filter(|at| is_in_use(file.page(*at))).count();
        self.files.iter().map(in_use).sum()
    }

    /// Lets a fault happen, and asks. `None` if it would have changed nothing.
    ///
    /// # Errors
    /// A file cannot be written, or the database cannot be verified; or the run is to end.
    pub fn happen(
        &self,
        fault: Fault,
        random: &mut Random,
        stop: &AtomicBool,
    ) -> Result<Option<Outcome>> {
        let Some(wounds) = (0..TRIES_MAX).find_map(|_| self.wounds(fault, random)) else {
            return Ok(None);
        };
        let stamped: Vec<Wound> = wounds.iter().map(|wound| self.stamped(wound)).collect();
        let (alone, all) = self.with(&stamped, || {
            program::go_on(stop)?;
            Ok((self.check(false)?, self.check(true)?))
        })?;
        let by_sum = if wounds == stamped {
            !alone.is_empty()
        } else {
            program::go_on(stop)?;
            !self.with(&wounds, || self.check(false))?.is_empty()
        };
        Ok(Some(Outcome { by_sum, by_structure: !all.is_subset(&alone) }))
    }

    fn stamped(&self, wound: &Wound) -> Wound {
        let mut wound = wound.clone();
        let sound = self.files.get(wound.file).map(|file| file.page(wound.index));
        // A page of zeroes is none that an engine stamps.
        if let Some(sound) = sound.filter(|_| is_in_use(&wound.page)) {
            (self.stamp)(&mut wound.page, wound.index, sound);
        }
        wound
    }

    /// A page in use of any file.
    fn any(&self, random: &mut Random) -> Option<(usize, &PageFile, usize)> {
        let mut rest = random.below(self.files.iter().map(PageFile::pages).sum());
        for (number, file) in self.files.iter().enumerate() {
            if rest < file.pages() {
                return is_in_use(file.page(rest)).then_some((number, file, rest));
            }
            rest -= file.pages();
        }
        None
    }

    /// What a fault leaves, if it changes anything.
    fn wounds(&self, fault: Fault, random: &mut Random) -> Option<Vec<Wound>> {
        let (number, file, index) = self.any(random)?;
        let mut page = file.page(index).to_vec();
        match fault {
            Fault::Noise(bytes) if bytes > file.page_bytes => {
                let pages = bytes / file.page_bytes;
                let first = index / pages * pages;
                let wounds = (first..(first + pages).min(file.pages())).map(|index| {
                    let mut page = vec![0; file.page_bytes];
                    page.fill_with(|| random.bits().to_le_bytes()[0]);
                    Wound { file: number, index, page }
                });
                return Some(wounds.collect());
            }
            Fault::Noise(bytes) => {
                let begin = random.below(file.page_bytes / bytes) * bytes;
                let stretch = page.get_mut(begin..begin + bytes)?;
                stretch.fill_with(|| random.bits().to_le_bytes()[0]);
            }
            Fault::Bits(count) => flip(&mut page, count, random),
            Fault::Stamped => {
                flip(&mut page, 1, random);
                (self.stamp)(&mut page, index, file.page(index));
            }
            Fault::Torn => {
                let before = file.page_before(index).filter(|before| is_in_use(before))?;
                let sectors = file.page_bytes / SECTOR_BYTES;
                let kept = (1 + random.below(sectors - 1)) * SECTOR_BYTES;
                page.get_mut(kept..)?.copy_from_slice(before.get(kept..)?);
                if page == before {
                    return None;
                }
            }
            Fault::Misplaced => {
                let other = random.below(file.pages());
                page.copy_from_slice(file.page(other));
                if !is_in_use(&page) {
                    return None;
                }
            }
            Fault::Zeroed => page.fill(0),
            Fault::LostWrite => page.copy_from_slice(file.page_before(index)?),
        }
        (page != file.page(index)).then(|| vec![Wound { file: number, index, page }])
    }

    /// Asks while these pages are written; the sound bytes are put back in any case.
    fn with<T>(&self, wounds: &[Wound], ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let written: Result<()> =
            wounds.iter().try_for_each(|wound| self.put(wound.file, wound.index, &wound.page));
        let answer = written.and_then(|()| ask());
        for wound in wounds {
            let file = self.files.get(wound.file).context("no such file")?;
            self.put(wound.file, wound.index, file.page(wound.index))?;
        }
        answer
    }

    fn put(&self, file: usize, index: usize, page: &[u8]) -> Result<()> {
        let file = self.files.get(file).context("no such file")?;
        let opened = OpenOptions::new().write(true).open(&file.path);
        let offset = u64::try_from(index * file.page_bytes)?;
        opened
            .and_then(|opened| opened.write_all_at(page, offset))
            .with_context(|| format!("cannot write {}", file.path.display()))
    }

    /// What is found: by pages alone, or also by what they say of one another.
    fn check(&self, is_structure: bool) -> Result<Found> {
        let how = How { no_witness: !is_structure, structure: is_structure, ..How::default() };
        let target = database::open_with(&self.path, None, &how)?;
        let mut kept = Kept::default();
        let verified = verify(target, &Options::default(), &(), &mut kept)?;
        ensure!(
            kept.unread.is_empty() && verified.verdict() != Verdict::Incomplete,
            "{} was not read as a whole: {:?}",
            self.path.display(),
            kept.unread
        );
        let is_serious = |finding: &&Finding| finding.severity >= Severity::Suspect;
        Ok(kept.findings.iter().filter(is_serious).map(named).collect())
    }
}

fn named(finding: &Finding) -> (String, Option<u64>, Kind) {
    let place = &finding.place;
    (place.file.clone(), place.page.map(|page| page.0), finding.kind)
}

fn is_in_use(page: &[u8]) -> bool {
    page.iter().any(|byte| *byte != 0)
}

fn flip(page: &mut [u8], count: u32, random: &mut Random) {
    for _ in 0..count {
        let bit = random.below(page.len() * 8);
        if let Some(byte) = page.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// A file now, and as it was in another folder.
fn page_file(root: &Path, name: &Path, before: Vec<u8>, page_bytes: usize) -> Result<PageFile> {
    let path = root.join(name);
    let now = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(PageFile { path, page_bytes, now, before })
}
