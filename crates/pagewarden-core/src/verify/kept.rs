//! The results of a run, kept in memory.

use std::io;

use crate::verdict::{Finding, Note, Unread};
use crate::verify::Sink;

/// Findings, unread stretches and notes that are kept, each. A database of which every
/// page is damaged must not fill the memory; the counts know them all.
pub const KEPT_MAX: usize = 100_000;

/// Keeps what is found, the first [`KEPT_MAX`] of each kind.
#[derive(Debug, Default)]
pub struct Kept {
    /// What is wrong, in the order of the files.
    pub findings: Vec<Finding>,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// What is worth knowing besides.
    pub notes: Vec<Note>,
}

fn keep<T: Clone>(all: &mut Vec<T>, one: &T) {
    if all.len() < KEPT_MAX {
        all.push(one.clone());
    }
}

impl Sink for Kept {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        keep(&mut self.findings, finding);
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        keep(&mut self.unread, unread);
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        keep(&mut self.notes, note);
        Ok(())
    }
}
