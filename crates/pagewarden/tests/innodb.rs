//! Tablespaces of real servers: what is healthy has no finding and the right
//! counts, what is damaged is named.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pagewarden::database::{self, OpenOptions};
use pagewarden::verdict::{Finding, Kind, Note, PageCounts, Severity, Unread, Verdict};
use pagewarden::verify::{Caching, Options, Sink, Summary, verify};
use serde_json::Value;

/// The folder of the fixtures; `None` where they are not available, said aloud.
pub fn root() -> Option<PathBuf> {
    let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(shared, PathBuf::from);
    let root = root.join("innodb");
    if root.join("manifest.json").is_file() {
        return Some(root);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is not there", root.display());
    eprintln!("SKIPPED: {} is not there", root.display());
    None
}

/// The lines of the manifest that are of tablespaces, and those of other files.
pub fn manifest(root: &Path) -> Vec<Value> {
    let text = fs::read_to_string(root.join("manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What a check said.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
    pub summary: Summary,
}

impl Report {
    /// Kinds of the findings of a page, or of the whole file.
    pub fn kinds(&self, page: u64) -> Vec<(Severity, Kind)> {
        let of_page =
            self.findings.iter().filter(|it| it.place.page.is_some_and(|no| no.0 == page));
        of_page.map(|finding| (finding.severity, finding.kind)).collect()
    }

    pub fn pages(&self, severity: Severity) -> Vec<u64> {
        let those = self.findings.iter().filter(|finding| finding.severity == severity);
        those.filter_map(|finding| finding.place.page).map(|page| page.0).collect()
    }
}

impl Sink for Report {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        panic!("{unread:?}")
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(note.text.clone());
        Ok(())
    }
}

/// Checks a file as the program does.
pub fn check(path: &Path, keyring: Option<&Path>) -> Result<Report, pagewarden::Error> {
    let options = OpenOptions { keyring: keyring.map(Path::to_owned), ..OpenOptions::default() };
    let target = database::open_with(path, None, &options)?;
    assert_eq!(target.description.format, "innodb", "{}", path.display());
    let mut report = Report::default();
    let options = Options { caching: Caching::Cached, ..Options::default() };
    report.summary = verify(target, &options, &(), &mut report).unwrap().summary;
    Ok(report)
}

/// The page counts that the classes of the manifest mean.
fn expected_counts(line: &Value) -> Option<PageCounts> {
    let classes: BTreeMap<String, u64> =
        serde_json::from_value(line.get("page_classes")?.clone()).unwrap();
    let mut counts =
        PageCounts { empty: line["zero_pages"].as_u64().unwrap(), ..PageCounts::default() };
    for (class, pages) in classes {
        let needs_more = ["needs keyring", "without key", "(lzo)"];
        if needs_more.iter().any(|words| class.contains(words)) {
            counts.unverifiable += pages;
        } else if class == "none" {
            counts.unprotected += pages;
        } else {
            counts.ok += pages;
        }
    }
    Some(counts)
}

#[test]
fn every_healthy_file_has_the_counts_of_the_manifest_and_no_finding() {
    let Some(root) = root() else { return };
    let mut files = 0;
    for line in manifest(&root) {
        let name = line["file"].as_str().unwrap();
        let Some(expected) = expected_counts(&line) else { continue };
        let report = check(&root.join(name), None).unwrap();
        assert_eq!(report.summary.pages, expected, "{name}: {report:?}");
        let is_first_page_only = line["expect"].as_str().unwrap().contains("file truncated");
        if is_first_page_only {
            let kinds: Vec<_> = report.findings.iter().map(|it| it.kind).collect();
            assert_eq!(kinds, [Kind::Truncated], "{name}");
        } else {
            assert_eq!(report.findings, [], "{name}");
            let verdict = report.summary.verdict(None);
            let none = expected.unprotected > 0;
            assert_eq!(
                verdict,
                match (expected.unverifiable > 0, none) {
                    (true, _) => Verdict::Incomplete,
                    (false, true) => Verdict::Unprotected,
                    (false, false) => Verdict::Intact,
                },
                "{name}"
            );
        }
        files += 1;
    }
    assert!(files > 65, "{files} files");
}

#[test]
fn every_damaged_file_is_named_as_listed() {
    let Some(root) = root() else { return };
    let mut files = 0;
    for line in manifest(&root) {
        let name = line["file"].as_str().unwrap();
        if !name.starts_with("damaged/") {
            continue;
        }
        files += 1;
        let report = check(&root.join(name), None).unwrap();
        let expect = &line["expect"];
        let mut expected: Vec<(u64, Vec<Kind>)> = Vec::new();
        for (what, kinds) in [
            ("checksum", &[Kind::BitFlip, Kind::Torn, Kind::Checksum][..]),
            ("payload", &[Kind::Checksum]),
            ("page_number", &[Kind::Misplaced]),
            ("space_id", &[Kind::Misplaced]),
            ("zeroed_allocated", &[Kind::Zeroed]),
        ] {
            for page in expect[what].as_array().into_iter().flatten() {
                expected.push((page.as_u64().unwrap(), kinds.to_vec()));
            }
        }
        if expect["truncated"] == true {
            let pages = line["pages"].as_u64().unwrap();
            let begun = pages + u64::from(expect["partial_page"].is_u64());
            expected.push((begun, vec![Kind::Truncated]));
            expected.extend(expect["partial_page"].as_u64().map(|it| (it, vec![Kind::Truncated])));
        }
        assert_eq!(report.findings.len(), expected.len(), "{name}: {report:?}");
        for (page, kinds) in expected {
            let found = report.kinds(page);
            assert!(
                matches!(found[..], [(Severity::Damage, kind)] if kinds.contains(&kind)),
                "{name} page {page}: {found:?}"
            );
        }
    }
    assert_eq!(files, 16);
}

#[test]
fn flipped_bits_of_the_fixtures_are_named() {
    let Some(root) = root() else { return };
    for name in [
        "bitflip-crc32-16k.ibd",
        "bitflip-encrypted-crc32-16k.ibd",
        "bitflip-encrypted-full_crc32-16k.ibd",
        "bitflip-zip8.ibd",
        "page0-bitflip-crc32-16k.ibd",
    ] {
        let report = check(&root.join("damaged").join(name), None).unwrap();
        assert_eq!(report.findings.len(), 1, "{name}");
        assert_eq!(report.findings[0].kind, Kind::BitFlip, "{name}: {report:?}");
    }
}

#[test]
fn pages_that_mysql_encrypted_are_verified_with_the_keyring() {
    let Some(root) = root() else { return };
    let keyring = root.join("mysql-9.7/test-only-component_keyring_file.json");
    for name in ["enc", "encc", "enczip"] {
        let path = root.join(format!("mysql-9.7/crc32-16k/{name}.ibd"));
        let pages = check(&path, Some(&keyring)).unwrap().summary.pages;
        assert_eq!((pages.unverifiable, pages.damaged), (0, 0), "{name}: {pages:?}");
        assert!(pages.ok > 10, "{name}: {pages:?}");
    }
    let damaged = root.join("damaged/bitflip-mysql-encrypted.ibd");
    let without = check(&damaged, None).unwrap();
    assert_eq!(without.findings, [], "without the key there is nothing to see");
    let with = check(&damaged, Some(&keyring)).unwrap();
    assert_eq!(with.pages(Severity::Damage), [7]);
    assert_eq!(with.kinds(7), [(Severity::Damage, Kind::Checksum)]);
}

#[test]
fn keys_of_somebody_else_are_recognised_and_condemn_nothing() {
    let Some(root) = root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.json");
    let real = root.join("mysql-9.7/test-only-component_keyring_file.json");
    let text = fs::read_to_string(real).unwrap();
    // The names are right, the keys are not.
    fs::write(
        &other,
        text.replace("\"data\":\"", "\"data\":\"0").replace("\",\"ext", "\",\"x\":\"\",\"ext"),
    )
    .unwrap();
    let swapped = text.replace("A7ABCFC5", "00000000");
    let wrong = folder.path().join("wrong.json");
    fs::write(&wrong, swapped).unwrap();
    let path = root.join("mysql-9.7/crc32-16k/enc.ibd");
    let report = check(&path, Some(&wrong)).unwrap();
    assert_eq!((report.summary.pages.unverifiable, report.findings.len()), (20, 0));
    assert!(report.notes.iter().any(|note| note.contains("another one")), "{:?}", report.notes);
    let numbered = root.join("mariadb-10.11/test-only-keyfile.txt");
    let report = check(&path, Some(&numbered)).unwrap();
    assert_eq!((report.summary.pages.unverifiable, report.findings.len()), (20, 0));
    assert!(report.notes.iter().any(|note| note.contains("has no key")), "{:?}", report.notes);
    assert!(check(&path, Some(&other)).is_err(), "keys of an odd length are none");
    assert!(check(&path, Some(&path)).is_err(), "a tablespace is no key file");
}

#[test]
fn files_that_are_no_tablespaces_are_not_called_damaged_ones() {
    let Some(root) = root() else { return };
    for name in ["ib_16384_0.dblwr", "redo_active"] {
        let path = root.join("mysql-9.7/crc32-16k").join(name);
        // Under its own name such a file may be known for what it is.
        if let Ok(report) = check(&path, None) {
            assert_eq!(report.findings, [], "{name}");
        }
        let kind = database::kind_named("innodb");
        let copy = tempfile::tempdir().unwrap();
        let renamed = copy.path().join("t.ibd");
        fs::copy(&path, &renamed).unwrap();
        if name.ends_with("dblwr") {
            assert!(database::open(&renamed, kind).is_err(), "{name} under another name");
        }
    }
}

#[test]
fn links_to_tablespaces_are_followed_and_nothing_is_written() {
    let Some(root) = root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("t.ibd");
    let file = fs::canonicalize(root.join("public/mysql57-city.ibd")).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(check(&link, None).unwrap().summary.pages.ok, 7);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
}

#[test]
fn files_with_the_name_of_a_tablespace_and_nothing_in_them_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.ibd");
    for (bytes, kind) in [
        (Vec::new(), Kind::Truncated),
        (vec![7; 100], Kind::Truncated),
        (vec![0; 7 * 16_384], Kind::Zeroed),
        (vec![0xa5; 7 * 16_384], Kind::Checksum),
    ] {
        fs::write(&path, &bytes).unwrap();
        let report = check(&path, None).unwrap();
        assert_eq!(report.findings[0].kind, kind, "{} bytes", bytes.len());
        assert_eq!(report.summary.verdict(None), Verdict::Damaged);
    }
}

/// Their pages carry no sums that fit, and no server reads them after a restart.
#[test]
fn temporary_tablespaces_are_worth_a_notice_at_most() {
    let Some(root) = root() else { return };
    let mut bytes = fs::read(root.join("mariadb-10.11/full_crc32-16k/dyn.ibd")).unwrap();
    for (page, at) in bytes.chunks_exact_mut(16_384).zip(0..) {
        page[34..38].copy_from_slice(&0xffff_fffe_u32.to_be_bytes());
        page[16..24].fill(0);
        if at == 0 {
            page[38..42].copy_from_slice(&0xffff_fffe_u32.to_be_bytes());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ibtmp1");
    fs::write(&path, &bytes).unwrap();
    let report = check(&path, None).unwrap();
    assert!(report.findings.iter().all(|it| it.severity == Severity::Notice), "{report:?}");
    assert_eq!(report.summary.pages.damaged, 0);
}

/// As a data directory opens the files of the system tablespace.
#[test]
fn further_file_of_a_tablespace_takes_its_place_from_the_first() {
    use pagewarden::database::{Step, Target};
    use pagewarden::formats::innodb::files::tablespace::{Context, Member, Rest, open_file};

    let Some(root) = root() else { return };
    let folder = root.join("mariadb-10.11/multi-file-4k");
    let alone = database::open(&folder.join("ibdata1"), None).unwrap();
    let context = Context { rest: Rest::Pages(2048), ..Context::alone("ibdata1".to_owned()) };
    let first = open_file(&folder.join("ibdata1"), context).unwrap();
    assert_eq!(first.header.unwrap().pages, 3328);
    assert!(first.steps.is_empty(), "1280 pages here and 2048 elsewhere: {:?}", first.steps);
    for (first_page, damaged) in [(first.pages(), 0), (first.pages() + 1, 61)] {
        let layout = first.geometry.layout;
        let member = Some(Member { layout, space_id: 0, first_page, in_use: None });
        let context = Context { member, ..Context::alone("ibdata2".to_owned()) };
        let second = open_file(&folder.join("ibdata2"), context).unwrap();
        assert!(second.steps.is_empty(), "{:?}", second.steps);
        let mut report = Report::default();
        let target = Target {
            description: alone.description.clone(),
            steps: Box::new(std::iter::once(Step::File(second.file))),
            woken: None,
        };
        let options = Options { caching: Caching::Cached, ..Options::default() };
        report.summary = verify(target, &options, &(), &mut report).unwrap().summary;
        assert_eq!(report.summary.pages.damaged, damaged, "from {first_page}");
        assert_eq!(report.summary.pages.empty, 67);
    }
}

/// Seen in `KEY_BLOCK_SIZE=1` tables of a MariaDB 10.11 that was stopped.
#[test]
fn closed_table_of_small_pages_may_end_before_its_last_block_is_full() {
    use pagewarden::formats::innodb::checksum::zip_crc32;
    use pagewarden::formats::innodb::page::fields::FSP_SIZE;

    let Some(root) = root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zip1.ibd");
    let healthy = fs::read(root.join("mariadb-10.11/crc32-16k/zip1.ibd")).unwrap();
    let pages = u32::try_from(healthy.len() / 1024).unwrap();
    assert_eq!(pages % 4, 0);
    for (counted, is_cut) in [(pages, false), (pages + 3, false), (pages + 4, true)] {
        let mut bytes = healthy.clone();
        bytes[FSP_SIZE..FSP_SIZE + 4].copy_from_slice(&counted.to_be_bytes());
        let sum = zip_crc32(&bytes[..1024]);
        bytes[..4].copy_from_slice(&sum.to_be_bytes());
        fs::write(&path, &bytes).unwrap();
        let kinds: Vec<_> = check(&path, None).unwrap().findings.iter().map(|it| it.kind).collect();
        let expected: &[_] = if is_cut { &[Kind::Truncated] } else { &[] };
        assert_eq!(kinds, expected, "{counted} of {pages}");
    }
}
