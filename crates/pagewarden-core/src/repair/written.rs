//! Writing the pages of a plan, and bringing back what was there before.
//!
//! | step | what an interruption leaves |
//! | --- | --- |
//! | undo file under another name, synced | the database as it was |
//! | renamed, folder synced | the same, and a plan that the same command finishes |
//! | pages written, each file synced, read back | pages old, new, or mixed of both; the undo file has both |
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
use crate::repair::{Patient, Run};
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
    write().map_err(|error| Error::io("write", &path, error))?;
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
    patient: &dyn Patient,
    undo: &UndoFile,
) -> Result<(), Error> {
    put(run, root, patient, undo, |saved| &saved.new)
}

/// Writes the old pages.
pub(super) fn undo(
    run: &Run<'_>,
    root: &Path,
    patient: &dyn Patient,
    undo: &UndoFile,
) -> Result<(), Error> {
    put(run, root, patient, undo, |saved| &saved.old)
}

fn put(
    run: &Run<'_>,
    root: &Path,
    patient: &dyn Patient,
    undo: &UndoFile,
    wanted: impl Fn(&Saved) -> &Vec<u8>,
) -> Result<(), Error> {
    check_known(root, undo)?;
    let mut files: BTreeMap<&str, Vec<&Saved>> = BTreeMap::new();
    for saved in &undo.pages {
        files.entry(&saved.entry.file).or_default().push(saved);
    }
    for (name, pages) in files {
        let path = home(root).0.join(name);
        let file = Written::open(&path).map_err(|error| Error::io("open", &path, error))?;
        for saved in &pages {
            if !patient.is_held() {
                return Err(Error::in_use(
                    root,
                    "a server was started on it meanwhile, so nothing more is written",
                    "stop it cleanly, and run this again",
                ));
            }
            run.disk
                .write_at(&file, wanted(saved), saved.entry.offset)
                .map_err(|error| Error::io("write", &path, error))?;
        }
        run.disk.sync(&file).map_err(|error| Error::io("sync", &path, error))?;
        for saved in &pages {
            let wanted = wanted(saved);
            let reader = Reader::open(&path, wanted.len());
            let mut reader = reader.map_err(|error| Error::io("read back", &path, error))?;
            let read = reader.read(saved.entry.offset, wanted.len());
            if read.map_err(|error| Error::io("read back", &path, error))? != wanted.as_slice() {
                return Err(Error::lost_write(
                    &path,
                    format!("byte {} does not read back as it was written", saved.entry.offset),
                    "the device or file system loses writes: check them, and run this again",
                ));
            }
        }
    }
    Ok(())
}

/// Refuses if a page is neither old, nor new, nor of both.
pub(super) fn check_known(root: &Path, undo: &UndoFile) -> Result<(), Error> {
    for saved in &undo.pages {
        let path = home(root).0.join(&saved.entry.file);
        let now = now(root, saved).map_err(|error| Error::io("read", &path, error))?;
        if !is_mixed(&now, saved) {
            let reason = format!(
                "what is at byte {} is neither what the undo file kept nor what was written then",
                saved.entry.offset
            );
            let hint = "a server has changed this page since: nothing is written";
            return Err(Error::changed(&path, reason, hint));
        }
    }
    Ok(())
}

/// True if every page is as the undo file keeps it.
pub(super) fn holds_old(root: &Path, undo: &UndoFile) -> bool {
    undo.pages.iter().all(|saved| now(root, saved).is_ok_and(|now| now == saved.old))
}

/// True if not all that was to be written is, and what is there instead is known.
pub(super) fn is_unfinished(root: &Path, undo: &UndoFile) -> bool {
    let pages: Vec<_> = undo.pages.iter().map(|saved| (saved, now(root, saved))).collect();
    let is = |test: fn(&[u8], &Saved) -> bool| {
        pages.iter().all(|(saved, now)| now.as_ref().is_ok_and(|now| test(now, saved)))
    };
    is(is_mixed) && !is(|now, saved| now == saved.new)
}

fn is_mixed(now: &[u8], saved: &Saved) -> bool {
    let sectors = now.chunks(SECTOR).zip(saved.old.chunks(SECTOR)).zip(saved.new.chunks(SECTOR));
    // A kill ends a write anywhere, a power failure between sectors.
    let is_cut = || {
        let same = now.iter().zip(&saved.new).take_while(|(now, new)| now == new).count();
        now.get(same..) == saved.old.get(same..)
    };
    let is_known = |((now, old), new): ((&[u8], &[u8]), &[u8])| now == old || now == new;
    now.len() == saved.old.len()
        && (sectors.clone().all(is_known) || is_cut() || {
            let same = now.iter().zip(&saved.old).take_while(|(now, old)| now == old).count();
            now.get(same..) == saved.new.get(same..)
        })
}

fn now(root: &Path, saved: &Saved) -> io::Result<Vec<u8>> {
    let file = open_regular(&home(root).0.join(&saved.entry.file))?;
    let mut bytes = vec![0; saved.old.len()];
    let count = read_fully(&file, &mut bytes, saved.entry.offset)?;
    bytes.truncate(count);
    Ok(bytes)
}
