//! The conformance suite: every specimen of a format through the same damage. The author of a format
//! writes specimens, and one line that makes tests of them all:
//!
//! ```ignore
//! #[cfg(test)]
//! pagewarden_core::conformance!(page::specimens());
//! ```
//!
//! `cargo test -p pagewarden-format-NAME conformance` runs them.
//!
//! | trial | what must come out |
//! | --- | --- |
//! | the good page | its standing, no finding |
//! | every single-bit flip of it | damage, but for the flips that are listed as blind; without a sum, at least suspect |
//! | all zero | what the specimen says |
//! | torn: one part of the page, the rest of another | damage, at every sector boundary |
//! | moved: the page under other numbers | damage, if a sum covers the number |
//! | stamped for other numbers | the same standing as the good page |
//! | random bytes | damage |
//! | runs with an incomplete page | the whole pages are judged, the rest is not |
//! | runs of all these | the same as page by page; each page is counted once |
//! | a second look ([`crate::page::PageFormat::explain`]) | never milder, never another page |
//!
//! The blind lists are exact, so that they say what a format does not see and
//! nothing else: every bit in `blind_bytes` and every one of `blind_bits` must
//! pass when flipped, and no other bit may. When a list is wrong, the message
//! has the right one. Trials draw from a generator with a fixed seed, and come
//! out the same every time.
//!
//! Pages 0 and 1 have a layout of their own in many formats. No specimen is
//! stamped for them here; a format in which they are like all others tests
//! that by itself.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::page::{Neighbours, PageFinding, PageRun, RunVerdict, Specimen};
use crate::verdict::{PageCounts, PageNo, Severity, Standing};

/// What every device writes in one piece.
const SECTOR_BYTES: usize = 512;
const SEED: u64 = 0x5EED_0F9A_6E5A_11ED;
/// More lines than this make a message unreadable.
const FAULTS_SHOWN: usize = 30;

/// Makes the tests of a format: each trial of the suite with its specimens.
#[macro_export]
macro_rules! conformance {
    ($specimens:expr) => {
        $crate::conformance!(@tests $specimens;
            specimens_can_be_tried
            good_page_passes
            every_flipped_bit_is_damage_unless_it_is_listed
            zero_page_counts_as_its_format_says
            torn_page_is_damage
            moved_page_is_damage_where_a_sum_covers_the_number
            stamped_page_passes_under_its_number
            random_bytes_are_damage
            incomplete_page_at_the_end_of_a_run_is_left_alone
            run_of_pages_is_judged_as_page_by_page
            second_look_is_never_milder
            arbitrary_runs_are_judged_and_counted_once
        );
    };
    (@tests $specimens:expr; $($trial:ident)*) => {
        mod conformance {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $trial() {
                    $crate::testing::conformance::$trial(&$specimens);
                }
            )*
        }
    };
}

/// There are specimens, and each is one page that passes.
pub fn specimens_can_be_tried(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let page_size = specimen.format.page_size();
        if !page_size.is_power_of_two() || specimen.good.len() != page_size {
            faults.add(format!("{} bytes are not one page", specimen.good.len()));
        }
        if specimen.standing == Standing::Ok && specimen.stamp.is_none() {
            faults.add("counts as ok and so has a sum, but no stamp to make more such pages");
        }
        if !matches!(specimen.standing, Standing::Ok | Standing::Unprotected) {
            faults.add("is neither ok nor unprotected");
        }
    });
    assert!(!specimens.is_empty(), "no specimen");
}

/// The good page has its standing, and no finding.
pub fn good_page_passes(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        faults.must_pass(specimen, specimen.page, &specimen.good, specimen.standing, "good page");
    });
}

/// Every single-bit flip is damage, but for those that are listed as blind.
pub fn every_flipped_bit_is_damage_unless_it_is_listed(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let mut page = specimen.good.clone();
        let expected = match specimen.standing {
            Standing::Ok => Severity::Damage,
            _ => Severity::Suspect,
        };
        let (mut unlisted, mut seen, mut mild) = (Vec::new(), Vec::new(), Vec::new());
        for byte in 0..page.len() {
            let in_range = specimen.blind_bytes.iter().any(|range| range.contains(&byte));
            for bit in 0..8_u8 {
                page[byte] ^= 1 << bit;
                let outcome = judge(specimen, specimen.page, &page);
                page[byte] ^= 1 << bit;
                let listed = in_range || specimen.blind_bits.contains(&(byte, bit));
                match outcome {
                    Outcome::Passed(_) if !listed => unlisted.push((byte, bit)),
                    Outcome::Failed(_) if listed => seen.push((byte, bit)),
                    Outcome::Failed(finding) if finding.severity < expected => {
                        mild.push((byte, bit));
                    }
                    _ => {}
                }
            }
        }
        for (flips, what) in [
            (unlisted, "pass and are not listed"),
            (seen, "are listed as blind and are seen"),
            (mild, "are seen but taken too lightly"),
        ] {
            if !flips.is_empty() {
                faults.add(format!("{} flips {what}: {flips:?}", flips.len()));
            }
        }
    });
}

/// A page of zeros counts as the specimen says.
pub fn zero_page_counts_as_its_format_says(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let page = vec![0; specimen.good.len()];
        let standing = match judge(specimen, specimen.page, &page) {
            Outcome::Passed(standing) => Some(standing),
            Outcome::Failed(finding) => finding.standing,
        };
        if standing != Some(specimen.zero) {
            faults.add(format!("a zero page counts as {standing:?}, not {:?}", specimen.zero));
        }
    });
}

/// A page of two versions is damage, at every sector boundary.
pub fn torn_page_is_damage(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let Some(stamp) = specimen.stamp else { return };
        let other = another_good_page(specimen, stamp);
        let pairs = [(&specimen.good, &other), (&other, &specimen.good)];
        for boundary in (SECTOR_BYTES..specimen.good.len()).step_by(SECTOR_BYTES) {
            for (begin, end) in pairs {
                let torn = [&begin[..boundary], &end[boundary..]].concat();
                if torn == *begin || torn == *end {
                    faults.add(format!("the two good pages do not differ around {boundary}"));
                }
                faults.must_fail(specimen, specimen.page, &torn, &format!("torn at {boundary}"));
            }
        }
    });
}

/// A page under another number is damage, if a sum covers the number.
pub fn moved_page_is_damage_where_a_sum_covers_the_number(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let Some(stamp) = specimen.stamp else { return };
        // A stamp that ignores the number says that the format does, too.
        let is_numbered = stamped(&specimen.good, stamp, specimen.page.plus(1)) != specimen.good;
        for number in other_numbers(specimen) {
            let what = format!("moved to {number}");
            if is_numbered {
                faults.must_fail(specimen, number, &specimen.good, &what);
            } else {
                faults.must_pass(specimen, number, &specimen.good, specimen.standing, &what);
            }
        }
    });
}

/// A page that is stamped for a number passes under it.
pub fn stamped_page_passes_under_its_number(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let Some(stamp) = specimen.stamp else { return };
        if stamped(&specimen.good, stamp, specimen.page) != specimen.good {
            faults.add("the stamp changes the good page under its own number");
        }
        let near = (2..38).map(PageNo);
        for number in other_numbers(specimen).chain(near) {
            let page = stamped(&specimen.good, stamp, number);
            let what = format!("stamped for {number}");
            faults.must_pass(specimen, number, &page, specimen.standing, &what);
        }
    });
}

/// Random bytes are damage.
pub fn random_bytes_are_damage(specimens: &[Specimen]) {
    const PAGES: usize = 1000;
    for_every_specimen(specimens, |specimen, faults| {
        let mut random = Random(SEED);
        let blind_to_all = specimen.blind_bytes.contains(&(0..specimen.good.len()));
        for index in 0..PAGES {
            let page = random.bytes(specimen.good.len());
            let what = format!("random page {index}");
            if blind_to_all {
                faults.must_pass(specimen, specimen.page, &page, specimen.standing, &what);
            } else {
                faults.must_fail(specimen, specimen.page, &page, &what);
            }
        }
    });
}

/// Of a run with an incomplete page, the whole pages are judged and the rest is not.
pub fn incomplete_page_at_the_end_of_a_run_is_left_alone(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let page_size = specimen.good.len();
        for whole in [0, 1, 2, 31, 32, 33] {
            for rest in [1, 7, 24, page_size / 2, page_size - 1] {
                let mut bytes = mixed_run(specimen, specimen.page, whole + 1, &mut Random(SEED));
                bytes.truncate(whole * page_size + rest);
                let cut = judge_run(specimen, specimen.page, &bytes);
                let full = judge_run(specimen, specimen.page, &bytes[..whole * page_size]);
                if cut != full {
                    faults.add(format!("{whole} pages and {rest} bytes more: {cut:?}"));
                }
            }
        }
    });
}

/// A run gives what its pages give one by one.
pub fn run_of_pages_is_judged_as_page_by_page(specimens: &[Specimen]) {
    const RUNS: usize = 80;
    const PAGES_MAX: usize = 80;
    for_every_specimen(specimens, |specimen, faults| {
        let mut random = Random(SEED);
        let page_size = specimen.good.len();
        for index in 0..RUNS {
            let first = [
                specimen.page,
                PageNo(2),
                // The border of two segments.
                PageNo((1 << 17) - 9),
                PageNo(u64::from(u32::MAX) - 9),
                PageNo(u64::MAX - 9),
            ][index % 5];
            let bytes = mixed_run(specimen, first, 1 + random.below(PAGES_MAX), &mut random);
            let together = judge_run(specimen, first, &bytes);
            let mut apart = RunVerdict::default();
            for (page, at) in bytes.chunks_exact(page_size).zip(0..) {
                let one = judge_run(specimen, first.plus(at), page);
                apart.counts += one.counts;
                apart.by_mode += one.by_mode;
                apart.findings.extend(one.findings);
                for (standing, _) in one.standings.iter() {
                    apart.standings.push(standing);
                }
            }
            if together != apart {
                faults.add(format!("run {index} from {first}: {together:?} and {apart:?}"));
            }
        }
    });
}

/// A second look ([`crate::page::PageFormat::explain`]) is never milder, and names no other page.
pub fn second_look_is_never_milder(specimens: &[Specimen]) {
    for_every_specimen(specimens, |specimen, faults| {
        let mut random = Random(SEED);
        let mut pages: Vec<_> = other_numbers(specimen)
            .map(|number| (number, specimen.good.clone()))
            .chain((0..64).map(|_| (specimen.page, random.bytes(specimen.good.len()))))
            .collect();
        for byte in (0..specimen.good.len()).step_by(61) {
            let mut page = specimen.good.clone();
            page[byte] ^= 1;
            pages.push((specimen.page, page));
        }
        for (number, page) in pages {
            let Outcome::Failed(before) = judge(specimen, number, &page) else { continue };
            let relations = [
                FakeRelation { count: 0, page: None },
                FakeRelation { count: u64::MAX, page: Some(page.clone()) },
                FakeRelation { count: 1 << 18, page: Some(specimen.good.clone()) },
                FakeRelation { count: 1 << 18, page: Some(Vec::new()) },
            ];
            for relation in relations {
                let mut after = before.clone();
                specimen.format.explain(&page, &mut after, &relation);
                let is_same = (after.page, after.severity, after.standing)
                    == (before.page, before.severity, before.standing);
                if !is_same {
                    faults.add(format!("{before:?} became {after:?}"));
                }
            }
        }
    });
}

/// Whatever is read, under whatever number: no panic, and each whole page
/// is counted once (which `judge_run` asserts).
pub fn arbitrary_runs_are_judged_and_counted_once(specimens: &[Specimen]) {
    let runs = (
        any::<prop::sample::Index>(),
        // Mostly no multiple of the page.
        any::<prop::sample::Index>(),
        prop_oneof![any::<u64>(), 0..10_u64, Just(u64::MAX)],
        any::<u64>(),
        // Header fields that arise by chance only once in ages.
        prop::collection::vec((any::<prop::sample::Index>(), any::<u16>()), 0..8),
        any::<bool>(),
    );
    let judged =
        TestRunner::default().run(&runs, |(choice, length, first, seed, patches, is_good)| {
            let specimen = choice.get(specimens);
            let mut bytes = if is_good {
                specimen.good.repeat(4)
            } else {
                Random(seed).bytes(4 * specimen.good.len())
            };
            for (at, value) in patches {
                let at = at.index(48);
                bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
            bytes.truncate(length.index(bytes.len() + 1));
            judge_run(specimen, PageNo(first), &bytes);
            Ok(())
        });
    judged.unwrap();
}

/// Runs a trial on every specimen and fails if any of them did.
fn for_every_specimen(specimens: &[Specimen], trial: impl Fn(&Specimen, &mut Faults) + Sync) {
    let mut all = Vec::new();
    // The flips of large pages take their time.
    std::thread::scope(|scope| {
        let trial = &trial;
        let running: Vec<_> = specimens
            .iter()
            .map(|specimen| {
                scope.spawn(move || {
                    let mut faults = Faults { of: label(specimen), lines: Vec::new() };
                    trial(specimen, &mut faults);
                    faults.lines
                })
            })
            .collect();
        for thread in running {
            match thread.join() {
                Ok(lines) => all.extend(lines),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let shown = all.len().min(FAULTS_SHOWN);
    assert!(all.is_empty(), "{} faults:\n{}", all.len(), all[..shown].join("\n"));
}

fn label(specimen: &Specimen) -> String {
    format!("{}, {} bytes", specimen.name, specimen.good.len())
}

/// What one specimen did wrong.
struct Faults {
    of: String,
    lines: Vec<String>,
}

impl Faults {
    fn add(&mut self, what: impl AsRef<str>) {
        self.lines.push(format!("{}: {}", self.of, what.as_ref()));
    }

    fn must_pass(
        &mut self,
        specimen: &Specimen,
        number: PageNo,
        page: &[u8],
        standing: Standing,
        what: &str,
    ) {
        match judge(specimen, number, page) {
            Outcome::Passed(as_what) if as_what == standing => {}
            other => self.add(format!("{what} must count as {standing:?}, but: {other:?}")),
        }
    }

    fn must_fail(&mut self, specimen: &Specimen, number: PageNo, page: &[u8], what: &str) {
        match judge(specimen, number, page) {
            Outcome::Failed(finding) if finding.severity == Severity::Damage => {}
            other => self.add(format!("{what} must be damage, but: {other:?}")),
        }
    }
}

/// What came out for one page.
#[derive(Debug)]
enum Outcome {
    Passed(Standing),
    Failed(PageFinding),
}

fn judge(specimen: &Specimen, number: PageNo, page: &[u8]) -> Outcome {
    assert_eq!(page.len(), specimen.format.page_size(), "{}", label(specimen));
    let mut verdict = judge_run(specimen, number, page);
    if let Some(at) = verdict.findings.iter().position(|finding| finding.standing.is_some()) {
        return Outcome::Failed(verdict.findings.swap_remove(at));
    }
    let standing = verdict.standings.iter().find_map(|(standing, _)| standing);
    Outcome::Passed(standing.expect("none of the pages here is one to be skipped"))
}

/// Judges a run and checks the books: each whole page is counted once, each
/// page in use by its protection, and findings name pages of the run in order.
fn judge_run(specimen: &Specimen, first: PageNo, bytes: &[u8]) -> RunVerdict {
    let mut verdict = RunVerdict::default();
    specimen.format.judge(PageRun { first, bytes }, &mut verdict);
    let pages = (bytes.len() / specimen.format.page_size()) as u64;
    let failing = verdict.findings.iter().filter(|finding| finding.standing.is_some()).count();
    let mut counts = verdict.counts;
    verdict.findings.iter().filter_map(|finding| finding.standing).for_each(|it| counts.add(it));
    let (mut listed, mut listed_counts, mut skipped) = (0, PageCounts::default(), 0);
    for (standing, run) in verdict.standings.iter() {
        listed += run;
        match standing {
            Some(standing) => (0..run).for_each(|_| listed_counts.add(standing)),
            None => skipped += run,
        }
    }
    assert_eq!(listed, pages, "{} from {first}: {verdict:?}", label(specimen));
    assert_eq!(counts.total() + skipped, pages, "{} from {first}: {verdict:?}", label(specimen));
    assert_eq!(counts, listed_counts, "{} from {first}: {verdict:?}", label(specimen));
    let modes = verdict.by_mode;
    assert_eq!(
        modes.checksum + modes.torn + modes.none,
        verdict.counts.used() + failing as u64,
        "{} from {first}: {verdict:?}",
        label(specimen)
    );
    let numbers: Vec<_> = verdict.findings.iter().map(|finding| finding.page).collect();
    assert!(numbers.is_sorted(), "{}: {numbers:?}", label(specimen));
    assert!(
        numbers.iter().all(|number| (first..first.plus(pages.max(1))).contains(number))
            || first.plus(pages) == PageNo(u64::MAX),
        "{} from {first}: {numbers:?}",
        label(specimen)
    );
    verdict
}

fn stamped(page: &[u8], stamp: fn(&mut [u8], PageNo), number: PageNo) -> Vec<u8> {
    let mut page = page.to_vec();
    stamp(&mut page, number);
    page
}

/// 64 numbers beside `number`: one bit away, and anywhere below 2^32, which is
/// as wide as an engine's page numbers are.
fn other_numbers(specimen: &Specimen) -> impl Iterator<Item = PageNo> {
    let number = specimen.page;
    // SQLite never writes the page with this byte, so that nothing can be expected there.
    const LOCK_BYTE: u64 = 1 << 30;
    let skipped = LOCK_BYTE / specimen.good.len() as u64 + 1;
    let mut random = Random(SEED);
    let one_bit = (0..32).map(move |bit| number.0 ^ 1 << bit);
    let anywhere = std::iter::repeat_with(move || random.next() >> 32);
    one_bit
        .chain(anywhere)
        .filter(move |other| *other > 1 && *other != number.0 && *other != skipped)
        .map(PageNo)
        .take(64)
}

/// Another page that is sound under the same number and differs in every
/// sector: each change to the content stays if the page passes with it, so
/// that headers keep the rules of their format without being known here.
fn another_good_page(specimen: &Specimen, stamp: fn(&mut [u8], PageNo)) -> Vec<u8> {
    const CHANGES_PER_SECTOR: usize = 6;
    let mut random = Random(SEED);
    let mut other = specimen.good.clone();
    for sector in (0..other.len()).step_by(SECTOR_BYTES) {
        for _ in 0..CHANGES_PER_SECTOR {
            let mut changed = other.clone();
            let byte = random.bytes(1)[0].max(1);
            changed[sector + random.below(SECTOR_BYTES)] ^= byte;
            stamp(&mut changed, specimen.page);
            if matches!(judge(specimen, specimen.page, &changed), Outcome::Passed(standing) if standing == specimen.standing)
            {
                other = changed;
            }
        }
    }
    other
}

/// Pages of every fate, under numbers from `first` on.
fn mixed_run(specimen: &Specimen, first: PageNo, pages: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pages * specimen.good.len());
    for at in 0..pages as u64 {
        let number = first.plus(at);
        let mut page = match specimen.stamp {
            Some(stamp) => stamped(&specimen.good, stamp, number),
            None => specimen.good.clone(),
        };
        match random.below(6) {
            0 => page.fill(0),
            1 => {
                let at = random.below(page.len());
                page[at] ^= 1 << random.below(8);
            }
            2 => page = random.bytes(page.len()),
            // Headers are where formats differ most from noise.
            3 => {
                let at = random.below(64);
                page[at] = random.bytes(1)[0];
            }
            _ => {}
        }
        bytes.extend(page);
    }
    bytes
}

/// A relation of which every page is the same, or cannot be read.
struct FakeRelation {
    count: u64,
    page: Option<Vec<u8>>,
}

impl Neighbours for FakeRelation {
    fn page_count(&self) -> u64 {
        self.count
    }

    fn page(&self, _: PageNo) -> Option<Vec<u8>> {
        self.page.clone()
    }
}

/// SplitMix64: enough for a test, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than a usize")
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next().to_le_bytes()).take(count.div_ceil(8));
        let mut bytes = words.flatten().collect::<Vec<u8>>();
        bytes.truncate(count);
        bytes
    }
}
