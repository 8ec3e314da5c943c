//! Answers the system's requests.
//!
//! Nothing changes a file but requests that come through the system, so that it may
//! keep what it was told: attributes and names for an hour, pages for as long as it
//! likes. Who may do what it decides itself, from modes and owners
//! (`default_permissions`).

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use pagewarden::pack::{Entry, PackError, Reader};
use rustix::io::Errno;

use crate::contents::{Contents, Stores, Unreadable};
use crate::delta::{Delta, PAGE_BYTES};
use crate::options::{Options, Owner};
use crate::record::Record;
use crate::tree::{Facts, Kind, Maker, NAME_BYTES_MAX, Node, Place, Tree};

/// How long the system may believe what it was told of names and attributes.
const KEPT: Duration = Duration::from_secs(3600);
/// What the system reads ahead by itself.
pub(crate) const READ_AHEAD_BYTES: u32 = 4 << 20;
/// The longest single write.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that the system keeps going on its own account.
const BACKGROUND_MAX: u16 = 64;
/// Unreadable blocks that are reported; beyond they are only counted.
const TOLD_MAX: usize = 10_000;
/// What kind of thing a mode means.
const KIND_BITS: u32 = 0o170_000;
/// A page, as the system counts.
const PAGE: u32 = 4096;
const _: () = assert!(PAGE as usize == PAGE_BYTES);
/// The mode of `fallocate` that leaves the length as it is.
const KEEP_LENGTH: i32 = 1;

/// A stretch of a packed file that cannot be read.
#[derive(Debug)]
pub struct Unread {
    /// The file, as it is called in the pack.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// Why.
    pub error: PackError,
}

/// Called for each unreadable block once.
pub type Watcher = Box<dyn Fn(&Unread) + Send + Sync>;

/// What outlives the mount: what is to be said at its end.
#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) delta: Delta,
    pub(crate) unread_blocks: AtomicU64,
}

/// A pack as a file system.
pub(crate) struct PackFiles {
    reader: Reader,
    tree: RwLock<Tree>,
    accounts: Arc<Accounts>,
    told: Mutex<HashSet<(usize, u64)>>,
    watcher: Watcher,
    listings: Mutex<HashMap<u64, Arc<Listing>>>,
    next_handle: AtomicU64,
    packed_bytes: u64,
}

/// A folder as it was when a program began to list it.
type Listing = Vec<(u64, FileType, OsString)>;

thread_local! {
    /// What is read, on its way to the system: memory that is always the same need
    /// not be mapped again.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl PackFiles {
    /// `records` are what a journal holds of earlier.
    pub(crate) fn new(
        reader: Reader,
        options: &Options,
        accounts: Arc<Accounts>,
        records: Vec<Record>,
        watcher: Watcher,
    ) -> Self {
        let entries = reader.pack().entries();
        let mut tree = Tree::of(entries, options.owner);
        if !records.is_empty() {
            let (slots, nodes) = tree.replay(records);
            accounts.delta.restore(slots, nodes);
        }
        Self {
            tree: RwLock::new(tree),
            packed_bytes: entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes())),
            accounts,
            told: Mutex::default(),
            watcher,
            listings: Mutex::default(),
            next_handle: AtomicU64::new(1),
            reader,
        }
    }

    fn tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree_mut(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn listings(&self) -> MutexGuard<'_, HashMap<u64, Arc<Listing>>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delta(&self) -> &Delta {
        &self.accounts.delta
    }

    fn stores(&self) -> Stores<'_> {
        Stores { reader: &self.reader, delta: self.delta() }
    }

    /// What to answer, and what to tell, when bytes cannot be had.
    fn give_up(&self, contents: &Contents, range: (u64, usize), error: Unreadable) -> Errno {
        match (error, contents.packed) {
            (Unreadable::Delta(error), _) => error,
            (Unreadable::Packed(error), None) => {
                self.tell(PathBuf::new(), range.0, error);
                Errno::IO
            }
            (Unreadable::Packed(_), Some(file)) => {
                self.name_unread(file, range.0, range.1);
                Errno::IO
            }
        }
    }

    /// Finds which blocks of a stretch cannot be read.
    fn name_unread(&self, file: usize, offset: u64, count: usize) {
        let pack = self.reader.pack();
        let block_bytes = pack.block_bytes() as u64;
        let end = offset.saturating_add(count as u64);
        let mut block = offset / block_bytes;
        while block.saturating_mul(block_bytes) < end {
            let begin = block.saturating_mul(block_bytes);
            if let Err(error) = self.reader.read_at(file, begin, &mut [0]) {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.len() < TOLD_MAX && told.insert((file, block)) {
                    drop(told);
                    let name = pack.entries().get(file).map(|entry: &Entry| entry.name.clone());
                    self.tell(name.unwrap_or_default(), begin, error);
                }
            }
            block = block.saturating_add(1);
        }
    }

    fn tell(&self, file: PathBuf, offset: u64, error: PackError) {
        self.accounts.unread_blocks.fetch_add(1, Ordering::Relaxed);
        (self.watcher)(&Unread { file, offset, error });
    }

    /// Makes something, and tells the system of it.
    fn make(
        &self,
        place: Place<'_>,
        kind: impl Fn(&mut Tree) -> Kind,
        maker: Maker,
    ) -> Result<FileAttr, Errno> {
        self.delta().with_room(is_full, || {
            let mut tree = self.tree_mut();
            let kind = kind(&mut tree);
            let ino = tree.make(place, kind, maker, self.delta())?;
            tree.remember(ino);
            Ok(attributes(ino, tree.node(ino)?))
        })
    }

    fn list(&self, ino: u64) -> Result<Listing, Errno> {
        let tree = self.tree();
        let parent = tree.node(ino)?.parent;
        let mut listing = vec![
            (ino, FileType::Directory, OsString::from(".")),
            (parent, FileType::Directory, OsString::from("..")),
        ];
        for (name, child) in tree.children(ino)? {
            listing.push((*child, tree.node(*child)?.kind.file_type(), name.clone()));
        }
        Ok(listing)
    }

    fn change(&self, ino: u64, change: &Change) -> Result<FileAttr, Errno> {
        if let Some(bytes) = change.bytes {
            let contents = self.tree().contents(ino)?;
            contents.set_bytes(self.delta(), bytes)?;
        }
        let mut tree = self.tree_mut();
        let node = tree.node_mut(ino)?;
        let facts = &mut node.facts;
        facts.mode = change.mode.map_or(facts.mode, |mode| mode & 0o7777);
        facts.owner.user = change.user.unwrap_or(facts.owner.user);
        facts.owner.group = change.group.unwrap_or(facts.owner.group);
        facts.accessed = change.accessed.unwrap_or(facts.accessed);
        if let Some(modified) = change.modified {
            facts.modified = modified;
            if let Kind::File(contents) = &node.kind {
                contents.forget_modified();
            }
        }
        node.facts.changed = SystemTime::now();
        if change.is_of_facts() {
            let Facts { mode, owner, modified, .. } = node.facts;
            self.delta().record(|| Record::Facts { node: ino, mode, owner, modified });
        }
        Ok(attributes(ino, node))
    }

    fn allocate(&self, ino: u64, offset: u64, bytes: u64, mode: i32) -> Result<(), Errno> {
        let contents = self.tree().contents(ino)?;
        match mode {
            0 => self.delta().with_room(is_full, || {
                contents.allocate(self.delta(), offset..offset.saturating_add(bytes))
            }),
            KEEP_LENGTH => Ok(()),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

/// What a program wants to be different about a node.
#[derive(Debug, Default)]
struct Change {
    mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
    bytes: Option<u64>,
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl Change {
    /// True if it is not about the length alone.
    fn is_of_facts(&self) -> bool {
        self.mode.is_some()
            || self.user.is_some()
            || self.group.is_some()
            || self.modified.is_some()
    }
}

fn attributes(ino: u64, node: &Node) -> FileAttr {
    let (bytes, written) = match &node.kind {
        Kind::File(contents) => (contents.bytes(), contents.modified()),
        Kind::Link(target) => (target.as_os_str().len() as u64, None),
        Kind::Folder(_) | Kind::Special(_) => (0, None),
    };
    let facts = &node.facts;
    FileAttr {
        ino: INodeNo(ino),
        size: bytes,
        blocks: bytes.div_ceil(512),
        atime: facts.accessed,
        mtime: written.unwrap_or(facts.modified),
        ctime: written.map_or(facts.changed, |written| written.max(facts.changed)),
        crtime: facts.modified,
        kind: node.kind.file_type(),
        perm: u16::try_from(facts.mode & 0o7777).unwrap_or(0),
        nlink: node.links,
        uid: facts.owner.user,
        gid: facts.owner.group,
        rdev: 0,
        blksize: PAGE,
        flags: 0,
    }
}

fn is_full(error: &Errno) -> bool {
    *error == Errno::NOSPC
}

fn number(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

fn at_time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn maker(request: &Request, mode: u32) -> Maker {
    Maker { mode, owner: Owner { user: request.uid(), group: request.gid() } }
}

fn answer(reply: ReplyEntry, made: Result<FileAttr, Errno>) {
    match made {
        Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
        Err(error) => reply.error(number(error)),
    }
}

fn answer_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(number(error)),
    }
}

impl Filesystem for PackFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the system cannot do it does without.
        if let Err(most) = config.set_max_readahead(READ_AHEAD_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        for wish in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            let _ = config.add_capabilities(wish);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let find = || {
            let mut tree = self.tree_mut();
            let ino = tree.find(Place { parent: parent.0, name })?;
            tree.remember(ino);
            Ok(attributes(ino, tree.node(ino)?))
        };
        answer(reply, find());
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        self.tree_mut().forget(ino.0, times, self.delta());
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree().node(ino.0) {
            Ok(node) => reply.attr(&KEPT, &attributes(ino.0, node)),
            Err(error) => reply.error(number(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (accessed, modified) = (accessed.map(at_time), modified.map(at_time));
        let change = Change { mode, user, group, bytes, accessed, modified };
        match self.change(ino.0, &change) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(number(error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.tree().node(ino.0).map(|node| &node.kind) {
            Ok(Kind::Link(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            Ok(_) => reply.error(fuser::Errno::EINVAL),
            Err(error) => reply.error(number(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let special = match mode & KIND_BITS {
            0 | 0o100_000 => None,
            0o010_000 => Some(FileType::NamedPipe),
            0o140_000 => Some(FileType::Socket),
            // A device here would be a way around the system's own.
            _ => return reply.error(fuser::Errno::EPERM),
        };
        let place = Place { parent: parent.0, name };
        let kind = |tree: &mut Tree| special.map_or_else(|| tree.new_contents(), Kind::Special);
        answer(reply, self.make(place, kind, maker(request, mode)));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let place = Place { parent: parent.0, name };
        answer(reply, self.make(place, |_| Kind::Folder(BTreeMap::new()), maker(request, mode)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let place = Place { parent: parent.0, name };
        answer_empty(reply, self.tree_mut().unlink(place, self.delta()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let place = Place { parent: parent.0, name };
        answer_empty(reply, self.tree_mut().remove_folder(place, self.delta()));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let place = Place { parent: parent.0, name };
        let kind = |_: &mut Tree| Kind::Link(target.to_owned());
        answer(reply, self.make(place, kind, maker(request, 0o777)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let may_replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(fuser::Errno::EINVAL);
        }
        let from = Place { parent: parent.0, name };
        let to = Place { parent: new_parent.0, name: new_name };
        answer_empty(reply, self.tree_mut().rename(from, to, may_replace, self.delta()));
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            let mut tree = self.tree_mut();
            tree.link(ino.0, Place { parent: parent.0, name }, self.delta())?;
            tree.remember(ino.0);
            Ok(attributes(ino.0, tree.node(ino.0)?))
        };
        answer(reply, link());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        count: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let contents = match self.tree().contents(ino.0) {
            Ok(contents) => contents,
            Err(error) => return reply.error(number(error)),
        };
        let count = usize::try_from(count).unwrap_or(0);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < count {
                buffer.resize(count, 0);
            }
            let out = buffer.get_mut(..count).unwrap_or_default();
            match contents.read(self.stores(), offset, out) {
                Ok(count) => reply.data(out.get(..count).unwrap_or_default()),
                Err(error) => {
                    reply.error(number(self.give_up(&contents, (offset, count), error)));
                }
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let contents = match self.tree().contents(ino.0) {
            Ok(contents) => contents,
            Err(error) => return reply.error(number(error)),
        };
        let written = self.delta().with_room(
            |error| matches!(error, Unreadable::Delta(error) if is_full(error)),
            || contents.write(self.stores(), offset, data),
        );
        match written {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => {
                reply.error(number(self.give_up(&contents, (offset, data.len()), error)));
            }
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // What is to vanish with the mount need not be made to last.
        answer_empty(reply, self.delta().sync());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer_empty(reply, self.delta().sync());
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let known = self.listings().get(&handle.0).map(Arc::clone);
        let listing = match known.filter(|_| offset > 0) {
            Some(listing) => listing,
            // From the beginning is from what is there now.
            None => match self.list(ino.0) {
                Ok(listing) => Arc::new(listing),
                Err(error) => return reply.error(number(error)),
            },
        };
        self.listings().insert(handle.0, Arc::clone(&listing));
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        for (number, (child, kind, name)) in (1..).zip(listing.iter()).skip(begin) {
            if reply.add(INodeNo(*child), number, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let page = PAGE_BYTES as u64;
        let free = self.delta().free_bytes() / page;
        let used = self.delta().written().held_bytes.saturating_add(self.packed_bytes);
        let total = used.div_ceil(page).saturating_add(free);
        reply.statfs(total, free, free, 0, 0, PAGE, NAME_BYTES_MAX, PAGE);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let place = Place { parent: parent.0, name };
        match self.make(place, Tree::new_contents, maker(request, mode)) {
            Ok(attributes) => reply.created(
                &KEPT,
                &attributes,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(number(error)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.allocate(ino.0, offset, bytes, mode));
    }
}
