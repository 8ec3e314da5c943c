//! What a data directory needs and has not, what lies elsewhere, and what could not be tested.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use pagewarden::database;
use pagewarden::verdict::{Kind, Severity, Verdict};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::innodb::root;
use crate::innodb_wild::{Report, check, directory, read_at, sample, write_at};

const OLD: &str = "mysql-5.5.9-clean-shutdown-datadir.tar.zst";
const PAGE: u64 = 16_384;

fn unread(report: &Report) -> Vec<&str> {
    report.unread.iter().map(|unread| unread.file.as_str()).collect()
}

fn missing(report: &Report) -> Vec<(Severity, &str)> {
    let found = report.findings.iter().filter(|finding| finding.kind == Kind::Missing);
    found.map(|finding| (finding.severity, finding.place.file.as_str())).collect()
}

#[test]
fn data_directory_without_its_system_tablespace_is_incomplete() {
    let Some((_folder, path)) = directory(OLD, "my55b") else { return };
    fs::remove_file(path.join("ibdata1")).unwrap();
    let report = check(&path, None);
    assert_eq!((unread(&report), report.verdict()), (vec!["ibdata1"], Verdict::Incomplete));
    assert_eq!(report.findings, []);
}

#[test]
fn data_directory_without_its_log_is_incomplete() {
    let Some((_folder, path)) = directory(OLD, "my55b") else { return };
    fs::remove_file(path.join("ib_logfile0")).unwrap();
    fs::remove_file(path.join("ib_logfile1")).unwrap();
    let report = check(&path, None);
    assert_eq!((unread(&report), report.verdict()), (vec!["ib_logfile0"], Verdict::Incomplete));
}

#[test]
fn files_elsewhere_are_checked_where_an_options_file_says_that_they_are() {
    let Some((folder, path)) = directory(OLD, "my55b") else { return };
    for (place, names) in [("system", &["ibdata1"][..]), ("log", &["ib_logfile0", "ib_logfile1"])] {
        fs::create_dir(folder.path().join(place)).unwrap();
        for name in names {
            fs::rename(path.join(name), folder.path().join(place).join(name)).unwrap();
        }
    }
    let place = folder.path().display();
    let text = format!(
        "[mysqld]\ninnodb_data_home_dir = {place}/system\ninnodb-log-group-home-dir=../log\n"
    );
    fs::write(folder.path().join("my.cnf"), text).unwrap();
    let report = check(&path, None);
    assert_eq!((report.findings.len(), unread(&report)), (0, vec![]), "{}", report.notes());
    assert_eq!(report.verdict(), Verdict::Intact);
    assert!(report.state.starts_with("shut down cleanly"), "{}", report.state);
    assert_eq!(report.summary.pages.total(), 1152);
    write_at(&folder.path().join("system/ibdata1"), 300 * PAGE + 500, &[0x55; 30]);
    let report = check(&path, None);
    assert!(matches!(report.found()[..], [(Severity::Damage, _, Some(300))]));
    assert!(report.findings[0].place.file.ends_with("system/ibdata1"));
}

/// The dictionary of a real server, in a directory that has little else.
#[test]
fn undo_tablespaces_and_the_dictionary_itself_are_missed_in_directories_of_mysql() {
    let name = "mysql-9.7.4-mysql.ibd-bit-flip-page-60.zst";
    let Some((folder, path)) = sample(name, "mysql.ibd") else { return };
    let root_dir = folder.path();
    let [byte] = read_at::<1>(&path, 60 * PAGE + 8192);
    write_at(&path, 60 * PAGE + 8192, &[byte ^ 0x10]);
    fs::create_dir(root_dir.join("performance_schema")).unwrap();
    fs::create_dir(root_dir.join("#innodb_redo")).unwrap();
    let log = root().unwrap().join("mysql-9.7/crc32-16k/redo_active");
    fs::copy(log, root_dir.join("#innodb_redo/#ib_redo7")).unwrap();
    let report = check(root_dir, None);
    assert!(report.state.starts_with("shut down cleanly"), "{}", report.state);
    assert_eq!(unread(&report), ["ibdata1"]);
    let damage = |name| (Severity::Damage, name);
    assert_eq!(missing(&report)[..2], [damage("undo_001"), damage("undo_002")]);
    fs::write(root_dir.join("undo_001"), "").unwrap();
    assert!(!missing(&check(root_dir, None)).contains(&damage("undo_001")));
    // Where its folder cannot be reached, it may be there.
    fs::remove_file(root_dir.join("undo_001")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(missing(&check(root_dir, None)), [damage("mysql.ibd")]);
    fs::write(root_dir.join("mysql.ibd.lz4"), "").unwrap();
    assert_eq!(missing(&check(root_dir, None)), [], "a packed one");
}

#[test]
fn parts_of_a_data_directory_that_lie_apart_are_known_and_say_so() {
    let Some((blank, _)) = sample("#ib_16384_1.dblwr.gz", "#ib_16384_1.dblwr") else { return };
    let report = check(blank.path(), None);
    assert_eq!((report.findings.len(), report.unread.len()), (0, 0));
    assert_eq!(report.summary.pages.empty, 768);
    let undo = tempfile::tempdir().unwrap();
    let table = root().unwrap().join("mysql-9.7/crc32-16k/dyn.ibd");
    fs::copy(table, undo.path().join("undo_001")).unwrap();
    let report = check(undo.path(), None);
    assert_eq!((report.findings.len(), report.unread.len()), (0, 0));
    assert_eq!(report.summary.pages.ok, 12);
    let system = tempfile::tempdir().unwrap();
    let multi = root().unwrap().join("mariadb-10.11/multi-file-4k");
    for name in ["ibdata1", "ibdata2"] {
        fs::copy(multi.join(name), system.path().join(name)).unwrap();
    }
    // The collection has the beginning of it only.
    let second = fs::File::options().write(true).open(system.path().join("ibdata2")).unwrap();
    second.set_len(2048 * 4096).unwrap();
    let report = check(system.path(), None);
    assert_eq!((report.findings.len(), report.unread.len()), (0, 0));
    assert!(report.notes().contains("a part of a data directory"), "{}", report.notes());
}

#[test]
fn copy_that_protect_did_not_finish_is_not_intact() {
    let Some((_folder, path)) = directory(OLD, "my55b") else { return };
    fs::write(path.join("pagewarden-protect.copy"), "").unwrap();
    let report = check(&path, None);
    assert_eq!(unread(&report), ["pagewarden-protect.copy"]);
    assert_eq!(report.verdict(), Verdict::Incomplete);
}

#[test]
fn link_that_leads_nowhere_makes_a_directory_incomplete() {
    let Some((_folder, path)) = directory(OLD, "my55b") else { return };
    symlink("/nowhere/at/all", path.join("shop")).unwrap();
    symlink("/nowhere/t.ibd", path.join("x/t.ibd")).unwrap();
    let report = check(&path, None);
    assert_eq!(unread(&report), ["shop", "x/t.ibd"]);
    assert_eq!(report.verdict(), Verdict::Incomplete);
}

/// A folder with a log that this server wrote.
fn log_of(creator: &[u8]) -> Option<tempfile::TempDir> {
    let mut log = fs::read(root()?.join("mysql-9.7/crc32-16k/redo_active")).unwrap();
    log[16..48].fill(0);
    log[16..16 + creator.len()].copy_from_slice(creator);
    let sum = pagewarden::crc::crc32c(&log[..508]);
    log[508..512].copy_from_slice(&sum.to_be_bytes());
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("#innodb_redo")).unwrap();
    fs::write(folder.path().join("#innodb_redo/#ib_redo7"), log).unwrap();
    Some(folder)
}

#[test]
fn clone_of_mysql_is_called_one() {
    let Some(folder) = log_of(b"MySQL Clone") else { return };
    let description = database::open(folder.path(), None).unwrap().description;
    assert!(description.state.starts_with("a clone"), "{}", description.state);
    assert!(!description.engine.contains("Clone"), "{}", description.engine);
}

/// From 26 on the year is MySQL's version.
#[test]
fn calendar_versions_of_mysql_are_versions() {
    let Some(folder) = log_of(b"MySQL 26.4.1") else { return };
    let report = check(folder.path(), None);
    assert_eq!(report.engine, "MySQL 26.4.1");
    assert!(report.state.starts_with("shut down cleanly"), "{}", report.state);
    fs::create_dir(folder.path().join("performance_schema")).unwrap();
    assert_eq!(missing(&check(folder.path(), None)), [(Severity::Damage, "mysql.ibd")]);
}

fn notes_on(folder: &Path, keyring: Option<&Path>) -> Vec<String> {
    let report = check(folder, keyring);
    assert_eq!(report.verdict(), Verdict::Incomplete);
    let notes = report.notes.into_iter().map(|note| note.text);
    notes.filter(|text| text.contains("not tested")).collect()
}

#[test]
fn pages_that_could_not_be_tested_are_told_once_for_each_reason() {
    let Some(root) = root() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, new) in [
        ("mariadb-10.11/crc32-16k/encpc.ibd", "a.ibd"),
        ("mariadb-10.11/crc32-16k/encpc.ibd", "b.ibd"),
        ("mariadb-10.11/crc32-16k/pclzo.ibd", "c.ibd"),
        ("mysql-9.7/crc32-16k/enc.ibd", "d.ibd"),
        ("mysql-9.7/crc32-16k/dyn.ibd", "e.ibd"),
    ] {
        fs::copy(root.join(name), folder.path().join(new)).unwrap();
    }
    let notes = notes_on(folder.path(), None);
    assert_eq!(notes.len(), 3, "{notes:?}");
    let [lzo, mysql, mariadb] = ["lzo", "INNODBKey-", "their key 2 "].map(|word| {
        let those: Vec<_> = notes.iter().filter(|note| note.contains(word)).collect();
        assert_eq!(those.len(), 1, "{word}: {notes:?}");
        those[0].clone()
    });
    assert!(lzo.starts_with("21 pages") && lzo.contains("c.ibd"), "{lzo}");
    assert!(mysql.starts_with("20 pages") && mysql.contains("d.ibd"), "{mysql}");
    assert!(mysql.contains("--keyring"), "{mysql}");
    assert!(mariadb.starts_with("42 pages"), "{mariadb}");
    assert!(mariadb.contains("a.ibd, b.ibd"), "{mariadb}");
    let notes = notes_on(folder.path(), Some(&root.join("mariadb-10.11/test-only-keyfile.txt")));
    assert_eq!(notes.len(), 2, "{notes:?}");
    // A file by itself says the same.
    let notes = notes_on(&folder.path().join("c.ibd"), None);
    assert!(matches!(&notes[..], [note] if note.starts_with("21 pages")), "{notes:?}");
}

/// Those of a table that was dropped: their key is not missing.
#[test]
fn encrypted_copies_in_a_doublewrite_file_make_nothing_incomplete() {
    let Some(root) = root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("#ib_16384_0.dblwr");
    let table = fs::read(root.join("mysql-9.7/crc32-16k/enc.ibd")).unwrap();
    fs::write(&path, &table[..4 << 14]).unwrap();
    let report = check(&path, None);
    assert_eq!((report.findings.len(), report.summary.pages.unverifiable), (0, 0));
    assert_eq!(report.verdict(), Verdict::Intact);
}

/// A real directory, each of whose needs is taken away in turn.
#[test]
fn what_a_directory_of_mariadb_needs_is_missed_and_nothing_of_a_whole_one_is() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let mut server = Server::install(&installation, &["innodb_undo_tablespaces=3"]).unwrap();
    server.start().unwrap();
    server
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)")
        .unwrap();
    let live = check(server.data_dir(), None);
    assert_eq!((unread(&live), missing(&live)), (vec![], vec![]), "in use");
    server.stop().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let copied = Command::new("cp").arg("-a").arg(server.data_dir()).arg(&path).status();
    assert!(copied.unwrap().success());
    let whole = check(&path, None);
    assert_eq!((whole.findings.len(), unread(&whole)), (0, vec![]), "{:?}", whole.findings);
    assert_eq!(whole.verdict(), Verdict::Intact);
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let undo = ["undo001", "undo002", "undo003"];
    fs::rename(path.join(undo[1]), elsewhere.join(undo[1])).unwrap();
    assert_eq!(missing(&check(&path, None)), [(Severity::Damage, "undo002")]);
    // With the others gone too they may all be elsewhere.
    for name in [undo[0], undo[2]] {
        fs::rename(path.join(name), elsewhere.join(name)).unwrap();
    }
    let report = check(&path, None);
    assert_eq!((missing(&report), unread(&report).len()), (vec![], 3));
    assert_eq!(report.verdict(), Verdict::Incomplete);
    fs::write(folder.path().join("my.cnf"), "[mariadb]\ninnodb_undo_directory = ../elsewhere\n")
        .unwrap();
    let report = check(&path, None);
    assert_eq!((report.findings.len(), unread(&report)), (0, vec![]), "{:?}", report.findings);
    assert_eq!(report.summary.pages.total(), whole.summary.pages.total());
    fs::remove_file(folder.path().join("my.cnf")).unwrap();
    undo.iter().for_each(|name| fs::rename(elsewhere.join(name), path.join(name)).unwrap());
    for name in ["ibdata1", "ib_logfile0"] {
        fs::rename(path.join(name), elsewhere.join(name)).unwrap();
        let report = check(&path, None);
        assert_eq!((unread(&report), missing(&report)), (vec![name], vec![]));
        assert_eq!(report.verdict(), Verdict::Incomplete, "{name}");
        fs::rename(elsewhere.join(name), path.join(name)).unwrap();
    }
    assert_eq!(check(&path, None).verdict(), Verdict::Intact);
}
