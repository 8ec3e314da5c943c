//! A campaign: thousands of seeded wounds to every sound file of the collection, and none of the
//! results may be called intact, unless what was hit is not in use, or lies in a blind spot that the
//! run itself names. What is in use is reckoned here, from the sound file, by readers of our own.
//!
//! `PAGEWARDEN_WOUNDS` says how many small wounds each file gets (40 if it is not set),
//! `PAGEWARDEN_SEED` where they begin. `--nocapture` shows the table.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use pagewarden::database;
use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page};
use pagewarden::verdict::{Finding, Note, Unread, Verdict};
use pagewarden::verify::{Caching, Options, Sink, Verified, verify};

use super::mutations::is_sound;
use super::{Random, folder, u16_at, u32_at};

const EXTENT: usize = 1 << 16;
const SECTOR: usize = 512;
const STREAM_HEADER: usize = 22;

/// A sound file, and what of it is in use.
struct Subject {
    name: String,
    bytes: Vec<u8>,
    parts: Vec<Part>,
}

/// A stretch of a file that means something.
struct Part {
    begin: usize,
    bytes: usize,
    what: What,
}

/// What a stretch is, and so what may happen to it unseen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Nothing may.
    Whole,
    /// A page that is in use.
    Page,
    /// A block of log.
    Block,
    /// A block of the newest part of a log file, of which only the database knows where it ends.
    NewestBlock,
    /// Nothing is in it that is in use.
    Free,
    /// What a set says of itself, which it says again at its end.
    Description,
    /// It carries no sum.
    Unsummed,
}

/// What was done to a file.
struct Wound {
    what: String,
    kind: &'static str,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Heard(Vec<String>);

impl Sink for Heard {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.0.push(note.text.clone());
        Ok(())
    }
}

/// The verdict on a file, and all that a run says of it besides; `None` where it is refused.
fn judged(path: &Path) -> Option<(Verdict, String)> {
    let target = database::open(path, None).ok()?;
    let mut heard = Heard::default();
    let options = Options {
        caching: Caching::Cached,
        jobs: std::num::NonZeroUsize::new(1).unwrap(),
        ..Options::default()
    };
    let verified = verify(target, &options, &(), &mut heard).unwrap();
    let Verified { description, summary, .. } = &verified;
    let mut said = vec![description.state.clone(), description.evidence.unseen.to_owned()];
    if summary.pages.unprotected > 0 {
        said.push(format!("{} unprotected", summary.pages.unprotected));
    }
    let words = ["carry no sums", "without a sum", "without sums"];
    if heard.0.iter().any(|note| words.iter().any(|words| note.contains(words))) {
        said.push("log without sums".to_owned());
    }
    said.extend(heard.0);
    Some((summary.verdict(description.setting), said.join("; ")))
}

fn main_extension(name: &str) -> String {
    let name = name.trim_end_matches(".xz");
    Path::new(name).extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// Every file of the collection that is called intact.
fn subjects() -> Vec<Subject> {
    let mut paths: Vec<_> = [folder(), folder().join("wild")]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    let scratch = tempfile::tempdir().unwrap();
    let mut subjects = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let extension = main_extension(&name);
        if !["mdf", "ndf", "ldf", "bak", "trn"].contains(&&*extension) {
            continue;
        }
        let bytes = match name.ends_with(".xz") {
            true => Command::new("xz").arg("-dc").arg(&path).output().unwrap().stdout,
            false => fs::read(&path).unwrap(),
        };
        let copy = scratch.path().join(format!("x.{extension}"));
        fs::write(&copy, &bytes).unwrap();
        let sound = matches!(judged(&copy), Some((Verdict::Intact | Verdict::Unprotected, _)));
        if sound {
            let parts = match &*extension {
                "ldf" => parts_of_log_file(&bytes),
                "mdf" | "ndf" => parts_of_data_file(&bytes),
                _ if bytes.starts_with(b"TAPE") => parts_of_backup(&bytes),
                _ => Vec::new(),
            };
            subjects.push(Subject { name, bytes, parts });
        }
    }
    subjects
}

fn page_at(bytes: &[u8], at: usize) -> Option<&Page> {
    bytes.get(at..)?.first_chunk()
}

/// Pages that every file has.
fn is_fixed(file: u16, number: usize) -> bool {
    [0, 1, 2, 3, 6, 7].contains(&number) || (file == 1 && number == 9)
}

fn parts_of_data_file(bytes: &[u8]) -> Vec<Part> {
    let file = u16_at(bytes, 36);
    (0..bytes.len() / PAGE_BYTES)
        .map(|number| {
            let allocated = bytes[PAGE_BYTES + 100 + number] & 0x40 != 0;
            let what = match allocated || is_fixed(file, number) {
                true => What::Page,
                false => What::Free,
            };
            Part { begin: number * PAGE_BYTES, bytes: PAGE_BYTES, what }
        })
        .collect()
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()).try_into().unwrap()
}

/// Blocks and streams one behind the other, each stream with the set that it is of.
fn parts_of_backup(bytes: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut add = |begin, end: usize, what| parts.push(Part { begin, bytes: end - begin, what });
    let (mut block, mut set) = (0, 0);
    let mut extents: Vec<(usize, usize, u32)> = Vec::new();
    while block + 52 <= bytes.len() {
        let kind = &bytes[block..block + 4];
        set += u32::from(kind == b"SSET");
        let mut at = block + usize::from(u16_at(bytes, block + 8));
        add(block, block + 52, What::Whole);
        add(block + 52, at, What::Unsummed);
        let mut has_streams = kind != b"SFMB";
        while has_streams {
            let kind = &bytes[at..at + 4];
            let (begin, end) = (at + STREAM_HEADER, at + STREAM_HEADER + u64_at(bytes, at + 8));
            add(at, begin, What::Whole);
            match kind {
                b"SPAD" | b"APAD" => add(begin, end, What::Free),
                b"MQDA" => extents.push((begin + 2, end, set)),
                b"MQTL" => add_blocks(bytes, begin + 2, end, What::Block, &mut add),
                b"RAID" => add(begin, end, What::Whole),
                b"MQCI" => add_records(bytes, begin, end, &mut add),
                _ => add(begin, end, What::Unsummed),
            }
            at = end.next_multiple_of(4);
            has_streams = kind != b"SPAD";
        }
        block = at;
    }
    for (begin, end, set) in &extents {
        for at in (*begin..*end).step_by(PAGE_BYTES).filter(|at| at + PAGE_BYTES <= *end) {
            let what = match is_page_in_use(bytes, at, &extents, *set) {
                true => What::Page,
                false => What::Free,
            };
            add(at, at + PAGE_BYTES, what);
        }
    }
    parts
}

/// The records of a description. Some of their places differ between the beginning and the end of a
/// set: what is in them cannot be compared.
fn add_records(bytes: &[u8], begin: usize, end: usize, add: &mut impl FnMut(usize, usize, What)) {
    let mut at = begin;
    while at + 8 <= end {
        let places: &[(usize, usize)] = match &bytes[at..at + 4] {
            b"SCIN" => &[(32, 72), (82, 88), (96, 100), (148, 152), (252, 262), (336, 348)],
            b"SFGI" => &[(52, 88), (100, 136)],
            b"SFIN" => &[(24, 28), (156, 188), (204, 214), (220, 226), (236, 246), (250, 272)],
            _ => &[],
        };
        let size = u32_at(bytes, at + 4) as usize;
        let mut done = 0;
        for (from, to) in places.iter().filter(|(_, to)| *to <= size) {
            add(at + done, at + from, What::Description);
            add(at + from, at + to, What::Unsummed);
            done = *to;
        }
        add(at + done, at + size, What::Description);
        at += size;
    }
}

/// True for the page at `at` if a page of free space of the same set says so, or every file has it.
fn is_page_in_use(bytes: &[u8], at: usize, extents: &[(usize, usize, u32)], set: u32) -> bool {
    let (file, number) = (u16_at(bytes, at + 36), u32_at(bytes, at + 32) as usize);
    if bytes[at] != 1 || bytes[at + 1] == 101 || file == 0 {
        return false;
    }
    let is_free_space = |at: &usize| {
        bytes[*at] == 1
            && bytes[at + 1] == 11
            && u16_at(bytes, at + 36) == file
            && u32_at(bytes, at + 32) == 1
    };
    let of_set = extents.iter().filter(|(.., of)| *of == set);
    let mut pages = of_set.flat_map(|(begin, end, _)| (*begin..*end).step_by(PAGE_BYTES));
    is_fixed(file, number)
        || pages
            .find(is_free_space)
            .is_none_or(|map| number < 8088 && bytes[map + 100 + number] & 0x40 != 0)
}

/// Adds the blocks that follow one another, and what lies behind them.
fn add_blocks(
    bytes: &[u8],
    begin: usize,
    end: usize,
    what: What,
    add: &mut impl FnMut(usize, usize, What),
) {
    let (sequence, mut place) = (u32_at(bytes, begin + 12), u32_at(bytes, begin + 16));
    let mut at = begin;
    while at + SECTOR <= end && bytes[at] & 0x10 != 0 {
        let size = usize::from(u16_at(bytes, at + 6));
        let is_next = (u32_at(bytes, at + 12), u32_at(bytes, at + 16)) == (sequence, place);
        if !is_next || size == 0 || at + size > end {
            break;
        }
        add(at, at + size, what);
        (at, place) = (at + size, place + (size / SECTOR) as u32);
    }
    add(at, end, What::Free);
}

/// The first page, and the parts (virtual log files) one behind the other.
fn parts_of_log_file(bytes: &[u8]) -> Vec<Part> {
    let mut begins = Vec::new();
    let mut at = PAGE_BYTES;
    while at < bytes.len() {
        begins.push(at);
        at += u64_at(bytes, at + 16);
    }
    let is_begun = |at: &usize| u32_at(bytes, at + 12) != 0;
    let sequences = begins.iter().filter(|at| is_begun(at)).map(|at| u32_at(bytes, at + 4));
    let newest = sequences.max().unwrap();
    let mut parts = Vec::new();
    let mut add = |begin, end: usize, what| parts.push(Part { begin, bytes: end - begin, what });
    add(0, PAGE_BYTES, What::Page);
    for at in begins {
        let (begin, end) = (at + PAGE_BYTES, at + u64_at(bytes, at + 16));
        add(at, at + 32, What::Whole);
        add(at + 32, begin, What::Free);
        if !is_begun(&at) {
            add(begin, end, What::Free);
            continue;
        }
        let is_newest = u32_at(bytes, at + 4) == newest;
        let what = if is_newest { What::NewestBlock } else { What::Block };
        add_blocks(bytes, begin, end, what, &mut add);
    }
    parts
}

/// A block without a sum, of which nothing was hit that is tested.
fn is_unsummed(before: &[u8], after: &[u8]) -> bool {
    let is_tested = |at: usize| at < 28 || at.is_multiple_of(SECTOR);
    u32_at(before, 24) == 0 && (0..before.len()).all(|at| before[at] == after[at] || !is_tested(at))
}

/// True if the page came all the same, in the place of another.
fn lies_elsewhere(subject: &Subject, damaged: &[u8], page: &Page) -> bool {
    let pages = subject.parts.iter().filter(|part| part.bytes == PAGE_BYTES);
    let mut pages = pages.filter_map(|part| page_at(damaged, part.begin));
    subject.bytes.len() == damaged.len() && pages.any(|other| other == page)
}

/// Why a wound may pass unseen; `None` if it may not.
fn excuse(subject: &Subject, damaged: &[u8]) -> Option<&'static str> {
    let mut reason = "not in use";
    let mut newest_hit = None;
    let is_backup = subject.bytes.starts_with(b"TAPE");
    for part in &subject.parts {
        let range = part.begin..part.begin + part.bytes;
        let (before, after) = (&subject.bytes[range.clone()], damaged.get(range));
        let is_hit = Some(before) != after;
        if part.what == What::NewestBlock && newest_hit.is_some() && !is_hit {
            return None;
        }
        if !is_hit || part.what == What::Free {
            continue;
        }
        let after = after?;
        reason = match part.what {
            What::Description if differing(before, after) <= 8 => "in other words at its end",
            What::Whole | What::Free | What::Description => return None,
            What::Unsummed => "what carries no sum",
            What::Block if is_unsummed(before, after) => "log without sums",
            What::Block => return None,
            What::NewestBlock if is_unsummed(before, after) => "log without sums",
            What::NewestBlock => {
                newest_hit = Some(part.begin);
                "blocks lost at its very end"
            }
            What::Page => {
                let (before, after) = (page_at(before, 0)?, page_at(after, 0)?);
                let is_same = before[0] == after[0]
                    && u32_at(before, 32) == u32_at(after, 32)
                    && u16_at(before, 36) == u16_at(after, 36);
                // Servers read several disks at a time: extents may come in any order.
                if is_backup && lies_elsewhere(subject, damaged, before) {
                    continue;
                }
                if !is_same || !is_sound(after) {
                    return None;
                }
                match u16_at(after, 4) & 0x300 {
                    0x200 => "words of a sector that changed places",
                    0x100 => "torn bits show torn writes and little else",
                    _ => "unprotected",
                }
            }
        };
    }
    Some(reason)
}

fn differing(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).filter(|(one, other)| one != other).count()
}

fn noise(bytes: &mut [u8], random: &mut Random) {
    bytes.fill_with(|| random.next() as u8);
}

fn wounds(subject: &Subject, count: usize, random: &mut Random) -> Vec<Wound> {
    let whole = &subject.bytes;
    let mut wounds = Vec::new();
    let mut add = |kind: &'static str, what: String, bytes: Vec<u8>| {
        if &bytes != whole {
            wounds.push(Wound { what, kind, bytes });
        }
    };
    let changed = |at: usize, length: usize, change: &mut dyn FnMut(&mut [u8])| {
        let mut bytes = whole.clone();
        let end = (at + length).min(bytes.len());
        change(&mut bytes[at..end]);
        bytes
    };
    for at in (0..whole.len()).step_by(EXTENT) {
        add("extent zeroed", at.to_string(), changed(at, EXTENT, &mut |part| part.fill(0)));
        let mut bytes = whole.clone();
        bytes.drain(at..(at + EXTENT).min(whole.len()));
        add("extent removed", at.to_string(), bytes);
    }
    for _ in 0..count {
        let page = random.below(whole.len().div_ceil(PAGE_BYTES)) * PAGE_BYTES;
        add("page zeroed", page.to_string(), changed(page, PAGE_BYTES, &mut |part| part.fill(0)));
        let sector = random.below(whole.len().div_ceil(SECTOR)) * SECTOR;
        add("sector zeroed", sector.to_string(), changed(sector, SECTOR, &mut |p| p.fill(0)));
        let sector = random.below(whole.len().div_ceil(SECTOR)) * SECTOR;
        add(
            "sector of noise",
            sector.to_string(),
            changed(sector, SECTOR, &mut |p| noise(p, random)),
        );
        let (at, length) = (random.below(whole.len()), 8 + random.below(57));
        add("small", format!("{at}+{length}"), changed(at, length, &mut |p| noise(p, random)));
        let length = random.below(whole.len());
        add("cut", length.to_string(), whole[..length].to_vec());
        let length = random.below(whole.len() / SECTOR) * SECTOR;
        add("cut", length.to_string(), whole[..length].to_vec());
        let last = whole.len() / EXTENT;
        if last > 1 {
            let (one, other) = (random.below(last) * EXTENT, random.below(last) * EXTENT);
            let mut bytes = whole.clone();
            bytes.copy_within(one..one + EXTENT, other);
            bytes[one..one + EXTENT].copy_from_slice(&whole[other..other + EXTENT]);
            add("extents swapped", format!("{one} {other}"), bytes);
        }
    }
    // What is no page is small, and is seldom hit by chance.
    let small: Vec<_> = subject
        .parts
        .iter()
        .filter(|part| {
            matches!(part.what, What::Whole | What::Unsummed | What::Block | What::Description)
        })
        .collect();
    for _ in 0..2 * count {
        let Some(part) = small.get(random.below(small.len().max(1))) else { break };
        let (at, length) = (part.begin + random.below(part.bytes.max(1)), 8 + random.below(57));
        add(
            "small, no page",
            format!("{at}+{length}"),
            changed(at, length, &mut |p| noise(p, random)),
        );
        let at = part.begin / SECTOR * SECTOR;
        add("sector, no page", at.to_string(), changed(at, SECTOR, &mut |p| noise(p, random)));
        add("sector zeroed, no page", at.to_string(), changed(at, SECTOR, &mut |p| p.fill(0)));
    }
    for cut in [1, 64, 512, 1024, 4096, 8192, 16384, 65536] {
        if cut < whole.len() {
            add("beginning lost", cut.to_string(), whole[cut..].to_vec());
        }
    }
    wounds
}

#[test]
#[ignore = "a campaign of minutes"]
fn wounds_to_what_is_in_use_are_never_called_intact() {
    let number = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let count = number("PAGEWARDEN_WOUNDS", 40) as usize;
    let seed = number("PAGEWARDEN_SEED", 1);
    let scratch = tempfile::tempdir().unwrap();
    let mut table: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (subject, index) in subjects().into_iter().zip(0..) {
        let mut random = Random(seed * 1000 + index);
        let path = scratch.path().join(format!("x.{}", main_extension(&subject.name)));
        for wound in wounds(&subject, count, &mut random) {
            fs::write(&path, &wound.bytes).unwrap();
            let row = table.entry(wound.kind).or_default();
            let verdict = match judged(&path) {
                Some((Verdict::Intact | Verdict::Unprotected, said)) => {
                    match excuse(&subject, &wound.bytes) {
                        Some("not in use") => "not in use".to_owned(),
                        Some(reason) if said.contains(reason) => reason.to_owned(),
                        reason => {
                            let what = format!("{}: {} {}", subject.name, wound.kind, wound.what);
                            eprintln!("MISSED {what} ({reason:?})");
                            wrong.push(what);
                            "MISSED".to_owned()
                        }
                    }
                }
                Some((verdict, _)) => verdict.name().to_owned(),
                None => "refused".to_owned(),
            };
            *row.entry(verdict).or_default() += 1;
        }
    }
    for (kind, row) in &table {
        eprintln!("{kind:<20}{row:?}");
    }
    assert!(!table.is_empty(), "no sound file was found in {}", folder().display());
    assert!(wrong.is_empty(), "{} wounds called intact: {wrong:#?}", wrong.len());
}
