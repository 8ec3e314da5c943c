//! Pages in use that could not be tested, by what would be needed: one note for each reason, at the
//! end, with the pages, the files and what helps.
//!
//! Copies in doublewrite areas are not in use, and are not among them.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::page::encryption::KeyInfo;
use crate::page::fields::{
    PAGE_TYPE, TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16,
};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{Note, Standing};

/// Files that a note names.
const NAMED_MAX: usize = 3;
/// Files that are remembered for a reason.
const FILES_MAX: usize = 100_000;
const LZO: &str = "compressed by lzo, of which there is no reader here: CHECK TABLE ... EXTENDED tests \
                   them in their server";
const ARIA: &str = "of encrypted Aria tables, whose sums are those of the decrypted pages: CHECK TABLE \
                    ... EXTENDED tests them in their server";

/// In each note.
const NOT_TESTED: &str = " not tested: ";
/// Begins the reason where keys were given that do not help.
const BY_KEYS: &str = "encrypted, and of the keys that were given none opens them: ";

/// True for a note about pages that could not be tested.
pub(crate) fn is_about_untested(note: &Note) -> bool {
    note.text.contains(NOT_TESTED)
}

/// Why the keys that were given do not open pages, if a note is about that.
pub(crate) fn problem_of_keys(note: &Note) -> Option<&str> {
    let (_, reason) = note.text.split_once(NOT_TESTED)?;
    let problem = reason.strip_prefix(BY_KEYS)?;
    Some(problem.split_once("; --accept-unverifiable").map_or(problem, |(problem, _)| problem))
}

/// What was seen so far.
#[derive(Default)]
pub(super) struct Untested {
    by_reason: Mutex<BTreeMap<String, Tally>>,
    /// Some file may have such pages.
    is_watching: AtomicBool,
}

impl fmt::Debug for Untested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Untested").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Tally {
    pages: u64,
    files: BTreeSet<String>,
}

/// Why the pages of a file that need a key could not be tested.
#[derive(Debug, Clone)]
pub(crate) enum Lock {
    /// They can: the key is there.
    Open,
    /// In words.
    Closed(String),
    /// The keys of encrypted pages of Aria are not used.
    Aria,
}

impl Lock {
    /// Of a tablespace that is not encrypted by its first page.
    pub(super) fn since_first_page() -> Self {
        let text = "encrypted since the first page of their file was written, which has no key yet: \
                    check again after the server's next checkpoint";
        Self::Closed(text.to_owned())
    }

    /// Of a tablespace. `problem` says why the keys that were given do not help.
    pub(super) fn of(info: Option<&KeyInfo>, has_key: bool, problem: Option<&str>) -> Self {
        const HELP: &str = "name the file with the keys with --keyring";
        match (has_key, problem, info) {
            (true, ..) => Self::Open,
            (false, Some(problem), _) => Self::Closed(format!("{BY_KEYS}{problem}")),
            (false, None, Some(KeyInfo::MySql { master_key, .. })) => {
                let text = format!("encrypted, and their key {master_key} was not given: {HELP}");
                Self::Closed(text)
            }
            (false, None, Some(KeyInfo::MariaDb { key_number, .. })) => {
                let text = format!("encrypted, and their key {key_number} was not given: {HELP}");
                Self::Closed(text)
            }
            (false, None, None) => {
                Self::Closed(format!("encrypted, and their key was not given: {HELP}"))
            }
        }
    }
}

#[derive(Debug)]
struct Watch {
    untested: Arc<Untested>,
    file: String,
    page_size: usize,
    lock: Lock,
}

impl Untested {
    /// Counts what cannot be tested of a file.
    pub(super) fn watch(self: &Arc<Self>, file: &mut PageFile, lock: Lock) {
        self.is_watching.store(true, Ordering::Relaxed);
        file.witnesses.push(Arc::new(Watch {
            untested: Arc::clone(self),
            file: file.name.clone(),
            page_size: file.format.page_size(),
            lock,
        }));
    }

    /// The notes; nothing is left then.
    fn take(&self) -> Vec<Note> {
        let mut tallies = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let note = |(reason, tally): (String, Tally)| {
            let pages = if tally.pages == 1 { "page is" } else { "pages are" };
            let named: Vec<_> = tally.files.iter().take(NAMED_MAX).map(String::as_str).collect();
            let more = tally.files.len().saturating_sub(named.len());
            let more = if more > 0 { format!(" and {more} more files") } else { String::new() };
            let text = format!(
                "{} {pages}{NOT_TESTED}{reason} (in {}{more}; --accept-unverifiable accepts them)",
                tally.pages,
                named.join(", ")
            );
            Note { file: String::new(), text }
        };
        std::mem::take(&mut *tallies).into_iter().map(note).collect()
    }
}

impl Watch {
    fn reason(&self, page: &[u8]) -> &str {
        let page_type = read_u16(page, PAGE_TYPE);
        match &self.lock {
            Lock::Aria => ARIA,
            // Of those that need no key, and of those that a key opened.
            _ if page_type == TYPE_PAGE_COMPRESSED => LZO,
            Lock::Open if page_type == TYPE_PAGE_COMPRESSED_ENCRYPTED => LZO,
            Lock::Open => "encrypted with a key that does not open them",
            Lock::Closed(reason) => reason,
        }
    }
}

impl Witness for Watch {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let mut pages = run.bytes.chunks_exact(self.page_size.max(1));
        for (standing, count) in standings.iter() {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let those = pages.by_ref().take(count);
            if standing != Some(Standing::Unverifiable) {
                those.for_each(drop);
                continue;
            }
            let mut tallies =
                self.untested.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
            for page in those {
                let reason = self.reason(page);
                if !tallies.contains_key(reason) {
                    tallies.insert(reason.to_owned(), Tally::default());
                }
                let Some(tally) = tallies.get_mut(reason) else { continue };
                tally.pages = tally.pages.saturating_add(1);
                if tally.files.len() < FILES_MAX && !tally.files.contains(&self.file) {
                    tally.files.insert(self.file.clone());
                }
            }
        }
    }
}

/// The steps of a target, and the notes behind them.
pub(super) struct Telling<I> {
    steps: I,
    untested: Arc<Untested>,
    /// All steps were given out, and a barrier behind them.
    is_behind: bool,
    notes: VecDeque<Note>,
}

impl<I: Iterator<Item = Step>> Telling<I> {
    /// See the struct.
    pub(super) fn new(steps: I, untested: Arc<Untested>) -> Self {
        Self { steps, untested, is_behind: false, notes: VecDeque::new() }
    }
}

impl<I: Iterator<Item = Step>> Iterator for Telling<I> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if !self.is_behind {
            if let Some(step) = self.steps.next() {
                return Some(step);
            }
            self.is_behind = true;
            if self.untested.is_watching.load(Ordering::Relaxed) {
                return Some(Step::Barrier);
            }
        }
        if self.notes.is_empty() {
            self.notes.extend(self.untested.take());
        }
        self.notes.pop_front().map(Step::Note)
    }
}
