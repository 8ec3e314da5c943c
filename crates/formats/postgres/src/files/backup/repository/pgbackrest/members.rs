//! The files of a set as members of a backup: those that say what the others are first, then all of the
//! manifest in its order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::backup::members::{Broken, Members, Piece};
use crate::files::backup::place::{Role, locate};
use crate::files::backup::repository::pgbackrest::blocks::BlockFile;
use crate::files::backup::repository::pgbackrest::manifest::{Entries, Entry, FIRST};
use crate::files::backup::repository::pgbackrest::place::{Geometry, SetPlace};
use crate::files::backup::repository::pgbackrest::whole::WholeFile;
use crate::files::control::{CONTROL_BYTES, Control};
use pagewarden_core::database::Step;
use pagewarden_core::source::read_ahead::Seats;
use pagewarden_core::source::store::EXPECTED_FILES;
use pagewarden_core::source::tar::{Member, MemberKind, TarError, Trailing};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity};
use pagewarden_core::words::counted;

/// Bytes of a file for which a thread that reads ahead is worth it.
const READ_AHEAD_BYTES: u64 = 8 << 20;
/// See the module.
pub(super) struct SetMembers {
    place: Arc<SetPlace>,
    first: VecDeque<Entry>,
    entries: Entries,
    /// Those that come next, of which the stored files are expected.
    next: VecDeque<Entry>,
    current: Option<SetFile>,
    /// The beginning of the control file while it is read.
    control: Option<Vec<u8>>,
    steps: Vec<Step>,
    /// See [`Members::open_late`].
    opens_late: bool,
    /// Files of which this run has verified all bytes in another set, and some.
    shared: u64,
    shared_in_part: Arc<AtomicU64>,
}

impl SetMembers {
    /// The files of a set; `steps` are said first.
    pub(super) fn new(
        place: SetPlace,
        first: Vec<Entry>,
        entries: Entries,
        steps: Vec<Step>,
    ) -> Self {
        Self {
            place: Arc::new(place),
            first: first.into(),
            entries,
            next: VecDeque::new(),
            current: None,
            control: None,
            steps,
            opens_late: false,
            shared: 0,
            shared_in_part: Arc::default(),
        }
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        if let Some(entry) = self.first.pop_front() {
            return Ok(Some(entry));
        }
        while self.next.len() < EXPECTED_FILES {
            let entry = self.entries.next_entry().map_err(|_| {
                TarError::Refused("the manifest changed while it was read".to_owned())
            })?;
            let Some(entry) = entry else { break };
            if !FIRST.contains(&entry.name.as_str()) {
                self.expect(&entry);
                self.next.push_back(entry);
            }
        }
        Ok(self.next.pop_front())
    }

    /// Many small files are on their way at the same time, from a store that takes long to answer.
    fn expect(&self, entry: &Entry) {
        let is_stored = entry.bytes() > 0 || entry.fields.rck.is_some();
        let is_own = is_stored && entry.fields.bundle.is_none() && entry.fault.is_none();
        let is_read =
            !self.is_shared(entry) && (entry.bytes() > 0 || !self.place.is_verified(entry));
        if is_own && is_read {
            let path = self.place.folder.join(self.place.stored_file(entry));
            path.expect(Some(entry.stored_bytes()));
        }
    }

    /// True if it is not read, since this run has verified it in another set.
    fn is_shared(&self, entry: &Entry) -> bool {
        let is_small = matches!(locate(&entry.name), Some((_, role)) if !is_relation(role));
        !is_small && entry.bytes() > 0 && self.place.is_verified(entry)
    }

    /// Opens the stored bytes of an entry. `None`: there is nothing to be read, for a reason that is
    /// said or known.
    fn open(&mut self, entry: Entry) -> Option<Member> {
        if let Some(fault) = entry.fault {
            let finding =
                Finding::of_file(&entry.name, Severity::Damage, Kind::Header, fault.to_owned());
            self.steps.push(Step::Finding(finding));
            return None;
        }
        if self.is_shared(&entry) {
            self.shared = self.shared.saturating_add(1);
            return None;
        }
        let member = Member {
            name: entry.name.clone(),
            kind: MemberKind::File,
            bytes: entry.bytes(),
            link: None,
            objection: None,
        };
        if entry.bytes() == 0 {
            self.look_at_empty(&entry);
            return Some(member);
        }
        self.control = (entry.name == "global/pg_control").then(Vec::new);
        let is_relation = matches!(locate(&entry.name), Some((_, role)) if is_relation(role));
        let mut file = SetFile {
            place: Arc::clone(&self.place),
            state: FileState::Closed(Box::new(entry)),
            steps: Vec::new(),
            seats: None,
            shared_in_part: Arc::clone(&self.shared_in_part),
        };
        if !(self.opens_late && is_relation)
            && let Err(step) = file.open()
        {
            self.steps.push(*step);
            return None;
        }
        self.current = Some(file);
        Some(member)
    }

    /// Of an empty file nothing is bundled; else it has a stored file, which may hold a compressor's
    /// frame.
    fn look_at_empty(&mut self, entry: &Entry) {
        let is_stored = entry.fields.bundle.is_none() && entry.fields.rck.is_some();
        if !is_stored || self.place.is_verified(entry) {
            return;
        }
        let opened = WholeFile::open(&self.place, entry.clone());
        match opened {
            Ok(mut file) => {
                // Nothing comes but what is said at the end.
                let _ = file.read(&self.place, &mut [], &mut self.steps);
            }
            Err(step) => self.steps.push(*step),
        }
    }

    /// Said once, at the end.
    fn say_shared(&mut self) {
        let mut note = |count: u64, what: &str| {
            if count > 0 {
                let (is, was) = if count == 1 { ("is", "was") } else { ("are", "were") };
                let files = counted(count, "file");
                let text = format!(
                    "{files} {is} {what} with sets that this run has verified, and {was} not read again"
                );
                self.steps.push(Step::Note(Note { file: String::new(), text }));
            }
        };
        note(std::mem::take(&mut self.shared), "shared");
        note(self.shared_in_part.swap(0, Ordering::Relaxed), "shared in part");
    }
}

fn is_relation(role: Role) -> bool {
    matches!(role, Role::Relation(_))
}

impl Members for SetMembers {
    fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        self.current = None;
        self.control = None;
        loop {
            let Some(entry) = self.next_entry()? else { return Ok(None) };
            if let Some(member) = self.open(entry) {
                return Ok(Some(member));
            }
        }
    }

    fn data_left(&self) -> u64 {
        self.current.as_ref().map_or(0, SetFile::data_left)
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        let Some(file) = &mut self.current else { return Ok(Piece::Data(0)) };
        let piece = file.read_data(bytes);
        self.steps.append(&mut file.steps);
        let piece = piece?;
        if let (Some(control), Piece::Data(count)) = (&mut self.control, piece) {
            let room = CONTROL_BYTES.saturating_sub(control.len());
            control.extend_from_slice(bytes.get(..count.min(room)).unwrap_or_default());
            if let Ok(control) = Control::parse(control) {
                let place = Arc::make_mut(&mut self.place);
                place.geometry = Geometry {
                    page_size: control.page_size as u64,
                    segment_pages: u64::from(control.segment_pages),
                };
            }
        }
        Ok(piece)
    }

    fn open_late(&mut self) {
        self.opens_late = true;
    }

    fn apart(&mut self) -> Option<Box<dyn Members>> {
        Some(Box::new(self.current.take()?))
    }

    fn finish(&mut self) -> Result<Trailing, TarError> {
        self.say_shared();
        Ok(Trailing::Nothing)
    }

    fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }
}

/// One file of a set, which may be read apart from the others.
struct SetFile {
    place: Arc<SetPlace>,
    state: FileState,
    steps: Vec<Step>,
    /// See [`Members::may_read_ahead`].
    seats: Option<Arc<Seats>>,
    shared_in_part: Arc<AtomicU64>,
}

enum FileState {
    /// Not opened yet.
    Closed(Box<Entry>),
    Whole(Box<WholeFile>),
    Blocks(Box<BlockFile>),
    /// It could not be opened.
    Lost,
}

impl SetFile {
    /// Opens it.
    ///
    /// # Errors
    /// The step that says why not.
    fn open(&mut self) -> Result<(), Box<Step>> {
        let entry = match std::mem::replace(&mut self.state, FileState::Lost) {
            FileState::Closed(entry) => *entry,
            opened => {
                self.state = opened;
                return Ok(());
            }
        };
        self.state = if entry.fields.map_bytes.is_some() {
            let file = BlockFile::open(&self.place, entry)?;
            self.shared_in_part.fetch_add(u64::from(file.is_shared()), Ordering::Relaxed);
            FileState::Blocks(Box::new(file))
        } else {
            // Bytes that are only copied and summed are not worth it: 1.2 of the time, measured.
            let is_worth =
                entry.bytes() >= READ_AHEAD_BYTES && !self.place.coding.changes_nothing();
            let seat = self.seats.as_ref().filter(|_| is_worth).and_then(Seats::take);
            FileState::Whole(Box::new(match seat {
                Some(seat) => WholeFile::open_to_read_ahead(&self.place, entry, seat)?,
                None => WholeFile::open(&self.place, entry)?,
            }))
        };
        Ok(())
    }
}

impl Members for SetFile {
    fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        Ok(None)
    }

    fn data_left(&self) -> u64 {
        match &self.state {
            FileState::Closed(entry) => entry.bytes(),
            FileState::Whole(file) => file.data_left(),
            FileState::Blocks(file) => file.data_left(),
            FileState::Lost => 0,
        }
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        if let Err(step) = self.open() {
            self.steps.push(*step);
            return Err(Broken::Member);
        }
        match &mut self.state {
            FileState::Whole(file) => file.read(&self.place, bytes, &mut self.steps),
            FileState::Blocks(file) => file.read(&self.place, bytes, &mut self.steps),
            FileState::Closed(_) | FileState::Lost => Err(Broken::Member),
        }
    }

    fn may_read_ahead(&mut self, seats: &Arc<Seats>) {
        self.seats = Some(Arc::clone(seats));
    }

    fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }
}
