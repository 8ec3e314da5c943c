//! Pages of one level beside each other, and upper levels against the pages below.
//!
//! Each page of an index but its root is reached from exactly one record above it. The page that a
//! record leads to is one level below, or the data of a clustered index, whose upper levels begin with
//! level 0 or 1. The pages that the records of a page lead to are beside each other in that order.

use std::collections::{BTreeMap, BTreeSet};

use super::{Destination, Fact, Faults, Gathered, Known, Structure, add};
use crate::page::header::kinds;
use crate::page::rows::{Pointer, Unit};

impl Structure {
    /// Pages beside each other.
    pub(super) fn compare_links(&self, gathered: &Gathered, known: &Known, faults: &mut Faults) {
        for (page, fact) in gathered.pages_in_use() {
            if !matches!(fact.kind, kinds::DATA | kinds::INDEX | kinds::IAM) {
                continue;
            }
            for (to, side) in [(fact.before(), "before"), (fact.next(), "behind")] {
                if to.is_none() {
                    continue;
                }
                let other = match self.destination(gathered, known, to) {
                    Destination::Open => continue,
                    Destination::Wrong(what) => {
                        add(faults, page, || {
                            format!("the page {side} it, {}, is {what}", name(to))
                        });
                        continue;
                    }
                    Destination::Page(other) => other,
                };
                let back = if side == "before" { other.next() } else { other.before() };
                let own = Pointer { page, file: self.scope.number };
                let wrong = if other.kind != fact.kind {
                    format!("of type {}, and this of type {}", other.kind, fact.kind)
                } else if other.unit != fact.unit {
                    format!("of {}, and this of {}", other.unit, fact.unit)
                } else if other.level != fact.level {
                    format!("of level {}, and this of level {}", other.level, fact.level)
                } else if back != own {
                    format!("beside {}", name(back))
                } else {
                    continue;
                };
                add(faults, page, || format!("the page {side} it, {}, is {wrong}", name(to)));
            }
        }
    }

    /// Upper levels against the pages below.
    pub(super) fn compare_children(&self, gathered: &Gathered, known: &Known, faults: &mut Faults) {
        let with_data: BTreeSet<Unit> = gathered
            .pages_in_use()
            .filter(|(_, fact)| fact.kind == kinds::DATA)
            .map(|(_, fact)| fact.unit)
            .collect();
        let mut reached: BTreeMap<u32, u32> = BTreeMap::new();
        let mut upper: BTreeSet<Unit> = BTreeSet::new();
        let mut left: Option<(u32, Pointer)> = None;
        let mut children: Vec<_> = gathered.children.iter().collect();
        children.sort_unstable_by_key(|child| (child.parent, child.rank));
        for child in children {
            let before = left.take();
            let Some(parent) = gathered.in_use(child.parent) else { continue };
            if parent.level == 0 && !with_data.contains(&parent.unit) {
                continue;
            }
            upper.insert(parent.unit);
            let below = match self.destination(gathered, known, child.page) {
                Destination::Open => continue,
                Destination::Wrong(what) => {
                    add(faults, child.parent, || {
                        format!("record {} leads to {}, {what}", child.rank, name(child.page))
                    });
                    continue;
                }
                Destination::Page(below) => below,
            };
            left = Some((child.parent, child.page));
            if let Some(other) = reached.insert(child.page.page, child.parent) {
                add(faults, child.parent, || {
                    format!(
                        "record {} leads to page {}, to which a record of page {other} leads, too",
                        child.rank, child.page.page
                    )
                });
            }
            if !is_a_level_below(&below, &parent) {
                add(faults, child.parent, || {
                    format!(
                        "level {} of {}, and record {} leads to page {}, of type {}, level {} of {}",
                        parent.level,
                        parent.unit,
                        child.rank,
                        child.page.page,
                        below.kind,
                        below.level,
                        below.unit
                    )
                });
                continue;
            }
            // Two records beside each other, of one page.
            if let Some((_, before)) = before.filter(|(parent, _)| *parent == child.parent)
                && below.before() != before
            {
                add(faults, child.parent, || {
                    format!(
                        "its records lead to pages {} and {} in turn, and those are not beside each other",
                        before.page, child.page.page
                    )
                });
            }
        }
        if known.is_alone {
            find_unreached(gathered, known, &upper, &reached, faults);
        }
    }
}

fn is_a_level_below(below: &Fact, parent: &Fact) -> bool {
    let is_level = match below.kind {
        kinds::DATA => parent.level <= 1 && below.level == 0,
        _ => below.kind == kinds::INDEX && below.level.checked_add(1) == Some(parent.level),
    };
    below.unit == parent.unit && is_level
}

/// Pages of trees with upper levels, to which none of those leads.
fn find_unreached(
    gathered: &Gathered,
    known: &Known,
    upper: &BTreeSet<Unit>,
    reached: &BTreeMap<u32, u32>,
    faults: &mut Faults,
) {
    for (page, fact) in gathered.pages_in_use() {
        let is_of_tree =
            matches!(fact.kind, kinds::DATA | kinds::INDEX) && upper.contains(&fact.unit);
        let root = known.units.get(&fact.unit).and_then(|(_, row)| row.root);
        let is_below = root.is_some_and(|root| root.page != page);
        if is_of_tree && is_below && !reached.contains_key(&page) {
            add(faults, page, || {
                format!("no record of the upper levels of {} leads to it", fact.unit)
            });
        }
    }
}

fn name(at: Pointer) -> String {
    match at.is_none() {
        true => "no page".to_owned(),
        false => format!("page {}:{}", at.file, at.page),
    }
}
