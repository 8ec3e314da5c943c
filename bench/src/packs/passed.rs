//! A folder served by FUSE as it is, to be read: what no pack that is mounted can be faster than.
//! The session is set up as `pagewarden mount` does it.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::num::NonZero;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEntry, ReplyOpen, Request, Session, SessionACL,
};

/// As the mount of a pack has them.
const KEPT: Duration = Duration::from_secs(3600);
const READ_AHEAD_BYTES: u32 = 4 << 20;
const BACKGROUND_MAX: u16 = 64;
const PAGE: u32 = 4096;

/// What to serve.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    folder: PathBuf,
    mount: PathBuf,
}

/// Serves it until it is unmounted.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("passed".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        MountOption::RO,
    ];
    config.acl = SessionACL::All;
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    config.n_threads = Some((cores * 4).clamp(4, 32));
    config.clone_fd = true;
    let served = Passed { state: Mutex::new(State::new(arguments.folder.clone())) };
    let session = Session::new(served, &arguments.mount, &config)?;
    let mount = arguments.mount.clone();
    // Only who is served can ask for the number of the device.
    let setting = std::thread::spawn(move || -> io::Result<()> {
        let device = fs::metadata(mount)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        fs::write(setting, (READ_AHEAD_BYTES / 1024).to_string())
    });
    session.run()?;
    setting.join().map_err(|_| anyhow::anyhow!("the read-ahead was not set"))??;
    Ok(())
}

struct Passed {
    state: Mutex<State>,
}

/// Places of what was asked for, by its number less one; and files that were opened.
struct State {
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    files: HashMap<u64, Arc<File>>,
}

impl State {
    fn new(folder: PathBuf) -> Self {
        let numbers = HashMap::from([(folder.clone(), INodeNo::ROOT.0)]);
        Self { paths: vec![folder], numbers, files: HashMap::new() }
    }

    fn path(&self, number: INodeNo) -> Result<&Path, Errno> {
        let index = usize::try_from(number.0).ok().and_then(|number| number.checked_sub(1));
        index.and_then(|index| self.paths.get(index)).map(PathBuf::as_path).ok_or(Errno::ENOENT)
    }

    fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        self.paths.push(path.to_owned());
        let number = self.paths.len() as u64;
        self.numbers.insert(path.to_owned(), number);
        number
    }

    fn file(&mut self, number: INodeNo) -> Result<Arc<File>, Errno> {
        if let Some(file) = self.files.get(&number.0) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(self.path(number)?).map_err(refused)?);
        self.files.insert(number.0, Arc::clone(&file));
        Ok(file)
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Passed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self, number: INodeNo) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let mut state = self.state();
        let folder = state.path(number)?.to_owned();
        let mut listing = Vec::new();
        for entry in fs::read_dir(&folder).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let kind = kind(&entry.metadata().map_err(refused)?);
            listing.push((state.number(&entry.path()), kind, entry.file_name()));
        }
        Ok(listing)
    }
}

fn refused(error: impl Borrow<io::Error>) -> Errno {
    Errno::from_i32(error.borrow().raw_os_error().unwrap_or(libc::EIO))
}

fn kind(metadata: &Metadata) -> FileType {
    if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile }
}

fn attributes(number: u64, metadata: &Metadata) -> FileAttr {
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(number),
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: kind(metadata),
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: PAGE,
        flags: 0,
    }
}

impl Filesystem for Passed {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if let Err(most) = config.set_max_readahead(READ_AHEAD_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let find = || -> Result<FileAttr, Errno> {
            let mut state = self.state();
            let path = state.path(parent)?.join(name);
            let metadata = fs::metadata(&path).map_err(refused)?;
            Ok(attributes(state.number(&path), &metadata))
        };
        match find() {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let state = self.state();
        match state.path(number).and_then(|path| fs::metadata(path).map_err(refused)) {
            Ok(metadata) => reply.attr(&KEPT, &attributes(number.0, &metadata)),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        count: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.state().file(number);
        let count = usize::try_from(count).unwrap_or(0);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < count {
                buffer.resize(count, 0);
            }
            let out = buffer.get_mut(..count).unwrap_or_default();
            let read = file.and_then(|file| file.read_at(out, offset).map_err(refused));
            match read {
                Ok(count) => reply.data(out.get(..count).unwrap_or_default()),
                Err(error) => reply.error(error),
            }
        });
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = match self.list(number) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error),
        };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (child, kind, name)) in (1..).zip(&listing).skip(begin) {
            if reply.add(INodeNo(*child), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
