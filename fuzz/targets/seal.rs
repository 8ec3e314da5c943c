//! Seals: arbitrary bytes, and an index and sections of arbitrary bytes in a file
//! whose beginning, end and root hash fit.

use std::io::Write as _;

use pagewarden::seal::{BEGIN, Sealed, VERSION};

/// Bytes of an entry of the index after the name.
const NUMBERS_BYTES: usize = 36;
/// Longer input is what the fuzzer makes, and no seal of it is larger.
const PAGES_MAX: usize = 1 << 16;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let file = if mode & 1 == 0 { wrapped(*mode, bytes) } else { bytes.to_vec() };
    let mut place = tempfile::NamedTempFile::new().unwrap();
    place.write_all(&file).unwrap();
    let sealed = match Sealed::open(place.path()) {
        Ok(sealed) => sealed,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for one in sealed.files.values() {
        if let Ok(pages) = sealed.pages(one) {
            assert_eq!(pages.len() as u64, one.pages);
            assert!(pages.len() <= PAGES_MAX);
        }
    }
}

/// What a seal is made of, from bytes: two lengths, then a header, an index and
/// what lies in front of it.
fn wrapped(mode: u8, bytes: &[u8]) -> Vec<u8> {
    const HEADER: &[u8] = br#"{"pagewarden":"0.1.0","format":"postgres","engine":"PostgreSQL 15","page_size":8192,"epoch":null,"made":1}"#;
    let (own_header, rest) = cut(bytes);
    let (index, sections) = cut(rest);
    let header = if mode & 2 == 0 { HEADER } else { own_header };
    let mut file = BEGIN.as_bytes().to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
    file.extend(header);
    let mut index = index.to_vec();
    if mode & 4 == 0 {
        // One file whose section is what the input has: LSNs, then hashes.
        let (lsns, hashes) = cut(sections);
        let lsns = zstd::bulk::compress(lsns, 1).unwrap();
        index.extend([1, 0, b'a']);
        let begin = file.len() as u64;
        for number in [0, 0, hashes.len() as u64 / 8, begin] {
            index.extend(number.to_le_bytes());
        }
        index.extend(u32::try_from(lsns.len()).unwrap().to_le_bytes());
        const _: () = assert!(NUMBERS_BYTES == 4 * 8 + 4);
        file.extend(lsns);
        file.extend(hashes);
    } else {
        file.extend(sections);
    }
    let begin = file.len() as u64;
    let packed = zstd::bulk::compress(&index, 1).unwrap();
    file.extend(if mode & 8 == 0 { &packed } else { &index });
    for number in [begin, 1, index.len() as u64] {
        file.extend(number.to_le_bytes());
    }
    let root = blake3::hash(&file);
    file.extend(root.as_bytes());
    file.extend(BEGIN.as_bytes());
    file
}

/// A piece whose length the first byte says, and the rest.
fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first() else { return (&[], &[]) };
    rest.split_at(rest.len().min(usize::from(*length)))
}
