//! The files of a set as members of a backup: those that say what the others are first, then all of the
//! manifest in its order.

use std::collections::VecDeque;

use crate::files::backup::members::{Broken, Members, Piece};
use crate::files::backup::place::{Role, locate};
use crate::files::backup::repository::pgbackrest::blocks::BlockFile;
use crate::files::backup::repository::pgbackrest::manifest::{Entries, Entry, FIRST};
use crate::files::backup::repository::pgbackrest::place::{Geometry, SetPlace};
use crate::files::backup::repository::pgbackrest::whole::WholeFile;
use crate::files::control::{CONTROL_BYTES, Control};
use pagewarden_core::database::Step;
use pagewarden_core::source::tar::{Member, MemberKind, TarError};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity};
use pagewarden_core::words::counted;

/// See the module.
pub(super) struct SetMembers {
    place: SetPlace,
    first: VecDeque<Entry>,
    entries: Entries,
    current: Option<Current>,
    /// The beginning of the control file while it is read.
    control: Option<Vec<u8>>,
    steps: Vec<Step>,
    /// Files of which this run has verified all bytes in another set, and some.
    shared: u64,
    shared_in_part: u64,
}

enum Current {
    Whole(Box<WholeFile>),
    Blocks(Box<BlockFile>),
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
            place,
            first: first.into(),
            entries,
            current: None,
            control: None,
            steps,
            shared: 0,
            shared_in_part: 0,
        }
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        if let Some(entry) = self.first.pop_front() {
            return Ok(Some(entry));
        }
        loop {
            let entry = self.entries.next_entry().map_err(|_| {
                TarError::Refused("the manifest changed while it was read".to_owned())
            })?;
            match entry {
                Some(entry) if FIRST.contains(&entry.name.as_str()) => {}
                entry => return Ok(entry),
            }
        }
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
        let is_small = matches!(locate(&entry.name), Some((_, role)) if !is_relation(role));
        if !is_small && entry.bytes() > 0 && self.place.is_verified(&entry) {
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
        let opened = if entry.fields.map_bytes.is_some() {
            BlockFile::open(&self.place, entry).map(|file| {
                self.shared_in_part += u64::from(file.is_shared());
                Current::Blocks(Box::new(file))
            })
        } else {
            WholeFile::open(&self.place, entry).map(|file| Current::Whole(Box::new(file)))
        };
        match opened {
            Ok(current) => {
                self.current = Some(current);
                Some(member)
            }
            Err(step) => {
                self.steps.push(*step);
                None
            }
        }
    }

    /// Of an empty file nothing is bundled; else it has a stored file, which may hold a compressor's
    /// frame.
    fn look_at_empty(&mut self, entry: &Entry) {
        if entry.fields.bundle.is_some() || entry.fields.rck.is_none() {
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
        note(std::mem::take(&mut self.shared_in_part), "shared in part");
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
            let Some(entry) = self.next_entry()? else {
                self.say_shared();
                return Ok(None);
            };
            if let Some(member) = self.open(entry) {
                return Ok(Some(member));
            }
        }
    }

    fn data_left(&self) -> u64 {
        match &self.current {
            Some(Current::Whole(file)) => file.data_left(),
            Some(Current::Blocks(file)) => file.data_left(),
            None => 0,
        }
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        let piece = match &mut self.current {
            Some(Current::Whole(file)) => file.read(&self.place, bytes, &mut self.steps),
            Some(Current::Blocks(file)) => file.read(&self.place, bytes, &mut self.steps),
            None => Ok(Piece::Data(0)),
        }?;
        if let (Some(control), Piece::Data(count)) = (&mut self.control, piece) {
            let room = CONTROL_BYTES.saturating_sub(control.len());
            control.extend_from_slice(bytes.get(..count.min(room)).unwrap_or_default());
            if let Ok(control) = Control::parse(control) {
                self.place.geometry = Geometry {
                    page_size: control.page_size as u64,
                    segment_pages: u64::from(control.segment_pages),
                };
            }
        }
        Ok(piece)
    }

    fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }
}
