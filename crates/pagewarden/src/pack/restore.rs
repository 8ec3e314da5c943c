//! Writes what is in a pack as files and folders again.
//!
//! Files get their names in folders that have temporary ones themselves until all
//! of it is written, tested and on the device: that is the caller's part. What an
//! interrupted run has left there is read and tested by the sums of the pack, and
//! only what fails is written again.

use std::collections::HashSet;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pagewarden_core::system::fs::OFlags;
use pagewarden_core::system::{
    FileExt as _, OpenOptionsExt as _, identity_of_open, open_folder, set_mode, set_mode_of,
    symlink, sync_folder, unwritable_name,
};

use crate::error::Error;
use crate::pack::codec::is_zero;
use crate::pack::layout::{span_bytes, span_count};
use crate::pack::lock;
use crate::pack::read::{Contents, Pack};
use crate::pack::table::{Attributes, Entry, What};
use crate::pack::tree::{Hash, file_hash, span_hash};
use crate::pack::{PackError, SPAN_BYTES, block_sum};
use crate::source::file::read_fully;
use crate::source::rate::RateLimiter;
use crate::source::write_back;
use crate::verify::Progress;

/// Spans of a file that one thread writes before it looks for other work.
const SPANS_AT_ONCE: u64 = 16;
/// Of what is being written: other users have no access to it yet.
const MODE_MEANWHILE: u32 = 0o600;
const FOLDER_MODE_MEANWHILE: u32 = 0o700;
/// What a file may get of the mode that it had.
const FILE_MODE: u32 = 0o777;

/// Where the entries of a pack are written.
#[derive(Debug, Clone, Default)]
pub struct Places {
    folder: PathBuf,
    links: Vec<Link>,
}

#[derive(Debug, Clone)]
struct Link {
    /// The entry.
    name: PathBuf,
    /// Where what is behind it is written.
    staging: PathBuf,
    /// What it will lead to.
    target: PathBuf,
}

impl Places {
    /// All below one folder, which exists.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, links: Vec::new() }
    }

    /// What lies behind the link `name` is written to `staging`, which exists; the
    /// link will lead to `target`.
    pub fn add_link(&mut self, name: PathBuf, staging: PathBuf, target: PathBuf) {
        self.links.push(Link { name, staging, target });
    }

    /// Where an entry is written.
    #[must_use]
    pub fn path(&self, name: &Path) -> PathBuf {
        let behind = self.links.iter().filter(|link| name.starts_with(&link.name));
        let Some(link) = behind.max_by_key(|link| link.name.components().count()) else {
            return self.folder.join(name);
        };
        let rest = name.strip_prefix(&link.name).unwrap_or(Path::new(""));
        if rest == Path::new("") { link.staging.clone() } else { link.staging.join(rest) }
    }

    /// Puts the links where they belong.
    pub(super) fn make_links(&self) -> Result<(), Error> {
        for link in &self.links {
            let name = link.name.file_name().unwrap_or_default();
            let path = self.path(link.name.parent().unwrap_or(Path::new(""))).join(name);
            let failed = |error| Error::io("make", &path, error);
            match fs::read_link(&path) {
                Ok(target) if target == link.target => continue,
                Ok(_) => fs::remove_file(&path).map_err(failed)?,
                Err(_) => {}
            }
            symlink(&link.target, &path).map_err(failed)?;
        }
        Ok(())
    }
}

/// How much was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files, without folders.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes that were there already, and sound.
    pub kept_bytes: u64,
}

/// What is to be written.
pub struct Restoring<'a> {
    /// From where.
    pub pack: &'a Pack,
    /// To where.
    pub places: &'a Places,
    /// Which entries.
    pub wanted: &'a (dyn Fn(&Entry) -> bool + Sync),
    /// By how many threads.
    pub jobs: usize,
    /// A ceiling on bytes written a second.
    pub rate: Option<NonZero<u64>>,
    /// Set from outside to end it early.
    pub stop: &'a AtomicBool,
    /// Told of every span that is done.
    pub progress: &'a dyn Progress,
}

impl std::fmt::Debug for Restoring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restoring").field("places", self.places).finish_non_exhaustive()
    }
}

/// Writes the entries of a pack.
///
/// # Errors
/// Something cannot be read or written, or is not what was packed: then what
/// stands in the folders is not to be used.
/// [`io::ErrorKind::Interrupted`] if it was stopped.
pub fn restore(restoring: &Restoring<'_>) -> Result<Restored, Error> {
    let entries: Vec<_> = restoring
        .pack
        .entries()
        .iter()
        .enumerate()
        .filter(|(_, entry)| (restoring.wanted)(entry))
        .collect();
    let folders = || entries.iter().map(|(_, entry)| *entry);
    refuse_names(folders())?;
    make_folders(restoring.places, folders().filter(|entry| entry.what == What::Folder))?;
    let files: Vec<_> = entries
        .iter()
        .filter(|(_, entry)| entry.what != What::Folder)
        .map(|(number, entry)| Arc::new(Job::new(restoring.places, *number, entry)))
        .collect();
    let to_device = ToDevice::of(restoring.places, files.len())?;
    let run = Run {
        restoring,
        files: &files,
        to_device: &to_device,
        pace: RateLimiter::new(restoring.rate),
        next: Mutex::default(),
        failed: Mutex::default(),
        kept_bytes: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for _ in 0..restoring.jobs.max(1) {
            scope.spawn(|| run.work());
        }
    });
    let Run { failed, kept_bytes, .. } = run;
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    restoring.places.make_links()?;
    let folders = folders().filter(|entry| entry.what == What::Folder);
    finish_folders(restoring.places, folders, &to_device)?;
    to_device.sync_the_rest()?;
    let bytes = files.iter().fold(0_u64, |sum, job| sum.saturating_add(job.bytes));
    Ok(Restored { files: files.len() as u64, bytes, kept_bytes: kept_bytes.into_inner() })
}

/// Refuses names that this system would give to another file, before anything is written.
pub(super) fn refuse_names<'a>(entries: impl Iterator<Item = &'a Entry>) -> Result<(), Error> {
    match unwritable_name(entries.map(|entry| entry.name.as_path())) {
        None => Ok(()),
        Some((name, reason)) => Err(Error::refused(
            name,
            format!("it cannot be written here by its name: {reason}"),
            "unpack the rest with --only, or all of it on Linux",
        )),
    }
}

/// Makes folders, each before what is in it.
pub(super) fn make_folders<'a>(
    places: &Places,
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<(), Error> {
    for entry in entries {
        let path = places.path(&entry.name);
        let failed = |error| Error::io("create", &path, error);
        fs::create_dir_all(&path).map_err(failed)?;
        // What an earlier run has finished may be closed to its owner.
        set_mode_of(&path, FOLDER_MODE_MEANWHILE).map_err(failed)?;
    }
    Ok(())
}

/// Gives folders their attributes, innermost first: what is written into a folder
/// changes its times.
pub(super) fn finish_folders<'a>(
    places: &Places,
    entries: impl DoubleEndedIterator<Item = &'a Entry>,
    to_device: &ToDevice,
) -> Result<(), Error> {
    for entry in entries.rev() {
        let path = places.path(&entry.name);
        let opened = open_folder(&path);
        opened
            .and_then(|opened| {
                dress(&opened, entry.attributes).and_then(|()| to_device.sync_folder(&opened))
            })
            .map_err(|error| Error::io("finish", &path, error))?;
    }
    Ok(())
}

/// From this number of files on, each file system is asked once to write all that it holds, not
/// once for each file: with small files nearly all the time went into waiting for the device.
const FILES_AT_ONCE: usize = 64;

/// How what was written gets to the device, before it has a name that lasts.
#[derive(Debug)]
pub(super) enum ToDevice {
    /// Each file and folder when it is finished.
    Each,
    /// All at the end: a folder on each file system. Opened before anything is written, so that
    /// no error of the device is missed in between.
    AtTheEnd(Vec<(PathBuf, File)>),
}

impl ToDevice {
    fn of(places: &Places, files: usize) -> Result<Self, Error> {
        if files < FILES_AT_ONCE || !syncfs_tells_errors() {
            return Ok(Self::Each);
        }
        let mut devices = HashSet::new();
        let mut folders = Vec::new();
        let links = places.links.iter().map(|link| &link.staging);
        for path in std::iter::once(&places.folder).chain(links) {
            let failed = |error| Error::io("open", path, error);
            let folder = File::open(path).map_err(failed)?;
            if devices.insert(identity_of_open(&folder).map_err(failed)?.0) {
                folders.push((path.clone(), folder));
            }
        }
        Ok(Self::AtTheEnd(folders))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        match self {
            Self::Each => file.sync_all(),
            Self::AtTheEnd(_) => Ok(()),
        }
    }

    fn sync_folder(&self, folder: &File) -> io::Result<()> {
        match self {
            Self::Each => sync_folder(folder),
            Self::AtTheEnd(_) => Ok(()),
        }
    }

    fn sync_the_rest(&self) -> Result<(), Error> {
        let Self::AtTheEnd(folders) = self else { return Ok(()) };
        for (path, folder) in folders {
            sync_file_system(folder).map_err(|error| Error::io("finish", path, error))?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(folder: &File) -> io::Result<()> {
    Ok(pagewarden_core::system::fs::syncfs(folder)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(folder: &File) -> io::Result<()> {
    folder.sync_all()
}

/// Linux says since 5.8 what could not be written; elsewhere there is no such call.
fn syncfs_tells_errors() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release_is_at_least_58(&release)
}

fn release_is_at_least_58(release: &str) -> bool {
    let mut numbers =
        release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0_u32), numbers.next().unwrap_or(0_u32));
    version >= (5, 8)
}

/// A file that is to be written.
struct Job {
    number: usize,
    path: PathBuf,
    attributes: Attributes,
    bytes: u64,
    has_holes: bool,
    hash: Hash,
    /// Opened when its first span is written.
    opened: Mutex<Option<Arc<Opened>>>,
    /// Of spans that are done.
    hashes: Mutex<Vec<Option<Hash>>>,
    left: AtomicU64,
}

struct Opened {
    file: File,
    /// Bytes that an earlier run has left.
    old_bytes: u64,
}

impl Job {
    fn new(places: &Places, number: usize, entry: &Entry) -> Self {
        let (has_holes, hash) = match entry.what {
            What::File { has_holes, hash, .. } => (has_holes, hash),
            What::Folder => (false, [0; 32]),
        };
        Self {
            number,
            path: places.path(&entry.name),
            attributes: entry.attributes,
            bytes: entry.bytes(),
            has_holes,
            hash,
            opened: Mutex::default(),
            hashes: Mutex::default(),
            left: AtomicU64::new(span_count(entry.bytes())),
        }
    }

    fn io_error(&self, action: &'static str, error: io::Error) -> Error {
        Error::io(action, &self.path, error)
    }

    fn open(&self) -> Result<Arc<Opened>, Error> {
        let mut opened = lock(&self.opened);
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent).map_err(|error| Error::io("create", parent, error))?;
        }
        let file = open_again(&self.path).map_err(|error| self.io_error("create", error))?;
        let old_bytes = file.metadata().map_err(|error| self.io_error("create", error))?.len();
        let new = Arc::new(Opened { file, old_bytes });
        *opened = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Gives it all that it had, once all of it is written.
    fn finish(&self, to_device: &ToDevice) -> Result<(), Error> {
        let hashes: Option<Vec<Hash>> =
            std::mem::take(&mut *lock(&self.hashes)).into_iter().collect();
        if hashes.as_deref().map(file_hash) != Some(self.hash) {
            return Err(not_what_was_packed(&self.path));
        }
        let opened = self.open()?;
        let finished = opened
            .file
            .set_len(self.bytes)
            .and_then(|()| dress(&opened.file, self.attributes))
            .and_then(|()| to_device.sync(&opened.file));
        // Thousands of files must not stay open.
        *lock(&self.opened) = None;
        finished.map_err(|error| self.io_error("finish", error))
    }
}

/// Opens a file that is to be written, or was by an earlier run.
fn open_again(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE_MEANWHILE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_mode_of(path, MODE_MEANWHILE)?;
            options.open(path)
        }
        opened => opened,
    }?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("something else has its name"));
    }
    Ok(file)
}

/// All threads of a run.
struct Run<'a> {
    restoring: &'a Restoring<'a>,
    files: &'a [Arc<Job>],
    to_device: &'a ToDevice,
    pace: RateLimiter,
    /// The file and the span that come next.
    next: Mutex<(usize, u64)>,
    failed: Mutex<Option<Error>>,
    kept_bytes: AtomicU64,
}

impl Run<'_> {
    fn work(&self) {
        let mut contents = self.restoring.pack.contents();
        let mut buffer = Vec::new();
        while lock(&self.failed).is_none() {
            let Some((job, first, count)) = self.take() else { break };
            if let Err(error) = self.write(job, first, count, &mut contents, &mut buffer) {
                lock(&self.failed).get_or_insert(error);
            }
        }
    }

    /// The next spans that no thread has taken yet; none for an empty file.
    fn take(&self) -> Option<(&Arc<Job>, u64, u64)> {
        let mut next = lock(&self.next);
        let (index, span) = *next;
        let job = self.files.get(index)?;
        let spans = span_count(job.bytes);
        if span == 0 {
            let empty = usize::try_from(spans).ok()?;
            *lock(&job.hashes) = vec![None; empty];
        }
        let count = spans.saturating_sub(span).min(SPANS_AT_ONCE);
        let end = span.saturating_add(count);
        *next = if end >= spans { (index.saturating_add(1), 0) } else { (index, end) };
        Some((job, span, count))
    }

    fn write(
        &self,
        job: &Job,
        first: u64,
        count: u64,
        contents: &mut Contents<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let opened = job.open()?;
        for span in first..first.saturating_add(count) {
            if self.restoring.stop.load(Ordering::Relaxed) {
                return Err(job.io_error("unpack", io::ErrorKind::Interrupted.into()));
            }
            let hash = self.write_span(job, &opened, span, contents, buffer)?;
            let index = usize::try_from(span).unwrap_or(usize::MAX);
            if let Some(place) = lock(&job.hashes).get_mut(index) {
                *place = Some(hash);
            }
            self.restoring.progress.advance(buffer.len() as u64);
        }
        drop(opened);
        // The thread that writes the last spans finishes the file.
        let before = job.left.fetch_sub(count, Ordering::AcqRel);
        if before == count { job.finish(self.to_device) } else { Ok(()) }
    }

    fn write_span(
        &self,
        job: &Job,
        opened: &Opened,
        span: u64,
        contents: &mut Contents<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<Hash, Error> {
        let spans = span_count(job.bytes);
        let begin = span.saturating_mul(SPAN_BYTES as u64);
        let is_old = begin < opened.old_bytes;
        if is_old {
            buffer.clear();
            buffer.resize(span_bytes(job.bytes, span), 0);
            let count = read_fully(&opened.file, buffer, begin)
                .map_err(|error| job.io_error("read", error))?;
            if count == buffer.len() && is_as_packed(self.restoring.pack, job.number, span, buffer)
            {
                self.kept_bytes.fetch_add(count as u64, Ordering::Relaxed);
                return Ok(span_hash(span, spans, buffer));
            }
        }
        let damaged = contents
            .span(job.number, span, buffer)
            .map_err(|error| unreadable(&job.path, error))?;
        if !damaged.is_empty() {
            let error = PackError::Damaged { part: "content", offset: begin };
            return Err(unreadable(&job.path, error));
        }
        if is_old || !(job.has_holes && is_zero(buffer)) {
            self.pace.pay(buffer.len() as u64, self.restoring.stop);
            opened
                .file
                .write_all_at(buffer, begin)
                .map_err(|error| job.io_error("write", error))?;
            // While others are expanded: at the end there is only the device to wait for.
            write_back::begin(&opened.file, &(begin..begin.saturating_add(buffer.len() as u64)));
        }
        Ok(span_hash(span, spans, buffer))
    }
}

/// True if every block of a span has the sum that the pack says.
fn is_as_packed(pack: &Pack, file: usize, span: u64, bytes: &[u8]) -> bool {
    let per_span = (SPAN_BYTES / pack.block_bytes()) as u64;
    let first = span.saturating_mul(per_span);
    (first..)
        .zip(bytes.chunks(pack.block_bytes()))
        .all(|(block, bytes)| pack.block_sum(file, block) == Some(block_sum(bytes)))
}

fn not_what_was_packed(path: &Path) -> Error {
    Error::damaged(
        path,
        "what the pack holds of it is not what was packed",
        "check the pack, and take another copy of it; unpack --salvage takes what is sound",
    )
}

fn unreadable(path: &Path, error: PackError) -> Error {
    const HINT: &str =
        "check the pack, and take another copy of it; unpack --salvage takes what is sound";
    match error {
        PackError::Io(error) => Error::io("unpack", path, error),
        other => Error::damaged(path, other.to_string(), HINT),
    }
}

/// Gives a file or folder the owner, mode and time it had. Only root can give
/// files away: for others they stay their own. A pack may come from anywhere, and no file of a
/// database is a program: none ever runs as its owner or group.
pub(super) fn dress(file: &File, attributes: Attributes) -> io::Result<()> {
    let mode = match file.metadata()?.is_dir() {
        true => attributes.mode & 0o7777,
        false => attributes.mode & FILE_MODE,
    };
    if pagewarden_core::system::process::geteuid().is_root() {
        let (owner, group) = (attributes.owner, attributes.group);
        pagewarden_core::system::fchown(file, Some(owner), Some(group))?;
    }
    set_mode(file, mode)?;
    let nanoseconds = Duration::from_nanos(attributes.modified_nanoseconds.into());
    let seconds = Duration::from_secs(attributes.modified_seconds.unsigned_abs());
    let whole = if attributes.modified_seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    match whole.and_then(|time| time.checked_add(nanoseconds)) {
        Some(time) => file.set_times(FileTimes::new().set_modified(time)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use pagewarden_core::system::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_lies_behind_a_link_is_written_elsewhere() {
        let mut places = Places::new("/staging".into());
        places.add_link("tblspc/1".into(), "/one".into(), "/new/one".into());
        places.add_link("tblspc/1/2".into(), "/two".into(), "/new/two".into());
        for (name, expected) in [
            ("tblspc", "/staging/tblspc"),
            ("tblspc/1", "/one"),
            ("tblspc/10/x", "/staging/tblspc/10/x"),
            ("tblspc/1/x/y", "/one/x/y"),
            ("tblspc/1/2", "/two"),
            ("tblspc/1/2/x", "/two/x"),
        ] {
            assert_eq!(places.path(Path::new(name)), Path::new(expected), "{name}");
        }
    }

    #[test]
    fn many_files_are_synced_once_a_file_system_and_few_each() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut places = Places::new(folders[0].path().to_owned());
        places.add_link("link".into(), folders[1].path().to_owned(), "/new".into());
        assert!(matches!(ToDevice::of(&places, 63).unwrap(), ToDevice::Each));
        let many = ToDevice::of(&places, 64).unwrap();
        assert_eq!(matches!(many, ToDevice::AtTheEnd(_)), syncfs_tells_errors());
        if let ToDevice::AtTheEnd(systems) = &many {
            assert_eq!(systems.len(), 1, "both are on one");
        }
        many.sync_the_rest().unwrap();
        places.add_link("other".into(), "/dev/shm".into(), "/new2".into());
        if let ToDevice::AtTheEnd(systems) = ToDevice::of(&places, 64).unwrap() {
            let device = |path: &Path| {
                use pagewarden_core::system::MetadataExt as _;
                fs::metadata(path).unwrap().dev()
            };
            let is_other = device(Path::new("/dev/shm")) != device(folders[0].path());
            assert_eq!(systems.len(), if is_other { 2 } else { 1 });
        }
        for (release, tells) in [
            ("5.8.0-1-amd64\n", true),
            ("6.1.0", true),
            ("5.7.19", false),
            ("4.19", false),
            ("", false),
        ] {
            assert_eq!(release_is_at_least_58(release), tells, "{release}");
        }
    }

    #[test]
    fn no_file_of_a_pack_runs_as_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, "").unwrap();
        let attributes = Attributes {
            mode: 0o7755,
            owner: pagewarden_core::system::process::geteuid().as_raw(),
            group: pagewarden_core::system::process::getegid().as_raw(),
            modified_seconds: 1,
            modified_nanoseconds: 0,
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        dress(&File::open(&path).unwrap(), attributes).unwrap();
        assert_eq!(mode(&path), 0o755);
        // What these bits say of folders grants nothing, and is part of how they were.
        dress(&File::open(folder.path()).unwrap(), Attributes { mode: 0o3750, ..attributes })
            .unwrap();
        assert_eq!(mode(folder.path()), 0o3750);
    }
}
