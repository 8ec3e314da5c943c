//! Names: the folders of a pack, and what has become of them since.
//!
//! Everything is a *node* with a number that is never given again. A node that has
//! lost its last name stays as long as the system knows it, since a process may have
//! it open.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::FileType;
use pagewarden::pack::{Attributes, Entry, What};
use rustix::io::Errno;

use crate::contents::Contents;
use crate::delta::{Delta, Slot};
use crate::options::Owner;
use crate::record::{Made, Named, Record};

/// The folder that is mounted.
pub(crate) const ROOT: u64 = 1;
/// The longest name there may be.
pub(crate) const NAME_BYTES_MAX: u32 = 255;
/// In a mode, that what is made in the folder has the folder's group.
const SET_GROUP: u32 = 0o2000;

/// What a node is.
#[derive(Debug)]
pub(crate) enum Kind {
    Folder(BTreeMap<OsString, u64>),
    File(Arc<Contents>),
    Link(PathBuf),
    /// A socket or a pipe, which is all the system needs to know.
    Special(FileType),
}

impl Kind {
    /// What the journal calls it.
    fn made(&self) -> Made {
        match self {
            Self::Folder(_) => Made::Folder,
            Self::File(contents) => Made::File(contents.number),
            Self::Link(target) => Made::Link(target.clone().into_os_string()),
            Self::Special(FileType::NamedPipe) => Made::Pipe,
            Self::Special(_) => Made::Socket,
        }
    }

    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Self::Folder(_) => FileType::Directory,
            Self::File(_) => FileType::RegularFile,
            Self::Link(_) => FileType::Symlink,
            Self::Special(kind) => *kind,
        }
    }
}

/// What the system asks about a node.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) mode: u32,
    pub(crate) owner: Owner,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
    pub(crate) changed: SystemTime,
}

/// A file, a folder, or another thing that has a name.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) facts: Facts,
    /// Its names.
    pub(crate) links: u32,
    /// How often the system has been told of it, and has not forgotten it.
    lookups: u64,
    /// Its folder; of a file with several names one of them, which no caller asks for.
    pub(crate) parent: u64,
    /// It was made since, and counts in the delta.
    is_new: bool,
}

/// Who makes a node, and under which mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maker {
    pub(crate) mode: u32,
    pub(crate) owner: Owner,
}

/// A name in a folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) parent: u64,
    pub(crate) name: &'a OsStr,
}

impl Place<'_> {
    fn named(self) -> Named {
        Named { parent: self.parent, name: self.name.to_owned() }
    }
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
    /// The number of the next new contents, behind those of the pack.
    next_contents: u64,
}

impl Tree {
    /// What is in a pack. `owner` is everything's owner if there is one; else each
    /// has its own.
    pub(crate) fn of(entries: &[Entry], owner: Option<Owner>) -> Self {
        let root = Attributes {
            mode: 0o755,
            ..entries.first().map_or(Attributes::default(), |first| first.attributes)
        };
        let mut tree =
            Self { nodes: HashMap::new(), next: ROOT + 1, next_contents: entries.len() as u64 };
        let folder =
            |attributes| Node::packed(Kind::Folder(BTreeMap::new()), attributes, owner, ROOT);
        tree.nodes.insert(ROOT, folder(root));
        let mut folders = HashMap::from([(PathBuf::new(), ROOT)]);
        for (number, entry) in entries.iter().enumerate() {
            if entry.name == Path::new(".") {
                tree.nodes.insert(ROOT, folder(entry.attributes));
                continue;
            }
            let parent = entry.name.parent().and_then(|parent| folders.get(parent));
            // A pack whose files lie in no folder was not opened.
            let (Some(parent), Some(name)) = (parent.copied(), entry.name.file_name()) else {
                continue;
            };
            let kind = match entry.what {
                What::Folder => {
                    folders.insert(entry.name.clone(), tree.next);
                    Kind::Folder(BTreeMap::new())
                }
                What::File { bytes, .. } => Kind::File(Arc::new(Contents::packed(number, bytes))),
            };
            let node = Node::packed(kind, entry.attributes, owner, parent);
            let ino = tree.add(node);
            if let Some(Kind::Folder(children)) =
                tree.nodes.get_mut(&parent).map(|node| &mut node.kind)
            {
                children.insert(name.to_owned(), ino);
            }
        }
        tree
    }

    fn add(&mut self, node: Node) -> u64 {
        let ino = self.next;
        self.next = self.next.saturating_add(1);
        self.nodes.insert(ino, node);
        ino
    }

    /// A node by its number.
    pub(crate) fn node(&self, ino: u64) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::NOENT)
    }

    pub(crate) fn node_mut(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::NOENT)
    }

    /// The contents of a file.
    pub(crate) fn contents(&self, ino: u64) -> Result<Arc<Contents>, Errno> {
        match &self.node(ino)?.kind {
            Kind::File(contents) => Ok(Arc::clone(contents)),
            Kind::Folder(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub(crate) fn children(&self, ino: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.node(ino)?.kind {
            Kind::Folder(children) => Ok(children),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn children_mut(&mut self, ino: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.node_mut(ino)?.kind {
            Kind::Folder(children) => Ok(children),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// What has a name.
    pub(crate) fn find(&self, place: Place<'_>) -> Result<u64, Errno> {
        self.children(place.parent)?.get(place.name).copied().ok_or(Errno::NOENT)
    }

    /// The system was told of a node.
    pub(crate) fn remember(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_add(1);
        }
    }

    /// The system has forgotten a node `times` times.
    pub(crate) fn forget(&mut self, ino: u64, times: u64, delta: &Delta) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(times);
            if self.drop_unused(ino, delta) {
                delta.note_left();
            }
        }
    }

    /// Removes a node that has no name and that no process has open.
    fn drop_unused(&mut self, ino: u64, delta: &Delta) -> bool {
        let is_unused = |node: &Node| node.links == 0 && node.lookups == 0;
        if ino == ROOT || !self.nodes.get(&ino).is_some_and(is_unused) {
            return false;
        }
        if let Some(node) = self.nodes.remove(&ino) {
            if let Kind::File(contents) = &node.kind {
                contents.discard(delta);
            }
            if node.is_new {
                delta.give_back_node();
            }
        }
        true
    }

    /// Contents for a new file.
    pub(crate) fn new_contents(&mut self) -> Kind {
        let number = self.next_contents;
        self.next_contents = self.next_contents.saturating_add(1);
        Kind::File(Arc::new(Contents::empty(number)))
    }

    /// Makes something new.
    pub(crate) fn make(
        &mut self,
        place: Place<'_>,
        kind: Kind,
        maker: Maker,
        delta: &Delta,
    ) -> Result<u64, Errno> {
        self.expect_free(place)?;
        let folder = self.node(place.parent)?;
        if folder.links == 0 {
            return Err(Errno::NOENT);
        }
        let mut facts = Facts::new(maker.mode, maker.owner);
        if folder.facts.mode & SET_GROUP != 0 {
            facts.owner.group = folder.facts.owner.group;
            if matches!(kind, Kind::Folder(_)) {
                facts.mode |= SET_GROUP;
            }
        }
        delta.take_node()?;
        let made = kind.made();
        let node = Node { kind, facts, links: 1, lookups: 0, parent: place.parent, is_new: true };
        let (mode, owner, time) = (node.facts.mode, node.facts.owner, node.facts.modified);
        let ino = self.add(node);
        delta.record(|| Record::Make { node: ino, at: place.named(), made, mode, owner, time });
        self.children_mut(place.parent)?.insert(place.name.to_owned(), ino);
        self.touch(place.parent);
        Ok(ino)
    }

    fn expect_free(&self, place: Place<'_>) -> Result<(), Errno> {
        if place.name.len() > NAME_BYTES_MAX as usize {
            return Err(Errno::NAMETOOLONG);
        }
        match self.find(place) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a file one more name.
    pub(crate) fn link(&mut self, ino: u64, place: Place<'_>, delta: &Delta) -> Result<(), Errno> {
        self.expect_free(place)?;
        let node = self.node_mut(ino)?;
        if matches!(node.kind, Kind::Folder(_)) {
            return Err(Errno::PERM);
        }
        node.links = node.links.checked_add(1).ok_or(Errno::MLINK)?;
        node.facts.changed = SystemTime::now();
        self.children_mut(place.parent)?.insert(place.name.to_owned(), ino);
        self.touch(place.parent);
        delta.record(|| Record::Link { node: ino, at: place.named() });
        Ok(())
    }

    /// Takes a name away from what is no folder.
    pub(crate) fn unlink(&mut self, place: Place<'_>, delta: &Delta) -> Result<(), Errno> {
        let ino = self.find(place)?;
        if matches!(self.node(ino)?.kind, Kind::Folder(_)) {
            return Err(Errno::ISDIR);
        }
        delta.record(|| Record::Remove { at: place.named() });
        self.remove(place, ino, delta)
    }

    /// Removes an empty folder.
    pub(crate) fn remove_folder(&mut self, place: Place<'_>, delta: &Delta) -> Result<(), Errno> {
        let ino = self.find(place)?;
        if !self.children(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        delta.record(|| Record::Remove { at: place.named() });
        self.remove(place, ino, delta)
    }

    fn remove(&mut self, place: Place<'_>, ino: u64, delta: &Delta) -> Result<(), Errno> {
        self.children_mut(place.parent)?.remove(place.name);
        self.touch(place.parent);
        let node = self.node_mut(ino)?;
        node.links = node.links.saturating_sub(1);
        node.facts.changed = SystemTime::now();
        let lost_its_name = node.links == 0;
        if !self.drop_unused(ino, delta) && lost_its_name {
            delta.expect_leave();
        }
        Ok(())
    }

    /// Gives what has a name another one, in the place of what has that.
    pub(crate) fn rename(
        &mut self,
        from: Place<'_>,
        to: Place<'_>,
        may_replace: bool,
        delta: &Delta,
    ) -> Result<(), Errno> {
        let ino = self.find(from)?;
        let is_folder = matches!(self.node(ino)?.kind, Kind::Folder(_));
        match self.expect_free(to) {
            Ok(()) => delta.record(|| Record::Rename { from: from.named(), to: to.named() }),
            Err(Errno::EXIST) if may_replace => {
                let other = self.find(to)?;
                if other == ino {
                    return Ok(());
                }
                match (&self.node(other)?.kind, is_folder) {
                    (Kind::Folder(children), true) if !children.is_empty() => {
                        return Err(Errno::NOTEMPTY);
                    }
                    (Kind::Folder(_), false) => return Err(Errno::ISDIR),
                    (Kind::Folder(_), true) => {}
                    (_, true) => return Err(Errno::NOTDIR),
                    (_, false) => {}
                }
                delta.record(|| Record::Rename { from: from.named(), to: to.named() });
                self.remove(to, other, delta)?;
            }
            Err(error) => return Err(error),
        }
        self.children_mut(to.parent)?.insert(to.name.to_owned(), ino);
        self.children_mut(from.parent)?.remove(from.name);
        self.touch(from.parent);
        self.touch(to.parent);
        let node = self.node_mut(ino)?;
        node.parent = to.parent;
        node.facts.changed = SystemTime::now();
        Ok(())
    }

    /// Does again what a journal holds, and says which slots are in use and how many
    /// nodes are new. What speaks of something that is gone since is passed over.
    pub(crate) fn replay(&mut self, records: Vec<Record>) -> (Vec<Slot>, u64) {
        let mut contents: HashMap<u64, Arc<Contents>> = HashMap::new();
        for node in self.nodes.values() {
            if let Kind::File(file) = &node.kind {
                contents.insert(file.number, Arc::clone(file));
            }
        }
        for record in records {
            match record {
                Record::Pages { contents: number, first, slots, bytes } => {
                    if let Some(file) = contents.get(&number) {
                        file.restore_pages(first, slots, bytes);
                    }
                }
                Record::Length { contents: number, bytes, packed_bytes } => {
                    if let Some(file) = contents.get(&number) {
                        file.restore_length(bytes, packed_bytes);
                    }
                }
                other => {
                    if let Some(file) = self.replay_name(other) {
                        contents.insert(file.number, file);
                    }
                }
            }
        }
        let mut slots = Vec::new();
        for node in self.nodes.values() {
            if let (Kind::File(file), true) = (&node.kind, node.links > 0) {
                slots.extend(file.slots());
            }
        }
        // A file of several names is one node, so that each slot is there once.
        let nodes = self.nodes.values().filter(|node| node.is_new).count();
        (slots, nodes as u64)
    }

    /// Gives the contents of a file that was made.
    fn replay_name(&mut self, record: Record) -> Option<Arc<Contents>> {
        match record {
            Record::Make { node: ino, at, made, mode, owner, time } => {
                let kind = match made {
                    Made::Folder => Kind::Folder(BTreeMap::new()),
                    Made::File(number) => {
                        self.next_contents = self.next_contents.max(number.saturating_add(1));
                        Kind::File(Arc::new(Contents::empty(number)))
                    }
                    Made::Link(target) => Kind::Link(target.into()),
                    Made::Pipe => Kind::Special(FileType::NamedPipe),
                    Made::Socket => Kind::Special(FileType::Socket),
                };
                let file = match &kind {
                    Kind::File(file) => Some(Arc::clone(file)),
                    _ => None,
                };
                let facts = Facts { mode, owner, accessed: time, modified: time, changed: time };
                let parent = at.parent;
                let node = Node { kind, facts, links: 1, lookups: 0, parent, is_new: true };
                self.children_mut(parent).ok()?.insert(at.name, ino);
                self.next = self.next.max(ino.saturating_add(1));
                self.nodes.insert(ino, node);
                return file;
            }
            Record::Link { node: ino, at } => {
                let node = self.nodes.get_mut(&ino)?;
                node.links = node.links.saturating_add(1);
                self.children_mut(at.parent).ok()?.insert(at.name, ino);
            }
            Record::Remove { at } => {
                let ino = self.children_mut(at.parent).ok()?.remove(&at.name)?;
                self.replay_lost_name(ino);
            }
            Record::Rename { from, to } => {
                let ino = self.children_mut(from.parent).ok()?.remove(&from.name)?;
                let replaced = self.children_mut(to.parent).ok()?.insert(to.name, ino);
                if let Some(other) = replaced {
                    self.replay_lost_name(other);
                }
                self.nodes.get_mut(&ino)?.parent = to.parent;
            }
            Record::Facts { node: ino, mode, owner, modified } => {
                let node = self.nodes.get_mut(&ino)?;
                node.facts = Facts { mode, owner, modified, ..node.facts.clone() };
            }
            Record::Pages { .. } | Record::Length { .. } | Record::Mark { .. } => {}
        }
        None
    }

    /// The earlier mount has ended, and so no process has it open.
    fn replay_lost_name(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links = node.links.saturating_sub(1);
            if node.links == 0 {
                self.nodes.remove(&ino);
            }
        }
    }

    /// A folder was written.
    fn touch(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            let now = SystemTime::now();
            (node.facts.modified, node.facts.changed) = (now, now);
        }
    }
}

impl Node {
    fn packed(kind: Kind, attributes: Attributes, owner: Option<Owner>, parent: u64) -> Self {
        let modified = time(attributes);
        let facts = Facts {
            mode: attributes.mode,
            owner: owner.unwrap_or(Owner { user: attributes.owner, group: attributes.group }),
            accessed: modified,
            modified,
            changed: modified,
        };
        Self { kind, facts, links: 1, lookups: 0, parent, is_new: false }
    }
}

impl Facts {
    fn new(mode: u32, owner: Owner) -> Self {
        let now = SystemTime::now();
        Self { mode: mode & 0o7777, owner, accessed: now, modified: now, changed: now }
    }
}

/// When it was last written.
fn time(attributes: Attributes) -> SystemTime {
    let seconds = Duration::from_secs(attributes.modified_seconds.unsigned_abs());
    let whole = if attributes.modified_seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let nanoseconds = Duration::from_nanos(attributes.modified_nanoseconds.into());
    whole.and_then(|time| time.checked_add(nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}
