//! What a walk found: one fault a page, and what could not be reached on account of it.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashSet;
use std::sync::Arc;

use pagewarden_core::verdict::Kind;

/// Faults that are reported one by one.
const FAULTS_MAX: usize = 10_000;

/// What is wrong with one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The page.
    pub page: u32,
    /// The page that leads to it, where that may be the one that is wrong.
    pub parent: Option<u32>,
    /// What it is.
    pub kind: Kind,
    /// The evidence.
    pub detail: String,
    /// The table or index that it belongs to.
    pub object: Option<Arc<str>>,
}

/// All that a walk found.
#[derive(Debug, Default)]
pub struct Faults {
    /// One a page, in the order in which they were found.
    pub found: Vec<Fault>,
    pages: HashSet<u32>,
    /// Faults beyond those that are kept.
    pub more: u64,
    /// The first page behind which others could not be reached.
    pub gap: Option<u32>,
}

impl Faults {
    /// Adds a fault, unless there is one of that page already.
    pub fn add(&mut self, fault: Fault) {
        if self.found.len() >= FAULTS_MAX {
            self.more = self.more.saturating_add(1);
        } else if self.pages.insert(fault.page) {
            self.found.push(fault);
        }
    }

    /// Says that what `page` leads to was not reached.
    pub fn gap_at(&mut self, page: u32) {
        self.gap.get_or_insert(page);
    }
}
