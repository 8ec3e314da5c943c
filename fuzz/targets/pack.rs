//! Packs: arbitrary bytes, and a table, an index and blocks of arbitrary bytes in a
//! file whose sums fit: whole packs and deltas, read by their ends, and by their
//! records alone.
//!
//! The first byte: 1 bytes as they are, 2 the leaf's sum is wrong, 4 a delta, whose
//! base is a pack of one file "a" of 4,096 bytes, 8 the end is missing; the upper four
//! bits choose the size of blocks.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pagewarden::crc::crc64 as crc;
use pagewarden::pack::{
    BEGIN, Pack, Places, Restoring, Salvaged, Search, VERSION, VERSION_PLAIN, What, open_chain,
};
use pagewarden::source::store::StorePath;

/// More is not read at once, whatever the pack says of its files.
const READ_BYTES: usize = 1 << 20;
/// Nor is more written.
const WRITTEN_BYTES: u64 = 1 << 20;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut file = if mode & 1 == 0 { wrapped(*mode, bytes) } else { bytes.to_vec() };
    if mode & 8 != 0 {
        let half = file.len() / 2;
        file.truncate(half);
    }
    let mut place = tempfile::NamedTempFile::new().unwrap();
    place.write_all(&file).unwrap();
    salvage(place.path());
    let pack = match Pack::open(place.path()) {
        Ok(pack) => pack,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let _ = pack.report();
    read(&pack);
    if pack.base_root().is_some() {
        let (base, _) = base();
        if let Ok(chain) = open_chain(place.path(), std::slice::from_ref(base), Search::Named) {
            read(&chain);
        }
    }
}

fn read(pack: &Pack) {
    let mut contents = pack.contents();
    let mut out = vec![0; READ_BYTES];
    let mut span = Vec::new();
    for (number, entry) in pack.entries().iter().enumerate().take(100) {
        assert!(!entry.name.is_absolute());
        assert!(entry.link.as_ref().is_none_or(|link| link.is_absolute()));
        if let Ok(count) = contents.read_at(number, 0, &mut out) {
            assert!(count as u64 <= entry.bytes());
        }
        let _ = contents.read_at(number, entry.bytes() / 2, &mut out);
        if contents.span(number, 0, &mut span).is_ok() {
            assert!(span.len() as u64 <= entry.bytes());
        }
    }
}

/// Writes what is sound, where that is little.
fn salvage(path: &Path) {
    let (base, _) = base();
    let (path, named) = (StorePath::local(path), [StorePath::local(base)]);
    let Ok(salvaged) = Salvaged::open(&path, &[]).or_else(|_| Salvaged::open(&path, &named)) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let is_small = |bytes: u64| bytes <= WRITTEN_BYTES;
    let restored = salvaged.restore(&Restoring {
        pack: salvaged.pack(),
        places: &Places::new(out.clone()),
        wanted: &|entry| entry.link.is_none() && is_small(entry.bytes()),
        jobs: 1,
        rate: None,
        stop: &Default::default(),
        progress: &(),
    });
    // Names may be too long for the file system, or modes in the way.
    let Ok(files) = restored else { return };
    for entry in salvaged.pack().entries().iter().filter(|entry| entry.what != What::Folder) {
        let written = out.join(&entry.name);
        if entry.link.is_none() && is_small(entry.bytes()) && written.is_file() {
            assert_eq!(written.metadata().unwrap().len(), entry.bytes());
            assert!(files.missing.iter().all(|part| part.file != entry.name));
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "it stays where it was put");
}

/// A pack of one file "a", and its root.
fn base() -> &'static (PathBuf, [u8; 32]) {
    static BASE: OnceLock<(PathBuf, [u8; 32])> = OnceLock::new();
    BASE.get_or_init(|| {
        let content = [7_u8; 4096];
        let mut table = b"\x01\x01\x00a".to_vec();
        table.extend([0; 24]);
        table.extend(4096_u64.to_le_bytes());
        table.extend(blake3::hash(&content).as_bytes());
        let mut entry = (4096_u32 | 1 << 24).to_le_bytes().to_vec();
        entry.extend(crc(&content).to_le_bytes());
        let mut head = b"SPAN".to_vec();
        for number in [1_u32, 0, 0] {
            head.extend(number.to_le_bytes());
        }
        let sum = crc(&[head.as_slice(), &entry].concat());
        let blocks = [head.as_slice(), &sum.to_le_bytes(), &entry, &content].concat();
        let index = [&36_u64.to_le_bytes()[..], &entry].concat();
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_le_bytes();
        let input = [&length(&table)[..], &table, &length(&index), &index, &blocks].concat();
        let place = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(place.path(), wrapped(0, &input)).unwrap();
        let (_, path) = place.keep().unwrap();
        let pack = Pack::open(&path).unwrap();
        let mut read = vec![0; 4096];
        assert_eq!(pack.contents().read_at(0, 0, &mut read).unwrap(), 4096);
        assert!(read == content);
        (path, pack.root().0)
    })
}

/// A pack of these: two lengths, then a table, an index and blocks.
fn wrapped(mode: u8, bytes: &[u8]) -> Vec<u8> {
    let (table, rest) = cut(bytes);
    let (index, blocks) = cut(rest);
    let block_bytes = 4096_u32 << (mode >> 4 & 7);
    let version = if mode & 4 == 0 { VERSION_PLAIN } else { VERSION };
    let mut file = BEGIN.as_bytes().to_vec();
    for number in [version, block_bytes, 0] {
        file.extend(number.to_le_bytes());
    }
    file.extend(crc(&[]).to_le_bytes());
    if version > VERSION_PLAIN {
        file.extend(base().1);
    }
    file.extend(crc(&file).to_le_bytes());
    file.extend(blocks);
    let index_at = file.len() as u64;
    file.extend(index);
    if mode & 2 == 0 {
        file.extend(crc(index).to_le_bytes());
    }
    let stored = zstd::bulk::compress(table, 1).unwrap();
    let report = zstd::bulk::compress(b"{}", 1).unwrap();
    let table_at = file.len() as u64;
    let mut footer = index_at.to_le_bytes().to_vec();
    let report_at = table_at + stored.len() as u64;
    for (begin, stored, expanded) in [(table_at, &stored, table.len()), (report_at, &report, 2)] {
        for number in [begin, stored.len() as u64, expanded as u64, crc(stored)] {
            footer.extend(number.to_le_bytes());
        }
    }
    footer.extend(blake3::hash(table).as_bytes());
    footer.extend(crc(&footer).to_le_bytes());
    file.extend(stored);
    file.extend(report);
    file.extend(footer);
    file.extend(BEGIN.as_bytes());
    file
}

/// A length of two bytes, so much, and the rest.
fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return (&[], &[]) };
    let length = usize::from(u16::from_le_bytes(*length));
    rest.split_at_checked(length).unwrap_or((rest, &[]))
}
