//! What is kept of many rows: how many, and the sum of their hashes, or one hash of all of
//! them in the order in which they came.
//!
//! The latter is cheaper by far, for BLAKE3 hashes many kilobytes in the time of a few rows,
//! and if it is equal the rows are. If it is not, they may have come in another order.
//!
//! A row's hash is 128 bits of BLAKE3 over the version of the form and the row. The
//! two halves are summed separately, modulo 2^64: the sum of a multiset, which no
//! order changes, and in which rows that stand twice count twice, where a sum by
//! exclusive or would cancel them. Two tables that differ by accident have equal sums
//! once in 2^128; a user who chooses the rows of both can make them equal.

use super::{FORM_VERSION, hex_text};

/// Bytes of a [`Record`].
pub const RECORD_BYTES: usize = 24;

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

    /// As bytes.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let numbers = [self.rows, self.low, self.high];
        for (place, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }

    /// Of [such bytes](Self::to_bytes).
    pub fn of_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or(0);
        Self { rows: next(), low: next(), high: next() }
    }

    /// The sums, in hexadecimal.
    pub fn text(&self) -> String {
        hex_text(&[self.high.to_be_bytes(), self.low.to_be_bytes()].concat())
    }
}

/// Bytes that are hashed at once: enough for BLAKE3 to work on 16 of its chunks side by side.
const PIECE_BYTES: usize = 64 << 10;

/// A hash of rows in their order.
#[derive(Debug)]
pub struct Sequence {
    /// The number of rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    hasher: blake3::Hasher,
    waiting: Vec<u8>,
}

impl Sequence {
    /// That of no rows.
    pub fn new() -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[FORM_VERSION]);
        Self { rows: 0, bytes: 0, hasher, waiting: Vec::with_capacity(PIECE_BYTES) }
    }

    /// Appends a row. Its bytes must tell where it ends.
    pub fn add(&mut self, row: &[u8]) {
        self.rows += 1;
        self.bytes += row.len() as u64;
        if self.waiting.len() + row.len() > PIECE_BYTES {
            self.hasher.update(&self.waiting);
            self.waiting.clear();
        }
        if row.len() > PIECE_BYTES {
            self.hasher.update(row);
        } else {
            self.waiting.extend_from_slice(row);
        }
    }

    /// The hash, in hexadecimal.
    pub fn text(&mut self) -> String {
        self.hasher.update(&self.waiting);
        self.waiting.clear();
        self.hasher.finalize().to_hex().to_string()
    }
}

impl Default for Sequence {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_equal_if_their_rows_and_the_order_are() {
        let of = |rows: &[&[u8]]| {
            let mut sequence = Sequence::new();
            rows.iter().for_each(|row| sequence.add(row));
            (sequence.rows, sequence.bytes, sequence.text())
        };
        // Around the size of a piece, where rows no longer wait.
        let long = vec![7; PIECE_BYTES];
        let longer = vec![7; PIECE_BYTES + 1];
        assert_eq!(of(&[b"ab", &long, b"c"]), of(&[b"ab", &long, b"c"]));
        assert_ne!(of(&[b"ab", &long, b"c"]), of(&[&long, b"ab", b"c"]));
        assert_ne!(of(&[b"ab", &long, b"c"]), of(&[b"ab", &longer, b"c"]));
        assert_ne!(of(&[&longer, b"a"]), of(&[b"a", &longer]));
        let mut whole = blake3::Hasher::new();
        whole.update(&[FORM_VERSION]).update(b"ab").update(&longer).update(b"c");
        let hash = whole.finalize().to_hex().to_string();
        assert_eq!(of(&[b"ab", &longer, b"c"]), (3, PIECE_BYTES as u64 + 4, hash));
    }

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
