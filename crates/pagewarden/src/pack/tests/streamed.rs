//! Streams, packed as the bytes that came.

use std::io::{Cursor, Read as _};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::delta::place;
use super::*;
use crate::pack::stream::StreamPacking;

/// A pack of a stream, of which the target reads so much.
fn packed_stream(bytes: &[u8], looked_at: usize, settings: &Settings) -> Vec<u8> {
    let stop = Arc::new(AtomicBool::new(false));
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let jobs = NonZero::new(2).unwrap();
    let (mut tee, packing) =
        StreamPacking::begin(source, "s.tar".into(), settings.clone(), jobs, Vec::new(), &stop)
            .unwrap();
    let mut seen = vec![0; looked_at];
    tee.read_exact(&mut seen).unwrap();
    assert!(seen == bytes[..looked_at]);
    drop(tee);
    packing.drain(&stop, &()).unwrap();
    packing.finish(br#"{"verdict": "intact"}"#).unwrap().0
}

#[test]
fn streams_come_back_whatever_their_length() {
    let settings = settings(65_536, Method::Zstd(3));
    let folder = place();
    let path = folder.path().join("x.pwk");
    let whole = content(3 * SPAN_BYTES + 5);
    for length in [0, 1, SPAN_BYTES - 1, SPAN_BYTES, SPAN_BYTES + 1, 2 * SPAN_BYTES, whole.len()] {
        let bytes = &whole[..length];
        fs::write(&path, packed_stream(bytes, length / 2, &settings)).unwrap();
        let pack = Pack::open(&path).unwrap();
        assert!(read_back(&pack, 0).unwrap() == bytes, "{length}");
        let What::File { hash, .. } = pack.entries()[0].what else { panic!("no file") };
        assert_eq!(blake3::hash(bytes), hash, "{length}");
        assert_eq!(verdict(&path), Some(Verdict::Intact), "{length}");
    }
}

#[test]
fn any_byte_that_flips_is_found() {
    let folder = place();
    let path = folder.path().join("x.pwk");
    let bytes = content(700);
    let whole = packed_stream(&bytes, 100, &settings(4096, Method::Lz4));
    let blocks = blocks_of(&whole);
    for at in 0..whole.len() {
        let mut pack = whole.clone();
        pack[at] ^= 1 << (at % 8);
        fs::write(&path, &pack).unwrap();
        let said = verdict(&path);
        let is_harmless = blocks.contains(&at) && said == Some(Verdict::Intact);
        assert!(
            matches!(said, None | Some(Verdict::Damaged)) || is_harmless,
            "byte {at}: {said:?}"
        );
        if let Ok(read) = Pack::open(&path).and_then(|pack| read_back(&pack, 0)) {
            assert!(read == bytes, "byte {at}: a wrong byte was served");
        }
    }
    for length in 0..whole.len() {
        assert!(opened(&whole[..length]).is_err(), "{length}");
    }
}

/// What it begins with tells what all of it is like.
#[test]
fn a_dictionary_of_its_begin_makes_a_stream_smaller() {
    let words = ["page", "block", "segment", "tuple", "extent", "heap", "index", "tablespace"];
    let mut text = Vec::new();
    for number in 0..60_000_usize {
        text.extend(words[number * number % 13 % 8].as_bytes());
        text.extend((number * 7919 % 1000).to_string().as_bytes());
    }
    let plain = settings(4096, Method::Zstd(3));
    let dictionary = train_on_begin(&text[..text.len() / 2], plain.block_bytes);
    assert!(!dictionary.is_empty());
    assert!(train_on_begin(b"too little", 4096).is_empty());
    let with = packed_stream(&text, 0, &Settings { dictionary, ..plain.clone() });
    let without = packed_stream(&text, 0, &plain);
    assert!(with.len() < without.len(), "{} {}", with.len(), without.len());
    assert!(read_back(&opened(&with).unwrap(), 0).unwrap() == text);
}

#[test]
fn what_is_not_read_to_its_end_is_no_pack() {
    let stop = Arc::new(AtomicBool::new(false));
    let source = Box::new(Cursor::new(vec![1; 100]));
    let (settings, jobs) = (settings(4096, Method::Raw), NonZero::<usize>::MIN);
    let (tee, packing) =
        StreamPacking::begin(source, "s".into(), settings, jobs, Vec::new(), &stop).unwrap();
    drop(tee);
    assert!(packing.finish(b"{}").is_err());
}
