//! The rows of a table that count, and whether the entries of its indexes lead to each of
//! them, with its keys.
//!
//! Of a row that committed and was not deleted every complete index has one entry, under the
//! line pointer where its chain of updates in place begins. For each block there is a bit for
//! each line pointer, and for each index the sum of hashes of (line pointer, keys); entries
//! that lead to other line pointers are of rows that no longer count, and are left out.
//!
//! Sums alone tell whether all is well, so that entries are first only added up ([`LiveRows::quick`]).
//! Which rows are missing is asked when the sums differ.
//!
//! A key that is longer than [`HASHED_BYTES`] counts by its length alone: an index may keep it
//! compressed, the table plain, or the other way round. A row with a shorter key that is
//! compressed or elsewhere is asked for its entry, not for its keys. So are rows that do not hold a
//! column which was added with a default, but by the indexes on such columns alone.

use crate::files::structure::values::Value;
use crate::files::witness::Tid;

/// An index compresses no shorter key: a sixteenth of the smallest usual page, less headers.
pub(super) const HASHED_BYTES: usize = 400;
/// Bytes of bits and sums at a time; a table with more is taken in parts, and its indexes
/// are read again for each.
const BYTES_MAX: usize = 192 << 20;
/// The shortest row with its line pointer.
const ROW_BYTES_MIN: usize = 28;
const WORD: usize = 64;
/// In the place of the hash of keys that are not compared.
const NO_KEYS: u64 = 0;

/// The rows that count in a part of a table.
#[derive(Debug)]
pub(super) struct LiveRows {
    first_block: u32,
    blocks: usize,
    /// Words of bits a block.
    words: usize,
    live: Vec<u64>,
    /// Of `live`: those whose keys are compared, by indexes on columns of the table as it was made, and
    /// by indexes on a column that was added with a default.
    keyed: [Vec<u64>; 2],
    /// For each index, whether it is one of the latter.
    is_late: Vec<bool>,
    /// Line pointers that lead to nothing, or that a page does not have.
    unused: Vec<u64>,
    /// For each index a sum a block.
    sums: Vec<Vec<u64>>,
}

/// What the entries of one index say of a part of its table.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    rows: &'a LiveRows,
    /// The number of the index.
    index: usize,
    /// Rows without an entry yet; `None` if that is not asked.
    missing: Option<Vec<u64>>,
    sums: Vec<u64>,
    /// Entries that lead to nothing: how many, and to where the first.
    pub(super) lost: Option<(u64, Tid)>,
}

/// What came of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Rows without an entry: how many, and the first.
    pub(super) missing: Option<(u64, Tid)>,
    /// Blocks of whose rows entries have other keys: how many, and the first.
    pub(super) other_keys: Option<(u64, u32)>,
    /// Entries that lead to nothing: how many, and to where the first.
    pub(super) lost: Option<(u64, Tid)>,
}

impl Verdict {
    /// With that on another part of the table, which comes later.
    pub(super) fn join(&mut self, other: Self) {
        fn add<T>(all: &mut Option<(u64, T)>, more: Option<(u64, T)>) {
            if let Some((count, first)) = more {
                all.get_or_insert((0, first)).0 += count;
            }
        }
        add(&mut self.missing, other.missing);
        add(&mut self.other_keys, other.other_keys);
        add(&mut self.lost, other.lost);
    }
}

/// How many blocks of a table with this number of indexes are taken at a time.
pub(super) fn blocks_at_a_time(page_size: usize, indexes: usize) -> usize {
    let words = words_of(page_size).saturating_mul(5);
    let bytes = words.saturating_add(indexes).saturating_add(1).saturating_mul(8);
    (BYTES_MAX / bytes.max(1)).max(1)
}

fn words_of(page_size: usize) -> usize {
    (page_size / ROW_BYTES_MIN).saturating_add(1).div_ceil(WORD)
}

/// What is of indexes on columns of the table as it was made, or of those on late ones.
fn of<T>([made, late]: &[T; 2], is_late: bool) -> &T {
    if is_late { late } else { made }
}

impl LiveRows {
    /// With, for each index, whether it is on a column that was added with a default.
    pub(super) fn new(first_block: u32, blocks: usize, page_size: usize, is_late: &[bool]) -> Self {
        let words = words_of(page_size);
        let bits = vec![0; blocks.saturating_mul(words)];
        Self {
            first_block,
            blocks,
            words,
            live: bits.clone(),
            keyed: [bits.clone(), bits.clone()],
            is_late: is_late.to_vec(),
            unused: bits,
            sums: vec![vec![0; blocks]; is_late.len()],
        }
    }

    /// The word of a line pointer and its bit; `None` for one of another part.
    fn place(&self, tid: Tid) -> Option<(usize, u64)> {
        let block = usize::try_from(tid.block.checked_sub(self.first_block)?).ok()?;
        let word = usize::from(tid.number) / WORD;
        if block >= self.blocks || word >= self.words {
            return None;
        }
        let at = block.checked_mul(self.words)?.checked_add(word)?;
        Some((at, 1 << (tid.number % 64)))
    }

    /// A row that counts, known to indexes by this line pointer, with the hash of its keys for each
    /// index; `None` if they are not known.
    pub(super) fn add(&mut self, tid: Tid, hashes: &[Option<u64>]) {
        let Some((at, bit)) = self.place(tid) else { return };
        if let Some(word) = self.live.get_mut(at) {
            *word |= bit;
        }
        let is_keyed = [false, true].map(|late| {
            let mut of_these = hashes.iter().zip(&self.is_late).filter(|(_, it)| **it == late);
            of_these.all(|(hash, _)| hash.is_some())
        });
        for (bits, _) in self.keyed.iter_mut().zip(is_keyed).filter(|(_, is_keyed)| *is_keyed) {
            if let Some(word) = bits.get_mut(at) {
                *word |= bit;
            }
        }
        let Ok(block) = usize::try_from(tid.block.saturating_sub(self.first_block)) else { return };
        for ((sums, hash), late) in self.sums.iter_mut().zip(hashes).zip(&self.is_late) {
            let is_compared = *of(&is_keyed, *late);
            if let Some(sum) = sums.get_mut(block) {
                let hash = hash.filter(|_| is_compared).unwrap_or(NO_KEYS);
                *sum = sum.wrapping_add(with_row(hash, tid));
            }
        }
    }

    /// A line pointer that leads to nothing.
    pub(super) fn free(&mut self, tid: Tid) {
        let Some((at, bit)) = self.place(tid) else { return };
        if let Some(word) = self.unused.get_mut(at) {
            *word |= bit;
        }
    }

    /// The same of all line pointers of a block from this one on.
    pub(super) fn free_from(&mut self, block: u32, first: u16) {
        let end = u16::try_from(self.words.saturating_mul(WORD)).unwrap_or(u16::MAX);
        (first..end).for_each(|number| self.free(Tid { block, number }));
    }

    /// With the rows of the blocks that come next.
    pub(super) fn join(&mut self, next: Self) {
        self.blocks = self.blocks.saturating_add(next.blocks);
        self.live.extend(next.live);
        for (bits, next) in self.keyed.iter_mut().zip(next.keyed) {
            bits.extend(next);
        }
        self.unused.extend(next.unused);
        for (sums, next) in self.sums.iter_mut().zip(next.sums) {
            sums.extend(next);
        }
    }

    /// How many blocks there is room for.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(super) fn is_live(&self, tid: Tid) -> bool {
        let word = self.place(tid).and_then(|(at, bit)| Some(self.live.get(at)? & bit));
        word.is_some_and(|word| word != 0)
    }

    /// For entries that are asked one by one, so that each missing one is known.
    pub(super) fn entries(&self, index: usize) -> Entries<'_> {
        let missing = Some(self.live.clone());
        Entries { rows: self, index, missing, sums: vec![0; self.blocks], lost: None }
    }

    /// For entries that are added up.
    pub(super) fn quick(&self, index: usize) -> Entries<'_> {
        Entries { rows: self, index, missing: None, sums: vec![0; self.blocks], lost: None }
    }
}

impl Entries<'_> {
    /// An entry that leads to this line pointer, with the hash of its keys.
    pub(super) fn add(&mut self, tid: Tid, hash: u64) {
        let Some((at, bit)) = self.rows.place(tid) else { return };
        if let Some(word) = self.missing.as_mut().and_then(|missing| missing.get_mut(at)) {
            *word &= !bit;
        }
        let has = |words: &[u64]| words.get(at).is_some_and(|word| word & bit != 0);
        let is_late = self.rows.is_late.get(self.index).copied().unwrap_or(false);
        let keyed: &Vec<u64> = of(&self.rows.keyed, is_late);
        let hash = match has(keyed) {
            true => hash,
            false if has(&self.rows.live) => NO_KEYS,
            false => {
                if has(&self.rows.unused) {
                    self.lost.get_or_insert((0, tid)).0 += 1;
                }
                return;
            }
        };
        let block = usize::try_from(tid.block.saturating_sub(self.rows.first_block));
        if let Some(sum) = block.ok().and_then(|block| self.sums.get_mut(block)) {
            *sum = sum.wrapping_add(with_row(hash, tid));
        }
    }

    /// True if the sums are those of the rows: the index has all entries, and no other ones.
    pub(super) fn fit(&self) -> bool {
        self.rows.sums.get(self.index).is_some_and(|expected| *expected == self.sums)
    }

    /// Once all entries were added.
    pub(super) fn verdict(self) -> Verdict {
        let mut verdict = Verdict::default();
        let expected = self.rows.sums.get(self.index).map_or([].as_slice(), Vec::as_slice);
        let words = self.missing.as_deref().unwrap_or_default().chunks(self.rows.words.max(1));
        let blocks = self.rows.first_block..;
        for (block, (words, (sum, expected))) in
            blocks.zip(words.zip(self.sums.iter().zip(expected)))
        {
            let missing: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
            if missing > 0 {
                let number = first_bit(words);
                verdict.missing.get_or_insert((0, Tid { block, number })).0 += missing;
            } else if sum != expected {
                verdict.other_keys.get_or_insert((0, block)).0 += 1;
            }
        }
        verdict
    }
}

fn first_bit(words: &[u64]) -> u16 {
    let mut base = 0_u16;
    for word in words {
        if *word != 0 {
            return base.saturating_add(u16::try_from(word.trailing_zeros()).unwrap_or(0));
        }
        base = base.saturating_add(64);
    }
    0
}

/// A hash of keys; mixes whole words, since nothing here has an enemy.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    pub(super) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.0 ^= self.0 >> 29;
    }

    /// The next key; false if its content is not here, and it is too short to go by its
    /// length.
    pub(super) fn add(&mut self, value: Value<'_>) -> bool {
        let length = match value {
            Value::Null => {
                self.word(u64::MAX);
                return true;
            }
            Value::Plain(bytes) if bytes.len() <= HASHED_BYTES => {
                self.word(bytes.len() as u64);
                let (words, rest) = bytes.as_chunks::<8>();
                words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
                if !rest.is_empty() {
                    self.word(short(rest));
                }
                return true;
            }
            Value::Plain(bytes) => bytes.len() as u64,
            Value::Compressed(length) => u64::from(length),
            Value::External(external) => u64::from(external.raw_bytes),
        };
        self.word(length);
        length > HASHED_BYTES as u64
    }

    pub(super) fn finish(self) -> u64 {
        self.0
    }
}

/// Up to seven bytes as a number.
fn short(bytes: &[u8]) -> u64 {
    match <[u8; 4]>::try_from(bytes) {
        Ok(four) => u64::from(u32::from_le_bytes(four)),
        Err(_) => bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
    }
}

fn with_row(hash: u64, tid: Tid) -> u64 {
    let mut all = KeyHash(hash);
    all.word(u64::from(tid.block) << 16 | u64::from(tid.number));
    all.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        let mut hash = KeyHash::new();
        assert!(hash.add(Value::Plain(bytes)));
        hash.finish()
    }

    #[test]
    fn rows_of_two_parts_are_those_of_one() {
        let tid = |block| Tid { block, number: 3 };
        let (mut all, mut one, mut other) = (
            LiveRows::new(10, 4, 8192, &[false]),
            LiveRows::new(10, 1, 8192, &[false]),
            LiveRows::new(11, 3, 8192, &[false]),
        );
        for block in 10..14 {
            let hash = [(block != 12).then(|| hash(&[7, 8, 9]))];
            all.add(tid(block), &hash);
            one.add(tid(block), &hash);
            other.add(tid(block), &hash);
        }
        one.join(other);
        assert_eq!(format!("{one:?}"), format!("{all:?}"));
    }

    #[test]
    fn rows_without_an_entry_and_entries_with_other_keys_are_counted() {
        let mut rows = LiveRows::new(10, 3, 8192, &[false]);
        let tid = |block, number| Tid { block, number };
        for (place, key) in [(tid(10, 1), b"a"), (tid(10, 64), b"b"), (tid(12, 290), b"c")] {
            rows.add(place, &[Some(hash(key))]);
        }
        rows.add(tid(11, 5), &[None]);
        let told = |entries: &[(Tid, &[u8])]| {
            let (mut seen, mut quick) = (rows.entries(0), rows.quick(0));
            for (tid, key) in entries {
                seen.add(*tid, hash(key));
                quick.add(*tid, hash(key));
            }
            let fits = quick.fit();
            let verdict = seen.verdict();
            assert_eq!(fits, verdict == Verdict::default());
            verdict
        };
        let sound: [(Tid, &[u8]); 6] = [
            (tid(12, 290), b"c"),
            (tid(11, 5), b"anything"),
            (tid(10, 64), b"b"),
            (tid(10, 1), b"a"),
            // Of rows that no longer count, or of other parts.
            (tid(11, 6), b"old"),
            (tid(99, 1), b"far"),
        ];
        assert_eq!(told(&sound), Verdict::default());
        let found = told(&sound[1..]);
        assert_eq!(found.missing, Some((1, tid(12, 290))));
        let mut other = sound;
        other[2].1 = b"x";
        assert_eq!(told(&other).other_keys, Some((1, 10)));
        // Two rows that changed their keys with one another.
        (other[2].1, other[3].1) = (b"a", b"b");
        assert_eq!(told(&other).other_keys, Some((1, 10)));
    }

    /// What a row does not hold of a column that was added is no reason to compare less of the others.
    #[test]
    fn keys_of_old_columns_are_compared_where_those_of_added_ones_are_not_known() {
        let mut rows = LiveRows::new(10, 1, 8192, &[false, true]);
        let tid = |number| Tid { block: 10, number };
        rows.add(tid(1), &[Some(hash(b"a")), None]);
        rows.add(tid(2), &[Some(hash(b"b")), Some(hash(b"y"))]);
        let verdict = |index: usize, keys: [&[u8]; 2]| {
            let mut seen = rows.entries(index);
            for (number, key) in (1..).zip(keys) {
                seen.add(tid(number), hash(key));
            }
            seen.verdict().other_keys
        };
        assert_eq!(verdict(0, [b"a", b"b"]), None);
        assert_eq!(verdict(0, [b"b", b"a"]), Some((1, 10)));
        assert_eq!(verdict(1, [b"whatever", b"y"]), None);
        assert_eq!(verdict(1, [b"whatever", b"z"]), Some((1, 10)));
    }
}
