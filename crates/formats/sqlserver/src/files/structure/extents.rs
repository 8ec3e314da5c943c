//! IAM pages against the maps of extents, the free space, and the pages themselves.
//!
//! - An extent is of one unit, or mixed, or free. So is what the maps say: one that an IAM page has is neither
//!   free (GAM) nor mixed with a free page (SGAM), and none is both of these.
//! - A single page is in one IAM page, allocated, marked as mixed, and not in the extent of a unit.
//! - An allocated page is in no free extent, and in the free space an IAM page is marked as one.
//! - A page with rows is in an extent, or is a single page, of its own unit. An extent that is neither free nor
//!   of a unit, nor mixed with a free page, is mixed and full. Both only where all units are in this file.
//!
//! The first extent of each interval holds the maps themselves, and pages of free space begin extents
//! anywhere: those are of no unit. An SGAM may have the bit of an extent that has no free page: 83 of 74 files have.

use std::collections::BTreeMap;

use super::{Destination, Faults, Gathered, Known, Structure, add};
use crate::page::diff_map::{EXTENT_PAGES, INTERVAL_PAGES};
use crate::page::header::kinds;
use crate::page::maps::{Bits, extent_of};
use crate::page::rows::has_rows;
use crate::page::system::{PFS_PAGES, pfs_page_of};

/// In the free space: the page is an IAM page, it is in a mixed extent.
const IS_IAM: u8 = 0x10;
const IS_MIXED: u8 = 0x20;

/// Which IAM page has what.
#[derive(Default)]
struct Owners {
    /// By extent.
    extents: BTreeMap<u64, u32>,
    /// By page.
    singles: BTreeMap<u32, u32>,
}

impl Owners {
    fn of(&self, page: u32) -> Option<u32> {
        let single = self.singles.get(&page);
        single.or_else(|| self.extents.get(&extent_of(u64::from(page)))).copied()
    }
}

impl Structure {
    /// All of it.
    pub(super) fn compare_extents(&self, gathered: &Gathered, known: &Known, faults: &mut Faults) {
        let mut owners = Owners::default();
        for page in gathered.iams.keys().filter(|page| gathered.in_use(**page).is_some()) {
            self.compare_iam(*page, gathered, &mut owners, faults);
        }
        for page in gathered.iams.keys().filter(|page| gathered.in_use(**page).is_some()) {
            self.compare_singles(*page, gathered, known, &mut owners, faults);
        }
        for (page, fact) in gathered.pages_in_use() {
            self.compare_page(page, fact.kind, gathered, known, &owners, faults);
        }
        self.compare_maps(gathered, known, &owners, faults);
    }

    fn compare_iam(
        &self,
        page: u32,
        gathered: &Gathered,
        owners: &mut Owners,
        faults: &mut Faults,
    ) {
        let Some(iam) = gathered.iams.get(&page) else { return };
        if iam.begin.file != self.scope.number {
            return;
        }
        let end = self.scope.pages.div_ceil(EXTENT_PAGES);
        for extent in iam.extents.set() {
            if extent >= end {
                if !self.scope.is_short {
                    add(faults, page, || {
                        format!("it has extent {extent}, behind the end of the file")
                    });
                }
                break;
            }
            if extent.saturating_mul(EXTENT_PAGES).is_multiple_of(INTERVAL_PAGES) {
                add(faults, page, || format!("it has extent {extent}, which holds the maps"));
            }
            if let Some(other) = owners.extents.insert(extent, page) {
                add(faults, page, || {
                    format!("it has extent {extent}, and so has the IAM page {other}")
                });
            }
            for (maps, what, map) in
                [(&gathered.free, "is free", 2), (&gathered.mixed, "is mixed with a free page", 3)]
            {
                if map_of(maps, extent).is_some_and(|bits| bits.has(extent)) {
                    add(faults, map_page(extent, map), || {
                        format!(
                            "it says that extent {extent} {what}, and the IAM page {page} has it"
                        )
                    });
                }
            }
        }
    }

    fn compare_singles(
        &self,
        page: u32,
        gathered: &Gathered,
        known: &Known,
        owners: &mut Owners,
        faults: &mut Faults,
    ) {
        let (Some(iam), Some(own)) = (gathered.iams.get(&page), gathered.in_use(page)) else {
            return;
        };
        for single in iam.singles.iter().filter(|single| !single.is_none()) {
            let (number, file) = (single.page, single.file);
            let below = match self.destination(gathered, known, *single) {
                Destination::Open => None,
                Destination::Wrong(what) => {
                    add(faults, page, || format!("its single page {file}:{number} is {what}"));
                    continue;
                }
                Destination::Page(below) => Some(below),
            };
            if file != self.scope.number {
                continue;
            }
            if let Some(other) = owners.singles.insert(number, page) {
                add(faults, page, || {
                    format!("its single page {number} is one of the IAM page {other}, too")
                });
            }
            if let Some(other) = owners.extents.get(&extent_of(u64::from(number))) {
                add(faults, page, || {
                    format!(
                        "its single page {number} is in an extent that the IAM page {other} has"
                    )
                });
            }
            let Some(below) = below else { continue };
            if below.unit != own.unit || !has_rows(below.kind) {
                add(faults, page, || {
                    format!(
                        "its single page {number} is of type {} and of {}, and this of {}",
                        below.kind, below.unit, own.unit
                    )
                });
            } else if below.free_space & IS_MIXED == 0 {
                add(faults, pfs_page(number), || {
                    format!(
                        "it does not mark page {number} as mixed, a single page of the IAM page {page}"
                    )
                });
            }
        }
    }

    fn compare_page(
        &self,
        page: u32,
        kind: u8,
        gathered: &Gathered,
        known: &Known,
        owners: &Owners,
        faults: &mut Faults,
    ) {
        let extent = extent_of(u64::from(page));
        let free_space = gathered.fact(page).free_space;
        let is_map =
            matches!(kind, kinds::GAM | kinds::SGAM | kinds::PFS | kinds::DIFF_MAP | kinds::ML_MAP);
        if !is_map && map_of(&gathered.free, extent).is_some_and(|bits| bits.has(extent)) {
            add(faults, map_page(extent, 2), || {
                format!("it says that extent {extent} is free, and page {page} in it is allocated")
            });
        }
        if (kind == kinds::IAM) != (free_space & IS_IAM != 0) {
            let is = if kind == kinds::IAM { "is not" } else { "is" };
            add(faults, pfs_page(page), || {
                format!("it says that page {page} {is} an IAM page, and it is of type {kind}")
            });
        }
        if !has_rows(kind) || !known.is_alone {
            return;
        }
        let unit = gathered.fact(page).unit;
        let Some(owner) = owners.of(page) else {
            return add(faults, page, || {
                format!("no IAM page has it, neither of {unit} nor any other")
            });
        };
        if let Some(of) = gathered.in_use(owner)
            && of.unit != unit
        {
            add(faults, page, || {
                format!("the IAM page {owner} of {} has it, and it is of {unit}", of.unit)
            });
        }
        if free_space & IS_MIXED != 0 && !owners.singles.contains_key(&page) {
            add(faults, pfs_page(page), || {
                format!("it marks page {page} as mixed, and the IAM page {owner} has its extent")
            });
        }
    }

    fn compare_maps(
        &self,
        gathered: &Gathered,
        known: &Known,
        owners: &Owners,
        faults: &mut Faults,
    ) {
        let end = self.scope.pages / EXTENT_PAGES;
        for (interval, free) in &gathered.free {
            let first = extent_of(*interval);
            let Some(mixed) = gathered.mixed.get(interval) else { continue };
            for extent in first..end.min(first.saturating_add(INTERVAL_PAGES / EXTENT_PAGES)) {
                let page = extent.saturating_mul(EXTENT_PAGES);
                match (free.has(extent), mixed.has(extent)) {
                    (true, true) => add(faults, map_page(extent, 3), || {
                        format!(
                            "it says that extent {extent} is mixed with a free page, and page {} says that \
                             it is free",
                            map_page(extent, 2)
                        )
                    }),
                    (false, false)
                        if known.is_alone
                            && extent != first
                            && !has_free_space(page)
                            && !owners.extents.contains_key(&extent) =>
                    {
                        let pages = page..page.saturating_add(EXTENT_PAGES);
                        let is_full = pages
                            .filter_map(|page| u32::try_from(page).ok())
                            .all(|page| gathered.is_allocated(page) != Some(false));
                        if !is_full {
                            add(faults, map_page(extent, 2), || {
                                format!(
                                    "it says that extent {extent} is not free, and no IAM page has it; it is \
                                     not mixed, and not all of its pages are allocated"
                                )
                            });
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// True if an extent that begins with this page has a page of free space.
fn has_free_space(page: u64) -> bool {
    let end = page.saturating_add(EXTENT_PAGES);
    page.next_multiple_of(PFS_PAGES) < end
}

fn map_of(maps: &BTreeMap<u64, Bits>, extent: u64) -> Option<&Bits> {
    let page = extent.saturating_mul(EXTENT_PAGES);
    maps.get(&page.saturating_sub(page % INTERVAL_PAGES))
}

/// The page that has a map of this extent: see [`super::map_page`].
fn map_page(extent: u64, number: u64) -> u32 {
    let page = extent.saturating_mul(EXTENT_PAGES);
    let page = super::map_page(page.saturating_sub(page % INTERVAL_PAGES), number);
    u32::try_from(page).unwrap_or(u32::MAX)
}

fn pfs_page(page: u32) -> u32 {
    u32::try_from(pfs_page_of(u64::from(page))).unwrap_or(u32::MAX)
}
