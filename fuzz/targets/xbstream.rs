//! Streams of xtrabackup and mariabackup: chunks of arbitrary content, each with
//! the sum that fits, and arbitrary bytes.
//!
//! The first byte says which: 0 the input as it is, else a row of chunks, each a
//! byte for its kind, one for its file, two for its length, and its payload.

use std::num::NonZero;
use std::path::Path;

use pagewarden::database::{OpenOptions, open_stream};
use pagewarden::formats::innodb::xbstream::{ChunkKind, Chunks};
use pagewarden::verify::{Options, verify};
use pagewarden_fuzz::Report;

const NAMES: [&str; 12] = [
    "./shop/t.ibd",
    "ibdata1",
    "shop/a.MAI",
    "shop/a.MAD",
    "shop/t.ibd.meta",
    "shop/t.ibd.delta",
    "shop/z.ibd.zst",
    "shop/q.ibd.qp",
    "xtrabackup_checkpoints",
    "#ib_16384_0.dblwr",
    "../outside",
    "undo001",
];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let stream = if *mode == 0 { bytes.to_vec() } else { chunks_of(bytes) };
    let mut chunks = Chunks::new(stream.as_slice());
    let mut data = vec![0; 3000];
    while let Ok(Some(chunk)) = chunks.next_chunk() {
        let leads_out =
            chunk.name.starts_with('/') || chunk.name.split('/').any(|part| part == "..");
        assert!(!leads_out || chunk.objection.is_some(), "{chunk:?}");
        if chunk.kind == ChunkKind::Payload {
            let _ = chunks.read_data(&mut data);
        }
    }
    let source = Box::new(std::io::Cursor::new(stream));
    let options = OpenOptions::default();
    let Ok(target) = open_stream(Path::new("-"), source, None, &options) else { return };
    let mut report = Report::default();
    let options = Options { jobs: NonZero::<usize>::MIN, ..Options::default() };
    let summary = verify(target, &options, &(), &mut report).expect("this sink takes all").summary;
    assert_eq!(report.unread.len() as u64, summary.unread);
}

fn chunks_of(mut bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut offsets = [0_u64; NAMES.len()];
    while let [kind, name, low, high, rest @ ..] = bytes {
        let index = usize::from(*name) % NAMES.len();
        let (payload, behind) =
            rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        bytes = behind;
        let type_of_chunk = [b'P', b'P', b'P', b'S', b'E', b'N', b'R'][usize::from(*kind) % 7];
        stream.extend(b"XBSTCK01\0");
        stream.push(type_of_chunk);
        stream.extend(u32::try_from(NAMES[index].len()).unwrap_or(0).to_le_bytes());
        stream.extend(NAMES[index].as_bytes());
        match type_of_chunk {
            b'E' | b'R' => continue,
            b'N' => {
                stream.extend(0_u32.to_le_bytes());
                continue;
            }
            _ => {}
        }
        let (hole, run) = (u32::from(*low) * 64, payload.len() as u32);
        let table = [hole.to_le_bytes(), run.to_le_bytes()].concat();
        let is_sparse = type_of_chunk == b'S';
        if is_sparse {
            stream.extend(1_u32.to_le_bytes());
        }
        stream.extend((payload.len() as u64).to_le_bytes());
        stream.extend(offsets[index].to_le_bytes());
        let covered = if is_sparse { [&table[..], payload].concat() } else { payload.to_vec() };
        // The sum of zlib, as an Aria page numbered 0 has it.
        stream.extend(pagewarden::formats::aria::checksum::checksum(&covered, 0).to_le_bytes());
        if is_sparse {
            stream.extend(&table);
            offsets[index] += u64::from(hole);
        }
        stream.extend(payload);
        offsets[index] += payload.len() as u64;
    }
    stream
}
