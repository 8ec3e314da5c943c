//! The container of a real backup, whole and damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::*;
use crate::mtf::tests::{Walked, walk, walk_all};
use crate::mtf::{Block, Walk};
use crate::stretch::Whole;
use crate::xpress::tests::{encode, parse};
use pagewarden_core::testing::fixtures;

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

/// Every chunk of the fixture: its kind, place and bytes.
fn chunks(file: &[u8]) -> Vec<(u8, usize, usize)> {
    let mut chunks = Vec::new();
    let mut at = FILE_HEADER_BYTES;
    while at < file.len() {
        let word = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
        let bytes = match file[at] {
            DATA => DATA_HEADER_BYTES + word(at + 2),
            PADDING => HEADER_BYTES + word(at + 2),
            INDEX => HEADER_BYTES + word(at + 32),
            _ => word(at + 8),
        };
        chunks.push((file[at], at, bytes));
        at += bytes;
    }
    assert_eq!(at, file.len());
    chunks
}

/// Bytes of a chunk's header that mean something, but the sum.
fn meaning(kind: u8) -> Vec<usize> {
    match kind {
        DATA => (0..4).collect(),
        PADDING => vec![0, 2, 3],
        INDEX => std::iter::once(0).chain(24..72).collect(),
        _ => (0..10).collect(),
    }
}

/// A chunk's header is in no sum, yet each of its fields has a witness: the sum of
/// the contents, the size that they expand to, what comes next.
#[test]
fn any_damaged_byte_of_any_header_is_told_and_costs_nothing() {
    let Some(mut file) = fixtures::bytes(FIXTURE) else { return };
    let (whole, ..) = expand(&file);
    for (kind, chunk, _) in chunks(&file) {
        for at in meaning(kind).into_iter().map(|at| chunk + at) {
            for flip in [0x01, 0xF0] {
                file[at] ^= flip;
                let (stream, faults, tally) = expand(&file);
                file[at] ^= flip;
                if kind == b'S' {
                    // The block is given as it is; the walk tells of its sum.
                    assert_eq!(faults, [], "{chunk}: {at} {flip}");
                    let differ = stream.iter().zip(&whole).filter(|(a, b)| a != b).count();
                    assert_eq!((stream.len(), differ), (whole.len(), 1), "{chunk}: {at} {flip}");
                } else {
                    assert!(!faults.is_empty(), "{kind:#x} at {chunk}: {at} is not told");
                    assert!(stream == whole, "{kind:#x} at {chunk}: {at} {flip} {faults:?}");
                    assert_eq!(tally.lost_bytes, 0, "{at}: {faults:?}");
                }
            }
        }
    }
}

#[test]
fn damaged_contents_are_a_hole_of_their_size() {
    let Some(mut file) = fixtures::bytes(FIXTURE) else { return };
    let (whole, ..) = expand(&file);
    let mut begin = 0;
    for (kind, chunk, bytes) in chunks(&file) {
        let size = match kind {
            DATA => usize::from(file[chunk + 1]) * 512,
            b'S' => bytes,
            _ => continue,
        };
        for at in [24, 28, 28 + TABLE_PROBE, bytes / 2, bytes - 1] {
            if kind != DATA {
                break;
            }
            file[chunk + at] ^= 0x40;
            let (mut stream, faults, tally) = expand(&file);
            file[chunk + at] ^= 0x40;
            let [fault] = faults.as_slice() else { panic!("{faults:?}") };
            assert!(matches!(fault.kind, FaultKind::Sum { .. }), "{fault:?}");
            let place = (fault.file_offset, fault.stream_offset, fault.lost_bytes);
            assert_eq!(place, (chunk as u64, begin as u64, size as u64));
            assert_eq!((tally.chunks, tally.chunks_sound), (51, 50));
            assert!(stream[begin..begin + size].iter().all(|byte| *byte == 0));
            stream[begin..begin + size].copy_from_slice(&whole[begin..begin + size]);
            assert!(stream == whole);
        }
        begin += size;
    }
    assert_eq!(begin, whole.len());
}

/// Somewhere in the code lengths.
const TABLE_PROBE: usize = 60;

#[test]
fn contents_with_a_right_sum_that_do_not_expand_are_told() {
    let Some(mut file) = fixtures::bytes(FIXTURE) else { return };
    let (_, chunk, bytes) = chunks(&file)[5];
    for at in [28 + TABLE_PROBE, 28 + 256, bytes - 1] {
        file[chunk + at] ^= 0x40;
        let sum = sum(&file[chunk + DATA_HEADER_BYTES..chunk + bytes]);
        let header = file[chunk + 24..chunk + 28].to_vec();
        file[chunk + 24..chunk + 28].copy_from_slice(&sum.to_le_bytes());
        let (stream, faults, _) = expand(&file);
        file[chunk + 24..chunk + 28].copy_from_slice(&header);
        file[chunk + at] ^= 0x40;
        assert_eq!(stream.len(), 3_063_808, "{at}");
        // The last bits are unused, or the damage gives another block.
        if let [fault] = faults.as_slice() {
            assert!(matches!(fault.kind, FaultKind::Expand(_)), "{fault:?}");
        } else {
            assert_eq!(faults, [], "{at}");
        }
    }
}

#[test]
fn wherever_it_is_cut_the_cut_is_told() {
    let Some(file) = fixtures::bytes(FIXTURE) else { return };
    let (whole, ..) = expand(&file);
    let chunks = chunks(&file);
    let mut ends: Vec<_> = chunks.iter().map(|(_, at, _)| *at).collect();
    ends.push(file.len());
    let near = ends.iter().flat_map(|end| end - 3..=(end + 30).min(file.len()));
    let lengths: Vec<_> = (0..file.len()).step_by(3001).chain(near).collect();
    for length in lengths {
        let (stream, faults, _) = expand(&file[..length]);
        assert_eq!(faults.is_empty(), ends.contains(&length), "{length}: {faults:?}");
        let lost = faults.iter().map(|fault| fault.lost_bytes as usize).sum::<usize>();
        assert!(whole.starts_with(&stream[..stream.len() - lost]), "{length}");
        assert!(lost <= 1 << 16, "{length}: {faults:?}");
    }
}

#[test]
fn unknown_kind_is_told_with_its_place_and_what_follows_is_found() {
    let Some(file) = fixtures::bytes(FIXTURE) else { return };
    let (whole, ..) = expand(&file);
    let (_, at, bytes) = chunks(&file)[7];
    let mut other = file.clone();
    other[at] = 0x31;
    // With another sum than this library computes.
    other[at + 24] ^= 1;
    let (stream, faults, tally) = expand(&other);
    let kind = FaultKind::Unknown { kind: 0x31, file_bytes: bytes as u64 };
    let begin = faults[0].stream_offset;
    let lost_bytes = 1 << 16;
    assert_eq!(faults[0], Fault { file_offset: at as u64, stream_offset: begin, lost_bytes, kind });
    // This one was of the size that is assumed.
    assert_eq!(stream.len(), whole.len());
    let begin = begin as usize;
    assert!(stream[..begin] == whole[..begin]);
    assert!(stream[begin + (1 << 16)..] == whole[begin + (1 << 16)..]);
    // Offsets are no longer certain, so no index is compared with them.
    assert_eq!((tally.index_entries, tally.index_entries_compared), (2, 0));
    assert_eq!(faults.len(), 1);
}

#[test]
fn index_that_names_other_places_is_told() {
    let Some(mut file) = fixtures::bytes(FIXTURE) else { return };
    let (_, at, _) = *chunks(&file).iter().find(|(kind, ..)| *kind == INDEX).unwrap();
    let seal = |file: &mut Vec<u8>| {
        let end = file.len() - (file.len() - at) + 24 + 4018 - 16;
        let sum = sum(&file[at + 40..at + 72]).to_le_bytes();
        file[at + 36..at + 40].copy_from_slice(&sum);
        file[end + 12..end + 16].copy_from_slice(&sum);
    };
    // The second entry's place in the stream, then in the file.
    for place in [56, 64] {
        file[at + place + 1] ^= 2;
        let (_, faults, _) = expand(&file);
        assert!(matches!(faults[0].kind, FaultKind::IndexSum { .. }), "{faults:?}");
        let before = file.clone();
        seal(&mut file);
        let (_, faults, _) = expand(&file);
        let kinds: Vec<_> = faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds, [FaultKind::IndexEntries(1)]);
        file = before;
        file[at + place + 1] ^= 2;
    }
}

#[test]
fn noise_ends_and_is_told() {
    let mut noise: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    noise[..8].copy_from_slice(MAGIC);
    let (stream, faults, _) = expand(&noise);
    assert!(faults.len() >= 2 && faults.len() < 20, "{faults:?}");
    assert!(stream.len() < 20 << 16);
    // Looks like a chunk everywhere.
    let mut chunks = vec![DATA; 3_000_000];
    chunks[..8].copy_from_slice(MAGIC);
    let (_, faults, _) = expand(&chunks);
    assert!(!faults.is_empty());
}

#[test]
fn damage_everywhere_does_no_harm() {
    let Some(file) = fixtures::bytes(FIXTURE) else { return };
    for step in [1009, 4099, 30_011] {
        for begin in 0..7 {
            let mut damaged = file.clone();
            for at in (FILE_HEADER_BYTES + begin..file.len()).step_by(step) {
                damaged[at] = damaged[at].wrapping_add(begin as u8 + 1);
            }
            let (stream, faults, tally) = expand(&damaged);
            assert!(!faults.is_empty());
            assert!(tally.chunks_sound < 51);
            assert!(stream.len() < 2 * 3_063_808, "{}", stream.len());
        }
    }
}

/// Packs a stream as the server does: chunks of 64 KiB from each filemark on, the
/// filemarks as they are, padding before them.
fn pack(stream: &[u8], blocks: &[Block]) -> Vec<u8> {
    let mut file = vec![0; FILE_HEADER_BYTES];
    file[..8].copy_from_slice(MAGIC);
    (file[8], file[12]) = (2, 3);
    let mut at = 0;
    for block in blocks.iter().filter(|block| block.kind.0 == *FILEMARK) {
        let filemark = block.offset as usize;
        for bytes in stream[at..filemark].chunks(xpress::OUTPUT_BYTES_MAX) {
            let payload = encode(&parse(bytes));
            let mut header = [0xA5; DATA_HEADER_BYTES];
            header[0] = DATA;
            header[1] = u8::try_from(bytes.len() / 512).unwrap();
            header[2..4].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_le_bytes());
            header[24..].copy_from_slice(&sum(&payload).to_le_bytes());
            file.extend(header);
            file.extend(payload);
        }
        let size = usize::from(u16::from_le_bytes([stream[filemark + 8], stream[filemark + 9]]));
        let padding = (file.len() + HEADER_BYTES).next_multiple_of(size) - file.len();
        let length = u16::try_from(padding - HEADER_BYTES).unwrap().to_le_bytes();
        file.extend([PADDING, 0, length[0], length[1]]);
        file.resize(file.len() + padding - 4, 0);
        file.extend(&stream[filemark..filemark + size]);
        at = filemark + size;
    }
    file
}

/// All blocks seen end with their input. Another writer's need not, and are whole
/// if their sum and their size are.
#[test]
fn block_with_bytes_behind_its_end_is_no_fault() {
    let bytes: Vec<u8> = (0..2048_u32).map(|number| (number / 9) as u8).collect();
    let block = encode(&parse(&bytes));
    for more in [&[][..], &[7], &[0; 6]] {
        let payload = [&block, more].concat();
        let mut file = vec![0; FILE_HEADER_BYTES];
        file[..8].copy_from_slice(MAGIC);
        (file[8], file[12]) = (2, 3);
        let length = u16::try_from(payload.len()).unwrap().to_le_bytes();
        file.extend([DATA, 4, length[0], length[1]]);
        file.extend([0; 20]);
        file.extend(sum(&payload).to_le_bytes());
        file.extend(payload);
        let (stream, faults, tally) = expand(&file);
        assert!(stream == bytes, "{more:?} {faults:?}");
        assert_eq!((faults, tally.chunks_sound), (Vec::new(), 1), "{more:?}");
    }
}

/// What was not seen compressed, packed here: several sets, stripes, filemarks of
/// 512 bytes, two data blocks. The walk must not know the difference.
#[test]
fn any_backup_is_the_same_when_it_is_compressed() {
    for name in [
        "das-verifynone-2sets-2008r2.bak",
        "northwind-stripe2of2-torn-2008r2.bak",
        "products-full-2019.bak",
    ] {
        let Some(plain) = fixtures::bytes(name) else { return };
        let expected = walk(&plain);
        let packed = pack(&plain, &expected.blocks);
        assert!(packed.len() * 3 < plain.len(), "{name}: {}", packed.len());
        let container = Container::of(&packed[..512], Whole(packed.as_slice())).unwrap();
        let mut walk = Walk::new(container);
        let walked = walk_all(&mut walk);
        assert!(walked == expected, "{name}");
        let expanded = walk.source_mut().expanded().unwrap();
        assert_eq!(expanded.take_faults().collect::<Vec<_>>(), [], "{name}");
        // And when a chunk in the midst of its pages is lost.
        let mut damaged = packed;
        let chunk = chunks(&damaged)[8];
        damaged[chunk.1 + 500] ^= 1;
        let walked: Walked = walk_all(&mut Walk::new(Expanded::new(Whole(damaged.as_slice()))));
        assert_eq!(walked.faults, [], "{name}");
        assert_eq!(walked.extents.len(), expected.extents.len());
        let holes: usize =
            walked.extents.iter().flat_map(|e| &e.holes).map(ExactSizeIterator::len).sum();
        assert_eq!(holes, 1 << 16, "{name}");
    }
}
