//! The index behind the chunks, which says where each of them begins: a second witness of them.

use std::io;

use super::search::{CHUNK_BYTES_MAX, may_follow};
use super::{Expanded, FaultKind, HEADER_BYTES, INDEX, Place, sum_on};
use crate::stretch::Stretches;

const INDEX_HEAD_BYTES: usize = 16;
/// Its head and, at the end, its head once more.
const INDEX_ENDS_BYTES: u64 = 32;
const INDEX_ENTRY_BYTES: usize = 16;
/// Behind an index's entries, more than this is no padding.
const INDEX_REST_MAX: u64 = 1 << 16;

impl<S: Stretches> Expanded<S> {
    /// Reads an index, and holds it against the chunks.
    pub(super) fn index(&mut self) -> io::Result<()> {
        let head = self.window.see(HEADER_BYTES + INDEX_HEAD_BYTES)?;
        let Some(head) = index_head(head) else { return self.unknown() };
        let [count, length, stored] = head.numbers();
        let entries_bytes = u64::from(count).saturating_mul(INDEX_ENTRY_BYTES as u64);
        let used = entries_bytes.saturating_add(INDEX_ENDS_BYTES);
        let rest = u64::from(length).checked_sub(used).filter(|rest| *rest <= INDEX_REST_MAX);
        let Some(rest) = rest else { return self.unknown() };
        let begin = self.window.offset();
        self.tally.indexes = self.tally.indexes.saturating_add(1);
        self.window.pass(HEADER_BYTES + INDEX_HEAD_BYTES);
        let mut entries = Entries::default();
        let mut computed = 0;
        for _ in 0..count {
            let seen = self.window.see(INDEX_ENTRY_BYTES)?;
            let Some(entry) = seen.first_chunk::<INDEX_ENTRY_BYTES>().copied() else {
                self.fault(0, FaultKind::Truncated);
                self.has_ended = true;
                return Ok(());
            };
            computed = sum_on(computed, &entry);
            let (stream, file) = entry.split_at(8);
            let number = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
            self.compare(&mut entries, Place { stream: number(stream), file: number(file) });
            self.window.pass(INDEX_ENTRY_BYTES);
        }
        self.tally.index_entries = self.tally.index_entries.saturating_add(u64::from(count));
        self.tally.index_entries_compared =
            self.tally.index_entries_compared.saturating_add(entries.compared);
        if computed != stored {
            self.fault_at(begin, 0, FaultKind::IndexSum { stored, computed });
        } else if entries.wrong > 0 {
            self.fault_at(begin, 0, FaultKind::IndexEntries(entries.wrong));
        }
        let rest = usize::try_from(rest).unwrap_or_default().saturating_add(INDEX_HEAD_BYTES);
        let mut search = self.search();
        let seen = self.window.see(rest.saturating_add(CHUNK_BYTES_MAX))?;
        let (end, next) = seen.split_at_checked(rest).unwrap_or((seen, &[]));
        let (mut count, mut kind) = (end.len(), None);
        if count < rest || !end.ends_with(&head.0) {
            kind = Some(FaultKind::IndexEnd);
            // Its length may be wrong; what follows is another witness.
            if count < rest || !may_follow(next) {
                match search.first(seen, 0) {
                    Some(found) => count = found,
                    None if count < rest => kind = Some(FaultKind::Truncated),
                    None => {}
                }
            }
        }
        self.searched = self.searched.saturating_add(search.used);
        if let Some(kind) = kind {
            self.fault(0, kind);
        }
        self.window.pass(count);
        Ok(())
    }

    /// Holds an entry of an index against the chunks that were seen.
    fn compare(&self, entries: &mut Entries, entry: Place) {
        if !self.is_exact || entry.file < self.places_begin {
            return;
        }
        entries.compared = entries.compared.saturating_add(1);
        let place = self
            .places
            .binary_search_by_key(&entry.file, |place| place.file)
            .ok()
            .and_then(|index| self.places.get(index));
        let base = place.and_then(|place| place.stream.checked_sub(entry.stream));
        if base.is_none() || *entries.base.get_or_insert(base) != base {
            entries.wrong = entries.wrong.saturating_add(1);
        }
    }
}

/// What the entries of an index are worth.
#[derive(Debug, Default)]
struct Entries {
    /// The stream's bytes before what the first entry counts from.
    base: Option<Option<u64>>,
    compared: u64,
    wrong: u64,
}

/// The part of an index's header that is repeated at its end.
pub(super) struct IndexHead([u8; INDEX_HEAD_BYTES]);

impl IndexHead {
    /// Count, length and sum.
    pub(super) fn numbers(&self) -> [u32; 3] {
        let [_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l] = self.0;
        [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes)
    }
}

pub(super) fn index_head(bytes: &[u8]) -> Option<IndexHead> {
    let head = bytes.get(HEADER_BYTES..)?.first_chunk::<INDEX_HEAD_BYTES>()?;
    (bytes.starts_with(&[INDEX]) && head.starts_with(&[1, 0, 1, 0])).then_some(IndexHead(*head))
}
