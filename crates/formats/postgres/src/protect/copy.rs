//! A copy of a data directory, with its checksums set on the way.
//!
//! The source is only read. What makes the copy a cluster comes last: `PG_VERSION`,
//! then `global/pg_control` by a rename, each when the device holds what was before
//! it.
//!
//! | in the source | in the copy |
//! | --- | --- |
//! | files of pages | patched on the way; blocks are shared where the file system can |
//! | other files, empty folders, holes | the same |
//! | `pg_wal` as a link | a folder with its content: two servers must not share a log |
//! | a tablespace elsewhere that is mapped ([`tablespaces`]) | a link to the new place, and there the part that is this cluster's |
//! | other links to files, or to folders that hold no data | the same links |
//! | other tablespaces elsewhere, other links to data | refused: the copy's server would write to the source's files |
//! | `postmaster.pid`, sockets, what earlier runs left | left out |

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::files::control::Control;
use crate::files::names::RelationFile;
use crate::protect::files::Listing;
use crate::protect::lock::check_not_running;
use crate::protect::pages::{RUN_BYTES, Work};
use crate::protect::{Cluster, Run, read_control};
use pagewarden_core::error::Error;
use pagewarden_core::protect::copy::{
    CopyFolder, Found, MARKER, Take, Tree, check_apart, copying_to,
};
use pagewarden_core::protect::disk::{Disk, Written, remove};
use pagewarden_core::protect::journal;
use pagewarden_core::protect::{Outcome, stretches};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::verdict::Protection;

mod tablespaces;

use tablespaces::Tablespaces;

/// What makes the copy a cluster.
const CONTROL: &str = "global/pg_control";
/// The same before it has its name.
const CONTROL_BEFORE: &str = "global/pg_control.pagewarden";
/// Names that Pagewarden makes, and one of a server that does not run.
const LEFT_OUT: [&str; 4] = ["postmaster.pid", journal::NAME, "pagewarden-protect.lock", MARKER];

/// Makes the copy.
pub(super) fn run(run: &Run<'_>, target: &Path, wanted: Protection) -> Result<Outcome, Error> {
    let source = &run.request.path;
    check_not_running(source)?;
    let cluster = Cluster::open(source)?;
    let stamps = wanted == Protection::Checksum && cluster.protection() != wanted;
    let tablespaces = Tablespaces::of(&cluster, &run.request.tablespaces)?;
    let tree = Tree::of(source, &|name, metadata| take(&cluster, &tablespaces, name, metadata))?;
    let mut outcome = cluster.outcome(wanted);
    outcome.warnings.extend(tree.warnings.iter().cloned());
    if run.request.dry_run {
        if stamps {
            work(run, &cluster, None, &mut outcome)?;
        }
        return Ok(outcome);
    }
    let state = format!("{} {}", wanted.name(), tablespaces.state(&cluster));
    let folder = |path: &Path| CopyFolder::new(run.disk, run.options, path, &state);
    let copy = Copy {
        run,
        cluster: &cluster,
        folder: folder(target),
        elsewhere: tablespaces.places().map(folder).collect(),
        wanted,
        pace: RateLimiter::new(run.options.rate),
    };
    if copy.begin(&tablespaces)? == Found::Complete {
        copy.end_names(&tree)?;
        outcome.after = wanted;
        outcome.warnings.push("an earlier run had made this copy".to_owned());
        return Ok(outcome);
    }
    copy.make_tree(&tree)?;
    for name in &tree.files {
        let is_page_file = stamps && is_page_file(name, &cluster.tablespace_folder());
        if !is_page_file && !is_last(name) && !run.options.stop.load(Ordering::Relaxed) {
            copy.copy_file(name, &mut outcome)?;
        }
    }
    if stamps {
        work(run, &cluster, Some(target), &mut outcome)?;
    }
    outcome.stopped = run.options.stop.load(Ordering::Relaxed);
    let is_damaged = outcome.pages.damaged > 0 && !run.request.skip_damaged;
    if outcome.stopped || is_damaged {
        return Ok(outcome);
    }
    copy.end(&tree, &mut outcome)?;
    outcome.after = wanted;
    Ok(outcome)
}

/// The files of pages, to the copy or for a look.
fn work(
    run: &Run<'_>,
    cluster: &Cluster,
    target: Option<&Path>,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let listing = Listing::of(&cluster.root, &cluster.tablespace_folder())?;
    let work = Work {
        disk: run.disk,
        options: run.options,
        progress: run.progress,
        listing: &listing,
        layout: cluster.layout(),
        dry_run: run.request.dry_run,
        skip_damaged: run.request.skip_damaged,
        copy: target,
        done: None,
        journal: None,
        may_write: &|| true,
        caching: run.caching,
        run_bytes: run.run_bytes,
        batch_files: run.batch_files,
    };
    let worked = work.run()?;
    outcome.warnings.extend(listing.warnings.iter().cloned());
    outcome.add(worked);
    Ok(())
}

/// True for what is copied by [`work`], which lists by the same names.
fn is_page_file(name: &Path, version: &str) -> bool {
    let mut parts = name.components().filter_map(|part| part.as_os_str().to_str());
    let in_folder = match parts.next() {
        Some("global") => true,
        Some("base") => parts.next().is_some_and(|folder| !folder.starts_with("pgsql_tmp")),
        Some("pg_tblspc") => parts.nth(1) == Some(version) && parts.next().is_some(),
        _ => false,
    };
    let file = parts.next().filter(|_| in_folder).and_then(RelationFile::parse);
    file.is_some() && parts.next().is_none()
}

fn is_last(name: &Path) -> bool {
    name == Path::new("PG_VERSION") || name == Path::new(CONTROL)
}

/// What becomes of a name in the data directory.
fn take(
    cluster: &Cluster,
    tablespaces: &Tablespaces,
    name: &Path,
    metadata: &Metadata,
) -> Result<Take, Error> {
    let is_at_top = name.components().count() == 1;
    if is_at_top && LEFT_OUT.iter().any(|left_out| name == Path::new(left_out)) {
        return Ok(Take::LeftOut(None));
    }
    if tablespaces.is_of_another_version(cluster, name) {
        return Ok(Take::LeftOut(Some("of another version's cluster, left out")));
    }
    if !metadata.is_symlink() {
        return Ok(Take::AsItIs);
    }
    if let Some(place) = tablespaces.place_of(name) {
        return Ok(Take::Elsewhere(place.to_owned()));
    }
    let path = cluster.root.join(name);
    let leads_to_folder = path.is_dir();
    let is_log = name == Path::new("pg_wal") || name == Path::new("pg_xlog");
    if is_log && leads_to_folder {
        return Ok(Take::Folder("a link, in the copy a folder: servers must not share a log"));
    }
    let top = name.components().next().and_then(|top| top.as_os_str().to_str());
    let holds_data = top.is_some_and(|top| {
        matches!(top, "base" | "global") || (top.starts_with("pg_") && top != "pg_log")
    });
    if holds_data && (leads_to_folder || !is_at_top) {
        let hint = match tablespaces::is_name(name) {
            true => {
                "--tablespace-mapping OLD=NEW copies it to a folder of its own; or change this cluster in place, without --copy-to"
            }
            false => {
                "change this cluster in place, without --copy-to, or put in the link's place what it leads to"
            }
        };
        return Err(Error::refused(
            &path,
            "a link to data that lies elsewhere (such as a tablespace): a server on the copy would write to the original's files",
            hint,
        ));
    }
    Ok(Take::Link("a link, which leads to the same place"))
}

struct Copy<'a> {
    run: &'a Run<'a>,
    cluster: &'a Cluster,
    folder: CopyFolder<'a>,
    /// Where the tablespaces go that do not lie in the data directory.
    elsewhere: Vec<CopyFolder<'a>>,
    wanted: Protection,
    pace: RateLimiter,
}

impl Copy<'_> {
    fn disk(&self) -> &dyn Disk {
        self.run.disk
    }

    /// Makes sure that no files of other programs are in the way, and says that
    /// this is an unfinished copy.
    fn begin(&self, tablespaces: &Tablespaces) -> Result<Found, Error> {
        check_apart(&self.cluster.root, &self.folder.path)?;
        let found = self.folder.look_begun(CONTROL)?;
        if found == Found::Complete {
            return Ok(found);
        }
        // Before the first of them is made.
        let mut places = Vec::new();
        for folder in &self.elsewhere {
            tablespaces.check_apart(&self.cluster.root, &self.folder.path, &folder.path)?;
            places.push((folder, folder.look_begun(CONTROL)?));
        }
        self.folder.begin(found, &self.cluster.owner)?;
        places
            .into_iter()
            .try_for_each(|(folder, found)| folder.begin(found, &self.cluster.owner))?;
        Ok(found)
    }

    fn make_tree(&self, tree: &Tree) -> Result<(), Error> {
        self.folder.make_folders(tree)?;
        for (name, metadata) in &tree.links {
            let (from, to) = (self.cluster.root.join(name), self.folder.path.join(name));
            let content = fs::read_link(&from).map_err(|error| Error::io("read", &from, error))?;
            remove(self.disk(), &to)?;
            self.disk().make_link(&content, &to, metadata).map_err(copying_to(&to))?;
        }
        Ok(())
    }

    /// A file that holds no pages, or whose pages stay as they are.
    fn copy_file(&self, name: &Path, outcome: &mut Outcome) -> Result<(), Error> {
        let (from, to) = (self.cluster.root.join(name), self.folder.path.join(name));
        let source = open_regular(&from).map_err(|error| Error::io("open", &from, error))?;
        let like = source.metadata().map_err(|error| Error::io("open", &from, error))?;
        remove(self.disk(), &to)?;
        let mut copy = || {
            let file = self.disk().create(&to, &like)?;
            if !self.disk().share_blocks(&file, &source) {
                self.disk().set_length(&file, like.len())?;
                let written = self.copy_bytes(&source, &file, like.len())?;
                outcome.bytes_written = outcome.bytes_written.saturating_add(written);
            }
            self.disk().set_attributes(&file, &like)?;
            self.sync(&file)
        };
        copy().map_err(copying_to(&to))
    }

    fn copy_bytes(&self, source: &fs::File, file: &Written, length: u64) -> io::Result<u64> {
        let mut buffer = vec![0; RUN_BYTES];
        let mut offset = 0;
        let mut sum = 0_u64;
        while offset < length && !self.run.options.stop.load(Ordering::Relaxed) {
            if let Some(end) = stretches::hole_end(source, offset) {
                offset = end;
                continue;
            }
            let count = read_fully(source, &mut buffer, offset)?;
            let bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.pace.pay(2 * count as u64, &self.run.options.stop);
            self.disk().write_at(file, bytes, offset)?;
            offset = offset.saturating_add(count as u64);
            sum = sum.saturating_add(count as u64);
        }
        Ok(sum)
    }

    /// Makes the copy a cluster.
    fn end(&self, tree: &Tree, outcome: &mut Outcome) -> Result<(), Error> {
        self.copy_file(Path::new("PG_VERSION"), outcome)?;
        self.folder.sync_folders(tree)?;
        check_not_running(&self.cluster.root)?;
        let source = self.cluster.control_path();
        if read_control(&source)? != self.cluster.bytes {
            return Err(Error::in_use(
                &self.cluster.root,
                "a server ran on it while it was copied, so the copy is worth nothing",
                "remove the copy, stop the server, and run this again",
            ));
        }
        let like = fs::metadata(&source).map_err(|error| Error::io("open", &source, error))?;
        let mut bytes = self.cluster.bytes.clone();
        let sector = self.cluster.sector(self.wanted)?;
        if let Some(first) = bytes.first_chunk_mut() {
            *first = sector;
        }
        debug_assert!(Control::parse(&bytes).is_ok());
        let [before, after] = [CONTROL_BEFORE, CONTROL].map(|name| self.folder.path.join(name));
        remove(self.disk(), &before)?;
        let write = || {
            let file = self.disk().create(&before, &like)?;
            self.disk().write_at(&file, &bytes, 0)?;
            self.disk().set_attributes(&file, &like)?;
            self.sync(&file)?;
            self.disk().rename(&before, &after)
        };
        write().map_err(copying_to(&after))?;
        self.folder.sync_folder(&self.folder.path.join("global"))?;
        self.end_names(tree)
    }

    /// What is left to do when the copy is a cluster.
    fn end_names(&self, tree: &Tree) -> Result<(), Error> {
        for folder in &self.elsewhere {
            remove(self.disk(), &folder.marker())?;
            folder.sync_folder(&folder.path)?;
        }
        self.folder.end(&tree.folders)
    }

    fn sync(&self, file: &Written) -> io::Result<()> {
        if self.run.options.sync { self.disk().sync(file) } else { Ok(()) }
    }
}
