//! The container of compressed backups: arbitrary bytes as a file, and as chunks
//! whose sums are made to fit.
//!
//! The first byte of the input says in how many chunks' headers the sum is made
//! to fit.

use pagewarden::formats::sqlserver::mssqlbak::{Container, MAGIC};
use pagewarden::formats::sqlserver::stretch::{Stretch, Stretches, Whole};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let mut file = rest.to_vec();
    if file.len() < 0x1E0 {
        return;
    }
    file[..8].copy_from_slice(MAGIC);
    make_fit(&mut file, mode % 16);
    let Some(mut container) = Container::of(&file.clone(), Whole(file.as_slice())) else {
        panic!("it has the magic");
    };
    let mut buffer = vec![0; 30_000];
    let (mut given, mut lost, mut lost_by_faults) = (0_u64, 0_u64, 0_u64);
    let mut faults = 0_u64;
    loop {
        match container.next_stretch(&mut buffer).expect("memory can be read") {
            Stretch::Bytes(count) => {
                assert!(count > 0 && count <= buffer.len());
                given += count as u64;
            }
            Stretch::Hole { bytes, .. } => {
                assert!(bytes > 0);
                lost += bytes;
            }
            Stretch::End => break,
        }
        let expanded = container.expanded().expect("it is compressed");
        for fault in expanded.take_faults() {
            assert!(fault.file_offset <= file.len() as u64);
            assert!(!fault.kind.to_string().is_empty());
            lost_by_faults += fault.lost_bytes;
            faults += 1;
        }
    }
    let expanded = container.expanded().expect("it is compressed");
    faults += expanded.take_faults().map(|fault| lost_by_faults += fault.lost_bytes).count() as u64;
    let tally = expanded.tally();
    assert_eq!(tally.faults_dropped, 0);
    assert_eq!(lost, lost_by_faults);
    assert_eq!(lost, tally.lost_bytes);
    assert!(tally.chunks_sound <= tally.chunks);
    assert!(tally.chunks_sound == tally.chunks || faults > 0);
    // A chunk has at least a header and its code lengths.
    let pieces = file.len() as u64 / 24 + 2;
    assert!(given + lost <= pieces << 16, "{given} {lost} of {}", file.len());
    assert!(matches!(container.next_stretch(&mut buffer), Ok(Stretch::End)));
}

fn make_fit(file: &mut [u8], count: u8) {
    let mut at = 0x1E0;
    for _ in 0..count {
        let Some(head) = file.get(at..at + 28) else { return };
        let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
        match head[0] {
            0x21 => {
                let Some(payload) = file.get(at + 28..at + 28 + length) else { return };
                let sum = payload.chunks(4).fold(0_u32, |sum, word| {
                    let mut bytes = [0; 4];
                    bytes[..word.len()].copy_from_slice(word);
                    sum.rotate_left(1) ^ u32::from_le_bytes(bytes)
                });
                file[at + 24..at + 28].copy_from_slice(&sum.to_le_bytes());
                at += 28 + length;
            }
            0x24 => at += 24 + length,
            _ => return,
        }
    }
}
