//! The walk over real backups, whole and damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::*;
use crate::source::fixtures;
use crate::source::mssqlbak::Container;
use crate::source::stretch::Whole;

/// What a walk came across.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub blocks: Vec<Block>,
    pub streams: Vec<Stream>,
    pub extents: Vec<Extent>,
    pub faults: Vec<Fault>,
    /// Of all extents.
    pub bytes: Vec<u8>,
}

pub(crate) fn walk_all<S: Stretches>(walk: &mut Walk<S>) -> Walked {
    let mut buffer = Box::new([0xEE; EXTENT_BYTES]);
    let mut walked = Walked::default();
    while let Some(event) = walk.next_event(&mut buffer).unwrap() {
        match event {
            Event::Block(block) => walked.blocks.push(block),
            Event::Stream(stream) => walked.streams.push(stream),
            Event::Extent(extent) => {
                walked.bytes.extend(&buffer[..extent.bytes]);
                walked.extents.push(extent);
            }
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

/// The places in the table of `details`, held against what else is known.
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
            eprintln!("{name}: {at_end:?}");
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
