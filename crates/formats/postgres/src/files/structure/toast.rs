//! The chunks of values that rows keep in a TOAST table: every value that a row leads to is
//! there, from chunk 0 on without a gap, with all its bytes.
//!
//! ```text
//! row of a TOAST table   chunk_id oid, chunk_seq int4, chunk_data bytea
//! ```
//!
//! A row that counts has been committed together with its chunks, or after them, and they are
//! deleted with it. Up to [`VALUES_MAX`] values of a table are asked for. Source:
//! `src/backend/access/common/toast_internals.c`.

use std::collections::BTreeMap;

use crate::files::catalogue::columns::Column;
use crate::files::catalogue::tuple::Tuple;
use crate::files::control::u32_at;
use crate::files::structure::values::{External, Value, Values};

/// Values of one table: some 256 MiB.
const VALUES_MAX: usize = 4 << 20;
/// Values that are reported.
const FAULTS_MAX: usize = 1000;

/// Values of one table that lie elsewhere.
#[derive(Debug, Default)]
pub(super) struct LongValues {
    wanted: BTreeMap<u32, Wanted>,
    /// There were more.
    pub(super) is_full: bool,
}

/// A value that a row leads to, and what was seen of it.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The block of the row.
    block: u32,
    bytes: u64,
    chunks: u32,
    seen_bytes: u64,
    /// The sum of the numbers of chunks, and the greatest.
    numbers: u64,
    last: u32,
}

impl LongValues {
    /// A row on this block leads to a value.
    pub(super) fn want(&mut self, block: u32, external: External) {
        if self.wanted.len() >= VALUES_MAX {
            self.is_full = true;
            return;
        }
        let bytes = u64::from(external.stored_bytes);
        let wanted = Wanted { block, bytes, chunks: 0, seen_bytes: 0, numbers: 0, last: 0 };
        self.wanted.insert(external.value, wanted);
    }

    /// With those of rows that come later.
    pub(super) fn join(&mut self, mut later: Self) {
        self.is_full |= later.is_full;
        while self.wanted.len().saturating_add(later.wanted.len()) > VALUES_MAX {
            self.is_full = true;
            later.wanted.pop_last();
        }
        self.wanted.append(&mut later.wanted);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// A row of the TOAST table that counts; `columns` are those of the TOAST table.
    pub(super) fn chunk(&mut self, tuple: &Tuple<'_>, columns: &[Column]) {
        let [id, number, data] = columns else { return };
        let mut values = Values::new(tuple.data());
        let mut word = |column| match values.next(column) {
            Some(Value::Plain(bytes)) => u32_at(bytes, 0),
            _ => None,
        };
        let (Some(id), Some(number)) = (word(id), word(number)) else { return };
        let Some(wanted) = self.wanted.get_mut(&id) else { return };
        if let Some(Value::Plain(bytes)) = values.next(data) {
            wanted.chunks = wanted.chunks.saturating_add(1);
            wanted.seen_bytes = wanted.seen_bytes.saturating_add(bytes.len() as u64);
            wanted.numbers = wanted.numbers.wrapping_add(u64::from(number));
            wanted.last = wanted.last.max(number);
        }
    }

    /// What is wrong, by the block of the row, once all chunks were seen.
    pub(super) fn faults(&self) -> Vec<(u32, String)> {
        let faulty = self.wanted.iter().filter_map(|(value, wanted)| {
            let Wanted { block, bytes, chunks, seen_bytes, numbers, last } = *wanted;
            let count = u64::from(chunks);
            let in_order = u64::from(last).checked_add(1) == Some(count)
                && numbers == count.saturating_mul(count.saturating_sub(1)) / 2;
            let text = match chunks {
                0 => "no chunk is there".to_owned(),
                _ if !in_order => {
                    format!("{chunks} chunks are there, and the last is number {last}")
                }
                _ if seen_bytes != bytes => {
                    format!("its chunks have {seen_bytes} of {bytes} bytes")
                }
                _ => return None,
            };
            Some((block, format!("a row leads to the value {value} of its TOAST table: {text}")))
        });
        faulty.take(FAULTS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMN: Column = Column {
        relation: 1,
        type_oid: 26,
        collation: 0,
        bytes: 4,
        number: 1,
        align: b'i',
        has_late_value: false,
    };

    fn told(chunks: &[(u32, u32, usize)]) -> Vec<(u32, String)> {
        let columns = [COLUMN, COLUMN, Column { bytes: -1, ..COLUMN }];
        let mut values = LongValues::default();
        let external = External { raw_bytes: 30, stored_bytes: 30, value: 7, table: 2 };
        values.want(3, external);
        for (id, number, bytes) in chunks {
            let mut row = vec![0_u8; 24];
            row[18] = 3;
            row[22] = 24;
            row.extend(id.to_le_bytes());
            row.extend(number.to_le_bytes());
            row.push(u8::try_from(bytes * 2 + 3).unwrap());
            row.extend(vec![9; *bytes]);
            values.chunk(&Tuple::parse(&row).unwrap(), &columns);
        }
        values.faults()
    }

    #[test]
    fn chunks_that_are_missing_or_too_short_are_faults() {
        assert_eq!(told(&[(7, 1, 10), (8, 0, 5), (7, 0, 20)]), []);
        for (chunks, words) in [
            (vec![(8, 0, 30)], "no chunk is there"),
            (vec![(7, 1, 30)], "1 chunks are there, and the last is number 1"),
            (vec![(7, 0, 20), (7, 0, 10)], "2 chunks are there, and the last is number 0"),
            (vec![(7, 0, 20), (7, 1, 9)], "its chunks have 29 of 30 bytes"),
        ] {
            let found = told(&chunks);
            assert!(found[0].0 == 3 && found[0].1.ends_with(words), "{found:?}");
        }
    }
}
