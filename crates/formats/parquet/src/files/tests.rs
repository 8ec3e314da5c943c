//! Golden files, and files that are made here byte by byte; damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use std::fs;
use std::io::Write as _;
use std::num::NonZero;

use super::*;
use crate::checksum::page_sum;
use pagewarden_core::source::read_ahead::Seats;
use pagewarden_core::verdict::{Unread, Verdict};
use pagewarden_core::verify::{Caching, Options, Sink, Summary, verify};

fn golden(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/parquet");
    fs::read(Path::new(folder).join(name)).unwrap()
}

const CRC: &str = "pyarrow-26.0.1/crc.parquet";
const PLAIN: &str = "pyarrow-26.0.1/plain.parquet";

#[derive(Default)]
struct Kept {
    findings: Vec<Finding>,
    notes: Vec<String>,
    unread: u64,
}

impl Sink for Kept {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        self.unread += 1;
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(note.text.clone());
        Ok(())
    }
}

fn checked(bytes: &[u8]) -> (Verdict, Summary, Kept) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.parquet");
    fs::write(&path, bytes).unwrap();
    let target = open(&path, &fs::metadata(&path).unwrap(), &OpenOptions::default()).unwrap();
    let mut seen = Kept::default();
    let jobs = NonZero::new(3).unwrap();
    let options = Options { jobs, caching: Caching::Cached, ..Options::default() };
    let verified = verify(target, &options, &(), &mut seen).unwrap();
    assert_eq!(seen.unread, 0);
    (verified.verdict(), verified.summary, seen)
}

fn verdict(bytes: &[u8]) -> Verdict {
    checked(bytes).0
}

/// The stored bytes of each page, without the header, as the steps have them.
fn pages_of(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.parquet");
    fs::write(&path, bytes).unwrap();
    let target = open(&path, &fs::metadata(&path).unwrap(), &OpenOptions::default()).unwrap();
    let seats = Seats::new(0);
    let steps = target.steps.flat_map(|step| match step {
        Step::Apart(apart) => apart.into_steps(&seats).collect(),
        step => vec![step],
    });
    let pages = steps.filter_map(|step| match step {
        Step::Pages(pages) if !pages.bytes.is_empty() => Some(pages),
        _ => None,
    });
    pages
        .map(|pages| {
            let header = header::PageHeader::read(&pages.bytes).unwrap().bytes;
            let begin = pages.offset.0 as usize;
            begin + header..begin + pages.bytes.len()
        })
        .collect()
}

#[test]
fn golden_files_are_what_their_writers_made() {
    for (name, expected, pages, unverifiable) in [
        (CRC, Verdict::Intact, 20, 0),
        ("pyarrow-26.0.1/v2.parquet", Verdict::Intact, 20, 0),
        (PLAIN, Verdict::Unprotected, 20, 0),
        ("duckdb-2.0.1/plain.parquet", Verdict::Unprotected, 7, 0),
        ("polars-2.1.0/plain.parquet", Verdict::Unprotected, 14, 0),
        ("fastparquet-2026.9.0/plain.parquet", Verdict::Unprotected, 8, 0),
        ("pyarrow-26.0.1/sealed.parquet", Verdict::Incomplete, 0, 0),
        ("pyarrow-26.0.1/columns.parquet", Verdict::Incomplete, 20, 4),
    ] {
        let (verdict, summary, seen) = checked(&golden(name));
        assert_eq!((verdict, seen.findings.as_slice()), (expected, &[][..]), "{name}");
        let counts = (summary.pages.total(), summary.pages.unverifiable, summary.files);
        assert_eq!(counts, (pages, unverifiable, 1), "{name}");
    }
}

#[test]
fn every_flipped_bit_of_a_page_with_crc_is_found_and_named() {
    for name in [CRC, "pyarrow-26.0.1/v2.parquet"] {
        let good = golden(name);
        for page in pages_of(&good) {
            for at in page.clone().step_by(331).chain([page.start, page.end - 1]) {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << (at % 8);
                let (verdict, summary, seen) = checked(&bytes);
                assert_eq!((verdict, summary.pages.damaged), (Verdict::Damaged, 1), "{at}");
                let [finding] = seen.findings.as_slice() else { panic!("{:?}", seen.findings) };
                assert_eq!(finding.kind, Kind::BitFlip, "{at}: {finding:?}");
                let object = finding.object.as_deref().unwrap_or_default();
                assert!(object.starts_with("row group "), "{object}");
            }
        }
    }
}

/// What threads say of a file to which `change` happens once its first headers were read.
fn said_of_a_file_that_changes(change: impl Fn(&Path)) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.parquet");
    fs::write(&path, golden(CRC)).unwrap();
    let target = open(&path, &fs::metadata(&path).unwrap(), &OpenOptions::default()).unwrap();
    let (seats, mut batches, mut said) = (Seats::new(0), 0, Vec::new());
    for step in target.steps {
        let steps = match step {
            Step::Apart(apart) => {
                batches += 1;
                if batches == 1 {
                    change(&path);
                }
                apart.into_steps(&seats).collect()
            }
            step => vec![step],
        };
        let unread = steps.into_iter().filter_map(|step| match step {
            Step::Unread(unread) => Some(unread.error),
            _ => None,
        });
        said.extend(unread);
    }
    assert!(batches > 1, "{batches}");
    said
}

#[test]
fn file_that_changes_under_the_threads_that_read_it_is_unread() {
    assert_eq!(said_of_a_file_that_changes(|_| {}), Vec::<String>::new());
    let said = said_of_a_file_that_changes(|path| {
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"!").unwrap();
    });
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("written to while it was read"), "{said:?}");
    let said = said_of_a_file_that_changes(|path| {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(20).unwrap();
    });
    assert!(said.iter().any(|why| why.contains("became shorter")), "{said:?}");
    assert!(said.iter().any(|why| why.contains("written to while it was read")), "{said:?}");
}

#[test]
fn zeroed_and_exchanged_pages_are_found() {
    let good = golden(CRC);
    let pages = pages_of(&good);
    let mut bytes = good.clone();
    bytes[pages[3].clone()].fill(0);
    let (_, _, seen) = checked(&bytes);
    assert_eq!(seen.findings.iter().map(|it| it.kind).collect::<Vec<_>>(), [Kind::Zeroed]);
    // The content of two pages, under each other's header.
    for (one, page) in pages.iter().enumerate() {
        let same = |other: &&std::ops::Range<usize>| other.len() == page.len();
        let Some(other) = pages[one + 1..].iter().find(same) else { continue };
        let mut bytes = good.clone();
        bytes[page.clone()].copy_from_slice(&good[other.clone()]);
        bytes[other.clone()].copy_from_slice(&good[page.clone()]);
        if bytes != good {
            assert_eq!(verdict(&bytes), Verdict::Damaged, "{page:?} and {other:?}");
        }
    }
}

/// Behind a header that is destroyed, the offset index leads to the next page.
#[test]
fn page_behind_a_destroyed_header_is_tested_if_there_is_an_offset_index() {
    let good = golden(CRC);
    let (_, before, _) = checked(&good);
    let pages = pages_of(&good);
    // The second page of the first chunk: what is between two pages is a header.
    let header = pages[0].end..pages[1].start;
    let mut bytes = good.clone();
    bytes[header].fill(0);
    let (verdict, summary, seen) = checked(&bytes);
    assert_eq!(verdict, Verdict::Damaged);
    assert_eq!(summary.pages.ok, before.pages.ok - 1, "{:?}", seen.findings);
    assert_eq!(seen.findings[0].kind, Kind::Zeroed);
    assert_eq!(seen.findings[0].place.page.map(|page| page.0), Some(1));
}

#[test]
fn file_that_was_cut_anywhere_is_damaged() {
    for name in [CRC, PLAIN] {
        let good = golden(name);
        for length in (0..good.len()).step_by(1009).chain(good.len() - 12..good.len()) {
            let (verdict, _, seen) = checked(&good[..length]);
            assert_eq!(verdict, Verdict::Damaged, "{length}");
            assert!(seen.findings.iter().any(|it| it.kind == Kind::Truncated), "{length}");
        }
    }
}

/// No panic, no end that does not come; and no page that is counted twice.
#[test]
fn file_with_any_byte_changed_is_read_to_its_end() {
    for name in [CRC, PLAIN, "pyarrow-26.0.1/columns.parquet", "duckdb-2.0.1/plain.parquet"] {
        let good = golden(name);
        let footer = good.len() - 4000;
        for at in (0..footer).step_by(997).chain((footer..good.len()).step_by(11)) {
            for value in [0xFF, good[at] ^ 1 << (at % 8)] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let (_, summary, _) = checked(&bytes);
                assert!(summary.bytes <= good.len() as u64, "{name} {at}");
            }
        }
    }
}

/// Fields and numbers as Thrift writes them.
struct Made(Vec<u8>);

impl Made {
    /// A number of 32 bits.
    fn int(self, delta: u8, number: i64) -> Self {
        self.any(delta << 4 | 5, number)
    }

    /// A number of 64 bits.
    fn long(self, delta: u8, number: i64) -> Self {
        self.any(delta << 4 | 6, number)
    }

    fn any(mut self, field: u8, number: i64) -> Self {
        self.0.push(field);
        let mut zigzag = (number << 1 ^ number >> 63).cast_unsigned();
        while zigzag > 0x7F {
            self.0.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        self.0.push(zigzag as u8);
        self
    }

    fn text(mut self, delta: u8, text: &str) -> Self {
        self.0.extend([delta << 4 | 8, text.len() as u8]);
        self.0.extend(text.as_bytes());
        self
    }

    fn part(mut self, delta: u8, part: Self) -> Self {
        self.0.push(delta << 4 | 12);
        self.0.extend(part.end());
        self
    }

    fn list(mut self, delta: u8, parts: Vec<Self>) -> Self {
        self.0.extend([delta << 4 | 9, (parts.len() as u8) << 4 | 12]);
        self.0.extend(parts.into_iter().flat_map(Self::end));
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}

fn new() -> Made {
    Made(Vec::new())
}

/// A file of one column with a page of 5 values, whose chunks are at these places.
fn made(places: &[(i64, i64)]) -> Vec<u8> {
    let stored = [7_u8; 40];
    let data = new().int(1, 5).int(1, 0).int(1, 3).int(1, 3);
    let sum = i64::from(page_sum(&stored).cast_signed());
    let page = new().int(1, 0).int(1, 40).int(1, 40).int(1, sum).part(1, data).end();
    let mut file = [MAGIC.to_vec(), page, stored.to_vec()].concat();
    let bytes = file.len() as i64 - 4;
    let group = |(begin, length): &(i64, i64)| {
        let (begin, length) = (4 + begin, bytes + length);
        let mut path = new();
        // A list of one encoding, and one of one name.
        path.0.extend([0x19, 0x15, 0, 0x19, 0x18, 1, b'a']);
        let column = new().int(1, 1);
        let column = Made([column.0, path.0].concat());
        let column = column.int(1, 0).long(1, 5).long(1, bytes).long(1, length);
        let chunk = new().long(2, begin).part(1, column.long(2, begin));
        new().list(1, vec![chunk]).long(1, length).long(1, 5)
    };
    let schema = vec![new().text(4, "root").int(1, 1), new().int(1, 1).int(2, 0).text(1, "a")];
    let groups: Vec<_> = places.iter().map(group).collect();
    let rows = 5 * groups.len() as i64;
    let footer = new().int(1, 2).list(1, schema).long(1, rows).list(1, groups).end();
    file.extend(&footer);
    file.extend((footer.len() as u32).to_le_bytes());
    file.extend(MAGIC);
    file
}

#[test]
fn chunks_that_are_nowhere_or_in_each_other_are_damage_and_not_read() {
    let (verdict, summary, seen) = checked(&made(&[(0, 0)]));
    assert_eq!((verdict, summary.pages.ok), (Verdict::Intact, 1), "{:?}", seen.findings);
    for (places, pages) in [
        (vec![(0, 0), (0, 0)], 1),
        (vec![(1_i64 << 40, 0)], 0),
        (vec![(0, 1 << 40)], 0),
        (vec![(i64::MAX - 4, 0)], 0),
        (vec![(0, i64::MAX >> 1)], 0),
        (vec![(-4, 0)], 0),
    ] {
        let (verdict, summary, seen) = checked(&made(&places));
        let outcome = (verdict, summary.pages.total());
        assert_eq!(outcome, (Verdict::Damaged, pages), "{places:?}: {:?}", seen.findings);
    }
    // One that ends inside its page, and one with bytes behind it.
    for length in [-1, 3] {
        let file = made(&[(0, length)]);
        let (verdict, _, seen) = checked(&file);
        assert_eq!(verdict, Verdict::Damaged, "{:?}", seen.findings);
    }
}

#[test]
fn bytes_that_belong_to_nothing_are_named() {
    let good = made(&[(0, 0)]);
    let footer = good.len() - 8 - good[good.len() - 8] as usize;
    let with_gap = [&good[..footer], &[9; 100], &good[footer..]].concat();
    let (verdict, _, seen) = checked(&with_gap);
    assert_eq!(verdict, Verdict::Intact);
    assert!(
        seen.notes[0].starts_with("100 bytes in 1 place belong to no page"),
        "{:?}",
        seen.notes
    );
}

#[test]
fn marks_that_are_gone_are_damage() {
    let good = golden(CRC);
    let end = good.len();
    for (place, kind) in [(0, Kind::BitFlip), (end - 2, Kind::BitFlip)] {
        let mut bytes = good.clone();
        bytes[place] ^= 4;
        let (verdict, _, seen) = checked(&bytes);
        assert_eq!((verdict, seen.findings[0].kind), (Verdict::Damaged, kind));
    }
    let mut bytes = good;
    bytes[end - 4096..].fill(0);
    assert_eq!(checked(&bytes).2.findings[0].kind, Kind::Zeroed);
    assert_eq!(checked(b"").2.findings[0].kind, Kind::Truncated);
}

#[test]
fn only_what_is_parquet_or_called_so_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let probed = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        probe(&path, &fs::metadata(&path).unwrap())
    };
    let good = golden(CRC);
    assert_eq!(probed("data", &good), Probe::Yes);
    assert_eq!(probed("data", &golden("pyarrow-26.0.1/sealed.parquet")), Probe::Yes);
    assert_eq!(probed("data", &good[..999]), Probe::Yes);
    assert_eq!(probed("data", &good[999..]), Probe::Yes);
    assert_eq!(probed("data", &good[999..good.len() - 1]), Probe::No);
    assert_eq!(probed("data.PARQ", &good[999..good.len() - 1]), Probe::Maybe);
    assert_eq!(probed("a.parquet", b"nothing of the kind"), Probe::Maybe);
    assert_eq!(probed("a.parquet", b""), Probe::Yes);
    assert_eq!(probed("notes", b"PAR1 is how they begin, and PAR1"), Probe::Yes);
    assert_eq!(probed("notes", b"PAR1 is how they begin"), Probe::Maybe);
    assert_eq!(probed("notes", b"how do they end: PAR1"), Probe::Maybe);
    assert_eq!(probed("data", b"nothing of the kind"), Probe::No);
    assert_eq!(probed("data", b""), Probe::No);
}

#[test]
fn old_versions_of_parquet_mr_are_known_to_forget_headers() {
    for (writer, is_old) in [
        ("parquet-mr", true),
        ("parquet-mr version 1.2.8 (build 1)", true),
        ("parquet-mr version 1.2.9", false),
        ("parquet-mr version 1.12.0-201812-a8629 (build e)", false),
        ("parquet-cpp-arrow version 26.0.1", false),
    ] {
        assert_eq!(forgets_headers(writer), is_old, "{writer}");
    }
}

/// Readers pass over a number of another size than they expect, and then lack it; readers of Arrow open no
/// file whose schema of Arrow is no base64.
#[test]
fn footer_that_readers_refuse_is_damage() {
    let good = made(&[(0, 0)]);
    let at = |bytes: &[u8]| good.windows(bytes.len()).rposition(|window| window == bytes).unwrap();
    // The number of rows in the file.
    let rows = at(&[0x16, 10, 0x19]);
    let mut bytes = good.clone();
    bytes[rows] = 0x14;
    let (verdict, ..) = checked(&bytes);
    assert_eq!(verdict, Verdict::Damaged);
    let mut bytes = golden(PLAIN);
    let key = bytes.windows(12).rposition(|window| window == b"ARROW:schema").unwrap();
    assert_eq!(checked(&bytes).0, Verdict::Unprotected);
    bytes[key + 40] = 0;
    assert_eq!(checked(&bytes).0, Verdict::Damaged);
}

/// Whatever a footer says that pyarrow refuses, by one flipped bit, is seen, but for one in thirty: a codec
/// that is another one, a meaning that the type cannot have. Of the schema of Arrow in it, only the form is
/// looked at.
#[test]
fn footers_that_pyarrow_refuses_are_seen() {
    let good = golden(CRC);
    let refused = String::from_utf8(golden("pyarrow-26.0.1/crc.refused")).unwrap();
    let at = |word: &str| good.windows(word.len()).rposition(|it| it == word.as_bytes()).unwrap();
    let of_arrow = at("ARROW:schema")..at("parquet-cpp-arrow");
    let (mut unseen, mut all) = (Vec::new(), 0);
    for bit in refused.split_whitespace().map(|bit| bit.parse::<usize>().unwrap()) {
        if of_arrow.contains(&(bit / 8)) {
            continue;
        }
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        all += 1;
        if checked(&bytes).2.findings.is_empty() {
            unseen.push(bit);
        }
    }
    assert!(all > 1000 && unseen.len() * 30 < all, "{} of {all}: {unseen:?}", unseen.len());
}

/// The length of values, and how often a column may be there, are in the pages, too.
#[test]
fn schema_that_is_not_that_of_the_pages_is_damage() {
    let footer = |bytes: &[u8]| {
        let length = u32::from_le_bytes(*bytes[bytes.len() - 8..].first_chunk().unwrap());
        Footer::read(&bytes[bytes.len() - 8 - length as usize..bytes.len() - 8]).unwrap()
    };
    let mut known = footer(&golden(CRC));
    assert_eq!(known.contradictions(), [""; 0]);
    let counted = known.groups[0].chunks[0].column.as_ref().unwrap().counted_levels;
    assert!(counted != [0, 0], "this writer counts them");
    known.leaves[0].levels[1] += 1;
    assert!(known.contradictions()[0].contains("the counts of its levels"));
}
