//! Tar archives that make up one set: the parts of WAL-G, the archives of Barman.
//!
//! One that cannot be read on takes its own rest with it and no other: what was lost is said, with the
//! stored file and the file of the database in which it broke off, and the next archive is opened.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::backup::members::{Broken, Members, Piece};
use crate::files::backup::place::{Role, locate};
use pagewarden_core::database::Step;
use pagewarden_core::source::decode::{BEGIN_BYTES, Compression, Decoded, decode, decode_as};
use pagewarden_core::source::secretstream::{Key, SecretStream};
use pagewarden_core::source::store::{StorePath, StoredFile};
use pagewarden_core::source::tar::{
    ABSOLUTE, Archive, Member, NAMELESS, TarError, Trailing, looks_like_tar,
};
use pagewarden_core::verdict::{
    ByteOffset, Finding, Kind, Note, PageNo, Severity, StoredPlace, Unread,
};

const FROM_ANOTHER: &str =
    "take this file from another copy of the repository, or take a new backup";
/// What tools of PostgreSQL take for granted, as all builds that are distributed have it.
const PAGE_BYTES: u64 = 8192;
const SEGMENT_PAGES: u64 = 131_072;

/// An archive as it is stored.
#[derive(Debug, Clone)]
pub(super) struct StoredTar {
    /// Where it is.
    pub(super) place: StorePath,
    /// Its name in the report, relative to the repository.
    pub(super) shown: String,
    /// What stands before its members' names: `pg_tblspc/16385/`.
    pub(super) prefix: String,
    /// How it is stored.
    pub(super) form: Form,
}

/// How an archive is stored, as far as that is not seen in its first bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Form {
    /// A compression that has no mark.
    pub(super) compression: Option<Compression>,
    /// Set for one that is encrypted.
    pub(super) key: Option<Key>,
}

/// Archives, one after the other, see the module.
pub(super) struct Tars {
    waiting: VecDeque<StoredTar>,
    current: Option<Current>,
    steps: Vec<Step>,
    /// Leading slashes of names are left out, as the tool means them.
    is_rooted: bool,
    /// Stored files that were not read to their end.
    pub(super) lost: Vec<String>,
    /// Those among them that the system or the store did not give: nothing is known of the rest.
    pub(super) unread: Vec<String>,
}

struct Current {
    tar: StoredTar,
    archive: Archive<Box<dyn Read + Send>>,
    /// Why the stored file itself could not be read.
    fault: Fault,
    member: Option<Member>,
}

type Fault = Arc<Mutex<Option<String>>>;

/// A stored file, which remembers what the system said when it could not be read: that is no damage
/// of what it holds.
struct Watched {
    file: StoredFile,
    fault: Fault,
}

impl Read for Watched {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::Interrupted
        {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        read
    }
}

impl StoredTar {
    /// Opens it; what the system says of the file comes to be known by `fault`.
    fn open(&self, fault: &Fault) -> io::Result<Decoded> {
        let file = self.place.open().inspect_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        })?;
        let source: Box<dyn Read + Send> = Box::new(Watched { file, fault: Arc::clone(fault) });
        let source: Box<dyn Read + Send> = match &self.form.key {
            Some(key) => Box::new(SecretStream::new(source, key.clone())),
            None => source,
        };
        match self.form.compression {
            Some(compression) => decode_as(source, compression),
            None => decode(source),
        }
    }

    /// Its plain bytes.
    pub(super) fn reader(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(self.open(&Fault::default())?.reader))
    }

    /// True if it opens as an archive.
    pub(super) fn is_archive(&self) -> bool {
        self.open(&Fault::default()).is_ok_and(|decoded| looks_like_tar(&decoded.begin))
    }
}

impl Tars {
    /// These archives, in this order.
    pub(super) fn new(tars: impl IntoIterator<Item = StoredTar>, is_rooted: bool) -> Self {
        Self {
            waiting: tars.into_iter().collect(),
            current: None,
            steps: Vec::new(),
            is_rooted,
            lost: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// The next member; `None` when all archives were read as far as they could be.
    pub(super) fn next(&mut self) -> Option<Member> {
        loop {
            let Some(current) = &mut self.current else {
                let tar = self.waiting.pop_front()?;
                self.open(tar);
                continue;
            };
            current.member = None;
            match current.archive.next_member() {
                Ok(Some(member)) => {
                    let member = renamed(member, &current.tar.prefix, self.is_rooted);
                    current.member = Some(member.clone());
                    return Some(member);
                }
                Ok(None) => self.finish(),
                Err(error) => self.lose(&error),
            }
        }
    }

    /// Reads the archive to the end of its stored form, so that the sums of that are tested, too.
    fn finish(&mut self) {
        let Some(current) = &mut self.current else { return };
        let mut has_more = false;
        loop {
            match current.archive.finish() {
                Ok(Trailing::Nothing) => break,
                Ok(Trailing::Data) => has_more = true,
                Err(error) => return self.lose(&error),
            }
        }
        if has_more {
            let text = "something follows the end of the archive and was not judged";
            let note = Note { file: current.tar.shown.clone(), text: text.to_owned() };
            self.steps.push(Step::Note(note));
        }
        self.current = None;
    }

    fn open(&mut self, tar: StoredTar) {
        let fault = Fault::default();
        match tar.open(&fault) {
            Ok(decoded) => {
                let archive = Archive::new(Box::new(decoded.reader) as Box<dyn Read + Send>);
                self.current = Some(Current { tar, archive, fault, member: None });
            }
            Err(error) => self.lost_at(&tar, &fault, None, 0, &TarError::Io(error)),
        }
    }

    /// Data of the current member that was not read yet.
    pub(super) fn data_left(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.archive.data_left())
    }

    /// Reads data of the current member until `bytes` is full or the member ends. `None`: the archive
    /// breaks off here, which was said.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let current = self.current.as_mut()?;
        match current.archive.read_data(bytes) {
            Ok(count) => Some(count),
            Err(error) => {
                self.lose(&error);
                None
            }
        }
    }

    /// What was found since the last call.
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Gives the current archive up.
    fn lose(&mut self, error: &TarError) {
        let Some(current) = self.current.take() else { return };
        let Current { tar, archive, fault, member } = current;
        self.lost_at(&tar, &fault, member.as_ref(), archive.data_left(), error);
    }

    fn lost_at(
        &mut self,
        tar: &StoredTar,
        fault: &Fault,
        member: Option<&Member>,
        left: u64,
        error: &TarError,
    ) {
        self.lost.push(tar.shown.clone());
        let at = member.map_or(0, |member| member.bytes.saturating_sub(left));
        let file = member.map_or(tar.shown.as_str(), |member| member.name.as_str());
        let fault = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(fault) = fault {
            self.unread.push(tar.shown.clone());
            let error = format!("{} cannot be read: {fault}", tar.shown);
            let unread = Unread::stretch(file.to_owned(), ByteOffset(at), left, error);
            return self.steps.push(Step::Unread(unread));
        }
        let (kind, what) = match error {
            TarError::CutOff(_) => (Kind::Truncated, "is cut off"),
            TarError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                (Kind::Missing, "is not there")
            }
            TarError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                (Kind::Truncated, "is cut off")
            }
            TarError::Io(_) => (Kind::Checksum, "cannot be read on"),
            TarError::Refused(_) => (Kind::Header, "cannot be read on"),
        };
        let detail = match member {
            Some(_) => format!(
                "the stored file {} {what} at byte {at} of this file; the rest of it cannot be restored: {error}",
                tar.shown
            ),
            None => format!("the stored file {what}: {error}"),
        };
        let mut finding = Finding::of_file(file, Severity::Damage, kind, detail);
        if let Some(Role::Relation(place)) = locate(file).map(|(_, role)| role) {
            let before = u64::from(place.file.segment).saturating_mul(SEGMENT_PAGES);
            finding.place.page = Some(PageNo(before.saturating_add(at / PAGE_BYTES)));
            finding.place.offset = Some(ByteOffset(at));
        }
        let origin =
            StoredPlace { stored_file: tar.shown.clone(), stored_offset: Some(ByteOffset(0)) };
        self.steps.push(Step::Finding(finding.stored_at(origin).with_hint(FROM_ANOTHER)));
    }
}

impl Members for Tars {
    fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        Ok(self.next())
    }

    fn data_left(&self) -> u64 {
        Self::data_left(self)
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        self.read(bytes).map(Piece::Data).ok_or(Broken::Member)
    }

    fn take_steps(&mut self) -> Vec<Step> {
        Self::take_steps(self)
    }
}

/// A member by its name below the data directory.
fn renamed(mut member: Member, prefix: &str, is_rooted: bool) -> Member {
    if is_rooted && matches!(member.objection, Some(ABSOLUTE | NAMELESS)) {
        let relative = member.name.trim_start_matches('/').to_owned();
        let leads_out = relative.split('/').any(|part| part == "..");
        member.objection = leads_out.then_some("its name leads out of the archive");
        member.name = relative;
    }
    member.name.insert_str(0, prefix);
    member
}

/// A finding about a stored file as a whole.
pub(super) fn stored_finding(shown: &str, kind: Kind, detail: impl Into<String>) -> Finding {
    let origin = StoredPlace { stored_file: shown.to_owned(), stored_offset: None };
    Finding::of_file(shown, Severity::Damage, kind, detail.into())
        .stored_at(origin)
        .with_hint(FROM_ANOTHER)
}

/// True for bytes that begin a compressed stream with a mark, or an archive.
pub(super) fn has_mark(begin: &[u8]) -> bool {
    Compression::of(begin) != Compression::None
        || looks_like_tar(begin.get(..BEGIN_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::source::tar::MemberKind;

    fn member(name: &str, objection: Option<&'static str>) -> Member {
        Member { name: name.to_owned(), kind: MemberKind::File, bytes: 0, link: None, objection }
    }

    #[test]
    fn absolute_names_are_those_below_the_data_directory_where_the_tool_writes_them() {
        let absolute = Some(ABSOLUTE);
        let named = renamed(member("/base/1/2", absolute), "", true);
        assert_eq!((named.name.as_str(), named.objection), ("base/1/2", None));
        // The root is what is left of the name "/".
        let root = renamed(member("", Some(NAMELESS)), "", true);
        assert_eq!((root.name.as_str(), root.objection), ("", None));
        let out = renamed(member("/../x", absolute), "", true);
        assert!(out.objection.is_some());
        let other = renamed(member("/base/1/2", absolute), "", false);
        assert_eq!(other.objection, absolute);
        let beside = renamed(member("PG_15_1/1/2", None), "pg_tblspc/7/", false);
        assert_eq!(beside.name, "pg_tblspc/7/PG_15_1/1/2");
    }
}
