//! The walk over real backups, whole and damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::*;
use crate::mssqlbak::Container;
use crate::stretch::{Stretch, Whole};
use pagewarden_core::testing::fixtures;

/// What a walk came across.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub blocks: Vec<Block>,
    pub streams: Vec<Stream>,
    pub extents: Vec<Extent>,
    pub log_bytes: usize,
    pub faults: Vec<Fault>,
    /// Of all extents.
    pub bytes: Vec<u8>,
}

pub(crate) fn walk_all<S: Stretches>(walk: &mut Walk<S>) -> Walked {
    let mut buffer = Box::new([0xEE; EXTENT_BYTES]);
    let mut walked = Walked::default();
    while let Some(event) = walk.next_event(&mut buffer).unwrap() {
        match event {
            Event::Block(block) => walked.blocks.push(*block),
            Event::Stream(stream) => walked.streams.push(*stream),
            Event::Extent(extent) => {
                walked.bytes.extend(&buffer[..extent.bytes]);
                walked.extents.push(extent);
            }
            Event::Log(piece) => walked.log_bytes += piece.bytes,
            Event::Fault(fault) => walked.faults.push(fault),
        }
    }
    walked
}

pub(crate) fn walk(bytes: &[u8]) -> Walked {
    walk_all(&mut Walk::new(Whole(bytes)))
}

fn number(value: &serde_json::Value, field: &str) -> usize {
    usize::try_from(value[field].as_u64().unwrap_or_else(|| panic!("no {field}"))).unwrap()
}

/// Counts, sets, families and the extents of each data block, against those of
/// `expected.json`, which another reader counted.
#[test]
fn every_fixture_is_walked_to_its_end() {
    let Some(expected) = fixtures::expected() else { return };
    let mut files = 0;
    for (name, expected) in expected.as_object().unwrap() {
        if !name.ends_with(".bak") {
            continue;
        }
        files += 1;
        let bytes = fixtures::bytes(name).unwrap();
        let container = Container::of(&bytes[..512], Whole(bytes.as_slice())).unwrap();
        let mut walk = Walk::new(container);
        let walked = walk_all(&mut walk);
        let length = match walk.source_mut().expanded() {
            Some(expanded) => {
                assert_eq!(expanded.take_faults().count(), 0, "{name}");
                number(expected, "unpacked")
            }
            None => bytes.len(),
        };
        assert_eq!(walked.faults, [], "{name}");
        assert_eq!(walked.blocks.len(), number(expected, "dblk_ok"), "{name}");
        assert_eq!(walked.streams.len(), number(expected, "streams_ok"), "{name}");
        assert_eq!(walked.blocks.last().unwrap().set as usize, number(expected, "sets"), "{name}");
        let media = walked.streams[0].media.unwrap();
        assert_eq!(usize::from(media.families), number(expected, "families"), "{name}");
        assert_eq!(usize::from(media.family), number(expected, "family"), "{name}");
        let data: Vec<_> = walked
            .streams
            .iter()
            .filter(|stream| stream.kind.0 == *b"MQDA" && stream.bytes > 0)
            .map(|stream| {
                let begin = stream.offset + 24;
                let end = begin + stream.bytes;
                let extents = walked.extents.iter().filter(|e| (begin..end).contains(&e.offset));
                (begin, extents.map(|extent| extent.bytes).sum::<usize>() / 8192)
            })
            .collect();
        let expected_data: Vec<_> = expected["mqda"]
            .as_array()
            .unwrap()
            .iter()
            .map(|data| (number(data, "offset") as u64, number(data, "pages")))
            .collect();
        assert_eq!(data, expected_data, "{name}");
        let sound = |e: &Extent| e.holes.is_empty() && !e.is_salvaged && e.bytes == EXTENT_BYTES;
        assert!(walked.extents.iter().all(sound), "{name}");
        let end = walked.blocks.last().unwrap();
        assert!(end.offset as usize + 4096 >= length, "{name}");
    }
    assert_eq!(files, 6);
}

/// The places in the table of `details`, compared with what else is known.
#[test]
fn every_set_says_what_it_is_of() {
    let Some(expected) = fixtures::expected() else { return };
    let mut sets = 0;
    for (name, expected) in expected.as_object().unwrap() {
        if !name.ends_with(".bak") {
            continue;
        }
        let bytes = fixtures::bytes(name).unwrap();
        let container = Container::of(&bytes[..512], Whole(bytes.as_slice())).unwrap();
        let walked = walk_all(&mut Walk::new(container));
        let configurations: Vec<_> =
            walked.streams.iter().filter_map(|stream| stream.configuration.as_ref()).collect();
        let begins: Vec<_> = walked
            .blocks
            .iter()
            .filter_map(|block| match &block.details {
                Some(Details::SetBegin { attributes, number, name, date, version, .. }) => {
                    assert_eq!(*attributes, 4);
                    assert_eq!(u32::from(*number), block.set);
                    assert!(name.ends_with("Database Backup"), "{name}");
                    Some((date.unwrap(), *version))
                }
                _ => None,
            })
            .collect();
        assert_eq!(configurations.len(), 2 * begins.len(), "{name}");
        let media = walked.streams[0].media.unwrap();
        for (index, (first, begin)) in configurations.chunks(2).zip(begins).enumerate() {
            sets += 1;
            let [at_begin, at_end] = first else { panic!("two for each set") };
            let version = (at_begin.server_version.0, at_begin.server_version.1);
            assert_eq!((at_begin.begun, version), (Some(begin.0), begin.1));
            assert_eq!(at_begin.ended, None);
            assert!(at_end.ended >= at_end.begun && at_end.begun > at_end.created, "{name}");
            assert!(at_end.first_lsn <= at_end.checkpoint_lsn, "{name}");
            assert!(at_end.checkpoint_lsn < at_end.last_lsn, "{name}");
            assert!(at_end.previous_full_lsn < at_end.first_lsn, "{name}");
            let boot = &expected["mqda"][index]["boot"];
            if boot.is_object() {
                assert_eq!(usize::from(at_begin.database_version), number(boot, "ver"), "{name}");
            }
            // The pages of the first data block, over all families.
            let set = u32::try_from(index + 1).unwrap();
            let pages: usize = at_begin.files.iter().map(|file| file.pages as usize).sum();
            let extents = walked.extents.iter().filter(|e| e.set == set && e.data_block == 1);
            assert_eq!(pages, extents.count() * 8 * usize::from(media.families), "{name}");
            assert_eq!(at_begin.files.iter().filter(|file| file.is_log).count(), 1);
            for file in &at_begin.files {
                assert!(file.path.ends_with("df"), "{file:?}");
                assert_eq!(file.page_bytes, 8192);
                assert!(u64::from(file.pages) * 8192 <= file.bytes || file.is_log, "{file:?}");
            }
        }
    }
    assert_eq!(sets, 7);
}

const STRIPE: &str = "northwind-stripe2of2-torn-2008r2.bak";
const TWO_SETS: &str = "das-verifynone-2sets-2008r2.bak";
const TWO_FILES: &str = "test-2datafiles-2016.bak";
const SECOND_DATA: &str = "products-full-2019.bak";

/// The header's bytes of every block and stream.
fn header_bytes(walked: &Walked) -> Vec<usize> {
    let blocks = walked.blocks.iter().map(|block| (block.offset, BLOCK_HEADER_BYTES));
    let streams = walked.streams.iter().map(|stream| (stream.offset, STREAM_HEADER_BYTES));
    let ranges = blocks.chain(streams).map(|(at, bytes)| at as usize..at as usize + bytes);
    ranges.flatten().collect()
}

/// Every damage is reported where it is, and costs no page.
#[test]
fn any_damaged_byte_of_any_header_is_told_and_no_extent_is_lost() {
    for name in [STRIPE, SECOND_DATA] {
        let Some(mut file) = fixtures::bytes(name) else { return };
        let whole = walk(&file);
        for at in header_bytes(&whole) {
            // Some bits, never the same ones.
            let flip = 1 + (at * 7 % 255) as u8;
            file[at] ^= flip;
            let walked = walk(&file);
            let first = walked.faults.first().unwrap_or_else(|| panic!("{name}: {at} is not told"));
            let reaches = first.offset as usize + BLOCK_HEADER_BYTES;
            assert!((first.offset as usize..reaches).contains(&at), "{name} {at}: {first:?}");
            assert!(walked.bytes == whole.bytes, "{name}: {at}: {:?}", walked.faults);
            file[at] ^= flip;
        }
    }
}

#[test]
fn wherever_it_is_cut_the_cut_is_told() {
    for name in [STRIPE, TWO_SETS] {
        let Some(file) = fixtures::bytes(name) else { return };
        let whole = walk(&file);
        // Behind the filemark of a set, a file may end.
        let ends: Vec<_> = whole
            .blocks
            .windows(2)
            .filter(|pair| pair[0].kind.0 == *b"ESET" && pair[1].kind.0 == *b"SFMB")
            .map(|pair| file.len().min((pair[1].offset + 4096) as usize))
            .collect();
        let near_headers = header_bytes(&whole).into_iter().step_by(5);
        let lengths: Vec<_> = (0..file.len()).step_by(10_007).chain(near_headers).collect();
        for length in lengths {
            let walked = walk(&file[..length]);
            let is_told = walked.faults.iter().any(|fault| {
                matches!(fault.kind, FaultKind::Truncated | FaultKind::Unfinished)
                    && fault.offset as usize <= length
            });
            // Too little to tell that it is a block.
            let is_end = ends.iter().any(|end| (*end..end + 4).contains(&length));
            assert!(is_told || is_end, "{name}: {length}: {:?}", walked.faults);
            assert!(whole.bytes.starts_with(&walked.bytes), "{name}: {length}");
        }
        for end in ends {
            assert_eq!(walk(&file[..end]).faults, [], "{name}: {end}");
        }
    }
}

/// A block of zeroes, of noise, of ones over any header, and bytes put in or
/// taken out: the walk comes to an end and finds its way again.
#[test]
fn sectors_that_are_lost_are_told() {
    let Some(file) = fixtures::bytes(TWO_FILES) else { return };
    let whole = walk(&file);
    let noise: Vec<u8> = (0..512_u32).map(|number| (number * number % 251) as u8).collect();
    let mut places: Vec<_> = header_bytes(&whole).into_iter().map(|at| at / 512 * 512).collect();
    places.dedup();
    for at in places {
        for sector in [vec![0; 512], noise.clone(), vec![0xFF; 512]] {
            let mut damaged = file.clone();
            damaged[at..at + 512].copy_from_slice(&sector);
            let walked = walk(&damaged);
            assert!(!walked.faults.is_empty(), "{at}");
            // The sector before the first page holds both headers of the data.
            let lost = whole.bytes.len() - walked.bytes.len().min(whole.bytes.len());
            assert!(walked.bytes.len() >= whole.bytes.len(), "{at}: {lost} {:?}", walked.faults);
        }
    }
}

#[test]
fn what_is_no_backup_ends_in_words() {
    let counting: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    for (bytes, first) in [
        (Vec::new(), FaultKind::Unfinished),
        (b"TAPE".to_vec(), FaultKind::Truncated),
        (vec![0; 3_000_000], FaultKind::Layout),
        (vec![0x5A; 3_000_000], FaultKind::Layout),
        (counting, FaultKind::BlockSum { stored: 0x3332, computed: 0x3130 }),
    ] {
        let walked = walk(&bytes);
        assert_eq!(walked.faults.first().unwrap().kind, first);
        assert_eq!(walked.blocks, []);
        assert_eq!(walked.extents, []);
        assert_eq!(walked.faults.last().unwrap().kind, FaultKind::Unfinished);
    }
}

/// Disks are larger than what was written to them before.
#[test]
fn what_follows_the_last_set_is_told_as_that() {
    let Some(mut file) = fixtures::bytes(STRIPE) else { return };
    let length = file.len() as u64;
    for bytes in [7, 512, 700_000] {
        file.resize(length as usize + bytes, 0);
        let kind = FaultKind::Trailing(bytes as u64);
        assert_eq!(walk(&file).faults, [Fault { offset: length, kind }]);
    }
}

/// Gives a header its sum again.
fn seal(header: &mut [u8]) {
    let end = header.len() - 2;
    let sum = header::sum(&header[..end]);
    header[end..].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn lengths_with_a_right_sum_are_not_believed_past_the_end() {
    let Some(mut file) = fixtures::bytes(STRIPE) else { return };
    let whole = walk(&file);
    for stream in &whole.streams {
        let at = stream.offset as usize;
        let header = file[at..at + STREAM_HEADER_BYTES].to_vec();
        for length in [u64::MAX, u64::MAX - 30, 1 << 62, file.len() as u64] {
            file[at + 8..at + 16].copy_from_slice(&length.to_le_bytes());
            seal(&mut file[at..at + STREAM_HEADER_BYTES]);
            let walked = walk(&file);
            assert!(walked.faults.iter().any(|fault| fault.kind == FaultKind::Truncated));
            assert!(walked.bytes.len() <= file.len());
        }
        file[at..at + STREAM_HEADER_BYTES].copy_from_slice(&header);
    }
}

#[test]
fn encryption_unknown_types_and_odd_lengths_are_told() {
    let Some(file) = fixtures::bytes(STRIPE) else { return };
    let whole = walk(&file);
    let data = whole.streams.iter().find(|stream| stream.kind.0 == *b"MQDA").unwrap();
    let at = data.offset as usize;
    for (place, value) in [(6, ENCRYPTED | 2), (6, COMPRESSED | 2), (16, 1), (18, 3)] {
        let mut file = file.clone();
        file[at + place..at + place + 2].copy_from_slice(&value.to_le_bytes());
        seal(&mut file[at..at + STREAM_HEADER_BYTES]);
        let walked = walk(&file);
        assert_eq!(walked.faults, [Fault { offset: data.offset, kind: FaultKind::Encoded }]);
        assert_eq!(walked.extents, []);
        let stream = walked.streams.iter().find(|stream| stream.offset == data.offset).unwrap();
        assert!(stream.is_encrypted() != stream.is_compressed());
    }
    let mut odd = file.clone();
    odd[at + 6] |= CHECKSUMMED as u8;
    odd[at + 8..at + 16].copy_from_slice(&(data.bytes - 60_000).to_le_bytes());
    seal(&mut odd[at..at + STREAM_HEADER_BYTES]);
    let walked = walk(&odd);
    let kind = FaultKind::Extents(data.bytes - 60_002);
    assert_eq!(walked.faults[0], Fault { offset: data.offset, kind });
    assert!(walked.streams.iter().any(Stream::is_checksummed));

    let mut unknown = file;
    let block = whole.blocks.iter().find(|block| block.kind.0 == *b"MSTL").unwrap();
    let places = [(block.offset as usize, BLOCK_HEADER_BYTES), (at, STREAM_HEADER_BYTES)];
    for (at, bytes) in places {
        unknown[at..at + 4].copy_from_slice(b"NEWS");
        seal(&mut unknown[at..at + bytes]);
    }
    let walked = walk(&unknown);
    let kinds: Vec<_> = walked.faults.iter().map(|fault| fault.kind).collect();
    let news = Type(*b"NEWS");
    assert_eq!(kinds, [FaultKind::UnknownStream(news), FaultKind::UnknownBlock(news)]);
    assert_eq!(walked.blocks.len(), whole.blocks.len());
}

/// A source with a hole in it.
struct Holed<'a> {
    bytes: &'a [u8],
    at: usize,
    hole: Range<usize>,
    is_exact: bool,
}

impl Stretches for Holed<'_> {
    fn next_stretch(&mut self, buffer: &mut [u8]) -> io::Result<Stretch> {
        if self.at == self.hole.start {
            self.at = self.hole.end;
            let bytes = (self.hole.end - self.hole.start) as u64;
            return Ok(Stretch::Hole { bytes, is_exact: self.is_exact });
        }
        let end = if self.at < self.hole.start { self.hole.start } else { self.bytes.len() };
        let count = buffer.len().min(end - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(if count == 0 { Stretch::End } else { Stretch::Bytes(count) })
    }
}

#[test]
fn holes_are_told_with_the_extents_they_are_in() {
    let Some(file) = fixtures::bytes(STRIPE) else { return };
    let whole = walk(&file);
    let begin = whole.extents[0].offset as usize;
    for is_exact in [true, false] {
        let hole = begin + 100_000..begin + 140_000;
        let source = Holed { bytes: &file, at: 0, hole: hole.clone(), is_exact };
        let walked = walk_all(&mut Walk::new(source));
        let holes: Vec<_> = walked
            .extents
            .iter()
            .flat_map(|extent| {
                let begin = extent.offset as usize;
                extent.holes.iter().map(move |hole| begin + hole.start..begin + hole.end)
            })
            .collect();
        assert_eq!(
            holes,
            [hole.start..begin + 2 * EXTENT_BYTES, begin + 2 * EXTENT_BYTES..hole.end]
        );
        let second = &walked.extents[1];
        assert!(second.is_there(0..34_464) && !second.is_there(34_000..34_465));
        assert!(!second.is_there(0..EXTENT_BYTES));
        if is_exact {
            assert_eq!(walked.faults, []);
        } else {
            // What follows the hole begins anew, up to the stream's own end.
            assert_eq!(walked.extents[3].offset as usize, hole.end);
            assert!(walked.extents[3].is_salvaged);
        }
    }
    // All headers of a block.
    let hole = 1536..1600;
    let walked = walk_all(&mut Walk::new(Holed { bytes: &file, at: 0, hole, is_exact: true }));
    assert_eq!(walked.faults[0], Fault { offset: 1536, kind: FaultKind::Unreadable });
    assert!(walked.bytes == whole.bytes);
}
