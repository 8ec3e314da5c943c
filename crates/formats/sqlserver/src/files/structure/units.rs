//! Allocation units, as their table says, against their pages.
//!
//! The first IAM page of each is there, of the unit, and the first of its chain; IAM pages of one chain count from 0 on;
//! the root of an index, or the page of a heap, is there and has no pages beside it. Each page is of a unit that
//! is listed, and each first IAM page is the one that is listed. The last two only where all units are in this file.

use super::{Destination, Faults, Gathered, Known, Structure, add};
use crate::page::header::kinds;
use crate::page::rows::has_rows;

impl Structure {
    /// All of it.
    pub(super) fn compare_units(&self, gathered: &Gathered, known: &Known, faults: &mut Faults) {
        self.compare_rows_of_units(gathered, known, faults);
        self.compare_chains(gathered, faults);
        if known.is_alone {
            compare_pages(gathered, known, faults);
        }
    }

    /// The pages that the table names.
    fn compare_rows_of_units(&self, gathered: &Gathered, known: &Known, faults: &mut Faults) {
        for (page, row) in known.units.values() {
            if gathered.in_use(*page).is_none() {
                continue;
            }
            let unit = row.unit;
            for (to, is_root) in [(row.root, true), (row.iam, false)] {
                let Some(to) = to else { continue };
                let what = if is_root { "root" } else { "first IAM page" };
                let there = match self.destination(gathered, known, to) {
                    Destination::Open => continue,
                    Destination::Wrong(words) => {
                        add(faults, *page, || {
                            format!("the {what} of {unit}, {}:{}, is {words}", to.file, to.page)
                        });
                        continue;
                    }
                    Destination::Page(there) => there,
                };
                let is_of_kind = match is_root {
                    true => matches!(there.kind, kinds::DATA | kinds::INDEX),
                    false => there.kind == kinds::IAM,
                };
                let sequence = gathered.iams.get(&to.page).map_or(0, |iam| iam.sequence);
                let wrong = if !is_of_kind {
                    format!("of type {}", there.kind)
                } else if there.unit != unit {
                    format!("of {}", there.unit)
                } else if is_root && !there.next().is_none() || !there.before().is_none() {
                    "beside another page".to_owned()
                } else if !is_root && sequence != 0 {
                    format!("number {sequence} of its chain")
                } else {
                    continue;
                };
                add(faults, *page, || {
                    format!("the {what} of {unit}, page {}, is {wrong}", to.page)
                });
            }
        }
    }

    /// IAM pages behind each other.
    fn compare_chains(&self, gathered: &Gathered, faults: &mut Faults) {
        for (page, iam) in &gathered.iams {
            let Some(fact) = gathered.in_use(*page) else { continue };
            if iam.sequence == 0 && !fact.before().is_none() {
                add(faults, *page, || "the first of its chain, and a page is before it".to_owned());
            }
            if let Some(next) = gathered.iams.get(&fact.next)
                && fact.next().file == self.scope.number
                && gathered.in_use(fact.next).is_some()
                && iam.sequence.checked_add(1) != Some(next.sequence)
            {
                add(faults, *page, || {
                    format!(
                        "number {} of its chain, and page {} behind it is number {}",
                        iam.sequence, fact.next, next.sequence
                    )
                });
            }
        }
    }
}

/// The units of all pages.
fn compare_pages(gathered: &Gathered, known: &Known, faults: &mut Faults) {
    for (page, fact) in gathered.pages_in_use() {
        let is_iam = fact.kind == kinds::IAM;
        if !is_iam && !has_rows(fact.kind) {
            continue;
        }
        let Some((_, row)) = known.units.get(&fact.unit) else {
            add(faults, page, || format!("of {}, which is not in the table of units", fact.unit));
            continue;
        };
        let is_first = is_iam && fact.before().is_none();
        if is_first && row.iam.is_none_or(|iam| iam.page != page) {
            add(faults, page, || {
                format!("the table of units names another first IAM page of {}", fact.unit)
            });
        }
    }
}
