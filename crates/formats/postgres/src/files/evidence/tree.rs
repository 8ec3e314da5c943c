//! What the pages of a btree index say of one another: neighbours, levels, downlinks.
//!
//! | tested after a clean stop | legal all the same |
//! | --- | --- |
//! | the right neighbour of a page has it as its left neighbour, and the other way round | |
//! | neighbours are of one level, and not deleted | half-dead ones |
//! | a child is one level below its parent, has one parent, and is not deleted | |
//! | the root is of the level that the metapage says | |
//! | every leaf has a parent | half-dead ones; one to the right of an incomplete split |
//!
//! Each of these changes on all pages in one record of the log. An inner page without a
//! parent may be on its way to be deleted, and is not asked.
//!
//! Eleven bytes a page. Sources: `src/backend/access/nbtree/README`, `_bt_unlink_halfdead_page`
//! and `_bt_split`; `contrib/amcheck/verify_nbtree.c`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::files::evidence::blocks::{Watched, each_sound};
use crate::files::evidence::inside::{Faults, by_itself};
use crate::files::witness::kind::MadeFor;
use crate::files::witness::node::{self, LEVEL_MAX, Node};
use crate::files::witness::{Method, links};
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};

/// Pages of all trees together that are compared: 264 MiB.
pub(in crate::files) const TREE_PAGES_MAX: u64 = 24 << 20;

/// No page has this level.
const NO_LEVEL: u8 = u8::MAX;
const SEEN: u16 = 1 << 8;
const DELETED: u16 = 1 << 9;
const HALF_DEAD: u16 = 1 << 10;
const INCOMPLETE: u16 = 1 << 11;

/// The pages of one btree index. Filled by many threads, each page by one.
#[derive(Debug)]
pub(in crate::files) struct Tree {
    faults: Arc<Faults>,
    own: Arc<Watched>,
    pages: usize,
    places: OnceLock<Places>,
    /// By the metapage.
    root: AtomicU32,
    root_level: AtomicU8,
}

#[derive(Debug)]
struct Places {
    /// The left neighbour, and the right one in the high half.
    neighbours: Vec<AtomicU64>,
    /// The level in the low byte, and flags.
    states: Vec<AtomicU16>,
    /// The level of the page that leads to it; 0 for none, and [`NO_LEVEL`] for two pages.
    parents: Vec<AtomicU8>,
}

/// What is known of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    left: u32,
    right: u32,
    level: u8,
    flags: u16,
    parent: u8,
}

impl Known {
    fn is_member(self) -> bool {
        self.flags & (SEEN | DELETED) == SEEN
    }
}

impl Places {
    fn new(pages: usize) -> Self {
        Self {
            neighbours: std::iter::repeat_with(|| AtomicU64::new(0)).take(pages).collect(),
            states: std::iter::repeat_with(|| AtomicU16::new(0)).take(pages).collect(),
            parents: std::iter::repeat_with(|| AtomicU8::new(0)).take(pages).collect(),
        }
    }

    fn known(&self, block: u32) -> Option<Known> {
        let at = usize::try_from(block).ok()?;
        let neighbours = self.neighbours.get(at)?.load(Ordering::Relaxed);
        let state = self.states.get(at)?.load(Ordering::Relaxed);
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        Some(Known {
            left: half(neighbours),
            right: half(neighbours >> 32),
            level: u8::try_from(state & 0xFF).unwrap_or(NO_LEVEL),
            flags: state & !0xFF,
            parent: self.parents.get(at)?.load(Ordering::Relaxed),
        })
    }

    fn set(&self, block: u32, neighbours: u64, state: u16) {
        let Ok(at) = usize::try_from(block) else { return };
        if let (Some(both), Some(own)) = (self.neighbours.get(at), self.states.get(at)) {
            both.store(neighbours, Ordering::Relaxed);
            own.store(state | SEEN, Ordering::Relaxed);
        }
    }

    fn lead(&self, child: u32, level: u8) {
        let parent = usize::try_from(child).ok().and_then(|at| self.parents.get(at));
        let Some(parent) = parent else { return };
        if parent.swap(level, Ordering::Relaxed) != 0 {
            parent.store(NO_LEVEL, Ordering::Relaxed);
        }
    }
}

impl Tree {
    pub(in crate::files) fn new(own: Arc<Watched>, faults: Arc<Faults>, pages: u64) -> Self {
        Self {
            faults,
            own,
            pages: usize::try_from(pages).unwrap_or(0),
            places: OnceLock::new(),
            root: AtomicU32::new(0),
            root_level: AtomicU8::new(0),
        }
    }

    fn keep(&self, block: u32, page: &[u8], node: Node) {
        let places = self.places.get_or_init(|| Places::new(self.pages));
        let byte = |level: u32| u8::try_from(level).unwrap_or(NO_LEVEL);
        match node {
            Node::Meta { root, level } => {
                self.root.store(root, Ordering::Relaxed);
                self.root_level.store(byte(level), Ordering::Relaxed);
            }
            Node::Deleted => places.set(block, 0, DELETED),
            Node::Member { left, right, level, is_half_dead, is_incomplete } => {
                let mut state = u16::from(byte(level));
                state |= if is_half_dead { HALF_DEAD } else { 0 };
                state |= if is_incomplete { INCOMPLETE } else { 0 };
                places.set(block, u64::from(left) | u64::from(right) << 32, state);
                if level > 0 && !is_half_dead {
                    links::children(page, |child| places.lead(child, byte(level)));
                }
            }
        }
    }

    /// What is wrong between pages goes to the faults of this index.
    pub(in crate::files) fn conclude(&self) {
        let Some(places) = self.places.get() else { return };
        let mut found: BTreeMap<u32, String> = BTreeMap::new();
        let root = self.root.load(Ordering::Relaxed);
        let root_level = self.root_level.load(Ordering::Relaxed);
        if let Some(known) = places.known(root).filter(|_| root != 0)
            && known.flags & SEEN != 0
            && (!known.is_member() || known.level != root_level)
        {
            let is = if known.is_member() {
                format!("of level {}", known.level)
            } else {
                "deleted".to_owned()
            };
            found.insert(root, format!("the root, of level {root_level} by the metapage, is {is}"));
        }
        let last = u32::try_from(self.pages).unwrap_or(u32::MAX);
        let tests_parents = root_level > 0 && self.is_whole(places, last);
        for block in 1..last {
            let Some(known) = places.known(block).filter(|known| known.flags & SEEN != 0) else {
                continue;
            };
            if let Some((blamed, text)) = right(places, block, known) {
                found.entry(blamed).or_insert(text);
            }
            if let Some((blamed, text)) = left(places, block, known) {
                found.entry(blamed).or_insert(text);
            }
            if let Some(text) = parent(places, known, tests_parents) {
                found.entry(block).or_insert(text);
            }
        }
        for (block, text) in found {
            self.faults.add(u64::from(block), format!("other pages of the index disagree: {text}"));
        }
    }

    /// True if every page that another leads to was seen: those that were not have children.
    fn is_whole(&self, places: &Places, last: u32) -> bool {
        (1..last).all(|block| {
            let is_seen = places.known(block).is_some_and(|known| known.flags & SEEN != 0);
            is_seen || !self.own.is_linked(block)
        })
    }
}

/// What is wrong between a page and its right neighbour, and which of both is wrong.
fn right(places: &Places, block: u32, known: Known) -> Option<(u32, String)> {
    if !known.is_member() || known.right == 0 {
        return None;
    }
    let other = places.known(known.right).filter(|other| other.flags & SEEN != 0)?;
    if !other.is_member() {
        return Some((block, format!("its right neighbour {} was deleted", known.right)));
    }
    if other.left != block {
        // The one that agrees with a third page is right.
        let third = places.known(other.left).filter(|third| third.is_member());
        if third.is_some_and(|third| third.right == known.right) {
            let text = format!(
                "its right neighbour is {}, whose left neighbour is {}",
                known.right, other.left
            );
            return Some((block, text));
        }
        let text = format!("its left neighbour is {}, and page {block} is", other.left);
        return Some((known.right, text));
    }
    (other.level != known.level).then(|| {
        // A page that leads to one of them knows which is wrong.
        let (blamed, own, side, theirs) = match known.parent == known.level.saturating_add(1) {
            true => (known.right, other.level, "left", known.level),
            false => (block, known.level, "right", other.level),
        };
        (blamed, format!("it is of level {own}, and its {side} neighbour of {theirs}"))
    })
}

/// The same with its left neighbour, which knows nothing of it.
fn left(places: &Places, block: u32, known: Known) -> Option<(u32, String)> {
    if !known.is_member() || known.left == 0 {
        return None;
    }
    let other = places.known(known.left).filter(|other| other.flags & SEEN != 0)?;
    if !other.is_member() {
        return Some((block, format!("its left neighbour {} was deleted", known.left)));
    }
    if other.right == block {
        return None;
    }
    let third = places.known(other.right).filter(|third| third.is_member());
    if third.is_some_and(|third| third.left == known.left) {
        let text = format!(
            "its left neighbour is {}, whose right neighbour is {}",
            known.left, other.right
        );
        return Some((block, text));
    }
    let text = format!("its right neighbour is {}, and page {block} is", other.right);
    Some((known.left, text))
}

/// What is wrong between a page and the one that leads to it.
fn parent(places: &Places, known: Known, tests_parents: bool) -> Option<String> {
    match known.parent {
        0 => {
            let is_leaf = known.is_member() && known.level == 0;
            let left = places.known(known.left).filter(|_| known.left != 0);
            let is_new = left.is_some_and(|left| left.flags & (SEEN | INCOMPLETE) != SEEN);
            let is_asked = tests_parents && is_leaf && known.flags & HALF_DEAD == 0 && !is_new;
            is_asked.then(|| "a leaf that no inner page leads to".to_owned())
        }
        NO_LEVEL => Some("two entries of inner pages lead to it".to_owned()),
        level if !known.is_member() => {
            Some(format!("it was deleted, and a page of level {level} leads to it"))
        }
        level => (level != known.level.saturating_add(1)).then(|| {
            format!("it is of level {}, and a page of level {level} leads to it", known.level)
        }),
    }
}

/// Sees the pages of a btree index.
#[derive(Debug)]
pub(in crate::files) struct TreePages {
    pub(in crate::files) faults: Arc<Faults>,
    /// `None` if there is no room.
    pub(in crate::files) tree: Option<Arc<Tree>>,
    pub(in crate::files) page_size: usize,
}

impl Witness for TreePages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let made_for = MadeFor::Index(Method::Btree);
        each_sound(run, standings, self.page_size, |block, page| {
            let Ok(number) = u32::try_from(block) else { return };
            if !made_for.fits(page) {
                return;
            }
            match (node::read(page), &self.tree) {
                (Err(text), _) => self.faults.add(block, by_itself(&text)),
                (Ok(Node::Member { .. } | Node::Deleted), _) if number == 0 => {
                    self.faults.add(block, by_itself("the first page is no metapage"));
                }
                (Ok(Node::Meta { .. }), _) if number != 0 => {
                    self.faults.add(block, by_itself("a metapage that is not the first page"));
                }
                (Ok(node), Some(tree)) => tree.keep(number, page, node),
                (Ok(_), None) => {}
            }
        });
    }
}

const _: () = assert!(LEVEL_MAX < NO_LEVEL as u32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::evidence::blocks::Facts;
    use crate::files::witness::node::tests::{metapage, page};
    use pagewarden_core::database::Step;
    use pagewarden_core::verdict::{PageNo, Standing};

    const LEAF: u16 = 1;
    const DELETED: u16 = 4;
    const HALF_DEAD: u16 = 16;
    const INCOMPLETE: u16 = 128;

    /// A root, 3, above the leaves 1, 2 and 4 from left to right.
    fn sound() -> Vec<Vec<u8>> {
        vec![
            metapage(3, 1),
            page(0, 2, 0, LEAF, &[9]),
            page(1, 4, 0, LEAF, &[9]),
            page(0, 0, 1, 2, &[1, 2, 4]),
            page(2, 0, 0, LEAF, &[]),
        ]
    }

    fn found(pages: &[Vec<u8>]) -> Vec<(u64, String)> {
        let own = Arc::new(Watched::new(Facts {
            pages: pages.len() as u64,
            page_size: 8192,
            segment_pages: 131_072,
            stem: "index".to_owned(),
            identity: None,
            hint: None,
            needs_first: true,
            needs_all: false,
            has_odd_end: false,
            with_rows: false,
        }));
        let faults = Arc::new(Faults::new(Arc::clone(&own), Standing::Ok));
        let tree = Arc::new(Tree::new(own, Arc::clone(&faults), pages.len() as u64));
        let witness = TreePages {
            faults: Arc::clone(&faults),
            tree: Some(Arc::clone(&tree)),
            page_size: 8192,
        };
        let mut standings = Standings::default();
        pages.iter().for_each(|_| standings.push(Some(Standing::Ok)));
        let bytes = pages.concat();
        witness.see(PageRun { first: PageNo(0), bytes: &bytes }, &standings);
        tree.conclude();
        let finding = |step| match step {
            Step::Overruled(finding, Standing::Ok) => finding,
            other => panic!("{other:?}"),
        };
        let findings = faults.conclude().into_iter().map(finding);
        findings
            .map(|one| {
                let detail = one.detail.unwrap();
                let (_, text) = detail.split_once(": ").unwrap();
                (one.place.page.unwrap().0, text.to_owned())
            })
            .collect()
    }

    #[test]
    fn trees_that_servers_leave_have_no_faults() {
        assert_eq!(found(&sound()), []);
        // A split whose parent was not told yet, and a page that is half deleted.
        let mut split = sound();
        split[2] = page(1, 4, 0, LEAF | INCOMPLETE, &[9]);
        split[3] = page(0, 0, 1, 2, &[1, 2]);
        assert_eq!(found(&split), []);
        let mut dying = sound();
        dying[2] = page(1, 4, 0, LEAF | HALF_DEAD, &[9]);
        dying[3] = page(0, 0, 1, 2, &[1, 4]);
        assert_eq!(found(&dying), []);
        let mut deleted = sound();
        deleted.push(page(1, 2, 7_000, LEAF | DELETED, &[]));
        assert_eq!(found(&deleted), []);
        assert_eq!(found(&[metapage(0, 0)]), []);
        assert_eq!(found(&[metapage(1, 0), page(0, 0, 0, LEAF | 2, &[])]), []);
    }

    #[test]
    fn the_page_that_disagrees_with_two_others_is_named() {
        type Change = fn(&mut Vec<Vec<u8>>);
        let changes: [(Change, u64, &str); 8] = [
            (|pages| pages[2] = page(4, 4, 0, LEAF, &[9]), 2, "its left neighbour is 4"),
            (|pages| pages[1] = page(0, 4, 0, LEAF, &[9]), 1, "its right neighbour is 4"),
            (|pages| pages[4] = page(1, 0, 0, LEAF, &[]), 4, "its left neighbour is 1"),
            (|pages| pages[2] = page(1, 4, 1, 0, &[9, 9]), 2, "it is of level 1"),
            (
                |pages| pages[2] = page(1, 4, 0, LEAF | DELETED, &[9]),
                1,
                "its right neighbour 2 was deleted",
            ),
            (|pages| pages[3] = page(0, 0, 1, 2, &[1, 2]), 4, "a leaf that no inner page leads to"),
            (
                |pages| pages[3] = page(0, 0, 1, 2, &[1, 2, 2, 4]),
                2,
                "two entries of inner pages lead to it",
            ),
            (
                |pages| pages[0] = metapage(3, 2),
                3,
                "the root, of level 2 by the metapage, is of level 1",
            ),
        ];
        for (change, block, words) in changes {
            let mut pages = sound();
            change(&mut pages);
            let found = found(&pages);
            assert!(
                found.iter().any(|(at, text)| *at == block && text.contains(words)),
                "{words}: {found:?}"
            );
        }
        let mut pages = sound();
        pages[0] = page(0, 0, 0, LEAF, &[]);
        assert_eq!(found(&pages), [(0, "the first page is no metapage".to_owned())]);
    }
}
