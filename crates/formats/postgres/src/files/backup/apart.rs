//! A relation's file of a set that is read apart from the others, by whichever thread has time.
//!
//! Nothing of the set is judged by what is in such a file, and the control file was read before. What
//! the end of the set asks of it is in [`Gathered`], which does not depend on the order in which files
//! came to their end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::backup::members::{Broken, Members, Piece};
use crate::files::backup::pages::{Cut, Sample};
use crate::files::backup::place::RelationPlace;
use crate::files::backup::stream::{ArchiveWalk, Current, InMember, PARTIAL_MAX, at_most};
use pagewarden_core::database::{self, PageFile, Step};
use pagewarden_core::verdict::{ByteOffset, Finding, Severity, Unread};

/// Pages that are read and judged at a time, a multiple of every page size: little enough to still be in
/// the processor's cache when they are judged.
const PIECE_BYTES: usize = 256 << 10;

/// What is known of all files that were read apart.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) sample: Sample,
    /// Incomplete pages, with the most that one proves, by the number of the file.
    pub(super) partial: BTreeMap<u64, (Finding, Severity)>,
    /// Something of the source was lost or not read, which was said.
    pub(super) has_losses: bool,
    /// Its source could not be read everywhere.
    pub(super) has_unread: bool,
}

/// See the module.
pub(super) struct Apart {
    source: Box<dyn Members>,
    file: Arc<PageFile>,
    offset: u64,
    ready: VecDeque<Step>,
    /// The most that an incomplete page proves.
    at_most: Severity,
    partial: Option<Finding>,
    /// Of this file.
    found: Gathered,
    number: u64,
    gathered: Arc<Mutex<Gathered>>,
    is_done: bool,
}

impl Apart {
    /// A file, which is all that `source` has; the number is its place among others.
    pub(super) fn new(
        source: Box<dyn Members>,
        file: PageFile,
        at_most: Severity,
        (number, gathered): (u64, &Arc<Mutex<Gathered>>),
    ) -> Self {
        Self {
            source,
            file: Arc::new(file),
            offset: 0,
            ready: VecDeque::new(),
            at_most,
            partial: None,
            found: Gathered::default(),
            number,
            gathered: Arc::clone(gathered),
            is_done: false,
        }
    }

    /// Reads the next piece; false at the end.
    fn read_on(&mut self) -> bool {
        let left = self.source.data_left();
        if left == 0 {
            return false;
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let mut bytes = vec![0_u8; length];
        let read = self.source.read_data(&mut bytes);
        for step in self.source.take_steps() {
            self.found.has_unread |= matches!(step, Step::Unread(_));
            self.found.has_losses |= matches!(step, Step::Finding(_) | Step::Unread(_));
            self.ready.push_back(step);
        }
        match read {
            Ok(Piece::Data(count)) => {
                bytes.truncate(count);
                self.take(bytes);
                true
            }
            Ok(Piece::Hole(count)) => {
                self.offset = self.offset.saturating_add(count);
                true
            }
            Err(Broken::Member) => false,
            Err(Broken::Source(error)) => {
                (self.found.has_unread, self.found.has_losses) = (true, true);
                let at = ByteOffset(self.offset);
                let unread = Unread::stretch(self.file.name.clone(), at, left, error.to_string());
                self.ready.push_back(Step::Unread(unread));
                false
            }
        }
    }

    fn take(&mut self, bytes: Vec<u8>) {
        let (offset, count) = (self.offset, bytes.len() as u64);
        self.offset = offset.saturating_add(count);
        let cut = Cut::of(&self.file, self.file.listed_bytes, offset, bytes);
        self.found.sample.add(&self.file, ByteOffset(offset), &cut.pages.bytes);
        self.partial = cut.partial.or_else(|| self.partial.take());
        self.ready.push_back(Step::Pages(cut.pages));
        if cut.rest > 0 {
            self.ready.push_back(Step::Passed(cut.rest));
        }
    }

    /// Tells what was learned.
    fn end(&mut self) {
        let mut all = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        all.sample.add_all(&self.found.sample);
        all.has_losses |= self.found.has_losses;
        all.has_unread |= self.found.has_unread;
        if let Some(finding) = self.partial.take() {
            all.partial.insert(self.number, (finding, self.at_most));
            // Those of the first files stay, whichever came to their end first.
            if all.partial.len() > PARTIAL_MAX {
                all.partial.pop_last();
            }
        }
    }
}

impl ArchiveWalk {
    /// True if files may be read out of their order: nothing that is in them is needed to judge others.
    pub(super) fn may_read_apart(&self) -> bool {
        self.terms.is_some() && !self.has_sums() && self.facts.control.is_some()
    }

    /// Hands a relation's file on to be read elsewhere. False: it is to be read here.
    pub(super) fn read_apart(
        &mut self,
        current: &mut Current,
        member: &InMember,
        place: RelationPlace,
    ) -> bool {
        if place.file.is_incremental || !self.may_read_apart() {
            return false;
        }
        let Some(source) = current.members.apart() else { return false };
        let of = (member.name.as_str(), member.bytes);
        let file = self.page_file(&current.source, of, place);
        let apart = Apart::new(source, file, at_most(place), (self.apart, &self.gathered));
        self.apart = self.apart.saturating_add(1);
        self.has_apart = true;
        self.ready.push_back(Step::Apart(database::Apart::reading_ahead(|seats| {
            let mut apart = apart;
            apart.source.may_read_ahead(seats);
            Box::new(apart)
        })));
        true
    }

    /// True if what is read apart must come to its end first, for which the target now waits.
    pub(super) fn wait_for_apart(&mut self) -> bool {
        let waits = std::mem::take(&mut self.has_apart);
        if waits {
            self.ready.push_back(Step::Barrier);
        }
        waits
    }

    /// Takes what was learned elsewhere.
    pub(super) fn take_gathered(&mut self) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathered { sample, partial, has_losses, has_unread } = std::mem::take(&mut *gathered);
        self.sample.add_all(&sample);
        self.partial.extend(partial.into_values());
        self.facts.has_losses |= has_losses;
        self.facts.has_unread |= has_unread;
    }
}

impl Iterator for Apart {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if self.is_done {
                return None;
            }
            if !self.read_on() {
                self.is_done = true;
                self.end();
            }
        }
    }
}
