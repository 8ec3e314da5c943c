//! Wounds of every kind, in databases of every history. What is called exact is compared with what was
//! there before, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    COMPRESSED, DIFFERENTIAL, FULL, LATER, PUBS, Place, TORN, brought_on, data_file, formatted,
    page, put_page, request, run, shut_down,
};
use crate::checksum::{PAGE_BYTES, Page, stamp_checksum};
use pagewarden_core::repair::{Proof, Request};
use pagewarden_core::testing::recorder::Dice;

/// A database as it was, and what it is repaired by.
struct History {
    name: &'static str,
    sound: Vec<u8>,
    sources: Vec<PathBuf>,
    accepts_older: bool,
}

#[derive(Debug, Default)]
struct Counts {
    wounded: usize,
    found: usize,
    exact: usize,
    by_itself: usize,
    older: usize,
    left: usize,
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn noise(dice: &mut Dice, bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = dice.any().to_le_bytes()[0]);
}

/// Damages a page in one of nine ways.
fn wound(file: &mut Vec<u8>, number: u64, others: &[u64], dice: &mut Dice) {
    let mut damaged: Page = page(file, number);
    let own = u32::try_from(number).unwrap();
    match dice.below(9) {
        0 => damaged = [0; PAGE_BYTES],
        1 => {
            let bit = dice.below(PAGE_BYTES * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        2 => {
            let bit = dice.below(96 * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        3 => {
            let sector = dice.below(16) * 512;
            noise(dice, &mut damaged[sector..sector + 512]);
        }
        4 => {
            let other = page(file, others[dice.below(others.len())]);
            damaged[PAGE_BYTES / 2..].copy_from_slice(&other[PAGE_BYTES / 2..]);
        }
        5 => {
            let other = others[dice.below(others.len())];
            let there = page(file, other);
            put_page(file, u32::try_from(other).unwrap(), &damaged);
            damaged = there;
        }
        6 => noise(dice, &mut damaged[..96]),
        7 => damaged = page(file, others[dice.below(others.len())]),
        _ => {
            let sector = dice.below(16) * 512;
            damaged[sector..sector + 512].fill(0);
        }
    }
    put_page(file, own, &damaged);
}

fn play(history: &History, rounds: u64) -> Counts {
    let mut counts = Counts::default();
    let mut dice = Dice(number("PAGEWARDEN_SEED", 0x5EED));
    let pages = formatted(&history.sound, 1);
    for _ in 0..rounds {
        let place = Place::new();
        let mut wounded = history.sound.clone();
        for _ in 0..=dice.below(12) {
            wound(&mut wounded, pages[dice.below(pages.len())], &pages, &mut dice);
        }
        let path = place.put("x.mdf", &wounded);
        let sources: Vec<&Path> = history.sources.iter().map(PathBuf::as_path).collect();
        let request = Request {
            write: true,
            copy_to: Some(place.path("copy")),
            accept_older: history.accepts_older,
            ..request(&path, &sources)
        };
        let outcome = run(&request).unwrap();
        assert!(fs::read(&path).unwrap() == wounded, "{}: the database was changed", history.name);
        let copy = fs::read(place.path("copy/x.mdf")).unwrap();
        assert_eq!(copy.len(), wounded.len());
        let compared = wounded.as_chunks::<PAGE_BYTES>().0.iter().zip(0_u64..);
        for (before, number) in compared {
            let (now, sound) = (page(&copy, number), page(&history.sound, number));
            counts.wounded += usize::from(*before != sound);
            let entry = outcome.pages.iter().find(|one| one.page == Some(number));
            let Some(entry) = entry else {
                assert!(now == *before, "{}: page {number} was not asked for", history.name);
                continue;
            };
            counts.found += 1;
            match entry.proof.filter(|_| entry.written) {
                Some(Proof::Exact) => {
                    assert!(now == sound, "{}: WRONG, page {number}: {entry:?}", history.name);
                    let is_itself = entry.source.as_deref() == Some("the page itself");
                    if is_itself { counts.by_itself += 1 } else { counts.exact += 1 }
                }
                Some(_) => counts.older += 1,
                None => {
                    assert!(now == *before, "{}: page {number} was written", history.name);
                    counts.left += 1;
                }
            }
        }
    }
    eprintln!("{}: {rounds} rounds, {counts:?}", history.name);
    counts
}

fn history(name: &'static str, sound: Vec<u8>, sources: &[&Path]) -> History {
    let sources = sources.iter().map(|path| path.to_path_buf()).collect();
    History { name, sound, sources, accepts_older: false }
}

#[test]
fn no_page_of_a_file_out_of_a_backup_is_ever_wrong() {
    let rounds = number("PAGEWARDEN_SEEDS", 12);
    for name in [FULL, LATER, PUBS, COMPRESSED, "products-full-2019.bak"] {
        let place = Place::new();
        let Some(backup) = place.put_fixture(name) else { return };
        let counts = play(&history(name, data_file(&backup), &[&backup]), rounds);
        // Nothing is exact in a round with a wound of the boot page, or one that no check finds.
        assert!(counts.exact * 10 > counts.found * 4, "{name}: {counts:?}");
    }
}

#[test]
fn map_of_changed_extents_never_makes_a_page_wrong() {
    let rounds = number("PAGEWARDEN_SEEDS", 12);
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let sound = brought_on(&full, &differential);
    let counts = play(&history("by the map", sound.clone(), &[&full]), rounds);
    assert!(counts.exact * 10 > counts.found * 3 && counts.left > 0, "{counts:?}");
    let both = history("by the map, both", sound.clone(), &[&full, &differential]);
    assert!(play(&both, rounds).exact > 0);
    let accepts = History { accepts_older: true, ..both };
    assert!(play(&accepts, rounds).older > 0);
    // The same, of a server that is not known to have ended.
    let mut running = sound;
    super::change(&mut running, 9, |boot| {
        let at = usize::from(u16::from_le_bytes([boot[8190], boot[8191]])) + 39;
        boot[at] &= !0x40;
    });
    assert_eq!(play(&history("crashed", running, &[&full]), rounds).exact, 0);
}

/// The data in a later full backup has a map that counts from that one, and names the one before.
#[test]
fn map_that_counts_from_a_later_backup_is_not_believed() {
    let rounds = number("PAGEWARDEN_SEEDS", 12);
    let place = Place::new();
    let (Some(full), Some(later)) = (place.put_fixture(FULL), place.put_fixture(LATER)) else {
        return;
    };
    let mut sound = data_file(&later);
    shut_down(&mut sound);
    let counts = play(&history("the map of a later backup", sound, &[&full]), rounds);
    assert_eq!(counts.exact, 0, "{counts:?}");
    let of_both = history("two backups", data_file(&later), &[&full, &later]);
    assert!(play(&of_both, rounds).exact > 0);
}

#[test]
fn torn_bits_make_nothing_exact() {
    let place = Place::new();
    let Some(backup) = place.put_fixture(TORN) else { return };
    let sound = data_file(&backup);
    let counts = play(&history("torn bits", sound, &[&backup]), number("PAGEWARDEN_SEEDS", 12));
    assert_eq!(counts.exact, 0, "{counts:?}");
}

/// The pages of a backup are damaged, too, in ways that their checksums show.
#[test]
fn damaged_pages_of_a_backup_are_never_taken() {
    let place = Place::new();
    let Some(backup) = place.put_fixture(FULL) else { return };
    let sound = data_file(&backup);
    let mut bytes = fs::read(&backup).unwrap();
    let mut dice = Dice(number("PAGEWARDEN_SEED", 0x5EED));
    for number in formatted(&sound, 1) {
        if dice.below(3) == 0 {
            let wanted = page(&sound, number);
            for at in (0..bytes.len() - PAGE_BYTES).step_by(512) {
                if bytes[at..at + PAGE_BYTES] == wanted {
                    let bit = dice.below(PAGE_BYTES * 8);
                    bytes[at + bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
    let damaged = place.put("damaged.bak", &bytes);
    let rounds = number("PAGEWARDEN_SEEDS", 12);
    let counts = play(&history("a damaged backup", sound.clone(), &[&damaged]), rounds);
    assert!(counts.left > 0, "{counts:?}");
    play(&history("a damaged backup and a sound one", sound, &[&damaged, &backup]), rounds);
}

/// Copies of the file: of the same shutdown, and of one that only looks like it.
#[test]
fn copies_of_the_file_never_make_a_page_wrong() {
    let rounds = number("PAGEWARDEN_SEEDS", 12);
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let sound = brought_on(&full, &differential);
    let copy = place.put("same/x.mdf", &sound);
    let counts = play(&history("a copy of the same shutdown", sound.clone(), &[&copy]), rounds);
    assert!(counts.exact > 0, "{counts:?}");
    // Every page of the copy has a row of its own, and the sum that belongs to it.
    let mut diverged = sound.clone();
    for (at, kept) in diverged.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().zip(0_u64..) {
        if kept > 9 && at[0] == 1 && at[5] & 2 != 0 {
            at[4000] ^= 0x5A;
            stamp_checksum(at);
        }
    }
    let diverged = place.put("diverged/x.mdf", &diverged);
    assert_eq!(
        play(&history("a copy that went its own way", sound, &[&diverged]), rounds).exact,
        0
    );
}
