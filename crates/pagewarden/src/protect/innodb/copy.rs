//! A copy of a data directory or of a tablespace, stamped on the way.
//!
//! The source is only read. `ibdata1` comes last, by a rename, when the device holds all else:
//! without it, and with the log there, no server starts (MariaDB 10.11: "redo log file exists").
//! Until then `pagewarden-protect.copy` says whose unfinished copy this is, and lets the same
//! command begin it again.
//!
//! | in the source | in the copy |
//! | --- | --- |
//! | tablespaces | stamped on the way; blocks are shared where the file system can |
//! | other files, empty folders, holes | the same |
//! | links, `.isl` files | refused: the copy's server would write to the source's files |
//! | sockets, what earlier runs left | left out |

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::protect::Outcome;
use crate::protect::innodb::files::{ENDING, Listing};
use crate::protect::innodb::replace::{Replacement, Tools, remove};
use crate::protect::innodb::work::{Work, Worked};
use crate::protect::innodb::{Database, JOURNAL, Place, Run};
use crate::protect::pace::Pace;
use crate::source::file::{open_regular, read_fully};
use crate::target::innodb::state::read_small;
use crate::verdict::Protection;

/// Says that a copy is not finished, and of what.
const MARKER: &str = "pagewarden-protect.copy";
/// Without it there is no database.
const LAST: &str = "ibdata1";
const MARK_BYTES_MAX: usize = 4096;

/// Everything in a data directory, by its path relative to it.
#[derive(Default)]
struct Tree {
    /// Parents first.
    folders: Vec<(PathBuf, Metadata)>,
    files: Vec<PathBuf>,
    warnings: Vec<String>,
}

/// Makes the copy.
pub(super) fn run(run: &Run<'_>, place: &Place, target: &Path) -> Result<Outcome, Error> {
    let database = place.open(None)?;
    let mut tree = Tree::default();
    if !place.is_file {
        tree.walk(&place.path, Path::new(""))?;
    }
    if run.request.dry_run {
        let worked = work(run, &database.listing, None)?;
        let mut outcome = run.outcome(&database, worked);
        outcome.warnings.append(&mut tree.warnings);
        return Ok(outcome);
    }
    let pace = Pace::new(run.options.rate);
    let copy = Copy { run, database: &database, target, tools: run.tools(&pace) };
    if copy.begin(place)? == Begun::Complete {
        copy.end_names(&tree)?;
        let mut outcome = run.outcome(&database, Worked::default());
        outcome.warnings.push("an earlier run had made this copy".to_owned());
        return Ok(outcome);
    }
    let mut others = 0;
    copy.make_folders(&tree)?;
    let of_tablespaces: std::collections::HashSet<_> =
        database.listing.groups.iter().flatten().map(|entry| PathBuf::from(&entry.name)).collect();
    for name in tree.files.iter().filter(|name| !of_tablespaces.contains(*name)) {
        if !run.options.stop.load(Ordering::Relaxed) {
            others += copy.copy_file(name)?;
        }
    }
    let worked = work(run, &copy.under_other_name(), Some(target))?;
    let is_damaged = worked.pages.damaged > 0 && !run.request.skip_damaged;
    let mut outcome = run.outcome(&database, worked);
    outcome.bytes_written = outcome.bytes_written.saturating_add(others);
    outcome.warnings.append(&mut tree.warnings);
    outcome.stopped = run.options.stop.load(Ordering::Relaxed);
    if outcome.stopped || is_damaged {
        outcome.after = outcome.before;
        // It must not look like what was asked for.
        if outcome.after == outcome.wanted {
            outcome.after = Protection::None;
        }
        return Ok(outcome);
    }
    copy.end(place, &tree)?;
    Ok(outcome)
}

/// The tablespaces, to the copy or for a look.
fn work(run: &Run<'_>, listing: &Listing, target: Option<&Path>) -> Result<Worked, Error> {
    let pace = Pace::new(run.options.rate);
    Work {
        tools: run.tools(&pace),
        progress: run.progress,
        listing,
        dry_run: run.request.dry_run,
        skip_damaged: run.request.skip_damaged,
        copy: target,
        locks: None,
        done: None,
        journal: None,
        batch_files: run.batch_files,
    }
    .run()
}

impl Tree {
    fn walk(&mut self, root: &Path, name: &Path) -> Result<(), Error> {
        let folder = root.join(name);
        let listed = |error| Error::io("list", &folder, error);
        self.folders.push((name.to_owned(), fs::metadata(&folder).map_err(listed)?));
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(listed)? {
            names.push(entry.map_err(listed)?.file_name());
        }
        names.sort();
        for entry in names {
            let name = name.join(&entry);
            let shown = entry.to_string_lossy();
            if shown.ends_with(ENDING) || name == Path::new(JOURNAL) || name == Path::new(MARKER) {
                continue;
            }
            let path = root.join(&name);
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
            let kind = metadata.file_type();
            if kind.is_symlink() || shown.ends_with(".isl") {
                return Err(Error::unknown(
                    &path,
                    "leads to what lies elsewhere: a server on the copy would write to the original's files",
                    "change this directory in place, without --copy-to, or copy it with mariadb-backup or xtrabackup",
                ));
            } else if kind.is_dir() {
                self.walk(root, &name)?;
            } else if kind.is_file() {
                self.files.push(name);
            } else if kind.is_socket() || kind.is_fifo() {
                self.warnings.push(format!("{}: no file, left out", name.display()));
            }
        }
        Ok(())
    }
}

/// How a copy begins.
#[derive(PartialEq, Eq)]
enum Begun {
    /// From nothing, or over what an interrupted run left.
    Fresh,
    /// An interrupted run had it complete.
    Complete,
}

struct Copy<'a> {
    run: &'a Run<'a>,
    database: &'a Database,
    target: &'a Path,
    tools: Tools<'a>,
}

impl Copy<'_> {
    fn failed<'e>(&self, path: &'e Path) -> impl FnOnce(io::Error) -> Error + use<'e> {
        move |error| Error::io("copy to", path, error)
    }

    /// The name of what comes last.
    fn last(&self) -> &str {
        let first = self.database.listing.groups.first().and_then(|group| group.first());
        match first {
            Some(entry) if !self.database.owner.is_dir() => &entry.name,
            _ => LAST,
        }
    }

    /// The listing, with what comes last under another name.
    fn under_other_name(&self) -> Listing {
        let mut listing =
            Listing { groups: self.database.listing.groups.clone(), ..Listing::default() };
        for entry in listing.groups.iter_mut().flatten() {
            if entry.name == self.last() {
                entry.name.push_str(ENDING);
            }
        }
        listing
    }

    /// Makes sure that nothing of somebody else's is in the way, and says that
    /// this is an unfinished copy.
    fn begin(&self, place: &Place) -> Result<Begun, Error> {
        let target = self.target;
        check_apart(&place.path, target)?;
        let mark = self.mark();
        let marker = target.join(MARKER);
        let before = target.join(format!("{MARKER}.new"));
        match fs::read_dir(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.tools.disk.make_folder(target).map_err(self.failed(target))?;
                let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
                self.sync_folder(parent.unwrap_or_else(|| Path::new(".")))?;
            }
            Err(error) => return Err(Error::io("list", target, error)),
            Ok(entries) => {
                if read_small(&marker, MARK_BYTES_MAX).is_some_and(|it| it == mark.as_bytes()) {
                    let is_complete = target.join(self.last()).exists();
                    return Ok(if is_complete { Begun::Complete } else { Begun::Fresh });
                }
                let is_foreign = |entry: io::Result<fs::DirEntry>| {
                    entry.map_or(true, |entry| entry.path() != before)
                };
                if entries.into_iter().any(is_foreign) {
                    return Err(Error::unknown(
                        target,
                        "this folder is not empty, and what is in it is no unfinished copy of this database as it is now",
                        "name a folder that does not exist or is empty",
                    ));
                }
            }
        }
        // Whole at once, so that it is found or not.
        remove(self.tools.disk, &before)?;
        let file =
            self.tools.disk.create(&before, &self.database.owner).map_err(self.failed(&before))?;
        let write = || {
            self.tools.disk.write_at(&file, mark.as_bytes(), 0)?;
            if self.run.options.sync {
                self.tools.disk.sync(&file)?;
            }
            self.tools.disk.rename(&before, &marker)
        };
        write().map_err(self.failed(&marker))?;
        self.sync_folder(target)?;
        Ok(Begun::Fresh)
    }

    /// What the copy is of: this database, in this state.
    fn mark(&self) -> String {
        let mut state = blake3::Hasher::new();
        for entry in self.database.listing.groups.iter().flatten() {
            let changed = fs::metadata(&entry.path).and_then(|metadata| metadata.modified()).ok();
            state.update(format!("{} {} {changed:?}\n", entry.name, entry.length).as_bytes());
        }
        let (checkpoint, state) = (self.database.checkpoint.unwrap_or(0), state.finalize());
        format!("unfinished copy by pagewarden protect, not to be used\n{checkpoint} {state}\n")
    }

    fn make_folders(&self, tree: &Tree) -> Result<(), Error> {
        for (name, _) in &tree.folders {
            let path = self.target.join(name);
            self.tools.disk.make_folder(&path).map_err(self.failed(&path))?;
        }
        Ok(())
    }

    /// A file that holds no pages of ours; how many bytes.
    fn copy_file(&self, name: &Path) -> Result<u64, Error> {
        let (from, to) = (self.database.path.join(name), self.target.join(name));
        let source = open_regular(&from).map_err(|error| Error::io("open", &from, error))?;
        let like = source.metadata().map_err(|error| Error::io("open", &from, error))?;
        let mut replacement = Replacement::begin(self.tools, &to, &source, 0)?;
        let mut buffer = vec![0; self.tools.run_bytes];
        let mut offset = 0;
        while offset < like.len() && !self.run.options.stop.load(Ordering::Relaxed) {
            let count = read_fully(&source, &mut buffer, offset)
                .map_err(|error| Error::io("read", &from, error))?;
            let bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty());
            let Some(bytes) = bytes else {
                return Err(Error::io("read", &from, io::ErrorKind::UnexpectedEof.into()));
            };
            replacement.write(&source, offset, bytes, &[])?;
            offset = offset.saturating_add(count as u64);
        }
        let attributes = self.tools.disk.set_attributes(&replacement.written, &like);
        attributes.map_err(self.failed(&to))?;
        replacement.sync()?;
        Ok(replacement.bytes_written)
    }

    /// Makes the copy a database.
    fn end(&self, place: &Place, tree: &Tree) -> Result<(), Error> {
        for (name, _) in tree.folders.iter().rev() {
            self.sync_folder(&self.target.join(name))?;
        }
        let now = place.open(None)?;
        if now.checkpoint != self.database.checkpoint {
            return Err(Error::unknown(
                &place.path,
                "a server ran on it while it was copied, so the copy is worth nothing",
                "remove the copy, shut the server down, and run this again",
            ));
        }
        let last = self.target.join(self.last());
        let before = self.target.join(format!("{}{ENDING}", self.last()));
        if before.exists() {
            self.tools.disk.rename(&before, &last).map_err(self.failed(&last))?;
        }
        self.sync_folder(self.target)?;
        self.end_names(tree)
    }

    /// What is left to do when the copy is a database.
    fn end_names(&self, tree: &Tree) -> Result<(), Error> {
        for (name, like) in tree.folders.iter().rev() {
            let path = self.target.join(name);
            let set = self.tools.disk.set_folder_attributes(&path, like);
            set.map_err(self.failed(&path))?;
        }
        remove(self.tools.disk, &self.target.join(MARKER))?;
        if let Some((_, like)) = tree.folders.first() {
            let set = self.tools.disk.set_folder_attributes(self.target, like);
            set.map_err(self.failed(self.target))?;
        }
        self.sync_folder(self.target)
    }

    fn sync_folder(&self, path: &Path) -> Result<(), Error> {
        if !self.run.options.sync {
            return Ok(());
        }
        self.tools.disk.sync_folder(path).map_err(|error| Error::io("sync", path, error))
    }
}

/// A copy inside its own source would never end.
fn check_apart(source: &Path, target: &Path) -> Result<(), Error> {
    let absolute = fs::canonicalize(target).or_else(|_| {
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = fs::canonicalize(parent.unwrap_or_else(|| Path::new(".")))?;
        Ok::<_, io::Error>(parent.join(target.file_name().unwrap_or_default()))
    });
    let absolute = absolute.map_err(|error| Error::io("open", target, error))?;
    if absolute.starts_with(source) || source.starts_with(&absolute) {
        let reason = "the copy and its source lie inside one another";
        return Err(Error::unknown(target, reason, "name a folder elsewhere"));
    }
    Ok(())
}
