//! `pagewarden check` on SQLite databases: files that the real library wrote, in every layout and
//! with the histories that leave the most behind, must never be called damaged; what was done to a
//! file afterwards must be.
//!
//! The golden files carry sums that the official checksum VFS wrote (`fixtures/sqlite/make.sh`). The
//! other tests need the `sqlite3` shell and say so when they skip.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on must stop"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const GOLDEN_512: &str = "cksumvfs-512.db";
const GOLDEN_4096: &str = "cksumvfs-4096.db";

/// What `pagewarden check --json` said of one file.
pub(crate) struct Checked {
    pub(crate) status: i32,
    pub(crate) report: Value,
}

impl Checked {
    pub(crate) fn verdict(&self) -> &str {
        self.report["verdict"].as_str().unwrap_or("")
    }

    fn target(&self) -> &Value {
        &self.report["targets"][0]
    }

    fn pages(&self, what: &str) -> u64 {
        self.target()["pages"][what].as_u64().unwrap_or_else(|| panic!("no {what}: {self}"))
    }

    pub(crate) fn findings(&self) -> &[Value] {
        self.target()["findings"].as_array().map_or(&[], Vec::as_slice)
    }

    fn only_finding(&self) -> &Value {
        assert_eq!(self.findings().len(), 1, "{self}");
        &self.findings()[0]
    }

    /// All text in the report, for words that must be somewhere in it.
    fn says(&self, words: &str) -> bool {
        self.report.to_string().contains(words)
    }
}

impl std::fmt::Display for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {}: {:#}", self.status, self.report)
    }
}

fn check(path: &Path) -> Checked {
    check_with(path, &[])
}

pub(crate) fn check_with(path: &Path, flags: &[&str]) -> Checked {
    let output = Command::new(env!("CARGO_BIN_EXE_pagewarden"))
        .args(["check", "--json"])
        .args(flags)
        .arg(path)
        .output()
        .expect("pagewarden runs");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    Checked { status: output.status.code().expect("an exit status"), report }
}

fn golden(name: &str) -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sqlite/3.40.1");
    fs::read(Path::new(root).join(name)).expect("golden database")
}

/// Writes `bytes` as a database in a folder of its own.
fn database_of(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("test.db");
    fs::write(&path, bytes).expect("write");
    (folder, path)
}

fn check_bytes(bytes: &[u8]) -> Checked {
    let (_folder, path) = database_of(bytes);
    check(&path)
}

/// False, said aloud, where there is no `sqlite3` shell.
pub fn has_shell() -> bool {
    let found = Command::new("sqlite3").arg("--version").output().is_ok();
    if !found {
        let required = std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default();
        assert!(!required.contains("sqlite"), "PAGEWARDEN_REQUIRE names sqlite: no sqlite3 shell");
        eprintln!("SKIPPED: no sqlite3 shell here");
    }
    found
}

/// Runs a script in the `sqlite3` shell, in `folder`.
pub fn shell(folder: &Path, script: &str) -> String {
    let input = folder.join("script.sql");
    fs::write(&input, script).expect("write");
    let output = Command::new("sqlite3")
        .current_dir(folder)
        .arg(":memory:")
        .stdin(Stdio::from(fs::File::open(&input).expect("script")))
        .output()
        .expect("sqlite3 runs");
    fs::remove_file(&input).expect("remove");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}\n{script}");
    String::from_utf8(output.stdout).expect("text")
}

/// Tables, an index, overflow pages, a blob of zeroes, and then enough deletions for a freelist.
const CONTENT: &str = "
CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c BLOB);
CREATE INDEX i ON t (b);
CREATE TABLE u (k PRIMARY KEY, v) WITHOUT ROWID;
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 700)
INSERT INTO t SELECT x, hex(randomblob(20)), randomblob(x % 600) FROM n;
INSERT INTO t VALUES (10000, zeroblob(200000), randomblob(150000));
INSERT INTO u SELECT a, b FROM t WHERE a < 500;
DELETE FROM t WHERE a % 3 = 0;
UPDATE t SET c = randomblob(900) WHERE a % 7 = 0;
DROP TABLE u;
";

#[test]
fn healthy_databases_of_every_layout_are_never_suspected() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    for page_size in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
        for (auto_vacuum, journal_mode, reserve, last) in [
            ("NONE", "DELETE", 0, ""),
            ("FULL", "WAL", 0, "PRAGMA user_version = 7;"),
            ("INCREMENTAL", "PERSIST", 32, "PRAGMA incremental_vacuum(3);"),
            ("NONE", "TRUNCATE", 17, "VACUUM;"),
            ("INCREMENTAL", "OFF", 0, "PRAGMA incremental_vacuum;"),
        ] {
            let path = folder.path().join("layout.db");
            shell(
                folder.path(),
                &format!(
                    ".open layout.db\n.filectrl reserve_bytes {reserve}\n.output /dev/null\n\
                     PRAGMA page_size = {page_size}; PRAGMA secure_delete = OFF;\n\
                     PRAGMA auto_vacuum = {auto_vacuum}; PRAGMA journal_mode = {journal_mode};\n\
                     {CONTENT}{last}\n"
                ),
            );
            let checked = check(&path);
            assert_eq!(checked.status, 0, "{checked}");
            assert_eq!(checked.verdict(), "unprotected", "{checked}");
            assert!(checked.findings().is_empty(), "{checked}");
            assert_eq!(checked.target()["page_size"], page_size);
            let length = fs::metadata(&path).expect("database").len();
            assert_eq!(checked.pages("total"), length / page_size);
            for suffix in ["", "-journal", "-wal", "-shm"] {
                let _ = fs::remove_file(folder.path().join(format!("layout.db{suffix}")));
            }
        }
    }
}

/// A copy of the files while the database is open in WAL mode: committed rows are in the log alone.
#[test]
fn log_left_over_is_explained_and_nothing_is_touched() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    shell(
        folder.path(),
        &format!(
            ".open live.db\n.output /dev/null\nPRAGMA journal_mode = WAL;\n{CONTENT}\n\
             PRAGMA wal_checkpoint; UPDATE t SET b = 'new';\n\
             .shell cp live.db copy.db && cp live.db-wal copy.db-wal\n"
        ),
    );
    let path = folder.path().join("copy.db");
    let state = || -> Vec<_> {
        let mut files: Vec<_> = fs::read_dir(folder.path())
            .expect("list")
            .map(|entry| {
                let entry = entry.expect("entry");
                let modified = entry.metadata().and_then(|m| m.modified()).expect("time");
                (entry.file_name(), fs::read(entry.path()).expect("read"), modified)
            })
            .collect();
        files.sort();
        files
    };
    let before = state();
    let checked = check(&path);
    assert!(before == state(), "the check left something behind");
    assert_eq!((checked.status, checked.verdict()), (0, "unprotected"), "{checked}");
    assert!(checked.says("copy.db-wal"), "{checked}");
    assert!(checked.says("committed changes may be in it alone"), "{checked}");
}

/// A copy in the middle of a transaction that no longer fits into memory: pages of it are in the
/// main file, and the journal that undoes them lies beside.
#[test]
fn interrupted_transaction_is_explained_and_is_no_damage() {
    if !has_shell() {
        return;
    }
    for auto_vacuum in [0, 1] {
        let folder = tempfile::tempdir().expect("temporary folder");
        shell(
            folder.path(),
            &format!(
                ".open live.db\nPRAGMA auto_vacuum = {auto_vacuum};\n{CONTENT}\n\
                 PRAGMA cache_size = 5; BEGIN; UPDATE t SET c = randomblob(2000);\n\
                 DELETE FROM t WHERE a < 300;\n\
                 .shell cp live.db copy.db && cp live.db-journal copy.db-journal\n"
            ),
        );
        let checked = check(&folder.path().join("copy.db"));
        assert_eq!(checked.status, 0, "{checked}");
        assert_eq!(checked.pages("damaged"), 0, "{checked}");
        assert!(checked.says("will undo it"), "{checked}");
    }
}

/// From within another process's transaction: the file is longer than its header says, and locked.
#[test]
fn database_in_use_is_no_damage() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let pagewarden = env!("CARGO_BIN_EXE_pagewarden");
    shell(
        folder.path(),
        &format!(
            ".open live.db\n{CONTENT}\nPRAGMA cache_size = 5; BEGIN;\n\
             UPDATE t SET c = randomblob(2000);\n\
             .shell {pagewarden} check --json live.db >report.json\n"
        ),
    );
    let report = fs::read(folder.path().join("report.json")).expect("report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["verdict"], "unprotected", "{report:#}");
    assert!(report.to_string().contains("open in another process"), "{report:#}");
}

#[test]
fn pages_of_the_official_checksum_vfs_are_intact() {
    for name in [GOLDEN_512, GOLDEN_4096] {
        let checked = check_bytes(&golden(name));
        assert_eq!((checked.status, checked.verdict()), (0, "intact"), "{checked}");
        assert_eq!(checked.target()["setting"], "checksum");
        assert_eq!(checked.pages("ok"), checked.pages("total"), "{checked}");
    }
}

/// One bit in each page in turn, and the finding names the place. Freelist leaves hold nothing that
/// counts, and are no damage.
#[test]
fn flipped_bit_is_found_on_every_page_in_use() {
    let bytes = golden(GOLDEN_4096);
    let mut free = 0;
    for page in 0..bytes.len() / 4096 {
        let mut damaged = bytes.clone();
        let byte = 200 + page * 13;
        damaged[page * 4096 + byte] ^= 1 << 1;
        let checked = check_bytes(&damaged);
        let finding = checked.only_finding();
        assert_eq!(finding["page"], page + 1);
        assert_eq!(finding["offset"], page * 4096);
        if finding["severity"] == "notice" {
            free += 1;
            assert_eq!((checked.status, checked.verdict()), (0, "intact"), "{checked}");
            assert_eq!(checked.pages("suspect"), 1);
        } else {
            assert_eq!((checked.status, checked.verdict()), (1, "damaged"), "{checked}");
            assert_eq!(finding["kind"], "bit_flip");
            let words = format!("bit 1 of byte {byte}");
            assert!(finding["detail"].as_str().is_some_and(|d| d.contains(&words)), "{checked}");
            assert_ne!(finding["stored"], finding["computed"]);
        }
    }
    // The header counts free pages at offset 36; one of them is the trunk page, which is in use.
    assert_eq!(free, u32::from_be_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]) - 1);
}

/// The byte that switches the sums on must not switch the check off.
#[test]
fn damaged_reserve_byte_does_not_hide_the_sums() {
    for value in [0, 9, 255] {
        let mut bytes = golden(GOLDEN_512);
        bytes[20] = value;
        bytes[512 * 4 + 99] ^= 0x55;
        let checked = check_bytes(&bytes);
        assert_eq!(checked.pages("damaged"), 2, "{checked}");
        assert_eq!(checked.target()["setting"], "checksum");
    }
}

/// Page 1 as a whole: the other pages tell where pages begin, and are still verified.
#[test]
fn lost_first_page_is_one_damaged_page() {
    for name in [GOLDEN_512, GOLDEN_4096] {
        let mut bytes = golden(name);
        let page_size = if name == GOLDEN_512 { 512 } else { 4096 };
        for (fill, kind) in [(0, "zeroed"), (0xa5, "header")] {
            bytes[..page_size].fill(fill);
            let (_folder, path) = database_of(&bytes);
            let checked = check(&path);
            assert_eq!((checked.status, checked.verdict()), (1, "damaged"), "{checked}");
            assert_eq!(checked.only_finding()["kind"], kind);
            assert_eq!(checked.target()["page_size"], page_size);
        }
    }
}

#[test]
fn damaged_header_is_found_without_sums() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    shell(folder.path(), &format!(".open plain.db\n{CONTENT}"));
    let bytes = fs::read(folder.path().join("plain.db")).expect("database");
    for (offset, value) in
        [(3, b'Q'), (16, 0x30), (19, 3), (19, 255), (21, 65), (47, 9), (56, 1), (100, 0), (103, 9)]
    {
        let mut damaged = bytes.clone();
        damaged[offset] = value;
        let checked = check_bytes(&damaged);
        assert_eq!((checked.status, checked.verdict()), (1, "damaged"), "{offset}: {checked}");
        assert_eq!(checked.only_finding()["kind"], "header");
        assert_eq!(checked.only_finding()["page"], 1);
        assert_eq!(checked.target()["page_size"], 4096);
    }
}

/// SQLite writes page 1 in every transaction; without the VFS its sum is left as it was.
#[test]
fn writer_without_the_vfs_is_told_from_damage() {
    if !has_shell() {
        return;
    }
    let (folder, path) = database_of(&golden(GOLDEN_4096));
    shell(folder.path(), ".open test.db\nUPDATE words SET line = 'by another' WHERE id = 50;\n");
    let checked = check(&path);
    assert_eq!((checked.status, checked.verdict()), (0, "suspect"), "{checked}");
    assert_eq!(checked.pages("damaged"), 0, "{checked}");
    assert!(checked.findings().len() >= 2, "{checked}");
    assert!(checked.says("without the checksum VFS may have written here"), "{checked}");
    assert_eq!(check_with(&path, &["--strict"]).status, 1);
}

/// Eight reserved bytes that no program fills are no protection, and no damage.
#[test]
fn reserve_without_sums_is_unprotected() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    shell(
        folder.path(),
        &format!(".open plain.db\n.filectrl reserve_bytes 8\n.output /dev/null\n{CONTENT}"),
    );
    let checked = check(&folder.path().join("plain.db"));
    assert_eq!((checked.status, checked.verdict()), (0, "unprotected"), "{checked}");
    assert!(checked.findings().is_empty(), "{checked}");
    assert!(checked.target()["setting"].is_null(), "{checked}");
    assert!(checked.says("not the checksum VFS's sums"), "{checked}");
}

#[test]
fn cut_file_is_truncated_and_a_longer_one_is_not_damaged() {
    let bytes = golden(GOLDEN_512);
    for length in [bytes.len() - 512, bytes.len() - 100, 2048, 1000, 300, 90] {
        let checked = check_bytes(&bytes[..length]);
        assert_eq!((checked.status, checked.verdict()), (1, "damaged"), "{length}: {checked}");
        assert!(checked.findings().iter().any(|f| f["kind"] == "truncated"), "{checked}");
    }
    for (more, fill) in [(1024, 0), (1024, 0xa5), (700, 0xa5)] {
        let longer = [bytes.clone(), vec![fill; more]].concat();
        let checked = check_bytes(&longer);
        assert_eq!((checked.status, checked.verdict()), (0, "intact"), "{checked}");
        assert_eq!(checked.pages("damaged"), 0, "{checked}");
    }
}

/// Some encryptions leave the first 32 bytes as they are, and put their own things into the reserve.
#[test]
fn encrypted_database_with_a_readable_header_needs_its_key() {
    let mut bytes = noise(4096 * 10);
    bytes[..32].copy_from_slice(&golden(GOLDEN_4096)[..32]);
    bytes[20] = 80;
    let checked = check_bytes(&bytes);
    assert_eq!((checked.status, checked.verdict()), (2, "incomplete"), "{checked}");
    assert_eq!(checked.pages("unverifiable"), 10, "{checked}");
    assert!(checked.findings().is_empty(), "{checked}");
    assert!(checked.says("the pages are encrypted"), "{checked}");
}

/// Bytes without order.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn what_is_no_database_is_refused() {
    let (_folder, path) = database_of(&noise(40_000));
    assert_eq!(check(&path).status, 2);
    assert_eq!(check_with(&path, &["--format", "sqlite"]).status, 2);

    let (_folder, path) = database_of(&[]);
    let checked = check_with(&path, &["--format", "sqlite"]);
    assert_eq!((checked.status, checked.verdict()), (0, "unprotected"), "{checked}");
}

/// What the main file has, too, is not lost.
#[test]
fn log_whose_header_is_lost_is_damage_where_it_has_what_the_main_file_lacks() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let copy = |name: &str| format!(".shell cp x.db {name}.db; cp x.db-wal {name}.db-wal\n");
    let script = format!(
        ".open x.db\nPRAGMA journal_mode=WAL;\n{CONTENT}\n{}PRAGMA wal_checkpoint;\n{}\
         UPDATE t SET b = 'other';\n{}",
        copy("lost"),
        copy("kept"),
        copy("again"),
    );
    shell(folder.path(), &script);
    for (name, is_lost) in [("lost", true), ("kept", false), ("again", true)] {
        let path = folder.path().join(format!("{name}.db"));
        assert_eq!(check_with(&path, &[]).status, 0, "{name}");
        let log = folder.path().join(format!("{name}.db-wal"));
        let good = fs::read(&log).expect("read");
        for length in [32, 512, 4096] {
            let mut bytes = good.clone();
            bytes[..length].fill(0);
            fs::write(&log, bytes).expect("write");
            let checked = check_with(&path, &[]);
            let says = checked.says("the header of the write-ahead log is lost");
            let expected = (is_lost, i32::from(is_lost));
            assert_eq!((says, checked.status), expected, "{name} {length}: {checked}");
        }
    }
}

/// Its pages do not say when they were written: other bytes may be a later state.
#[test]
fn seal_of_a_database_that_was_written_since_says_that_it_proves_little() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    shell(folder.path(), &format!(".open x.db\n{CONTENT}"));
    let path = folder.path().join("x.db");
    let seal = folder.path().join("x.seal").to_string_lossy().into_owned();
    assert_eq!(check_with(&path, &["--seal", &seal]).status, 0);
    let says_little = |it: &Checked| it.says("this seal proves little;");
    let same = check_with(&path, &["--against", &seal]);
    assert!(!says_little(&same) && same.findings().is_empty(), "{same}");
    shell(folder.path(), ".open x.db\nINSERT INTO t VALUES (20000, 'new', x'00');");
    let later = check_with(&path, &["--against", &seal]);
    assert!(says_little(&later) && later.findings().is_empty(), "{later}");
    // Pages that come free are zero then, and nothing is wrong.
    let free = "PRAGMA secure_delete=ON; DELETE FROM t WHERE rowid % 500 < 400;";
    shell(folder.path(), &format!(".open x.db\n{free}"));
    let freed = check_with(&path, &["--against", &seal]);
    assert!(says_little(&freed) && freed.findings().is_empty(), "{freed}");
    // A page that is in use, and is zero.
    let mut bytes = fs::read(&path).expect("read");
    bytes[4096..8192].fill(0);
    fs::write(&path, bytes).expect("write");
    let zeroed = check_with(&path, &["--against", &seal]);
    assert!(zeroed.status == 1 && !zeroed.findings().is_empty(), "{zeroed}");
    assert!(!zeroed.says("pd_lsn") && says_little(&zeroed), "{zeroed}");
}
