//! Every kind of damage that the checkers of MySQL and MariaDB were measured on, and a few more, to
//! a copy of every healthy fixture: which page suffers, which byte and which bit, a seed says.
//!
//! What theory says must be seen is seen; what it says cannot be is asserted as unseen, so that
//! no blind spot is larger or smaller than documented. What is unseen, a seal of the same state
//! shows, as a data directory that was shut down has one by its log; and where only the key is
//! missing, the key.
//!
//! `PAGEWARDEN_SEEDS` says how often each kind is drawn for each file (1 if it is not set),
//! `PAGEWARDEN_SEED` where that begins. `--nocapture` shows the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pagewarden::database::{self, Epoch, Target};
use pagewarden::formats::innodb::page::fields::{
    FSP_FLAGS, FSP_SIZE, LSN, PAGE_NUMBER, PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED,
    TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16, read_u32,
};
use pagewarden::formats::innodb::page::layout::{Form, Layout};
use pagewarden::seal::{Against, Header, Sealed, Sealing};
use pagewarden::verdict::{Kind, Severity};
use pagewarden::verify::{Caching, Options, verify};
use serde_json::Value;

use crate::innodb::{Report, check, manifest, root};

mod theory;

use theory::{Class, Seen, Theory};

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn within(&mut self, range: std::ops::Range<usize>) -> usize {
        range.start + (self.next() % (range.end - range.start) as u64) as usize
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.next() as u8);
    }

    /// Flips a bit in the range; says which.
    fn flip(&mut self, page: &mut [u8], range: std::ops::Range<usize>) -> (usize, u32) {
        let (at, bit) = (self.within(range), self.within(0..8) as u32);
        page[at] ^= 1 << bit;
        (at, bit)
    }
}

/// How often each kind is drawn for each file, and from where.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("PAGEWARDEN_SEED").unwrap_or(0x5EED);
    first..first + number("PAGEWARDEN_SEEDS").unwrap_or(1)
}

/// A healthy file, with a copy of it that suffers.
struct Patient<'a> {
    name: &'a str,
    layout: Layout,
    bytes: Vec<u8>,
    /// The number of its first page.
    first_page: usize,
    /// Pages in use that lie where they belong, by their place in the file.
    used: Vec<usize>,
    folder: tempfile::TempDir,
    keys: PathBuf,
}

impl<'a> Patient<'a> {
    fn new(root: &Path, name: &'a str) -> Self {
        let bytes = fs::read(root.join(name)).unwrap();
        // Further files have no header; this one continues a file of as many pages.
        let is_further = name.ends_with("ibdata2");
        let flags = match is_further {
            true => read_u32(&fs::read(root.join(name.replace('2', "1"))).unwrap(), FSP_FLAGS),
            false => read_u32(&bytes, FSP_FLAGS),
        };
        let mut layout = Layout::of_flags(flags).unwrap();
        // By itself it does not say which pages it may have.
        layout.may_be_page_compressed |= is_further;
        layout.may_be_encrypted |= is_further;
        let first_page = if is_further { read_u32(&bytes, PAGE_NUMBER) as usize } else { 0 };
        let pages = bytes.chunks_exact(layout.page_size).enumerate().skip(1);
        let used = pages.filter(|(index, page)| {
            read_u32(page, PAGE_NUMBER) as usize == index + first_page
                && read_u32(page, PAGE_NUMBER) > 0
        });
        let used = used.map(|(index, _)| index).collect();
        let folder = tempfile::tempdir().unwrap();
        let name_alone = Path::new(name).file_name().unwrap();
        fs::write(folder.path().join(name_alone), &bytes).unwrap();
        if name.ends_with("ibdata1") {
            fs::write(folder.path().join("ibdata2"), "").unwrap();
        }
        let server = Path::new(name).components().next().unwrap();
        let keys = match server.as_os_str().to_str().unwrap().starts_with("mysql") {
            true => "mysql-9.7/test-only-component_keyring_file.json",
            false => "mariadb-10.11/test-only-keyfile.txt",
        };
        Self { name, layout, bytes, first_page, used, folder, keys: root.join(keys) }
    }

    fn size(&self) -> usize {
        self.layout.page_size
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(Path::new(self.name).file_name().unwrap())
    }

    fn page(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.size()..][..self.size()]
    }

    fn is_system(&self) -> bool {
        self.name.contains("ibdata")
    }

    /// Puts a page into the copy.
    fn write(&self, index: usize, page: &[u8]) {
        let file = File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(page, (index * self.size()) as u64).unwrap();
    }

    fn check(&self) -> Report {
        check(&self.path(), None).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// As it is found in a directory that was shut down, which says so by its log.
    fn target(&self) -> Target {
        let target = database::open(&self.path(), None).unwrap();
        let epoch = Epoch { database: "innodb".to_owned(), position: 1, is_at_rest: true };
        let description = database::Description { epoch: Some(epoch), ..target.description };
        Target { description, ..target }
    }

    fn options() -> Options {
        Options { caching: Caching::Cached, ..Options::default() }
    }

    fn seal_path(&self) -> PathBuf {
        self.folder.path().join("seal")
    }

    fn seal(&self) {
        let target = self.target();
        let header = Header {
            pagewarden: String::new(),
            format: target.description.format.to_owned(),
            engine: String::new(),
            page_size: target.description.page_size,
            epoch: target.description.epoch.clone(),
            made: 0,
        };
        let out = File::create(self.seal_path()).unwrap();
        let (target, sealing) = Sealing::begin(target, &header, out).unwrap();
        let mut report = Report::default();
        verify(target, &Self::options(), &(), &mut report).unwrap();
        assert_eq!(report.findings, [], "{}", self.name);
        sealing.finish().unwrap();
    }

    fn check_against_seal(&self) -> Report {
        let sealed = Sealed::open(&self.seal_path()).unwrap();
        let target = Against::hold(self.target(), sealed).unwrap();
        let mut report = Report::default();
        report.summary = verify(target, &Self::options(), &(), &mut report).unwrap().summary;
        report
    }

    /// Pages of other tablespaces of the same layout that have this one's number.
    fn foreigners(&self, root: &Path, lines: &[Value], index: usize) -> Vec<Vec<u8>> {
        let folder = Path::new(self.name).parent().unwrap();
        let names = lines.iter().map(|line| line["file"].as_str().unwrap());
        let names = names.filter(|name| Path::new(name).parent() == Some(folder));
        let mut found = Vec::new();
        for name in names.filter(|name| name.ends_with(".ibd")) {
            let foreign = fs::read(root.join(name)).unwrap();
            let layout = Layout::of_flags(read_u32(&foreign, FSP_FLAGS)).unwrap();
            let is_alike = layout == self.layout;
            let page = foreign.chunks_exact(layout.page_size).nth(index);
            let page = page.filter(|page| page.iter().any(|byte| *byte != 0));
            if let Some(page) = page
                && is_alike
                && read_u32(&foreign, SPACE_ID) != read_u32(&self.bytes, SPACE_ID)
            {
                found.push(page.to_vec());
            }
        }
        found
    }
}

fn patients(mut trial: impl FnMut(&Path, &[Value], &Patient<'_>)) {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    let mut tried = 0;
    for line in &lines {
        let name = line["file"].as_str().unwrap();
        let is_tablespace = name.ends_with(".ibd") || name.contains("/ibdata");
        if !is_tablespace || line["expect"] != "no finding" {
            continue;
        }
        let patient = Patient::new(&root, name);
        if !patient.used.is_empty() {
            trial(&root, &lines, &patient);
            tried += 1;
        }
    }
    assert!(tried > 65, "{tried} files");
}

/// A page afterwards, and the byte and the bit if one was flipped.
type Inflicted = (Vec<u8>, Option<(usize, u32)>);

/// What is done to one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wound {
    BitOfBody,
    Bit,
    PageNumber,
    FirstField,
    SpaceId,
    LastEightBytes,
    PageType,
    Bytes26To33,
    Lsn,
    Noise,
    NoisySector,
    LastSectorZero,
    SecondHalfZero,
    SecondHalfOfAnother,
    AnotherPage,
    AnotherTablespace,
    Zeroed,
}

const WOUNDS: [(Wound, &str); 17] = [
    (Wound::BitOfBody, "bit of the body"),
    (Wound::Bit, "bit anywhere"),
    (Wound::PageNumber, "page number"),
    (Wound::FirstField, "first field"),
    (Wound::SpaceId, "space id"),
    (Wound::LastEightBytes, "last eight bytes"),
    (Wound::PageType, "page type that is not allowed"),
    (Wound::Bytes26To33, "bytes 26 to 33"),
    (Wound::Lsn, "LSN"),
    (Wound::Noise, "noise"),
    (Wound::NoisySector, "sector of noise"),
    (Wound::LastSectorZero, "last sector zero"),
    (Wound::SecondHalfZero, "second half zero"),
    (Wound::SecondHalfOfAnother, "second half of another page"),
    (Wound::AnotherPage, "another page of the file"),
    (Wound::AnotherTablespace, "page of another tablespace"),
    (Wound::Zeroed, "zeroed"),
];

impl Wound {
    /// Nothing where this cannot be done to the page.
    fn inflict(
        self,
        patient: &Patient<'_>,
        index: usize,
        foreign: &[Vec<u8>],
        dice: &mut Dice,
    ) -> Option<Inflicted> {
        let mut page = patient.page(index).to_vec();
        let size = page.len();
        let mut flipped = None;
        match self {
            Self::BitOfBody => flipped = Some(dice.flip(&mut page, 38..size - 8)),
            Self::Bit => flipped = Some(dice.flip(&mut page, 0..size)),
            Self::PageNumber => flipped = Some(dice.flip(&mut page, PAGE_NUMBER..PAGE_NUMBER + 4)),
            Self::FirstField => flipped = Some(dice.flip(&mut page, 0..4)),
            Self::SpaceId => flipped = Some(dice.flip(&mut page, SPACE_ID..SPACE_ID + 4)),
            Self::Lsn => flipped = Some(dice.flip(&mut page, LSN..LSN + 8)),
            Self::LastEightBytes => dice.fill(&mut page[size - 8..]),
            Self::Bytes26To33 => dice.fill(&mut page[26..34]),
            Self::Noise => dice.fill(&mut page),
            Self::NoisySector => {
                let begin = dice.within(0..size / 512) * 512;
                dice.fill(&mut page[begin..begin + 512]);
            }
            Self::PageType => {
                let types = [TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, TYPE_COMPRESSED];
                let own = read_u16(&page, PAGE_TYPE);
                // One that such a file may have as well.
                if matches!(own, TYPE_PAGE_COMPRESSED | TYPE_PAGE_COMPRESSED_ENCRYPTED) {
                    return None;
                }
                let is_allowed = |other: u16| {
                    other == TYPE_PAGE_COMPRESSED_ENCRYPTED && patient.layout.may_be_page_compressed
                };
                let others = types.into_iter().filter(|it| *it != own && !is_allowed(*it));
                let types: Vec<_> = others.collect();
                let chosen = types[dice.within(0..types.len())];
                page[PAGE_TYPE..PAGE_TYPE + 2].copy_from_slice(&chosen.to_be_bytes());
            }
            Self::LastSectorZero => page[size - 512..].fill(0),
            Self::SecondHalfZero => page[size / 2..].fill(0),
            Self::SecondHalfOfAnother => {
                let other = patient.used[dice.within(0..patient.used.len())];
                page[size / 2..].copy_from_slice(&patient.page(other)[size / 2..]);
            }
            Self::AnotherPage => {
                let other = patient.used[dice.within(0..patient.used.len())];
                page.copy_from_slice(patient.page(other));
            }
            Self::AnotherTablespace => {
                let other = (!foreign.is_empty()).then(|| dice.within(0..foreign.len()))?;
                page.copy_from_slice(&foreign[other]);
            }
            Self::Zeroed => page.fill(0),
        }
        Some((page, flipped))
    }
}

/// What became of one kind of damage.
#[derive(Debug, Default)]
struct Tally {
    tries: u32,
    /// The bytes were the same afterwards.
    unchanged: u32,
    damage: u32,
    suspect: u32,
    unseen: u32,
    by_seal: u32,
    by_key: u32,
}

fn table(tallies: &BTreeMap<Wound, Tally>) -> String {
    let mut text = format!(
        "{:<32}{:>7}{:>11}{:>8}{:>9}{:>8}{:>9}{:>8}\n",
        "damage", "tries", "unchanged", "damage", "suspect", "unseen", "by seal", "by key"
    );
    for (wound, name) in WOUNDS {
        let tally = &tallies[&wound];
        writeln!(
            text,
            "{name:<32}{:>7}{:>11}{:>8}{:>9}{:>8}{:>9}{:>8}",
            tally.tries,
            tally.unchanged,
            tally.damage,
            tally.suspect,
            tally.unseen,
            tally.by_seal,
            tally.by_key
        )
        .unwrap();
    }
    text
}

/// One bit of the page has to be named, since its sum is a CRC of what lies there.
fn names_the_bit(patient: &Patient<'_>, class: Class, page: &[u8], at: usize) -> bool {
    use pagewarden::formats::innodb::checksum::{crc32, zip_crc32};
    let sum = read_u32(page, 0);
    let is_place = (PAGE_NUMBER..PAGE_NUMBER + 4).contains(&at);
    match class {
        Class::Full | Class::FullEncrypted | Class::FullCompressed(_) => true,
        // The number and the tablespace of a page tell their own story.
        _ if is_place || (SPACE_ID..SPACE_ID + 4).contains(&at) => false,
        Class::Plain if patient.layout.form == Form::Zip => sum == zip_crc32(page),
        Class::Plain => sum == crc32(page),
        Class::Encrypted => !(26..34).contains(&at),
        _ => false,
    }
}

#[test]
fn damage_drawn_by_lot_is_seen_exactly_as_theory_says() {
    let mut tallies = BTreeMap::<Wound, Tally>::new();
    patients(|root, lines, patient| {
        patient.seal();
        for seed in seeds() {
            for (number, (wound, name)) in WOUNDS.iter().enumerate() {
                let mut dice = Dice(seed ^ (number as u64) << 32 ^ patient.bytes.len() as u64);
                let index = patient.used[dice.within(0..patient.used.len())];
                let foreign = match wound {
                    Wound::AnotherTablespace => patient.foreigners(root, lines, index),
                    _ => Vec::new(),
                };
                let Some(inflicted) = wound.inflict(patient, index, &foreign, &mut dice) else {
                    continue;
                };
                let what = format!("{} page {index}: {name}, seed {seed:#x}", patient.name);
                let tally = tallies.entry(*wound).or_default();
                try_one(patient, *wound, index, inflicted, &what, tally);
            }
        }
    });
    if !tallies.is_empty() {
        eprintln!("{}", table(&tallies));
    }
}

fn try_one(
    patient: &Patient<'_>,
    wound: Wound,
    index: usize,
    (after, flipped): Inflicted,
    what: &str,
    tally: &mut Tally,
) {
    let before = patient.page(index);
    let class = Class::of(&patient.layout, before);
    let mut damaged = patient.bytes.clone();
    damaged[index * patient.size()..][..patient.size()].copy_from_slice(&after);
    let theory = Theory {
        layout: &patient.layout,
        file: &damaged,
        first_page: patient.first_page,
        is_system: patient.is_system(),
    };
    let expected = match wound {
        Wound::AnotherTablespace if Class::of(&patient.layout, &after).hides_its_tablespace() => {
            Seen::Nothing
        }
        Wound::AnotherTablespace => Seen::Damage,
        _ => theory.seen(index, before, &after),
    };
    let victim = (index + patient.first_page) as u64;
    patient.write(index, &after);
    let report = patient.check();
    // What the page's own test lets pass, the pages beside it in its index may see: no sound one is
    // blamed for it.
    let (linked, own): (Vec<_>, Vec<_>) = report
        .findings
        .iter()
        .cloned()
        .partition(|finding| matches!(finding.kind, Kind::Structure | Kind::Stale));
    let blamed = linked.iter().filter_map(|finding| finding.place.page);
    assert!(blamed.clone().all(|page| page.0 == victim), "{what} ({class:?}): {report:?}");
    assert!(linked.is_empty() || expected == Seen::Nothing, "{what} ({class:?}): {report:?}");
    let report = Report { findings: own, ..report };
    let (damage, suspect) = (report.pages(Severity::Damage), report.pages(Severity::Suspect));
    let of_victim = |is_one: bool| if is_one { vec![victim] } else { vec![] };
    assert_eq!(
        (damage, suspect),
        (of_victim(expected == Seen::Damage), of_victim(expected == Seen::Suspect)),
        "{what} ({class:?}): {report:?}"
    );
    tally.tries += 1;
    match expected {
        Seen::Damage => tally.damage += 1,
        Seen::Suspect => tally.suspect += 1,
        Seen::Nothing if before == after => tally.unchanged += 1,
        Seen::Nothing => tally.unseen += 1,
    }
    match wound {
        Wound::AnotherPage if before != after => {
            assert_eq!(report.kinds(victim), [(Severity::Damage, Kind::Misplaced)], "{what}");
        }
        Wound::Zeroed if expected == Seen::Damage => {
            assert_eq!(report.kinds(victim), [(Severity::Damage, Kind::Zeroed)], "{what}");
        }
        _ => {}
    }
    if let Some((at, bit)) = flipped
        && expected == Seen::Damage
        && names_the_bit(patient, class, before, at)
    {
        let found = &report.findings[0];
        let detail = found.detail.as_deref().unwrap_or_default();
        assert_eq!(found.kind, Kind::BitFlip, "{what}, bit {bit} of byte {at}: {detail}");
        assert!(detail.contains(&format!("bit {bit} of byte {at}")), "{what}: {detail}");
    }
    if expected == Seen::Nothing && before != after {
        let report = patient.check_against_seal();
        assert_eq!(report.pages(Severity::Damage), [victim], "{what}, by the seal: {report:?}");
        tally.by_seal += 1;
    }
    if wound == Wound::BitOfBody && class.is_locked() && opens_with_the_key(before, flipped) {
        let report = check(&patient.path(), Some(&patient.keys)).unwrap();
        assert_eq!(report.pages(Severity::Damage), [victim], "{what}, with the key: {report:?}");
        tally.by_key += 1;
    }
    patient.write(index, before);
}

/// True if the bit is one that was encrypted, of a page whose content can be unpacked.
fn opens_with_the_key(page: &[u8], flipped: Option<(usize, u32)>) -> bool {
    const LZO: u16 = 3;
    let Some((at, _)) = flipped else { return false };
    let end = match read_u16(page, PAGE_TYPE) {
        15 | 17 => page.len(),
        16 => 38 + usize::from(read_u16(page, 32)),
        TYPE_PAGE_COMPRESSED_ENCRYPTED if read_u16(page, 40) == LZO => 0,
        _ => 42 + usize::from(read_u16(page, 38)),
    };
    at < end
}

/// Page 0 has the extent map; without it only page 0 itself is known to be in use.
#[test]
fn zeroed_first_page_is_missed_and_hides_nothing_but_zeroed_pages() {
    patients(|_, _, patient| {
        if patient.first_page > 0 {
            return;
        }
        let zero = vec![0; patient.size()];
        for seed in seeds() {
            let index = patient.used[Dice(seed).within(0..patient.used.len())];
            patient.write(0, &zero);
            patient.write(index, &zero);
            let report = patient.check();
            assert_eq!(report.kinds(0), [(Severity::Damage, Kind::Zeroed)], "{}", patient.name);
            // Those of the system tablespace that are always written are reported all the same.
            let is_fixed = patient.is_system() && (1..=12).contains(&index);
            let damaged = 1 + u64::from(is_fixed);
            assert_eq!(report.summary.pages.damaged, damaged, "{}: {report:?}", patient.name);
            patient.write(index, patient.page(index));
            patient.write(0, patient.page(0));
        }
    });
}

#[test]
fn cut_files_are_seen_where_the_header_counts_more_pages() {
    patients(|_, _, patient| {
        if patient.is_system() {
            return;
        }
        let size = patient.size();
        let pages = patient.bytes.len() / size;
        let counted = read_u32(&patient.bytes, FSP_SIZE) as usize;
        let cut = |length: usize| {
            fs::write(patient.path(), &patient.bytes[..length]).unwrap();
            let report = patient.check();
            fs::write(patient.path(), &patient.bytes).unwrap();
            report
        };
        for seed in seeds() {
            let mut dice = Dice(seed);
            for left in [pages - 1, pages.div_ceil(2), dice.within(1..pages)] {
                let report = cut(left * size);
                let kinds: Vec<_> =
                    report.findings.iter().map(|it| (it.severity, it.kind)).collect();
                // Files may be longer than their header says, allocated ahead, or end with the
                // last whole block of 4096 bytes.
                let theory = Theory {
                    layout: &patient.layout,
                    file: &patient.bytes,
                    first_page: 0,
                    is_system: false,
                };
                let is_rounded_down = left * size >= counted * size / 4096 * 4096
                    && !(left..counted.min(pages)).any(|page| theory.is_used(page));
                let expected: &[_] = match counted > left && !is_rounded_down {
                    true => &[(Severity::Damage, Kind::Truncated)],
                    false => &[],
                };
                assert_eq!(kinds, expected, "{} cut to {left} of {pages}", patient.name);
            }
            let (page, bytes) = (dice.within(1..pages), dice.within(1..size));
            let kinds = cut(page * size + bytes).kinds(page as u64);
            let cut_page = (Severity::Damage, Kind::Truncated);
            assert!(kinds.contains(&cut_page), "{} cut in page {page}", patient.name);
        }
    });
}

#[test]
fn garbage_for_flags_condemns_page_0_only() {
    patients(|_, _, patient| {
        if patient.first_page > 0 {
            return;
        }
        let healthy = patient.check();
        let is_protected = Class::of(&patient.layout, patient.page(0)) != Class::Unprotected;
        let mut all = vec![0xdead_be07_u32, 0xffff_ffff, 0x2f_0000];
        // Where nothing protects the flags, others that a server could have written are believed.
        all.extend(seeds().filter(|_| is_protected).map(|seed| Dice(seed).next() as u32));
        for flags in all {
            let mut page = patient.page(0).to_vec();
            page[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&flags.to_be_bytes());
            patient.write(0, &page);
            let report = patient.check();
            patient.write(0, patient.page(0));
            let name = patient.name;
            if !is_protected {
                // The layout is found all the same.
                assert_eq!(report.findings, [], "{name}");
                continue;
            }
            assert_eq!(report.pages(Severity::Damage), [0], "{name} {flags:x}: {report:?}");
            assert_eq!(report.summary.pages.ok + 1, healthy.summary.pages.ok, "{name} {flags:x}");
        }
    });
}
