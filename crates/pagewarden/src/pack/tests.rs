//! Packs written, read, damaged and made to deceive.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::layout::{FOOTER_BYTES, Footer};
use super::write::Writer;
use super::*;
use crate::database;
use crate::verdict::Verdict;
use crate::verify::{Caching, Options, verify};

mod delta;
mod salvaged;
mod streamed;

pub(super) fn settings(block_bytes: u32, method: Method) -> Settings {
    Settings { block_bytes, method, dictionary: Vec::new() }
}

fn folder(name: &str) -> Entry {
    let attributes = Attributes { mode: 0o700, ..Attributes::default() };
    Entry { name: name.into(), attributes, what: What::Folder, link: None }
}

pub(super) fn file(name: &str, bytes: &[u8]) -> Entry {
    let attributes =
        Attributes { mode: 0o640, modified_seconds: 1_700_000_000, ..Attributes::default() };
    let what = What::File { bytes: bytes.len() as u64, has_holes: false, hash: [0; 32] };
    Entry { name: name.into(), attributes, what, link: None }
}

/// A pack of these, spans in the reverse of their order.
pub(super) fn packed(files: &[(Entry, Vec<u8>)], settings: &Settings) -> Vec<u8> {
    let entries = files.iter().map(|(entry, _)| entry.clone()).collect();
    let writer = Writer::begin(Vec::new(), settings.clone(), entries).unwrap();
    let mut scratch = writer.scratch().unwrap();
    for (number, (_, bytes)) in files.iter().enumerate().rev() {
        for (span, bytes) in bytes.chunks(SPAN_BYTES).enumerate().rev() {
            writer.add(&mut scratch, number, span as u64, bytes).unwrap();
        }
    }
    let report = br#"{"verdict": "intact", "targets": [{"engine": "SQLite 3"}]}"#;
    writer.finish(report).unwrap().0
}

fn opened(bytes: &[u8]) -> Result<Pack, PackError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.pwk");
    fs::write(&path, bytes).unwrap();
    Pack::open(&path)
}

/// Bytes that shrink a little, and stretches of zeroes.
pub(super) fn content(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..bytes)
        .map(|at| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            if at / 10_000 % 3 == 1 { 0 } else { b"abcdefgh01234567"[(state >> 20) as usize % 16] }
        })
        .collect()
}

fn sample() -> Vec<(Entry, Vec<u8>)> {
    let large = content(2 * SPAN_BYTES + 12_345);
    vec![
        (folder("base"), Vec::new()),
        (file("base/large", &large), large),
        (file("base/empty", &[]), Vec::new()),
        (file("base/zero", &[0; 70_000]), vec![0; 70_000]),
        (file("small", b"one"), b"one".to_vec()),
    ]
}

/// All of a file, by blocks.
fn read_back(pack: &Pack, number: usize) -> Result<Vec<u8>, PackError> {
    let mut bytes = vec![0; usize::try_from(pack.entries()[number].bytes()).unwrap()];
    let count = pack.contents().read_at(number, 0, &mut bytes)?;
    assert_eq!(count, bytes.len());
    Ok(bytes)
}

#[test]
fn what_is_packed_comes_back() {
    let files = sample();
    let dictionary = content(20_000);
    let methods = [Method::Raw, Method::Lz4, Method::Zstd(3)];
    let mut roots = Vec::new();
    for block_bytes in [4096, 16_384, 65_536, 1 << 20] {
        for (method, dictionary) in methods
            .map(|method| (method, Vec::new()))
            .into_iter()
            .chain([(Method::Zstd(1), dictionary.clone())])
        {
            let settings = Settings { block_bytes, method, dictionary };
            let pack = opened(&packed(&files, &settings)).unwrap();
            roots.push(pack.root());
            for (number, (entry, bytes)) in files.iter().enumerate() {
                let packed = &pack.entries()[number];
                assert_eq!((&packed.name, packed.attributes), (&entry.name, entry.attributes));
                assert!(read_back(&pack, number).unwrap() == *bytes, "{settings:?}");
                if let What::File { hash, .. } = packed.what {
                    assert_eq!(blake3::hash(bytes), hash);
                }
            }
            assert!(pack.report().unwrap().starts_with(b"{\"verdict\""));
        }
    }
    assert!(roots.iter().all(|root| *root == roots[0]), "the root is of what is in it");
}

#[test]
fn parts_are_read_from_anywhere() {
    let files = sample();
    let pack = opened(&packed(&files, &settings(16_384, Method::Zstd(3)))).unwrap();
    let large = &files[1].1;
    for (offset, count) in [(0, 1), (16_383, 2), (SPAN_BYTES - 5, 10), (1_500_000, 100_000)] {
        let mut bytes = vec![0; count];
        assert_eq!(pack.contents().read_at(1, offset as u64, &mut bytes).unwrap(), count);
        assert!(bytes == large[offset..offset + count]);
    }
    let mut bytes = [0; 10];
    let near_end = large.len() as u64 - 4;
    assert_eq!(pack.contents().read_at(1, near_end, &mut bytes).unwrap(), 4);
    assert_eq!(pack.contents().read_at(1, u64::MAX, &mut bytes).unwrap(), 0);
    assert_eq!(pack.contents().read_at(77, 0, &mut bytes).unwrap(), 0);
}

/// One that an earlier program made, of version 1.
#[test]
fn packs_of_version_1_are_still_read() {
    const ROOT: &str = "b99f8a62854d764495413501a547d81ea5d077921cc6b52eac491e9a36f13d81";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pack/1/shop.pwk");
    assert_eq!(fs::read(&path).unwrap()[8], 1);
    let pack = Pack::open(&path).unwrap();
    assert_eq!(pack.root().to_string(), ROOT);
    let What::File { hash, .. } = pack.entries()[0].what else { panic!("no file") };
    assert_eq!(blake3::hash(&read_back(&pack, 0).unwrap()), hash);
    assert_eq!(verdict(&path), Some(Verdict::Intact));
    let salvaged = Salvaged::open(&path.as_path().into(), &[]).unwrap();
    assert!(salvaged.has_table());
}

/// A delta to that, of version 2.
#[test]
fn deltas_of_version_2_are_still_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pack");
    let (path, base) = (fixtures.join("2/delta.pwk"), fixtures.join("1/shop.pwk"));
    assert_eq!(fs::read(&path).unwrap()[8], 2);
    let pack = open_chain(&path, &[base], Search::Named).unwrap();
    let What::File { hash, .. } = pack.entries()[0].what else { panic!("no file") };
    assert_eq!(blake3::hash(&read_back(&pack, 0).unwrap()), hash);
    assert_eq!((0..3).filter(|block| pack.lies_in_base(0, *block)).count(), 1);
}

/// A few kilobytes that would take gigabytes of memory.
#[test]
fn a_table_that_explodes_is_refused() {
    let whole = packed(&sample(), &settings(4096, Method::Raw));
    let footer = Footer::parse(&whole[whole.len() - FOOTER_BYTES..], whole.len() as u64).unwrap();
    let table = zstd::bulk::compress(&vec![0; 100 << 20], 3).unwrap();
    assert!(table.len() < 100_000);
    let mut forged = whole[..usize::try_from(footer.table.begin).unwrap()].to_vec();
    let begin = forged.len() as u64;
    forged.extend(&table);
    let stored_bytes = table.len() as u64;
    let section = layout::Section { begin, stored_bytes, bytes: 100 << 20, crc: crc(&table) };
    let report = layout::Section { begin: begin + stored_bytes, ..Default::default() };
    forged.extend(Footer { table: section, report, ..footer }.to_bytes());
    let error = opened(&forged).unwrap_err().to_string();
    assert!(error.contains("out of all proportion"), "{error}");
}

/// Two megabytes may not become a gigabyte, before the table's hash says that it is the one that
/// was written.
#[test]
fn a_table_takes_no_more_memory_than_its_pack_can_need() {
    let whole = packed(&sample(), &settings(4096, Method::Raw));
    let footer = Footer::parse(&whole[whole.len() - FOOTER_BYTES..], whole.len() as u64).unwrap();
    let begin = footer.table.begin;
    let head = &whole[..usize::try_from(begin).unwrap()];
    let stored = vec![7; 2 << 20];
    for (bytes, says) in [(1 << 30, "out of all proportion"), (64 << 20, "damaged")] {
        let (stored_bytes, crc) = (stored.len() as u64, crc(&stored));
        let table = layout::Section { begin, stored_bytes, bytes, crc };
        let report = layout::Section { begin: begin + stored_bytes, ..Default::default() };
        let end = Footer { table, report, ..footer }.to_bytes();
        let error = opened(&[head, &stored, &end].concat()).unwrap_err().to_string();
        assert!(error.contains(says), "{bytes}: {error}");
    }
}

/// The same of the report inside.
#[test]
fn a_report_that_explodes_is_refused() {
    let report = zstd::bulk::compress(&vec![b' '; 100 << 20], 3).unwrap();
    let whole = packed(&sample(), &settings(4096, Method::Raw));
    let footer = Footer::parse(&whole[whole.len() - FOOTER_BYTES..], whole.len() as u64).unwrap();
    let begin = footer.report.begin;
    let head = &whole[..usize::try_from(begin).unwrap()];
    for (bytes, says) in [(100 << 20, "out of all proportion"), (1000, "report")] {
        let stored_bytes = report.len() as u64;
        let section = layout::Section { begin, stored_bytes, bytes, crc: crc(&report) };
        let end = Footer { report: section, ..footer }.to_bytes();
        let pack = opened(&[head, &report, &end].concat()).unwrap();
        let error = pack.report().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A block that says it is long and expands to more than a block holds.
#[test]
fn a_block_that_explodes_is_damage() {
    let bytes = vec![b'x'; 4096];
    for method in [Method::Lz4, Method::Zstd(3)] {
        let larger = settings(1 << 20, method);
        let long = vec![b'x'; 1 << 20];
        let mut encoder = codec::Encoder::new(&larger).unwrap();
        let mut stored = Vec::new();
        let entry = encoder.encode(&long, &mut stored).unwrap();
        let mut out = bytes.clone();
        let mut decoder = codec::Decoder::new([].into());
        assert!(!decoder.decode(entry, &stored, &mut out), "{method:?}");
        assert!(decoder.decode(entry, &stored, &mut long.clone()), "{method:?}");
    }
}

/// What every program can read is written as the first one wrote it.
#[test]
fn a_pack_without_anything_new_is_of_version_1() {
    let whole = packed(&sample(), &settings(65_536, Method::Lz4));
    assert_eq!(layout::Header::parse(&whole).unwrap().version, 1);
    let mut files = sample();
    files[0].0.link = Some("/srv".into());
    let linked = packed(&files, &settings(65_536, Method::Lz4));
    assert_eq!(layout::Header::parse(&linked).unwrap().version, 2);
    assert_eq!(opened(&linked).unwrap().entries()[0].link.as_deref(), Some(Path::new("/srv")));
}

#[test]
fn a_missing_span_is_no_pack() {
    let writer = Writer::begin(Vec::new(), settings(65_536, Method::Raw), vec![file("a", b"abc")]);
    assert!(writer.unwrap().finish(b"{}").is_err());
}

/// What `check` says of a pack.
fn verdict(path: &Path) -> Option<Verdict> {
    // The cheapest to set up: it is done thousands of times.
    let options =
        Options { jobs: NonZero::<usize>::MIN, caching: Caching::Cached, ..Options::default() };
    let target = database::open(path, None).ok()?;
    Some(verify(target, &options, &(), &mut ()).unwrap().verdict())
}

/// Where the records of spans lie.
fn blocks_of(pack: &[u8]) -> std::ops::Range<usize> {
    let footer = Footer::parse(&pack[pack.len() - FOOTER_BYTES..], pack.len() as u64).unwrap();
    let begin = pack.windows(4).position(|word| word == b"SPAN").unwrap();
    begin..usize::try_from(footer.index).unwrap()
}

/// Some files that are soon read.
fn few() -> Vec<(Entry, Vec<u8>)> {
    let bytes = content(3_000);
    vec![
        (folder("d"), Vec::new()),
        (file("d/f", &bytes), bytes),
        (file("zero", &[0; 9000]), vec![0; 9000]),
    ]
}

/// The same, behind a link: packs of version 2.
fn few_behind_a_link() -> Vec<(Entry, Vec<u8>)> {
    let mut files = few();
    files[0].0.link = Some("/srv/d".into());
    files
}

/// Reads all that can be read of a pack, in both ways.
fn serves_no_wrong_byte(pack: Pack, files: &[(Entry, Vec<u8>)], case: &str) {
    for (number, (_, bytes)) in files.iter().enumerate() {
        if let Ok(read) = read_back(&pack, number) {
            assert!(read == *bytes, "{case}: a wrong byte was served");
        }
    }
    let alone = ReaderSettings { threads: 0, ..ReaderSettings::default() };
    let reader = Reader::new(Arc::new(pack), alone).unwrap();
    for (number, (_, bytes)) in files.iter().enumerate() {
        let mut out = vec![0; bytes.len()];
        if let Ok(count) = reader.read_at(number, 0, &mut out) {
            assert!(out[..count] == *bytes, "{case}: a wrong byte was served");
        }
    }
}

#[test]
fn any_byte_that_flips_is_found_and_none_is_served_wrong() {
    let folder = delta::place();
    let path = folder.path().join("x.pwk");
    let with_dictionary = Settings { dictionary: content(200), ..settings(8192, Method::Zstd(3)) };
    for (files, settings) in [
        (few(), settings(4096, Method::Lz4)),
        (few(), with_dictionary),
        (few_behind_a_link(), settings(4096, Method::Zstd(3))),
    ] {
        let whole = packed(&files, &settings);
        fs::write(&path, &whole).unwrap();
        assert_eq!(verdict(&path), Some(Verdict::Intact));
        let blocks = blocks_of(&whole);
        for at in 0..whole.len() {
            let mut pack = whole.clone();
            pack[at] ^= 1 << (at % 8);
            fs::write(&path, &pack).unwrap();
            let said = verdict(&path);
            // A block may be changed and expand to the very same.
            let is_harmless = blocks.contains(&at) && said == Some(Verdict::Intact);
            let is_seen = matches!(said, None | Some(Verdict::Damaged));
            assert!(is_seen || is_harmless, "byte {at}: {said:?}");
            let Ok(pack) = Pack::open(&path) else { continue };
            let entries = pack.entries().iter().map(|entry| (&entry.name, &entry.link));
            assert!(entries.eq(files.iter().map(|(entry, _)| (&entry.name, &entry.link))));
            serves_no_wrong_byte(pack, &files, &format!("byte {at}"));
        }
    }
}

#[test]
fn a_pack_that_was_cut_is_refused() {
    let bytes = content(20_000);
    for files in [vec![(file("f", &bytes), bytes)], few_behind_a_link()] {
        let whole = packed(&files, &settings(4096, Method::Zstd(3)));
        for length in 0..whole.len() {
            assert!(opened(&whole[..length]).is_err(), "{length}");
        }
        assert!(opened(&[whole.as_slice(), b"x"].concat()).is_err());
    }
}

/// The same pack with another footer, itself sound.
fn with_footer(pack: &[u8], change: impl FnOnce(&mut Footer)) -> Vec<u8> {
    let (head, end) = pack.split_at(pack.len() - FOOTER_BYTES);
    let mut footer = Footer::parse(end, pack.len() as u64).unwrap();
    change(&mut footer);
    [head, &footer.to_bytes()].concat()
}

#[test]
fn a_pack_that_claims_the_impossible_is_refused() {
    let bytes = content(20_000);
    let whole = packed(&[(file("f", &bytes), bytes)], &settings(4096, Method::Zstd(3)));
    let changes: [fn(&mut Footer); 7] = [
        |footer| footer.table.bytes = u64::MAX,
        |footer| footer.table.stored_bytes = u64::MAX,
        |footer| footer.table.begin = 1,
        |footer| footer.index = u64::MAX,
        |footer| footer.index = 0,
        |footer| footer.report.begin = 0,
        |footer| footer.root = [0; 32],
    ];
    for change in changes {
        assert!(opened(&with_footer(&whole, change)).is_err());
    }
    // A file of an exabyte in a pack of a few bytes.
    let mut huge = file("f", &[]);
    huge.what = What::File { bytes: 1 << 60, has_holes: true, hash: [0; 32] };
    let table = table::to_bytes(&[huge]);
    let stored = zstd::bulk::compress(&table, 3).unwrap();
    let at = whole.len() as u64;
    let mut forged = whole.clone();
    forged.extend(&stored);
    let report_at = forged.len() as u64;
    let end = Footer {
        index: at,
        table: layout::Section {
            begin: at,
            stored_bytes: stored.len() as u64,
            bytes: table.len() as u64,
            crc: crc(&stored),
        },
        report: layout::Section { begin: report_at, ..Default::default() },
        root: *blake3::hash(&table).as_bytes(),
    };
    forged.extend(end.to_bytes());
    assert!(matches!(opened(&forged), Err(PackError::Hostile(_))));
}

proptest! {
    #[test]
    fn anything_is_refused_or_read(mut bytes in prop::collection::vec(any::<u8>(), 0..3000), keep in any::<bool>()) {
        if keep {
            bytes.splice(0..0, BEGIN.bytes());
        }
        prop_assert!(opened(&bytes).is_err());
    }
}
