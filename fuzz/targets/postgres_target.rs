//! A data directory of arbitrary files: no panic, the books balance, a page
//! that is sound is never reported and one with a wrong sum always is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use arbitrary::{Arbitrary, Unstructured};
use pagewarden::crc::crc32c;
use pagewarden::formats::postgres::checksum::{Kernel, checksum, hash_pages_with};
use pagewarden::formats::postgres::files::control::Control;
use pagewarden::formats::postgres::files::names::RelationFile;
use pagewarden::formats::postgres::page::Checksums;
use pagewarden_fuzz::{check, empty_folder};
use rustix::fs::{CWD, FileType, Mode, mknodat};

#[derive(Debug, Arbitrary)]
struct Input {
    control: ControlFile,
    /// Of the folder `1`; the others have a sound one.
    map: Option<Vec<u8>>,
    backup_label: Option<Label>,
    /// Names in `pg_wal`: log and segment.
    log: Vec<(u8, u8)>,
    transaction_logs: Vec<(u8, u16)>,
    version: Option<Vec<u8>>,
    entries: Vec<Entry>,
    opened: Opened,
    jobs: bool,
}

#[derive(Debug, Arbitrary)]
struct ControlFile {
    golden: u8,
    state: u8,
    checksum_version: Option<u8>,
    block_size: Option<u8>,
    segment_pages: Option<u32>,
    patches: Vec<(u16, u8)>,
    /// The CRC is left wrong, or the file away: slow, as it is looked at again.
    broken: Option<(u8, u8)>,
}

#[derive(Debug, Arbitrary)]
enum Label {
    Any(String),
    Start { begin: u32, file: String, checkpoint: u32, from_standby: bool },
}

#[derive(Debug, Arbitrary)]
struct Entry {
    folder: u8,
    name: Name,
    what: What,
}

#[derive(Debug, Arbitrary)]
enum Name {
    Relation { number: u8, session: Option<u8>, fork: u8, segment: u8 },
    Large { number: u32, segment: u32 },
    Any(String),
}

#[derive(Debug, Arbitrary)]
enum What {
    Pages { pages: Vec<Page>, rest: u16 },
    Folder,
    Fifo,
    Link(Option<u8>),
}

#[derive(Debug, Arbitrary)]
enum Page {
    Zero,
    /// A sound page, its sum changed by this.
    Stamped {
        content: u8,
        lsn: u32,
        spoil: u16,
    },
    Noise {
        header: [u8; 24],
        fill: u8,
    },
}

#[derive(Debug, Arbitrary)]
enum Opened {
    Root,
    Folder(u8),
    Entry(u8),
}

/// Places of a sound control file of 12 to 18: state, block size and checksum
/// version.
const STATE: usize = 16;
const BLOCK_SIZE: usize = 216;
const SEGMENT_PAGES: usize = 220;
const CHECKSUM_VERSION: usize = 252;

const CONTROLS: [(&[u8], &str, usize); 3] = [
    (include_bytes!("../../fixtures/postgres/16/control.on.shutdown"), "16", 288),
    (include_bytes!("../../fixtures/postgres/16/control.on.crashed"), "16", 288),
    (include_bytes!("../../fixtures/postgres/18/control.on.shutdown"), "18", 292),
];
const MAP: &[u8] = include_bytes!("../../fixtures/postgres/16/filenode.global.map");
const FOLDERS: [&str; 5] = ["global", "base/1", "base/5", "pg_tblspc/16400", ""];
const ENTRIES_MAX: usize = 12;
const PAGES_MAX: usize = 24;

/// What must come out for one page of the report.
type Pages = BTreeMap<(String, u64), bool>;

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let root = empty_folder();
    let (golden, major, crc) = CONTROLS[usize::from(input.control.golden) % CONTROLS.len()];
    let control = write_control(root, &input.control, golden, crc);
    let version = input.version.unwrap_or_else(|| major.as_bytes().to_vec());
    let catalog = Control::parse(golden).expect("the fixture is sound").catalog_version;
    let tablespace =
        format!("pg_tblspc/16400/PG_{}_{catalog}/5", String::from_utf8_lossy(&version));
    let is_plain = version == major.as_bytes();
    for folder in ["global", "base/1", "base/5", "pg_tblspc/16400", "pg_wal", "pg_xact"] {
        make_folder(&root.join(folder));
    }
    if is_plain {
        make_folder(&root.join(&tablespace));
    }
    write(&root.join("PG_VERSION"), &version);
    write(&root.join("base/1/pg_filenode.map"), input.map.as_deref().unwrap_or(MAP));
    write(&root.join("base/5/pg_filenode.map"), MAP);
    write(&root.join("global/pg_filenode.map"), MAP);
    if let Some(label) = &input.backup_label {
        write(&root.join("backup_label"), label.text().as_bytes());
    }
    for (log, segment) in input.log.iter().take(4) {
        write(&root.join(format!("pg_wal/00000001{log:08X}{segment:08X}")), b"");
    }
    for (number, length) in input.transaction_logs.iter().take(4) {
        write(&root.join(format!("pg_xact/{number:04X}")), &vec![0; usize::from(*length)]);
    }

    let mut expected = Pages::new();
    let mut whole_bytes = 0;
    let mut paths = Vec::new();
    let mut taken = BTreeSet::new();
    for entry in input.entries.iter().take(ENTRIES_MAX) {
        let folder = match FOLDERS[usize::from(entry.folder) % FOLDERS.len()] {
            "pg_tblspc/16400" if is_plain => tablespace.as_str(),
            folder => folder,
        };
        let Some(name) = entry.name.text() else { continue };
        let path = root.join(folder).join(&name);
        if path.symlink_metadata().is_ok() || !taken.insert(path.clone()) {
            continue;
        }
        match &entry.what {
            What::Pages { pages, rest } => {
                let page_size = control.as_ref().map_or(8192, |control| control.page_size);
                let relation = RelationFile::parse(&name).filter(|_| {
                    !folder.is_empty() && (is_plain || !folder.starts_with("pg_tblspc"))
                });
                let first = relation.zip(control.as_ref()).map_or(0, |(relation, control)| {
                    u64::from(relation.segment) * u64::from(control.segment_pages)
                });
                let mut bytes = Vec::new();
                for (page, number) in pages.iter().take(PAGES_MAX).zip(first..) {
                    bytes.extend(page.bytes(page_size, number));
                    if let (Some(verdict), Some(_)) = (page.is_sound(), relation) {
                        expected.insert((format!("{folder}/{name}"), number), verdict);
                    }
                }
                if relation.is_some() {
                    whole_bytes += bytes.len() as u64;
                }
                let rest = usize::from(*rest) % page_size;
                bytes.resize(bytes.len() + rest, 0x5A);
                write(&path, &bytes);
            }
            What::Folder => fs::create_dir(&path).expect("the folder is ours"),
            What::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a FIFO"),
            What::Link(to) => {
                let to = to.map_or("/nowhere", |to| FOLDERS[usize::from(to) % FOLDERS.len()]);
                symlink(root.join(to), &path).expect("the folder is ours");
            }
        }
        paths.push(path);
    }

    let opened: PathBuf = match input.opened {
        Opened::Root => root.to_owned(),
        Opened::Folder(index) => root.join(FOLDERS[usize::from(index) % FOLDERS.len()]),
        Opened::Entry(index) => match paths.get(usize::from(index)) {
            Some(path) => path.clone(),
            None => root.to_owned(),
        },
    };
    let jobs = if input.jobs { const { NonZero::new(2).unwrap() } } else { NonZero::<usize>::MIN };
    let Some(report) = check(&opened, None, jobs) else { return };
    if opened != root || control.is_none() {
        return;
    }
    // Links between folders may hide one of them, so that no page is counted
    // twice; there are none among those that are listed here.
    assert_eq!(report.summary.bytes, whole_bytes, "{report:?}");
    let control = control.expect("asked above");
    // The end of the log forbids pages that are otherwise sound.
    let reported: BTreeSet<_> = report
        .findings
        .iter()
        .filter(|finding| finding.kind.name() != "future_lsn")
        .filter_map(|finding| Some((finding.place.file.clone(), finding.place.page?.0)))
        .collect();
    for ((file, page), is_sound) in expected {
        let is_reported = reported.contains(&(file.clone(), page));
        if control.checksums == Checksums::On {
            assert_eq!(is_reported, !is_sound, "page {page} of {file}: {report:?}");
        } else {
            assert!(!is_reported, "page {page} of {file}: {report:?}");
        }
    }
}

impl Label {
    fn text(&self) -> String {
        match self {
            Self::Any(text) => text.clone(),
            Self::Start { begin, file, checkpoint, from_standby } => format!(
                "START WAL LOCATION: 0/{begin:X} (file {file})\n\
                 CHECKPOINT LOCATION: 0/{checkpoint:X}\nBACKUP METHOD: streamed\n\
                 BACKUP FROM: {}\n",
                if *from_standby { "standby" } else { "primary" }
            ),
        }
    }
}

impl Name {
    /// A name that a file in a folder can have.
    fn text(&self) -> Option<String> {
        let text = match self {
            Self::Relation { number, session, fork, segment } => {
                let session = session.map_or(String::new(), |session| format!("t{session}_"));
                let fork = ["", "", "_fsm", "_vm", "_init", "_x"][usize::from(*fork) % 6];
                let segment = match segment % 4 {
                    0 => String::new(),
                    segment => format!(".{segment}"),
                };
                format!("{session}{}{fork}{segment}", 16_384 + u32::from(*number % 8))
            }
            Self::Large { number, segment } => format!("{number}.{segment}"),
            Self::Any(text) => text.clone(),
        };
        let is_name = !text.is_empty()
            && text.len() < 100
            && text != "."
            && text != ".."
            && !text.contains(['/', '\0'])
            // A live server is waited for.
            && text != "postmaster.pid"
            // Handled above.
            && !matches!(text.as_str(), "base" | "pg_tblspc" | "pg_wal" | "backup_label");
        is_name.then_some(text)
    }
}

impl Page {
    fn is_sound(&self) -> Option<bool> {
        match self {
            Self::Zero => Some(true),
            Self::Stamped { spoil, .. } => Some(*spoil == 0),
            Self::Noise { .. } => None,
        }
    }

    fn bytes(&self, page_size: usize, number: u64) -> Vec<u8> {
        match self {
            Self::Zero => vec![0; page_size],
            Self::Noise { header, fill } => {
                let mut page = vec![*fill; page_size];
                page[..24].copy_from_slice(header);
                page
            }
            Self::Stamped { content, lsn, spoil } => {
                let mut page = vec![*content; page_size];
                let size = u16::try_from(page_size).expect("at most 32 KiB");
                page[..24].fill(0);
                page[4..8].copy_from_slice(&lsn.to_le_bytes());
                page[12..14].copy_from_slice(&24_u16.to_le_bytes());
                page[14..16].copy_from_slice(&(size / 2).to_le_bytes());
                page[16..18].copy_from_slice(&size.to_le_bytes());
                page[18..20].copy_from_slice(&(size | 4).to_le_bytes());
                let mut hash = [0];
                hash_pages_with(Kernel::Plain, &page, page_size, &mut hash);
                let block = u32::try_from(number).unwrap_or(u32::MAX);
                let sum = checksum(hash[0], block) ^ spoil;
                page[8..10].copy_from_slice(&sum.to_le_bytes());
                page
            }
        }
    }
}

/// Writes `global/pg_control`; what can be read from it, if anything.
fn write_control(root: &Path, file: &ControlFile, golden: &[u8], crc: usize) -> Option<Control> {
    make_folder(&root.join("global"));
    let path = root.join("global/pg_control");
    if file.broken == Some((0xB0, 0x0B)) {
        return None;
    }
    let mut bytes = golden.to_vec();
    bytes[STATE] = file.state % 8;
    if let Some(version) = file.checksum_version {
        bytes[CHECKSUM_VERSION] = version % 4;
    }
    if let Some(size) = file.block_size {
        let size = 1024_u32 << (size % 6);
        bytes[BLOCK_SIZE..BLOCK_SIZE + 4].copy_from_slice(&size.to_le_bytes());
    }
    if let Some(pages) = file.segment_pages {
        bytes[SEGMENT_PAGES..SEGMENT_PAGES + 4].copy_from_slice(&pages.to_le_bytes());
    }
    let sound = bytes.clone();
    for (at, value) in &file.patches {
        // The catalogue version names the tablespace's folder.
        let at = usize::from(*at) % crc;
        if !(12..16).contains(&at) {
            bytes[at] = *value;
        }
    }
    let set_crc = |bytes: &mut Vec<u8>| {
        let sum = crc32c(&bytes[..crc]).to_le_bytes();
        bytes[crc..crc + 4].copy_from_slice(&sum);
    };
    set_crc(&mut bytes);
    if Control::parse(&bytes).is_err() {
        bytes = sound;
        set_crc(&mut bytes);
    }
    if Control::parse(&bytes).is_err() {
        bytes = golden.to_vec();
    }
    write(&path, &bytes);
    Some(Control::parse(&bytes).expect("tried above"))
}

fn make_folder(path: &Path) {
    fs::create_dir_all(path).expect("the folder is ours");
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the folder is ours");
}
