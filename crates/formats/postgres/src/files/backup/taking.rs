//! Files taken out of a backup as it lies, out of an archive or a set in a repository: single ones for a
//! repair, all of them for a restore (`restore.rs`).
//!
//! The readers of backups go their usual way, member by member. What is wanted is written to a folder
//! of our own; what is not is passed over, and where a tool keeps files by themselves it is not read
//! at all. A file whose stored bytes are not what was stored is left out: a copy that cannot be
//! believed is worse than none.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

use super::label::LABEL;
use super::members::{Broken, Members, Piece};
use super::place::locate;
use super::repository::TOOLS;
use crate::files::archived_log::LogArchive;
use pagewarden_core::database::repository::RepositoryOptions;
use pagewarden_core::database::{OpenOptions, Probe, Step};
use pagewarden_core::error::Error;
use pagewarden_core::source::store::{Seen, StorePath};
use pagewarden_core::source::tar::{Member, MemberKind, TarError};
use pagewarden_core::system::FileExt as _;

const PIECE_BYTES: usize = 1 << 20;
const TAKE: &str = "take files out, into a temporary folder (TMPDIR says where),";
/// What says of a copy which one it is.
pub(crate) const ALWAYS: [&str; 3] = ["PG_VERSION", "global/pg_control", LABEL];

/// The name of what comes behind a place where a backup cannot be read on.
pub(crate) const REST: &str = "the rest of it";

/// How a backup is opened: to have its pages judged, or to have files taken out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    pub(crate) options: OpenOptions,
    /// Set where files are taken out; no page is judged then.
    pub(crate) taking: Option<Arc<Taking>>,
}

impl From<&OpenOptions> for Opening {
    fn from(options: &OpenOptions) -> Self {
        Self { options: options.clone(), taking: None }
    }
}

impl Deref for Opening {
    type Target = OpenOptions;

    fn deref(&self) -> &OpenOptions {
        &self.options
    }
}

/// What is taken out, and what came of it.
#[derive(Debug)]
pub(crate) struct Taking {
    folder: PathBuf,
    wanted: Wanted,
    found: Mutex<Found>,
}

/// Which files are taken out.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Those of these names, and [`ALWAYS`].
    Named(HashSet<String>),
    /// All but those of these names.
    AllBut(&'static [&'static str]),
}

impl Wanted {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Named(names) => names.contains(name) || ALWAYS.contains(&name),
            Self::AllBut(names) => !names.contains(&name),
        }
    }
}

#[derive(Default)]
pub(super) struct Found {
    /// What each backup is, in words.
    pub(super) backups: Vec<String>,
    /// The log that the tool keeps beside it.
    pub(super) log: Option<Arc<dyn LogArchive>>,
    /// A backup that is a data directory as it is.
    pub(super) data: Option<PathBuf>,
    /// Why a wanted file is not there, or the rest of the backup.
    pub(super) losses: BTreeMap<String, String>,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("backups", &self.backups).finish_non_exhaustive()
    }
}

/// A backup of which the wanted files lie in a folder.
pub(crate) struct Taken {
    /// Removed with this.
    _folder: TempDir,
    /// A data directory with the wanted files.
    pub(crate) root: PathBuf,
    /// The log that the tool keeps beside it.
    pub(crate) log: Option<Arc<dyn LogArchive>>,
    /// Files that were wanted and are there, but cannot be believed or read, with the reason.
    pub(crate) losses: BTreeMap<String, String>,
}

impl Taken {
    /// True if it is there what says which copy this is.
    pub(crate) fn is_known(&self) -> bool {
        ALWAYS.iter().filter(|name| **name != LABEL).all(|name| self.root.join(name).is_file())
    }
}

/// Takes files out of an archive, a folder of archives or a repository; `None` if `place` is none.
/// Of what is in object storage only repositories are known.
///
/// # Errors
/// It cannot be read, holds several databases, or there is no room for the files.
pub(crate) fn take_out(
    place: &StorePath,
    repository: &RepositoryOptions,
    wanted: HashSet<String>,
) -> Result<Option<Taken>, Error> {
    let path = place.path();
    let failed = |error| Error::io(TAKE, path, error);
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed)?;
    let Some(found) = take_to(place, repository, Wanted::Named(wanted), folder.path())? else {
        return Ok(None);
    };
    let root = found.data.unwrap_or_else(|| folder.path().to_owned());
    Ok(Some(Taken { _folder: folder, root, log: found.log, losses: found.losses }))
}

/// The same, to a folder that is there.
pub(super) fn take_to(
    place: &StorePath,
    repository: &RepositoryOptions,
    wanted: Wanted,
    folder: &Path,
) -> Result<Option<Found>, Error> {
    let path = place.path();
    let failed = |error| Error::io(TAKE, path, error);
    let found = Mutex::default();
    let taking = Arc::new(Taking { folder: folder.to_owned(), wanted, found });
    let mut options = OpenOptions { repository: repository.clone(), ..OpenOptions::default() };
    options.repository.latest = repository.sets.is_empty();
    let opening = Opening { options, taking: Some(Arc::clone(&taking)) };
    let is_folder = !matches!(place.look().map_err(failed)?, Seen::File(_));
    let tool = TOOLS.iter().filter(|_| is_folder).find(|it| (it.kind.probe)(place) == Probe::Yes);
    match tool {
        // A set is gone through when it is asked for.
        Some(tool) => (tool.open)(place, &opening)?.targets.for_each(drop),
        None if place.local_path().is_none() || super::probe(path, is_folder) == Probe::No => {
            return Ok(None);
        }
        None => super::walk_of(place, is_folder, &opening)?.into_target().map(drop)?,
    }
    let mut found = taking.lock();
    let found = std::mem::take(&mut *found);
    if found.backups.len() > 1 {
        let reason = format!("it holds several databases: {}", found.backups.join("; "));
        return Err(Error::refused(path, reason, "say which one: --stanza NAME, or --set LABEL"));
    }
    Ok(Some(found))
}

impl Taking {
    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A set begins.
    pub(super) fn begin(&self, what: &str, log: Option<Arc<dyn LogArchive>>) {
        let mut found = self.lock();
        found.backups.push(what.to_owned());
        found.log = log;
    }

    /// The set is a data directory as it is: nothing need be taken out.
    pub(super) fn is_folder(&self, data: &Path) {
        self.lock().data = Some(data.to_owned());
    }

    fn lose(&self, name: &str, why: impl Into<String>) {
        self.lock().losses.insert(name.to_owned(), why.into());
    }

    /// Goes through an archive, or a set, whose files may come in pieces. `prefix` is what its names
    /// have before them in the data directory.
    pub(super) fn go_through(&self, members: &mut dyn Members, prefix: &str, in_pieces: bool) {
        let mut root: Option<String> = None;
        let mut last = None;
        loop {
            let next = members.next_member();
            // Of the one before: its sums are compared at its end.
            self.judge(&members.take_steps(), last.take());
            match next {
                Ok(Some(member)) => {
                    last = self.member(members, &member, (prefix, in_pieces), &mut root);
                }
                // One that was cut may look as if it ended here.
                Ok(None) => match members.finish() {
                    Ok(_) => return,
                    Err(error) => return self.lose(REST, error.to_string()),
                },
                Err(error) => return self.lose(REST, error.to_string()),
            }
        }
    }

    /// Takes a member, if it is wanted. Its name below the data directory.
    fn member(
        &self,
        members: &mut dyn Members,
        member: &Member,
        (prefix, in_pieces): (&str, bool),
        root: &mut Option<String>,
    ) -> Option<String> {
        let located = locate(&member.name).map(|(root, _)| root);
        if root.is_none() {
            *root = located.map(str::to_owned);
        }
        let below = member.name.strip_prefix(root.as_deref().unwrap_or_default())?;
        let name = format!("{prefix}{below}");
        let is_inside =
            Path::new(&name).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside
            || !self.wanted.has(&name)
            || member.objection.is_some()
            || !matches!(member.kind, MemberKind::File)
        {
            return None;
        }
        if let Err(error) = self.write(members, &name, in_pieces) {
            self.drop_file(&name, &error.to_string());
            return None;
        }
        Some(name)
    }

    /// Writes a file, or with `in_pieces` the pages that come of it now. In an archive the second file
    /// of a name is another one, and nothing tells which of them is right.
    fn write(&self, members: &mut dyn Members, name: &str, in_pieces: bool) -> io::Result<()> {
        let path = self.folder.join(name);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        let file = match in_pieces {
            true => File::options().create(true).truncate(false).write(true).open(path)?,
            false => File::create_new(path)?,
        };
        let mut offset = 0_u64;
        let mut bytes = vec![0; PIECE_BYTES];
        while members.data_left() > 0 {
            let room = usize::try_from(members.data_left()).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            match members.read_data(bytes.get_mut(..room).unwrap_or_default()) {
                Ok(Piece::Data(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Piece::Data(count)) => {
                    file.write_all_at(bytes.get(..count).unwrap_or_default(), offset)?;
                    offset = offset.saturating_add(count as u64);
                }
                // What no piece fills stays zero, and a zero page is no copy.
                Ok(Piece::Hole(count)) if in_pieces => offset = offset.saturating_add(count),
                Ok(Piece::Hole(_)) | Err(Broken::Member) => {
                    return Err(io::Error::other("its stored bytes cannot be read"));
                }
                Err(Broken::Source(TarError::Io(error))) => return Err(error),
                Err(Broken::Source(error)) => return Err(io::Error::other(error)),
            }
        }
        Ok(())
    }

    fn judge(&self, steps: &[Step], name: Option<String>) {
        let Some(name) = name else { return };
        let fault = steps.iter().find_map(|step| match step {
            Step::Finding(finding) => Some(finding.detail.clone().unwrap_or_default()),
            Step::Unread(unread) => Some(unread.error.clone()),
            _ => None,
        });
        if let Some(fault) = fault {
            self.drop_file(&name, &format!("what is stored is not what was: {fault}"));
        }
    }

    fn drop_file(&self, name: &str, why: &str) {
        // If it stays all the same, its pages still have to pass their own tests.
        let _ = fs::remove_file(self.folder.join(name));
        self.lose(name, why);
    }
}

#[cfg(test)]
mod tests;
