//! What is taken of packs that were cut or altered: never a wrong byte.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::delta::{delta, place};
use super::*;
use crate::pack::restore::{Places, Restoring};

fn salvage(path: &Path, out: &Path) -> Option<SalvagedFiles> {
    let salvaged = Salvaged::open(&path.into(), &[]).ok()?;
    fs::create_dir(out).unwrap();
    let places = Places::new(out.to_owned());
    let restoring = Restoring {
        pack: salvaged.pack(),
        places: &places,
        wanted: &|_| true,
        jobs: 1,
        rate: None,
        stop: &Default::default(),
        progress: &(),
    };
    Some(salvaged.restore(&restoring).unwrap())
}

/// Everything that was written is right, or a hole that is named.
fn is_right(out: &Path, files: &[(Entry, Vec<u8>)], found: &SalvagedFiles, case: &str) {
    let known: BTreeMap<PathBuf, &Vec<u8>> =
        files.iter().map(|(entry, bytes)| (entry.name.clone(), bytes)).collect();
    let (mut whole, mut partial) = (0, 0);
    for (entry, bytes) in files.iter().filter(|(entry, _)| entry.what != What::Folder) {
        if let Ok(written) = fs::read(out.join(&entry.name)) {
            assert!(written == *bytes, "{case}: {}", entry.name.display());
            whole += 1;
            continue;
        }
        let lost: Vec<_> = found.missing.iter().filter(|part| part.file == entry.name).collect();
        let name = format!("{}.partial", entry.name.display());
        let Ok(written) = fs::read(out.join(name)) else { continue };
        partial += 1;
        for (at, byte) in written.iter().enumerate() {
            let is_lost =
                |part: &&&Missing| (part.offset..part.offset + part.bytes).contains(&(at as u64));
            let expected = if lost.iter().any(|part| is_lost(&part)) { 0 } else { bytes[at] };
            assert_eq!(*byte, expected, "{case}: {} byte {at}", entry.name.display());
        }
    }
    assert_eq!((found.whole, found.partial), (whole, partial), "{case}");
    assert!(found.missing.iter().all(|part| known.contains_key(&part.file)), "{case}");
}

/// Bytes that shrink to little, so that there is little to flip.
fn words(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| b"page, block, segment, tuple. "[at % 29] ^ u8::from(at % 400 == 0))
        .collect()
}

fn small() -> Vec<(Entry, Vec<u8>)> {
    let bytes = content(500);
    let long = words(13_000);
    vec![
        (folder("d"), Vec::new()),
        (file("d/f", &bytes), bytes),
        (file("d/long", &long), long),
        (file("empty", &[]), Vec::new()),
        (file("zero", &[0; 9000]), vec![0; 9000]),
    ]
}

fn every_cut_and_flip(whole: &[u8], files: &[(Entry, Vec<u8>)], folder: &Path) {
    let path = folder.join("x.pwk");
    let out = folder.join("out");
    let header = layout::Header::parse(whole).unwrap();
    let records = usize::try_from(header.bytes()).unwrap() + header.dictionary_bytes as usize;
    let cuts = (0..whole.len()).map(|length| (None, whole[..length].to_vec()));
    let flips = (0..whole.len()).map(|at| {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << (at % 8);
        (Some(at), bytes)
    });
    let mut best = SalvagedFiles::default();
    for (at, bytes) in cuts.chain(flips) {
        let case = format!("flipped {at:?} of {}", bytes.len());
        fs::write(&path, bytes).unwrap();
        let Some(found) = salvage(&path, &out) else { continue };
        is_right(&out, files, &found, &case);
        // One bit costs a block at the most, but where all blocks depend on it.
        let lost: u64 = found.missing.iter().map(|part| part.bytes).sum();
        match at {
            Some(at) if at >= records => assert!(lost <= 8192, "{case}: {lost} bytes"),
            Some(_) => {}
            None => assert!(!found.problems.is_empty(), "{case}: it is not whole"),
        }
        if found.whole > best.whole {
            best = found;
        }
        fs::remove_dir_all(&out).unwrap();
    }
    let count = files.iter().filter(|(entry, _)| entry.what != What::Folder).count() as u64;
    assert_eq!(best.whole, count, "a pack without its last byte has all its blocks");
}

#[test]
fn no_cut_and_no_flipped_byte_makes_a_wrong_one() {
    let folder = place();
    for settings in [
        settings(4096, Method::Lz4),
        Settings { dictionary: content(200), ..settings(8192, Method::Zstd(3)) },
    ] {
        every_cut_and_flip(&packed(&small(), &settings), &small(), folder.path());
    }
}

#[test]
fn nor_does_one_of_a_delta() {
    let folder = place();
    let settings = settings(4096, Method::Lz4);
    let mut old = small();
    old[2].1[5000] ^= 7;
    let base = packed(&old, &settings);
    fs::write(folder.path().join("base.pwk"), &base).unwrap();
    let base = Arc::new(Pack::open(&folder.path().join("base.pwk")).unwrap());
    every_cut_and_flip(&delta(&small(), &settings, &base), &small(), folder.path());
}

#[test]
fn a_delta_without_its_base_gives_what_it_holds() {
    let folder = place();
    let settings = settings(4096, Method::Lz4);
    let mut old = small();
    old[2].1[5000] ^= 7;
    let base = Arc::new(opened(&packed(&old, &settings)).unwrap());
    let path = folder.path().join("x.pwk");
    fs::write(&path, delta(&small(), &settings, &base)).unwrap();
    let out = folder.path().join("out");
    let found = salvage(&path, &out).unwrap();
    is_right(&out, &small(), &found, "without a base");
    let written = fs::read(out.join("d/long.partial")).unwrap();
    assert!(written[4096..8192] == small()[2].1[4096..8192]);
    assert!(found.problems[0].contains(&base.root().to_string()), "{:?}", found.problems);
}

/// Names lead nowhere else here either.
#[test]
fn records_that_lead_elsewhere_are_passed_over() {
    let folder = place();
    let settings = settings(4096, Method::Raw);
    let whole = packed(&[(file("f", b"abc"), b"abc".to_vec())], &settings);
    let begin = usize::try_from(layout::Header::parse(&whole).unwrap().bytes()).unwrap();
    let target = folder.path().join("elsewhere");
    let absolute = target.to_str().unwrap();
    for name in ["../elsewhere", absolute, "a/../../elsewhere"] {
        let mut forged = whole[..begin].to_vec();
        forged.extend(layout::file_record(0, &file(name, b"abc").to_bytes(false)));
        forged.extend(&whole[blocks_of(&whole)]);
        let path = folder.path().join("x.pwk");
        fs::write(&path, forged).unwrap();
        let out = folder.path().join("out");
        let found = salvage(&path, &out);
        assert!(found.is_none_or(|found| (found.whole, found.partial) == (0, 0)), "{name}");
        let beside = fs::read_dir(folder.path()).unwrap().flatten();
        assert!(beside.map(|entry| entry.file_name()).all(|one| one == "x.pwk" || one == "out"));
        let _ = fs::remove_dir_all(&out);
    }
}

/// A record that claims an exabyte, or comes twice.
#[test]
fn records_that_claim_the_impossible_take_no_memory() {
    let folder = place();
    let mut huge = file("f", &[]);
    huge.what = What::File { bytes: 1 << 60, has_holes: true, hash: [0; 32] };
    let settings = settings(4096, Method::Raw);
    let whole = packed(&[(file("f", b"abc"), b"abc".to_vec())], &settings);
    let begin = usize::try_from(layout::Header::parse(&whole).unwrap().bytes()).unwrap();
    let mut forged = whole[..begin].to_vec();
    forged.extend(layout::file_record(0, &huge.to_bytes(false)));
    forged.extend(&whole[blocks_of(&whole)]);
    // Another pack's records, inside of what is stored: they are not come upon.
    forged.extend(layout::file_record(7, &huge.to_bytes(false)));
    let path = folder.path().join("x.pwk");
    fs::write(&path, forged).unwrap();
    let out = folder.path().join("out");
    let found = salvage(&path, &out).unwrap();
    assert_eq!((found.whole, found.partial), (0, 0));
    assert!(!found.missing.is_empty());
}
