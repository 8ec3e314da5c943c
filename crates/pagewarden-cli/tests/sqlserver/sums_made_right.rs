//! Wounds to the pages of real data files after which the sum is made right again, as a fault of memory or of
//! a server would leave them. Beside us a reader of another hand looks at the same files:
//! `wild/readers/indep.py` of the fixtures, for links, slots and IAM pages.
//!
//! `PAGEWARDEN_WOUNDS` says how many (120 if it is not set); `--nocapture` shows the table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page, stamp_checksum};

use super::{fixture, folder, u16_at, u32_at};
use crate::damage::Dice;
use crate::runner::check;

/// Cleanly shut down, with checksums.
const FILES: [&str; 4] = [
    "pubs-checksum-2008.mdf",
    "testdb-checksum-2014.mdf",
    "empty-checksum-2005.mdf",
    "nerddinner-stray-2008r2.mdf",
];
/// Files of one run.
const TOGETHER: usize = 40;
const DATA: u8 = 1;
const INDEX: u8 = 2;
const IAM: u8 = 10;
const CHECKSUM: u16 = 0x200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wound {
    /// A link leads to another allocated page.
    Link,
    /// One bit of level, index, links, fixed bytes, slots, object, free bytes.
    Header,
    /// One bit of a slot.
    Slot,
    /// One bit of the first four bytes of a record.
    RecordHeader,
    /// One bit anywhere in the records.
    Record,
    /// A record of an upper level leads to another allocated page.
    Child,
    /// One bit of the extents of an IAM page.
    Extents,
    /// A single page of an IAM page is another allocated page.
    Single,
    /// One of the bits for allocated, mixed, IAM page.
    FreeSpace,
    /// One bit of the map of free extents.
    Free,
    /// One bit of the map of mixed extents.
    Mixed,
    /// A page with rows lost its content.
    Emptied,
    /// Two pages with rows changed places, and their numbers with them.
    Swapped,
    /// The root or the first IAM page of a unit is another allocated page.
    Unit,
}

const WOUNDS: [Wound; 14] = [
    Wound::Link,
    Wound::Header,
    Wound::Slot,
    Wound::RecordHeader,
    Wound::Record,
    Wound::Child,
    Wound::Extents,
    Wound::Single,
    Wound::FreeSpace,
    Wound::Free,
    Wound::Mixed,
    Wound::Emptied,
    Wound::Swapped,
    Wound::Unit,
];

/// Wounds that at least one rule must see, however they fall.
const ALWAYS_SEEN: [Wound; 6] =
    [Wound::Link, Wound::Child, Wound::Extents, Wound::Single, Wound::FreeSpace, Wound::Swapped];

/// A file in memory.
struct Wounded {
    bytes: Vec<u8>,
    in_use: Vec<usize>,
}

impl Wounded {
    fn new(bytes: Vec<u8>) -> Self {
        let count = bytes.len() / PAGE_BYTES;
        let is_in_use = |page: &usize| bytes[PAGE_BYTES + 100 + page] & 0x40 != 0;
        Self { in_use: (0..count).filter(is_in_use).collect(), bytes }
    }

    fn page(&self, number: usize) -> &Page {
        self.bytes[number * PAGE_BYTES..].first_chunk().unwrap()
    }

    fn page_mut(&mut self, number: usize) -> &mut Page {
        self.bytes[number * PAGE_BYTES..].first_chunk_mut().unwrap()
    }

    fn put(&mut self, number: usize, at: usize, value: &[u8]) {
        let page = self.page_mut(number);
        page[at..at + value.len()].copy_from_slice(value);
        if u16_at(page, 4) & CHECKSUM != 0 {
            stamp_checksum(page);
        }
    }

    fn flip(&mut self, number: usize, at: usize, bit: usize) {
        let byte = self.page(number)[at] ^ 1 << bit;
        self.put(number, at, &[byte]);
    }

    /// One of the pages in use of which this is true.
    fn one(&self, dice: &mut Dice, is_it: impl Fn(&Page) -> bool) -> Option<usize> {
        let all: Vec<_> =
            self.in_use.iter().copied().filter(|number| is_it(self.page(*number))).collect();
        (!all.is_empty()).then(|| all[dice.within(0..all.len())])
    }

    /// An allocated page that is none of these.
    fn another(&self, dice: &mut Dice, not: &[u32]) -> [u8; 4] {
        loop {
            let page = self.in_use[dice.within(0..self.in_use.len())];
            let page = u32::try_from(page).unwrap();
            if page > 9 && !not.contains(&page) {
                return page.to_le_bytes();
            }
        }
    }

    /// Inflicts it; `None` where there is no such page.
    fn inflict(&mut self, wound: Wound, dice: &mut Dice) -> Option<String> {
        let bit = dice.within(0..8);
        let (number, at) = match wound {
            Wound::Link => {
                let number = self.one(dice, |page| {
                    has_rows(page) && (u32_at(page, 8), u32_at(page, 16)) != (0, 0)
                })?;
                let side = if self.page(number)[16..20] == [0; 4] { 8 } else { 16 };
                let now = u32_at(self.page(number), side);
                let value = self.another(dice, &[now]);
                self.put(number, side, &value);
                (number, side)
            }
            Wound::Header => {
                let number = self.one(dice, has_rows)?;
                let at = [3, 6, 8, 9, 14, 16, 17, 22, 24, 25, 28, 29, 30, 31][dice.within(0..14)];
                self.flip(number, at, bit);
                (number, at)
            }
            Wound::Slot => {
                let number = self.one(dice, |page| has_rows(page) && u16_at(page, 22) > 0)?;
                let slots = usize::from(u16_at(self.page(number), 22));
                let at = PAGE_BYTES - 1 - dice.within(0..2 * slots);
                self.flip(number, at, bit);
                (number, at)
            }
            Wound::RecordHeader | Wound::Record => {
                let number = self.one(dice, |page| has_rows(page) && u16_at(page, 22) > 0)?;
                let slots = usize::from(u16_at(self.page(number), 22));
                let slot = u16_at(self.page(number), PAGE_BYTES - 2 - 2 * dice.within(0..slots));
                let end = usize::from(u16_at(self.page(number), 30));
                let at = match wound {
                    Wound::RecordHeader => usize::from(slot).max(96) + dice.within(0..4),
                    _ => dice.within(96..end),
                };
                self.flip(number, at, bit);
                (number, at)
            }
            Wound::Child => {
                let number = self.one(dice, |page| page[1] == INDEX && page[3] > 0)?;
                let page = self.page(number);
                let slot = PAGE_BYTES - 2 - 2 * dice.within(0..usize::from(u16_at(page, 22)));
                let at = usize::from(u16_at(page, slot)) + usize::from(u16_at(page, 14)) - 6;
                let value = self.another(dice, &[u32_at(page, at)]);
                self.put(number, at, &value);
                (number, at)
            }
            Wound::Extents => {
                let number = self.one(dice, |page| page[1] == IAM && u16_at(page, 8188) == 190)?;
                let at = 194 + dice.within(0..self.bytes.len() / PAGE_BYTES / 64);
                self.flip(number, at, bit);
                (number, at)
            }
            Wound::Single => {
                let number = self.one(dice, |page| page[1] == IAM && page[142..146] != [0; 4])?;
                let value = self.another(dice, &[u32_at(self.page(number), 142)]);
                self.put(number, 142, &value);
                (number, 142)
            }
            Wound::FreeSpace => {
                let number = self.one(dice, has_rows)?;
                let at = 100 + number;
                self.flip(1, at, [4, 5, 6][dice.within(0..3)]);
                (1, at)
            }
            Wound::Free | Wound::Mixed => {
                let number = if wound == Wound::Free { 2 } else { 3 };
                let at = 194 + dice.within(0..self.bytes.len() / PAGE_BYTES / 64);
                self.flip(number, at, bit);
                (number, at)
            }
            Wound::Emptied => {
                let number = self.one(dice, |page| has_rows(page) && u16_at(page, 22) > 0)?;
                self.put(number, 96, &[0; PAGE_BYTES - 96]);
                (number, 96)
            }
            Wound::Swapped => {
                let first = self.one(dice, has_rows)?;
                let unit = self.page(first)[24..28].to_vec();
                let second = self.one(dice, |page| has_rows(page) && page[24..28] != unit)?;
                let (one, other) = (*self.page(first), *self.page(second));
                for (number, page) in [(first, other), (second, one)] {
                    *self.page_mut(number) = page;
                    self.put(number, 32, &u32::try_from(number).unwrap().to_le_bytes());
                }
                (first, second)
            }
            Wound::Unit => {
                let is_one = |page: &Page| page[1] == DATA && u32_at(page, 24) == 7 && page[6] == 0;
                let number = self.one(dice, is_one)?;
                let page = self.page(number);
                let slot = PAGE_BYTES - 2 - 2 * dice.within(0..usize::from(u16_at(page, 22)));
                let row = usize::from(u16_at(page, slot));
                let at = row + [33, 39][dice.within(0..2)];
                // Long values have no root, and what has no pages has nothing.
                if page[row + 12] != 1 || u32_at(page, at) == 0 {
                    return None;
                }
                let value = self.another(dice, &[u32_at(page, at)]);
                self.put(number, at, &value);
                (number, at)
            }
        };
        Some(format!("page {number}, byte {at}, bit {bit}"))
    }
}

fn has_rows(page: &Page) -> bool {
    matches!(page[1], DATA | INDEX)
}

/// The files of which something serious is said.
fn named(paths: &[PathBuf]) -> Vec<bool> {
    paths.iter().map(|path| !check([path]).report().serious().is_empty()).collect()
}

/// The files of which the other reader says anything; `None` where it is not here.
fn named_by_reader(reader: &Path, paths: &[PathBuf]) -> Option<Vec<bool>> {
    let output = Command::new("python3").arg(reader).args(paths).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), paths.len(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(
        lines
            .iter()
            .map(|line| !line.contains(" Counter() []") || line.starts_with("ERR"))
            .collect(),
    )
}

#[test]
fn wounds_with_right_sums_are_found_beside_another_reader() {
    let reader = folder().join("wild/readers/indep.py");
    let wanted = std::env::var("PAGEWARDEN_WOUNDS").ok().and_then(|text| text.parse().ok());
    let wanted: usize = wanted.unwrap_or(120);
    let mut sound = Vec::new();
    for name in FILES {
        let Some(bytes) = fixture(name) else { return };
        sound.push(bytes);
    }
    let mut dice = Dice::seeded();
    let mut counts: BTreeMap<Wound, [usize; 4]> = BTreeMap::new();
    let mut done = 0;
    while done < wanted {
        let folder = tempfile::tempdir().unwrap();
        let (mut paths, mut wounds) = (Vec::new(), Vec::new());
        while paths.len() < TOGETHER.min(wanted - done) {
            let mut file = Wounded::new(sound[dice.within(0..sound.len())].clone());
            let wound = WOUNDS[(done + paths.len()) % WOUNDS.len()];
            let Some(what) = file.inflict(wound, &mut dice) else { continue };
            let path = folder.path().join(format!("w{:03}.mdf", paths.len()));
            fs::write(&path, &file.bytes).unwrap();
            paths.push(path);
            wounds.push((wound, what));
        }
        done += paths.len();
        let by_us = named(&paths);
        let by_reader = named_by_reader(&reader, &paths).unwrap_or_else(|| {
            eprintln!("SKIPPED: no python3 for the other reader");
            vec![false; paths.len()]
        });
        for (at, (wound, what)) in wounds.iter().enumerate() {
            let is_missed = by_reader[at] && !by_us[at];
            let found = [true, by_us[at], by_reader[at], is_missed];
            let count = counts.entry(*wound).or_default();
            count.iter_mut().zip(found).for_each(|(count, found)| *count += usize::from(found));
            if !by_us[at] {
                println!("not found: {wound:?}, {what}");
            }
        }
    }
    println!("wound, all, found, by the other reader, by it alone");
    let mut all = [0; 4];
    for (wound, count) in &counts {
        println!("{wound:?} {count:?}");
        all.iter_mut().zip(count).for_each(|(all, count)| *all += count);
    }
    println!("all {all:?}");
    assert_eq!(all[3], 0, "found by the other reader alone: {counts:?}");
    for wound in ALWAYS_SEEN {
        let count = counts[&wound];
        assert_eq!(count[1], count[0], "{wound:?}: {count:?}");
    }
}
