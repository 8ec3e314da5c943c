//! A file to work in whose name no other program has.
//!
//! ```text
//! DIR                     opened as a folder, no symbolic link followed
//! DIR/.pagewarden-...     made, so that nothing in it can be anybody's
//!     data                made with O_EXCL, opened in four ways
//!     data                removed
//! DIR/.pagewarden-...     removed
//! ```
//!
//! From then on there are only descriptors. No name leads to the file, so that
//! nothing can be mistaken for it, and the system gives its blocks back when this
//! program ends, whatever ends it. A part that only reads gets a descriptor that
//! cannot write.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use pagewarden::source::rate::RateLimiter;
use pagewarden::words::{bytes, printable};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, fstatvfs, mkdirat,
    openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::stats::random::Random;

/// The most that is left free: a file system's last tenth, if that is less.
const RESERVE_BYTES_MAX: u64 = 1 << 30;
/// Written at once while the file is laid out.
const LAYOUT_BYTES: usize = 1 << 20;
/// After so long a slow disk has a shorter file.
const LAYOUT_TIME_MAX: Duration = Duration::from_secs(20);
/// A file shorter than this measures nothing.
const FILE_BYTES_MIN: u64 = 8 << 20;

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The folder in which to measure.
    pub folder: &'a Path,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Bytes to be left free in the file system; by default (`None`) a part of what is free.
    pub reserve_bytes: Option<u64>,
    /// What to write.
    pub payload: &'a [u8],
    /// No more bytes than this a second.
    pub rate: Option<NonZero<u64>>,
}

impl<'a> Wanted<'a> {
    /// A file in `folder`, laid out as fast as it goes.
    #[must_use]
    pub fn new(folder: &'a Path, file_bytes: u64, payload: &'a [u8]) -> Self {
        Self { folder, file_bytes, reserve_bytes: None, payload, rate: None }
    }
}

/// The file, opened in every way it is needed.
#[derive(Debug)]
pub struct Workplace {
    /// The folder it was made in.
    pub folder: PathBuf,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// True if the file system lets us past its page cache.
    pub is_direct: bool,
    /// Bytes written while it was laid out, and how long that took.
    pub layout: (u64, Duration),
    /// For reading only, past the page cache.
    pub reading: Arc<File>,
    /// For reading and writing, past the page cache.
    pub writing: Arc<File>,
    /// Through the page cache.
    pub buffered: Arc<File>,
    /// Every write is on the device when it returns (`O_DSYNC`).
    pub synchronous: Arc<File>,
    /// Of a file system that keeps open files under another name, as NFS does:
    /// the folder, to be removed once they are closed. Last, so that it is.
    _leftover: Option<Leftover>,
}

/// A folder that could not be removed while its file was open.
#[derive(Debug)]
struct Leftover {
    folder: OwnedFd,
    name: String,
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let _ = unlinkat(&self.folder, &self.name, AtFlags::REMOVEDIR);
    }
}

impl Workplace {
    /// Makes the file, fills it, and removes its name. `told` hears how many bytes
    /// more were written.
    ///
    /// # Errors
    /// The folder is none, is a symbolic link, cannot be written to, or lacks the
    /// room; or it was `stop`ped. Nothing is left behind.
    pub fn make(
        wanted: &Wanted<'_>,
        stop: &AtomicBool,
        told: &dyn Fn(u64),
    ) -> anyhow::Result<Self> {
        let folder = open_folder(wanted.folder)?;
        check_room(&folder, wanted)?;
        let mut place = make_files(&folder, wanted.folder)
            .with_context(|| format!("cannot make a file in {}", shown(wanted.folder)))?;
        place.lay_out(wanted, &folder, stop, told)?;
        Ok(place)
    }

    fn lay_out(
        &mut self,
        wanted: &Wanted<'_>,
        folder: &OwnedFd,
        stop: &AtomicBool,
        told: &dyn Fn(u64),
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        let whole = (LAYOUT_BYTES as u64).max(1);
        let goal = wanted.file_bytes / whole * whole;
        // Room that is promised cannot run out half way. Not every file system
        // can promise, and none that cannot is worse off.
        let promised = fallocate(&*self.buffered, FallocateFlags::empty(), 0, goal);
        if let Err(error @ (Errno::NOSPC | Errno::FBIG | Errno::DQUOT)) = promised {
            return Err(error).with_context(|| no_room(wanted));
        }
        let mut part = aligned(wanted.payload);
        let mut written = 0;
        let limiter = RateLimiter::new(wanted.rate);
        while written < goal {
            if stop.load(Ordering::Relaxed) {
                bail!("stopped while the test file was being written");
            }
            if begin.elapsed() > LAYOUT_TIME_MAX && written >= FILE_BYTES_MIN {
                break;
            }
            if written % (64 << 20) == 0 {
                check_reserve(folder, wanted)?;
            }
            limiter.pay(whole, stop);
            // No two mebibytes alike, for disks that recognise what they have.
            for stretch in part.bytes_mut().chunks_mut(4096) {
                if let Some(place) = stretch.first_chunk_mut::<8>() {
                    *place = written.to_le_bytes();
                }
            }
            self.writing
                .write_all_at(part.bytes(), written)
                .with_context(|| format!("cannot write to a file in {}", shown(&self.folder)))?;
            written += whole;
            told(whole);
        }
        self.buffered.set_len(written).context("cannot shorten the test file")?;
        self.buffered.sync_all().context("cannot flush the test file")?;
        self.file_bytes = written;
        self.layout = (written, begin.elapsed());
        Ok(())
    }
}

/// A mebibyte of the payload, aligned.
fn aligned(payload: &[u8]) -> pagewarden::source::buffer::AlignedBuffer {
    let mut buffer = pagewarden::source::buffer::AlignedBuffer::new(LAYOUT_BYTES);
    for part in buffer.bytes_mut().chunks_mut(payload.len().max(1)) {
        if let Some(source) = payload.get(..part.len()) {
            part.copy_from_slice(source);
        }
    }
    buffer
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Opens the folder, and refuses everything that is none.
fn open_folder(path: &Path) -> anyhow::Result<OwnedFd> {
    // With a slash behind it, a link would be followed.
    let path = path.components().as_path();
    let name = shown(path);
    let status = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(io::Error::from)
        .with_context(|| format!("cannot open {name}"))?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => {}
        FileType::Symlink => {
            let target = std::fs::canonicalize(path).map(|target| shown(&target));
            let target = target.unwrap_or_else(|_| "the folder itself".to_owned());
            bail!("{name} is a symbolic link, not followed\nhint: name {target}");
        }
        FileType::BlockDevice | FileType::CharacterDevice => bail!(
            "{name} is a device, and devices are never written to\n\
             hint: name a folder of a file system on it"
        ),
        _ => bail!(
            "{name} exists and is no folder; nothing that exists is written to\n\
             hint: name the folder to measure in"
        ),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(io::Error::from)
        .with_context(|| format!("cannot open {name}"))
}

/// Bytes that anybody may still use, and those of the whole file system.
fn room(folder: &OwnedFd) -> anyhow::Result<(u64, u64)> {
    let status = fstatvfs(folder).map_err(io::Error::from).context("cannot ask for free space")?;
    Ok((
        status.f_bavail.saturating_mul(status.f_frsize),
        status.f_blocks.saturating_mul(status.f_frsize),
    ))
}

fn reserve(wanted: &Wanted<'_>, whole: u64) -> u64 {
    wanted.reserve_bytes.unwrap_or_else(|| RESERVE_BYTES_MAX.min(whole / 10))
}

fn no_room(wanted: &Wanted<'_>) -> String {
    format!(
        "{} has no room for a test file of {}\nhint: free some, or name less with --size",
        shown(wanted.folder),
        bytes(wanted.file_bytes)
    )
}

fn check_room(folder: &OwnedFd, wanted: &Wanted<'_>) -> anyhow::Result<()> {
    ensure!(
        wanted.file_bytes >= FILE_BYTES_MIN,
        "a test file of {} measures nothing\nhint: name at least {} with --size",
        bytes(wanted.file_bytes),
        bytes(FILE_BYTES_MIN)
    );
    let (free, whole) = room(folder)?;
    let reserve = reserve(wanted, whole);
    ensure!(
        free >= wanted.file_bytes.saturating_add(reserve),
        "{} has {} free, too little for a test file of {} and {} that stay free\n\
         hint: free some, or name less with --size",
        shown(wanted.folder),
        bytes(free),
        bytes(wanted.file_bytes),
        bytes(reserve)
    );
    Ok(())
}

/// Others fill the disk too.
fn check_reserve(folder: &OwnedFd, wanted: &Wanted<'_>) -> anyhow::Result<()> {
    let (free, whole) = room(folder)?;
    let reserve = reserve(wanted, whole);
    // What was promised to our file is no longer free.
    ensure!(
        free >= reserve / 2,
        "{} is filling up: {} free\nhint: try again when there is room",
        shown(wanted.folder),
        bytes(free)
    );
    Ok(())
}

/// Removes a folder's name, and the one in it, also when something goes wrong in
/// between.
struct Names<'a> {
    folder: &'a OwnedFd,
    name: String,
    inner: Option<OwnedFd>,
    is_removed: bool,
}

const FILE_NAME: &str = "data";

impl Names<'_> {
    /// Removes both names. Says if the folder is still there.
    fn remove(&mut self) -> io::Result<Option<Leftover>> {
        self.is_removed = true;
        if let Some(inner) = self.inner.take() {
            match unlinkat(&inner, FILE_NAME, AtFlags::empty()) {
                // It was not made yet.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match unlinkat(self.folder, &self.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Ok(Some(Leftover { folder: self.folder.try_clone()?, name: self.name.clone() }))
            }
            _ => Ok(None),
        }
    }
}

impl Drop for Names<'_> {
    fn drop(&mut self) {
        if !self.is_removed {
            let _ = self.remove();
        }
    }
}

/// Makes the file, opens it in every way, and removes its name.
fn make_files(folder: &OwnedFd, path: &Path) -> io::Result<Workplace> {
    let mut names = fresh_folder(folder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = openat(folder, &names.name, flags, Mode::empty())?;
    let own = fstat(&inner)?;
    if own.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("another program has replaced the test folder"));
    }
    let inner = &*names.inner.insert(inner);
    let plain = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = plain | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let buffered = openat(inner, FILE_NAME, create, Mode::RUSR | Mode::WUSR)?;
    let made = fstat(&buffered)?;
    let again = |flags: OFlags| -> io::Result<File> {
        let file = openat(inner, FILE_NAME, plain | flags, Mode::empty())?;
        let status = fstat(&file)?;
        if (status.st_dev, status.st_ino) != (made.st_dev, made.st_ino) {
            return Err(io::Error::other("another program has replaced the test file"));
        }
        Ok(File::from(file))
    };
    let (writing, is_direct) = match again(OFlags::RDWR | direct()) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            (again(OFlags::RDWR)?, false)
        }
        other => (other?, direct() != OFlags::empty()),
    };
    let past_cache = if is_direct { direct() } else { OFlags::empty() };
    let mut place = Workplace {
        folder: path.to_owned(),
        file_bytes: 0,
        is_direct,
        layout: (0, Duration::ZERO),
        reading: Arc::new(again(OFlags::RDONLY | past_cache)?),
        writing: Arc::new(writing),
        synchronous: Arc::new(again(OFlags::RDWR | OFlags::DSYNC | past_cache)?),
        buffered: Arc::new(File::from(buffered)),
        _leftover: None,
    };
    // A file whose name stays is not one to write to.
    place._leftover = names.remove()?;
    Ok(place)
}

#[cfg(target_os = "linux")]
fn direct() -> OFlags {
    OFlags::DIRECT
}

#[cfg(not(target_os = "linux"))]
fn direct() -> OFlags {
    OFlags::empty()
}

/// A folder that was not there before.
fn fresh_folder(folder: &OwnedFd) -> io::Result<Names<'_>> {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = since.as_nanos() ^ u128::from(std::process::id()) << 64;
    let mut random = Random::new(u64::try_from(seed & u128::from(u64::MAX)).unwrap_or(0));
    for _ in 0..100 {
        let name = format!(".pagewarden-iotest-{:016x}", random.bits());
        match mkdirat(folder, &name, Mode::RWXU) {
            Ok(()) => return Ok(Names { folder, name, inner: None, is_removed: false }),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("no name is free"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotest::payload::payload;

    const BYTES: u64 = 8 << 20;

    fn make(
        folder: &Path,
        file_bytes: u64,
        reserve_bytes: Option<u64>,
    ) -> anyhow::Result<Workplace> {
        let payload = payload(0, 1);
        let wanted = Wanted { reserve_bytes, ..Wanted::new(folder, file_bytes, &payload) };
        Workplace::make(&wanted, &AtomicBool::new(false), &|_| ())
    }

    fn is_empty(folder: &Path) -> bool {
        std::fs::read_dir(folder).unwrap().next().is_none()
    }

    #[test]
    fn the_file_has_its_bytes_and_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let place = make(folder.path(), BYTES, None).unwrap();
        assert!(is_empty(folder.path()));
        assert_eq!(place.file_bytes, BYTES);
        assert_eq!(place.buffered.metadata().unwrap().len(), BYTES);
        let mut bytes = vec![0; 4096];
        place.buffered.read_exact_at(&mut bytes, BYTES - 4096).unwrap();
        assert!(bytes.iter().filter(|byte| **byte == 0).count() < 100, "no zeros");
    }

    #[test]
    fn what_reads_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let place = make(folder.path(), BYTES, None).unwrap();
        let block = aligned(b"x");
        let refused = place.reading.write_at(block.bytes(), 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }

    #[test]
    fn what_exists_is_refused_and_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("base.mdf");
        std::fs::write(&file, "precious").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        let with_slash = folder.path().join("link/");
        for (path, word) in [
            (file.as_path(), "no folder"),
            (link.as_path(), "symbolic link"),
            (with_slash.as_path(), "symbolic link"),
            (Path::new("/dev/null"), "device"),
            (&folder.path().join("nothing"), "cannot open"),
        ] {
            let error = format!("{:#}", make(path, BYTES, None).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    /// As on NFS: the folder is not empty until the file is closed.
    #[test]
    fn a_folder_that_stays_is_removed_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open_folder(folder.path()).unwrap();
        let mut names = fresh_folder(&opened).unwrap();
        let made = names_in(folder.path());
        assert_eq!(made.len(), 1);
        let busy = made[0].join("busy");
        std::fs::write(&busy, "").unwrap();
        let leftover = names.remove().unwrap();
        assert!(leftover.is_some());
        assert_eq!(names_in(folder.path()).len(), 1);
        std::fs::remove_file(&busy).unwrap();
        drop(leftover);
        assert!(is_empty(folder.path()));
    }

    #[test]
    fn a_folder_that_was_made_in_vain_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open_folder(folder.path()).unwrap();
        drop(fresh_folder(&opened).unwrap());
        assert!(is_empty(folder.path()));
    }

    fn names_in(folder: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn room_that_is_to_stay_free_stays_free() {
        let folder = tempfile::tempdir().unwrap();
        let error = make(folder.path(), BYTES, Some(1 << 60)).unwrap_err();
        assert!(format!("{error:#}").contains("stay free"), "{error:#}");
        assert!(make(folder.path(), 4096, None).is_err());
        assert!(is_empty(folder.path()));
    }

    #[test]
    fn stopped_while_it_is_laid_out_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let payload = payload(0, 1);
        let wanted = Wanted::new(folder.path(), BYTES, &payload);
        let stopped = Workplace::make(&wanted, &AtomicBool::new(true), &|_| ());
        assert!(stopped.unwrap_err().to_string().contains("stopped"));
        assert!(is_empty(folder.path()));
    }
}
