//! A copy of a data directory or of a tablespace, stamped on the way.
//!
//! The source is only read. `ibdata1` comes last, by a rename, when the device holds all else:
//! without it, and with the log there, no server starts (MariaDB 10.11: "redo log file exists").
//!
//! | in the source | in the copy |
//! | --- | --- |
//! | tablespaces | stamped on the way; blocks are shared where the file system can |
//! | other files, empty folders, holes | the same |
//! | links, `.isl` files | refused: the copy's server would write to the source's files |
//! | sockets, what earlier runs left | left out |

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::protect::files::{ENDING, Listing};
use crate::protect::replace::{Replacement, Tools};
use crate::protect::work::{BATCH_FILES, Totals, Work};
use crate::protect::{Database, Place, RUN_BYTES, Run};
use pagewarden_core::error::Error;
use pagewarden_core::protect::copy::{
    CopyFolder, Found, MARKER, Take, Tree, check_apart, copying_to,
};
use pagewarden_core::protect::disk::Disk;
use pagewarden_core::protect::journal;
use pagewarden_core::protect::plan::{Request, Wish};
use pagewarden_core::protect::{Options, Outcome};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::verdict::Protection;

/// Without it there is no database.
const LAST: &str = "ibdata1";

/// Makes the copy.
pub(super) fn run(run: &Run<'_>, place: &Place, target: &Path) -> Result<Outcome, Error> {
    let database = place.open(None)?;
    let mut tree = match place.is_file {
        true => Tree::default(),
        false => Tree::of(&place.path, &|name, metadata| take(&place.path, name, metadata))?,
    };
    if run.request.dry_run {
        let totals = work(run, &database.listing, None)?;
        let mut outcome = run.outcome(&database, totals);
        outcome.warnings.append(&mut tree.warnings);
        return Ok(outcome);
    }
    let pace = RateLimiter::new(run.options.rate);
    let folder = CopyFolder::new(run.disk, run.options, target, &state(&database));
    let copy = Copy { run, database: &database, folder, tools: run.tools(&pace) };
    if copy.begin(place)? == Found::Complete {
        copy.folder.end(&tree.folders)?;
        let mut outcome = run.outcome(&database, Totals::default());
        outcome.warnings.push("an earlier run had made this copy".to_owned());
        return Ok(outcome);
    }
    let mut others = 0;
    copy.folder.make_folders(&tree)?;
    let of_tablespaces: std::collections::HashSet<_> =
        database.listing.groups.iter().flatten().map(|entry| PathBuf::from(&entry.name)).collect();
    for name in tree.files.iter().filter(|name| !of_tablespaces.contains(*name)) {
        if !run.options.stop.load(Ordering::Relaxed) {
            others += copy.copy_file(name)?;
        }
    }
    let totals = work(run, &copy.under_other_name(), Some(target))?;
    let is_damaged = totals.worked.pages.damaged > 0 && !run.request.skip_damaged;
    let mut outcome = run.outcome(&database, totals);
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

/// Copies a directory that is at rest with every byte as it is, damage included.
pub(crate) fn as_it_is(
    source: &Path,
    target: &Path,
    disk: &dyn Disk,
    options: &Options,
) -> Result<(), Error> {
    let request = Request::new(source, Wish::Mode(Protection::Checksum));
    let run = Run {
        disk,
        request: &request,
        options,
        progress: &(),
        run_bytes: RUN_BYTES,
        batch_files: BATCH_FILES,
    };
    let place = Place::of(source)?;
    let database = place.open(None)?;
    let tree = Tree::of(&place.path, &|name, metadata| take(&place.path, name, metadata))?;
    let pace = RateLimiter::new(options.rate);
    let folder = CopyFolder::new(disk, options, target, &state(&database));
    let copy = Copy { run: &run, database: &database, folder, tools: run.tools(&pace) };
    if copy.begin(&place)? == Found::Complete {
        return copy.folder.end(&tree.folders);
    }
    copy.folder.make_folders(&tree)?;
    for name in &tree.files {
        let to = match name == Path::new(LAST) {
            true => PathBuf::from(format!("{LAST}{ENDING}")),
            false => name.clone(),
        };
        copy.copy_file_to(name, &to)?;
    }
    if options.stop.load(Ordering::Relaxed) {
        let reason = "the run was stopped before the copy was made";
        return Err(Error::refused(target, reason, "run the same command again"));
    }
    copy.end(&place, &tree)
}

/// The tablespaces, to the copy or for a look.
fn work(run: &Run<'_>, listing: &Listing, target: Option<&Path>) -> Result<Totals, Error> {
    let pace = RateLimiter::new(run.options.rate);
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

/// What becomes of a name in the data directory.
fn take(root: &Path, name: &Path, metadata: &Metadata) -> Result<Take, Error> {
    let shown = name.to_string_lossy();
    if shown.ends_with(ENDING) || [journal::NAME, MARKER].contains(&&*shown) {
        return Ok(Take::LeftOut(None));
    }
    if metadata.is_symlink() || shown.ends_with(".isl") {
        return Err(Error::refused(
            &root.join(name),
            "leads to what lies elsewhere: a server on the copy would write to the original's files",
            "change this directory in place, without --copy-to, or copy it with mariadb-backup or xtrabackup",
        ));
    }
    Ok(Take::AsItIs)
}

/// What the copy is of: this database, in this state.
fn state(database: &Database) -> String {
    let mut state = blake3::Hasher::new();
    for entry in database.listing.groups.iter().flatten() {
        let changed = fs::metadata(&entry.path).and_then(|metadata| metadata.modified()).ok();
        state.update(format!("{} {} {changed:?}\n", entry.name, entry.length).as_bytes());
    }
    format!("{} {}", database.checkpoint.unwrap_or(0), state.finalize())
}

struct Copy<'a> {
    run: &'a Run<'a>,
    database: &'a Database,
    folder: CopyFolder<'a>,
    tools: Tools<'a>,
}

impl Copy<'_> {
    /// Makes sure that no file of another program is in the way, and says that this is an
    /// unfinished copy.
    fn begin(&self, place: &Place) -> Result<Found, Error> {
        check_apart(&place.path, &self.folder.path)?;
        let found = self.folder.look_begun(self.last())?;
        self.folder.begin(found, &self.database.owner)?;
        Ok(found)
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

    /// A file without pages that Pagewarden stamps; how many bytes.
    fn copy_file(&self, name: &Path) -> Result<u64, Error> {
        self.copy_file_to(name, name)
    }

    fn copy_file_to(&self, name: &Path, new_name: &Path) -> Result<u64, Error> {
        let (from, to) = (self.database.path.join(name), self.folder.path.join(new_name));
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
        attributes.map_err(copying_to(&to))?;
        replacement.sync()?;
        Ok(replacement.bytes_written)
    }

    /// Makes the copy a database.
    fn end(&self, place: &Place, tree: &Tree) -> Result<(), Error> {
        self.folder.sync_folders(tree)?;
        let now = place.open(None)?;
        if now.checkpoint != self.database.checkpoint {
            return Err(Error::in_use(
                &place.path,
                "a server ran on it while it was copied, so the copy is worth nothing",
                "remove the copy, shut the server down, and run this again",
            ));
        }
        let last = self.folder.path.join(self.last());
        let before = self.folder.path.join(format!("{}{ENDING}", self.last()));
        if before.exists() {
            self.tools.disk.rename(&before, &last).map_err(copying_to(&last))?;
        }
        self.folder.sync_folder(&self.folder.path)?;
        self.folder.end(&tree.folders)
    }
}
