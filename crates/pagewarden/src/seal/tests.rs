//! Seals of small files of pages, written, read and compared with them.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::database::{Description, Evidence, PageFile, Step, Target};
use crate::page::{Fingerprint, PageFormat, PageRun, RunVerdict};
use crate::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity, Standing};
use crate::verify::{Options, Sink, verify};

const PAGE: usize = 512;

/// Pages that are an LSN and content, and always sound.
#[derive(Debug)]
struct Pages;

impl PageFormat for Pages {
    fn page_size(&self) -> usize {
        PAGE
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for page in run.bytes.chunks_exact(PAGE) {
            if page.iter().all(|byte| *byte == 0) {
                verdict.empty();
            } else {
                verdict.pass(Standing::Ok, Protection::Checksum);
            }
        }
    }

    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        Fingerprint::of_bytes(u64::from_le_bytes(*page.first_chunk().unwrap()), page)
    }
}

#[derive(Debug, Default)]
struct Seen {
    findings: Vec<(String, Option<u64>, Kind, Severity)>,
    notes: Vec<String>,
    unread: Vec<String>,
}

impl Sink for Seen {
    fn finding(&mut self, finding: &Finding) -> std::io::Result<()> {
        let page = finding.place.page.map(|page| page.0);
        let found = (finding.place.file.clone(), page, finding.kind, finding.severity);
        self.findings.push(found);
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> std::io::Result<()> {
        self.unread.push(unread.error.clone());
        Ok(())
    }

    fn note(&mut self, note: &Note) -> std::io::Result<()> {
        self.notes.push(note.text.clone());
        Ok(())
    }
}

struct Database(tempfile::TempDir);

impl Database {
    fn new() -> Self {
        let database = Self(tempfile::tempdir().unwrap());
        for (name, pages) in [("a", 5000_u64), ("b", 3), ("c", 0)] {
            let mut file = fs::File::create(database.path(name)).unwrap();
            for number in 0..pages {
                let mut page = [7; PAGE];
                page[..8].copy_from_slice(&(1000 + number * 3).to_le_bytes());
                file.write_all(if number == 77 { &[0; PAGE] } else { &page }).unwrap();
            }
        }
        database
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn seal_path(&self) -> PathBuf {
        self.0.path().join("seal")
    }

    fn change(&self, name: &str, page: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = fs::read(self.path(name)).unwrap();
        change(&mut bytes[page * PAGE..][..PAGE]);
        fs::write(self.path(name), bytes).unwrap();
    }

    fn target(&self, position: u64, is_at_rest: bool) -> Target {
        let format: Arc<dyn PageFormat> = Arc::new(Pages);
        let files: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .filter(|name| self.path(name).exists())
            .map(|name| {
                let bytes = fs::metadata(self.path(name)).unwrap().len();
                Step::File(PageFile {
                    first_page: PageNo(if name == "b" { 100 } else { 0 }),
                    ..PageFile::of(name, self.path(name), bytes, Arc::clone(&format))
                })
            })
            .collect();
        let database = "one".to_owned();
        Target {
            description: Description {
                path: self.0.path().to_owned(),
                format: "numbered",
                engine: String::new(),
                page_size: 512,
                setting: Some(Protection::Checksum),
                state: String::new(),
                evidence: Evidence { tested_by: "", unseen: "" },
                live: false,
                epoch: Some(Epoch { database, position, is_at_rest }),
                part: None,
            },
            steps: Box::new(files.into_iter()),
            woken: None,
        }
    }

    fn seal(&self) {
        let target = self.target(10, true);
        let header = Header {
            pagewarden: String::new(),
            format: "numbered".to_owned(),
            engine: String::new(),
            page_size: 512,
            epoch: target.description.epoch.clone(),
            made: 0,
        };
        let out = fs::File::create(self.seal_path()).unwrap();
        let (target, sealing) = Sealing::begin(target, &header, out).unwrap();
        verify(target, &Options::default(), &(), &mut Seen::default()).unwrap();
        sealing.finish().unwrap();
    }

    fn check(&self, position: u64, is_at_rest: bool) -> Seen {
        let target = self.target(position, is_at_rest);
        let target = Against::hold(target, Sealed::open(&self.seal_path()).unwrap()).unwrap();
        let mut seen = Seen::default();
        verify(target, &Options::default(), &(), &mut seen).unwrap();
        assert_eq!(seen.unread, Vec::<String>::new());
        seen
    }
}

#[test]
fn sealed_pages_are_read_back_as_they_were() {
    let database = Database::new();
    database.seal();
    let sealed = Sealed::open(&database.seal_path()).unwrap();
    let lengths: Vec<_> =
        sealed.files.iter().map(|(name, file)| (name.as_str(), file.length, file.pages)).collect();
    assert_eq!(lengths, [("a", 5000 * 512, 5000), ("b", 3 * 512, 3), ("c", 0, 0)]);
    for (name, file) in &sealed.files {
        let bytes = fs::read(database.path(name)).unwrap();
        let pages = sealed.pages(file).unwrap();
        assert_eq!(pages.len() * PAGE, bytes.len());
        for (number, (page, sealed)) in bytes.chunks_exact(PAGE).zip(pages).enumerate() {
            let expected = match number {
                77 => Fingerprint { lsn: 0, hash: 0 },
                _ => Pages.fingerprint(page),
            };
            assert_eq!(sealed, expected, "{name} {number}");
        }
    }
    // Ten bytes a page and a little.
    let length = fs::metadata(database.seal_path()).unwrap().len();
    assert!(length < 5003 * 10 + 1000, "{length}");
}

#[test]
fn same_state_allows_no_difference_at_all() {
    let database = Database::new();
    database.seal();
    assert_eq!(database.check(10, true).findings, []);
    database.change("a", 4999, |page| page.fill(0));
    database.change("a", 30, |page| page[..8].copy_from_slice(&9_u64.to_le_bytes()));
    database.change("a", 31, |page| page[100] ^= 1);
    database.change("a", 32, |page| page[..8].copy_from_slice(&9999_u64.to_le_bytes()));
    database.change("a", 77, |page| page[9] = 1);
    let file = fs::OpenOptions::new().write(true).open(database.path("b")).unwrap();
    file.set_len(2 * 512).unwrap();
    fs::remove_file(database.path("c")).unwrap();
    let found = |name: &str, page, kind| (name.to_owned(), page, kind, Severity::Damage);
    let mut findings = database.check(10, true).findings;
    findings.sort_by_key(|(name, page, ..)| (name.clone(), *page));
    assert_eq!(
        findings,
        [
            found("a", Some(30), Kind::Stale),
            found("a", Some(31), Kind::Checksum),
            found("a", Some(32), Kind::Checksum),
            found("a", Some(77), Kind::Checksum),
            found("a", Some(4999), Kind::Zeroed),
            found("b", Some(102), Kind::Truncated),
            found("c", None, Kind::Missing),
        ]
    );
}

/// What a file of the database says of a page must not hide what the seal proves.
#[test]
fn gravest_evidence_about_a_page_wins() {
    let database = Database::new();
    database.seal();
    database.change("a", 30, |page| page[..8].copy_from_slice(&9_u64.to_le_bytes()));
    database.change("a", 31, |page| page[100] ^= 1);
    let said = |page: u64, severity| {
        let mut finding = Finding::of_file("a", severity, Kind::Stale, "by an index".to_owned());
        finding.place.page = Some(PageNo(page));
        finding.place.offset = Some(ByteOffset(page * 512));
        Step::Overruled(finding, Standing::Ok)
    };
    let mut target = database.target(10, true);
    let own =
        [said(30, Severity::Suspect), said(31, Severity::Damage), said(40, Severity::Suspect)];
    target.steps = Box::new(target.steps.chain([Step::Barrier]).chain(own));
    let sealed = Sealed::open(&database.seal_path()).unwrap();
    let mut seen = Seen::default();
    let target = Against::hold(target, sealed).unwrap();
    let summary = verify(target, &Options::default(), &(), &mut seen).unwrap().summary;
    let found = |page, severity| ("a".to_owned(), Some(page), Kind::Stale, severity);
    seen.findings.sort_by_key(|(_, page, ..)| *page);
    assert_eq!(
        seen.findings,
        [found(30, Severity::Damage), found(31, Severity::Damage), found(40, Severity::Suspect)]
    );
    assert_eq!(summary.pages.damaged, 2);
}

#[test]
fn what_writing_explains_is_no_finding() {
    let database = Database::new();
    database.seal();
    // Written, extended, cut, dropped.
    database.change("a", 32, |page| page[..9].copy_from_slice(&[9; 9]));
    database.change("a", 77, |page| page[..9].copy_from_slice(&[9; 9]));
    let file = fs::OpenOptions::new().write(true).open(database.path("a")).unwrap();
    file.set_len(4000 * 512).unwrap();
    fs::remove_file(database.path("b")).unwrap();
    let seen = database.check(11, true);
    assert_eq!(seen.findings, []);
    assert_eq!(seen.notes.len(), 2, "{:?}", seen.notes);
    // Nothing explains these.
    let position = |lsn: u64| move |page: &mut [u8]| page[..8].copy_from_slice(&lsn.to_le_bytes());
    database.change("a", 40, |page| page[100] ^= 1);
    database.change("a", 41, position(1001));
    database.change("a", 42, |page| page.fill(0));
    // This may have been cut off and added again.
    database.change("a", 3999, |page| page.fill(0));
    for (is_at_rest, severity) in [(true, Severity::Damage), (false, Severity::Suspect)] {
        let findings = database.check(11, is_at_rest).findings;
        let found = |page, kind, severity| ("a".to_owned(), Some(page), kind, severity);
        let expected = [
            found(40, Kind::Checksum, severity),
            found(41, Kind::Stale, severity),
            found(42, Kind::Zeroed, severity),
            found(3999, Kind::Zeroed, Severity::Suspect),
        ];
        assert_eq!(findings, expected);
    }
    let back = database.check(9, true).findings;
    assert_eq!(back, [(String::new(), None, Kind::Stale, Severity::Suspect)]);
}

#[test]
fn seal_of_something_else_is_refused() {
    let database = Database::new();
    database.seal();
    let mut target = database.target(10, true);
    target.description.epoch.as_mut().unwrap().database = "two".to_owned();
    assert!(Against::hold(target, Sealed::open(&database.seal_path()).unwrap()).is_err());
}

/// Whatever is changed in it, it is not believed.
#[test]
fn damaged_seal_is_refused() {
    let database = Database::new();
    database.seal();
    let path = database.seal_path();
    let sound = fs::read(&path).unwrap();
    let opens = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Sealed::open(&path).is_ok()
    };
    for at in (0..sound.len()).step_by(97).chain(sound.len() - FOOTER_BYTES..sound.len()) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        assert!(!opens(&bytes), "byte {at}");
        assert!(!opens(&sound[..at]), "{at} bytes");
    }
    assert!(opens(&sound));
    assert!(!opens(b""));
}
