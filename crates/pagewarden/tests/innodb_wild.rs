//! Files that real servers left, each of which was once judged wrongly, and what must come out of
//! them; and the same kinds of damage planted into healthy files.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden::database::{self, OpenOptions};
use pagewarden::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread, Verdict};
use pagewarden::verify::{Caching, Options, Sink, Summary, verify};

use crate::innodb::root;

const PAGE: u64 = 16_384;

/// What a check said.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub unread: Vec<Unread>,
    pub notes: Vec<Note>,
    pub summary: Summary,
    pub state: String,
    pub engine: String,
}

impl Report {
    /// Severity, kind and page of each finding.
    pub fn found(&self) -> Vec<(Severity, Kind, Option<u64>)> {
        let found = self.findings.iter();
        found.map(|it| (it.severity, it.kind, it.place.page.map(|page| page.0))).collect()
    }

    pub fn verdict(&self) -> Verdict {
        self.summary.verdict(None)
    }

    pub fn notes(&self) -> String {
        self.notes.iter().map(|note| format!("{}: {}\n", note.file, note.text)).collect()
    }
}

impl Sink for Report {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread.push(unread.clone());
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(note.clone());
        Ok(())
    }
}

/// Checks a file or a directory as the program does.
pub fn check(path: &Path, keyring: Option<&Path>) -> Report {
    let options = OpenOptions { keyring: keyring.map(Path::to_owned), ..OpenOptions::default() };
    let target = database::open_with(path, None, &options).unwrap();
    assert_eq!(target.description.format, "innodb", "{}", path.display());
    let mut report = Report {
        state: target.description.state.clone(),
        engine: target.description.engine.clone(),
        ..Report::default()
    };
    let options = Options { caching: Caching::Cached, ..Options::default() };
    report.summary = verify(target, &options, &(), &mut report).unwrap().summary;
    report
}

/// A sample, unpacked into a folder under the name that its server gave it.
pub fn sample(packed: &str, name: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let packed_path = root()?.join("wild").join(packed);
    if !packed_path.is_file() {
        assert!(std::env::var_os("CI").is_none(), "{} is not there", packed_path.display());
        eprintln!("SKIPPED: {} is not there", packed_path.display());
        return None;
    }
    let bytes = fs::read(packed_path).unwrap();
    let mut unpacked = Vec::new();
    match packed.rsplit('.').next() {
        Some("zst") => {
            unpacked = zstd::stream::decode_all(&bytes[..]).unwrap();
        }
        Some("gz") => {
            // Ten bytes of header, the name behind it and a zero; the sum and the length behind.
            let behind = 10 + bytes[10..].iter().position(|byte| *byte == 0).unwrap() + 1;
            flate2::read::DeflateDecoder::new(&bytes[behind..]).read_to_end(&mut unpacked).unwrap();
        }
        _ => unpacked = bytes,
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, unpacked).unwrap();
    Some((folder, path))
}

/// A data directory that was packed.
pub fn directory(packed: &str, name: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let (folder, tar) = sample(packed, "packed.tar")?;
    let status = Command::new("tar").arg("xf").arg(&tar).arg("-C").arg(folder.path()).status();
    assert!(status.unwrap().success());
    let path = folder.path().join(name);
    Some((folder, path))
}

/// A healthy file of the collection under another name.
pub fn copy_of(name: &str, new: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(new);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, fs::read(root()?.join(name)).unwrap()).unwrap();
    Some((folder, path))
}

pub fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

pub fn read_at<const N: usize>(path: &Path, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    fs::File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

#[test]
fn damage_in_the_data_dictionary_of_mysql_is_damage() {
    let name = "mysql-9.7.4-mysql.ibd-bit-flip-page-60.zst";
    for file in ["mysql.ibd", "copy-of-it"] {
        let Some((_folder, path)) = sample(name, file) else { return };
        let report = check(&path, None);
        assert_eq!(report.found(), [(Severity::Damage, Kind::BitFlip, Some(60))], "{file}");
        assert_eq!(report.verdict(), Verdict::Damaged);
        assert!(!report.notes().contains("temporary"), "{}", report.notes());
        write_at(&path, 100 * PAGE, &vec![0; 16_384]);
        fs::File::options().write(true).open(&path).unwrap().set_len(1000 * PAGE).unwrap();
        let found = check(&path, None).found();
        assert!(found.contains(&(Severity::Damage, Kind::Zeroed, Some(100))), "{found:?}");
        assert!(found.contains(&(Severity::Damage, Kind::Truncated, Some(1000))), "{found:?}");
    }
}

/// The flag of a temporary tablespace, on a page that fails, once made nothing of all damage.
#[test]
fn flag_on_a_first_page_that_fails_does_not_make_a_tablespace_temporary() {
    for space in [[0; 4], 0xffff_fffe_u32.to_be_bytes(), 0xffff_fffd_u32.to_be_bytes()] {
        let Some((_folder, path)) = copy_of("mysql-9.7/crc32-16k/dyn.ibd", "t.ibd") else { return };
        let [flag] = read_at::<1>(&path, 56);
        write_at(&path, 56, &[flag ^ 0x10]);
        if space != [0; 4] {
            write_at(&path, 34, &space);
            write_at(&path, 38, &space);
        }
        write_at(&path, 5 * PAGE + 100, &[0xAA; 3900]);
        let found = check(&path, None).found();
        let damaged: Vec<_> = found.iter().map(|it| (it.0, it.2)).collect();
        assert_eq!(
            damaged,
            [(Severity::Damage, Some(0)), (Severity::Damage, Some(5))],
            "{space:?}: {found:?}"
        );
    }
}

#[test]
fn tablespaces_that_are_temporary_by_name_are_worth_a_notice_at_most() {
    for name in ["ibtmp1", "#innodb_temp/temp_3.ibt", "temp_3.ibt"] {
        let Some((_folder, path)) = copy_of("mysql-9.7/crc32-16k/dyn.ibd", name) else { return };
        write_at(&path, 5 * PAGE + 100, &[0xAA; 3900]);
        let found = check(&path, None).found();
        let severities: Vec<_> = found.iter().map(|it| (it.0, it.2)).collect();
        assert_eq!(severities, [(Severity::Notice, Some(5))], "{name}");
    }
}

#[test]
fn doublewrite_file_that_was_never_used_is_fine() {
    let Some((_folder, path)) = sample("#ib_16384_1.dblwr.gz", "#ib_16384_1.dblwr") else { return };
    let report = check(&path, None);
    assert_eq!(report.findings, []);
    assert_eq!((report.summary.pages.empty, report.verdict()), (768, Verdict::Intact));
    // Numbers of pages, and no page.
    let numbers = path.with_file_name("#ib_16384_0.bdblwr");
    fs::write(&numbers, [1; 32_768]).unwrap();
    let error = database::open(&numbers, None).unwrap_err().to_string();
    assert!(error.contains("no page"), "{error}");
}

#[test]
fn pages_without_sums_that_are_compressed_or_encrypted_are_no_damage() {
    for name in [
        "mysql-9.7.4-none-compression-zlib-16k.ibd.zst",
        "mysql-9.7.4-none-encrypted-16k.ibd.zst",
        "mariadb-10.2.11-none-page_compressed-16k.ibd.zst",
    ] {
        let Some((folder, path)) = sample(name, "t.ibd") else { return };
        let report = check(&path, None);
        assert_eq!(report.findings, [], "{name}");
        let pages = report.summary.pages;
        assert_eq!(pages.unverifiable > 0, name.contains("encrypted"), "{name}: {pages:?}");
        if !name.contains("encrypted") {
            assert_eq!(report.verdict(), Verdict::Unprotected, "{name}");
            continue;
        }
        assert_eq!(report.verdict(), Verdict::Incomplete, "{name}");
        let keyring = folder.path().join("keyring");
        let file = "wild/mysql-9.7.4-none-encrypted-16k.keyring.json";
        fs::copy(root().unwrap().join(file), &keyring).unwrap();
        let report = check(&path, Some(&keyring));
        assert_eq!((report.findings.len(), report.summary.pages.unverifiable), (0, 0), "{name}");
        assert_eq!(report.verdict(), Verdict::Unprotected, "{name}");
    }
}

#[test]
fn log_that_mysql_encrypts_says_that_its_server_was_shut_down() {
    let Some((_folder, path)) = directory("mysql-9.7.4-encrypted-redo.tar.zst", "r97") else {
        return;
    };
    let report = check(&path, None);
    assert_eq!(report.findings, []);
    assert!(report.state.starts_with("shut down cleanly"), "{}", report.state);
    // The log goes on behind an earlier checkpoint: its server was killed.
    let redo = path.join("#innodb_redo/#ib_redo7");
    let mut block = read_at::<512>(&redo, 1536);
    let earlier = 19_517_797_u64 - 5 * 512;
    block[8..16].copy_from_slice(&earlier.to_be_bytes());
    let sum = pagewarden::crc::crc32c(&block[..508]);
    block[508..].copy_from_slice(&sum.to_be_bytes());
    write_at(&redo, 1536, &block);
    let report = check(&path, None);
    assert_eq!(report.findings, []);
    assert!(report.state.contains("recovery has yet to run"), "{}", report.state);
}

#[test]
fn flipped_bit_in_a_log_that_mysql_encrypts_is_damage_with_its_key_and_untested_without() {
    let Some((_folder, path)) = directory("mysql-9.7.4-encrypted-redo.tar.zst", "r97") else {
        return;
    };
    let redo = path.join("#innodb_redo/#ib_redo7");
    let keyring = path.join("keyring.json");
    let without = check(&path, None);
    assert_eq!((without.findings.len(), without.summary.untested_files), (0, 1));
    assert_eq!(without.verdict(), Verdict::Incomplete);
    let notes = without.notes();
    assert!(notes.contains("1 encrypted block is not tested of the log"), "{notes}");
    assert!(notes.contains("INNODBKey-46db9ad1") && notes.contains("--keyring"), "{notes}");
    let with = check(&path, Some(&keyring));
    assert_eq!((with.findings.len(), with.summary.untested_files), (0, 0), "{}", with.notes());
    // The block of the checkpoint, from its header to its sum.
    let block = 176_128_u64;
    for at in [5, 6, 9, 12, 13, 300, 479, 480, 495, 507, 508, 511] {
        let healthy = read_at::<1>(&redo, block + at);
        write_at(&redo, block + at, &[healthy[0] ^ 1]);
        let report = check(&path, Some(&keyring));
        let found: Vec<_> = report.findings.iter().map(|it| (it.kind, it.place.offset)).collect();
        assert_eq!(found, [(Kind::Checksum, Some(ByteOffset(block)))], "byte {at}");
        assert!(report.state.starts_with("state unknown"), "{}", report.state);
        write_at(&redo, block + at, &healthy);
    }
    // A keyring of another server.
    let text = fs::read_to_string(&keyring).unwrap();
    let other = path.join("other.json");
    fs::write(&other, text.replace("46db9ad1", "46db9ad2")).unwrap();
    let report = check(&path, Some(&other));
    assert_eq!((report.findings.len(), report.summary.untested_files), (0, 1));
    assert!(report.notes().contains("the keyring has no key"), "{}", report.notes());
}

#[test]
fn server_of_mysql_55_that_was_shut_down_counts_as_shut_down() {
    let name = "mysql-5.5.9-clean-shutdown-datadir.tar.zst";
    let Some((_folder, path)) = directory(name, "my55b") else { return };
    let report = check(&path, None);
    assert_eq!((report.findings.len(), report.verdict()), (0, Verdict::Intact));
    assert!(report.state.starts_with("shut down cleanly"), "{}", report.state);
    assert_eq!(report.engine, "MySQL 5.5.9");
    write_at(&path.join("ibdata1"), 300 * PAGE + 500, &[0x55; 30]);
    let found = check(&path, None).found();
    assert!(matches!(found[..], [(Severity::Damage, _, Some(300))]), "{found:?}");
}

#[test]
fn fixed_pages_of_a_system_tablespace_are_named_where_they_are_zero() {
    let name = "ibdata1-mariadb-11.8-page8-SYS_TABLES-root-zeroed.zst";
    let Some((_folder, path)) = sample(name, "ibdata1") else { return };
    assert_eq!(check(&path, None).found(), [(Severity::Damage, Kind::Zeroed, Some(8))]);
    let name = "mysql-5.5.9-clean-shutdown-datadir.tar.zst";
    let Some((_folder, root)) = directory(name, "my55b") else { return };
    let path = root.join("ibdata1");
    let elsewhere = tempfile::tempdir().unwrap();
    let alone = elsewhere.path().join("ibdata1");
    for page in 0..13 {
        let kept = read_at::<16_384>(&path, page * PAGE);
        write_at(&path, page * PAGE, &[0; 16_384]);
        fs::copy(&path, &alone).unwrap();
        for target in [&root, &path, &alone] {
            let report = check(target, None);
            let expected = [(Severity::Damage, Kind::Zeroed, Some(page))];
            assert_eq!(report.found(), expected, "{}: {report:?}", target.display());
        }
        write_at(&path, page * PAGE, &kept);
    }
    assert_eq!(check(&root, None).findings, []);
    assert_eq!(check(&path, None).findings, []);
}

/// Its doublewrite area holds pages of other places, and page 5 says where it is.
#[test]
fn damage_to_the_page_of_the_transaction_system_blames_no_sound_page() {
    let name = "mysql-5.5.9-clean-shutdown-datadir.tar.zst";
    let Some((_folder, root)) = directory(name, "my55b") else { return };
    let path = root.join("ibdata1");
    let end = 6 * PAGE - 200 + 10;
    // The page as a whole; and one bit of it, where it says where the area is, and elsewhere.
    for at in [end + 5, end + 17, 5 * PAGE + 3000] {
        let [byte] = read_at::<1>(&path, at);
        write_at(&path, at, &[byte ^ 1]);
        for target in [&root, &path] {
            let found = check(target, None).found();
            assert!(matches!(found[..], [(Severity::Damage, _, Some(5))]), "byte {at}: {found:?}");
        }
        write_at(&path, at, &[byte]);
    }
    write_at(&path, 5 * PAGE, &[0; 16_384]);
    let report = check(&path, None);
    assert_eq!(report.found(), [(Severity::Damage, Kind::Zeroed, Some(5))]);
    assert!(report.notes().contains("pages 64 to 191"), "{}", report.notes());
    // What fails in that area is a copy, or a page: it is not known which.
    write_at(&path, 70 * PAGE + 400, &[0x55; 30]);
    let found = check(&path, None).found();
    let suspect = (Severity::Suspect, Kind::Checksum, Some(70));
    assert_eq!(found, [(Severity::Damage, Kind::Zeroed, Some(5)), suspect]);
}

#[test]
fn further_file_of_the_system_tablespace_may_begin_with_blank_pages() {
    let Some((folder, path)) = sample("mysql-9.7.4-ibdata2.zst", "ibdata2") else { return };
    let report = check(&path, None);
    assert_eq!((report.findings.len(), report.summary.pages.empty), (0, 768));
    // In pages of 4 KiB, of which the first mebibyte was not written.
    let root = root().unwrap().join("mariadb-10.11/multi-file-4k");
    let mut bytes = fs::read(root.join("ibdata2")).unwrap();
    bytes.splice(..0, std::iter::repeat_n(0, 2 << 20));
    // Its own pages then have other numbers than their places.
    fs::write(&path, &bytes).unwrap();
    let report = check(&path, None);
    assert_eq!(report.findings, [], "{}", report.notes());
    assert_eq!((report.summary.pages.ok, report.summary.pages.empty), (61, 67 + 512));
    write_at(&path, (2 << 20) + 4096 * 2 + 100, &[0x55; 40]);
    assert_eq!(check(&path, None).findings.len(), 1);
    // Beside the first file its numbers follow from that one's length.
    fs::copy(root.join("ibdata2"), &path).unwrap();
    fs::copy(root.join("ibdata1"), folder.path().join("ibdata1")).unwrap();
    write_at(&path, 0, &[0; 4096]);
    let report = check(&path, None);
    assert_eq!(report.findings, [], "{}", report.notes());
    assert_eq!(report.summary.pages.ok, 60);
}

#[test]
fn aria_table_that_was_cut_between_pages_is_truncated() {
    let Some((folder, path)) = sample("aria0-truncated.MAD", "t.MAD") else { return };
    let index = folder.path().join("t.MAI");
    fs::copy(root().unwrap().join("wild/aria0-truncated.MAI"), &index).unwrap();
    let truncated = |page| (Severity::Damage, Kind::Truncated, Some(page));
    assert_eq!(check(&path, None).found(), [truncated(9)]);
    assert_eq!(check(&index, None).found(), [], "it is whole");
    fs::File::options().write(true).open(&index).unwrap().set_len(10 * 8192).unwrap();
    assert_eq!(check(&index, None).found(), [truncated(10)]);
    // In a folder without a log nothing says that its server was shut down.
    let found = check(folder.path(), None).found();
    let suspect = |page| (Severity::Suspect, Kind::Truncated, Some(page));
    assert_eq!(found, [suspect(10), suspect(9)]);
    // A server that was killed left it open, and its header is as old as it pleases.
    write_at(&index, 24, &[0, 1]);
    for (what, notes) in [(&path, 1), (&index, 1), (&folder.path().to_owned(), 2)] {
        let report = check(what, None);
        assert_eq!(report.findings, [], "{}", what.display());
        let said = report.notes();
        let open = said.matches("the server ended while this table was open").count();
        assert_eq!(open, notes, "{}: {said}", what.display());
    }
}

/// A link of one page of an index is changed, and its sum made right: the page passes its own test, and
/// those beside it contradict it.
#[test]
fn page_of_an_index_with_a_wrong_link_under_a_right_sum_is_named_and_no_other() {
    const SIZE: usize = 4096;
    let Some((folder, path)) = copy_of("mariadb-10.11/full_crc32-4k/dyn.ibd", "t.ibd") else {
        return;
    };
    let bytes = fs::read(&path).unwrap();
    let link = |page: &[u8], at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
    let is_index = |page: &[u8]| page[24..26] == [0x45, 0xBF];
    let pages: Vec<_> = bytes.chunks_exact(SIZE).collect();
    let in_the_middle = |(number, page): (usize, &&[u8])| {
        let (before, after) = (link(page, 8), link(page, 12));
        let is_middle = is_index(page) && before != u32::MAX && after != u32::MAX;
        let beside = *pages.get(usize::try_from(after).ok()?)?;
        // Its place in the list is not that of a page that was given back.
        (is_middle && link(beside, 8) == u32::try_from(number).ok()?).then_some((number, before))
    };
    let tried: Vec<_> = pages.iter().enumerate().filter_map(in_the_middle).collect();
    assert!(tried.len() > 3, "{tried:?}");
    for (number, before) in tried {
        let mut page = pages[number].to_vec();
        page[12..16].copy_from_slice(&before.to_be_bytes());
        let sum = pagewarden::crc::crc32c(&page[..SIZE - 4]);
        page[SIZE - 4..].copy_from_slice(&sum.to_be_bytes());
        write_at(&path, (number * SIZE) as u64, &page);
        // By its LSN it may be older than those beside it, or not.
        let [(severity, kind, page)] = check(&path, None).found()[..] else { panic!("{number}") };
        assert_eq!((severity, page), (Severity::Suspect, Some(number as u64)));
        assert!(matches!(kind, Kind::Structure | Kind::Stale), "{kind:?}");
        // As part of a folder whose state is not known, links are not asked for.
        assert_eq!(check(folder.path(), None).found(), [], "page {number}");
        write_at(&path, (number * SIZE) as u64, pages[number]);
    }
    assert_eq!(check(&path, None).found(), []);
}

/// Each of them has a test above, or in `innodb_books`.
#[test]
fn samples_of_the_collection_are_all_here() {
    const SAMPLES: [&str; 12] = [
        "#ib_16384_1.dblwr.gz",
        "aria0-truncated.MAD",
        "aria0-truncated.MAI",
        "ibdata1-mariadb-11.8-page8-SYS_TABLES-root-zeroed.zst",
        "mariadb-10.2.11-none-page_compressed-16k.ibd.zst",
        "mysql-5.5.9-clean-shutdown-datadir.tar.zst",
        "mysql-9.7.4-encrypted-redo.tar.zst",
        "mysql-9.7.4-ibdata2.zst",
        "mysql-9.7.4-mysql.ibd-bit-flip-page-60.zst",
        "mysql-9.7.4-none-compression-zlib-16k.ibd.zst",
        "mysql-9.7.4-none-encrypted-16k.ibd.zst",
        "mysql-9.7.4-none-encrypted-16k.keyring.json",
    ];
    let Some(root) = root() else { return };
    let text = include_str!("innodb_wild.rs");
    if !root.join("wild").is_dir() {
        assert!(std::env::var_os("CI").is_none(), "{} has no samples", root.display());
        eprintln!("SKIPPED: {} has no samples", root.display());
        return;
    }
    for name in SAMPLES {
        assert!(root.join("wild").join(name).is_file(), "{name} is not there");
        // Here, and where it is judged.
        assert!(text.matches(name).count() > 1, "{name} is judged nowhere");
    }
}
