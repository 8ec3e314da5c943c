//! What is kept of many rows: how many, and the sum of their hashes.
//!
//! A row's hash is 128 bits of BLAKE3 over the version of the form and the row. The
//! two halves are summed separately, modulo 2^64: the sum of a multiset, which no
//! order changes, and in which rows that stand twice count twice, where a sum by
//! exclusive or would cancel them. Two tables that differ by accident have equal sums
//! once in 2^128; whoever chooses the rows of both can make them equal.

use super::{FORM_VERSION, hex_text};

/// A row's hash, or a key's.
pub type Hash = u128;

/// Hashes the fields of a row or of a key.
pub fn hash(fields: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[FORM_VERSION]);
    hasher.update(fields);
    let mut bytes = [0; 16];
    for (byte, of_hash) in bytes.iter_mut().zip(hasher.finalize().as_bytes()) {
        *byte = *of_hash;
    }
    u128::from_le_bytes(bytes)
}

/// What is known of a set of rows, equal if and only if the rows are (see above).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// The number of rows.
    pub rows: u64,
    low: u64,
    high: u64,
}

impl Record {
    /// Counts a row in.
    pub fn add(&mut self, hash: Hash) {
        let bytes = hash.to_le_bytes();
        let mut halves = bytes.as_chunks::<8>().0.iter().map(|half| u64::from_le_bytes(*half));
        self.rows += 1;
        self.low = self.low.wrapping_add(halves.next().unwrap_or(0));
        self.high = self.high.wrapping_add(halves.next().unwrap_or(0));
    }

    /// Counts the rows of another set in.
    pub fn join(&mut self, other: &Self) {
        self.rows += other.rows;
        self.low = self.low.wrapping_add(other.low);
        self.high = self.high.wrapping_add(other.high);
    }

    /// The sums, in hexadecimal.
    pub fn text(&self) -> String {
        hex_text(&[self.high.to_be_bytes(), self.low.to_be_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rows: &[&[u8]]) -> Record {
        let mut record = Record::default();
        for row in rows {
            record.add(hash(row));
        }
        record
    }

    #[test]
    fn order_does_not_matter_and_doubles_do() {
        assert_eq!(record(&[b"a", b"b"]), record(&[b"b", b"a"]));
        assert_ne!(record(&[b"a", b"a"]), record(&[]));
        assert_ne!(record(&[b"a", b"a"]).text(), record(&[b"b", b"b"]).text());
    }

    /// What a sum of CRCs by exclusive or cannot see: values swapped between rows.
    #[test]
    fn swapped_values_are_seen() {
        let before = record(&[b"1:aa", b"2:bb", b"3:aa", b"4:bb"]);
        let after = record(&[b"1:bb", b"2:aa", b"3:bb", b"4:aa"]);
        assert_eq!(before.rows, after.rows);
        assert_ne!(before, after);
    }

    #[test]
    fn parts_join_to_the_whole() {
        let mut joined = record(&[b"a"]);
        joined.join(&record(&[b"b", b"c"]));
        assert_eq!(joined, record(&[b"a", b"b", b"c"]));
    }

    /// A change of the form or of the hash needs a new version.
    #[test]
    fn sums_are_those_of_version_1() {
        assert_eq!(FORM_VERSION, 1);
        assert_eq!(record(&[b"\x02\0\0\0n1"]).text(), KNOWN);
    }

    const KNOWN: &str = "6ba789a832a00e53d0c8fc83a2cf83ba";
}
