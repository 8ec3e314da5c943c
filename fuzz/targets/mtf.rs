//! Backups: arbitrary bytes, and headers whose sums are made to fit.
//!
//! The first byte of the input says whether sums are made to fit, and whether the
//! extents of the first data stream are put behind its header, so that the input
//! need not hold them.

use pagewarden::formats::sqlserver::mtf::{
    EXTENT_BYTES, Event, FaultKind, Walk, looks_like_backup,
};
use pagewarden::formats::sqlserver::stretch::Whole;

const BLOCKS: [&[u8; 4]; 10] =
    [b"TAPE", b"SFMB", b"SSET", b"VOLB", b"MSCI", b"MSDA", b"MSTL", b"MSLS", b"ESET", b"EOTM"];
const STREAMS: [&[u8; 4]; 8] =
    [b"RAID", b"SPAD", b"APAD", b"MQCI", b"MQDA", b"MQTL", b"OTCP", b"TSMP"];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    if mode & 1 == 0 {
        make_fit(&mut bytes);
    }
    if mode & 2 != 0 {
        insert_extents(&mut bytes);
    }
    let _ = looks_like_backup(&bytes);
    let mut walk = Walk::new(Whole(bytes.as_slice()));
    let mut buffer = Box::new([0_u8; EXTENT_BYTES]);
    let mut end = 0_u64;
    let (mut sets, mut is_ended) = (0, false);
    let mut events = 0;
    while let Some(event) = walk.next_event(&mut buffer).expect("memory can be read") {
        events += 1;
        assert!(!is_ended || matches!(event, Event::Fault(_)), "{event:?}");
        match event {
            Event::Block(block) => {
                assert!(block.set >= sets);
                sets = block.set;
                assert!(!block.kind.to_string().is_empty());
            }
            Event::Stream(stream) => {
                if let Some(configuration) = stream.configuration {
                    assert!(configuration.files.len() <= bytes.len() / 56 + 1);
                    let _ = configuration.first_lsn.to_string();
                }
            }
            Event::Extent(extent) | Event::Log(extent) => {
                // Each byte is given at most once, and as it is.
                assert!(extent.offset >= end);
                assert!(extent.bytes > 0 && extent.bytes <= EXTENT_BYTES);
                end = extent.offset + extent.bytes as u64;
                let range = extent.offset as usize..end as usize;
                assert!(bytes[range] == buffer[..extent.bytes]);
                assert!(extent.holes.is_empty());
            }
            Event::Fault(fault) => {
                assert!(fault.offset <= bytes.len() as u64);
                assert!(!fault.kind.to_string().is_empty());
                is_ended |= matches!(
                    fault.kind,
                    FaultKind::Truncated | FaultKind::Unfinished | FaultKind::Trailing(_)
                );
            }
        }
    }
    assert!(walk.next_event(&mut buffer).is_ok_and(|event| event.is_none()));
    // A header takes 22 bytes, and gives a stream and two faults at most.
    assert!(events <= bytes.len() / 4 + 8, "{events} events of {} bytes", bytes.len());
}

fn make_fit(bytes: &mut [u8]) {
    for at in (0..bytes.len()).step_by(4) {
        let rest = &mut bytes[at..];
        // Quick to tell, as nearly all of it is.
        if !rest[0].is_ascii_uppercase() {
            continue;
        }
        let sum_at = if BLOCKS.iter().any(|kind| rest.starts_with(*kind)) {
            50
        } else if STREAMS.iter().any(|kind| rest.starts_with(*kind)) {
            20
        } else {
            continue;
        };
        let Some(header) = rest.get_mut(..sum_at + 2) else { return };
        let sum = header[..sum_at]
            .chunks_exact(2)
            .fold(0, |sum, word| sum ^ u16::from_le_bytes([word[0], word[1]]));
        header[sum_at..].copy_from_slice(&sum.to_le_bytes());
    }
}

fn insert_extents(bytes: &mut Vec<u8>) {
    let Some(at) = bytes.windows(4).position(|kind| kind == b"MQDA") else { return };
    let Some(length) = bytes.get(at + 8..at + 16).and_then(|length| length.first_chunk()) else {
        return;
    };
    let length = u64::from_le_bytes(*length).min(200_000);
    if at + 22 <= bytes.len() {
        let rest = bytes.split_off(at + 22);
        bytes.resize(bytes.len() + length as usize, 0x21);
        bytes.extend(rest);
    }
}
