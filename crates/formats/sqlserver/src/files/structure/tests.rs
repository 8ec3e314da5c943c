//! Real files with one thing changed under a sum that fits, and files whose numbers lead anywhere.

use std::fs::File;
use std::io::Write as _;

use super::*;
use crate::checksum::stamp_checksum;
use crate::files::data_file;
use crate::page::maps::extent_of;
use pagewarden_core::database::OpenOptions;
use pagewarden_core::page::RunVerdict;
use pagewarden_core::testing::fixtures;

const SOUND: [&str; 6] = [
    "pubs-checksum-2008.mdf",
    "testdb-checksum-2014.mdf",
    "empty-checksum-2005.mdf",
    "nerddinner-stray-2008r2.mdf",
    "northwind-torn-2008r2.mdf",
    "derived-test-file3-2016.ndf",
];

/// What is said of a file: page, severity, words.
fn told_of(bytes: &[u8]) -> Vec<(u64, Severity, String)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let opened = File::open(file.path()).unwrap();
    let Some(identity) = data_file::identify(&opened, file.path()) else { return Vec::new() };
    let options = OpenOptions::default();
    let target = data_file::open(file.path(), &opened, identity, &options).unwrap();
    let mut found = Vec::new();
    for step in target.steps {
        match step {
            Step::File(pages) => {
                let whole = bytes.len() / PAGE_BYTES * PAGE_BYTES;
                let run = PageRun { first: PageNo(0), bytes: &bytes[..whole] };
                let mut verdict = RunVerdict::default();
                pages.format.judge(run, &mut verdict);
                pages.witnesses.iter().for_each(|witness| witness.see(run, &verdict.standings));
            }
            Step::Overruled(finding, _) => {
                assert_eq!(finding.kind, Kind::Structure);
                let page = finding.place.page.map_or(u64::MAX, |page| page.0);
                found.push((page, finding.severity, finding.detail.unwrap_or_default()));
            }
            _ => {}
        }
    }
    found
}

fn page(bytes: &[u8], number: usize) -> &Page {
    bytes[number * PAGE_BYTES..].first_chunk().unwrap()
}

/// Changes bytes of a page and makes its sum right.
fn change(bytes: &mut [u8], number: usize, at: usize, value: &[u8]) {
    let page: &mut Page = bytes[number * PAGE_BYTES..].first_chunk_mut().unwrap();
    page[at..at + value.len()].copy_from_slice(value);
    if Header::parse(page).flags & crate::page::header::HAS_CHECKSUM != 0 {
        stamp_checksum(page);
    }
}

fn pages(bytes: &[u8]) -> impl Iterator<Item = (usize, &Page)> {
    let listed = pfs_bytes(page(bytes, 1), 1, 1).unwrap();
    let pages = bytes.as_chunks::<PAGE_BYTES>().0.iter().enumerate();
    pages.filter(|(number, page)| {
        is_allocated(listed[*number]) && Header::parse(page).is_of(1, *number as u64)
    })
}

/// The first page in use of which this is true.
fn find(bytes: &[u8], is_it: impl Fn(&Page, &Place) -> bool) -> usize {
    pages(bytes).find(|(_, page)| is_it(page, &Place::parse(page))).unwrap().0
}

fn kind(page: &Page) -> u8 {
    page[1]
}

#[test]
fn sound_files_of_real_servers_have_no_finding() {
    for name in SOUND {
        let Some(bytes) = fixtures::bytes(name) else { return };
        assert_eq!(told_of(&bytes), [], "{name}");
    }
}

/// Of a database that was not shut down, what is older than its last checkpoint is compared; of a secondary
/// file nothing is.
#[test]
fn severity_and_reach_follow_the_state_of_the_database() {
    let Some(mut bytes) = fixtures::bytes("pubs-checksum-2008.mdf") else { return };
    let linked = find(&bytes, |page, place| kind(page) == 1 && !place.next.is_none());
    change(&mut bytes, linked, 16, &[9, 0, 0, 0]);
    let severities = |bytes: &[u8]| {
        told_of(bytes).into_iter().map(|(_, severity, _)| severity).collect::<Vec<_>>()
    };
    assert!(severities(&bytes).iter().all(|severity| *severity == Severity::Damage));
    assert!(!severities(&bytes).is_empty());
    // Byte 39 of the boot page's record, which begins at byte 96.
    let status = page(&bytes, 9)[96 + 39];
    change(&mut bytes, 9, 96 + 39, &[status & !0x40]);
    assert!(severities(&bytes).iter().all(|severity| *severity == Severity::Suspect));
    assert!(!severities(&bytes).is_empty());
    // As if its last checkpoint was the first one.
    change(&mut bytes, 9, 96 + 348, &[0; 10]);
    assert_eq!(severities(&bytes), []);
}

/// A boot page may be of another moment than the rest, as in a backup: where a page was changed behind the last
/// checkpoint, nothing is damage.
#[test]
fn page_that_was_changed_behind_the_last_checkpoint_takes_the_proof_away() {
    let Some(mut bytes) = fixtures::bytes("pubs-checksum-2008.mdf") else { return };
    let linked = find(&bytes, |page, place| kind(page) == 1 && !place.next.is_none());
    let later = find(&bytes, |page, place| kind(page) == 2 && place.next.is_none());
    change(&mut bytes, linked, 16, &[9, 0, 0, 0]);
    change(&mut bytes, later, 40, &u32::MAX.to_le_bytes());
    let told = told_of(&bytes);
    assert!(told.iter().all(|(_, severity, _)| *severity == Severity::Suspect), "{told:?}");
    assert!(!told.is_empty());
    assert!(!told.iter().any(|(page, ..)| *page == later as u64), "{told:?}");
}

/// Pages above compressed ones have compressed records: where those lead is not known.
#[test]
fn upper_level_with_compressed_records_is_not_followed() {
    let Some(mut bytes) = fixtures::bytes("pubs-checksum-2008.mdf") else { return };
    let upper = find(&bytes, |page, place| kind(page) == 2 && place.level == 1);
    let rows = RowPage::new(page(&bytes, upper), &Header::parse(page(&bytes, upper))).unwrap();
    let starts: Vec<_> = rows.records().collect();
    for at in starts {
        let bits = page(&bytes, upper)[at] | 1;
        change(&mut bytes, upper, at, &[bits, 0x55, 0x55, 0x55]);
    }
    assert_eq!(told_of(&bytes), []);
}

/// One wound after the other to a file; each is blamed on a page, in these words.
#[test]
fn each_rule_names_its_wound() {
    let Some(sound) = fixtures::bytes("pubs-checksum-2008.mdf") else { return };
    let linked = find(&sound, |page, place| kind(page) == 1 && !place.next.is_none());
    let next = Place::parse(page(&sound, linked)).next.page as usize;
    let upper = find(&sound, |page, place| kind(page) == 2 && place.level == 1);
    let rows = RowPage::new(page(&sound, upper), &Header::parse(page(&sound, upper))).unwrap();
    let record = rows.records().next().unwrap();
    let child_at = record + usize::from(page(&sound, upper)[14]) - 6;
    let child = rows.child(record).page as usize;
    let iam = find(&sound, |page, place| {
        kind(page) == 10
            && place.unit.object > 8
            && Iam::parse(page).unwrap().extents.set().count() > 0
    });
    let extent = Iam::parse(page(&sound, iam)).unwrap().extents.set().next().unwrap();
    let extent = usize::try_from(extent).unwrap();
    let single_of =
        find(&sound, |page, place| kind(page) == 10 && place.unit.object > 8 && page[142] != 0);
    let single = usize::from(page(&sound, single_of)[142]);
    let other = find(&sound, |page, _| {
        kind(page) == 10 && page[142] != 0 && usize::from(page[142]) != single
    });
    let units = find(&sound, |page, place| kind(page) == 1 && place.unit == UNIT_OF_UNITS);
    let unit_row = RowPage::new(page(&sound, units), &Header::parse(page(&sound, units)));
    let unit_row = unit_row.unwrap().records().next().unwrap();
    let root_at = unit_row + 33;
    let bit_of = |number: usize, extent: usize| {
        let at = 194 + extent / 8;
        (number, at, page(&sound, number)[at] ^ 1 << (extent % 8))
    };
    let (_, iam_bit_at, iam_bit) = bit_of(iam, extent);
    let (_, gam_at, gam_byte) = bit_of(2, extent);
    let (_, sgam_at, sgam_byte) = bit_of(3, extent);
    let free = |of: usize, bit: u8| [page(&sound, 1)[100 + of] ^ bit];
    let far = 0x7FFF_u32.to_le_bytes();
    let small = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let wounds: [(usize, usize, &[u8], &str); 23] = [
        (linked, 16, &far, "a page behind its end"),
        (linked, 16, &small(9), "of type 13, and this of type 1"),
        (linked, 16, &small(linked), "beside page"),
        (linked, 20, &[7], "in a file that it does not have"),
        (next, 8, &[0; 6], "beside no page"),
        (next, 24, &small(6_000_000), "and this of unit 6000000:"),
        (child, 3, &[5], "it has level 5"),
        (upper, child_at, &far, "a page behind its end"),
        (upper, child_at, &small(single), "record 0 leads to page"),
        (iam, iam_bit_at, &[iam_bit], "no IAM page has it"),
        (iam, 194 + 900, &[1], "behind the end of the file"),
        (iam, 194, &[1], "which holds the maps"),
        (iam, 136, &[1], "intervals have 511232 pages"),
        (iam, 100, &[3], "number 3 of its chain"),
        (single_of, 142, &small(9), "and this of unit"),
        (single_of, 142, &far, "its single page 1:32767 is a page behind its end"),
        (other, 148, &small(single), "its single page"),
        (2, gam_at, &[gam_byte], "is free, and"),
        (3, sgam_at, &[sgam_byte], "is mixed with a free page, and the IAM page"),
        (1, 100 + single, &free(single, 0x20), "it does not mark page"),
        (1, 100 + single, &free(single, 0x10), "is an IAM page, and it is of type"),
        (1, 100 + single, &free(single, 0x40), "a page that is not allocated"),
        (units, root_at, &small(iam), "the root of unit"),
    ];
    for (number, at, value, words) in wounds {
        let mut bytes = sound.clone();
        change(&mut bytes, number, at, value);
        let found = told_of(&bytes);
        let is_named = found
            .iter()
            .any(|(_, severity, found)| *severity == Severity::Damage && found.contains(words));
        assert!(is_named, "page {number}, byte {at}: {words}: {found:?}");
    }
}

/// Maps of the second interval tell of its extents, and of no others.
#[test]
fn maps_of_a_later_interval_tell_of_its_own_extents() {
    let first = u32::try_from(INTERVAL_PAGES).unwrap();
    let (iam_page, data) = (first + 16, first + 24);
    let bits = |set: &[u64], interval: u64| {
        let mut page = [0; PAGE_BYTES];
        page[8188..8190].copy_from_slice(&190_u16.to_le_bytes());
        for extent in set {
            let bit = extent - extent_of(interval);
            page[194 + usize::try_from(bit / 8).unwrap()] |= 1 << (bit % 8);
        }
        Bits::parse(&page, interval)
    };
    let extent = extent_of(u64::from(data));
    let faults = |free: &[u64], mixed: &[u64], has: &[u64]| {
        let facts = vec![Fact::default(); usize::try_from(first).unwrap() + 64];
        let mut gathered = Gathered { facts, ..Gathered::default() };
        let unit = Unit { object: 77, index: 1 };
        for (page, kind, free_space) in [(iam_page, 10, 0x70), (data, 1, 0x40)] {
            *at(&mut gathered.facts, u64::from(page)).unwrap() =
                Fact { kind, unit, free_space, ..Fact::default() };
        }
        gathered.free_space = vec![pfs_page_of(INTERVAL_PAGES)];
        let begin = Pointer { page: first, file: 1 };
        let extents = bits(has, INTERVAL_PAGES);
        gathered.iams.insert(iam_page, Iam { begin, extents, ..Iam::default() });
        gathered.free.insert(INTERVAL_PAGES, bits(free, INTERVAL_PAGES));
        gathered.mixed.insert(INTERVAL_PAGES, bits(mixed, INTERVAL_PAGES));
        // Of the first interval all extents are free.
        gathered.free.insert(0, bits(&(0..63_904).collect::<Vec<_>>(), 0));
        let file = tempfile::tempfile().unwrap();
        let structure = Structure {
            file: "x.mdf".to_owned(),
            database: None,
            scope: Scope {
                number: 1,
                pages: gathered.facts.len() as u64,
                is_short: false,
                proves: Severity::Damage,
                moment: Moment::Rest(Lsn::default()),
            },
            allocations: Arc::new(FileAllocations::new(file, 1, Severity::Damage)),
            gathered: Mutex::default(),
        };
        let known = structure.known_of(&gathered);
        let mut faults = Faults::new();
        structure.compare_extents(&gathered, &known, &mut faults);
        faults.into_keys().collect::<Vec<_>>()
    };
    let later = extent + 1;
    assert_eq!(faults(&[later], &[], &[extent]), [0_u32; 0]);
    assert_eq!(faults(&[extent], &[], &[extent]), [first]);
    assert_eq!(faults(&[], &[extent], &[extent]), [first + 1]);
    assert_eq!(faults(&[later], &[later], &[]), [first + 1]);
    assert_eq!(faults(&[], &[], &[extent, extent + 99]), [iam_page]);
}

/// Real files with numbers in them that lead far away, or back: what is said is bounded.
#[test]
fn links_with_any_numbers_in_them_end() {
    let mut state = 7_u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % end
    };
    let mut found = 0;
    for name in ["pubs-checksum-2008.mdf", "testdb-checksum-2014.mdf"] {
        let Some(sound) = fixtures::bytes(name) else { return };
        let count = sound.len() / PAGE_BYTES;
        for _ in 0..60 {
            let mut bytes = sound.clone();
            for _ in 0..=random(30) {
                let at = match random(3) {
                    0 => random(90),
                    1 => 96 + random(200),
                    _ => random(PAGE_BYTES - 4),
                };
                let number = [0, 1, u32::MAX, 1 << 31, u32::try_from(random(count)).unwrap()];
                change(&mut bytes, random(count), at, &number[random(5)].to_le_bytes());
            }
            let told = told_of(&bytes);
            assert!(told.len() <= FAULTS_MAX);
            found += usize::from(!told.is_empty());
        }
    }
    assert!(found > 80, "{found}");
}
