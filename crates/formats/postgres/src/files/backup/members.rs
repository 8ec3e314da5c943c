//! What a backup's files come from: a tar archive, or the stored files of a repository's set.
//!
//! [`ArchiveWalk`](super::stream::ArchiveWalk) goes from member to member and judges what their
//! names say that they are. It does not know where the bytes come from. A source that knows where
//! the control file and the label are gives them first.

use std::io::{self, Read};
use std::sync::Arc;

use crate::files::archived_log::LogArchive;
use crate::files::backup::ground::Ground;
use pagewarden_core::database::Step;
use pagewarden_core::database::repository::Backup;
use pagewarden_core::page::Unsettled;
use pagewarden_core::source::read_ahead::Seats;
use pagewarden_core::source::tar::{Archive, Member, TarError, Trailing};
use pagewarden_core::verdict::Finding;

/// Files of a backup, one after the other.
pub(super) trait Members: Send {
    /// The next member, by its path below the data directory; `None` at the end. What was not read
    /// of the current one is passed over.
    ///
    /// # Errors
    /// No further member can be read. What is wrong with one member only is no error: it is in
    /// [`Self::take_steps`], and the next member comes.
    fn next_member(&mut self) -> Result<Option<Member>, TarError>;

    /// Bytes of the current member that were not read yet, holes included.
    fn data_left(&self) -> u64;

    /// Reads data of the current member until `bytes` is full, the member ends, or a hole begins.
    ///
    /// # Errors
    /// See [`Broken`].
    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken>;

    /// From now on the file of a relation is opened only where it is read, which may be elsewhere.
    fn open_late(&mut self) {}

    /// The current member as a source of its own, which another thread may read while this one goes
    /// on; `None`: it is to be read here.
    fn apart(&mut self) -> Option<Box<dyn Members>> {
        None
    }

    /// A large member may be read ahead, by a thread for which there is a seat.
    fn may_read_ahead(&mut self, _seats: &Arc<Seats>) {}

    /// Reads what follows the last member, up to the end of the source and of its own sums.
    ///
    /// # Errors
    /// The rest cannot be read.
    fn finish(&mut self) -> Result<Trailing, TarError> {
        Ok(Trailing::Nothing)
    }

    /// What was found of the stored bytes since the last call: findings that name the stored file
    /// and its offset, unread stretches, notes.
    fn take_steps(&mut self) -> Vec<Step> {
        Vec::new()
    }
}

/// A piece of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// This number of bytes was read. Fewer than there was room for only before a hole or at the
    /// member's end.
    Data(usize),
    /// This number of bytes does not come: they cannot be restored, which the steps say, or this run has
    /// verified them in another set. A whole number of pages, but at the member's end.
    Hole(u64),
}

/// Why data does not come.
#[derive(Debug)]
pub(super) enum Broken {
    /// The source cannot be read on.
    Source(TarError),
    /// The rest of this member cannot be read; the steps say why. The next member can.
    Member,
}

impl From<TarError> for Broken {
    fn from(error: TarError) -> Self {
        Self::Source(error)
    }
}

impl<R: Read + Send> Members for Archive<R> {
    fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        Self::next_member(self)
    }

    fn data_left(&self) -> u64 {
        Self::data_left(self)
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        Ok(Piece::Data(Self::read_data(self, bytes)?))
    }

    fn finish(&mut self) -> Result<Trailing, TarError> {
        Self::finish(self)
    }
}

/// Data of the current member as a plain reader, which has no word for holes.
pub(super) struct MemberData<'a>(pub(super) &'a mut dyn Members);

impl Read for MemberData<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() || self.0.data_left() == 0 {
            return Ok(0);
        }
        match self.0.read_data(bytes) {
            Ok(Piece::Data(count)) => Ok(count),
            Err(Broken::Source(TarError::Io(error))) => Err(error),
            Err(Broken::Source(error)) => Err(io::Error::other(error)),
            Ok(Piece::Hole(_)) | Err(Broken::Member) => {
                Err(io::Error::other("the stored bytes of this file cannot be read"))
            }
        }
    }
}

/// Adds to the finding about a page what a tool's books say of it; called at the set's end.
pub(super) type SetJudge = Arc<dyn Fn(&mut Finding, &Unsettled) + Send + Sync>;

/// What is known of a repository's set beside its files.
#[derive(Clone)]
pub(super) struct SetTerms {
    /// What the tool's books say.
    pub(super) backup: Arc<Backup>,
    /// In a few words what it is: `full backup by pgBackRest, zst`.
    pub(super) what: String,
    /// How it was taken.
    pub(super) ground: Ground,
    /// All files of the database come as members, so that one that does not is not there.
    pub(super) is_whole: bool,
    /// The log that the tool keeps, in which an image may stand for a page that fails.
    pub(super) log: Option<Arc<dyn LogArchive>>,
    /// Changes the severity and adds to the evidence.
    pub(super) judge: SetJudge,
}
