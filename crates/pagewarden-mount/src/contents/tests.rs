//! A file against a plain vector, whatever is done to both.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagewarden::database;
use pagewarden::pack::{Content, Method, Pack, Packing, ReaderSettings, Settings, Strays};
use pagewarden::verify::{Options, verify};
use tempfile::TempDir;

use super::*;

/// A SQLite database, as far as its header goes.
pub(crate) fn database(pages: usize) -> Vec<u8> {
    let mut bytes = vec![0; pages * 4096];
    for (number, page) in bytes.chunks_mut(4096).enumerate().skip(1) {
        for (place, byte) in page.iter_mut().enumerate() {
            *byte = u8::try_from((number * 31 + place / 3) % 251).unwrap();
        }
    }
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    bytes[16..18].copy_from_slice(&4096_u16.to_be_bytes());
    bytes[18..24].copy_from_slice(&[1, 1, 0, 64, 32, 32]);
    bytes
}

pub(crate) fn packed(folder: &Path, bytes: &[u8]) -> Reader {
    let (source, path) = (folder.join("x.db"), folder.join("x.pwk"));
    fs::write(&source, bytes).unwrap();
    let content = Content::list(&source, Strays::Refused).unwrap();
    let settings =
        Settings { block_bytes: 16 << 10, method: Method::Zstd(1), dictionary: Vec::new() };
    let out = fs::File::create(&path).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let target = database::open(&source, None).unwrap();
    let (target, packing) = Packing::begin(target, content, settings, None, out, &stop).unwrap();
    verify(target, &Options::default(), &(), &mut ()).unwrap();
    packing.pack_rest(1, None, &()).unwrap();
    packing.finish(b"{}").unwrap();
    Reader::new(Arc::new(Pack::open(&path).unwrap()), ReaderSettings::default()).unwrap()
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }
}

/// As a plain file would.
fn write_plain(plain: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if plain.len() < offset + bytes.len() {
        plain.resize(offset + bytes.len(), 0);
    }
    plain[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn whatever_is_done_it_is_as_a_plain_file() {
    let folder = TempDir::new().unwrap();
    let original = database(200);
    let reader = packed(folder.path(), &original);
    for seed in 0..6 {
        let delta = Delta::new((seed % 2 == 0).then(|| folder.path()), 64 << 20).unwrap();
        let stores = Stores { reader: &reader, delta: &delta };
        let mut dice = Dice(seed);
        let (contents, mut plain) = if seed == 5 {
            (Contents::empty(9), Vec::new())
        } else {
            (Contents::packed(0, original.len() as u64), original.clone())
        };
        for step in 0..600 {
            let offset = dice.below(plain.len() + 30_000);
            match dice.below(10) {
                0 => {
                    let bytes = dice.below(plain.len() + 20_000);
                    contents.set_bytes(&delta, bytes as u64).unwrap();
                    plain.resize(bytes, 0);
                }
                1 => {
                    let end = offset + dice.below(30_000);
                    contents.allocate(&delta, offset as u64..end as u64).unwrap();
                    plain.resize(plain.len().max(end), 0);
                }
                kind @ 2..6 => {
                    let (offset, count) = match kind {
                        2 => (offset / 8192 * 8192, 8192),
                        3 => (offset / 4096 * 4096, 4096 * dice.below(20)),
                        _ => (offset, dice.below(20_000)),
                    };
                    // Zeroes take another way.
                    let byte = u8::try_from(dice.below(2) * (step % 255)).unwrap();
                    let bytes = vec![byte; count];
                    assert_eq!(contents.write(stores, offset as u64, &bytes).unwrap(), count);
                    if count > 0 {
                        write_plain(&mut plain, offset, &bytes);
                    }
                }
                _ => {
                    let mut out = vec![0xaa; dice.below(100_000)];
                    let count = contents.read(stores, offset as u64, &mut out).unwrap();
                    let expected = plain.get(offset..).unwrap_or_default();
                    let expected = &expected[..expected.len().min(out.len())];
                    assert!(out[..count] == *expected, "seed {seed}, step {step}, at {offset}");
                }
            }
            assert_eq!(contents.bytes(), plain.len() as u64, "seed {seed}, step {step}");
        }
        contents.discard(&delta);
        assert_eq!(delta.written().held_bytes, 0, "every slot is given back");
    }
}

#[test]
fn zeroes_behind_the_end_take_no_room() {
    let folder = TempDir::new().unwrap();
    let reader = packed(folder.path(), &database(4));
    let delta = Delta::new(None, 1 << 20).unwrap();
    let stores = Stores { reader: &reader, delta: &delta };
    let contents = Contents::empty(9);
    let zeroes = vec![0; 16 << 20];
    assert_eq!(contents.write(stores, 0, &zeroes).unwrap(), zeroes.len());
    assert_eq!((contents.bytes(), delta.written().held_bytes), (16 << 20, 0));
    let over = Contents::packed(0, 4 * 4096);
    assert_eq!(over.write(stores, 0, &zeroes[..8192]).unwrap(), 8192);
    let mut out = [1; 8192];
    over.read(stores, 0, &mut out).unwrap();
    assert!(out == [0; 8192], "zeroes over packed bytes are written");
}

#[test]
fn without_room_nothing_is_changed() {
    let folder = TempDir::new().unwrap();
    let original = database(50);
    let reader = packed(folder.path(), &original);
    let delta = Delta::new(None, 5 * 4096).unwrap();
    let stores = Stores { reader: &reader, delta: &delta };
    let contents = Contents::packed(0, original.len() as u64);
    let written = contents.write(stores, 4096, &[7; 10 * 4096]).unwrap();
    assert_eq!(written, 5 * 4096, "as much as there is room for");
    let refused = contents.write(stores, 40 * 4096 + 5, b"x");
    assert!(matches!(refused, Err(Unreadable::Delta(Errno::NOSPC))));
    let mut out = vec![0; original.len()];
    contents.read(stores, 0, &mut out).unwrap();
    let mut expected = original.clone();
    expected[4096..6 * 4096].fill(7);
    assert!(out == expected);
    contents.write(stores, 4096, b"there was room for this already").unwrap();
    contents.set_bytes(&delta, 0).unwrap();
    assert!(contents.write(stores, 0, &[1; 4096]).is_ok(), "a cut gives room back");
}
