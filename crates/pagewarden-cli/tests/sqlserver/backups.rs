//! Backups: damage in them, and stripes.
//!
//! No pair of stripes that belong together is available: one is made here of a
//! backup in one file, whose extents are dealt out to two.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use pagewarden::formats::sqlserver::checksum::PAGE_BYTES;

use super::{Copy, STRIPE, fixture, found, sum_stream, u16_at, u32_at};
use crate::runner::{Finding, check, pagewarden, run};

const EXTENT: usize = 8 * PAGE_BYTES;
/// Where the first page of this backup lies, by the list beside it.
const PUBS: (&str, usize) = ("pubs-full-2012.bak", 16_384);

/// The place of a page in a backup whose first page lies at `first`.
fn page_at(bytes: &[u8], first: usize, number: u32) -> usize {
    (first..bytes.len())
        .step_by(PAGE_BYTES)
        .find(|at| bytes[*at] == 1 && u32_at(bytes, at + 32) == number)
        .unwrap()
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

/// Deals the extents of a backup with one data stream out to two files.
pub fn striped(bytes: &[u8], first: usize) -> [Vec<u8>; 2] {
    let header = first - 2 - 22;
    assert_eq!(&bytes[header..header + 4], b"MQDA");
    let length = u64::from_le_bytes(bytes[header + 8..header + 16].try_into().unwrap()) as usize;
    let extents: Vec<_> = bytes[first..first + length - 2].chunks_exact(EXTENT).collect();
    let end = first + length - 2;
    let rest = &bytes[end..];
    [1_u16, 2].map(|family| {
        let mut file = bytes[..first].to_vec();
        let raid = find(&file, b"RAID") + 22;
        file[raid + 20..raid + 22].copy_from_slice(&2_u16.to_le_bytes());
        file[raid + 24..raid + 26].copy_from_slice(&family.to_le_bytes());
        let own: Vec<_> =
            extents.iter().skip(usize::from(family) - 1).step_by(2).copied().collect();
        let length = 2 + (own.len() * EXTENT) as u64;
        file[header + 8..header + 16].copy_from_slice(&length.to_le_bytes());
        sum_stream(&mut file[header..]);
        let mut rest = rest.to_vec();
        let gone = (extents.len() - own.len()) * EXTENT;
        for at in (end.next_multiple_of(512)..bytes.len()).step_by(512) {
            // Where the filemark before begins, the block before the last of a set, the block itself.
            let (field, unit) = match &bytes[at..at + 4] {
                b"SFMB" => (72, 1),
                b"ESET" => (60, 1),
                b"MSTL" | b"MSLS" => (20, 1024),
                _ => continue,
            };
            let block = &mut rest[at - end..];
            let place = u64::from_le_bytes(block[field..field + 8].try_into().unwrap());
            if place * unit > first as u64 {
                let place = place - gone as u64 / unit;
                block[field..field + 8].copy_from_slice(&place.to_le_bytes());
                let words = block[..50].chunks_exact(2);
                let sum = words.fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]]);
                block[50..52].copy_from_slice(&sum);
            }
        }
        [file, own.concat(), rest].concat()
    })
}

#[test]
fn damaged_pages_of_a_backup_are_found_where_they_lie() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    let mut damaged = bytes.clone();
    let [flipped, zeroed, torn_off] = [100, 150, 200].map(|page| page_at(&bytes, PUBS.1, page));
    damaged[flipped + 3000] ^= 0x10;
    damaged[zeroed..zeroed + PAGE_BYTES].fill(0);
    damaged[torn_off..torn_off + 512].fill(0xEE);
    let report = Copy::of("pubs.bak", &damaged).check();
    let finding =
        |page, at: usize, kind| Finding::page_at("pubs.bak", page, at as u64, "damage", kind);
    assert_eq!(
        report.serious(),
        [
            finding(100, flipped, "checksum"),
            finding(150, zeroed, "zeroed"),
            finding(200, torn_off, "header"),
        ]
    );
    assert_eq!((report.verdict(), report.pages("damaged")), ("damaged", 3));
    assert!(report.raw_findings().iter().all(|finding| finding["database"] == "pubs"));
}

/// An extent without a page that names its place is placed by its neighbours.
#[test]
fn extent_that_was_destroyed_as_a_whole_is_missed_page_by_page() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    for (fill, kind) in [(0, "zeroed"), (0x77, "header")] {
        let mut damaged = bytes.clone();
        let begin = page_at(&bytes, PUBS.1, 96);
        damaged[begin..begin + EXTENT].fill(fill);
        let report = Copy::of("pubs.bak", &damaged).check();
        let expected: BTreeSet<u64> = (96..104).collect();
        assert_eq!(found(&report), expected, "{report:?}");
        assert!(report.serious().iter().all(|finding| finding.kind == kind));
    }
}

/// Servers read several disks at a time: what comes in another order is as good.
#[test]
fn extents_in_any_order_are_no_false_alarm() {
    for (name, first, extents) in [(PUBS.0, PUBS.1, 49), ("test-2datafiles-2016.bak", 16_384, 51)] {
        let Some(bytes) = fixture(name) else { return };
        let expected = Copy::of(name, &bytes).check();
        let mut shuffled = bytes.clone();
        // The first eight stay: what says which pages are allocated comes first.
        for index in 8..extents {
            let from = 8 + (index - 8) * 5 % (extents - 8);
            let [from, to] = [from, index].map(|index| first + index * EXTENT);
            shuffled[to..to + EXTENT].copy_from_slice(&bytes[from..from + EXTENT]);
        }
        assert!(shuffled != bytes);
        let report = Copy::of(name, &shuffled).check();
        assert_eq!(report.findings(), [], "{name}");
        for class in ["total", "ok", "empty", "unprotected"] {
            assert_eq!(report.pages(class), expected.pages(class), "{name}: {class}");
        }
    }
}

/// Sixty-four KiB written to a wrong place: sound pages, and all of them in order.
#[test]
fn extent_that_lies_in_the_place_of_another_is_found() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    let [early, late] = [96, 160].map(|page| page_at(&bytes, PUBS.1, page));
    let mut damaged = bytes.clone();
    damaged[late..late + EXTENT].copy_from_slice(&bytes[early..early + EXTENT]);
    let report = Copy::of("pubs.bak", &damaged).check();
    assert_eq!(found(&report), (160..168).collect::<BTreeSet<u64>>());
    assert!(report.serious().iter().all(|finding| finding.kind == "misplaced"));
    // The other way round, what belongs there comes behind it.
    let mut damaged = bytes.clone();
    damaged[early..early + EXTENT].copy_from_slice(&bytes[late..late + EXTENT]);
    let report = Copy::of("pubs.bak", &damaged).check();
    let serious = report.serious();
    assert_eq!((serious.len(), serious[0].kind.as_str()), (1, "misplaced"), "{serious:?}");
    assert_eq!(serious[0].offset, Some(late as u64));
    assert_eq!(report.verdict(), "damaged");
}

#[test]
fn page_that_was_in_use_before_the_checkpoint_is_proven_and_a_newer_one_is_not() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    let mut damaged = bytes.clone();
    let zeroed = page_at(&bytes, PUBS.1, 150);
    damaged[zeroed..zeroed + PAGE_BYTES].fill(0);
    // The page of free space is changed after the checkpoint.
    let pfs = page_at(&bytes, PUBS.1, 1);
    damaged[pfs + 40..pfs + 44].copy_from_slice(&9999_u32.to_le_bytes());
    let page: &mut [u8; PAGE_BYTES] = (&mut damaged[pfs..pfs + PAGE_BYTES]).try_into().unwrap();
    pagewarden::formats::sqlserver::checksum::stamp_checksum(page);
    let report = Copy::of("pubs.bak", &damaged).check();
    let expected = Finding::page_at("pubs.bak", 150, zeroed as u64, "suspect", "zeroed");
    assert_eq!((report.serious(), report.verdict()), (vec![expected], "suspect"));
}

#[test]
fn headers_that_do_not_fit_their_sums_are_damage() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    for what in [b"TAPE", b"RAID", b"SSET", b"MQCI", b"MSDA", b"ESET"] {
        let at = find(&bytes, what);
        let mut damaged = bytes.clone();
        damaged[at + 9] ^= 1;
        let report = Copy::of("pubs.bak", &damaged).check();
        assert_eq!(report.verdict(), "damaged", "{what:?}: {report:?}");
        let first = &report.serious()[0];
        assert_eq!((first.kind.as_str(), first.offset), ("checksum", Some(at as u64)), "{what:?}");
        assert_eq!(report.pages("ok"), 356, "{what:?}: {report:?}");
    }
}

#[test]
fn backup_that_was_cut_says_so() {
    for name in [PUBS.0, "library-compressed-2014.bak", "products-full-2019.bak"] {
        let Some(bytes) = fixture(name) else { return };
        for length in [bytes.len() / 2, bytes.len() * 9 / 10, bytes.len() / 3 + 7] {
            let report = Copy::of("x.bak", &bytes[..length]).check();
            let kinds: Vec<_> = report.serious().into_iter().map(|one| one.kind).collect();
            assert_eq!(kinds, ["truncated"], "{name} {length}");
            assert_eq!(report.verdict(), "damaged");
            assert!(report.pages("ok") > 50, "{name} {length}");
        }
    }
}

#[test]
fn damaged_chunk_is_named_and_what_it_held_is_unread() {
    let Some(bytes) = fixture("library-compressed-2014.bak") else { return };
    let mut damaged = bytes.clone();
    damaged[200_000] ^= 2;
    let report = Copy::of("x.bak", &damaged).check();
    let serious = report.serious();
    assert_eq!((serious.len(), serious[0].kind.as_str()), (1, "checksum"), "{serious:?}");
    assert!(serious[0].offset.unwrap() < 200_000);
    assert!(!report.unread().is_empty());
    // At most two extents of what the chunk held.
    let lost = 360 - report.pages("total");
    assert!((1..=16).contains(&lost), "{lost}");
    assert_eq!(report.pages("damaged"), 0);
}

#[test]
fn stripes_that_are_named_together_are_one_backup() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    let [first, second] = striped(&bytes, PUBS.1);
    let copy = Copy::of("1.bak", &first);
    let other = copy.beside("2.bak");
    fs::write(&other, &second).unwrap();
    // In any order.
    for paths in [[&copy.path, &other], [&other, &copy.path]] {
        let report = check(paths).report();
        assert_eq!(report.json["targets"].as_array().unwrap().len(), 1);
        assert_eq!(report.findings(), []);
        assert_eq!((report.verdict(), report.pages("ok")), ("intact", 356));
        assert_eq!((report.pages("total"), report.pages("empty")), (392, 34));
    }
    // Each alone is half of it, and says so.
    for (path, number) in [(&copy.path, 2), (&other, 1)] {
        let report = check([path]).report();
        assert_eq!((report.verdict(), report.unread().len()), ("incomplete", 1));
        assert_eq!(report.findings().len(), 1);
        assert!(report.details()[0].starts_with(&format!("media family {number} of 2")));
    }
    // What the free space in the other says is put to use.
    let mut damaged = second.clone();
    let at = page_at(&second, PUBS.1, 105);
    damaged[at..at + PAGE_BYTES].fill(0);
    fs::write(&other, &damaged).unwrap();
    let report = check([&copy.path, &other]).report();
    let expected = Finding::page_at("2.bak", 105, at as u64, "damage", "zeroed");
    assert_eq!(report.serious(), [expected]);
    assert!(check([&other]).report().serious().is_empty(), "half of it cannot know");
    // A file of another program is a target of its own, and so is the same file again.
    let Some(stranger) = fixture(STRIPE) else { return };
    let third = copy.beside("3.bak");
    fs::write(&third, stranger).unwrap();
    let report = check([&copy.path, &third, &other, &copy.path]).report();
    assert_eq!(report.json["targets"].as_array().unwrap().len(), 3);
}

#[test]
fn backup_comes_through_a_pipe() {
    for name in [PUBS.0, "library-compressed-2014.bak", "das-verifynone-2sets-2008r2.bak"] {
        let Some(bytes) = fixture(name) else { return };
        let copy = Copy::of(name, &bytes);
        let input = fs::File::open(&copy.path).unwrap();
        let mut command = pagewarden();
        let piped = run(command.args(["check", "--json", "-"]).stdin(Stdio::from(input))).report();
        let named = copy.check();
        for class in ["total", "ok", "empty", "unprotected"] {
            assert_eq!(piped.pages(class), named.pages(class), "{name}");
        }
        assert_eq!(piped.verdict(), named.verdict());
    }
}

/// The same whatever the number of threads.
#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    let Some(bytes) = fixture("products-full-2019.bak") else { return };
    let mut damaged = bytes.clone();
    for at in (9000..damaged.len()).step_by(50_000) {
        damaged[at] ^= 0x40;
    }
    let copy = Copy::of("x.bak", &damaged);
    let of = |jobs: &str| {
        let arguments = ["-j", jobs, copy.path.to_str().unwrap()];
        check(arguments).report().timeless()
    };
    let one = of("1");
    for jobs in ["2", "5"] {
        assert_eq!(of(jobs), one);
    }
    assert!(u16_at(&damaged, 0) > 0);
}
