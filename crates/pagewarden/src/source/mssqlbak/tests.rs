//! The container of a real backup, whole and damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::*;
use crate::source::fixtures;
use crate::source::stretch::Whole;

/// The stream with zeroes for holes, and what was wrong.
fn expand(file: &[u8]) -> (Vec<u8>, Vec<Fault>, Tally) {
    let mut expanded = Expanded::new(Whole(file));
    let (mut stream, mut faults) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 100_000];
    loop {
        match expanded.next_stretch(&mut buffer).unwrap() {
            Stretch::Bytes(count) => stream.extend(&buffer[..count]),
            Stretch::Hole { bytes, .. } => stream.resize(stream.len() + bytes as usize, 0),
            Stretch::End => break,
        }
        faults.extend(expanded.take_faults());
    }
    faults.extend(expanded.take_faults());
    (stream, faults, expanded.tally())
}

const FIXTURE: &str = "library-compressed-2014.bak";

#[test]
fn real_backup_expands_to_its_size() {
    let Some(file) = fixtures::bytes(FIXTURE) else { return };
    let (stream, faults, tally) = expand(&file);
    assert_eq!(stream.len(), 3_063_808);
    assert_eq!(faults, []);
    let expected = Tally {
        chunks: 51,
        chunks_sound: 51,
        paddings: 2,
        raw_blocks: 3,
        indexes: 1,
        index_entries: 2,
        index_entries_compared: 2,
        ..Tally::default()
    };
    assert_eq!(tally, expected);
}
