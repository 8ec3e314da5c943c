//! Deltas and the chains they are read by.

use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::pack::layout::Header;
use crate::pack::restore::{Places, Restoring, restore};

/// A delta of these to a base.
pub(super) fn delta(files: &[(Entry, Vec<u8>)], settings: &Settings, base: &Arc<Pack>) -> Vec<u8> {
    let entries = files.iter().map(|(entry, _)| entry.clone()).collect();
    let base = Some(Arc::clone(base));
    let writer = Writer::begin_delta(Vec::new(), settings.clone(), entries, base).unwrap();
    let mut scratch = writer.scratch().unwrap();
    for (number, (_, bytes)) in files.iter().enumerate() {
        for (span, bytes) in bytes.chunks(SPAN_BYTES).enumerate() {
            writer.add(&mut scratch, number, span as u64, bytes).unwrap();
        }
    }
    writer.finish(br#"{"verdict": "intact"}"#).unwrap().0
}

/// Where small files cost the least.
pub(super) fn place() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The sample, some of it changed, cut, grown, gone and new.
fn changed() -> Vec<(Entry, Vec<u8>)> {
    let mut files = sample();
    let mut large = files[1].1.clone();
    large[700_000..700_100].fill(b'!');
    large.truncate(2 * SPAN_BYTES + 500);
    files[1] = (file("base/large", &large), large);
    files[3] = (file("base/zero", &[0; 90_000]), vec![0; 90_000]);
    files[4] = (file("smaller", b"one"), b"one".to_vec());
    files
}

fn whole_of(pack: &Pack, files: &[(Entry, Vec<u8>)]) {
    for (number, (entry, bytes)) in files.iter().enumerate() {
        assert_eq!(pack.entries()[number].name, entry.name);
        assert!(read_back(pack, number).unwrap() == *bytes, "{}", entry.name.display());
    }
}

#[test]
fn a_delta_holds_what_changed_and_is_read_by_its_chain() {
    let folder = place();
    for settings in [settings(16_384, Method::Zstd(3)), settings(65_536, Method::Lz4)] {
        let first = write(folder.path(), "a.pwk", &packed(&sample(), &settings));
        let base = Arc::new(Pack::open(&first).unwrap());
        let bytes = delta(&changed(), &settings, &base);
        let second = write(folder.path(), "b.pwk", &bytes);
        let alone = Pack::open(&second).unwrap();
        assert_eq!(alone.base_root(), Some(base.root()));
        assert!(alone.lacks_base());
        // Two of the blocks, and what was never there before.
        assert!(bytes.len() < 2 * settings.block_bytes as usize + 10_000, "{}", bytes.len());
        assert!(
            matches!(read_back(&alone, 1), Err(PackError::NoBase(root)) if root == base.root())
        );
        let chain = open_chain(&second, &[], Search::Beside).unwrap();
        whole_of(&chain, &changed());
        // And one that builds on the delta, at another codec.
        let mut files = changed();
        files[4].1 = b"two".to_vec();
        let other = Settings { method: Method::Raw, ..settings.clone() };
        let third = write(folder.path(), "c.pwk", &delta(&files, &other, &Arc::new(chain)));
        let chain = open_chain(&third, &[second, first], Search::Named).unwrap();
        assert_eq!(chain.chain_length(), 2);
        whole_of(&chain, &files);
        // By several threads, ahead of a scan.
        let reader = Reader::new(Arc::new(chain), ReaderSettings::default()).unwrap();
        for (number, (entry, bytes)) in files.iter().enumerate() {
            let mut out = vec![0; bytes.len()];
            assert_eq!(reader.read_at(number, 0, &mut out).unwrap(), bytes.len());
            assert!(out == *bytes, "{}", entry.name.display());
        }
    }
}

/// Deltas are of the content: nothing of a pack that was thrown away stays behind.
#[test]
fn nothing_changed_is_nothing_stored_and_the_root_is_the_same() {
    let folder = place();
    let settings = settings(16_384, Method::Zstd(3));
    let first = write(folder.path(), "a.pwk", &packed(&sample(), &settings));
    let base = Arc::new(Pack::open(&first).unwrap());
    let bytes = delta(&sample(), &settings, &base);
    let second = write(folder.path(), "b.pwk", &bytes);
    assert_eq!(Pack::open(&second).unwrap().root(), base.root());
    // Its own root is that of its base: it is not taken for that.
    whole_of(&open_chain(&second, &[], Search::Beside).unwrap(), &sample());
    fs::remove_file(first).unwrap();
    assert!(open_chain(&second, &[], Search::Beside).is_err());
}

/// Two blocks with one sum: the bytes decide.
#[test]
fn a_sum_that_is_the_same_is_not_believed() {
    let settings = settings(4096, Method::Raw);
    let one = content(4096);
    // What is added to a message leaves a CRC as it is where it is a multiple of the
    // polynomial: found by elimination over the last 128 bits.
    let other = with_the_same_sum(&one);
    assert_eq!(crc(&one), crc(&other));
    assert_ne!(one, other);
    let base = opened(&packed(&[(file("f", &one), one.clone())], &settings)).unwrap();
    let base_bytes = packed(&[(file("f", &one), one)], &settings);
    let files = [(file("f", &other), other)];
    let folder = place();
    write(folder.path(), "a.pwk", &base_bytes);
    let second = write(folder.path(), "b.pwk", &delta(&files, &settings, &Arc::new(base)));
    whole_of(&open_chain(&second, &[], Search::Beside).unwrap(), &files);
}

fn with_the_same_sum(bytes: &[u8]) -> Vec<u8> {
    let flipped = |bit: usize| {
        let mut copy = bytes.to_vec();
        copy[bit / 8] ^= 1 << (bit % 8);
        copy
    };
    let plain = crc(bytes);
    // Rows of a basis: what a set of flipped bits changes of the sum, and the set.
    let mut basis: Vec<(u64, u128)> = Vec::new();
    for bit in 0..128 {
        let (mut change, mut set) = (crc(&flipped(bit)) ^ plain, 1_u128 << bit);
        for (other, its) in &basis {
            if change ^ other < change {
                change ^= other;
                set ^= its;
            }
        }
        if change == 0 {
            let mut copy = bytes.to_vec();
            for bit in (0..128).filter(|bit| set >> bit & 1 == 1) {
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            return copy;
        }
        basis.push((change, set));
        basis.sort_unstable_by_key(|(change, _)| std::cmp::Reverse(*change));
    }
    unreachable!("65 changes of 64 bits depend on one another")
}

#[test]
fn another_base_is_refused_by_both_roots() {
    let folder = place();
    let settings = settings(16_384, Method::Zstd(3));
    let first = write(folder.path(), "a.pwk", &packed(&sample(), &settings));
    let other = write(folder.path(), "other.pwk", &packed(&changed()[..4], &settings));
    let base = Arc::new(Pack::open(&first).unwrap());
    let second = write(folder.path(), "b.pwk", &delta(&changed(), &settings, &base));
    let refused = open_chain(&second, std::slice::from_ref(&other), Search::Named).unwrap_err();
    let message = refused.to_string();
    let roots = [base.root(), Pack::open(&other).unwrap().root()];
    assert!(roots.iter().all(|root| message.contains(&root.to_string())), "{message}");
    assert!(open_chain(&first, &[other], Search::Named).is_err(), "it builds on none");
}

#[test]
fn a_damaged_base_is_refused_while_packing_and_while_reading() {
    let folder = place();
    let settings = settings(16_384, Method::Raw);
    let whole = packed(&sample(), &settings);
    let first = write(folder.path(), "a.pwk", &whole);
    let base = Arc::new(Pack::open(&first).unwrap());
    let second = write(folder.path(), "b.pwk", &delta(&changed(), &settings, &base));
    let mut damaged = whole.clone();
    damaged[blocks_of(&whole).end - 1000] ^= 1;
    write(folder.path(), "a.pwk", &damaged);
    let chain = open_chain(&second, &[], Search::Beside).unwrap();
    let failed: Vec<_> =
        (0..changed().len()).filter_map(|number| read_back(&chain, number).err()).collect();
    assert!(matches!(failed[..], [PackError::Base { .. }]), "{failed:?}");

    let base = Some(Arc::new(Pack::open(&first).unwrap()));
    let files = sample();
    let entries = files.iter().map(|(entry, _)| entry.clone()).collect();
    let writer = Writer::begin_delta(Vec::new(), settings, entries, base).unwrap();
    let mut scratch = writer.scratch().unwrap();
    let spans = files[1].1.chunks(SPAN_BYTES).enumerate();
    let added: Vec<_> =
        spans.map(|(span, bytes)| writer.add(&mut scratch, 1, span as u64, bytes)).collect();
    let error = added.into_iter().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("in its base"), "{error}");
}

#[test]
fn any_byte_of_a_delta_that_flips_or_is_missing_serves_no_wrong_byte() {
    let folder = place();
    let settings = settings(4096, Method::Lz4);
    let old = content(4_500);
    let mut new = old.clone();
    new[4200] = b'!';
    let first = packed(&[(file("f", &old), old)], &settings);
    let first = write(folder.path(), "a.pwk", &first);
    let base = Arc::new(Pack::open(&first).unwrap());
    let files = [(file("f", &new), new)];
    let whole = delta(&files, &settings, &base);
    let path = write(folder.path(), "b.pwk", &whole);
    assert_eq!(verdict(&path), Some(Verdict::Intact));
    let blocks = blocks_of(&whole);
    let flips = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        (Some(at), bytes)
    });
    let cuts = (0..whole.len()).map(|length| (None, whole[..length].to_vec()));
    for (at, bytes) in flips.chain(cuts) {
        write(folder.path(), "b.pwk", &bytes);
        let said = verdict(&path);
        let is_harmless =
            at.is_some_and(|at| blocks.contains(&at)) && said == Some(Verdict::Intact);
        assert!(matches!(said, None | Some(Verdict::Damaged)) || is_harmless, "{at:?}: {said:?}");
        let Ok(chain) = open_chain(&path, std::slice::from_ref(&first), Search::Named) else {
            continue;
        };
        assert!(at.is_some(), "what was cut is refused");
        serves_no_wrong_byte(chain, &files, &format!("byte {at:?}"));
    }
}

/// The same pack with another base.
fn with_base(pack: &[u8], root: Root) -> Vec<u8> {
    let header = Header { base: Some(root.0), ..Header::parse(pack).unwrap() };
    assert_eq!(header.version, 2);
    let bytes = header.to_bytes();
    [&bytes, &pack[bytes.len()..]].concat()
}

#[test]
fn chains_that_lead_round_in_circles_are_refused() {
    let folder = place();
    let settings = settings(4096, Method::Lz4);
    let first = packed(&sample(), &settings);
    let base = Arc::new(opened(&first).unwrap());
    let one = delta(&changed(), &settings, &base);
    let one_root = opened(&one).unwrap().root();
    // Each names the other, or itself.
    let two = with_base(&delta(&sample(), &settings, &base), one_root);
    let loops = [("one.pwk", one.clone()), ("two.pwk", two)];
    for (name, bytes) in &loops {
        write(folder.path(), name, bytes);
    }
    let paths: Vec<PathBuf> = loops.iter().map(|(name, _)| folder.path().join(name)).collect();
    for path in &paths {
        assert!(open_chain(path, &[], Search::Beside).is_err());
        let named = open_chain(path, &paths, Search::Named).unwrap_err();
        assert!(named.to_string().contains("comes back"), "{named}");
    }
    let own = write(folder.path(), "own.pwk", &with_base(&one, one_root));
    assert!(open_chain(&own, &[], Search::Beside).is_err() || paths.len() > 1);
    assert!(open_chain(&own, std::slice::from_ref(&own), Search::Named).is_err());
}

/// What builds on a block that its base does not have, or has otherwise.
#[test]
fn what_the_base_does_not_have_is_damage() {
    let folder = place();
    let settings = settings(4096, Method::Lz4);
    let base = Arc::new(opened(&packed(&sample(), &settings)).unwrap());
    let one = delta(&changed(), &settings, &base);
    let other_files = [(file("base", b"x"), b"x".to_vec())];
    let other = packed(&other_files, &settings);
    let root = opened(&other).unwrap().root();
    write(folder.path(), "other.pwk", &other);
    let path = write(folder.path(), "one.pwk", &with_base(&one, root));
    let chain = open_chain(&path, &[], Search::Beside).unwrap();
    assert!(matches!(read_back(&chain, 1), Err(PackError::Base { .. })));
}

/// A forger can make sums fit, and the hash of the file does not.
#[test]
fn blocks_that_overlap_are_never_unpacked() {
    let folder = place();
    let settings = settings(65_536, Method::Raw);
    let mut bytes = content(2 * SPAN_BYTES);
    bytes[SPAN_BYTES..].reverse();
    let files = [(file("f", &bytes), bytes)];
    let mut forged = packed(&files, &settings);
    let footer =
        Footer::parse(&forged[forged.len() - FOOTER_BYTES..], forged.len() as u64).unwrap();
    let index = usize::try_from(footer.index).unwrap();
    let span = 8 + (SPAN_BYTES / 65_536) * 12;
    // The second span begins where the first does.
    forged.copy_within(index..index + span, index + span);
    let sum = crc(&forged[index..index + 2 * span]);
    forged[index + 2 * span..index + 2 * span + 8].copy_from_slice(&sum.to_le_bytes());
    let path = write(folder.path(), "x.pwk", &forged);
    assert_eq!(verdict(&path), Some(Verdict::Damaged));
    let pack = Pack::open(&path).unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let restored = restore(&Restoring {
        pack: &pack,
        places: &Places::new(out),
        wanted: &|_| true,
        jobs: 2,
        rate: None,
        stop: &Default::default(),
        progress: &(),
    });
    assert!(restored.is_err());
}

/// What an interrupted run has left is kept where it is sound, and only there.
#[test]
fn what_is_there_already_is_not_written_again() {
    let folder = place();
    let files = sample();
    let path = write(folder.path(), "x.pwk", &packed(&files, &settings(16_384, Method::Zstd(3))));
    let pack = Pack::open(&path).unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let again = || {
        restore(&Restoring {
            pack: &pack,
            places: &Places::new(out.clone()),
            wanted: &|_| true,
            jobs: 2,
            rate: None,
            stop: &Default::default(),
            progress: &(),
        })
        .unwrap()
    };
    assert_eq!(again().kept_bytes, 0);
    let all = pack.entries().iter().map(Entry::bytes).sum::<u64>();
    assert_eq!(again().kept_bytes, all);
    // A span that was half written, a file that is longer, one that is cut.
    let large = out.join("base/large");
    let mut bytes = fs::read(&large).unwrap();
    bytes[SPAN_BYTES + 7] ^= 1;
    bytes.extend([1; 100]);
    fs::write(&large, bytes).unwrap();
    fs::write(out.join("small"), b"o").unwrap();
    fs::write(out.join("base/zero"), [7; 100]).unwrap();
    assert_eq!(again().kept_bytes, all - SPAN_BYTES as u64 - 3 - 70_000);
    for (entry, bytes) in files.iter().filter(|(entry, _)| entry.what != What::Folder) {
        assert!(fs::read(out.join(&entry.name)).unwrap() == *bytes, "{}", entry.name.display());
    }
}
