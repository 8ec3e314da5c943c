//! The levels of the indexes of a file against one another, and their entries against the rows.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap};

use crate::files::structure::{Gathered, Structure, TYPE_BITMAP, What};
use crate::page::fields::{FSP_SIZE, PAGE_TYPE, read_u16, read_u32};
use crate::page::index::TYPE_INSTANT;

/// What is wrong with which page.
pub(super) type Faults = BTreeMap<u32, String>;

impl Structure {
    pub(super) fn compare_tree(&self, gathered: &mut Gathered, faults: &mut Faults) {
        let end = u32::try_from(gathered.facts.len()).unwrap_or(u32::MAX);
        let is_cut = self.is_cut(gathered);
        for (page, fact) in gathered.pages().filter(|(_, fact)| fact.is_of_index()) {
            let beside = [fact.before, fact.next];
            if let Some(far) = beside.into_iter().flatten().find(|it| *it >= end && !is_cut) {
                let words = format!("the page beside it is {far}, and the file has {end}");
                faults.entry(page).or_insert(words);
            }
            let Some(next) = fact.next else { continue };
            let other = gathered.fact(next);
            // Which page is beside which, is asked elsewhere.
            if !other.is_of_index() {
                continue;
            }
            if (other.index, other.level) != (fact.index, fact.level) {
                let words = format!(
                    "it is of level {} of index {}, and page {next} behind it of level {} of index {}",
                    fact.level, fact.index, other.level, other.index
                );
                faults.entry(page).or_insert(words);
            } else if fact.last.is_above(&other.first) {
                let words = format!("its last key is larger than the first one of page {next}");
                faults.entry(page).or_insert(words);
            }
        }
        if !self.depth.has_records {
            return;
        }
        gathered.found.children.sort_unstable_by_key(|child| (child.parent, child.rank));
        let parents = compare_children(gathered, faults);
        self.compare_roots(gathered, &parents, faults);
    }

    /// True if there should be more pages.
    fn is_cut(&self, gathered: &Gathered) -> bool {
        let first = gathered.found.kept.iter().find(|(number, _)| *number == 0);
        let size = first.map_or(u32::MAX, |(_, page)| read_u32(page, FSP_SIZE));
        usize::try_from(size).map_or(true, |size| size > gathered.facts.len())
    }

    /// Each index has its root, and each of its other pages a page above it.
    fn compare_roots(&self, gathered: &Gathered, parents: &HashMap<u32, u32>, faults: &mut Faults) {
        let is_whole = gathered.is_whole() && faults.is_empty();
        let roots: HashMap<u64, u32> =
            self.indexes.iter().map(|(number, index)| (*number, index.root)).collect();
        for (page, fact) in gathered.pages().filter(|(_, fact)| fact.is_of_index()) {
            let Some(root) = roots.get(&fact.index) else { continue };
            if !parents.contains_key(&page) && page != *root && is_whole {
                let words = format!(
                    "it is of level {} of index {}, and no page above leads to it",
                    fact.level, fact.index
                );
                faults.entry(page).or_insert(words);
            }
        }
        for (number, page) in &gathered.found.instant {
            let root = roots.get(number).map(|root| gathered.fact(*root));
            let is_known = root.is_some_and(|root| root.what != What::Unknown);
            if is_known && root.is_some_and(|root| root.what != What::Type(TYPE_INSTANT)) {
                let words = format!(
                    "a record has instant columns, and by the root of index {number} none has"
                );
                faults.entry(*page).or_insert(words);
            }
        }
    }

    /// Entries of the secondary indexes against the rows.
    pub(super) fn compare_totals(&self, gathered: &Gathered) -> Vec<String> {
        let is_buffered = || {
            let kept = gathered.found.kept.iter();
            kept.filter(|(_, page)| read_u16(page, PAGE_TYPE) == TYPE_BITMAP)
                .any(|(_, page)| self.has_buffered(page))
        };
        if is_buffered() {
            return Vec::new();
        }
        let mut details = Vec::new();
        for (number, rows) in &gathered.found.rows {
            let Some(index) = self.indexes.get(number) else { continue };
            let root = gathered.fact(index.root);
            // Not of this file, or not made to its end.
            if !root.is_of_index() || root.index != *number {
                continue;
            }
            let entries = gathered.found.entries.get(number).copied().unwrap_or_default();
            if entries.rows != rows.rows {
                details.push(format!(
                    "index {} has {} entries, and the table {} rows",
                    index.name, entries.rows, rows.rows
                ));
            } else if entries.sum != rows.sum && !entries.is_open && !rows.is_open {
                details.push(format!(
                    "the entries of index {} have other values than the rows of the table",
                    index.name
                ));
            }
        }
        details.sort();
        details
    }

    /// True if changes of an index are still in the change buffer: four bits a page, the third says so.
    fn has_buffered(&self, page: &[u8]) -> bool {
        const BITMAP: usize = 94;
        const BUFFERED: u8 = 0x44;
        let bytes = self.layout.page_size / 2;
        let bits = page.get(BITMAP..).unwrap_or_default().iter().take(bytes);
        bits.fold(0, |all, byte| all | byte) & BUFFERED != 0
    }
}

/// The records of upper levels against the pages below. Which page is above each.
fn compare_children(gathered: &Gathered, faults: &mut Faults) -> HashMap<u32, u32> {
    let mut parents = HashMap::new();
    let children = &gathered.found.children;
    let following = children.iter().skip(1).map(Some).chain([None]);
    for (child, next) in children.iter().zip(following) {
        let parent = gathered.fact(child.parent);
        let below = gathered.fact(child.page);
        let next = next.filter(|next| next.parent == child.parent);
        if below.what == What::Unknown {
            parents.insert(child.page, child.parent);
            continue;
        }
        let is_below = below.is_of_index()
            && below.index == parent.index
            && below.level.checked_add(1) == Some(parent.level);
        let words = if !is_below {
            format!(
                "its record {} leads to page {}, which is none below it",
                child.rank, child.page
            )
        } else if let Some(other) = parents.get(&child.page) {
            format!("it leads to page {}, as page {other} does", child.page)
        } else if next.is_some_and(|next| below.next != Some(next.page)) {
            format!("behind page {} it has another than that page", child.page)
        } else if child.key.is_some_and(|key| key.is_above(&below.first)) {
            format!("its key for page {} is larger than the first one there", child.page)
        } else if next.and_then(|next| next.key).is_some_and(|key| below.last.is_above(&key)) {
            format!("page {} has larger keys than the page behind it", child.page)
        } else {
            parents.insert(child.page, child.parent);
            continue;
        };
        faults.entry(child.parent).or_insert(words);
        parents.insert(child.page, child.parent);
    }
    parents
}
