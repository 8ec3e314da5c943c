//! A copy of a data directory, with its checksums set on the way.
//!
//! The source is only read. What makes the copy a cluster comes last: `PG_VERSION`,
//! then `global/pg_control` by a rename, each when the device holds what was before
//! it. Until then `pagewarden-protect.copy` says whose unfinished copy this is, and
//! lets the same command begin it again.
//!
//! | in the source | in the copy |
//! | --- | --- |
//! | files of pages | patched on the way; blocks are shared where the file system can |
//! | other files, empty folders, holes | the same |
//! | `pg_wal` as a link | a folder with its content: two servers must not share a log |
//! | other links to files, or to folders that hold no data | the same links |
//! | tablespaces elsewhere, other links to data | refused: the copy's server would write to the source's files |
//! | `postmaster.pid`, sockets, what earlier runs left | left out |

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::protect::Outcome;
use crate::protect::disk::{Disk, Written};
use crate::protect::pace::Pace;
use crate::protect::postgres::files::Listing;
use crate::protect::postgres::lock::check_not_running;
use crate::protect::postgres::pages::{RUN_BYTES, Work};
use crate::protect::postgres::{Cluster, JOURNAL, Run, read_control};
use crate::source::file::{open_regular, read_fully};
use crate::target::postgres::control::Control;
use crate::target::postgres::names::RelationFile;
use crate::target::postgres::read_small;
use crate::verdict::Protection;

/// Says that a copy is not finished, and of what.
const MARKER: &str = "pagewarden-protect.copy";
/// The control file before it has its name.
const CONTROL_BEFORE: &str = "pg_control.pagewarden";
/// Names of ours, and of a server that does not run.
const LEFT_OUT: [&str; 4] = ["postmaster.pid", JOURNAL, "pagewarden-protect.lock", MARKER];

/// Everything in a data directory, by its path relative to it.
#[derive(Default)]
struct Tree {
    /// Parents first.
    folders: Vec<(PathBuf, Metadata)>,
    files: Vec<PathBuf>,
    links: Vec<(PathBuf, Metadata)>,
    warnings: Vec<String>,
}

/// Makes the copy.
pub(super) fn run(run: &Run<'_>, target: &Path, wanted: Protection) -> Result<Outcome, Error> {
    let source = &run.request.path;
    check_not_running(source)?;
    let cluster = Cluster::open(source)?;
    let stamps = wanted == Protection::Checksum && cluster.protection() != wanted;
    let mut tree = Tree::default();
    tree.walk(source, Path::new(""))?;
    let mut outcome = cluster.outcome(wanted);
    outcome.warnings.append(&mut tree.warnings);
    if run.request.dry_run {
        if stamps {
            work(run, &cluster, None, &mut outcome)?;
        }
        return Ok(outcome);
    }
    let pace = Pace::new(run.options.rate);
    let copy = Copy { run, cluster: &cluster, target, wanted, pace };
    if copy.begin()? == Begun::Complete {
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
    let others = outcome.bytes_written;
    outcome.take(worked);
    outcome.bytes_written = outcome.bytes_written.saturating_add(others);
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
    name == Path::new("PG_VERSION") || name == Path::new("global/pg_control")
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
            let at_top = name.components().count() == 1;
            if at_top && LEFT_OUT.iter().any(|left_out| entry == *left_out) {
                continue;
            }
            let path = root.join(&name);
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
            let kind = metadata.file_type();
            if kind.is_symlink() {
                self.add_link(root, name, metadata)?;
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

    fn add_link(&mut self, root: &Path, name: PathBuf, metadata: Metadata) -> Result<(), Error> {
        let path = root.join(&name);
        let leads_to_folder = path.is_dir();
        let is_log = name == Path::new("pg_wal") || name == Path::new("pg_xlog");
        if is_log && leads_to_folder {
            let text = "a link, in the copy a folder: servers must not share a log";
            self.warnings.push(format!("{}: {text}", name.display()));
            return self.walk(root, &name);
        }
        let top = name.components().next().and_then(|top| top.as_os_str().to_str());
        let holds_data = top.is_some_and(|top| {
            matches!(top, "base" | "global") || (top.starts_with("pg_") && top != "pg_log")
        });
        let is_configuration = name.components().count() == 1 && !leads_to_folder;
        if holds_data && !is_configuration {
            return Err(Error::unknown(
                &path,
                "a link to data that lies elsewhere (such as a tablespace): a server on the copy would write to the original's files",
                "change this cluster in place, without --copy-to, or copy it with pg_basebackup and its --tablespace-mapping",
            ));
        }
        self.warnings.push(format!("{}: a link, which leads to the same place", name.display()));
        self.links.push((name, metadata));
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
    cluster: &'a Cluster,
    target: &'a Path,
    wanted: Protection,
    pace: Pace,
}

impl Copy<'_> {
    fn disk(&self) -> &dyn Disk {
        self.run.disk
    }

    fn failed<'e>(&self, path: &'e Path) -> impl FnOnce(io::Error) -> Error + use<'e> {
        move |error| Error::io("copy to", path, error)
    }

    /// Makes sure that nothing of somebody else's is in the way, and says that
    /// this is an unfinished copy.
    fn begin(&self) -> Result<Begun, Error> {
        let target = self.target;
        self.check_apart()?;
        let mark = self.mark();
        let marker = target.join(MARKER);
        let before = target.join(format!("{MARKER}.new"));
        let control = target.join("global").join("pg_control");
        match fs::read_dir(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.disk().make_folder(target).map_err(self.failed(target))?;
                let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
                self.sync_folder(parent.unwrap_or_else(|| Path::new(".")))?;
            }
            Err(error) => return Err(Error::io("list", target, error)),
            Ok(entries) => {
                if read_small(&marker, 4096).is_ok_and(|found| found == mark.as_bytes()) {
                    if control.exists() {
                        return Ok(Begun::Complete);
                    }
                    return Ok(Begun::Fresh);
                }
                let is_foreign = |entry: io::Result<fs::DirEntry>| {
                    entry.map_or(true, |entry| entry.path() != before)
                };
                if entries.into_iter().any(is_foreign) {
                    return Err(Error::unknown(
                        target,
                        "this folder is not empty, and what is in it is no unfinished copy of this cluster as it is now",
                        "name a folder that does not exist or is empty",
                    ));
                }
            }
        }
        // Whole at once, so that it is found or not.
        self.remove(&before)?;
        let file =
            self.disk().create(&before, &self.cluster.owner).map_err(self.failed(&before))?;
        let write = || {
            self.disk().write_at(&file, mark.as_bytes(), 0)?;
            self.sync(&file)?;
            self.disk().rename(&before, &marker)
        };
        write().map_err(self.failed(&marker))?;
        self.sync_folder(target)?;
        Ok(Begun::Fresh)
    }

    /// A copy inside its own source would never end.
    fn check_apart(&self) -> Result<(), Error> {
        let absolute = |path: &Path| {
            fs::canonicalize(path).or_else(|_| {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = fs::canonicalize(parent.unwrap_or_else(|| Path::new(".")))?;
                Ok::<_, io::Error>(parent.join(path.file_name().unwrap_or_default()))
            })
        };
        let target =
            absolute(self.target).map_err(|error| Error::io("open", self.target, error))?;
        let source = absolute(&self.cluster.root)
            .map_err(|error| Error::io("open", &self.cluster.root, error))?;
        if target.starts_with(&source) || source.starts_with(&target) {
            let reason = "the copy and its source lie inside one another";
            return Err(Error::unknown(self.target, reason, "name a folder elsewhere"));
        }
        Ok(())
    }

    /// What the copy is of: this cluster, in this state.
    fn mark(&self) -> String {
        let control = blake3::hash(&self.cluster.bytes);
        let wanted = self.wanted.name();
        format!("unfinished copy by pagewarden protect, not to be used\n{wanted} {control}\n")
    }

    fn make_tree(&self, tree: &Tree) -> Result<(), Error> {
        for (name, _) in &tree.folders {
            let path = self.target.join(name);
            self.disk().make_folder(&path).map_err(self.failed(&path))?;
        }
        for (name, metadata) in &tree.links {
            let (from, to) = (self.cluster.root.join(name), self.target.join(name));
            let content = fs::read_link(&from).map_err(|error| Error::io("read", &from, error))?;
            self.remove(&to)?;
            self.disk().make_link(&content, &to, metadata).map_err(self.failed(&to))?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        match self.disk().remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", path, error))
            }
            _ => Ok(()),
        }
    }

    /// A file that holds no pages, or whose pages stay as they are.
    fn copy_file(&self, name: &Path, outcome: &mut Outcome) -> Result<(), Error> {
        let (from, to) = (self.cluster.root.join(name), self.target.join(name));
        let source = open_regular(&from).map_err(|error| Error::io("open", &from, error))?;
        let like = source.metadata().map_err(|error| Error::io("open", &from, error))?;
        self.remove(&to)?;
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
        copy().map_err(self.failed(&to))
    }

    fn copy_bytes(&self, source: &fs::File, file: &Written, length: u64) -> io::Result<u64> {
        use rustix::fs::{SeekFrom, seek};

        let mut buffer = vec![0; RUN_BYTES];
        let mut offset = 0;
        let mut sum = 0_u64;
        while offset < length && !self.run.options.stop.load(Ordering::Relaxed) {
            match seek(source, SeekFrom::Data(offset)) {
                Ok(data) if data > offset => {
                    offset = data;
                    continue;
                }
                Err(rustix::io::Errno::NXIO) => break,
                // Where holes are not told, there are none.
                _ => {}
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
        for (name, _) in tree.folders.iter().rev() {
            self.sync_folder(&self.target.join(name))?;
        }
        check_not_running(&self.cluster.root)?;
        let source = self.cluster.control_path();
        if read_control(&source)? != self.cluster.bytes {
            return Err(Error::unknown(
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
        let folder = self.target.join("global");
        let (before, after) = (folder.join(CONTROL_BEFORE), folder.join("pg_control"));
        self.remove(&before)?;
        let write = || {
            let file = self.disk().create(&before, &like)?;
            self.disk().write_at(&file, &bytes, 0)?;
            self.disk().set_attributes(&file, &like)?;
            self.sync(&file)?;
            self.disk().rename(&before, &after)
        };
        write().map_err(self.failed(&after))?;
        self.sync_folder(&folder)?;
        self.end_names(tree)
    }

    /// What is left to do when the copy is a cluster.
    fn end_names(&self, tree: &Tree) -> Result<(), Error> {
        for (name, like) in tree.folders.iter().rev() {
            let path = self.target.join(name);
            self.disk().set_folder_attributes(&path, like).map_err(self.failed(&path))?;
        }
        self.remove(&self.target.join(MARKER))?;
        if let Some((_, like)) = tree.folders.first() {
            let set = self.disk().set_folder_attributes(self.target, like);
            set.map_err(self.failed(self.target))?;
        }
        self.sync_folder(self.target)
    }

    fn sync(&self, file: &Written) -> io::Result<()> {
        if self.run.options.sync { self.disk().sync(file) } else { Ok(()) }
    }

    fn sync_folder(&self, path: &Path) -> Result<(), Error> {
        if !self.run.options.sync {
            return Ok(());
        }
        self.disk().sync_folder(path).map_err(|error| Error::io("sync", path, error))
    }
}
