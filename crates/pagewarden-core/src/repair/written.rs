//! Writing the pages of a plan, and bringing back what was there before.
//!
//! | step | what an interruption leaves |
//! | --- | --- |
//! | undo file under another name, synced | the database as it was |
//! | renamed, folder synced | the same, and a plan that the same command finishes |
//! | pages written, each file synced, read back | pages old, new, or mixed of both; the undo file has both |
//!
//! A file that ended too early grows, and one that was not there is made; undone, it is cut to its old
//! length, or removed. What is not old of a page that was not there counts as zero.
//!
//! A page that is neither old, nor new, nor sectors of both is one that the undo file knows nothing
//! of: nothing is written then.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::protect::disk::{Written, remove};
use crate::protect::read_back::Reader;
use crate::repair::undo_file::{Saved, UndoFile};
use crate::repair::{Hold, Run};
use crate::source::file::{open_regular, read_fully};

/// The default name in the data directory, where servers ignore it. Beside a database that is one
/// file, the file's name stands before it. The names of later repairs have a number.
const STEM: &str = "pagewarden-repair";
const ENDING: &str = ".undo";
/// Behind the name of one that is not whole yet.
const UNFINISHED: &str = ".new";
/// Devices write this much at once, or nothing of it.
const SECTOR: usize = 512;

/// The folder of which names in an undo file are, and what default names begin with.
fn home(root: &Path) -> (&Path, String) {
    match root.file_name() {
        Some(name) if root.is_file() => {
            (folder_of(root), format!("{}.{STEM}", name.to_string_lossy()))
        }
        _ => (root, STEM.to_owned()),
    }
}

/// The undo files that an interrupted run may have left.
pub(super) fn undo_files(run: &Run<'_>, root: &Path) -> Vec<PathBuf> {
    let (folder, stem) = home(root);
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = listed
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| is_default_name(name, &stem)))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.extend(run.request.undo_file.clone());
    paths
}

fn is_default_name(name: &str, stem: &str) -> bool {
    let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(ENDING));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number))
}

/// Writes the undo file, and waits until the device holds it; its path.
pub(super) fn keep(run: &Run<'_>, root: &Path, undo: &UndoFile) -> Result<PathBuf, Error> {
    let path = match &run.request.undo_file {
        Some(path) if path.exists() => {
            return Err(Error::refused(
                path,
                "this file exists, and an undo file never replaces another",
                "name a file that does not exist",
            ));
        }
        Some(path) => path.clone(),
        None => free_name(root),
    };
    let like = fs::metadata(root).map_err(|error| Error::io("open", root, error))?;
    let mut before = path.clone().into_os_string();
    before.push(UNFINISHED);
    let before = PathBuf::from(before);
    remove(run.disk, &before)?;
    let bytes = undo.bytes();
    let write = || {
        let file = run.disk.create(&before, &like)?;
        run.disk.write_at(&file, &bytes, 0)?;
        run.disk.sync(&file)?;
        run.disk.rename(&before, &path)?;
        run.disk.sync_folder(folder_of(&path))
    };
    write().map_err(|error| {
        // Where there is no room, it gives back what it took.
        let _ = remove(run.disk, &before);
        Error::io("write", &path, error)
    })?;
    if UndoFile::read(&path)? != *undo {
        return Err(Error::lost_write(
            &path,
            "the undo file does not read back as it was written",
            "no page was changed; name another place with --undo-file",
        ));
    }
    Ok(path)
}

fn free_name(root: &Path) -> PathBuf {
    let (folder, stem) = home(root);
    let first = folder.join(format!("{stem}{ENDING}"));
    let numbered = (2_u32..).map(|number| folder.join(format!("{stem}.{number}{ENDING}")));
    let mut names = std::iter::once(first.clone()).chain(numbered);
    let free = names.find(|path| fs::symlink_metadata(path).is_err());
    free.unwrap_or(first)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Takes the undo file away, after all was undone.
pub(super) fn discard(run: &Run<'_>, path: &Path) -> Result<(), Error> {
    remove(run.disk, path)?;
    let folder = folder_of(path);
    run.disk.sync_folder(folder).map_err(|error| Error::io("sync", folder, error))
}

/// Writes the new pages.
pub(super) fn write(
    run: &Run<'_>,
    root: &Path,
    hold: &dyn Hold,
    undo: &UndoFile,
) -> Result<(), Error> {
    put(run, root, hold, undo, |saved| &saved.new)
}

/// A file of the database to be written to; one that was not there before is made. `None`: it is not
/// there, and is not to be.
fn opened(run: &Run<'_>, path: &Path, makes: Option<bool>) -> io::Result<Option<Written>> {
    let opened = Written::open(path);
    let Some(makes) = makes else { return opened.map(Some) };
    let is_absent = opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if !makes {
        return if is_absent { Ok(None) } else { opened.map(Some) };
    }
    let like = like_beside(path)?;
    let file = if is_absent { run.disk.create(path, &like)? } else { opened? };
    run.disk.set_attributes(&file, &like)?;
    Ok(Some(file))
}

/// A file beside a path, whose owner and mode a new one gets.
fn like_beside(path: &Path) -> io::Result<fs::Metadata> {
    let mut beside = Vec::new();
    for entry in fs::read_dir(folder_of(path))? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.path() != path {
            beside.push(entry.path());
        }
    }
    let first = beside.into_iter().min();
    first.map_or_else(|| fs::metadata(folder_of(path)), fs::symlink_metadata)
}

/// Where a file ended before, if pages of it were not there.
fn end_before(pages: &[&Saved]) -> Option<u64> {
    let grown = pages.iter().filter(|saved| saved.grows());
    grown.map(|saved| saved.entry.offset.saturating_add(saved.old.len() as u64)).min()
}

/// Writes the old pages.
pub(super) fn undo(
    run: &Run<'_>,
    root: &Path,
    hold: &dyn Hold,
    undo: &UndoFile,
) -> Result<(), Error> {
    put(run, root, hold, undo, |saved| &saved.old)
}

fn put(
    run: &Run<'_>,
    root: &Path,
    hold: &dyn Hold,
    undo: &UndoFile,
    wanted: impl Fn(&Saved) -> &Vec<u8>,
) -> Result<(), Error> {
    check_known(root, undo)?;
    for (name, pages) in by_file(undo) {
        let path = home(root).0.join(name);
        let is_new = pages.iter().any(|saved| saved.entry.is_new);
        // Of a file that was not there no byte is wanted back.
        let makes = is_new.then(|| pages.iter().any(|saved| !wanted(saved).is_empty()));
        let file = opened(run, &path, makes).map_err(|error| Error::io("open", &path, error))?;
        let Some(file) = file else {
            // An interrupted run may have removed it, and not waited.
            sync_folder_of(run, &path)?;
            continue;
        };
        if makes == Some(false) {
            check_held(root, hold)?;
            drop(file);
            remove(run.disk, &path)?;
            sync_folder_of(run, &path)?;
            continue;
        }
        for saved in &pages {
            check_held(root, hold)?;
            if wanted(saved).is_empty() {
                continue;
            }
            run.disk
                .write_at(&file, wanted(saved), saved.entry.offset)
                .map_err(|error| Error::io("write", &path, error))?;
        }
        let is_cut = pages.iter().any(|saved| wanted(saved).len() < saved.new.len());
        if let Some(end) = end_before(&pages).filter(|_| is_cut) {
            run.disk.set_length(&file, end).map_err(|error| Error::io("cut", &path, error))?;
        }
        run.disk.sync(&file).map_err(|error| Error::io("sync", &path, error))?;
        if is_new {
            sync_folder_of(run, &path)?;
        }
        for saved in pages.iter().filter(|saved| !wanted(saved).is_empty()) {
            read_back(&path, saved.entry.offset, wanted(saved))?;
        }
    }
    Ok(())
}

fn by_file(undo: &UndoFile) -> BTreeMap<&str, Vec<&Saved>> {
    let mut files: BTreeMap<&str, Vec<&Saved>> = BTreeMap::new();
    for saved in &undo.pages {
        files.entry(&saved.entry.file).or_default().push(saved);
    }
    files
}

fn sync_folder_of(run: &Run<'_>, path: &Path) -> Result<(), Error> {
    let folder = folder_of(path);
    run.disk.sync_folder(folder).map_err(|error| Error::io("sync", folder, error))
}

fn check_held(root: &Path, hold: &dyn Hold) -> Result<(), Error> {
    match hold.is_held() {
        true => Ok(()),
        false => Err(Error::in_use(
            root,
            "a server was started on it meanwhile, so nothing more is written",
            "stop it cleanly, and run this again",
        )),
    }
}

fn read_back(path: &Path, offset: u64, wanted: &[u8]) -> Result<(), Error> {
    let failed = |error| Error::io("read back", path, error);
    let mut reader = Reader::open(path, wanted.len()).map_err(failed)?;
    if reader.read(offset, wanted.len()).map_err(failed)? != wanted {
        return Err(Error::lost_write(
            path,
            format!("byte {offset} does not read back as it was written"),
            "the device or file system loses writes: check them, and run this again",
        ));
    }
    Ok(())
}

/// Refuses if a page is neither old, nor new, nor of both; or a file that grew is longer than that.
pub(super) fn check_known(root: &Path, undo: &UndoFile) -> Result<(), Error> {
    let hint = "a server has changed this page since: nothing is written";
    for saved in &undo.pages {
        let path = home(root).0.join(&saved.entry.file);
        let now = now(root, saved).map_err(|error| Error::io("read", &path, error))?;
        if !is_mixed(&now, saved) {
            let reason = format!(
                "what is at byte {} is neither what the undo file kept nor what was written then",
                saved.entry.offset
            );
            return Err(Error::changed(&path, reason, hint));
        }
    }
    for (name, pages) in by_file(undo) {
        if !is_no_longer(root, name, &pages) {
            let reason = "it is longer than the repair has made it".to_owned();
            return Err(Error::changed(&home(root).0.join(name), reason, hint));
        }
    }
    Ok(())
}

/// True unless a file that lacked pages is longer than with them.
fn is_no_longer(root: &Path, name: &str, pages: &[&Saved]) -> bool {
    let Some(_) = end_before(pages) else { return true };
    let ends = pages.iter().map(|saved| saved.entry.offset.saturating_add(saved.new.len() as u64));
    let length = fs::symlink_metadata(home(root).0.join(name)).map_or(0, |found| found.len());
    length <= ends.max().unwrap_or(0)
}

/// True if every page is as the undo file keeps it.
pub(super) fn holds_old(root: &Path, undo: &UndoFile) -> bool {
    let is_there = |saved: &Saved| {
        fs::symlink_metadata(home(root).0.join(&saved.entry.file)).is_ok() != saved.entry.is_new
    };
    undo.pages
        .iter()
        .all(|saved| is_there(saved) && now(root, saved).is_ok_and(|now| now == saved.old))
}

/// True if not all that was to be written is, and what is there instead is known.
pub(super) fn is_unfinished(root: &Path, undo: &UndoFile) -> bool {
    let pages: Vec<_> = undo.pages.iter().map(|saved| (saved, now(root, saved))).collect();
    let is = |test: fn(&[u8], &Saved) -> bool| {
        pages.iter().all(|(saved, now)| now.as_ref().is_ok_and(|now| test(now, saved)))
    };
    is(is_mixed)
        && !is(|now, saved| now == saved.new)
        && by_file(undo).iter().all(|(name, pages)| is_no_longer(root, name, pages))
}

fn is_mixed(now: &[u8], saved: &Saved) -> bool {
    if now.len() < saved.old.len() || now.len() > saved.new.len() {
        return false;
    }
    // Where nothing was, a device that lost a write behind it has zeros.
    let whole = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.resize(saved.new.len(), 0);
        bytes
    };
    let (now, old, new) = (whole(now), whole(&saved.old), &saved.new);
    let mut sectors = now.chunks(SECTOR).zip(old.chunks(SECTOR)).zip(new.chunks(SECTOR));
    // A kill ends a write anywhere, a power failure between sectors.
    let is_cut = |one: &[u8], other: &[u8]| {
        let same = now.iter().zip(one).take_while(|(now, one)| now == one).count();
        now.get(same..) == other.get(same..)
    };
    sectors.all(|((now, old), new)| now == old || now == new)
        || is_cut(new, &old)
        || is_cut(&old, new)
}

fn now(root: &Path, saved: &Saved) -> io::Result<Vec<u8>> {
    let file = match open_regular(&home(root).0.join(&saved.entry.file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && saved.entry.is_new => {
            return Ok(Vec::new());
        }
        opened => opened?,
    };
    let mut bytes = vec![0; saved.new.len()];
    let count = read_fully(&file, &mut bytes, saved.entry.offset)?;
    bytes.truncate(count);
    Ok(bytes)
}
