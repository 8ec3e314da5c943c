//! One b-tree: its pages from the root down, in the order of their keys.
//!
//! Each page is compared with what led to it: its kind, the keys on either side of the link, the
//! depth of the leaves. The pages below one page are read some at a time, in the order in which
//! they lie in the file.

#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::faults::Fault;
use super::pages::BATCH_BYTES;
use super::to_u64;
use super::walker::{Link, Scratch, Walker};
use crate::page::btree::{BtreePage, Cell, TreeKind};
use crate::page::header::HEADER_BYTES;
use crate::page::record;
use pagewarden_core::verdict::Kind;

/// SQLite follows no tree that is deeper.
const DEPTH_MAX: u32 = 20;

/// A tree, and what was learnt of it.
#[derive(Debug)]
pub struct Tree {
    /// The table or index.
    pub name: Arc<str>,
    /// Its first page.
    pub root: u32,
    /// The page that names it; its own for the schema.
    pub named_by: u32,
    /// Its kind, where the schema says for sure.
    pub kind: Option<TreeKind>,
    /// Level of its leaves and one more; 0 until the first leaf.
    depth: AtomicU32,
    /// Entries on all pages.
    pub entries: AtomicU64,
    /// Pages without those of overflows.
    pub pages: AtomicU64,
    /// All of it was reached and is sound.
    faults: AtomicU32,
}

impl Tree {
    /// A tree of which nothing was seen yet.
    #[must_use]
    pub fn new(name: Arc<str>, root: u32, named_by: u32, kind: Option<TreeKind>) -> Self {
        Self {
            name,
            root,
            named_by,
            kind,
            depth: AtomicU32::new(0),
            entries: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            faults: AtomicU32::new(0),
        }
    }

    /// True if all of it was reached and nothing is wrong with it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults.load(Ordering::Relaxed) == 0
    }

    fn spoil(&self) {
        self.faults.store(1, Ordering::Relaxed);
    }
}

/// An entry of a tree: a row of a table or an entry of an index.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Its page.
    pub page: u32,
    /// Its key in a table.
    pub rowid: i64,
    /// Its record, or as much of it as was asked for. The header is in it.
    pub record: &'a [u8],
    /// The length of the record.
    pub payload_bytes: u64,
}

/// Sees the entries of a tree in the order of their keys.
pub trait Visitor {
    /// How much of a record it wants to see where that is not all on the entry's page.
    fn record_bytes(&self) -> usize {
        0
    }

    /// Sees an entry.
    ///
    /// # Errors
    /// What is wrong with it.
    fn see(&mut self, entry: &Entry<'_>) -> Result<(), String>;
}

/// Looks at the header of each record.
#[derive(Debug, Default)]
pub struct Headers;

impl Visitor for Headers {
    fn see(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        record::walk_header(entry.record, entry.payload_bytes, |_| {})
    }
}

/// A page, and what led to it.
#[derive(Debug, Clone, Copy)]
struct Slot {
    page: u32,
    parent: u32,
    kind: Option<TreeKind>,
    /// 1 for the root.
    level: u32,
    /// Rowids are greater.
    low: Option<i64>,
    /// Rowids are not greater.
    high: Option<i64>,
}

/// One walk along a tree.
#[derive(Debug)]
pub struct TreeWalk<'a, V> {
    walker: &'a Walker,
    tree: &'a Tree,
    scratch: &'a mut Scratch,
    visitor: &'a mut V,
    /// For tests of progress, see [`Walker`].
    tell: &'a dyn Tell,
}

/// What a walk calls now and then while it goes on, and what says whether it should.
pub trait Tell: std::fmt::Debug {
    /// False to end the walk.
    fn goes_on(&self) -> bool;
}

impl<'a, V: Visitor> TreeWalk<'a, V> {
    /// Walks along `tree`.
    pub fn run(
        walker: &'a Walker,
        tree: &'a Tree,
        scratch: &'a mut Scratch,
        visitor: &'a mut V,
        tell: &'a dyn Tell,
    ) {
        let mut walk = Self { walker, tree, scratch, visitor, tell };
        let what = || format!("the root of {}", tree.name);
        let leads = (tree.named_by, tree.root);
        if !walker.step(walk.scratch, leads, Link::Root, &what, Some(&tree.name)) {
            return tree.spoil();
        }
        match walker.read(tree.root) {
            Ok(bytes) => {
                let slot = Slot {
                    page: tree.root,
                    parent: tree.named_by,
                    kind: tree.kind,
                    level: 1,
                    low: None,
                    high: None,
                };
                walk.visit(slot, &bytes);
            }
            Err(_) => walk.absent(tree.root),
        }
    }

    fn absent(&self, page: u32) {
        self.tree.spoil();
        self.walker.absent(page);
    }

    fn fault(&self, page: u32, detail: String) {
        self.tree.spoil();
        self.walker.fault(page, Kind::Structure, detail, Some(&self.tree.name));
    }

    /// A page that does not fit the one that leads to it.
    fn misfit(&self, slot: Slot, kind: Kind, detail: String) {
        self.tree.spoil();
        let object = Some(Arc::clone(&self.tree.name));
        let fault = Fault { page: slot.page, parent: Some(slot.parent), kind, detail, object };
        self.walker.with_faults(|faults| faults.add(fault));
    }

    /// What is below a page that was not understood stays out of reach.
    fn broken(&self, slot: Slot, bytes: &[u8], detail: String) {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        let (kind, detail) = match is_zero {
            true => (Kind::Zeroed, "all zero, and a page of a b-tree".to_owned()),
            false => (Kind::Structure, detail),
        };
        self.misfit(slot, kind, detail);
        self.walker.with_faults(|faults| faults.gap_at(slot.page));
    }

    fn visit(&mut self, slot: Slot, bytes: &[u8]) {
        let number = slot.page;
        self.tree.pages.fetch_add(1, Ordering::Relaxed);
        let header = if number == 1 { HEADER_BYTES } else { 0 };
        let page = match BtreePage::parse(bytes, header, self.walker.pages.usable) {
            Ok(page) => page,
            Err(detail) => return self.broken(slot, bytes, detail),
        };
        if slot.kind.is_some_and(|kind| kind != page.kind) {
            let detail =
                format!("a page of {} in a tree of {}", of(page.kind), of(other(page.kind)));
            return self.broken(slot, bytes, detail);
        }
        let cells = self.cells(slot, &page);
        if page.is_leaf {
            let level = slot.level;
            let first =
                self.tree.depth.compare_exchange(0, level, Ordering::Relaxed, Ordering::Relaxed);
            if let Err(depth) = first
                && depth != level
            {
                let detail =
                    format!("a leaf at level {level} of a tree whose leaves are at {depth}");
                self.misfit(slot, Kind::Structure, detail);
            }
            for cell in &cells {
                self.see(slot, &page, cell);
            }
        } else if slot.level >= DEPTH_MAX {
            self.broken(slot, bytes, format!("the tree is deeper than {DEPTH_MAX} levels"));
        } else {
            self.children(slot, &page, &cells);
        }
    }

    /// Takes all cells apart; those that cannot be are missing.
    fn cells(&mut self, slot: Slot, page: &BtreePage<'_>) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(page.cell_count());
        let mut is_whole = true;
        for index in 0..page.cell_count() {
            match page.cell(index) {
                Ok(cell) => cells.push(cell),
                Err(detail) => {
                    is_whole = false;
                    self.fault(slot.page, detail);
                    if !page.is_leaf {
                        self.walker.with_faults(|faults| faults.gap_at(slot.page));
                    }
                }
            }
        }
        if is_whole && let Err(detail) = page.cover(&cells, &mut self.scratch.stretches) {
            self.fault(slot.page, detail);
        }
        if page.kind == TreeKind::Table
            && let Some(detail) = order_fault(slot, page.is_leaf, &cells)
        {
            self.misfit(slot, Kind::Structure, detail);
        }
        cells
    }

    fn children(&mut self, slot: Slot, page: &BtreePage<'_>, cells: &[Cell]) {
        let mut batch = self.scratch.batches.pop().unwrap_or_default();
        let size = self.walker.pages.page_size;
        let at_once = BATCH_BYTES.checked_div(size).unwrap_or(1).max(1);
        let count = cells.len().saturating_add(1);
        let child_of = |at: usize| cells.get(at).map_or(page.right_child, |cell| cell.left_child);
        let mut wanted = Vec::new();
        let mut low = slot.low;
        for index in 0..count {
            if index.checked_rem(at_once) == Some(0) {
                let end = index.saturating_add(at_once).min(count);
                wanted.clear();
                let is_there =
                    |page: &u32| (1..=self.walker.pages.count).contains(&u64::from(*page));
                wanted.extend((index..end).map(child_of).filter(is_there));
                batch.fill(&self.walker.pages, &wanted);
                if !self.tell.goes_on() {
                    break;
                }
            }
            let (child, cell) = (child_of(index), cells.get(index));
            let high = if page.kind == TreeKind::Table {
                cell.map(|cell| cell.rowid).or(slot.high)
            } else {
                None
            };
            let what = || match cell {
                Some(_) => format!("cell {index}"),
                None => "the right child".to_owned(),
            };
            let leads = (slot.page, child);
            if self.walker.step(
                self.scratch,
                leads,
                Link::Child(slot.page),
                &what,
                Some(&self.tree.name),
            ) {
                let below = Slot {
                    page: child,
                    parent: slot.page,
                    kind: Some(page.kind),
                    level: slot.level.saturating_add(1),
                    low,
                    high,
                };
                match batch.get(child, size) {
                    Ok(bytes) => self.visit(below, bytes),
                    Err(_) => self.absent(child),
                }
            } else {
                self.tree.spoil();
            }
            if page.kind == TreeKind::Table {
                low = high;
            } else if let Some(cell) = cell {
                self.see(slot, page, cell);
            }
        }
        self.scratch.batches.push(batch);
    }

    /// An entry, with the pages on which it goes on.
    fn see(&mut self, slot: Slot, page: &BtreePage<'_>, cell: &Cell) {
        self.tree.entries.fetch_add(1, Ordering::Relaxed);
        let local = page.local(cell);
        let seen = match cell.overflow {
            None => self.visitor.see(&Entry {
                page: slot.page,
                rowid: cell.rowid,
                record: local,
                payload_bytes: cell.payload_bytes,
            }),
            Some(first) => {
                self.scratch.payload.clear();
                self.scratch.payload.extend_from_slice(local);
                let rest = cell.payload_bytes.saturating_sub(to_u64(local.len()));
                let header = record::header_bytes(local).unwrap_or(0).min(record::HEADER_BYTES_MAX);
                let header = usize::try_from(header).unwrap_or(0);
                let room = self.visitor.record_bytes().max(header);
                let leads = (slot.page, first);
                if !self.walker.overflow(self.scratch, leads, rest, room, Some(&self.tree.name)) {
                    return self.tree.spoil();
                }
                self.visitor.see(&Entry {
                    page: slot.page,
                    rowid: cell.rowid,
                    record: &self.scratch.payload,
                    payload_bytes: cell.payload_bytes,
                })
            }
        };
        if let Err(detail) = seen {
            let of = match page.kind {
                TreeKind::Table => format!("rowid {}: {detail}", cell.rowid),
                TreeKind::Index => detail,
            };
            self.fault(slot.page, of);
        }
    }
}

fn of(kind: TreeKind) -> &'static str {
    match kind {
        TreeKind::Table => "a table",
        TreeKind::Index => "an index",
    }
}

fn other(kind: TreeKind) -> TreeKind {
    match kind {
        TreeKind::Table => TreeKind::Index,
        TreeKind::Index => TreeKind::Table,
    }
}

/// Rowids ascend, and stay between those on either side of the link to the page. The last on a
/// leaf may be the one above it.
fn order_fault(slot: Slot, is_leaf: bool, cells: &[Cell]) -> Option<String> {
    let mut before = slot.low;
    for cell in cells {
        if before.is_some_and(|before| cell.rowid <= before) {
            return Some(format!("rowid {} out of order", cell.rowid));
        }
        before = Some(cell.rowid);
    }
    let last = cells.last()?.rowid;
    let high = slot.high?;
    let is_beyond = if is_leaf { last > high } else { last >= high };
    is_beyond.then(|| format!("rowid {last} out of order: the page above ends at {high}"))
}
