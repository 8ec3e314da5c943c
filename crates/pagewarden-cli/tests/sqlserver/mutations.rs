//! Seeded damage to every page of every real data file and of every backup that is not packed,
//! compared with a plain reckoning of what checksum and torn bits can see. What they cannot, a
//! seal of the same state shows.
//!
//! `PAGEWARDEN_SEEDS` says how often each kind is drawn (2 if it is not set), `PAGEWARDEN_SEED`
//! where that begins. `--nocapture` shows the table.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use pagewarden::database::{self, Description, Epoch, OpenOptions, Target};
use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page, SECTOR_BYTES, SECTOR_COUNT};
use pagewarden::seal::{Against, Header, Sealed, Sealing};
use pagewarden::verdict::{Note, Unread};
use pagewarden::verify::{Caching, Options, Sink, verify};

use super::{Copy, DATA_FILES, Random, fixture, found, page_of, u16_at, u32_at};
use crate::runner::Finding;

/// Those that are read as they lie; pages of the other are packed.
const BACKUPS: [&str; 5] = [
    "das-verifynone-2sets-2008r2.bak",
    "northwind-stripe2of2-torn-2008r2.bak",
    "products-full-2019.bak",
    "pubs-full-2012.bak",
    "test-2datafiles-2016.bak",
];
const HEADER: usize = 96;
const CHECKSUM: u16 = 0x200;
const TORN: u16 = 0x100;

/// What is done to a page; true if that changed it.
pub type Damage = fn(&mut Page, &mut Random) -> bool;

/// Whether damage that changed a page is seen: for sure, never, or as it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Always,
    Never,
    AsItHappens,
}

/// The damage, and what checksum and torn bits see of it by theory.
pub const TABLE: [(&str, Damage, Seen, Seen); 9] = [
    ("one flipped bit", one_bit, Seen::Always, Seen::AsItHappens),
    ("two flipped bits", two_bits, Seen::AsItHappens, Seen::AsItHappens),
    ("a sector of noise", noise, Seen::Always, Seen::AsItHappens),
    ("a sector of zeroes", zeroes, Seen::AsItHappens, Seen::Always),
    ("a sector of ones", ones, Seen::AsItHappens, Seen::Always),
    ("two sectors that changed places", swapped_sectors, Seen::Always, Seen::Never),
    ("two words that changed places in a sector", swapped_words, Seen::Never, Seen::AsItHappens),
    ("two bits of one column", one_column, Seen::Never, Seen::AsItHappens),
    ("4 KiB of other content", other_half, Seen::AsItHappens, Seen::AsItHappens),
];

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("PAGEWARDEN_SEED").unwrap_or(0);
    first..first + number("PAGEWARDEN_SEEDS").unwrap_or(2)
}

/// Anywhere but in the header, which has rules of its own.
fn somewhere(random: &mut Random) -> usize {
    HEADER + random.below(PAGE_BYTES - HEADER)
}

fn sector(random: &mut Random) -> std::ops::Range<usize> {
    let begin = (1 + random.below(SECTOR_COUNT - 1)) * SECTOR_BYTES;
    begin..begin + SECTOR_BYTES
}

fn one_bit(page: &mut Page, random: &mut Random) -> bool {
    page[somewhere(random)] ^= 1 << random.below(8);
    true
}

fn two_bits(page: &mut Page, random: &mut Random) -> bool {
    let before = *page;
    one_bit(page, random);
    one_bit(page, random);
    *page != before
}

fn noise(page: &mut Page, random: &mut Random) -> bool {
    page[sector(random)].fill_with(|| random.next() as u8);
    true
}

fn filled(page: &mut Page, random: &mut Random, byte: u8) -> bool {
    let before = *page;
    page[sector(random)].fill(byte);
    *page != before
}

fn zeroes(page: &mut Page, random: &mut Random) -> bool {
    filled(page, random, 0)
}

fn ones(page: &mut Page, random: &mut Random) -> bool {
    filled(page, random, 0xFF)
}

fn swapped_sectors(page: &mut Page, random: &mut Random) -> bool {
    let (first, second) = (sector(random), sector(random));
    let before = *page;
    page.copy_within(first.clone(), second.start);
    page[first].copy_from_slice(&before[second]);
    *page != before
}

fn swapped_words(page: &mut Page, random: &mut Random) -> bool {
    let begin = sector(random).start;
    let words = [random.below(128), random.below(128)].map(|word| begin + 4 * word);
    let before = *page;
    page[words[0]..words[0] + 4].copy_from_slice(&before[words[1]..words[1] + 4]);
    page[words[1]..words[1] + 4].copy_from_slice(&before[words[0]..words[0] + 4]);
    *page != before
}

fn one_column(page: &mut Page, random: &mut Random) -> bool {
    let begin = sector(random).start;
    let (first, byte, bit) = (random.below(128), random.below(4), random.below(8));
    let second = (first + 1 + random.below(127)) % 128;
    page[begin + 4 * first + byte] ^= 1 << bit;
    page[begin + 4 * second + byte] ^= 1 << bit;
    true
}

/// As of another page: what lay in the sectors of the second half lies in other ones of it.
fn other_half(page: &mut Page, random: &mut Random) -> bool {
    let before = *page;
    let half = PAGE_BYTES / 2;
    let turn = SECTOR_BYTES * (1 + random.below(SECTOR_COUNT / 2 - 1)) + 4 * random.below(128);
    page[half..].rotate_left(turn);
    *page != before
}

/// The checksum as it is written down.
fn reckoned(page: &Page) -> u32 {
    (0..SECTOR_COUNT).fold(0_u32, |sum, sector| {
        let words = (0..128).map(|word| sector * SECTOR_BYTES + 4 * word);
        let folded = words.filter(|at| *at != 60).fold(0, |folded, at| folded ^ u32_at(page, at));
        sum.rotate_left(1) ^ folded
    })
}

pub fn is_sound(page: &Page) -> bool {
    match u16_at(page, 4) & (CHECKSUM | TORN) {
        CHECKSUM => u32_at(page, 60) == reckoned(page),
        TORN => {
            let pattern = page[60] & 3;
            (1..SECTOR_COUNT).all(|sector| page[sector * SECTOR_BYTES + 511] & 3 == pattern)
        }
        _ => true,
    }
}

/// The pages of a file that carry something to test, by what they carry.
pub fn protected(bytes: &[u8]) -> Vec<(u64, u16)> {
    let file = u16_at(bytes, 36);
    let pages = bytes.chunks_exact(PAGE_BYTES).zip(0..);
    pages
        .filter(|(page, number)| {
            page[0] == 1 && u64::from(u32_at(page, 32)) == *number && u16_at(page, 36) == file
        })
        .map(|(page, number)| (number, u16_at(page, 4) & (CHECKSUM | TORN)))
        .filter(|(_, flags)| *flags != 0)
        .collect()
}

/// A page that carries something to test.
#[derive(Debug, Clone, Copy)]
struct Protected {
    /// Its place in the file.
    offset: usize,
    number: u64,
    flags: u16,
}

/// Those of a data file, but for the ones that say what the others are: where these change
/// unseen, sound pages may seem to be in the wrong.
fn of_data_file(bytes: &[u8]) -> Vec<Protected> {
    let pages = protected(bytes).into_iter().filter(|(number, _)| *number > 15);
    pages
        .map(|(number, flags)| Protected { offset: number as usize * PAGE_BYTES, number, flags })
        .collect()
}

/// The same of a backup: whole extents behind two bytes of each data stream.
fn of_backup(bytes: &[u8]) -> Vec<Protected> {
    const STREAM_HEADER: usize = 22;
    let is_stream = |at: &usize| {
        let header = &bytes[*at..(*at + STREAM_HEADER).min(bytes.len())];
        let xor = header.chunks_exact(2).fold(0, |sum, word| sum ^ u16_at(word, 0));
        header.starts_with(b"MQDA") && xor == 0
    };
    let mut pages = Vec::new();
    for at in (0..bytes.len()).step_by(4).filter(is_stream) {
        let length = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap()) as usize;
        let begin = at + STREAM_HEADER + 2;
        for offset in (begin..at + STREAM_HEADER + length).step_by(PAGE_BYTES) {
            let page: &Page = bytes[offset..offset + PAGE_BYTES].try_into().unwrap();
            let number = u64::from(u32_at(page, 32));
            let flags = u16_at(page, 4) & (CHECKSUM | TORN);
            let is_in_its_slot = number as usize % 8 == (offset - begin) / PAGE_BYTES % 8;
            if page[0] == 1 && flags != 0 && is_in_its_slot && is_sound(page) && number > 15 {
                pages.push(Protected { offset, number, flags });
            }
        }
    }
    assert!(pages.len() > 80, "{}", pages.len());
    pages
}

/// How much of one kind of damage was seen.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    files: u32,
    /// Pages that were changed, and those of them that were seen: by checksum, by torn bits.
    changed: [usize; 2],
    seen: [usize; 2],
    by_seal: usize,
}

fn print(tallies: &[Tally]) {
    eprintln!("{:<44}{:>7}{:>16}{:>16}{:>9}", "damage", "files", "CHECKSUM", "TORN", "by seal");
    for ((what, ..), tally) in TABLE.iter().zip(tallies) {
        let of = |which: usize| format!("{}/{}", tally.seen[which], tally.changed[which]);
        eprintln!("{what:<44}{:>7}{:>16}{:>16}{:>9}", tally.files, of(0), of(1), tally.by_seal);
    }
}

/// Damages every page of a copy; says which were changed and which of those must be seen.
fn inflict(
    row: usize,
    pages: &[Protected],
    damaged: &mut [u8],
    random: &mut Random,
    tally: &mut Tally,
) -> [BTreeSet<usize>; 2] {
    let (what, damage, by_checksum, by_torn_bits) = TABLE[row];
    let [mut all_changed, mut all_seen] = [BTreeSet::new(), BTreeSet::new()];
    for Protected { offset, number, flags } in pages {
        let page: &mut Page = (&mut damaged[*offset..offset + PAGE_BYTES]).try_into().unwrap();
        let before = *page;
        damage(page, random);
        let (changed, seen) = (*page != before, !is_sound(page));
        let which = usize::from(*flags == TORN);
        match [by_checksum, by_torn_bits][which] {
            // A page whose sectors are alike is not changed by all of it.
            Seen::Always => assert!(seen || !changed, "page {number}: {what}"),
            Seen::Never => assert!(!seen, "page {number}: {what}"),
            Seen::AsItHappens => {}
        }
        tally.changed[which] += usize::from(changed);
        tally.seen[which] += usize::from(seen);
        all_changed.extend(changed.then_some(*offset));
        all_seen.extend(seen.then_some(*offset));
    }
    tally.files += 1;
    [all_changed, all_seen]
}

/// The places of a report's findings of at least suspicion.
fn places(report: &crate::runner::Report) -> BTreeSet<usize> {
    report.serious().iter().filter_map(|finding| finding.offset).map(|at| at as usize).collect()
}

#[test]
fn damage_to_content_is_found_exactly_where_theory_says() {
    let mut tallies = [Tally::default(); TABLE.len()];
    for name in DATA_FILES.into_iter().chain(BACKUPS) {
        let Some(bytes) = fixture(name) else { return };
        let is_backup = name.ends_with("bak");
        let pages = if is_backup { of_backup(&bytes) } else { of_data_file(&bytes) };
        let copy = Copy::of(name, &bytes);
        let seal = copy.beside("seal");
        if !is_backup {
            make_seal(&copy.path, &seal);
        }
        for (row, tally) in tallies.iter_mut().enumerate() {
            for seed in seeds() {
                let mut random = Random(seed * 100 + row as u64);
                let mut damaged = bytes.clone();
                let [changed, seen] = inflict(row, &pages, &mut damaged, &mut random, tally);
                fs::write(&copy.path, &damaged).unwrap();
                let report = copy.check_one_by_one();
                let what = format!("{name}: {}, seed {seed}", TABLE[row].0);
                assert_eq!(places(&report), seen, "{what}");
                for finding in report.serious() {
                    assert_eq!(finding.severity, "damage", "{what}");
                    assert!(["checksum", "torn", "header", "bit_flip"].contains(&&*finding.kind));
                }
                if !is_backup {
                    assert_eq!(differing(&copy.path, &seal), changed, "{what}, by the seal");
                    tally.by_seal += changed.len() - seen.len();
                }
            }
        }
    }
    print(&tallies);
}

/// A file as it was when its database was last shut down. (Which moment that was, the program does
/// not read from it: seals of single files tell of less.)
fn same_state(path: &Path) -> Target {
    let one_by_one = OpenOptions { no_witness: true, ..OpenOptions::default() };
    let target = database::open_with(path, None, &one_by_one).unwrap();
    let epoch = Epoch { database: "one".to_owned(), position: 1, is_at_rest: true };
    let description = Description { epoch: Some(epoch), ..target.description };
    Target { description, ..target }
}

fn options() -> Options {
    Options { caching: Caching::Cached, ..Options::default() }
}

fn make_seal(path: &Path, seal: &Path) {
    let target = same_state(path);
    let header = Header {
        pagewarden: String::new(),
        format: target.description.format.to_owned(),
        engine: String::new(),
        page_size: target.description.page_size,
        epoch: target.description.epoch.clone(),
        made: 0,
    };
    let (target, sealing) = Sealing::begin(target, &header, File::create(seal).unwrap()).unwrap();
    verify(target, &options(), &(), &mut Places::default()).unwrap();
    sealing.finish().unwrap();
}

/// The places of the pages that fail, by themselves or compared with a seal.
fn differing(path: &Path, seal: &Path) -> BTreeSet<usize> {
    let target = Against::hold(same_state(path), Sealed::open(seal).unwrap()).unwrap();
    let mut places = Places::default();
    verify(target, &options(), &(), &mut places).unwrap();
    places.0
}

#[derive(Debug, Default)]
struct Places(BTreeSet<usize>);

impl Sink for Places {
    fn finding(&mut self, finding: &pagewarden::verdict::Finding) -> io::Result<()> {
        self.0.extend(finding.place.offset.map(|at| at.0 as usize));
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        panic!("{unread:?}")
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

/// Allocated pages, by the page of free space that is in all of these files.
fn allocated(bytes: &[u8], number: u64) -> bool {
    bytes[PAGE_BYTES + 100 + number as usize] & 0x40 != 0
}

/// What no sum sees at all, because no page number goes into it.
#[test]
fn pages_of_other_places_and_zeroed_ones_are_found_by_place_and_use() {
    for name in DATA_FILES {
        let Some(bytes) = fixture(name) else { return };
        let pages = protected(&bytes);
        let mut random = Random(7);
        // A secondary file does not say how it was left.
        let severity = if name.ends_with(".ndf") { "suspect" } else { "damage" };
        let mut damaged = bytes.clone();
        let (mut expected, mut unseen) = (BTreeSet::new(), 0);
        // The pages that every file has are another matter.
        for (index, (number, _)) in pages.iter().filter(|(number, _)| *number > 15).enumerate() {
            let (kind, from) = match index % 3 {
                0 => ("zeroed", vec![0; PAGE_BYTES]),
                1 => ("header", vec![0x5C; PAGE_BYTES]),
                _ => {
                    let other = pages[random.below(pages.len())].0;
                    let begin = other as usize * PAGE_BYTES;
                    ("misplaced", bytes[begin..begin + PAGE_BYTES].to_vec())
                }
            };
            let page = page_of(&mut damaged, *number);
            if page[..] == from[..] {
                continue;
            }
            page.copy_from_slice(&from);
            if allocated(&bytes, *number) {
                expected.insert(Finding::page(name, *number, severity, kind));
            } else {
                unseen += 1;
            }
        }
        let report = Copy::of(name, &damaged).check();
        assert_eq!(report.serious().into_iter().collect::<BTreeSet<_>>(), expected, "{name}");
        let empty = bytes.chunks_exact(PAGE_BYTES).filter(|page| page.iter().all(|b| *b == 0));
        let strays = if name.starts_with("nerd") { 130 } else { 0 };
        assert_eq!(report.pages("empty"), empty.count() as u64 + strays + unseen, "{name}");
        for finding in report.raw_findings() {
            let hint = finding["hint"].as_str().unwrap();
            let file = if name.ends_with(".ndf") { 3 } else { 1 };
            assert!(hint.contains(&format!("{file}:{}", finding["page"])), "{hint}");
        }
    }
}

/// Each by itself: an error of the page that proves use must not hide or invent others.
#[test]
fn pages_that_every_file_has_are_damage_whatever_happens_to_them() {
    for name in ["pubs-checksum-2008.mdf", "northwind-torn-2008r2.mdf"] {
        let Some(bytes) = fixture(name) else { return };
        for number in [0, 1, 2, 3, 6, 7, 9] {
            for (fill, kind) in [(0, "zeroed"), (0xA5, "header")] {
                let mut damaged = bytes.clone();
                page_of(&mut damaged, number).fill(fill);
                let report = Copy::of(name, &damaged).check();
                let finding = Finding::page(name, number, "damage", kind);
                // A page of free space that is gone proves nothing, but it is missed itself.
                let strays: Vec<_> =
                    report.serious().into_iter().filter(|one| *one != finding).collect();
                assert!(report.serious().contains(&finding), "{name} {number}: {report:?}");
                assert!(strays.is_empty(), "{name} {number}: {strays:?}");
            }
        }
    }
}

/// The first pages of a file say which it is; without them others do.
#[test]
fn file_without_its_beginning_is_still_checked() {
    let Some(bytes) = fixture("pubs-checksum-2008.mdf") else { return };
    let mut damaged = bytes.clone();
    damaged[..10 * PAGE_BYTES].fill(0);
    let report = Copy::of("pubs.mdf", &damaged).check();
    assert_eq!(report.verdict(), "damaged");
    let expected: BTreeSet<_> = [0, 1, 2, 3, 6, 7, 9].into_iter().collect();
    assert_eq!(found(&report), expected);
    // What else lay there cannot be missed: the page that knew it is gone.
    assert_eq!(report.pages("empty"), 60 + 1);
}

#[test]
fn file_that_was_not_shut_down_cleanly_has_suspects_where_others_are_damaged() {
    let Some(bytes) = fixture("pubs-checksum-2008.mdf") else { return };
    let mut crashed = bytes.clone();
    let boot = page_of(&mut crashed, 9);
    let record = usize::from(u16_at(boot, PAGE_BYTES - 2));
    boot[record + 36 + 3] &= !0x40;
    let sum = reckoned(boot);
    boot[60..64].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Copy::of("x.mdf", &crashed).check().verdict(), "intact");

    page_of(&mut crashed, 100).fill(0);
    let report = Copy::of("x.mdf", &crashed).check();
    assert_eq!(report.serious(), [Finding::page("x.mdf", 100, "suspect", "zeroed")]);
    assert_eq!(report.verdict(), "suspect");
    // What fails its own sum is damage all the same.
    page_of(&mut crashed, 101)[5000] ^= 1;
    assert_eq!(Copy::of("x.mdf", &crashed).check().pages("damaged"), 1);
}

#[test]
fn cut_file_is_truncated_by_its_header_and_by_what_was_in_use() {
    let Some(bytes) = fixture("testdb-checksum-2014.mdf") else { return };
    for pages in [400, 300, 200] {
        let report = Copy::of("x.mdf", &bytes[..pages * PAGE_BYTES]).check();
        let expected = Finding::page("x.mdf", pages as u64, "damage", "truncated");
        assert_eq!(report.serious(), [expected], "{pages}");
    }
    let report = Copy::of("x.mdf", &bytes[..300 * PAGE_BYTES + 700]).check();
    let kinds: Vec<_> = report.serious().into_iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["truncated", "truncated"]);
    // Of a secondary file it is not known how it was left: what was not in use is not missed.
    let Some(bytes) = fixture("derived-test-file3-2016.ndf") else { return };
    let report = Copy::of("x.ndf", &bytes[..8 * PAGE_BYTES]).check();
    assert_eq!(report.serious(), [Finding::page("x.ndf", 8, "suspect", "truncated")]);
}

#[test]
fn torn_write_of_half_a_page_names_its_sectors() {
    let Some(bytes) = fixture("northwind-torn-2008r2.mdf") else { return };
    let mut damaged = bytes.clone();
    let (number, _) = protected(&bytes)[200];
    let page = page_of(&mut damaged, number);
    let pattern = page[60] & 3;
    for sector in 8..16 {
        let last = &mut page[sector * 512 + 511];
        *last = *last & !3 | (3 - pattern);
    }
    let report = Copy::of("x.mdf", &damaged).check();
    assert_eq!(report.serious(), [Finding::page("x.mdf", number, "damage", "torn")]);
    assert!(report.details()[0].contains("sectors 8 to 15"), "{:?}", report.details());
    assert!(report.details()[0].contains("torn at 4 KiB"), "{:?}", report.details());
}

#[test]
fn flipped_bit_is_named_where_something_else_bears_it_out() {
    let Some(bytes) = fixture("pubs-checksum-2008.mdf") else { return };
    let mut damaged = bytes.clone();
    page_of(&mut damaged, 120)[32] ^= 1;
    page_of(&mut damaged, 121)[80] ^= 4;
    page_of(&mut damaged, 122)[5] ^= 1;
    page_of(&mut damaged, 123)[900] ^= 16;
    let report = Copy::of("x.mdf", &damaged).check();
    let kinds: Vec<_> = report.serious().into_iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["bit_flip", "bit_flip", "bit_flip", "checksum"]);
    assert!(report.details()[0].contains("bit 0 of byte 32"));
    assert!(report.details()[1].contains("bit 2 of byte 80"));
    assert!(report.details()[3].contains("2048 places"), "{:?}", report.details()[3]);
}
