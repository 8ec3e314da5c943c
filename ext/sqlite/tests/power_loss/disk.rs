//! A disk that remembers what was done to it, and what could be left of that after a loss of power.
//!
//! What a file's sync has not covered may be there or not, in any order, in pieces of a sector of
//! 512 bytes; a longer file may have its length and zeroes in place of its content. Names that are
//! made or deleted and files that are cut become so in their order, as in every filesystem with a
//! journal. Names are certain once a directory is synced: SQLite's unix VFS does that with the first
//! sync of a new journal or log, and where it deletes and says so.

use std::collections::BTreeMap;

use crate::random::Random;

pub const SECTOR_BYTES: usize = 512;

pub type Files = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone)]
pub enum Op {
    Create {
        name: String,
    },
    Write {
        name: String,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        name: String,
        bytes: usize,
    },
    Sync {
        name: String,
    },
    Delete {
        name: String,
        is_synced: bool,
    },
    /// The program was told that its transaction is committed.
    Committed(usize),
}

/// A file, whatever its name is.
#[derive(Debug, Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    /// With the place of each among the names and cuts of the disk.
    pending: Vec<(usize, Op)>,
    is_synced_once: bool,
}

#[derive(Debug, Clone)]
enum NameOp {
    Create(String, usize),
    Delete(String),
}

/// A disk after some operations.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<(usize, NameOp)>,
    /// Names and cuts so far.
    order: usize,
    /// The last transaction that the program was told of.
    pub committed: usize,
}

impl Disk {
    /// All of it is durable.
    pub fn new(files: &Files) -> Self {
        let mut disk = Self::default();
        for (index, (name, bytes)) in files.iter().enumerate() {
            disk.inodes.push(Inode {
                durable: bytes.clone(),
                is_synced_once: true,
                ..Inode::default()
            });
            disk.names.insert(name.clone(), index);
        }
        disk.durable_names = disk.names.clone();
        disk
    }

    fn inode(&mut self, name: &str) -> &mut Inode {
        &mut self.inodes[self.names[name]]
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { name } => {
                self.inodes.push(Inode::default());
                let inode = self.inodes.len() - 1;
                self.names.insert(name.clone(), inode);
                self.name(NameOp::Create(name.clone(), inode));
            }
            Op::Write { name, .. } | Op::Truncate { name, .. } => {
                self.order += usize::from(matches!(op, Op::Truncate { .. }));
                let order = self.order;
                self.inode(name).pending.push((order, op.clone()));
            }
            Op::Sync { name } => {
                let inode = self.inode(name);
                for (_, op) in std::mem::take(&mut inode.pending) {
                    replay(&mut inode.durable, &op);
                }
                if !std::mem::replace(&mut inode.is_synced_once, true) {
                    self.sync_names(usize::MAX);
                }
            }
            Op::Delete { name, is_synced } => {
                self.names.remove(name);
                self.name(NameOp::Delete(name.clone()));
                if *is_synced {
                    self.sync_names(usize::MAX);
                }
            }
            Op::Committed(number) => self.committed = *number,
        }
    }

    fn name(&mut self, op: NameOp) {
        self.order += 1;
        self.pending_names.push((self.order, op));
    }

    /// Names are certain up to this place.
    fn sync_names(&mut self, order: usize) {
        let count = self.pending_names.iter().take_while(|(place, _)| *place <= order).count();
        for (_, op) in self.pending_names.drain(..count) {
            match op {
                NameOp::Create(name, inode) => self.durable_names.insert(name, inode),
                NameOp::Delete(name) => self.durable_names.remove(&name),
            };
        }
    }

    /// What may be left when the power goes now.
    pub fn without_power(&self, random: &mut Random) -> Files {
        let mut disk = self.clone();
        let places = self.inodes.iter().flat_map(|inode| &inode.pending).map(|(place, _)| *place);
        let first = self.pending_names.iter().map(|(place, _)| *place).chain(places).min();
        let first = first.map_or(self.order, |first| first.saturating_sub(1).min(self.order));
        let order = first + random.index(self.order - first + 1);
        disk.sync_names(order);
        // From nothing of what was not synced to all of it.
        let share = [0, 15, 50, 85, 100][random.index(5)];
        let left = |inode: &Inode, random: &mut Random| {
            let mut bytes = inode.durable.clone();
            let mut length = bytes.len();
            for (place, op) in &inode.pending {
                match op {
                    Op::Write { at, bytes: written, .. } => {
                        length = length.max(at + written.len());
                        for (from, to) in sectors(*at, written.len()) {
                            if random.below(100) < share {
                                let piece = written[from - at..to - at].to_vec();
                                let (name, at) = (String::new(), from);
                                replay(&mut bytes, &Op::Write { name, at, bytes: piece });
                            }
                        }
                    }
                    _ if *place <= order => replay(&mut bytes, op),
                    _ => {}
                }
            }
            if random.below(100) < share && length > bytes.len() {
                bytes.resize(length, 0);
            }
            bytes
        };
        let names = disk.durable_names.clone();
        names.iter().map(|(name, at)| (name.clone(), left(&disk.inodes[*at], random))).collect()
    }
}

/// The pieces of a write, each in one sector.
fn sectors(at: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = at + count;
    (at / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES))
        .map(move |sector| (at.max(sector * SECTOR_BYTES), end.min((sector + 1) * SECTOR_BYTES)))
}

/// Does to the content of a file what `op` does.
pub fn replay(content: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write { at, bytes, .. } => {
            let end = at + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*at..end].copy_from_slice(bytes);
        }
        Op::Truncate { bytes, .. } => content.resize(*bytes, 0),
        _ => {}
    }
}

/// What must be so for the rest to mean anything: a sync makes certain, and without one anything
/// can be left.
#[test]
fn what_was_synced_stays_and_the_rest_may_be_torn() {
    let name = || "a".to_owned();
    let mut disk = Disk::new(&Files::from([(name(), vec![1; 2048])]));
    disk.apply(&Op::Write { name: name(), at: 0, bytes: vec![2; 1024] });
    disk.apply(&Op::Sync { name: name() });
    disk.apply(&Op::Write { name: name(), at: 512, bytes: vec![3; 1536] });
    let mut random = Random(5);
    let states: std::collections::BTreeSet<Vec<u8>> =
        (0..400).map(|_| disk.without_power(&mut random)["a"].clone()).collect();
    assert_eq!(states.len(), 8, "three sectors, each old or new");
    assert!(states.iter().all(|state| state[..512] == [2; 512] && state.len() == 2048));
    disk.apply(&Op::Create { name: "b".to_owned() });
    disk.apply(&Op::Delete { name: name(), is_synced: false });
    let names: std::collections::BTreeSet<Vec<String>> =
        (0..100).map(|_| disk.without_power(&mut random).into_keys().collect()).collect();
    let some = [&["a"][..], &["a", "b"], &["b"]]
        .map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(names, some.into());
}
